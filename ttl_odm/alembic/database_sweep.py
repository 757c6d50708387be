"""`sweep="database"`: MariaDB and MySQL delete expired rows by an EVENT, with no process of ours.

Each second the EVENT calls a procedure, which deletes in batches, oldest first, rows that nobody
holds. The default ttl is written into it, so `op.alter_ttl` makes both anew. What a run did stands
in a table of one row, TABLE_ttl_sweeps.

A `Sweeper` has the right of way: each batch reads the row of its lease under a shared lock, and
gives up where somebody holds the lease, or has paused the sweepers. So a sweeper that takes the
lease waits for one batch, and has the table for itself from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text

from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.core.policy import TTL
from ttl_odm.dialects.mysql import INHERITED_END, JOB, JOB_LOG, JOB_NOTE, OWN_END, MySQL
from ttl_odm.sqlalchemy.policy.binding import binding_of
from ttl_odm.sqlalchemy.sweep.leases import NAME as LEASE_TABLE
from ttl_odm.sqlalchemy.sweep.leases import declared_lease_table
from ttl_odm.sweeper.declarations import archive_of, hooks_of
from ttl_odm.sweeper.options import LEASE_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import MetaData

    from ttl_odm.alembic.reflection import ExistingSchema
    from ttl_odm.alembic.runner import Runner
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.alembic.target_schema import TargetSchema
    from ttl_odm.sqlalchemy.policy.binding import Binding

_BATCH: Final = 1_000
"""Rows of a transaction; others wait for no longer than it takes."""

_BUDGET: Final = 10
"""Seconds after which a run begins no further batch; the next run goes on."""

_NEWS: Final = 30
"""Seconds after which a run is noted although it did what the one before it did."""

_SINCE: Final = {True: (10, 6), False: (8, 0, 1)}
"""The releases of MariaDB, and of MySQL, that skip rows which are locked."""


def refuse_unsweepable(
    runner: Runner, target: TargetSchema, existing: ExistingSchema, *, is_cut: bool
) -> None:
    """Refuse a table that the database can't sweep as the model says, with the reason."""
    reason = _unknown(runner, target, is_cut=is_cut) or _on_this_server(runner, target, existing)
    if reason is None:
        for metadata in _metadata(runner):
            for table in metadata.tables.values():
                binding = binding_of(table)
                schemas = (target.table.schema, runner.dialect.default_schema_name)
                is_same = table.name == target.table.name
                if binding is not None and is_same and table.schema in (None, *schemas):
                    reason = reason or _of_model(binding)
    if reason is not None:
        raise MigrationRefusedError(
            f"Table {target.label}: sweep='database' {reason}. Write sweep='index', and let a "
            "Sweeper do it."
        )


def _unknown(runner: Runner, target: TargetSchema, *, is_cut: bool) -> str | None:
    if runner.dialect.name not in MySQL.names:
        return f"is for MariaDB, MySQL and PostgreSQL; this is {runner.dialect.name}"
    if runner.offline:
        return "asks the database for keys and rights, which --sql can't; migrate online, or not"
    if not isinstance(target.policy, TTL):
        return "is for ttls counted from _ts, and not for dates that the rows have"
    if target.policy.stored is not None:
        return "has the default written into it, and this one is stored in the database"
    if target.policy.max_lifetime is not None:
        return "knows no max_lifetime, and would keep rows past it"
    return (
        "is not for tables that are cut by time, of which whole partitions go" if is_cut else None
    )


def _on_this_server(runner: Runner, target: TargetSchema, existing: ExistingSchema) -> str | None:
    connection, name = runner.connection, "MariaDB" if runner.is_mariadb else "MySQL"
    least = _SINCE[runner.is_mariadb]
    if (runner.dialect.server_version_info or least) < least:
        return f"skips locked rows, which {name} does from {'.'.join(map(str, least))} on"
    if not existing.primary_key:
        return "deletes rows by their primary key, and the table has none"
    if str(connection.exec_driver_sql("SELECT @@event_scheduler").scalar()).upper() != "ON":
        return (
            "needs the server's event scheduler, which is off (SET GLOBAL event_scheduler = ON, "
            "and event_scheduler = ON in its configuration)"
        )
    names = {"schema": target.table.schema, "table": target.table.name}
    children = connection.execute(_RESTRICTING, names).scalars().all()
    if children:
        return (
            f"can't tell which rows {', '.join(sorted(children))} keeps by a foreign key without "
            "ON DELETE CASCADE or SET NULL"
        )
    return None


_RESTRICTING: Final = text(
    "SELECT DISTINCT table_name FROM information_schema.referential_constraints "
    "WHERE unique_constraint_schema = COALESCE(:schema, DATABASE()) "
    "AND referenced_table_name = :table AND delete_rule NOT IN ('CASCADE', 'SET NULL')"
)


def _of_model(binding: Binding) -> str | None:
    owner = binding.default.owner
    if getattr(owner, "__ttl_purge__", "sql") == "orm":
        return f"can't delete through the ORM, as {binding.name}.__ttl_purge__ says"
    if archive_of(owner) is not None:
        return f"keeps no archive, as {binding.name}.__ttl_archive__ says"
    if hooks_of(owner, binding.table.fullname).watches(binding.table.fullname):
        return f"can't call {binding.name}.__ttl_on_purged__, which is Python"
    if binding.variants or (isinstance(binding.policy, TTL) and binding.policy.by is not None):
        return f"knows one default ttl, and {binding.name} has one for each kind of row"
    return None


def _metadata(runner: Runner) -> Sequence[MetaData]:
    """What env.py compares with: the models, if it says which they are."""
    declared: Any = runner.context.opts.get("target_metadata")
    if declared is None:
        return ()
    return tuple(declared) if isinstance(declared, (list, tuple)) else (declared,)


class DatabaseSweep:
    """The EVENT, the procedure and the log of one table; see the module."""

    def __init__(self, steps: Steps[Any]) -> None:
        """Quote the names."""
        self._steps = steps
        target = steps.target
        self._job = steps.schema + steps.quote(target.name_of("", JOB))
        self._log = steps.schema + steps.quote(target.name_of("", JOB_LOG))

    def make_way(self, sweep: str | None) -> None:
        """Take it off where another way was chosen, before the indexes that it searches by."""
        if sweep in ("index", "scan"):
            self.drop()

    def change(self, sweep: str | None) -> None:
        """Make it for "database", or make anew what is there, with another default ttl."""
        existing = self._steps.existing
        if sweep == "database":
            self.put()
        elif sweep is None and existing.job:
            self.put(is_enabled=existing.job != "disabled")

    def put(self, *, is_enabled: bool = True) -> None:
        """Make it, or make it anew; while it is being made nothing runs."""
        steps, job = self._steps, self._job
        state = "ENABLE" if is_enabled else "DISABLE"
        schedule = f"ON SCHEDULE EVERY 1 SECOND ON COMPLETION PRESERVE {state}"
        comment = f"COMMENT '{JOB_NOTE}{steps.target.seconds}'"
        for sql in (
            f"DROP EVENT IF EXISTS {job}",
            f"DROP PROCEDURE IF EXISTS {job}",
            f"CREATE TABLE IF NOT EXISTS {self._log} ({_LOG_COLUMNS}) ENGINE = InnoDB",
            self._procedure(),
            f"CREATE EVENT {job} {schedule} {comment} DO CALL {job}()",
        ):
            steps.run.at_length(sql)

    def drop(self) -> None:
        """Take off what is there."""
        steps = self._steps
        if steps.dialect.name in MySQL.names and steps.is_there(bool(steps.existing.job)):
            for what in (f"EVENT IF EXISTS {self._job}", f"PROCEDURE IF EXISTS {self._job}"):
                steps.run.at_length(f"DROP {what}")
            steps.run.at_length(f"DROP TABLE IF EXISTS {self._log}")

    def _procedure(self) -> str:
        steps, target = self._steps, self._steps.target
        metadata = declared_lease_table(_metadata(steps.run))
        preparer = steps.dialect.identifier_preparer
        lease = steps.quote(LEASE_TABLE) if metadata is None else preparer.format_table(metadata)
        now, second = steps.family.stamp, steps.family.second
        batches = "".join(
            self._batch(end, moment)
            for end, moment in (
                (INHERITED_END, f"{now} - {target.seconds} * {second}"),
                (OWN_END, now),
            )
            if target.seconds is not None and (end == OWN_END or target.seconds > 0)
        )
        names = {"name": self._job, "log": self._log, "lease": lease, "now": now, "second": second}
        word = "'" + target.table.name.replace("'", "''") + "'"
        return _PROCEDURE.format(
            **names,
            lease_name=LEASE_NAME,
            lock=f"CONCAT('ttl_odm.', LEFT(SHA2(CONCAT(DATABASE(), '.', {word}), 256), 48))",
            batches=batches,
            batch=_BATCH,
            budget=_BUDGET,
            news=_NEWS,
        )

    def _batch(self, end: str, moment: str) -> str:
        steps = self._steps
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
            batch=_BATCH,
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
