"""The jobs by which databases sweep tables themselves, as their catalogues have them.

`ttl_odm.database_sweep.alembic` creates jobs. This module only reads them, for `status`, `check`
and migrations. A user without the rights for some parts gets the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from ttl_odm.database_sweep.jobs import (
    ARCHIVE_NOTE,
    JOB,
    JOB_LOG,
    JOB_NOTE,
    SIGNATURE,
    JobState,
    State,
)
from ttl_odm.dialects import MYSQL_FAMILY, index_name
from ttl_odm.dialects.postgresql import relation
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Connection


def read_job(connection: Connection, schema: str | None, table: str) -> JobState | None:
    """Read the job of a table; None if it has none."""
    job, log = (index_name(table, end).replace("ix_", "", 1) for end in (JOB, JOB_LOG))
    if connection.dialect.name in MYSQL_FAMILY:
        return _of_mysql(connection, schema, job, log)
    if connection.dialect.name == "postgresql":
        return _of_postgresql(connection, schema, job, log)
    return None


def _of_mysql(connection: Connection, schema: str | None, job: str, log: str) -> JobState | None:
    names = {"schema": schema, "job": job}
    status, comment, has_procedure, scheduler = connection.execute(_MYSQL, names).one()
    if status is None and not has_procedure:
        return None
    state: State = "gone" if status is None else "there"
    if status == "DISABLED":
        state = "disabled"
    elif status not in (None, "ENABLED"):  # SLAVESIDE_DISABLED, or MySQL's newer word
        state = "replicated"
    elif status and str(scheduler).upper() != "ON":
        state = "off"
    quote, clock = connection.dialect.identifier_preparer.quote, clock_of(connection.dialect)
    place = f"{quote(schema)}.{quote(log)}" if schema else quote(log)
    place = compat.out_of_driver_format(connection.dialect, place).replace(":", r"\:")
    query = (
        f"SELECT ({clock.now} - ran_at) / {clock.second}, deleted, total, outcome, "  # noqa: S608
        "TIME_FORMAT(opens, '%H\\:%i'), TIME_FORMAT(closes, '%H\\:%i'), "
        f"REPLACE(timezone, '+00:00', 'UTC'), max_fraction FROM {place} WHERE id = 1"
    )
    try:
        last = connection.execute(text(query)).one_or_none()
    except DBAPIError:  # the table is gone, or this user may not read it
        last = None
    return _state(job, comment, state, last)


def _of_postgresql(
    connection: Connection, schema: str | None, job: str, log: str
) -> JobState | None:
    names = {"procedure": relation(schema, job) + SIGNATURE, "log": relation(schema, log)}
    row = connection.execute(_POSTGRESQL, names).one()
    if row.namespace is None:
        return None
    name = f"{row.namespace}.{job}"
    state: State = "elsewhere"
    if row.sees_jobs:
        state = _ACTIVE[connection.scalar(_CRON, {"job": name})]
    last = None
    if row.sees_log:
        place = relation(row.namespace, log).replace(":", r"\:")
        query = (
            "SELECT EXTRACT(EPOCH FROM clock_timestamp() - ran_at), deleted, total, outcome, "  # noqa: S608
            "to_char(opens, 'HH24\\:MI'), to_char(closes, 'HH24\\:MI'), timezone, max_fraction "
            f"FROM {place} WHERE id = 1"
        )
        last = connection.execute(text(query)).one_or_none()
    return _state(name, row.note, state, last)


_ACTIVE: Final[Mapping[bool | None, State]] = {None: "gone", True: "there", False: "disabled"}


def _state(name: str, note: str | None, state: State, last: Sequence[Any] | None) -> JobState:
    default, _, archive = (note or "").removeprefix(JOB_NOTE).partition(ARCHIVE_NOTE)
    job = JobState(name, default or None, state, archive=archive or None)
    if last is None:
        return job
    ago, deleted, total, outcome, opens, closes, timezone, fraction = last
    return replace(
        job,
        ran_ago=None if ago is None else float(ago),
        deleted=int(deleted),
        total=int(total),
        outcome=outcome,
        window=None if opens is None else f"{opens}-{closes} {timezone}",
        max_fraction=fraction,
    )


_MYSQL: Final = text(
    "SELECT e.status, r.routine_comment, r.routine_name IS NOT NULL, @@event_scheduler "
    "FROM (SELECT 1 AS one) AS always LEFT JOIN information_schema.events e "
    "ON e.event_schema = COALESCE(:schema, DATABASE()) AND e.event_name = :job "
    "LEFT JOIN information_schema.routines r "
    "ON r.routine_schema = COALESCE(:schema, DATABASE()) AND r.routine_name = :job"
)
_POSTGRESQL: Final = text(
    "SELECT (SELECT n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace "
    "WHERE p.oid = found.procedure) AS namespace, "
    "obj_description(found.procedure, 'pg_proc') AS note, "
    "COALESCE(has_table_privilege(to_regclass(:log), 'SELECT'), false) AS sees_log, "
    # has_schema_privilege() fails for a schema that doesn't exist.
    "EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'pg_cron') AND COALESCE(("
    "SELECT has_schema_privilege(n.oid, 'USAGE') FROM pg_namespace n "
    "WHERE n.nspname = 'cron'), false) AS sees_jobs "
    "FROM (SELECT CAST(to_regprocedure(:procedure) AS oid) AS procedure) AS found"
)
_CRON: Final = text(
    "SELECT bool_or(active) FROM cron.job WHERE jobname = :job AND database = current_database()"
)
