"""The partitions of a table on PostgreSQL as tables of their own, each swept by itself.

A statement on a table with hundreds of partitions opens and locks all of them, and their indexes.
So a sweep goes through one leaf after the other, by the same statements with another name.

Deleting rows from a leaf is not quite like deleting them from the table: grants, row-level security
and statement triggers are the leaf's own. If that would make a difference, the table is swept as a
whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from sqlalchemy import Column, MetaData, Table, text

from ttl_odm.sqlalchemy.sweep.transactions import qualified_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from sqlalchemy import Connection

    from ttl_odm.sqlalchemy.purge.removal import KeyRange
    from ttl_odm.sqlalchemy.sweep.whereabouts import Find, Marks

_LEAVES: Final = text("""
SELECT n.nspname::text, c.relname::text,
    c.relkind = 'r' AND NOT c.relrowsecurity AND has_schema_privilege(n.oid, 'USAGE')
    AND has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'UPDATE')
    AND has_table_privilege(c.oid, 'DELETE')
FROM pg_catalog.pg_class p
CROSS JOIN LATERAL pg_partition_tree(p.oid) AS t
JOIN pg_catalog.pg_class c ON c.oid = t.relid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE p.oid = CAST(:relation AS text)::regclass AND p.relkind = 'p' AND t.isleaf
AND NOT p.relrowsecurity
AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger g
                WHERE g.tgrelid = p.oid AND NOT g.tgisinternal AND g.tgtype & 1 = 0)
""")


@dataclass(frozen=True, slots=True)
class LeafPosition:
    """Where a sweep goes on in a partitioned table.

    Attributes:
        leaf: The schema and the name of a leaf.
        resume: The position in the leaf; None for its beginning.
    """

    leaf: tuple[str, str]
    resume: object = None

    def reaches(self, leaf: tuple[str, str]) -> bool:
        """Return whether a part of a leaf comes before this position."""
        return leaf < self.leaf or (leaf == self.leaf and self.resume is not None)


_tables: WeakKeyDictionary[Table, dict[tuple[str, str], Table]] = WeakKeyDictionary()
"""The leaves by their table. They are kept because SQLAlchemy caches statements by Table objects.
"""


def leaf_table(table: Table, leaf: tuple[str, str]) -> Table:
    """Return a leaf, by its schema and name, as a Table of its own."""
    leaves = _tables.setdefault(table, {})
    if leaf not in leaves:
        schema, name = leaf
        columns: list[Column[object]] = [
            Column(column.name, column.type, key=column.key, primary_key=column.primary_key)
            for column in table.c
        ]
        leaves[leaf] = Table(name, MetaData(), *columns, schema=schema)
    return leaves[leaf]


def forget_leaf(table: Table, leaf: tuple[str, str]) -> None:
    """Forget a leaf that was dropped: in a year there are thousands."""
    _tables.get(table, {}).pop(leaf, None)


def _leaves_of(connection: Connection, table: Table) -> list[tuple[str, str]]:
    """Return the leaves of a table that are swept one by one; none if it is swept as a whole.

    They are ordered by name, so that others may be attached and detached meanwhile.
    """
    relation = {"relation": qualified_name(connection, table)}
    catalog = connection.execute(_LEAVES, relation).all()
    translated = connection.get_execution_options().get("schema_translate_map") or {}
    if all(usable and schema not in translated for schema, _, usable in catalog):
        return sorted((schema, name) for schema, name, _ in catalog)
    return []


def next_in_leaves(
    connection: Connection,
    table: Table,
    stretch: tuple[LeafPosition | None, LeafPosition | None],
    find: Find,
    skipped: Collection[tuple[str, str]] = (),
) -> tuple[Table, KeyRange | None] | None:
    """Find the next rows of a table on PostgreSQL, leaf by leaf.

    Args:
        connection: In a transaction.
        table: The table.
        stretch: Where to go on, and where to end.
        find: Finds rows in a leaf.
        skipped: Leaves to skip.

    Returns:
        The leaf and its rows; the table and None if there are no more rows. None if the table has
        no partitions, or is swept as a whole.
    """
    resume, until = stretch
    leaves = _leaves_of(connection, table)
    if until is not None:
        leaves = [leaf for leaf in leaves if until.reaches(leaf)]
    for number, leaf in enumerate(leaves):
        if leaf in skipped or (resume is not None and leaf < resume.leaf):
            continue
        source = leaf_table(table, leaf)
        inside = resume.resume if resume is not None and leaf == resume.leaf else None
        end = until.resume if until is not None and leaf == until.leaf else None
        rows = find(source, (inside, end))
        if rows is not None and (rows.rows or rows.resume is not None):
            further = LeafPosition(leaf, rows.resume) if rows.resume is not None else None
            if further is None and number + 1 < len(leaves):
                further = LeafPosition(leaves[number + 1])
            return source, replace(rows, again=LeafPosition(leaf, rows.again), resume=further)
    return (table, None) if leaves or resume is not None else None


def divide_leaves(
    connection: Connection,
    table: Table,
    stretch: tuple[LeafPosition, LeafPosition | None],
    shares: int,
    marks: Marks,
) -> list[LeafPosition]:
    """Return marks that divide the next leaf, or later leaves if little is left of that one."""
    resume, until = stretch
    end = until.resume if until is not None and until.leaf == resume.leaf else None
    inside = marks(leaf_table(table, resume.leaf), (resume.resume, end))
    if inside:
        return [LeafPosition(resume.leaf, mark) for mark in inside]
    remaining = [
        leaf
        for leaf in _leaves_of(connection, table)
        if leaf > resume.leaf and (until is None or until.reaches(leaf))
    ]
    cuts = min(shares - 1, len(remaining))
    return [LeafPosition(remaining[len(remaining) * cut // cuts]) for cut in range(cuts)]
