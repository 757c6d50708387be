"""The checks of `ttl-odm check` for tables that the database sweeps itself.

`op.add_ttl(..., sweep="database")` creates their jobs. Tables without a job are not checked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ttl_odm.cli.extensions import TableChecks
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.database_sweep.sqlalchemy.losses import left_behind, untraced_keys
from ttl_odm.dialects.family import as_value
from ttl_odm.sqlalchemy.policy.schema import note_of, whole_policy
from ttl_odm.sqlalchemy.purge.archive import Copy
from ttl_odm.sqlalchemy.sweep.transactions import name_of
from ttl_odm.sweeper.findings import Finding, Severity
from ttl_odm.sweeper.hooks import Archive, archive_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from ttl_odm.cli.checked_table import CheckedTable
    from ttl_odm.sqlalchemy.policy.bindings import Binding

_WARNINGS: Final = ("disabled", "never", "replicated")
"""Problems that may be intended, or be gone in a minute."""


class _JobChecks(TableChecks):
    """The checks of jobs."""

    subject = "the database's own sweep"

    def findings(self, checked: CheckedTable) -> Iterator[Finding]:
        """Check the job of a table."""
        schema, _ = name_of(checked.connection, checked.binding.table)
        yield from database_sweep(checked.connection, checked.name, checked.binding, schema)

    def needs_sweeper(self, connection: Connection, binding: Binding) -> bool:
        """Whether the table has no job."""
        return read_job(connection, *name_of(connection, binding.table)) is None


checks: Final = _JobChecks()


def database_sweep(
    connection: Connection, target: str, binding: Binding, schema: str | None
) -> Iterator[Finding]:
    """Find a job that is gone, disabled, of an older policy, failing, silent, or has never run."""
    name = binding.table.name
    job = read_job(connection, schema, name)
    if job is None:
        return
    policy = whole_policy(binding)
    default, stored = note_of(policy), policy.stored
    declared = f"ttl_odm.{policy if stored is None else stored!r}"
    if default.lstrip("-").isalnum() and stored is None:
        declared = default
    renewal = f"op.alter_ttl({name!r}, {declared}, sweep='database')  (in a revision of Alembic's)"
    if job.default not in (None, default):
        theirs, ours = (note.partition("_")[0] for note in (job.default, default))
        message = (
            f"the database sweeps it with a default ttl of {theirs}, but the model's is {ours}"
        )
        if theirs == ours:
            message = "the database sweeps it by an older policy than the model's"
        yield Finding(Severity.ERROR, "database-sweep-outdated", target, message, renewal)
    archive = archive_of(binding.default.owner)
    declared_archive = None
    if isinstance(archive, Archive):
        where = f"{binding.name}.__ttl_archive__"
        declared_archive = Copy.of(binding, archive, where).archive.fullname
    if job.default is not None and job.archive != declared_archive:
        message = (
            f"the database's own job archives rows in {job.archive or 'no table'}, but the model "
            f"declares {declared_archive or 'none'}"
        )
        yield Finding(Severity.ERROR, "database-sweep-outdated", target, message, renewal)
    yield from _losses(connection, target, binding, declared)
    if job.problem is None:
        return
    code, message = job.problem
    is_postgresql = connection.dialect.name == "postgresql"
    runs = "SELECT * FROM cron.job_run_details ORDER BY start_time DESC LIMIT 5"
    lookup = runs if is_postgresql else "SELECT * FROM information_schema.events"
    by_name = f"FROM cron.job WHERE jobname = {as_value(job.name)}"
    fixes = {
        "gone": renewal,
        "off": "SET GLOBAL event_scheduler = ON",
        "disabled": f"SELECT cron.alter_job(jobid, active := true) {by_name}"
        if is_postgresql
        else f"ALTER EVENT {job.name} ENABLE",
        "replicated": f"if this server is the primary now: ALTER EVENT {job.name} ENABLE",
        "fuse": "delete them once with: ttl-odm sweep --force, or raise the job's max_fraction",
    }
    if job.state == "elsewhere":
        lookup = "ttl-odm install-sweep prints the statement that schedules it"
    severity = Severity.WARNING if code in _WARNINGS else Severity.ERROR
    yield Finding(severity, f"database-sweep-{code}", target, message, fixes.get(code, lookup))


def _losses(
    connection: Connection, target: str, binding: Binding, declared: str
) -> Iterator[Finding]:
    """Find rows that the job leaves behind, or deletes without archive, hooks or ORM events."""
    fix = f"op.alter_ttl({binding.table.name!r}, {declared}, sweep='index')  (and run a sweeper)"
    tables, keys = left_behind(connection, binding), untraced_keys(connection, binding)
    if tables:
        message = (
            f"the database sweeps it, but leaves behind rows of {', '.join(tables)}, which follow "
            "its rows: there is no foreign key with ON DELETE CASCADE"
        )
        yield Finding(Severity.ERROR, "database-sweep-followers", target, message, fix)
    if keys:
        message = (
            f"the database sweeps it, and deletes the rows of {', '.join(map(str, keys))} by ON "
            "DELETE CASCADE, without the archive, hooks or ORM events of their models"
        )
        yield Finding(Severity.ERROR, "database-sweep-cascades", target, message, fix)
