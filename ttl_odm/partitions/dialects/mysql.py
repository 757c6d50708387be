"""Partitions of MariaDB and MySQL: parts of a table, each with the rows below its own bound.

A partition has an upper bound only. It begins where the one below it ends, so a dropped partition
leaves its range to the one above. NULL is below everything. A table that is cut here has a lowest
partition for NULLs and rows older than all other partitions, and a highest one for the rest.

A statement that changes partitions commits, and is done whole or not at all. It takes the table for
itself for a moment: it waits for every transaction that has used the table, and new ones wait
behind it. So on MariaDB it doesn't wait (``NOWAIT``). MySQL can't wait for less than a second, so
transactions that use the table are counted first: see `busy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ttl_odm.partitions.dialects.ddl import PER_SECOND, Cut, PartitionDDL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ttl_odm.partitions.dialects.ddl import NewPartition


class MySQLPartitions(PartitionDDL):
    """Partitions by ``RANGE COLUMNS`` of one column; existing ones may be by ``RANGE``."""

    has_past = True
    instant_unit = "us"

    def quoted(self, schema: str | None, name: str) -> str:
        """Return the name in backticks, which work in every SQL mode."""
        names = [name] if schema is None else [schema, name]
        return ".".join(f"`{part.replace('`', '``')}`" for part in names)

    def bound(self, cut: Cut, instant: datetime) -> str:
        """Return a bound without an offset: dates and times are in UTC."""
        return cut.bound(instant).replace("+00'", "'")

    def leaves(self, unit: str | None) -> str:
        """Return the query of ``information_schema``, which can be read inside LOCK TABLES too."""
        factor = 1 if unit is None else 1_000_000 // PER_SECOND[unit]
        return _LEAVES.format(factor=factor, user=_USER)

    def first(self, cut: Cut, partitions: Sequence[NewPartition]) -> list[str]:
        """Return one statement, for a table that has got all of its indexes and constraints."""
        return [f"ALTER TABLE {self.table(cut)} {self.clause(cut, partitions)}"]

    def clause(self, cut: Cut, partitions: Sequence[NewPartition]) -> str:
        """Return the clause that cuts a table: the lowest partition, these, and the last one."""
        start = self.bound(cut, partitions[0].start)
        leaves = [
            f"PARTITION {self.quoted(None, cut.past)} VALUES LESS THAN ({start})",
            *(self._leaf(cut, leaf) for leaf in partitions),
            self._rest(cut.rest),
        ]
        by = f"RANGE COLUMNS ({self.quoted(None, cut.column)})"
        return f"PARTITION BY {by} ({', '.join(leaves)})"

    def make(self, cut: Cut, leaf: NewPartition, rest: str | None) -> str:
        """Make a partition above all others; it gets its rows from the one for the rest, if any."""
        made = self._leaf(cut, leaf)
        if rest is None:
            return f"ALTER TABLE {self.table(cut)} ADD PARTITION ({made})"
        name = self.quoted(None, rest)
        into = f"({made}, {self._rest(rest)})"
        return f"ALTER TABLE {self.table(cut)} REORGANIZE PARTITION {name} INTO {into}"

    def lock(self, cut: Cut, read: Sequence[str] = (), *, is_mariadb: bool) -> str:
        """Keep all other sessions off the table until `unlock`, once their transactions have ended.

        Tables that are `read` meanwhile, by their quoted names, can't be changed.
        """
        tables = [f"{self.table(cut)} WRITE", *(f"{name} READ" for name in read)]
        return f"LOCK TABLES {', '.join(tables)}{' NOWAIT' if is_mariadb else ''}"

    unlock: Final = "UNLOCK TABLES"

    def drop(self, cut: Cut, leaf: str) -> str:
        """Drop a partition with its rows."""
        return f"ALTER TABLE {self.table(cut)} DROP PARTITION {self.quoted(None, leaf)}"

    def merge(self, cut: Cut, past: str, leaf: str, upper: datetime) -> str:
        """Make one partition of the lowest and the one above it, with the name of the first."""
        first, second = self.quoted(None, past), self.quoted(None, leaf)
        into = f"PARTITION {first} VALUES LESS THAN ({self.bound(cut, upper)})"
        return f"ALTER TABLE {self.table(cut)} REORGANIZE PARTITION {first}, {second} INTO ({into})"

    def limit(self, *, is_mariadb: bool) -> tuple[str, int]:
        """Return the setting that limits the duration of a SELECT, and its units in a second."""
        return ("max_statement_time", 1) if is_mariadb else ("max_execution_time", 1_000)

    busy: Final = """
SELECT COUNT(*) FROM performance_schema.metadata_locks l
JOIN performance_schema.events_transactions_current t ON t.thread_id = l.owner_thread_id
JOIN performance_schema.threads o ON o.thread_id = l.owner_thread_id
WHERE l.object_type = 'TABLE' AND l.object_schema = :schema AND l.object_name = :name
AND t.state = 'ACTIVE' AND t.timer_wait > 50000000000 AND o.processlist_id <> CONNECTION_ID()
"""
    """Counts the transactions of MySQL that use the table and have lasted for more than 50 ms.

    The unit of ``timer_wait`` is picoseconds. A shorter transaction will very likely end soon.
    """

    shared: Final = """
SHOW GLOBAL VARIABLES WHERE (Variable_name = 'wsrep_on' AND Value = 'ON')
OR (Variable_name = 'group_replication_single_primary_mode' AND Value = 'OFF')
"""
    """Returns a row if other servers write the tables, too: the name of the setting that says so.

    That is `galera`, or the other one on a member of a group with several primaries.
    """

    galera: Final = "wsrep_on"

    def _leaf(self, cut: Cut, leaf: NewPartition) -> str:
        name = self.quoted(None, leaf.name)
        return f"PARTITION {name} VALUES LESS THAN ({self.bound(cut, leaf.end)})"

    def _rest(self, name: str) -> str:
        return f"PARTITION {self.quoted(None, name)} VALUES LESS THAN (MAXVALUE)"


_USER: Final = """'TRIGGER' AND
  grantee = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''')"""

_LEAVES: Final = """
SELECT q.home, q.home AS `schema`, q.name, q.upper, q.is_rest, q.takes_nulls,
  CASE WHEN COUNT(*) OVER () = 1 THEN 'last' ELSE q.hindrance END AS hindrance,
  LAG(q.upper) OVER (ORDER BY q.place) AS lower, 0 AS is_heard, '' AS columns,
  NULL AS estimate
FROM (
  SELECT p.table_schema AS home, p.partition_name AS name,
    MIN(p.partition_ordinal_position) AS place,
    MIN(CASE
      WHEN p.partition_description = 'MAXVALUE' THEN NULL
      WHEN p.partition_expression LIKE 'to_days(_%'
        THEN (CAST(p.partition_description AS SIGNED) - 719528) * 86400000000
      WHEN c.data_type IN ('date', 'datetime') THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01',
        CAST(TRIM(BOTH '''' FROM p.partition_description) AS DATETIME(6)))
      ELSE CAST(p.partition_description AS SIGNED) * {factor}
    END) AS upper,
    MAX(p.partition_description = 'MAXVALUE') AS is_rest,
    CASE
      WHEN MAX(p.subpartition_name) IS NOT NULL THEN 'shape'
      WHEN EXISTS (SELECT 1 FROM information_schema.triggers g
                   WHERE g.event_object_schema = COALESCE(:schema, DATABASE())
                   AND g.event_object_table = :name
                   AND g.event_manipulation = 'DELETE') THEN 'trigger'
      WHEN COALESCE(CURRENT_ROLE(), 'NONE') = 'NONE'
        AND NOT EXISTS (SELECT 1 FROM information_schema.user_privileges
                        WHERE privilege_type = {user})
        AND NOT EXISTS (SELECT 1 FROM information_schema.schema_privileges
                        WHERE COALESCE(:schema, DATABASE()) LIKE table_schema
                        AND privilege_type = {user})
        AND NOT EXISTS (SELECT 1 FROM information_schema.table_privileges
                        WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name
                        AND privilege_type = {user}) THEN 'unseen'
    END AS hindrance,
    MAX(p.partition_ordinal_position = 1 AND c.is_nullable = 'YES') AS takes_nulls
  FROM information_schema.partitions p
  JOIN information_schema.columns c ON c.table_schema = COALESCE(:schema, DATABASE())
    AND c.table_name = :name AND c.column_name = :column
  WHERE p.table_schema = COALESCE(:schema, DATABASE()) AND p.table_name = :name
  AND p.partition_method IN ('RANGE', 'RANGE COLUMNS') AND (
    (LOWER(REPLACE(REPLACE(p.partition_expression, '`', ''), '"', '')) = LOWER(:column)
     AND c.data_type IN ('date', 'datetime', 'tinyint', 'smallint', 'mediumint', 'int', 'bigint'))
    OR (LOWER(REPLACE(REPLACE(p.partition_expression, '`', ''), '"', ''))
        = LOWER(CONCAT('to_days(', :column, ')')) AND c.data_type IN ('date', 'datetime')))
  GROUP BY p.table_schema, p.partition_name
) q
"""
"""719528 is TO_DAYS('1970-01-01'). A partition has a row for each of its subpartitions.

A TIMESTAMP column is cut in the session's time zone, so such partitions don't count. Users without
the TRIGGER privilege are shown no triggers.
"""
