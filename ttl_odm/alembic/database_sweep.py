"""`sweep="database"`: the database deletes expired rows by itself, with no process of ours.

On MariaDB and MySQL an EVENT calls a procedure, on PostgreSQL a job of pg_cron does. The procedure
deletes in batches, oldest first, rows that nobody holds. The default ttl is written into it, so
`op.alter_ttl` replaces both; one that is stored it looks up, as every statement does. What the last
run did, and when it may run, is in a table of one row, TABLE_ttl_sweeps.

A `Sweeper` has the right of way: each batch reads the row of its lease under a shared lock, and
gives up where somebody holds the lease, or has paused the sweepers. So a sweeper that acquires the
lease waits for one batch, and has the table for itself from then on.

Here is which tables can be swept so; `mysql_job` and `postgresql_job` have the statements.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import inspect, text

from ttl_odm.alembic.database_job import DatabaseJob, bindings_of, copy_of, tables_of
from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.alembic.job_settings import JobSettings
from ttl_odm.alembic.mysql_job import MySQLJob
from ttl_odm.alembic.operations import written
from ttl_odm.alembic.postgresql_job import PostgreSQLJob
from ttl_odm.alembic.target_schema import LAST_MODIFIED
from ttl_odm.combinations import combination
from ttl_odm.core.policy import TTL
from ttl_odm.dialects import index_name
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.policy.rules import rule_of
from ttl_odm.sqlalchemy.policy.whole import whole_policy
from ttl_odm.sqlalchemy.sweep.due import needs_of, stored_indexes
from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKeys
from ttl_odm.sqlalchemy.sweep.job_losses import left_behind, untraced_keys
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper.declarations import Archive, archive_of, hooks_of

if TYPE_CHECKING:
    from ttl_odm.alembic.reflection import ExistingSchema
    from ttl_odm.alembic.runner import Runner
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.alembic.target_schema import TargetSchema
    from ttl_odm.sqlalchemy.policy.binding import Binding

log = logging.getLogger("alembic.ttl_odm")

_JOBS: Final[dict[str, type[MySQLJob | PostgreSQLJob]]] = {
    "mysql": MySQLJob,
    "postgresql": PostgreSQLJob,
}

_SINCE: Final = {True: (10, 6), False: (8, 0, 1)}
"""The releases of MariaDB, and of MySQL, that skip rows which are locked."""

_NO_SETTINGS: Final = JobSettings()

_LEAVES_ROWS: Final = ("CASCADE", "SET NULL", "SET DEFAULT")
"""What a foreign key does that does not keep the rows that it refers to."""


def refuse_unsweepable(
    runner: Runner, target: TargetSchema, existing: ExistingSchema, *, is_cut: bool
) -> None:
    """Refuse a table that the database can't sweep as the model says, with the reason."""
    _refuse_ruled(runner, target)
    bindings = bindings_of(runner, target)
    is_cut = is_cut or any(binding.layout is not None for binding in bindings)
    reason = _unknown(runner, is_cut=is_cut) or _on_this_server(runner, target, existing)
    if reason is None:
        for binding in bindings:
            reason = reason or _of_model(binding) or _of_other_policy(target, binding)
            reason = reason or _of_losses(runner, binding)
        reason = reason or _of_archive(runner, target) or _of_indexes(runner, target, existing)
    if reason is not None:
        raise MigrationRefusedError(
            f"Table {target.label}: sweep='database' {reason}. Write sweep='index', and run a "
            "Sweeper."
        )


def _refuse_ruled(runner: Runner, target: TargetSchema) -> None:
    """Refuse a table whose rows have no lifetime: a job would delete live ones."""
    for table in tables_of(runner, target):
        rule = rule_of(table)
        if rule is not None:
            raise MigrationRefusedError(str(rule.rejected("sweep", table.fullname)))


def _unknown(runner: Runner, *, is_cut: bool) -> str | None:
    if clock_of(runner.dialect).family not in _JOBS:
        return f"is for MariaDB, MySQL and PostgreSQL; this is {runner.dialect.name}"
    if runner.offline:
        return (
            "reads keys and rights from the database, which --sql can't do; run this "
            "migration online"
        )
    return _reason("partitions") if is_cut else None


def _on_this_server(runner: Runner, target: TargetSchema, existing: ExistingSchema) -> str | None:
    if runner.dialect.name == "postgresql":
        reason = _on_postgresql(runner, existing)
    else:
        reason = _on_mysql(runner, existing)
    return reason or _of_keys(runner, target)


def _on_postgresql(runner: Runner, existing: ExistingSchema) -> str | None:
    if existing.is_partitioned:
        return "is not for partitioned tables"
    may = runner.connection.exec_driver_sql(_MAY_SCHEDULE).scalar()
    if may is False:
        return "schedules a pg_cron job, which requires GRANT USAGE ON SCHEMA cron"
    return None


_MAY_SCHEDULE: Final = (
    "SELECT has_schema_privilege(extnamespace, 'USAGE') AND has_schema_privilege(n.oid, 'USAGE') "
    "FROM pg_catalog.pg_extension, pg_catalog.pg_namespace n "
    "WHERE extname = 'pg_cron' AND n.nspname = 'cron'"
)


def _on_mysql(runner: Runner, existing: ExistingSchema) -> str | None:
    name, least = "MariaDB" if runner.is_mariadb else "MySQL", _SINCE[runner.is_mariadb]
    if (runner.dialect.server_version_info or least) < least:
        return f"skips locked rows, which requires {name} {'.'.join(map(str, least))} or later"
    if not existing.primary_key:
        return "deletes rows by primary key, and the table has none"
    if str(runner.connection.exec_driver_sql("SELECT @@event_scheduler").scalar()).upper() != "ON":
        return (
            "requires the server's event scheduler, which is off (SET GLOBAL event_scheduler = "
            "ON, and event_scheduler = ON in its configuration)"
        )
    return None


def _of_keys(runner: Runner, target: TargetSchema) -> str | None:
    table = target.table
    keys = ReferringKeys().of(runner.connection, (table.schema, table.name))
    keeping = sorted(str(key) for key in keys if key.deletes not in _LEAVES_ROWS)
    if keeping:
        return (
            f"can't tell which rows are kept by {', '.join(keeping)}, a foreign key without ON "
            "DELETE CASCADE or SET NULL"
        )
    slow = [key for key in keys if not key.has_index]
    if slow:
        return (
            f"would read all of {', '.join(map(str, slow))} for each deleted row, because an "
            f"index is missing: {'; '.join(key.remedy(runner.dialect) for key in slow)}"
        )
    return None


def _of_model(binding: Binding) -> str | None:
    owner = binding.default.owner
    if getattr(owner, "__ttl_purge__", "sql") == "orm":
        return _reason("orm", model=binding.name)
    if not isinstance(archive_of(owner), Archive | None):
        return _reason("archive", model=binding.name)
    if hooks_of(owner, binding.table.fullname).watches(binding.table.fullname):
        return _reason("hooks", model=binding.name)
    return None


def _reason(capability: str, **names: str) -> str:
    """Why the database can't sweep a table with a capability."""
    return combination("sqlalchemy", "database_sweep", capability).reason_for(**names)


def _of_losses(runner: Runner, binding: Binding) -> str | None:
    left = left_behind(runner.connection, binding)
    if left:
        return _reason("followed", tables=", ".join(left))
    keys = untraced_keys(runner.connection, binding)
    if keys:
        return (
            f"would delete the rows of {', '.join(map(str, keys))} by ON DELETE CASCADE, without "
            "the archive, hooks or ORM events of their models"
        )
    return None


def _of_other_policy(target: TargetSchema, binding: Binding) -> str | None:
    """It would delete what the model keeps: kinds and scopes that live longer than the others."""
    told, stored = target.policy, target.policy.stored
    is_told_kinds = isinstance(told, TTL) and told.by is not None
    is_told_scopes = stored is not None and stored.by is not None
    is_of_kinds = any(variant.identities for variant in binding.variants)
    has_scopes = binding.source.scoping is not None
    if (is_of_kinds and not is_told_kinds) or (has_scopes and not is_told_scopes):
        return (
            f"got a single default ttl, but {binding.name} has one for each kind of row: write "
            f"{written(whole_policy(binding))}"
        )
    return None


def _of_indexes(runner: Runner, target: TargetSchema, existing: ExistingSchema) -> str | None:
    """Refuse what no index leads to, but for those that the operation makes."""
    try:
        binding = target.binding(existing.columns)
    except TTLConfigurationError as error:
        raise MigrationRefusedError(str(error)) from error
    needs = needs_of(binding, clock_of(runner.dialect))
    if not needs:
        why = (
            "no index contains the rows that expire because of NULL"
            if binding.nulls_expire
            else f"no index contains the expiry by a row's own ttl of {target.policy!r}"
        )
        return f"would read the whole table every second, because {why}"
    if binding.source.scoping is not None and needs[0].scope is None:
        return (
            "would read all rows older than the shortest default every second, because no index "
            f"can begin with the column of {target.policy.stored!r} and continue with "
            f"{needs[0].column!r}"
        )
    made = {LAST_MODIFIED, INHERITED_END, OWN_END} if target.dates is None else set()
    if not isinstance(target.policy, TTL):
        made.add(target.policy.field)
    there = stored_indexes(runner.connection, target.table)
    for need in needs:
        if need.column not in made and not any(index.leads_to(need) for index in there):
            name = index_name(target.table.name, f"{need.column}_ttl")
            return (
                "would read the whole table every second, because there is no index on column "
                f"{need.column!r}: op.create_index({name!r}, {target.table.name!r}, "
                f"[{need.column!r}])"
            )
    return None


def _of_archive(runner: Runner, target: TargetSchema) -> str | None:
    try:
        copy = copy_of(runner, target)
    except TTLConfigurationError as error:
        raise MigrationRefusedError(f"Table {target.label}: {error}") from error
    if copy is None:
        return None
    archive = copy.archive
    if inspect(runner.connection).has_table(archive.name, schema=archive.schema):
        return None
    return f"archives rows in {archive.fullname!r}, which doesn't exist: create that table first"


class DatabaseSweep:
    """The job of one table, where its database has jobs."""

    def __init__(self, steps: Steps[Any]) -> None:
        """Keep the steps."""
        self._steps = steps

    def make_way(self, sweep: str | None) -> None:
        """Remove it where another way was chosen, before the indexes that it searches by."""
        if sweep in ("index", "scan"):
            self.drop()

    def change(self, sweep: str | None, settings: JobSettings = _NO_SETTINGS) -> None:
        """Create it for "database", or replace the one that is there, with another default ttl.

        Its settings stay as they are but for those that are given.
        """
        existing = self._steps.existing
        if sweep == "database":
            self._put(settings, is_enabled=True)
        elif sweep is None and existing.job:
            self._put(settings, is_enabled=existing.job != "disabled")

    def _put(self, settings: JobSettings, *, is_enabled: bool) -> None:
        run, job = self._steps.run, _job_of(self._steps)
        assert job is not None  # noqa: S101 (else it was refused)
        for sql in job.created(is_enabled=is_enabled):
            run.at_length(sql)
        if settings.columns:
            run.at_length(job.set(settings.columns))
        if (
            isinstance(job, PostgreSQLJob)
            and not run.connection.exec_driver_sql(_HAS_CRON).scalar()
        ):
            log.warning(
                "table %s: this database does not have the extension pg_cron, so nothing calls "
                "%s yet. Schedule it in the one that has, or by another scheduler: %s",
                self._steps.target.label,
                job.name,
                job.scheduled_elsewhere(),
            )

    def drop(self) -> None:
        """Remove what is there."""
        steps, job = self._steps, _job_of(self._steps)
        if job is not None and steps.is_there(bool(steps.existing.job)):
            for sql in job.dropped():
                steps.run.at_length(sql)


def created_statements(steps: Steps[Any], settings: JobSettings) -> list[str]:
    """What creates the job or replaces it, for people to run."""
    job = _job_of(steps)
    assert job is not None  # noqa: S101 (else it was refused)
    statements = job.created(is_enabled=True)
    if settings.columns:
        statements.insert(-1, job.set(settings.columns))
    if isinstance(job, PostgreSQLJob) and not steps.run.connection.scalar(text(_HAS_CRON)):
        statements[-1] = job.scheduled_elsewhere()
    return statements


def _job_of(steps: Steps[Any]) -> DatabaseJob | None:
    kind = _JOBS.get(steps.family.family)
    return None if kind is None else kind(steps)


_HAS_CRON: Final = "SELECT 1 FROM pg_catalog.pg_extension WHERE extname = 'pg_cron'"
