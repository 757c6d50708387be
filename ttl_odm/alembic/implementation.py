"""What ``op.add_ttl``, ``op.alter_ttl`` and ``op.drop_ttl`` do, from the checks to the last step.

Nothing is changed before every check has passed. What a database does differently is in
`ttl_odm.alembic.steps` and its three children.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from alembic.operations import Operations

from ttl_odm.alembic import checks, policies
from ttl_odm.alembic.backfill import Backfill, instant_of
from ttl_odm.alembic.database_sweep import DatabaseSweep, refuse_unsweepable
from ttl_odm.alembic.enforcement import Enforcement, refuse_unenforceable
from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.alembic.job_settings import JobSettings
from ttl_odm.alembic.layouts import declared_by, migrations_of
from ttl_odm.alembic.mysql import MySQLSteps
from ttl_odm.alembic.operations import (
    AddFollowsOp,
    AddTTLOp,
    AlterTTLOp,
    DropFollowsOp,
    DropTTLOp,
    FollowsOp,
    written,
)
from ttl_odm.alembic.postgresql import PostgreSQLSteps
from ttl_odm.alembic.progress import Progress
from ttl_odm.alembic.reflection import ExistingSchema, read_schema
from ttl_odm.alembic.runner import Runner
from ttl_odm.alembic.sqlite import SQLiteSteps
from ttl_odm.alembic.target_schema import INDEXED, TargetSchema
from ttl_odm.core.policy import as_policy
from ttl_odm.dialects.entry_points import PAGE
from ttl_odm.errors import InvalidTTL, TTLConfigurationError
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.alembic.steps import Steps
    from ttl_odm.sqlalchemy.policy.binding import Binding

_STEPS: Final[dict[str, type[Steps[Any]]]] = {
    "postgresql": PostgreSQLSteps,
    "mysql": MySQLSteps,
    "sqlite": SQLiteSteps,
}


def steps_of(runner: Runner, target: TargetSchema, existing: ExistingSchema) -> Steps[Any]:
    """The steps of a database to one table."""
    return _STEPS[clock_of(runner.dialect).family](runner, target, existing)


class _Migration:
    """One operation on one table: what the three do alike."""

    def __init__(self, operations: Operations, op: AddTTLOp | AlterTTLOp | DropTTLOp) -> None:
        where = f"op.{op.verb}_ttl({op.table_name!r}) default_ttl"
        try:
            policy = as_policy(op.default_ttl, where=where)
            place = policies.place_of(operations.migration_context)
            self.target = TargetSchema.of(op.table_name, policy, op.schema, place)
        except (InvalidTTL, TTLConfigurationError) as error:
            raise MigrationRefusedError(str(error)) from error
        self._op = op
        self._declared = declared_by(getattr(op, "partition", None))
        self.runner = Runner(operations.migration_context, in_transaction=op.in_transaction)
        self.dialect = self.runner.dialect

    @cached_property
    def progress(self) -> Progress:
        """How far an earlier run of the same revision came."""
        return Progress(self.runner, self._op.verb, self.target.table.fullname)

    @cached_property
    def existing(self) -> ExistingSchema:
        """What the table has; nothing for a script."""
        family = clock_of(self.dialect).family  # Says which databases there are.
        if family not in _STEPS:
            raise MigrationRefusedError(
                f"Table {self.target.label}: op.{self._op.verb} supports {', '.join(_STEPS)}, but "
                f"not {family}: add the columns with Alembic's own operations, as described in "
                f"{PAGE}."
            )
        if self.runner.offline:
            return ExistingSchema()
        return read_schema(self.runner.connection, self.target)

    def steps(self) -> Steps[Any]:
        """The steps of this database."""
        op = self._op
        is_new = isinstance(op, AddTTLOp) and op.in_transaction
        steps = steps_of(self.runner, self.target, self.existing)
        steps.may_copy = is_new or op.copy_table
        steps.refuse_copies(getattr(op, "sweep", "scan"))
        return steps

    @cached_property
    def cut(self) -> Binding | None:
        """The policy of a table that is to be cut; None where it isn't, or others see to that."""
        op, declared = self._op, self._declared
        if declared is None or not migrations_of(declared).is_made(declared, self.dialect.name):
            return None
        if self.runner.offline and not op.in_transaction:
            raise MigrationRefusedError(
                f"Table {self.target.label}: partition= reads the table's definition from the "
                "database, which --sql can't do. Run this migration online. (For a table that "
                "the same revision creates in partitions, write in_transaction=True.)"
            )
        where = f"op.{op.verb}_ttl({op.table_name!r}) partition"
        return migrations_of(declared).stand_in(self.target, self.existing, declared, where)

    def refuse_uncuttable(self) -> None:
        """Refuse a table that can't be cut, where it is to be."""
        if self._declared is not None and self.cut is not None:
            migrations_of(self._declared).change(self.steps(), self.cut).refuse()

    @cached_property
    def job_settings(self) -> JobSettings:
        """When the database's own job may work."""
        op = self._op
        return JobSettings() if isinstance(op, DropTTLOp) else JobSettings.of(op, self.target.label)

    def refuse_unsweepable(self) -> None:
        """Refuse a table that the database can't sweep by itself, where it is to."""
        settings, declared = self.job_settings, getattr(self._op, "sweep", None)
        if declared == "database" or (declared is None and self.existing.job):
            is_cut = self._declared is not None
            refuse_unsweepable(self.runner, self.target, self.existing, is_cut=is_cut)
            settings.refuse_unknown_zone(self.runner, self.target.label)
        elif settings.columns:
            raise MigrationRefusedError(
                f"Table {self.target.label}: window and max_fraction are settings of the job that "
                "sweep='database' creates, and there is none. Write sweep='database', or pass "
                "them to your Sweeper."
            )

    def cut_by(self, steps: Steps[Any]) -> None:
        """Cut the table, where it is to be."""
        if self._declared is not None and self.cut is not None:
            migrations_of(self._declared).change(steps, self.cut).make()

    @contextmanager
    def unfinished(self) -> Iterator[Steps[Any] | None]:
        """The steps, for a block after which the operation is finished; None if it is already.

        Either way this run forgets the progress together with the revision.
        """
        if self.progress.state == "finished":
            self.progress.begin()
            yield None
            return
        with self.runner.outside_transactions():
            steps = self.steps()
            self.progress.begin()
            yield steps
            self.progress.finish()

    def index_dates(self, sweep: str | None) -> None:
        """A table that has its dates already gets the index, and a job, or loses both ("scan").

        To add it again does no harm.
        """
        target, runner = self.target, self.runner
        self._refuse_needless()
        if not runner.offline:
            if target.dates not in self.existing.columns:
                raise MigrationRefusedError(
                    f"Table {target.label} has no column {target.dates!r}; it has "
                    f"{', '.join(self.existing.columns)}."
                )
            checks.refuse_without_rights(runner.connection, target)
            if sweep in INDEXED and not runner.in_transaction:
                checks.refuse_partitioned(target, self.existing)
        self.refuse_uncuttable()
        self.refuse_unreadable()
        with runner.outside_transactions():
            steps = self.steps()
            job = DatabaseSweep(steps)
            if not runner.offline:
                job.make_way(sweep)
            if sweep in INDEXED:
                steps.add_indexes()
            elif sweep == "scan":
                steps.drop_indexes()
            self.cut_by(steps)
            if isinstance(self._op, DropTTLOp):
                if not runner.offline or self._op.view:
                    Enforcement(steps, self._op.view).drop()
                return
            if not runner.offline or self._op.enforce:
                Enforcement(steps, self._op.view).change(self._op.enforce)
            job.change(sweep, self.job_settings)

    def _refuse_needless(self) -> None:
        """Refuse what means nothing where the table has its dates."""
        target, op = self.target, self._op
        makes_more = op.enforce or op.sweep == "database" if isinstance(op, AddTTLOp) else True
        if not target.indexes and not makes_more:
            raise MigrationRefusedError(
                f"{target.policy!r} uses existing columns of table {target.label}, so it needs no "
                "migration. To hide expired rows from other programs, write enforce=; to let the "
                "database delete them, sweep='database'."
            )
        copying = () if self._declared is None else ("copy_table",)
        usual = ("sweep", "in_transaction", "partition", "enforce", "view")
        misplaced = op.options(*usual, "window", "timezone", "max_fraction", *copying)
        if misplaced:
            raise MigrationRefusedError(
                f"Table {target.label}: {written(target.policy)} adds an index and a view, so "
                f"{', '.join(misplaced)} has no meaning here. Leave it out."
            )

    def refuse_unreadable(self) -> None:
        """Refuse a view, or row-level security, of which nobody knows what it would hold."""
        op, existing = self._op, self.existing
        if isinstance(op, DropTTLOp) or op.enforce == "off":
            return
        if op.enforce or existing.view or existing.policies:
            try:
                self.target.live(self.dialect, existing.columns)
            except TTLConfigurationError as error:
                raise MigrationRefusedError(str(error)) from error


@Operations.implementation_for(AddTTLOp)
def _add(operations: Operations, op: AddTTLOp) -> None:
    migration = _Migration(operations, op)
    _check_options(op)
    runner, target = migration.runner, migration.target
    refuse_unenforceable(op.enforce, op.view, runner)
    migration.refuse_unsweepable()
    checks.warn_of_restricting_keys(runner, target, migration.existing)
    checks.warn_of_unindexed_links(runner, target, migration.existing)
    if target.dates is not None:
        # No index is what "scan" asks for, and whose it is that is there, nobody knows.
        migration.index_dates(op.sweep if op.sweep in INDEXED else None)
        return
    migration.refuse_unreadable()
    progress = migration.progress
    source = _check_add(runner, target, migration.existing, op, resumes=progress.resumes)
    migration.refuse_uncuttable()
    with migration.unfinished() as steps:
        if steps is None:
            return
        policies.begin(runner, target)
        never = op.backfill is None
        steps.add_columns(never=never, note=lambda since: progress.note("begun", since=since))
        if progress.state != "backfilled":
            if not runner.offline and (source is not None or steps.rewrites_rows):
                assert progress.since is not None  # noqa: S101 (noted with the columns)
                rewriting = steps.rewrites_rows
                walk = Backfill(
                    runner, target, since=progress.since, instant=source, rewriting=rewriting
                )
                walk.run()
            progress.note("backfilled")
        steps.settle()
        if op.sweep in INDEXED:
            steps.add_indexes()
        if op.touch_trigger:
            steps.add_trigger()
        migration.cut_by(steps)
        if op.enforce:
            Enforcement(steps, op.view).change(op.enforce)
        DatabaseSweep(steps).change(op.sweep, migration.job_settings)


def _check_add(
    runner: Runner, target: TargetSchema, existing: ExistingSchema, op: AddTTLOp, *, resumes: bool
) -> str | None:
    """Refuse what can't be added; return SQL for the instants that old rows get."""
    from_column = op.backfill not in ("now", None)
    if runner.offline:
        if from_column or op.max_expired_now is not None:
            what = "backfill=a column" if from_column else "max_expired_now"
            raise MigrationRefusedError(
                f"{what} reads the database, which --sql can't do. Run this migration online, or "
                "write backfill='now' and update _ts in batches yourself."
            )
        return None
    if not resumes:
        checks.refuse_existing(target, existing, keep_ttl=op.keep_ttl)
        if op.sweep in INDEXED and not runner.in_transaction:
            checks.refuse_partitioned(target, existing)
        checks.refuse_without_rights(runner.connection, target)
    kept = op.keep_ttl and target.own_ttl.name in existing.columns
    if kept and not resumes:
        checks.refuse_kept(runner.connection, target, existing)
        if op.backfill is None:
            raise MigrationRefusedError(
                f"Table {target.label}: backfill=None would overwrite the ttl of rows that "
                "keep_ttl=True keeps. Write backfill='now'."
            )
    if not from_column:
        return None
    assert op.backfill is not None  # noqa: S101 (it names a column)
    column = checks.refuse_source(target, existing, op.backfill)
    source = instant_of(column, runner.dialect)
    if not resumes:
        clock = clock_of(runner.dialect)
        instant = f"COALESCE({clock.least(source, clock.now)}, {clock.now})"
        checks.refuse_expiring(runner.connection, target, instant, op.max_expired_now)
    return source


@Operations.implementation_for(AlterTTLOp)
def _alter(operations: Operations, op: AlterTTLOp) -> None:
    migration = _Migration(operations, op)
    _check_options(op)
    runner, target = migration.runner, migration.target
    refuse_unenforceable(op.enforce, op.view, runner, off=True)
    migration.refuse_unsweepable()
    if target.dates is not None:
        migration.index_dates(op.sweep)
        return
    if runner.offline:
        if op.copy_table and clock_of(runner.dialect).family == "mysql" and not runner.is_mariadb:
            raise MigrationRefusedError(
                "copy_table reads the name of the CHECK from the database, which --sql can't do. "
                "Run this migration online, or write ALTER TABLE ... ALTER CHECK ... ENFORCED."
            )
        # The columns and the CHECK are there, or there would be nothing to alter.
        columns = dict(target.table.c)
        migration.existing = ExistingSchema(columns=columns, check="there", stamps=True)
    else:
        checks.refuse_missing(target, migration.existing)
        check = migration.existing.check
        if check in ("missing", "outdated") or (op.copy_table and check != "there"):
            checks.refuse_unchecked(runner.connection, target)
        checks.refuse_without_rights(runner.connection, target)
        if op.sweep in INDEXED and not runner.in_transaction:
            checks.refuse_partitioned(target, migration.existing)
        quote = runner.dialect.identifier_preparer.quote
        own, stamp = quote(target.own_ttl.name), quote(target.last_modified.name)
        # Rows with a ttl of their own don't follow the default.
        instant = f"CASE WHEN {own} IS NULL THEN {stamp} END"
        checks.refuse_expiring(runner.connection, target, instant, op.max_expired_now)
    migration.refuse_uncuttable()
    migration.refuse_unreadable()
    with runner.outside_transactions():
        steps = migration.steps()
        policies.settle(runner, target)
        DatabaseSweep(steps).make_way(op.sweep)
        if runner.offline:
            steps.replace_check()
        else:
            steps.add_columns(never=False, note=lambda _: None)
            steps.settle()
        if op.sweep in INDEXED:
            steps.add_indexes()
        elif op.sweep == "scan":
            steps.drop_indexes()
        if op.touch_trigger is not None:
            steps.add_trigger() if op.touch_trigger else steps.drop_trigger()
        migration.cut_by(steps)
        Enforcement(steps, op.view).change(op.enforce)
        DatabaseSweep(steps).change(op.sweep, migration.job_settings)


@Operations.implementation_for(DropTTLOp)
def _drop(operations: Operations, op: DropTTLOp) -> None:
    migration = _Migration(operations, op)
    runner, target = migration.runner, migration.target
    if target.dates is not None:
        migration.index_dates("scan")
        return
    if not runner.offline and not migration.progress.resumes:
        checks.refuse_missing(target, migration.existing)
        checks.refuse_without_rights(runner.connection, target)
    with migration.unfinished() as steps:
        if steps is None:
            return
        DatabaseSweep(steps).drop()
        Enforcement(steps, op.view).drop()
        steps.drop_trigger()
        steps.drop_indexes()
        steps.drop_columns(keep_ttl=op.keep_ttl)
        policies.end(runner, target)


@Operations.implementation_for(AddFollowsOp)
def _add_follows(operations: Operations, op: AddFollowsOp) -> None:
    with _link_steps(operations, op) as steps:
        steps.add_indexes()


@Operations.implementation_for(DropFollowsOp)
def _drop_follows(operations: Operations, op: DropFollowsOp) -> None:
    with _link_steps(operations, op) as steps:
        steps.drop_indexes()


@contextmanager
def _link_steps(operations: Operations, op: FollowsOp) -> Iterator[Steps[Any]]:
    """The steps to the index of a link, once it is sure that there may be one."""
    if isinstance(op.columns, str) or not op.columns:
        raise MigrationRefusedError(
            f"op.{op.verb}_follows({op.table_name!r}, {op.columns!r}): give a list of the columns "
            "that lead to the parent."
        )
    runner = Runner(operations.migration_context, in_transaction=op.in_transaction)
    target = TargetSchema.of_link(op.table_name, op.columns, op.schema)
    existing = ExistingSchema() if runner.offline else read_schema(runner.connection, target)
    if not runner.offline:
        missing = [name for name in op.columns if name not in existing.columns]
        if missing and isinstance(op, AddFollowsOp):
            raise MigrationRefusedError(
                f"Table {target.label} has no column {' and no '.join(map(repr, missing))}; it has "
                f"{', '.join(existing.columns)}."
            )
        checks.refuse_without_rights(runner.connection, target)
        if isinstance(op, AddFollowsOp) and not runner.in_transaction:
            checks.refuse_partitioned(target, existing)
    with runner.outside_transactions():
        yield steps_of(runner, target, existing)


def _check_options(op: AddTTLOp | AlterTTLOp) -> None:
    left_out = op.sweep is None and isinstance(op, AlterTTLOp)
    if op.sweep not in ("index", "scan", "database") and not left_out:
        raise MigrationRefusedError(f"sweep={op.sweep!r}: give 'index', 'scan' or 'database'.")
    part = op.max_expired_now
    if part is not None and (isinstance(part, bool) or not 0 <= part <= 1):
        raise MigrationRefusedError(
            f"max_expired_now={part!r} is not a fraction: give a number from 0 to 1."
        )
