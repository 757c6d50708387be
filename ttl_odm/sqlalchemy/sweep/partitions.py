"""The partitions of a table on PostgreSQL, each of which is swept by itself.

A statement on a table with hundreds of partitions opens all of their indexes, and locks all of
them. What is swept is one leaf after the other instead, by the same statements with another name.

Rows that one deletes from a leaf are not quite rows that one deletes from the table: grants,
row-level security and statement triggers are the leaf's own. Where that would make a difference
the table is swept as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import Column, MetaData, Table, text

from ttl_odm.sqlalchemy.sweep.table_walk import qualified_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection

    from ttl_odm.sqlalchemy.sweep.index_windows import KeyRange

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
class Resume:
    """Where a sweep goes on in a partitioned table.

    Attributes:
        leaf: The schema and the name of the leaf.
        resume: Where in it; None for its beginning.
    """

    leaf: tuple[str, str]
    resume: Any = None


_tables: WeakKeyDictionary[Table, dict[tuple[str, str], Table]] = WeakKeyDictionary()
"""The leaves by the table: SQLAlchemy knows a statement again by the tables in it."""


def leaves_of(connection: Connection, table: Table) -> list[tuple[str, str]]:
    """The leaves that are to be swept in a table's stead, in order; none for the table itself."""
    if connection.dialect.name != "postgresql":
        return []
    named = {"relation": qualified_name(connection, table)}
    found = connection.execute(_LEAVES, named).all()
    translated = connection.get_execution_options().get("schema_translate_map") or {}
    if all(usable and schema not in translated for schema, _, usable in found):
        # By an order of ours, so that others may be attached and detached meanwhile.
        return sorted((schema, name) for schema, name, _ in found)
    return []


def placed(window: KeyRange, leaves: Sequence[tuple[str, str]], number: int) -> KeyRange:
    """A window of one of the leaves, as one of the whole table."""
    here, following = leaves[number], leaves[number + 1 : number + 2]
    resume = Resume(following[0]) if following else None
    if window.resume is not None:
        resume = Resume(here, window.resume)
    return replace(window, again=Resume(here, window.again), resume=resume)


def leaf_table(table: Table, leaf: tuple[str, str]) -> Table:
    """A leaf, with the columns of its table."""
    known = _tables.setdefault(table, {})
    if leaf not in known:
        schema, name = leaf
        columns: list[Column[Any]] = [
            Column(each.name, each.type, key=each.key, primary_key=each.primary_key)
            for each in table.c
        ]
        known[leaf] = Table(name, MetaData(), *columns, schema=schema)
    return known[leaf]
