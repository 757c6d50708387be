"""The walk through a table without an index, stretch by stretch, to its expired rows.

For models with ``__ttl_sweep__ = "scan"``, and tables without the sweeper's indexes. PostgreSQL
reads ranges of pages in their order on disk; other databases walk the rows in the order of their
primary key. Rows that are written behind the walk are left to the next sweep.
"""

from __future__ import annotations

from functools import partial
from operator import gt, le, lt
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    ColumnClause,
    Float,
    String,
    Time,
    and_,
    cast,
    column,
    func,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
    type_coerce,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.types import BigInteger, UserDefinedType

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.compat import undecorated
from ttl_odm.sqlalchemy.policy.bindings import key_columns
from ttl_odm.sqlalchemy.policy.predicate import expired_in, include_expired
from ttl_odm.sqlalchemy.purge.removal import KeyRange
from ttl_odm.sqlalchemy.sweep.counts import measure
from ttl_odm.sqlalchemy.sweep.due import PartIndex, needs_of, stored_indexes
from ttl_odm.sqlalchemy.sweep.transactions import tree_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Table
    from sqlalchemy.engine import Dialect
    from sqlalchemy.types import TypeEngine

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.sweep.whereabouts import Stretch
    from ttl_odm.sqlalchemy.time.clock import Clock

ctid: Final[ColumnClause[Any]] = column("ctid")
"""PostgreSQL's physical place of a row: its page, and its number there."""

_PAGES: Final = 256
"""Pages that are read at once: 2 MiB, some 15,000 narrow rows."""


def next_range(
    connection: Connection, binding: Binding, source: Table, size: int, stretch: Stretch
) -> KeyRange | None:
    """Find the range of the next batch in a stretch; see `PartIndex.next_range`.

    `source` has the rows: the table, or a child of it. On PostgreSQL the range is the next pages;
    of a table with children, those of each child at once. This needs PostgreSQL 14, which reads a
    range of pages without reading the others. If a BRIN index shows which pages may have expired
    rows, the walk ends at the last of them.
    """
    resume, until = stretch
    if connection.dialect.name != "postgresql":
        return _next_keys(connection, binding, size, resume)
    first, pages = resume or (0, _pages_to_walk(connection, binding, source))
    pages = pages if until is None else until[0]
    end = first + _PAGES if until is None else min(first + _PAGES, pages)
    expired = partial(expired_in, connection, binding)
    bounds = [ctid >= _beginning_of(first), ctid < _beginning_of(end)]
    rows, oldest = measure(connection, binding, source, *bounds, expired(source), limit=size + 1)
    return KeyRange(
        rows,
        lambda _: list(bounds),
        expired,
        again=(first, pages),
        resume=(end, pages) if end < pages else None,
        oldest=oldest,
    )


def marks(
    resume: tuple[int, int], until: tuple[int, int] | None, shares: int
) -> list[tuple[int, int]]:
    """Divide the rest of a walk on PostgreSQL; see `ttl_odm.sweeper.Dividing`."""
    (first, pages), end = resume, resume[1] if until is None else until[0]
    shares = min(shares, (end - first) // _PAGES)
    return [(first + (end - first) * number // shares, pages) for number in range(1, shares)]


def _pages_to_walk(connection: Connection, binding: Binding, source: Table) -> int:
    pages = count_pages(connection, source)
    index = PartIndex(binding, Part.INHERITING, clock_of(connection.dialect), source)
    seconds = index.shortest
    if pages <= _PAGES or seconds is None:
        return pages
    needs = needs_of(binding, clock_of(connection.dialect))
    if len(needs) != 1 or not any(
        index.narrows(needs[0]) for index in stored_indexes(connection, source)
    ):
        return pages
    _, past, _ = index.criteria(seconds)
    # As a text, which every driver can read: "(page,number)".
    last = select(cast(func.max(ctid), String())).select_from(source).where(past)
    place = connection.execute(last.options(include_expired())).scalar_one_or_none()
    return 0 if place is None else int(place[1:].partition(",")[0]) + 1


class Tid(UserDefinedType[Any]):
    """The type of a `ctid`."""

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        """Return the name of the type in SQL."""
        return "tid"


def _beginning_of(page: int) -> ColumnElement[object]:
    # From a text, which every driver can send.
    return cast(literal(f"({page},0)", String()), Tid())


def count_pages(connection: Connection, table: Table) -> int:
    """Return the number of pages of a table on PostgreSQL, or of its largest child."""
    size = func.pg_relation_size(tree_of(connection, table).c.relid)
    page = cast(func.current_setting("block_size"), BigInteger())
    largest = func.max(size, type_=BigInteger())
    return int(connection.execute(select(largest // page)).scalar_one())


def _next_keys(
    connection: Connection, binding: Binding, size: int, resume: tuple[object, ...] | None
) -> KeyRange | None:
    """Find the next rows in the order of their primary key, expired or not."""
    columns = key_columns(binding.table)
    clock, dialect = clock_of(connection.dialect), connection.dialect

    def after(columns: Sequence[ColumnElement[object]]) -> list[ColumnElement[bool]]:
        return [compared(in_order(columns, dialect), gt, gt, resume, clock)] if resume else []

    places = places_of(columns, dialect)
    keys = select(*places).where(*after(columns)).order_by(*columns)
    last = connection.execute(
        keys.offset(size - 1).limit(1).options(include_expired())
    ).one_or_none()

    def bounds(source: FromClause) -> list[ColumnElement[bool]]:
        ours = [source.c[key.key] for key in columns]
        if last is None:
            return after(ours)
        return [*after(ours), compared(in_order(ours, dialect), lt, le, tuple(last), clock)]

    # Most stretches have nothing to delete: then no DELETE reads them again.
    table, expired = binding.table, partial(expired_in, connection, binding)
    rows, oldest = measure(connection, binding, table, *bounds(table), expired(table))
    return KeyRange(
        rows,
        bounds,
        expired,
        again=resume or (),  # not None, with which a sweep ends
        resume=None if last is None else tuple(last),
        oldest=oldest,
    )


def in_order(
    columns: Sequence[ColumnElement[object]], dialect: Dialect
) -> list[ColumnElement[object]]:
    """Return a key's columns, with the types by which to compare them in the order of their index.

    MariaDB and MySQL order ENUM and SET by their numbers, but compare them with texts as texts.
    """
    return [type_coerce(key, _place_type(key, dialect)) for key in columns]


def places_of(
    columns: Sequence[ColumnElement[object]], dialect: Dialect
) -> list[ColumnElement[Any]]:
    """Return a key as the values with which `in_order` is compared; drivers may read it inexactly.

    SQLAlchemy reads MariaDB's and MySQL's TIME as the time of a day, which longer and negative
    times aren't. FLOAT is read with fewer digits than it has.
    """
    return [_place_of(key, _place_type(key, dialect)) for key in columns]


def _place_of(key: ColumnElement[object], type_: TypeEngine[Any]) -> ColumnElement[object]:
    if type_ is key.type:
        return key
    if isinstance(type_, String):
        return cast(key, type_)
    return type_coerce(key, type_) + literal_column("0e0" if isinstance(type_, Float) else "0")


def _place_type(key: ColumnElement[object], dialect: Dialect) -> TypeEngine[Any]:
    if dialect.name not in MYSQL_FAMILY:
        return key.type
    type_ = undecorated(key.type, dialect)
    if isinstance(type_, (mysql.ENUM, mysql.SET)):
        return BigInteger()
    if isinstance(type_, Time):
        return String()
    return Float() if isinstance(type_, Float) else key.type


def compared(
    columns: Sequence[ColumnElement[object]],
    first: Callable[[Any, Any], Any],
    last: Callable[[Any, Any], Any],
    values: tuple[object, ...],
    clock: Clock,
) -> ColumnElement[bool]:
    """Compare a key with values: by `last` in its last column, by `first` in those before."""
    bound = [literal(value, key.type) for key, value in zip(columns, values, strict=True)]
    if clock.compares_rows and len(columns) > 1:
        result: ColumnElement[bool] = last(tuple_(*columns), tuple_(*bound))
        return result
    # MariaDB and MySQL search no index for a comparison of rows.
    result = last(columns[-1], bound[-1])
    for key, value in zip(reversed(columns[:-1]), reversed(bound[:-1]), strict=True):
        result = or_(first(key, value), and_(key == value, result))
    return result
