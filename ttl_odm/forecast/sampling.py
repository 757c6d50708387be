"""Samples of SQL tables that cost the same however big a table is, and say how far they may be off.

They are `stretches` of the pages (PostgreSQL), of the rowid (SQLite) or of a key of integers
(MariaDB, MySQL).

Where there is no such order, or rows are spread too unevenly over it, rows are drawn one by one,
which reads the table but judges few of its rows; on PostgreSQL pages, from anywhere.

This module must not know what is counted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    Integer,
    bindparam,
    cast,
    func,
    literal_column,
    select,
    tablesample,
    type_coerce,
)
from sqlalchemy.exc import OperationalError
from sqlalchemy.types import BigInteger

from ttl_odm.forecast import stretches
from ttl_odm.forecast.estimates import Drawn, Measured
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.sweep.due import estimate
from ttl_odm.sqlalchemy.sweep.table_walk import Tid, count_pages, ctid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Select, Table

    Counting = Callable[[FromClause], Select[Any]]

_IN_PAGES: Final = 200_000


def size_of(connection: Connection, table: Table) -> int:
    """Rows of a table: the database's own estimate where it keeps one."""
    rows = estimate(connection, table)
    return _count(connection, table) if rows is None else rows


def sampled(
    connection: Connection, table: Table, rows: int, asked: Sequence[str], counting: Counting
) -> Measured:
    """Count in a sample.

    Args:
        connection: To read by.
        table: The table.
        rows: What `size_of` says, more than none.
        asked: The names of the columns that `counting` selects; the first counts all rows.
        counting: The statement that counts in a table, or in a part of it.
    """
    found = _in_stretches(connection, table, rows, asked, counting)
    if found is None and connection.dialect.name == "postgresql":
        return _in_pages(connection, table, rows, asked, counting)
    return found or _drawn_singly(connection, table, asked, counting)


def clusters(connection: Connection, statement: Any, **values: int) -> list[tuple[int, ...]]:
    """Run a statement that `counting` gave; the sums over no rows are 0."""
    counted = connection.execute(statement, values).all()
    return [tuple(int(each or 0) for each in row) for row in counted]


class _Order(NamedTuple):
    """The order in which a table is cut into parts.

    Attributes:
        first: The first place in it.
        places: How many there are.
        width: How many of them a stretch has.
        key: What rows are ordered by.
        place: A place that is told when the statement runs, by its name.
    """

    first: int
    places: int
    width: int
    key: ColumnElement[Any]
    place: Callable[[str], ColumnElement[Any]] = partial(bindparam, type_=BigInteger())


def _in_stretches(
    connection: Connection, table: Table, rows: int, asked: Sequence[str], counting: Counting
) -> Measured | None:
    """Count in one stretch of each part; None where the table is not made for it."""
    order = _order(connection, table, rows)
    if order is None:
        return None
    # One statement for all: to make it costs more than to run it.
    within = order.key >= order.place("low"), order.key < order.place("high")
    some = select(*table.c).where(*within).limit(stretches.TOO_MANY).options(include_expired())
    statement = counting(some.subquery())
    places, every = stretches.drawn(order.first, order.places, order.width)
    found = []
    for low, high in places:
        found += clusters(connection, statement, low=low, high=high)
        if found[-1][0] >= stretches.TOO_MANY:
            break
    return stretches.measured(asked, found, every)


def _order(connection: Connection, table: Table, rows: int) -> _Order | None:
    if connection.dialect.name == "postgresql":
        pages = count_pages(connection, table)
        return _Order(0, pages, 1, ctid, _page) if pages else None
    key = _rowid(table) if connection.dialect.name == "sqlite" else _integer_key(table)
    if key is None:
        return None
    # Each by itself: SQLite reads all rows for both in one SELECT.
    ends = (select(end(key)).select_from(table) for end in (func.min, func.max))
    both = select(*(end.scalar_subquery() for end in ends)).options(include_expired())
    try:
        lowest, highest = tuple(connection.execute(both).one())
    except OperationalError:  # SQLite: WITHOUT ROWID
        return None
    if lowest is None:
        return None
    places = int(highest) - int(lowest) + 1
    return _Order(int(lowest), places, stretches.width_of(places, rows), key)


def _page(name: str) -> ColumnElement[Any]:
    """The beginning of a page whose number is told when the statement runs."""
    return cast(func.concat("(", bindparam(name, type_=BigInteger()), ",0)"), Tid())


def _rowid(table: Table) -> ColumnElement[Any] | None:
    taken = {each.name.lower() for each in table.c}
    free = (each for each in ("rowid", "_rowid_", "oid") if each not in taken)
    name = next(free, None)
    return None if name is None else literal_column(name, BigInteger())


def _integer_key(table: Table) -> ColumnElement[Any] | None:
    first = next(iter(table.primary_key), None)
    if first is None or not isinstance(first.type, Integer):
        return None
    return type_coerce(first, BigInteger())


def _in_pages(
    connection: Connection, table: Table, rows: int, asked: Sequence[str], counting: Counting
) -> Measured:
    source = tablesample(table, func.system(100 * min(1.0, _IN_PAGES / rows)))
    # Each partition has pages of the same numbers.
    page: Any = literal_column("tableoid, (ctid::text::point)[0]::bigint")
    found = clusters(connection, counting(source).group_by(page))
    return Measured(asked, found, Drawn.PAGES, rows)


def _drawn_singly(
    connection: Connection, table: Table, asked: Sequence[str], counting: Counting
) -> Measured:
    rows = _count(connection, table)
    choices = max(1, rows // (stretches.PARTS * stretches.ROWS))
    chance = f"(random() & 9223372036854775807) % {choices} = 0"
    if connection.dialect.name != "sqlite":
        chance = f"rand() * {choices} < 1"
    found = clusters(connection, counting(table).where(literal_column(chance)))
    return Measured(asked, found, Drawn.SINGLY, rows)


def _count(connection: Connection, table: Table) -> int:
    counted = select(func.count()).select_from(table)
    return int(connection.execute(counted.options(include_expired())).scalar_one())
