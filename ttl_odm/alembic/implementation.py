"""What ``op.add_ttl``, ``op.alter_ttl`` and ``op.drop_ttl`` do, from the checks to the last step.

Nothing is changed before every check has passed. What differs by database is in
`ttl_odm.alembic.steps` and its three subclasses.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

from alembic.operations import Operations

from ttl_odm.alembic import checks
from ttl_odm.alembic.aspects import of_operation, on_table, seconds_of
from ttl_odm.alembic.backfill import Backfill, instant_of
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
from ttl_odm.alembic.runner import MigrationRefusedError, Runner, catch_up
from ttl_odm.alembic.sqlite import SQLiteSteps
from ttl_odm.alembic.target_schema import INDEXED, TargetSchema
from ttl_odm.core.policy import as_policy
from ttl_odm.dialects.families import PAGE
from ttl_odm.errors import InvalidTTL, TTLConfigurationError
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.alembic.steps import Steps
    from ttl_odm.dialects import Family

_STEPS: Final[dict[str, type[Steps[Family]]]] = {
    "postgresql": PostgreSQLSteps,
    "mysql": MySQLSteps,
    "sqlite": SQLiteSteps,
}


def steps_of(runner: Runner, target: TargetSchema, existing: ExistingSchema) -> Steps[Family]:
    """Return the steps of a table's database."""
    return _STEPS[clock_of(runner.dialect).family](runner, target, existing)


class _Migration:
    """One operation on one table: what ``add_ttl``, ``alter_ttl`` and ``drop_ttl`` share."""

    def __init__(self, operations: Operations, op: AddTTLOp | AlterTTLOp | DropTTLOp) -> None:
        self.runner = Runner(operations.migration_context, in_transaction=op.in_transaction)
        catch_up(self.runner)
        self._op = op
        try:
            where = f"op.{op.verb}_ttl({op.table_name!r}) default_ttl"
            policy = as_policy(op.default_ttl, where=where)
            self.target = TargetSchema.of(op.table_name, policy, op.schema)
        except (InvalidTTL, TTLConfigurationError) as error:
            raise MigrationRefusedError(str(error)) from error
        may_have_more = op.verb != "add" or self.target.dates is not None
        self._aspects = on_table(
            of_operation(policy, op.options(), may_have_more=may_have_more),
            None if self.runner.offline else self.runner.connection,
            self.target,
            self.runner.metadatas,
        )

    @cached_property
    def progress(self) -> Progress:
        """How far an earlier run of the same revision came, if there was one."""
        progress = Progress(self.runner, self._op.verb, self.target.table.fullname)
        if progress.state in ("backfilled", "finished"):
            has_ttl = self.target.last_modified.name in self.existing.columns
            # What was done has been undone since, or the table was renamed.
            if has_ttl == (self._op.verb == "drop"):
                progress.discard()
        return progress

    @cached_property
    def existing(self) -> ExistingSchema:
        """What the table has now. A script assumes a new table, or for ``alter_ttl`` TTL."""
        family = clock_of(self.runner.dialect).family  # rejects unsupported databases
        if family not in _STEPS:
            raise MigrationRefusedError(
                f"Table {self.target.label}: op.{self._op.verb} supports {', '.join(_STEPS)}, but "
                f"not {family}: add the columns with Alembic's own operations, as described in "
                f"{PAGE}."
            )
        if not self.runner.offline:
            return read_schema(self.runner.connection, self.target)
        if self._op.verb == "alter" and self.target.dates is None:
            # There would be nothing to alter without the columns and the CHECK.
            return ExistingSchema(columns=dict(self.target.table.c), check="there", stamps=True)
        return ExistingSchema()

    @cached_property
    def steps(self) -> Steps[Family]:
        """The steps of this database."""
        op = self._op
        is_new = isinstance(op, AddTTLOp) and op.in_transaction
        steps = steps_of(self.runner, self.target, self.existing)
        steps.may_copy = is_new or op.copy_table
        return steps

    def check_arguments(self) -> None:
        """Reject invalid arguments of extensions."""
        for aspect in self._aspects:
            aspect.check(self._op, self.steps)

    def refuse(self) -> None:
        """Reject a table that can't have what the operation makes, as the last check."""
        self.steps.refuse_copies(getattr(self._op, "sweep", "scan"))
        for aspect in self._aspects:
            aspect.refuse(self._op, self.steps)

    def before(self) -> None:
        """Make the extensions' changes that come before those of columns and indexes."""
        for aspect in self._aspects:
            aspect.before(self._op, self.steps)

    def after(self) -> None:
        """Make the extensions' changes that come after those of columns and indexes."""
        for aspect in reversed(self._aspects):
            aspect.after(self._op, self.steps)

    @contextmanager
    def unfinished(self) -> Iterator[Steps[Family] | None]:
        """Enter a block that finishes the operation, with its steps; None if it is finished.

        Either way, the progress is deleted when the revision is recorded.
        """
        if self.progress.state == "finished":
            self.progress.begin()
            yield None
            return
        with self.runner.outside_transactions():
            self.progress.begin()
            yield self.steps
            self.progress.finish()

    def index_dates(self, sweep: str | None) -> None:
        """Add, or for "scan" drop, the index on the dates of a table's own; None leaves it.

        Adding it again does no harm.
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
        self.refuse()
        with runner.outside_transactions():
            self.before()
            if sweep in INDEXED:
                self.steps.add_indexes()
            elif sweep == "scan":
                self.steps.drop_indexes()
            self.after()

    def _refuse_needless(self) -> None:
        """Reject an operation, or arguments, without a meaning for a table with its own dates."""
        target, op = self.target, self._op
        makes_more = op.enforce or op.sweep == "database" if isinstance(op, AddTTLOp) else True
        if not target.indexes and not makes_more:
            raise MigrationRefusedError(
                f"{target.policy!r} uses existing columns of table {target.label}, so it needs no "
                "migration. To hide expired rows from other programs, write enforce=; to let the "
                "database delete them, sweep='database'."
            )
        meaningful = ["sweep", "in_transaction", "partition", "enforce", "view"]
        meaningful += ["window", "timezone", "max_fraction"]
        if op.argument("partition") is not None:
            meaningful.append("copy_table")
        misplaced = op.options(*meaningful)
        if misplaced:
            raise MigrationRefusedError(
                f"Table {target.label}: {written(target.policy)} adds an index and a view, so "
                f"{', '.join(misplaced)} has no meaning here. Leave it out."
            )


@Operations.implementation_for(AddTTLOp)
def _add(operations: Operations, op: AddTTLOp) -> None:
    migration = _Migration(operations, op)
    _check_options(op)
    runner, target = migration.runner, migration.target
    migration.check_arguments()
    checks.warn_of_restricting_keys(runner, target, migration.existing)
    checks.warn_of_unindexed_links(runner, target, migration.existing)
    if target.dates is not None:
        # "scan" needs no index, and an existing one may be the application's.
        migration.index_dates(op.sweep if op.sweep in INDEXED else None)
        return
    progress = migration.progress
    source = _check_add(migration, op)
    migration.refuse()
    with migration.unfinished() as steps:
        if steps is None:
            return
        migration.before()
        never = op.backfill is None
        steps.add_columns(never=never, note=lambda since: progress.note("begun", since=since))
        if progress.state != "backfilled":
            if not runner.offline and (source is not None or steps.rewrites_rows):
                assert progress.since is not None  # noqa: S101 (noted with the columns)
                Backfill(steps, since=progress.since, instant=source).run()
            progress.note("backfilled")
        steps.settle()
        if op.sweep in INDEXED:
            steps.add_indexes()
        if op.touch_trigger:
            steps.add_trigger()
        migration.after()


def _refuse_reading(op: AddTTLOp) -> None:
    """Reject what reads the database, for a script."""
    if op.backfill not in ("now", None) or op.max_expired_now is not None:
        what = "max_expired_now" if op.backfill in ("now", None) else "backfill=a column"
        raise MigrationRefusedError(
            f"{what} reads the database, which --sql can't do. Run this migration online, or "
            "write backfill='now' and update _ts in batches yourself."
        )
    if op.keep_ttl:
        raise MigrationRefusedError(
            "keep_ttl=True reads the table's column and its values, which --sql can't do. Run "
            "this migration online."
        )


def _check_add(migration: _Migration, op: AddTTLOp) -> str | None:
    """Reject what can't be added; return SQL for the instants that old rows get, if any."""
    runner, target, existing = migration.runner, migration.target, migration.existing
    resumes = migration.progress.resumes
    from_column = op.backfill not in ("now", None)
    if runner.offline:
        _refuse_reading(op)
        return None
    if not resumes:
        if runner.dialect.name != "postgresql":
            checks.refuse_other_case(target, existing)
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
        limits = seconds_of(target), op.max_expired_now
        checks.refuse_expiring(runner.connection, target, instant, *limits)
    return source


@Operations.implementation_for(AlterTTLOp)
def _alter(operations: Operations, op: AlterTTLOp) -> None:
    migration = _Migration(operations, op)
    _check_options(op)
    runner, target = migration.runner, migration.target
    migration.check_arguments()
    if target.dates is not None:
        migration.index_dates(op.sweep)
        return
    if runner.offline:
        if op.copy_table and clock_of(runner.dialect).family == "mysql" and not runner.is_mariadb:
            raise MigrationRefusedError(
                "copy_table reads the name of the CHECK from the database, which --sql can't do. "
                "Run this migration online, or write ALTER TABLE ... ALTER CHECK ... ENFORCED."
            )
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
        # The default doesn't apply to rows with a ttl of their own.
        instant = f"CASE WHEN {own} IS NULL THEN {stamp} END"
        limits = seconds_of(target), op.max_expired_now
        checks.refuse_expiring(runner.connection, target, instant, *limits)
    migration.refuse()
    with runner.outside_transactions():
        steps = migration.steps
        migration.before()
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
        migration.after()


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
    migration.refuse()
    with migration.unfinished() as steps:
        if steps is None:
            return
        migration.before()
        steps.drop_trigger()
        steps.drop_indexes()
        steps.drop_columns(keep_ttl=op.keep_ttl)
        migration.after()


@Operations.implementation_for(AddFollowsOp)
def _add_follows(operations: Operations, op: AddFollowsOp) -> None:
    with _link_steps(operations, op) as steps:
        steps.add_indexes()


@Operations.implementation_for(DropFollowsOp)
def _drop_follows(operations: Operations, op: DropFollowsOp) -> None:
    with _link_steps(operations, op) as steps:
        steps.drop_indexes()


@contextmanager
def _link_steps(operations: Operations, op: FollowsOp) -> Iterator[Steps[Family]]:
    """Check the index of a link, then enter a block with the steps."""
    if isinstance(op.columns, str) or not op.columns:
        raise MigrationRefusedError(
            f"op.{op.verb}_follows({op.table_name!r}, {op.columns!r}): give a list of the columns "
            "that lead to the parent."
        )
    runner = Runner(operations.migration_context, in_transaction=op.in_transaction)
    catch_up(runner)
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
    is_omitted = op.sweep is None and isinstance(op, AlterTTLOp)
    if op.sweep not in ("index", "scan", "database") and not is_omitted:
        raise MigrationRefusedError(f"sweep={op.sweep!r}: give 'index', 'scan' or 'database'.")
    fraction = op.max_expired_now
    if fraction is not None and (isinstance(fraction, bool) or not 0 <= fraction <= 1):
        raise MigrationRefusedError(
            f"max_expired_now={fraction!r} is not a fraction: give a number from 0 to 1."
        )
