"""The procedure by which PostgreSQL sweeps a table, and the job of pg_cron that calls it.

pg_cron calls the procedure each minute, and it works for that minute: it deletes expired rows,
commits after each batch, and looks again after a second. (A job per second needs pg_cron 1.5, and
adds a row to cron.job_run_details each second.) Any other scheduler may call it as well.

A session keeps running the version of the procedure with which it began. So each batch compares the
procedure's comment with its own, and ends the run if a migration has replaced the procedure. An
advisory lock lets only one session work at a time.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from sqlalchemy import select, text

from ttl_odm.alembic.target_schema import as_text
from ttl_odm.core.values import MAX_TTL
from ttl_odm.database_sweep.alembic.job import (
    BATCH,
    BUDGET,
    CHANGING,
    FLOOR,
    NEWS,
    DatabaseJob,
    IndexPart,
)
from ttl_odm.database_sweep.jobs import FUSE, JOB, SIGNATURE
from ttl_odm.dialects.family import as_value
from ttl_odm.dialects.postgresql import block, dollar_quoted, relation
from ttl_odm.sqlalchemy.compat import out_of_driver_format
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.sweep.due import PartIndex
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Part
from ttl_odm.sweeper.options import LEASE_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ttl_odm.alembic.steps import Steps
    from ttl_odm.dialects import Family

RUN: Final = 59
"""Seconds for which a call by pg_cron works; it calls once a minute."""


class PostgreSQLJob(DatabaseJob):
    """The procedure and the job for one table, and the table with their result."""

    def __init__(self, steps: Steps[Family]) -> None:
        """Read the table's schema, since a job's session may have another search_path."""
        table = steps.target.table
        schema, self._path = table.schema, ""
        if not steps.run.offline:
            connection = steps.run.connection
            if schema is None:
                schema = connection.execute(_SCHEMA, {"table": relation(None, table.name)}).scalar()
            path = connection.exec_driver_sql("SELECT current_schemas(false)").scalar()
            # Names without a schema, such as the lease table's, are looked up as in this session.
            self._path = ", ".join(relation(None, name) for name in path or [])
        super().__init__(steps, f"{steps.quote(schema)}." if schema else "")
        self._table = f"{steps.quote(schema)}.{steps.quote(table.name)}" if schema else steps.table
        self.job = ".".join(filter(None, [schema, steps.target.name_of("", JOB)]))
        # In a script the schema is unknown until the database runs it.
        name = steps.literal(self.job if schema else f".{self.job}")
        if not schema:
            name = f"current_schema() || {name}"
        self._mine = f"FROM cron.job WHERE jobname = {name} AND username = current_user"
        digest = sha256(f"ttl_odm.sweep {self._table}".encode()).digest()
        self._key = int.from_bytes(digest[:8], "big", signed=True)

    def created(self, *, is_enabled: bool) -> list[str]:
        """Return the statements that create or replace the job; a run ends at its next batch."""
        note = self.steps.literal(self.note)
        active = "true" if is_enabled else "false"
        call = as_value(f"CALL {self.name}({RUN})")
        return [
            f"CREATE TABLE IF NOT EXISTS {self.log} ({_LOG_COLUMNS})",
            f"INSERT INTO {self.log} (id) VALUES (1) ON CONFLICT DO NOTHING",
            _block(
                f"PERFORM pg_advisory_xact_lock({self._key})",
                self._procedure(),
                f"COMMENT ON PROCEDURE {self.name}{SIGNATURE} IS {note}",
            ),
            _with_cron(
                f"PERFORM cron.schedule({self.steps.literal(self.job)}, '* * * * *', {call})",
                f"PERFORM cron.alter_job(jobid, active := {active}) {self._mine}",
            ),
        ]

    def dropped(self) -> list[str]:
        """Return the statements that remove the job; a run ends at its next batch."""
        return [
            _with_cron(f"PERFORM cron.unschedule(jobid) {self._mine}"),
            _block(
                f"PERFORM pg_advisory_xact_lock({self._key})",
                f"DROP PROCEDURE IF EXISTS {self.name}{SIGNATURE}",
                f"DROP TABLE IF EXISTS {self.log}",
            ),
        ]

    def scheduled_elsewhere(self) -> str | None:
        """Return the statement for the database with pg_cron; None if this database has it."""
        connection = self.steps.run.connection
        if connection.exec_driver_sql(f"SELECT 1 {_CRON}").scalar():
            return None
        database = str(connection.exec_driver_sql("SELECT current_database()").scalar())
        # Two databases may have a table of this name.
        name = as_value(f"{database}.{self.job}")
        call = as_value(f"CALL {out_of_driver_format(self.steps.dialect, self.name)}({RUN})")
        return (
            f"SELECT cron.schedule_in_database({name}, '* * * * *', {call}, {as_value(database)});"
        )

    def _procedure(self) -> str:
        parts = self.parts
        removal = self._named(_ARCHIVE if self.copy is not None else _DELETE)
        columns, values = self.archived if self.copy is not None else ("", "")
        names = {
            "table": self._table,
            "expired": self.expired,
            "batch": BATCH,
            "archive": self.archive,
            "columns": columns,
            "values": values,
        }
        batches = []
        for part in parts:
            rows = self._named(_ROWS).format(**names, due=part.due, order=part.order)
            many = removal.format(**names, which=f"ctid = ANY (ARRAY({rows}))")
            one = removal.format(**names, which=f"ctid = {self.variables}row.ctid")
            sql = self._named(_ONE_BATCH).format(**names, rows=rows, many=many, one=one)
            if part.of_scope:
                sql = self._named(_EACH_SCOPE).format(
                    scopes=self._due_scopes, one_batch=sql, batch=BATCH
                )
            batches.append(sql)
        counts = (self._count(part, names) for part in parts)
        body = self._named(_BODY).format(
            signature=as_value(f"{self.name}{SIGNATURE}"),
            note=self.steps.literal(self.note),
            path=self.steps.literal(self._path),
            log=self.log,
            lease=self.lease,
            lease_value=as_value(self.lease),
            lease_name=as_value(LEASE_NAME),
            key=self._key,
            budget=BUDGET,
            news=NEWS,
            default=self.default if parts else "0",
            lock_default=self._lock_default,
            fuse=FUSE,
            fuse_check=self._named(_FUSE_CHECK).format(
                table=self._table,
                relation=as_value(self._table),
                count=" + ".join(counts) or "0",
                floor=FLOOR,
                fuse=FUSE,
            ),
            batches="".join(batches),
        )
        return _PROCEDURE.format(name=self.name, body=dollar_quoted(body, "sweep"))

    @property
    def _lock_default(self) -> str:
        row = self.locked_default
        if row is None:
            return ""
        row = row.removeprefix("SELECT")
        return self._named(_LOCK_DEFAULT).format(row=row, changing=as_value(CHANGING))

    def _count(self, part: IndexPart, names: Mapping[str, object]) -> str:
        """Return SQL for the number of a part's expired rows, up to the fuse's limit."""
        scope = self.steps.target.scope
        if not part.of_scope or scope is None:
            return self._named(_COUNT).format(**names, due=part.due)
        due = self._due_in(self.steps.quote(scope.name), f"{self.variables}each")
        return self._named(_COUNT_IN_SCOPES).format(**names, due=due, scopes=self._due_scopes)

    @property
    def _now(self) -> str:
        return f"{self.variables}now"

    @property
    def _inheriting(self) -> IndexPart:
        steps = self.steps
        end = f"{steps.stamp} <= {self._now} - {self.variables}default * {steps.family.second}"
        return IndexPart(f"{steps.own} IS NULL AND {end}", steps.stamp)

    def _in_scopes(self, scope: str) -> IndexPart:
        return IndexPart(
            self._due_in(scope, f"{self.variables}scope"), self.steps.stamp, of_scope=True
        )

    def _due_in(self, scope: str, of: str) -> str:
        """Return the condition for rows of a scope that have reached its age."""
        steps = self.steps
        ago = f"{self._now} - {of}.age * {steps.family.second}"
        return f"{steps.own} IS NULL AND {scope} = {of}.scope AND {steps.stamp} <= {ago}"

    @property
    def _due_scopes(self) -> str:
        """A SELECT of each scope with expired rows, and the age at which these expire, in seconds.

        It reads only the first entry of each scope in the index.
        """
        dialect = self.steps.dialect
        clock = clock_of(dialect)
        index = PartIndex(self._binding, Part.INHERITING, clock)
        first = self.scopes.first_ends(index, dialect.name, self._collation, MAX_TTL)
        limit = clock.literal(self._now) - clock.span(first.c.age)
        due = select(first.c.scope, first.c.age).where(first.c.began <= limit)
        return as_text(due.options(include_expired()), dialect)

    @property
    def _having_own(self) -> IndexPart:
        steps = self.steps
        end = steps.family.own_end.format(stamp=steps.stamp, ttl=steps.own)
        return IndexPart(f"{steps.own} > 0 AND {end} <= {self._now}", end)


def _block(*statements: str) -> str:
    """Return one statement that runs all of these or none."""
    return block(f" BEGIN {'; '.join(statements)}; END ")


def _with_cron(*statements: str) -> str:
    """Return one statement that runs these if the database has pg_cron, and else ignores them."""
    return _block(f"IF EXISTS (SELECT {_CRON}) THEN {'; '.join(statements)}; END IF")


_CRON: Final = "FROM pg_catalog.pg_extension WHERE extname = 'pg_cron'"


_SCHEMA: Final = text(
    "SELECT n.nspname FROM pg_catalog.pg_class c "
    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(:table)"
)

_LOG_COLUMNS: Final = (
    "id smallint PRIMARY KEY, ran_at timestamptz, deleted bigint NOT NULL DEFAULT 0, "
    "total bigint NOT NULL DEFAULT 0, outcome text NOT NULL DEFAULT '', "
    "opens time, closes time, timezone text, max_fraction double precision"
)

# A block with an exception handler is a subtransaction, in which nothing can be committed.
_PROCEDURE: Final = """\
CREATE OR REPLACE PROCEDURE {name}(ttl_odm_seconds integer DEFAULT 0) LANGUAGE plpgsql AS {body}"""

_BODY: Final = """
DECLARE
  ttl_odm_ends CONSTANT timestamptz :=
    clock_timestamp() + greatest(ttl_odm_seconds, {budget}) * interval '1 second';
  ttl_odm_now timestamptz;
  ttl_odm_wall time;
  ttl_odm_row record;
  ttl_odm_scope record;
  ttl_odm_default bigint;
  ttl_odm_fraction double precision;
  ttl_odm_is_checked boolean := false;
  ttl_odm_due bigint;
  ttl_odm_rows bigint;
  ttl_odm_allowed bigint;
  ttl_odm_found bigint := 0;
  ttl_odm_deleted bigint := 0;
  ttl_odm_total bigint := 0;
  ttl_odm_outcome text;
  ttl_odm_problem text;
  ttl_odm_done boolean := true;
BEGIN
  LOOP
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    PERFORM set_config('lock_timeout', '1s', true);
    PERFORM set_config('search_path', {path}, true);
    ttl_odm_done := true;
    IF pg_try_advisory_xact_lock({key}) THEN
      EXIT WHEN obj_description(to_regprocedure({signature}), 'pg_proc') IS DISTINCT FROM {note};
      ttl_odm_outcome := NULL;
      ttl_odm_problem := NULL;
      ttl_odm_deleted := 0;
      BEGIN
        IF to_regclass({lease_value}) IS NOT NULL THEN
          SELECT CASE WHEN paused THEN 'paused'
            WHEN holder IS NOT NULL AND acquired_until > clock_timestamp()
            THEN 'a sweeper holds the lease' END
            INTO ttl_odm_outcome FROM {lease} WHERE name = {lease_name} FOR SHARE;
        END IF;
        FOR ttl_odm_row IN SELECT l.opens, l.closes, l.timezone, l.max_fraction
          FROM {log} l WHERE l.id = 1 LOOP
          ttl_odm_fraction := ttl_odm_row.max_fraction;
          ttl_odm_wall := (clock_timestamp() AT TIME ZONE ttl_odm_row.timezone)::time;
          IF ttl_odm_outcome IS NULL AND ttl_odm_row.opens IS NOT NULL AND (CASE
            WHEN ttl_odm_row.opens < ttl_odm_row.closes
            THEN ttl_odm_wall >= ttl_odm_row.opens AND ttl_odm_wall < ttl_odm_row.closes
            ELSE ttl_odm_wall >= ttl_odm_row.opens OR ttl_odm_wall < ttl_odm_row.closes
            END) IS NOT TRUE THEN
            ttl_odm_outcome := 'outside its window';
          END IF;
        END LOOP;
{lock_default}
        IF ttl_odm_outcome IS NULL THEN
          ttl_odm_now := clock_timestamp();
          ttl_odm_default := {default};{fuse_check}
        END IF;
        IF ttl_odm_outcome IS NULL THEN
          ttl_odm_outcome := 'swept';{batches}
        END IF;
      EXCEPTION WHEN OTHERS THEN
        ttl_odm_problem := SQLERRM;
        ttl_odm_deleted := 0;
        ttl_odm_done := true;
      END;
      IF ttl_odm_problem IS NOT NULL THEN
        ttl_odm_outcome := left('failed: ' || ttl_odm_problem, 300);
      END IF;
      ttl_odm_total := ttl_odm_total + ttl_odm_deleted;
      IF NOT ttl_odm_done AND clock_timestamp() >= ttl_odm_ends THEN
        ttl_odm_outcome := 'out of time';
      END IF;
      IF (ttl_odm_done AND (ttl_odm_total > 0 OR NOT EXISTS (
        SELECT FROM {log} l WHERE l.id = 1 AND l.outcome = ttl_odm_outcome
        AND l.ran_at > clock_timestamp() - {news} * interval '1 second'
      ))) OR ttl_odm_outcome = 'out of time' THEN
        INSERT INTO {log} AS l (id, ran_at, deleted, total, outcome)
          VALUES (1, clock_timestamp(), ttl_odm_total, ttl_odm_total, ttl_odm_outcome)
          ON CONFLICT (id) DO UPDATE SET ran_at = excluded.ran_at, deleted = excluded.deleted,
          total = l.total + excluded.total, outcome = excluded.outcome;
        ttl_odm_total := 0;
      END IF;
      EXIT WHEN starts_with(ttl_odm_outcome, '{fuse}');
    END IF;
    EXIT WHEN clock_timestamp() >= ttl_odm_ends OR (ttl_odm_done AND ttl_odm_seconds <= 0);
    IF ttl_odm_done THEN
      COMMIT;
      ttl_odm_is_checked := false;
      PERFORM pg_sleep(1);
    END IF;
  END LOOP;
END """

# Without this lock, a change of the default that commits during a batch would be too late for it.
_LOCK_DEFAULT: Final = """
        IF ttl_odm_outcome IS NULL THEN
          BEGIN
            PERFORM{row} FOR SHARE;
          EXCEPTION WHEN lock_not_available THEN
            ttl_odm_outcome := {changing};
          END;
        END IF;"""

# Checked once per pass, before it deletes anything, since fewer rows are due afterwards. The number
# of rows is estimated first, and counted only if the fuse would blow by the estimate.
_FUSE_CHECK: Final = """
          IF ttl_odm_fraction IS NOT NULL AND NOT ttl_odm_is_checked THEN
            ttl_odm_allowed := {floor};
            ttl_odm_due := {count};
            IF ttl_odm_due > ttl_odm_allowed THEN
              ttl_odm_rows := (SELECT reltuples FROM pg_catalog.pg_class
                WHERE oid = to_regclass({relation}));
              ttl_odm_allowed := greatest({floor}, floor(ttl_odm_fraction * ttl_odm_rows));
              ttl_odm_due := {count};
            END IF;
            IF ttl_odm_due > ttl_odm_allowed THEN
              ttl_odm_rows := (SELECT count(*) FROM {table});
              ttl_odm_allowed := greatest({floor}, floor(ttl_odm_fraction * ttl_odm_rows));
              ttl_odm_due := {count};
            END IF;
            IF ttl_odm_due > ttl_odm_allowed THEN
              ttl_odm_outcome := '{fuse}more than ' || ttl_odm_allowed
                || ' rows have expired, max_fraction=' || ttl_odm_fraction || ' of '
                || ttl_odm_rows || ' rows; nothing was deleted';
            END IF;
            ttl_odm_is_checked := true;
          END IF;"""

_COUNT: Final = (
    "(SELECT count(*) FROM (SELECT FROM {table} WHERE {due} AND {expired} "
    "LIMIT ttl_odm_allowed + 1) AS due)"
)

_COUNT_IN_SCOPES: Final = (
    "(SELECT count(*) FROM (SELECT FROM ({scopes}) AS ttl_odm_each, {table} "
    "WHERE {due} AND {expired} LIMIT ttl_odm_allowed + 1) AS due)"
)

# Locked rows are left to the next pass.
_ROWS: Final = (
    "SELECT ctid FROM {table} WHERE {due} AND {expired} "
    "ORDER BY {order} LIMIT {batch} FOR UPDATE SKIP LOCKED"
)
_DELETE: Final = """DELETE FROM {table} WHERE {which} AND {expired};
            GET DIAGNOSTICS ttl_odm_found = ROW_COUNT;"""
_ARCHIVE: Final = """WITH gone AS (
              DELETE FROM {table} WHERE {which} AND {expired} RETURNING *
            ), kept AS (
              INSERT INTO {archive} ({columns}) SELECT {values} FROM gone RETURNING 1
            ) SELECT count(*) INTO ttl_odm_found FROM kept;"""
_ONE_BATCH: Final = """
          BEGIN
            {many}
            ttl_odm_done := ttl_odm_done AND ttl_odm_found < {batch};
            ttl_odm_deleted := ttl_odm_deleted + ttl_odm_found;
          EXCEPTION WHEN OTHERS THEN  -- the row that can't go stays, and the others go
            ttl_odm_problem := SQLERRM;
            FOR ttl_odm_row IN {rows} LOOP
              BEGIN
                {one}
                ttl_odm_deleted := ttl_odm_deleted + ttl_odm_found;
              EXCEPTION WHEN OTHERS THEN
                ttl_odm_problem := SQLERRM;
              END;
            END LOOP;
          END;"""

# One transaction deletes about as many rows as a batch, from any number of scopes.
_EACH_SCOPE: Final = """
          FOR ttl_odm_scope IN {scopes} LOOP{one_batch}
            IF ttl_odm_deleted >= {batch} THEN
              ttl_odm_done := false;
              EXIT;
            END IF;
          END LOOP;"""
