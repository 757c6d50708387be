"""The EVENT and the procedure by which MariaDB and MySQL sweep a table.

Each second the EVENT calls the procedure. It selects keys of rows that have expired and that nobody
holds, deletes them one by one, and commits after each batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from ttl_odm.alembic.database_job import BATCH, BUDGET, NEWS, DatabaseJob
from ttl_odm.dialects.jobs import JOB_NOTE
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END
from ttl_odm.sweeper.options import LEASE_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.alembic.steps import Steps


class MySQLJob(DatabaseJob):
    """The EVENT, the procedure and the log of one table; see the module."""

    def created(self, *, is_enabled: bool) -> list[str]:
        """What creates or replaces it; while it is being replaced nothing runs."""
        job = self.name
        state = "ENABLE" if is_enabled else "DISABLE"
        schedule = f"ON SCHEDULE EVERY 1 SECOND ON COMPLETION PRESERVE {state}"
        comment = f"COMMENT '{JOB_NOTE}{self.steps.target.noted}'"
        return [
            f"DROP EVENT IF EXISTS {job}",
            f"DROP PROCEDURE IF EXISTS {job}",
            f"CREATE TABLE IF NOT EXISTS {self.log} ({_LOG_COLUMNS}) ENGINE = InnoDB",
            self._procedure(),
            f"CREATE EVENT {job} {schedule} {comment} DO CALL {job}()",
        ]

    def dropped(self) -> list[str]:
        """What removes it."""
        return [
            f"DROP EVENT IF EXISTS {self.name}",
            f"DROP PROCEDURE IF EXISTS {self.name}",
            f"DROP TABLE IF EXISTS {self.log}",
        ]

    def _procedure(self) -> str:
        steps, target = self.steps, self.steps.target
        now, second = steps.family.stamp, steps.family.second
        batches = "".join(
            self._batch(end, moment)
            for end, moment in (
                (INHERITED_END, f"{now} - {target.seconds} * {second}"),
                (OWN_END, now),
            )
            if target.seconds is not None and (end == OWN_END or target.seconds > 0)
        )
        names = {
            "name": self.name,
            "log": self.log,
            "lease": self.lease,
            "now": now,
            "second": second,
        }
        word = "'" + target.table.name.replace("'", "''") + "'"
        return _PROCEDURE.format(
            **names,
            lease_name=LEASE_NAME,
            lock=f"CONCAT('ttl_odm.', LEFT(SHA2(CONCAT(DATABASE(), '.', {word}), 256), 48))",
            batches=batches,
            batch=BATCH,
            budget=BUDGET,
            news=NEWS,
        )

    def _batch(self, end: str, moment: str) -> str:
        steps = self.steps
        key = [column.name for column in steps.existing.primary_key]
        variables = [f"ttl_odm_key{number}" for number in range(len(key))]
        types = _types_of(steps, key)
        same = (
            f"{steps.quote(name)} = {variable}"
            for name, variable in zip(key, variables, strict=True)
        )
        return _ONE_BATCH.format(
            variables=" ".join(
                f"DECLARE {variable} {kind};"
                for variable, kind in zip(variables, types, strict=True)
            ),
            key=", ".join(map(steps.quote, key)),
            table=steps.table,
            end=end,
            moment=moment,
            expired=steps.target.expired(steps.dialect),
            batch=BATCH,
            into=", ".join(variables),
            same=" AND ".join(same),
        )


def _types_of(steps: Steps[Any], columns: Sequence[str]) -> list[str]:
    """The types of columns as a variable has them, that it may be compared by their index."""
    table = steps.target.table
    names = {"schema": table.schema, "table": table.name}
    rows = steps.run.connection.execute(_COLUMN_TYPES, names).all()
    types = {
        name: kind if collation is None else f"{kind} CHARACTER SET {charset} COLLATE {collation}"
        for name, kind, charset, collation in rows
    }
    return [types[column] for column in columns]


_COLUMN_TYPES: Final = text(
    "SELECT column_name, column_type, character_set_name, collation_name "
    "FROM information_schema.columns "
    "WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
)

_LOG_COLUMNS: Final = (
    "id TINYINT NOT NULL PRIMARY KEY, ran_at BIGINT NOT NULL, deleted BIGINT NOT NULL, "
    "total BIGINT NOT NULL, outcome VARCHAR(300) NOT NULL"
)

# A variable hides a column of the same name, so all of these have names of their own.
_PROCEDURE: Final = """\
CREATE PROCEDURE {name}() MODIFIES SQL DATA
BEGIN
  DECLARE ttl_odm_begun BIGINT DEFAULT {now};
  DECLARE ttl_odm_lock VARCHAR(64) DEFAULT {lock};
  DECLARE ttl_odm_total, ttl_odm_deleted, ttl_odm_found BIGINT DEFAULT 0;
  DECLARE ttl_odm_outcome VARCHAR(500) DEFAULT 'swept';
  DECLARE ttl_odm_paused, ttl_odm_held INT DEFAULT 0;
  DECLARE EXIT HANDLER FOR SQLEXCEPTION
  BEGIN
    GET DIAGNOSTICS CONDITION 1 ttl_odm_outcome = MESSAGE_TEXT;
    ROLLBACK;
    SET ttl_odm_outcome = LEFT(CONCAT('failed: ', ttl_odm_outcome), 300);
    DO RELEASE_LOCK(ttl_odm_lock);
    INSERT INTO {log} (id, ran_at, deleted, total, outcome)
      VALUES (1, {now}, ttl_odm_total, ttl_odm_total, ttl_odm_outcome)
      ON DUPLICATE KEY UPDATE ran_at = {now}, deleted = ttl_odm_total,
      total = total + ttl_odm_total, outcome = ttl_odm_outcome;
  END;
  IF GET_LOCK(ttl_odm_lock, 0) = 1 THEN
    sweep: LOOP
      SET ttl_odm_found = 0, ttl_odm_deleted = 0;
      SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
      START TRANSACTION;
      BEGIN
        DECLARE CONTINUE HANDLER FOR NOT FOUND, 1146 SET ttl_odm_paused = 0, ttl_odm_held = 0;
        SELECT paused, holder IS NOT NULL AND acquired_until > {now}
          INTO ttl_odm_paused, ttl_odm_held
          FROM {lease} WHERE name = '{lease_name}' LOCK IN SHARE MODE;
      END;
      IF ttl_odm_paused THEN
        SET ttl_odm_outcome = 'paused';
      ELSEIF ttl_odm_held THEN
        SET ttl_odm_outcome = 'a sweeper holds the lease';
      ELSE
        BEGIN END;{batches}
      END IF;
      COMMIT;
      SET ttl_odm_total = ttl_odm_total + ttl_odm_deleted;
      IF ttl_odm_found < {batch} THEN
        LEAVE sweep;
      END IF;
      IF {now} - ttl_odm_begun > {budget} * {second} THEN
        SET ttl_odm_outcome = 'out of time';
        LEAVE sweep;
      END IF;
    END LOOP;
    IF ttl_odm_total > 0 OR NOT EXISTS (
      SELECT 1 FROM {log} l WHERE l.id = 1 AND l.outcome = ttl_odm_outcome
      AND l.ran_at > {now} - {news} * {second}
    ) THEN
      INSERT INTO {log} (id, ran_at, deleted, total, outcome)
        VALUES (1, {now}, ttl_odm_total, ttl_odm_total, ttl_odm_outcome)
        ON DUPLICATE KEY UPDATE ran_at = {now}, deleted = ttl_odm_total,
        total = total + ttl_odm_total, outcome = ttl_odm_outcome;
    END IF;
    DO RELEASE_LOCK(ttl_odm_lock);
  END IF;
END"""

# By its key a row is deleted without a look at others, which somebody may hold.
_ONE_BATCH: Final = """
        BEGIN
          {variables}
          DECLARE ttl_odm_done INT DEFAULT 0;
          DECLARE ttl_odm_due CURSOR FOR SELECT {key} FROM {table}
            WHERE {end} <= {moment} AND {expired}
            ORDER BY {end} LIMIT {batch} FOR UPDATE SKIP LOCKED;
          DECLARE CONTINUE HANDLER FOR NOT FOUND SET ttl_odm_done = 1;
          OPEN ttl_odm_due;
          each_row: LOOP
            FETCH ttl_odm_due INTO {into};
            IF ttl_odm_done THEN
              LEAVE each_row;
            END IF;
            SET ttl_odm_found = ttl_odm_found + 1;
            DELETE FROM {table} WHERE {same} AND {expired};
            SET ttl_odm_deleted = ttl_odm_deleted + ROW_COUNT();
          END LOOP;
          CLOSE ttl_odm_due;
        END;"""
