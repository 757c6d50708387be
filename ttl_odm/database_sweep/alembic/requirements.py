"""Which tables a database can sweep itself, with which kind of job, and why not the others.

This module only reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect

from ttl_odm.alembic.operations import written
from ttl_odm.alembic.runner import MigrationRefusedError, Runner
from ttl_odm.alembic.target_schema import LAST_MODIFIED
from ttl_odm.combinations import combination
from ttl_odm.core.policy import TTL, default_extension
from ttl_odm.database_sweep.alembic.job import DatabaseJob, bindings_of, copy_of, tables_of
from ttl_odm.database_sweep.alembic.mysql_job import MySQLJob
from ttl_odm.database_sweep.alembic.postgresql_job import PostgreSQLJob
from ttl_odm.database_sweep.sqlalchemy.losses import left_behind, untraced_keys
from ttl_odm.dialects import index_name
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.policy.references import rule_of
from ttl_odm.sqlalchemy.policy.schema import whole_policy
from ttl_odm.sqlalchemy.sweep.due import needs_of, stored_indexes
from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKeys
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper.hooks import Archive, archive_of, hooks_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ttl_odm.alembic.reflection import ExistingSchema
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.alembic.target_schema import TargetSchema
    from ttl_odm.dialects import Family
    from ttl_odm.sqlalchemy.policy.bindings import Binding

_JOBS: Final[Mapping[str, type[MySQLJob | PostgreSQLJob]]] = {
    "mysql": MySQLJob,
    "postgresql": PostgreSQLJob,
}
"""The kinds of jobs, by families of databases."""

_SINCE: Final = {True: (10, 6), False: (8, 0, 1)}
"""The first releases of MariaDB (True) and MySQL that can skip locked rows."""

_LETS_DELETE: Final = ("CASCADE", "SET NULL", "SET DEFAULT")
"""The actions of foreign keys that don't prevent the deletion of a referenced row."""


def job_of(steps: Steps[Family]) -> DatabaseJob | None:
    """Return the job of a table; None if its database has no jobs."""
    kind = _JOBS.get(steps.family.family)
    return None if kind is None else kind(steps)


def refuse_unsweepable(
    runner: Runner, target: TargetSchema, existing: ExistingSchema, *, is_laid_out: bool
) -> None:
    """Reject a table that the database can't sweep as the model says.

    Args:
        runner: The migration's runner.
        target: The table.
        existing: What the table has now.
        is_laid_out: Whether the table is to be partitioned.

    Raises:
        MigrationRefusedError: With the reason.
    """
    for table in tables_of(runner, target):
        rule = rule_of(table)
        if rule is not None:  # its rows have no lifetime: a job would delete live ones
            raise MigrationRefusedError(str(rule.rejected("sweep", table.fullname)))
    bindings = bindings_of(runner, target)
    is_laid_out = is_laid_out or any(binding.layout is not None for binding in bindings)
    reason = _of_migration(runner, is_laid_out=is_laid_out)
    of_server = _of_postgresql if runner.dialect.name == "postgresql" else _of_mysql
    reason = reason or of_server(runner, existing) or _of_keys(runner, target)
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


def _of_migration(runner: Runner, *, is_laid_out: bool) -> str | None:
    if clock_of(runner.dialect).family not in _JOBS:
        return f"is for MariaDB, MySQL and PostgreSQL; this is {runner.dialect.name}"
    if runner.offline:
        return (
            "reads keys and rights from the database, which --sql can't do; run this "
            "migration online"
        )
    return _reason("partitions") if is_laid_out else None


def _of_postgresql(runner: Runner, existing: ExistingSchema) -> str | None:
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


def _of_mysql(runner: Runner, existing: ExistingSchema) -> str | None:
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
    keeping = sorted(str(key) for key in keys if key.deletes not in _LETS_DELETE)
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
    """Return why the database can't sweep a table with a capability."""
    return combination("sqlalchemy", "database_sweep", capability).reason_for(**names)


def _of_losses(runner: Runner, binding: Binding) -> str | None:
    tables = left_behind(runner.connection, binding)
    if tables:
        return _reason("followed", tables=", ".join(tables))
    keys = untraced_keys(runner.connection, binding)
    if keys:
        return (
            f"would delete the rows of {', '.join(map(str, keys))} by ON DELETE CASCADE, without "
            "the archive, hooks or ORM events of their models"
        )
    return None


def _of_other_policy(target: TargetSchema, binding: Binding) -> str | None:
    """Reject one default for kinds or scopes with their own: those that live longer would go."""
    policy, default = target.policy, default_extension(target.policy)
    names_kinds = isinstance(policy, TTL) and policy.by is not None
    names_scopes = default is not None and default.by is not None
    has_kinds = any(variant.identities for variant in binding.variants)
    has_scopes = binding.source.scoping is not None
    if (has_kinds and not names_kinds) or (has_scopes and not names_scopes):
        return (
            f"got a single default ttl, but {binding.name} has one for each kind of row: write "
            f"{written(whole_policy(binding))}"
        )
    return None


def _of_indexes(runner: Runner, target: TargetSchema, existing: ExistingSchema) -> str | None:
    """Reject expired rows that no index leads to, except by the indexes that the operation adds."""
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
            f"can begin with the column of {default_extension(target.policy)!r} and continue with "
            f"{needs[0].column!r}"
        )
    added = {LAST_MODIFIED, INHERITED_END, OWN_END} if target.dates is None else set()
    if not isinstance(target.policy, TTL):
        added.add(target.policy.field)
    indexes = stored_indexes(runner.connection, target.table)
    for need in needs:
        if need.column not in added and not any(index.leads_to(need) for index in indexes):
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
