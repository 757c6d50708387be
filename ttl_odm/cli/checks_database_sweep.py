"""What `ttl-odm check` looks at where MariaDB or MySQL sweeps a table by itself.

The EVENT is made by `op.add_ttl(..., sweep="database")`; a table without one is none of this
module's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from ttl_odm.dialects import index_name
from ttl_odm.dialects.jobs import JOB, JOB_LOG, JOB_NOTE
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper.findings import Finding, Severity
from ttl_odm.sweeper.text import age

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from ttl_odm.sqlalchemy.policy.binding import Binding

_SILENT: Final = 300.0
"""Seconds without a note of the job's from which on something is wrong; it notes twice a minute."""

_JOB: Final = text(
    "SELECT e.status, e.event_comment, @@event_scheduler FROM information_schema.routines r "
    "LEFT JOIN information_schema.events e ON e.event_schema = r.routine_schema "
    "AND e.event_name = r.routine_name "
    "WHERE r.routine_schema = COALESCE(:schema, DATABASE()) AND r.routine_name = :job"
)


def database_sweep(
    connection: Connection, target: str, binding: Binding, schema: str | None
) -> Iterator[Finding]:
    """Find a job that is gone, disabled, of an older policy, or failing."""
    name = binding.table.name
    job, log = (index_name(name, end).replace("ix_", "", 1) for end in (JOB, JOB_LOG))
    found = connection.execute(_JOB, {"schema": schema, "job": job}).one_or_none()
    if found is None:
        return
    status, comment, scheduler = found
    default = binding.default()
    again = f"op.alter_ttl({name!r}, {default}, sweep='database')  (in a revision of Alembic's)"

    def finding(code: str, message: str, fix: str, severity: Severity = Severity.ERROR) -> Finding:
        return Finding(severity, f"database-sweep-{code}", target, message, fix)

    if status is None:
        yield finding("gone", f"the EVENT {job}, which is to sweep it, is not there", again)
        return
    if comment != f"{JOB_NOTE}{default}":
        held = comment.removeprefix(JOB_NOTE)
        message = f"the database sweeps it by a default ttl of {held}, and the model's is {default}"
        yield finding("outdated", message, again)
    if status != "ENABLED":
        message = f"the EVENT {job}, which is to sweep it, is disabled"
        yield finding("disabled", message, f"ALTER EVENT {job} ENABLE", Severity.WARNING)
        return
    if str(scheduler).upper() != "ON":
        message = "the database is to sweep it by itself, and its event scheduler is off"
        yield finding("off", message, "SET GLOBAL event_scheduler = ON")
        return
    yield from _last_run(connection, schema, log, finding)


def _last_run(
    connection: Connection, schema: str | None, log: str, finding: Any
) -> Iterator[Finding]:
    """See what the job has noted of its last run."""
    quote, clock = connection.dialect.identifier_preparer.quote, clock_of(connection.dialect)
    place = f"{quote(schema)}.{quote(log)}" if schema else quote(log)
    query = f"SELECT outcome, ({clock.now} - ran_at) / {clock.second} FROM {place}"  # noqa: S608
    last = connection.exec_driver_sql(query).one_or_none()
    if last is None:
        return
    outcome, ago = last
    fix = f"SELECT * FROM {place}  (what the job says of its last run)"  # noqa: S608 (for people)
    if outcome.startswith("failed: "):
        yield finding("failing", f"the last sweep of the database's own {outcome}", fix)
    elif float(ago) > _SILENT:
        yield finding("silent", f"the last sweep of the database's own was {age(ago)} ago", fix)
