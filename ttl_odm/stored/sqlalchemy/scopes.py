"""Which scopes of a stored default have expired rows, by an index that the scope leads.

Each scope's rows end by its own default. By the shortest of all a sweep would read every row that
is older than that, each time, and most of them may live for years. So one statement goes from one
scope to the next by the index, many scopes at once, and looks at the first entry of each: whoever
has nothing to delete costs a few look-ups, however many rows there are.

That entry is compared outside of its look-up, and MariaDB and MySQL find the scopes by DISTINCT:
these search an index by no bound that comes from another row, and would read all entries to find
none that is old enough.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import Integer, case, literal, literal_column, select

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.policy.predicate import BASE_ROW_WRITTEN, include_expired
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.stored.scope_walk import AT_ONCE, all_due, looked_at
from ttl_odm.stored.sqlalchemy.lookup import age_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import ColumnElement, Connection, FromClause

    from ttl_odm.dialects.indexes import StoredIndex
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.sweep.whereabouts import EndIndex
    from ttl_odm.stored.scope_walk import Scope, Scopes

    _IsNext = Callable[[ColumnElement[Any]], ColumnElement[bool]]


def table_age(binding: Binding) -> ColumnElement[Any]:
    """The age at which rows expire that are of no scope."""
    return age_of(binding, None, BASE_ROW_WRITTEN)


def due_in_scopes(connection: Connection, index: EndIndex, stored: StoredIndex) -> Iterator[Scope]:
    """Find all scopes with rows to delete, but for the rows that are of none."""
    return chain.from_iterable(all_due(partial(next_scopes, connection, index, stored)))


def next_scopes(connection: Connection, index: EndIndex, stored: StoredIndex, after: Any) -> Scopes:
    """Look at the scopes that follow one (None: at the first ones)."""
    clock = clock_of(connection.dialect)
    looked = look(index, connection.dialect.name, stored.collation, after)
    now, span = clock.literal(clock.now), clock.span
    cutoff = now - span(looked.c.age)
    # Nothing can be taken from minus infinity.
    earliest = clock.literal(clock.earliest)
    began = case((looked.c.began < earliest, earliest), else_=looked.c.began)
    bookmark = clock.as_bookmark(cutoff)
    found = select(looked.c.scope, looked.c.age, bookmark, cutoff - began)
    statement = found.order_by(looked.c.number).options(include_expired())
    rows = connection.execute(statement).all()
    return looked_at(rows, clock.per_second)


def look(
    index: EndIndex, dialect: str, collation: str | None, after: Any = None, most: int = AT_ONCE
) -> FromClause:
    """The next scopes in order, the age at which their rows expire, and where the first began.

    The columns are `scope`, `number`, `age` (in seconds) and `began`. Under a collation the index
    takes some scopes for the same.
    """
    binding, (_, column) = index.binding, _rows(index)
    start = None if after is None else literal(after, column.type)

    def is_next(scope: ColumnElement[Any]) -> ColumnElement[bool]:
        return scope.is_not(None) if start is None else scope > start

    is_mysql = dialect in MYSQL_FAMILY
    walk = (_distinct if is_mysql else _skipped)(index, is_next, most)
    source, column = _rows(index)
    end = index.end(source)
    # There the index has all rows: those that don't inherit have no end in it.
    inherits = end.is_not(None) if is_mysql else index.holds(source)
    # By both, or MySQL sorts.
    ends = select(end).where(column == walk.c.scope, inherits).order_by(column, end).limit(1)
    began = ends.correlate_except(source).scalar_subquery()
    age = age_of(binding, walk.c.scope, BASE_ROW_WRITTEN, collation)
    looked = select(walk.c.scope, walk.c.number, age.label("age"), began.label("began"))
    return looked.where(walk.c.scope.is_not(None)).subquery("ttl_looked")


def _rows(index: EndIndex) -> tuple[FromClause, ColumnElement[Any]]:
    source = index.source.alias()
    column = index.binding.columns_of(source).discriminator
    assert column is not None  # noqa: S101 (or there are no scopes)
    return source, column


def _distinct(index: EndIndex, is_next: _IsNext, most: int) -> Any:
    """The next scopes, on MariaDB and MySQL, which skip from one value to the next themselves."""
    _, column = _rows(index)
    scopes = select(column.label("scope"), column.label("number")).where(is_next(column))
    return scopes.distinct().order_by(column).limit(most).subquery("ttl_scopes")


def _skipped(index: EndIndex, is_next: _IsNext, at_most: int) -> Any:
    """The same by look-ups, one after the other, where a database skips nothing by itself."""

    def first(is_next: _IsNext) -> Any:
        source, column = _rows(index)
        scopes = select(column).where(index.holds(source), is_next(column)).order_by(column)
        return scopes.limit(1).correlate_except(source).scalar_subquery()

    one, most = literal_column("1", Integer()), literal_column(str(at_most), Integer())
    begin = select(first(is_next).label("scope"), one.label("number"))
    walk = begin.cte("ttl_scopes", recursive=True)
    more_scopes = first(lambda scope: scope > walk.c.scope)
    more = select(more_scopes, walk.c.number + one)
    return walk.union_all(more.where(walk.c.scope.is_not(None), walk.c.number < most))
