"""How many rows of a table are there, and how many of them have expired.

Only a dry run, a fuse or a forecast wants rows counted: it may read as many index entries as there
are expired rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlalchemy import BigInteger, String, and_, column, func, literal, or_, select
from sqlalchemy import table as bare_table

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.purge.removal import expired_in
from ttl_odm.sqlalchemy.sweep.due import PartIndex, count_rows, measure
from ttl_odm.sqlalchemy.sweep.foreign_keys import name_of
from ttl_odm.sqlalchemy.sweep.leaves import read_leaves
from ttl_odm.sqlalchemy.sweep.stored_indexes import is_walked
from ttl_odm.sqlalchemy.sweep.table_walk import regclass
from ttl_odm.sqlalchemy.sweep.transactions import prepared, reading
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Counted, Part

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

    from ttl_odm.sqlalchemy.policy.binding import Binding

_FEW: Final = 100_000
"""Rows below which an estimate is made sure of by counting."""

_LOOK: Final = 10
"""Times as many rows as are due are looked for, so that shares of a tenth and more are exact."""


def count(connection: Connection, binding: Binding) -> Counted:
    """Count what there is to purge; see `ttl_odm.sweeper.Counting`."""
    counted = _count(connection, binding)
    if binding.partitioning is None:
        return counted
    with prepared(connection), reading(connection):
        leaves = read_leaves(connection, binding)
    return counted if leaves is None else replace(counted, partitions=leaves.counted)


def _count(connection: Connection, binding: Binding) -> Counted:
    table, due, oldest = binding.table, 0, None
    is_on = any(default() is not None for default in binding.defaults())
    is_whole = is_on and is_walked(connection, binding)
    with prepared(connection), reading(connection):
        if not is_on:
            pass
        elif is_whole:
            due, oldest = measure(connection, binding, table, expired_in(connection, binding))
        elif binding.override is None or binding.max_lifetime:
            # A row whose limit has passed may be in another part as well.
            due = count_rows(connection, table, expired_in(connection, binding))
        else:
            for part in (Part.INHERITING, Part.OWN):
                index = PartIndex(binding, part, clock_of(connection.dialect))
                if index.shortest is not None:
                    due += count_rows(connection, table, *index.criteria(index.shortest))
        rows = estimate(connection, table)
        if rows is None or rows < _FEW:
            return Counted(due, count_rows(connection, table), oldest=oldest)
        # What a database believes may be from before a big sweep, and a fuse would take a part
        # for the whole. A look at a few times as many rows as are due finds that out.
        seen = count_rows(connection, table, limit=_LOOK * due) if due else 0
        if seen < _LOOK * due:
            return Counted(due, seen, oldest=oldest)
        return Counted(due, max(rows, seen), is_estimated=True, oldest=oldest)


def estimate(connection: Connection, table: Table) -> int | None:
    """How many rows the database believes a table to have; None where it keeps no such number."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        tree = func.pg_partition_tree(regclass(connection, table)).table_valued("relid", "isleaf")
        catalog = bare_table(
            "pg_class", column("oid"), column("reltuples"), column("relkind"), schema="pg_catalog"
        )
        # ANALYZE gives a partitioned table the rows of its leaves once more.
        is_whole = and_(catalog.c.oid == regclass(connection, table), catalog.c.relkind != "p")
        leaves = select(tree.c.relid).where(tree.c.isleaf)
        rows = func.sum(func.greatest(catalog.c.reltuples, 0), type_=BigInteger())
        estimated = select(rows).where(or_(is_whole, catalog.c.oid.in_(leaves)))
    elif dialect in MYSQL_FAMILY:
        schema, name = name_of(connection, table)
        tables = bare_table(
            "tables",
            column("table_schema", String()),
            column("table_name", String()),
            column("table_rows", BigInteger()),
            schema="information_schema",
        )
        estimated = select(tables.c.table_rows).where(
            tables.c.table_schema == (func.database() if schema is None else literal(schema)),
            tables.c.table_name == name,
        )
    else:
        return None
    number = connection.execute(estimated).scalar_one_or_none()
    return None if number is None else int(number)
