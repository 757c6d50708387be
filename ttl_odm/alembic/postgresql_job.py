"""The procedure by which PostgreSQL sweeps a table, and the job of pg_cron that calls it.

pg_cron calls it each minute, and it works for that minute: it deletes what has expired, commits
after each batch, and looks again after a second. (A job each second needs pg_cron 1.5, and leaves
a row in cron.job_run_details each second.) Any other scheduler may call it as well.

A session that runs the procedure keeps the version with which it began. So each batch, under the
advisory lock by which one works at a time, compares the procedure's comment with its own default,
and ends when a migration has replaced it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from ttl_odm.alembic.database_job import BATCH, BUDGET, NEWS, DatabaseJob
from ttl_odm.dialects.family import as_value
from ttl_odm.dialects.jobs import JOB, JOB_NOTE, SIGNATURE
from ttl_odm.dialects.postgresql import relation
from ttl_odm.sweeper.options import LEASE_NAME

if TYPE_CHECKING:
    from ttl_odm.alembic.steps import Steps

RUN: Final = 59
"""Seconds for which a call of pg_cron's works; it calls once a minute."""


class PostgreSQLJob(DatabaseJob):
    """The procedure, the log and the job of one table; see the module."""

    def __init__(self, steps: Steps[Any]) -> None:
        """Ask for the schema, since a job's session may have another search_path."""
        table = steps.target.table
        schema = table.schema
        if schema is None and not steps.run.offline:
            name = {"table": relation(None, table.name)}
            schema = steps.run.connection.execute(_SCHEMA, name).scalar()
        super().__init__(steps, f"{steps.quote(schema)}." if schema else "")
        self._table = f"{steps.quote(schema)}.{steps.quote(table.name)}" if schema else steps.table
        self.job = ".".join(filter(None, [schema, steps.target.name_of("", JOB)]))
        # A script does not know the schema, but the database that runs it does.
        name = as_value(self.job) if schema else f"current_schema() || {as_value(f'.{self.job}')}"
        self._mine = f"FROM cron.job WHERE jobname = {name} AND username = current_user"
        digest = sha256(f"ttl_odm.sweep {self._table}".encode()).digest()
        self._key = int.from_bytes(digest[:8], "big", signed=True)

    def created(self, *, is_enabled: bool) -> list[str]:
        """What creates or replaces it; a run of the version before ends at its next batch."""
        note = as_value(f"{JOB_NOTE}{self.steps.target.noted}")
        active = "true" if is_enabled else "false"
        call = as_value(f"CALL {self.name}({RUN})")
        return [
            f"CREATE TABLE IF NOT EXISTS {self.log} ({_LOG_COLUMNS})",
            _block(
                f"PERFORM pg_advisory_xact_lock({self._key})",
                self._procedure(),
                f"COMMENT ON PROCEDURE {self.name}{SIGNATURE} IS {note}",
            ),
            _with_cron(
                f"PERFORM cron.schedule({as_value(self.job)}, '* * * * *', {call})",
                f"PERFORM cron.alter_job(jobid, active := {active}) {self._mine}",
            ),
        ]

    def dropped(self) -> list[str]:
        """What removes it; a run of it ends at its next batch."""
        return [
            _with_cron(f"PERFORM cron.unschedule(jobid) {self._mine}"),
            _block(
                f"PERFORM pg_advisory_xact_lock({self._key})",
                f"DROP PROCEDURE IF EXISTS {self.name}{SIGNATURE}",
                f"DROP TABLE IF EXISTS {self.log}",
            ),
        ]

    def scheduled_elsewhere(self) -> str:
        """The statement that schedules it from the database that has pg_cron."""
        run = self.steps.run.connection
        database = str(run.exec_driver_sql("SELECT current_database()").scalar())
        # Two databases may have a table of this name.
        name, call = as_value(f"{database}.{self.job}"), as_value(f"CALL {self.name}({RUN})")
        return (
            f"SELECT cron.schedule_in_database({name}, '* * * * *', {call}, {as_value(database)});"
        )

    def _procedure(self) -> str:
        steps, target = self.steps, self.steps.target
        family = steps.family
        seconds = target.seconds
        parts = []
        if seconds is not None and seconds > 0:
            end = f"{steps.stamp} <= ttl_odm_now - {seconds} * {family.second}"
            parts.append((f"{steps.own} IS NULL AND {end}", steps.stamp))
        if seconds is not None:
            own_end = family.own_end.format(stamp=steps.stamp, ttl=steps.own)
            parts.append((f"{steps.own} > 0 AND {own_end} <= ttl_odm_now", own_end))
        expired = target.expired(steps.dialect)
        return _PROCEDURE.format(
            name=self.name,
            signature=as_value(f"{self.name}{SIGNATURE}"),
            note=as_value(f"{JOB_NOTE}{target.noted}"),
            log=self.log,
            lease=self.lease,
            lease_value=as_value(self.lease),
            lease_name=as_value(LEASE_NAME),
            key=self._key,
            budget=BUDGET,
            news=NEWS,
            batches="".join(
                _ONE_BATCH.format(
                    table=self._table, due=due, order=order, expired=expired, batch=BATCH
                )
                for due, order in parts
            ),
        )


def _block(*statements: str) -> str:
    """All or nothing."""
    return f"DO $ttl_odm$ BEGIN {'; '.join(statements)}; END $ttl_odm$"


def _with_cron(*statements: str) -> str:
    """Where this database has pg_cron; elsewhere none of it is looked at."""
    has_cron = "EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'pg_cron')"
    return _block(f"IF {has_cron} THEN {'; '.join(statements)}; END IF")


_SCHEMA: Final = text(
    "SELECT n.nspname FROM pg_catalog.pg_class c "
    "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(:table)"
)

_LOG_COLUMNS: Final = (
    "id smallint PRIMARY KEY, ran_at timestamptz NOT NULL, deleted bigint NOT NULL, "
    "total bigint NOT NULL, outcome text NOT NULL"
)

# A block with an exception handler is a subtransaction, in which nothing can be committed.
_PROCEDURE: Final = """\
CREATE OR REPLACE PROCEDURE {name}(ttl_odm_seconds integer DEFAULT 0) LANGUAGE plpgsql AS $sweep$
DECLARE
  ttl_odm_ends CONSTANT timestamptz :=
    clock_timestamp() + greatest(ttl_odm_seconds, {budget}) * interval '1 second';
  ttl_odm_now timestamptz;
  ttl_odm_found bigint := 0;
  ttl_odm_deleted bigint := 0;
  ttl_odm_total bigint := 0;
  ttl_odm_outcome text;
  ttl_odm_done boolean := true;
BEGIN
  LOOP
    COMMIT;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    PERFORM set_config('lock_timeout', '1s', true);
    ttl_odm_done := true;
    IF pg_try_advisory_xact_lock({key}) THEN
      EXIT WHEN obj_description(to_regprocedure({signature}), 'pg_proc') IS DISTINCT FROM {note};
      ttl_odm_outcome := NULL;
      ttl_odm_deleted := 0;
      BEGIN
        IF to_regclass({lease_value}) IS NOT NULL THEN
          SELECT CASE WHEN paused THEN 'paused'
            WHEN holder IS NOT NULL AND acquired_until > clock_timestamp()
            THEN 'a sweeper holds the lease' END
            INTO ttl_odm_outcome FROM {lease} WHERE name = {lease_name} FOR SHARE;
        END IF;
        IF ttl_odm_outcome IS NULL THEN
          ttl_odm_outcome := 'swept';
          ttl_odm_now := clock_timestamp();{batches}
        END IF;
      EXCEPTION WHEN OTHERS THEN
        ttl_odm_outcome := left('failed: ' || SQLERRM, 300);
        ttl_odm_deleted := 0;
        ttl_odm_done := true;
      END;
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
    END IF;
    EXIT WHEN clock_timestamp() >= ttl_odm_ends OR (ttl_odm_done AND ttl_odm_seconds <= 0);
    IF ttl_odm_done THEN
      COMMIT;
      PERFORM pg_sleep(1);
    END IF;
  END LOOP;
END $sweep$"""

# Rows that somebody holds are left to the next pass.
_ONE_BATCH: Final = """
          DELETE FROM {table} WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM {table} WHERE {due} AND {expired}
            ORDER BY {order} LIMIT {batch} FOR UPDATE SKIP LOCKED)) AND {expired};
          GET DIAGNOSTICS ttl_odm_found = ROW_COUNT;
          ttl_odm_deleted := ttl_odm_deleted + ttl_odm_found;
          ttl_odm_done := ttl_odm_done AND ttl_odm_found < {batch};"""
