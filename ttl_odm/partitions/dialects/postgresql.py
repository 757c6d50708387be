"""Partitions of PostgreSQL: tables of their own, which are attached and detached.

Which statement takes which lock. Every statement on the table opens the table itself, and locks the
partitions that it can't rule out. A transaction that waits for ACCESS EXCLUSIVE keeps later ones
waiting.

- ``DROP TABLE`` of a partition: ACCESS EXCLUSIVE on the table, the partition and the one for the
  rest; no lock on the tables that its foreign keys refer to. PostgreSQL rejects it if foreign keys
  refer to the table.
- ``DETACH PARTITION``: the same, and SHARE ROW EXCLUSIVE on the tables that its foreign keys refer
  to. On tables whose foreign keys refer to it: first SHARE, then ACCESS EXCLUSIVE. A ``DROP TABLE``
  after it takes ACCESS EXCLUSIVE on all of these. ``CONCURRENTLY`` would take weaker locks, but
  PostgreSQL rejects it if there is a partition for the rest.
- ``CREATE TABLE (LIKE)`` and ``ATTACH PARTITION``: SHARE UPDATE EXCLUSIVE on the table, which
  readers and writers don't notice; ``PARTITION OF`` would take ACCESS EXCLUSIVE. On the partition
  for the rest it is ACCESS EXCLUSIVE in any case, because its rows are scanned.

**Rows change their partition only while the table is locked against all other sessions.** A
statement that has opened the table has read the list of its partitions, may wait for the lock on
one of them, and takes its snapshot after that wait. If only the partition for the rest were locked,
it could begin before an ``ATTACH PARTITION`` and take its snapshot after it: the moved rows would
be gone from the one partition, and it wouldn't know the other.

**No transaction here exchanges a lock that keeps writers out for a stronger one.** An application's
transaction that has read the table and then writes to it would wait for the first lock, while the
second one waits for that transaction. PostgreSQL detects the deadlock at once and ends the
application's transaction. So the strongest lock comes first, before anything else is locked, and
scans happen under it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ttl_odm.dialects.family import as_value
from ttl_odm.dialects.postgresql import relation
from ttl_odm.partitions.dialects.ddl import PER_SECOND, PartitionDDL

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ttl_odm.partitions.dialects.ddl import Cut, Edges, NewPartition


class PostgreSQLPartitions(PartitionDDL):
    """Partitions by ``RANGE`` of one column, and a ``DEFAULT`` partition.

    The order of calls. Making: `make`. Dropping: `enter`, then the catalogue and the clock decide
    again, with a scan for a live row if the bounds alone don't exclude one, then `drop`. Moving:
    the same with `move`. Handing over: `prepare_handover`, and after `enter`, `hand_over`. Names of
    partitions are passed as `quoted` returns them.
    """

    hands_over = True

    def quoted(self, schema: str | None, name: str) -> str:
        """Return the name in double quotes; nothing in it is doubled for a driver."""
        return relation(schema, name)

    def clause(self, column: str) -> str:
        """Return the part after ``PARTITION BY`` when the table is created."""
        return f"RANGE ({relation(None, column)})"

    def leaves(self, unit: str | None) -> str:
        """Return the query of the catalogue, where bounds are texts in the session's own format."""
        factor = 1 if unit is None else 1_000_000 // PER_SECOND[unit]
        edges = ("e.lower", "e.upper")
        lower, upper = (_MICROSECONDS.format(edge=edge, factor=factor) for edge in edges)
        return _LEAVES.format(lower=lower, upper=upper)

    def enter(self, cut: Cut, *leaves: str) -> str:
        """Keep other sessions off the table and these partitions until the transaction ends.

        The table is locked first, as in every statement that uses it. The partitions are locked
        against statements that name them instead of the table.
        """
        names = ", ".join([f"ONLY {self.table(cut)}", *leaves])
        return f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE"

    def first(self, cut: Cut, partitions: Sequence[NewPartition]) -> list[str]:
        """Simple statements, since no session uses the table yet."""
        rest = self.quoted(cut.schema, cut.rest)
        return [
            f"CREATE TABLE {rest} PARTITION OF {self.table(cut)} DEFAULT",
            *(
                f"CREATE TABLE {self.quoted(cut.schema, leaf.name)} PARTITION OF "
                f"{self.table(cut)} FOR VALUES {self._range(cut, leaf)}"
                for leaf in partitions
            ),
        ]

    def make(
        self, cut: Cut, leaf: NewPartition, rest: str | None, columns: Sequence[str]
    ) -> list[str]:
        """Make a partition as a table, and attach it when its rows are in it.

        `rest` is the partition for all other rows if it has rows of the new one; otherwise None.
        The second statement moves these rows, by their `columns`, while other sessions read and
        write. The later ones lock the table, as `enter` does, move the rows written meanwhile, and
        attach.
        """
        name = self.quoted(cut.schema, leaf.name)
        table = self.table(cut)
        attach = f"ATTACH PARTITION {name} FOR VALUES {self._range(cut, leaf)}"
        # The identity is the table's; a partition with its own couldn't be attached.
        create = f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL EXCLUDING IDENTITY)"
        statements = [create, f"ALTER TABLE {table} {attach}"]
        if rest is not None:
            some = ", ".join(relation(None, column) for column in columns)
            gone = f"DELETE FROM {rest} WHERE {self.within(cut, leaf)} RETURNING {some}"
            moved = f"WITH gone AS ({gone}) INSERT INTO {name} ({some}) SELECT {some} FROM gone"
            statements[1:1] = [moved, self.enter(cut, rest), moved]
        return statements

    def within(self, cut: Cut, leaf: NewPartition) -> str:
        """Return the condition for rows that belong in a partition, by its bounds."""
        column = relation(None, cut.column)
        return f"{column} >= {cut.bound(leaf.start)} AND {column} < {cut.bound(leaf.end)}"

    def drop(self, cut: Cut, leaf: str, *, is_referred_to: bool = False) -> list[str]:
        """Drop a partition with its rows, after `enter`; it is still attached to the table.

        If foreign keys refer to the table, `enter` must have locked the `related` tables, too.
        """
        detach = [self._detach(cut, leaf)] if is_referred_to else []
        return [*detach, f"DROP TABLE {leaf}"]

    def related(self) -> str:
        """Return the query for tables that foreign keys connect with a partition, as SQL names.

        Its parameters are the `leaf` and the `table`, as `quoted` returns them. Tables that the
        user may not lock are left out.
        """
        return _RELATED

    def move(self, cut: Cut, leaf: str, places: str, columns: Sequence[str]) -> list[str]:
        """Move rows of a partition to the one for the rest, and drop it with its other rows.

        `places` are the physical places (``ctid``) of the rows, as an array, and `columns` are the
        columns to write. The rows wait in a temporary table until the partition is gone, since the
        one for the rest doesn't accept them before. (They could wait in the detached partition, but
        see the locks above.) The last statement's count is the number of moved rows.
        """
        some = ", ".join(relation(None, column) for column in columns)
        chosen = f"SELECT {some} FROM {leaf} WHERE ctid = ANY({as_value(places)}::tid[])"
        into = f"INSERT INTO {self.table(cut)} ({some}) OVERRIDING SYSTEM VALUE"
        return [
            f"CREATE TEMPORARY TABLE {_SURVIVORS} ON COMMIT DROP AS {chosen}",
            *self.drop(cut, leaf),
            f"{into} SELECT {some} FROM pg_temp.{_SURVIVORS}",
        ]

    def prepare_handover(self, cut: Cut, leaf: str, edges: Edges) -> list[list[str]]:
        """Transactions that make `hand_over` short; each may be repeated.

        They add a CHECK for the bounds, so that no rows are read while readers wait.
        """
        check = f"CONSTRAINT {_CHECK} CHECK ({self._between(cut, edges)})"
        alter = f"ALTER TABLE {leaf}"
        return [
            [f"{alter} DROP CONSTRAINT IF EXISTS {_CHECK}", f"{alter} ADD {check} NOT VALID"],
            [f"{alter} VALIDATE CONSTRAINT {_CHECK}"],
        ]

    def hand_over(self, cut: Cut, leaf: tuple[str, str], into: Cut, edges: Edges) -> list[str]:
        """Make a partition, by its schema and name, one of another table, with the same bounds.

        It is detached, moved to the schema of the archive, and attached there under its name.
        """
        schema, name = leaf
        theirs = self.quoted(into.schema, name)
        moved = [f"ALTER TABLE {self.quoted(*leaf)} SET SCHEMA {relation(None, into.schema or '')}"]
        lower, upper = (self._edge(cut, edge, end) for edge, end in zip(edges, _OPEN, strict=True))
        attach = f"ATTACH PARTITION {theirs} FOR VALUES FROM ({lower}) TO ({upper})"
        return [
            self._detach(cut, self.quoted(*leaf)),
            *(moved if into.schema != schema else []),
            f"ALTER TABLE {self.table(into)} {attach}",
            f"ALTER TABLE {theirs} DROP CONSTRAINT {_CHECK}",
        ]

    def _between(self, cut: Cut, edges: Edges) -> str:
        column = relation(None, cut.column)
        bounds = zip((">=", "<"), edges, _OPEN, strict=True)
        parts = (f"{column} {sign} {self._edge(cut, at, end)}" for sign, at, end in bounds if at)
        return " AND ".join([f"{column} IS NOT NULL", *parts])

    def _edge(self, cut: Cut, edge: datetime | None, end: str) -> str:
        return end if edge is None else cut.bound(edge)

    def _detach(self, cut: Cut, leaf: str) -> str:
        # Not concurrently: see above.
        return f"ALTER TABLE {self.table(cut)} DETACH PARTITION {leaf}"

    def _range(self, cut: Cut, leaf: NewPartition) -> str:
        return f"FROM ({cut.bound(leaf.start)}) TO ({cut.bound(leaf.end)})"


_CHECK: Final = "ttl_odm_range"
_SURVIVORS: Final = "ttl_odm_survivors"
_OPEN: Final = ("MINVALUE", "MAXVALUE")

_MICROSECONDS: Final = """
CASE WHEN {edge} IN ('MINVALUE', 'MAXVALUE') THEN NULL
  WHEN a.atttypid = 'timestamptz'::regtype THEN CASE WHEN isfinite(CAST({edge} AS timestamptz))
    THEN CAST(EXTRACT(EPOCH FROM CAST({edge} AS timestamptz)) * 1000000 AS bigint) END
  WHEN a.atttypid IN ('timestamp'::regtype, 'date'::regtype) THEN
    CASE WHEN isfinite(CAST({edge} AS timestamp))
    THEN CAST(EXTRACT(EPOCH FROM CAST({edge} AS timestamp)) * 1000000 AS bigint) END
  ELSE CAST(CAST({edge} AS numeric) * {factor} AS bigint) END
"""
"""By the type of the column in the database, not in the model."""

_RELATED: Final = """
SELECT k.other::regclass::text FROM (
  SELECT confrelid FROM pg_catalog.pg_constraint
  WHERE contype = 'f' AND conrelid = CAST(:leaf AS text)::regclass
  UNION SELECT conrelid FROM pg_catalog.pg_constraint
  WHERE contype = 'f' AND confrelid = CAST(:leaf AS text)::regclass) k (other)
WHERE has_table_privilege(k.other, 'UPDATE, DELETE, TRUNCATE')
AND k.other <> CAST(:leaf AS text)::regclass AND k.other <> CAST(:table AS text)::regclass
ORDER BY k.other
"""

_LEAVES: Final = r"""
SELECT q.nspname::text AS home, n.nspname::text AS schema, c.relname::text AS name,
  {lower} AS lower, {upper} AS upper, COALESCE(b.bound = 'DEFAULT', false) AS is_rest,
  false AS takes_nulls,
  CASE
    WHEN p.oid IN (SELECT k.confrelid FROM pg_catalog.pg_constraint k WHERE k.contype = 'f')
      OR c.oid IN (SELECT k.confrelid FROM pg_catalog.pg_constraint k WHERE k.contype = 'f')
      THEN 'reference'
    WHEN EXISTS (SELECT FROM pg_catalog.pg_trigger g WHERE g.tgrelid IN (p.oid, c.oid)
                 AND NOT g.tgisinternal AND g.tgtype & 40 <> 0) THEN 'trigger'
    WHEN p.relrowsecurity OR c.relrowsecurity THEN 'policy'
    WHEN NOT (pg_has_role(p.relowner, 'USAGE') AND pg_has_role(c.relowner, 'USAGE')) THEN 'owner'
    WHEN c.relkind <> 'r' THEN 'shape'
    WHEN to_jsonb(i) ->> 'inhdetachpending' = 'true' THEN 'detaching'
  END AS hindrance,
  NULLIF(pg_stat_get_live_tuples(c.oid), 0) AS estimate,
  EXISTS (SELECT FROM pg_catalog.pg_trigger g WHERE g.tgrelid = p.oid
          AND NOT g.tgisinternal AND g.tgtype & 4 <> 0) AS is_heard,
  ARRAY(SELECT s.attname::text FROM pg_catalog.pg_attribute s WHERE s.attrelid = p.oid
        AND s.attnum > 0 AND NOT s.attisdropped AND s.attgenerated = ''
        ORDER BY s.attnum) AS columns
FROM pg_catalog.pg_class p
JOIN pg_catalog.pg_namespace q ON q.oid = p.relnamespace
JOIN pg_catalog.pg_partitioned_table t ON t.partrelid = p.oid
JOIN pg_catalog.pg_attribute a ON a.attrelid = p.oid AND a.attnum = t.partattrs[0]
LEFT JOIN pg_catalog.pg_inherits i ON i.inhparent = p.oid
LEFT JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid) AS bound OFFSET 0) b
CROSS JOIN LATERAL (SELECT substring(b.bound FROM $re$FROM \('?([^')]*)'?\)$re$) AS lower,
                    substring(b.bound FROM $re$TO \('?([^')]*)'?\)$re$) AS upper OFFSET 0) e
WHERE p.oid = to_regclass(
  COALESCE(quote_ident(CAST(:schema AS text)) || '.', '') || quote_ident(CAST(:name AS text)))
AND t.partstrat = 'r' AND t.partnatts = 1 AND a.attname = CAST(:column AS text)
"""
"""OFFSET 0: each bound is made a text once, not at each mention. A subquery with IN is read once;
EXISTS would read all constraints for each partition, since no index begins with ``confrelid``.

40 are the bits of DELETE and TRUNCATE in ``tgtype``; 4 is that of INSERT. PostgreSQL 13 has no
column ``inhdetachpending``."""
