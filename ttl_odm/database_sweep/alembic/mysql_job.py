"""The EVENT and the procedure by which MariaDB and MySQL sweep a table.

Each second the EVENT calls the procedure. It selects the keys of expired rows that aren't locked,
deletes these rows one by one, and commits after each batch. It skips a row that can't be deleted or
archived.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import literal_column, text

from ttl_odm.alembic.target_schema import as_text
from ttl_odm.database_sweep.alembic.job import (
    BATCH,
    BUDGET,
    CHANGING,
    FLOOR,
    NEWS,
    RETRY,
    DatabaseJob,
    IndexPart,
    zone_on_mysql,
)
from ttl_odm.database_sweep.jobs import FUSE
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END
from ttl_odm.sweeper.options import LEASE_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ttl_odm.alembic.steps import Steps
    from ttl_odm.dialects import Family


class MySQLJob(DatabaseJob):
    """The EVENT and the procedure for one table, and the table with their result."""

    def __init__(self, steps: Steps[Family]) -> None:
        """Qualify names, as an EVENT looks names up in its own database, not the session's."""
        super().__init__(steps, home=steps.dialect.default_schema_name if steps.schema else None)

    def created(self, *, is_enabled: bool) -> list[str]:
        """Return the statements that create or replace the job; nothing runs in between."""
        job = self.name
        state = "ENABLE" if is_enabled else "DISABLE"
        schedule = f"ON SCHEDULE EVERY 1 SECOND ON COMPLETION PRESERVE {state}"
        return [
            f"DROP EVENT IF EXISTS {job}",
            f"DROP PROCEDURE IF EXISTS {job}",
            f"CREATE TABLE IF NOT EXISTS {self.log} ({_LOG_COLUMNS}) ENGINE = InnoDB",
            f"INSERT IGNORE INTO {self.log} (id) VALUES (1)",
            self._procedure(),
            f"CREATE EVENT {job} {schedule} DO CALL {job}()",
        ]

    def dropped(self) -> list[str]:
        """Return the statements that remove the job."""
        return [
            f"DROP EVENT IF EXISTS {self.name}",
            f"DROP PROCEDURE IF EXISTS {self.name}",
            f"DROP TABLE IF EXISTS {self.log}",
        ]

    def set(self, columns: Mapping[str, str | float | None]) -> str:
        """Return the statement that changes the settings; UTC may not be known by its name."""
        zone = columns.get("timezone")
        named = {"timezone": zone_on_mysql(zone)} if isinstance(zone, str) else {}
        return super().set({**columns, **named})

    def _procedure(self) -> str:
        steps, target = self.steps, self.steps.target
        parts = self.parts
        counts = " + ".join(
            self._named(_COUNT).format(table=steps.table, due=part.due, expired=self.expired)
            for part in parts
            if not part.of_scope
        )
        word = steps.literal(target.table.name)
        names = {
            "now": steps.family.stamp,
            "second": steps.family.second,
            "log": self.log,
            "count": counts or "0",
            "count_more": "".join(map(self._count_more, parts)),
            "table": steps.table,
            "word": word,
            "floor": FLOOR,
            "fuse": FUSE,
        }
        return self._named(_PROCEDURE).format(
            **names,
            name=self.name,
            note=steps.literal(self.note),
            lease=self.lease,
            lease_name=LEASE_NAME,
            lock=f"CONCAT('ttl_odm.', LEFT(SHA2(CONCAT(DATABASE(), '.', {word}), 256), 48))",
            default=self.default if parts else "0",
            lock_default=self._lock_default,
            changing=CHANGING,
            fuse_check=self._named(_FUSE_CHECK).format(**names),
            batches="".join(map(self._batch, parts)),
            batch=BATCH,
            budget=BUDGET,
            news=NEWS,
            retry=RETRY,
        )

    @property
    def _lock_default(self) -> str:
        row = self.locked_default
        if row is None:
            return ""
        form = _LOCK_DEFAULT_ON_MARIADB if self.steps.run.is_mariadb else _LOCK_DEFAULT
        return self._named(form).format(row=row)

    @property
    def _now(self) -> str:
        stamp: str = self.steps.family.stamp
        return stamp

    @property
    def _inheriting(self) -> IndexPart:
        moment = f"{self._now} - {self.variables}default * {self.steps.family.second}"
        return IndexPart(f"{INHERITED_END} <= {moment}", INHERITED_END)

    def _in_scopes(self, scope: str) -> IndexPart:
        moment = f"{self._now} - {self.variables}age * {self.steps.family.second}"
        due = f"{scope} = {self.variables}scope AND {INHERITED_END} <= {moment}"
        order = f"{scope}, {INHERITED_END}"  # by both, or MySQL sorts
        return IndexPart(due, order, of_scope=True)

    def _count_more(self, part: IndexPart) -> str:
        """Return SQL that adds the number of expired rows in scopes, up to the fuse's limit."""
        if not part.of_scope:
            return ""
        count = self._named(_COUNT).format(
            table=self.steps.table, due=part.due, expired=self.expired
        )
        task = self._named(_COUNT_MORE).format(count=count)
        return self._each_scope(task, during=f"{self.variables}due < {self.variables}limit")

    def _each_scope(self, task: str, *, during: str) -> str:
        """Return SQL that runs a task for each scope, as `ttl_odm_scope`."""
        steps, scope = self.steps, self.steps.target.scope
        if scope is None:
            return ""
        (kind,) = _types_of(steps, [scope.name])
        discriminator = self._binding.discriminator
        assert discriminator is not None  # noqa: S101 (there are scopes)
        variable = literal_column(f"{self.variables}scope", discriminator.type)
        # The age, in seconds, at which rows of the scope expire.
        age = self.scopes.age_in(variable, self._collation)
        return self._named(_EACH_SCOPE).format(
            scope=steps.quote(scope.name),
            table=steps.table,
            type=kind,
            age=as_text(age, steps.dialect, self._home),
            during=during,
            task=task,
        )

    @property
    def _having_own(self) -> IndexPart:
        return IndexPart(f"{OWN_END} <= {self._now}", OWN_END)

    def _batch(self, part: IndexPart) -> str:
        steps, expired = self.steps, self.expired
        key = [column.name for column in steps.existing.primary_key]
        variables = [f"{self.variables}key{number}" for number in range(len(key))]
        types = _types_of(steps, key)
        same = " AND ".join(
            f"{steps.quote(name)} = {variable}"
            for name, variable in zip(key, variables, strict=True)
        )
        removal = self._named(_DELETE).format(table=steps.table, same=same, expired=expired)
        undo = ""
        if self.copy is not None:
            columns, values = self.archived
            names = {"archive": self.archive, "columns": columns, "values": values}
            kept = self._named(_ARCHIVE).format(
                **names, table=steps.table, same=same, expired=expired
            )
            removal, undo = (
                f"{kept}{removal}{self._named(_BOTH)}",
                f"ROLLBACK TO SAVEPOINT {self.variables}row;",
            )
        batch = self._named(_ONE_BATCH).format(
            variables=" ".join(
                f"DECLARE {variable} {kind};"
                for variable, kind in zip(variables, types, strict=True)
            ),
            key=", ".join(map(steps.quote, key)),
            table=steps.table,
            due=part.due,
            order=part.order,
            expired=expired,
            batch=BATCH,
            into=", ".join(variables),
            removal=removal,
            undo=undo,
        )
        if not part.of_scope:
            return batch
        task = self._named(_WHERE_DUE).format(table=steps.table, due=part.due, batch=batch)
        return self._each_scope(task, during=f"{self.variables}deleted < {BATCH}")


def _types_of(steps: Steps[Family], columns: Sequence[str]) -> list[str]:
    """Return the types for variables that are compared with columns, so that indexes are used."""
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
    "id TINYINT NOT NULL PRIMARY KEY, ran_at BIGINT, deleted BIGINT NOT NULL DEFAULT 0, "
    "total BIGINT NOT NULL DEFAULT 0, outcome VARCHAR(300) NOT NULL DEFAULT '', "
    "opens TIME, closes TIME, timezone VARCHAR(64), max_fraction DOUBLE"
)

# A variable hides a column of the same name, so the variables' prefix avoids all columns.
_PROCEDURE: Final = """\
CREATE PROCEDURE {name}() COMMENT {note} MODIFIES SQL DATA
BEGIN
  DECLARE ttl_odm_begun BIGINT DEFAULT {now};
  DECLARE ttl_odm_lock VARCHAR(64) DEFAULT {lock};
  DECLARE ttl_odm_total, ttl_odm_deleted, ttl_odm_gone, ttl_odm_default BIGINT DEFAULT 0;
  DECLARE ttl_odm_due, ttl_odm_rows, ttl_odm_allowed, ttl_odm_limit BIGINT UNSIGNED DEFAULT 0;
  DECLARE ttl_odm_outcome, ttl_odm_problem VARCHAR(500);
  DECLARE ttl_odm_paused, ttl_odm_held, ttl_odm_closed, ttl_odm_blown, ttl_odm_errno,
    ttl_odm_changing INT DEFAULT 0;
  DECLARE ttl_odm_fraction DOUBLE;
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
      SET ttl_odm_deleted = 0, ttl_odm_outcome = NULL;
      SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
      START TRANSACTION;
      BEGIN
        DECLARE CONTINUE HANDLER FOR NOT FOUND, 1146 SET ttl_odm_paused = 0, ttl_odm_held = 0;
        SELECT paused, holder IS NOT NULL AND acquired_until > {now}
          INTO ttl_odm_paused, ttl_odm_held
          FROM {lease} WHERE name = '{lease_name}' LOCK IN SHARE MODE;
      END;
      BEGIN
        DECLARE CONTINUE HANDLER FOR NOT FOUND SET ttl_odm_closed = 0, ttl_odm_fraction = NULL;
        SELECT l.opens IS NOT NULL AND IF(l.opens < l.closes,
            TIME(CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', l.timezone)) >= l.opens
            AND TIME(CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', l.timezone)) < l.closes,
            TIME(CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', l.timezone)) >= l.opens
            OR TIME(CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', l.timezone)) < l.closes) IS NOT TRUE,
            l.max_fraction, l.max_fraction IS NOT NULL AND LOCATE('{fuse}', l.outcome) = 1
            AND l.ran_at > {now} - {retry} * {second}
          INTO ttl_odm_closed, ttl_odm_fraction, ttl_odm_blown FROM {log} l WHERE l.id = 1;
      END;
{lock_default}
      IF ttl_odm_paused THEN
        SET ttl_odm_outcome = 'paused';
      ELSEIF ttl_odm_held THEN
        SET ttl_odm_outcome = 'a sweeper holds the lease';
      ELSEIF ttl_odm_closed THEN
        SET ttl_odm_outcome = 'outside its window';
      ELSEIF ttl_odm_changing THEN
        SET ttl_odm_outcome = '{changing}';
      ELSE
        SET ttl_odm_default = {default};{fuse_check}
        IF ttl_odm_outcome IS NULL AND NOT ttl_odm_blown THEN
          SET ttl_odm_outcome = 'swept';{batches}
        END IF;
      END IF;
      COMMIT;
      SET ttl_odm_total = ttl_odm_total + ttl_odm_deleted;
      IF ttl_odm_problem IS NOT NULL THEN
        SET ttl_odm_outcome = LEFT(CONCAT('failed: ', ttl_odm_problem), 300);
      END IF;
      IF ttl_odm_deleted < {batch} THEN
        LEAVE sweep;
      END IF;
      IF {now} - ttl_odm_begun > {budget} * {second} THEN
        SET ttl_odm_outcome = IF(ttl_odm_problem IS NULL, 'out of time', ttl_odm_outcome);
        LEAVE sweep;
      END IF;
    END LOOP;
    IF ttl_odm_total > 0 OR (ttl_odm_outcome IS NOT NULL AND NOT EXISTS (
      SELECT 1 FROM {log} l WHERE l.id = 1 AND l.outcome = ttl_odm_outcome
      AND l.ran_at > {now} - {news} * {second}
    )) THEN
      INSERT INTO {log} (id, ran_at, deleted, total, outcome)
        VALUES (1, {now}, ttl_odm_total, ttl_odm_total, ttl_odm_outcome)
        ON DUPLICATE KEY UPDATE ran_at = {now}, deleted = ttl_odm_total,
        total = total + ttl_odm_total, outcome = ttl_odm_outcome;
    END IF;
    DO RELEASE_LOCK(ttl_odm_lock);
  END IF;
END"""

# Without this lock, a change of the default that commits during a batch would be too late for it.
_LOCK_DEFAULT: Final = """
      BEGIN
        DECLARE CONTINUE HANDLER FOR 3572 SET ttl_odm_changing = 1;
        SET ttl_odm_changing = 0, ttl_odm_default = ({row} FOR SHARE NOWAIT);
      END;"""

# MariaDB's procedures can't use NOWAIT.
_LOCK_DEFAULT_ON_MARIADB: Final = """
      BEGIN
        DECLARE ttl_odm_wait BIGINT DEFAULT @@innodb_lock_wait_timeout;
        DECLARE CONTINUE HANDLER FOR 1205 SET ttl_odm_changing = 1;
        DECLARE EXIT HANDLER FOR SQLEXCEPTION
        BEGIN
          SET SESSION innodb_lock_wait_timeout = ttl_odm_wait;
          RESIGNAL;
        END;
        SET SESSION innodb_lock_wait_timeout = 0, ttl_odm_changing = 0;
        SET ttl_odm_default = ({row} LOCK IN SHARE MODE);
        SET SESSION innodb_lock_wait_timeout = ttl_odm_wait;
      END;"""

# Checked once per run, before it deletes anything, since fewer rows are due afterwards. The number
# of rows is estimated first, and counted only if the fuse would blow by the estimate.
_FUSE_CHECK: Final = """
        IF ttl_odm_fraction IS NOT NULL AND ttl_odm_total = 0 AND NOT ttl_odm_blown THEN
          SET ttl_odm_allowed = {floor}, ttl_odm_limit = {floor} + 1;
          SET ttl_odm_due = {count};{count_more}
          IF ttl_odm_due > ttl_odm_allowed THEN
            SET ttl_odm_rows = COALESCE((SELECT t.table_rows FROM information_schema.tables t
              WHERE t.table_schema = DATABASE() AND t.table_name = {word}), 0);
            SET ttl_odm_allowed = GREATEST({floor}, FLOOR(ttl_odm_fraction * ttl_odm_rows));
            SET ttl_odm_limit = ttl_odm_allowed + 1, ttl_odm_due = {count};{count_more}
          END IF;
          IF ttl_odm_due > ttl_odm_allowed THEN
            SET ttl_odm_rows = (SELECT COUNT(*) FROM {table});
            SET ttl_odm_allowed = GREATEST({floor}, FLOOR(ttl_odm_fraction * ttl_odm_rows));
            SET ttl_odm_limit = ttl_odm_allowed + 1, ttl_odm_due = {count};{count_more}
          END IF;
          IF ttl_odm_due > ttl_odm_allowed THEN
            SET ttl_odm_outcome = CONCAT('{fuse}more than ', ttl_odm_allowed,
              ' rows have expired, max_fraction=', ttl_odm_fraction, ' of ', ttl_odm_rows,
              ' rows; nothing was deleted');
          END IF;
        END IF;"""

_COUNT: Final = (
    "(SELECT COUNT(*) FROM (SELECT 1 FROM {table} WHERE {due} AND {expired} "
    "LIMIT ttl_odm_limit) AS due)"
)

_COUNT_MORE: Final = """
              SET ttl_odm_due = ttl_odm_due + {count};"""

# One transaction deletes about as many rows as a batch, from any number of scopes. Scopes are found
# one by one: MySQL and MariaDB don't search an index by a bound that comes from another row.
_EACH_SCOPE: Final = """
          BEGIN
            DECLARE ttl_odm_scope {type} DEFAULT (SELECT MIN({scope}) FROM {table});
            DECLARE ttl_odm_age BIGINT;
            WHILE ttl_odm_scope IS NOT NULL AND {during} DO
              SET ttl_odm_age = {age};{task}
              SET ttl_odm_scope = (SELECT MIN({scope}) FROM {table} WHERE {scope} > ttl_odm_scope);
            END WHILE;
          END;"""
_WHERE_DUE: Final = """
              IF EXISTS (SELECT 1 FROM {table} WHERE {due}) THEN{batch}
              END IF;"""

# Deleted by its key, a row doesn't wait for others that may be locked.
_ONE_BATCH: Final = """
          BEGIN
            {variables}
            DECLARE ttl_odm_done INT DEFAULT 0;
            DECLARE ttl_odm_rows_due CURSOR FOR SELECT {key} FROM {table}
              WHERE {due} AND {expired}
              ORDER BY {order} LIMIT {batch} FOR UPDATE SKIP LOCKED;
            DECLARE CONTINUE HANDLER FOR NOT FOUND SET ttl_odm_done = 1;
            OPEN ttl_odm_rows_due;
            each_row: LOOP
              FETCH ttl_odm_rows_due INTO {into};
              IF ttl_odm_done THEN
                LEAVE each_row;
              END IF;
              SET ttl_odm_gone = 0;
              BEGIN
                DECLARE EXIT HANDLER FOR SQLEXCEPTION
                BEGIN
                  GET DIAGNOSTICS CONDITION 1
                    ttl_odm_errno = MYSQL_ERRNO, ttl_odm_problem = MESSAGE_TEXT;
                  IF ttl_odm_errno IN (1205, 1213) THEN
                    RESIGNAL;
                  END IF;
                  SET ttl_odm_gone = 0;{undo}
                END;{removal}
              END;
              SET ttl_odm_deleted = ttl_odm_deleted + ttl_odm_gone;
            END LOOP;
            CLOSE ttl_odm_rows_due;
          END;"""

_DELETE: Final = """
                DELETE FROM {table} WHERE {same} AND {expired};
                SET ttl_odm_gone = ROW_COUNT();"""

_ARCHIVE: Final = """
                SAVEPOINT ttl_odm_row;
                INSERT INTO {archive} ({columns}) SELECT {values} FROM {table}
                  WHERE {same} AND {expired};
                SET ttl_odm_errno = ROW_COUNT();"""

# A stored default may change between the two statements.
_BOTH: Final = """
                IF ttl_odm_gone <> ttl_odm_errno THEN
                  ROLLBACK TO SAVEPOINT ttl_odm_row;
                  SET ttl_odm_gone = 0;
                END IF;"""
