"""The way of a sweep from scope to scope, by an index that the scope leads.

Each scope's rows end by its own default. By the shortest of all a sweep would read every row that
is older than that, each time, and most of them may live for years. So one statement goes from one
scope to the next by the index, many scopes at once, and reads the first entry of each: a scope with
nothing to delete costs a few look-ups, however many rows it has.

That entry is compared outside of its look-up, and MariaDB and MySQL find the scopes by DISTINCT:
these search an index by no bound that comes from another row, and would read all entries to find
none that is old enough.

`ttl_odm.stored.scope_walk` decides how a sweep goes from scope to scope; here its questions are
answered by statements, and each answer becomes a `KeyRange`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Integer, and_, case, literal, literal_column, or_, select

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.policy.predicate import BASE_ROW_WRITTEN, include_expired
from ttl_odm.sqlalchemy.purge.removal import KeyRange, count_rows
from ttl_odm.sqlalchemy.purge.statements import padded
from ttl_odm.sqlalchemy.sweep.due import PartIndex, is_walked, needs_of, seen_indexes
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.stored.scope_walk import (
    AT_ONCE,
    CountIn,
    Look,
    Scope,
    ScopePlace,
    all_due,
    answered,
    by_cutoff,
    in_stretches,
    looked_at,
    next_range,
)
from ttl_odm.stored.sqlalchemy.lookup import age_of
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import CTE, ColumnElement, Connection, FromClause, ScalarSelect, Subquery, Table

    from ttl_odm.dialects.indexes import StoredIndex
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import Seconds
    from ttl_odm.sqlalchemy.purge.removal import Bounds
    from ttl_odm.sqlalchemy.sweep.whereabouts import EndIndex
    from ttl_odm.sqlalchemy.time.clock import Clock
    from ttl_odm.stored.scope_walk import Question, Scopes

    Condition = ColumnElement[bool]
    _IsNext = Callable[[ColumnElement[object]], Condition]


def scope_index(connection: Connection, binding: Binding) -> StoredIndex | None:
    """Return the index that leads a sweep from one scope to the next; None where there is none.

    The connection is fresh from the pool.
    """
    if binding.source.scoping is None or is_walked(connection, binding):
        return None
    needs = needs_of(binding, clock_of(connection.dialect))
    seen = seen_indexes(connection, binding, needs)
    return next((seen[need] for need in needs if need.scope and need in seen), None)


class ScopeWalk:
    """The way of a sweep from scope to scope, by an index."""

    def __init__(self, binding: Binding, index: StoredIndex, connection: Connection) -> None:
        self._binding = binding
        self._index = index
        self._clock: Clock = clock_of(connection.dialect)

    def life_beside(self) -> tuple[Seconds, list[Condition]]:
        """The age at which the rows without a scope expire, and their condition."""
        scope = _scope_column(self._binding, self._binding.table)
        return _table_age(self._binding), [scope.is_(None)]

    def overdue(self, connection: Connection, index: EndIndex) -> float | None:
        """For how many seconds the first row of any scope has been expired."""
        due = chain.from_iterable(all_due(partial(_next_scopes, connection, index, self._index)))
        return max((scope.overdue for scope in due), default=None)

    def ranges(self, source: Table, bounds: Bounds | None = None) -> ScopeRanges:
        """The ranges of the rows that inherit."""
        return ScopeRanges(self._binding, self._clock, self._index, source, bounds)


class ScopeRanges:
    """The ranges of a table's rows that inherit, in the table or in one of its partitions."""

    def __init__(
        self,
        binding: Binding,
        clock: Clock,
        stored: StoredIndex,
        source: Table,
        bounds: Bounds | None = None,
    ) -> None:
        self._binding = binding
        self._stored = stored
        self._source = source
        self._within = bounds
        self._index = PartIndex(binding, Part.INHERITING, clock, source)

    def next_range(self, connection: Connection, size: int, resume: object) -> KeyRange | None:
        """Find the range of the next batch, by reading only; None when nothing is left."""
        place = cast("ScopePlace | None", resume)
        answer = answered(next_range(size, place), partial(self._answer, connection, size))
        if answer is None:
            return None
        inside: KeyRange | None = answer.inside
        if inside is not None:
            again = replace(answer.begin, inside=(inside.again,))
            return replace(inside, again=again, resume=answer.resume)
        bounds = self._bounds(answer.scopes)
        expired = partial(self._index.expired, writing=True)
        return KeyRange(answer.rows, bounds, expired, again=answer.begin, resume=answer.resume)

    def _answer(self, connection: Connection, size: int, question: Question) -> Any:
        if isinstance(question, Look):
            return _next_scopes(connection, self._index, self._stored, question.after)
        if isinstance(question, CountIn):
            criteria = self._bounds(question.scopes)(self._source)
            return count_rows(connection, self._source, *criteria, limit=question.limit)
        scope = question.scope
        of_scope = partial(self._of_scope, None if scope is None else scope.value)
        seconds = _table_age(self._binding) if scope is None else scope.seconds
        return self._index.among(of_scope, seconds).next_range(connection, size, question.resume)

    def stretches(self, connection: Connection) -> Iterator[list[Condition]]:
        """The conditions for all rows that have expired, in parts."""
        expired = self._index.expired(self._source, writing=False)
        of_none = self._of_scope(None, self._source)
        yield [*self._index.criteria(_table_age(self._binding)), *of_none]
        look = partial(_next_scopes, connection, self._index, self._stored)
        for scopes in in_stretches(look):
            yield [*self._bounds(scopes)(self._source), expired]

    def _of_scope(self, value: object, source: FromClause) -> list[Condition]:
        scope = _scope_column(self._binding, source)
        return [scope.is_(None) if value is None else scope == value, *self._more(source)]

    def _bounds(self, scopes: Sequence[Scope]) -> Bounds:
        values = by_cutoff(scopes)

        def bounds(source: FromClause) -> list[Condition]:
            column, end = _scope_column(self._binding, source), self._index.end(source)
            stretches = (
                and_(column.in_(of_cutoff), end <= self._index.bound(cutoff))
                for cutoff, of_cutoff in padded(values.items())
            )
            return [self._index.holds(source), or_(*stretches), *self._more(source)]

        return bounds

    def _more(self, source: FromClause) -> list[Condition]:
        return [] if self._within is None else self._within(source)


def _next_scopes(
    connection: Connection, index: EndIndex, stored: StoredIndex, after: object
) -> Scopes:
    """Read which of the scopes that follow one (None: the first ones) have rows to delete."""
    clock = clock_of(connection.dialect)
    first = first_ends(index, connection.dialect.name, stored.collation, after)
    cutoff = clock.literal(clock.now) - clock.span(first.c.age)
    # Nothing can be taken from minus infinity.
    earliest = clock.literal(clock.earliest)
    began = case((first.c.began < earliest, earliest), else_=first.c.began)
    bookmark = clock.as_bookmark(cutoff)
    statement = select(first.c.scope, first.c.age, bookmark, clock.length(began, cutoff))
    statement = statement.order_by(first.c.number).options(include_expired())
    return looked_at(connection.execute(statement).all())


def first_ends(
    index: EndIndex, dialect: str, collation: str | None, after: object = None, most: int = AT_ONCE
) -> FromClause:
    """Select the next scopes in order, the age at which their rows expire, and their first entry.

    The columns are `scope`, `number`, `age` (in seconds) and `began`, when the first row's life
    began. Under a collation the index takes some scopes for the same.
    """
    binding, (_, column) = index.binding, _aliased(index)
    start = None if after is None else literal(after, column.type)

    def is_next(scope: ColumnElement[object]) -> Condition:
        return scope.is_not(None) if start is None else scope > start

    is_mysql = dialect in MYSQL_FAMILY
    walk = (_distinct if is_mysql else _skipped)(index, is_next, most)
    source, column = _aliased(index)
    end = index.end(source)
    # There the index has all rows: those that don't inherit have no end in it.
    inherits = end.is_not(None) if is_mysql else index.holds(source)
    # By both, or MySQL sorts.
    ends = select(end).where(column == walk.c.scope, inherits).order_by(column, end).limit(1)
    began = ends.correlate_except(source).scalar_subquery()
    age = age_of(binding, walk.c.scope, BASE_ROW_WRITTEN, collation)
    scopes = select(walk.c.scope, walk.c.number, age.label("age"), began.label("began"))
    return scopes.where(walk.c.scope.is_not(None)).subquery("ttl_looked")


def _distinct(index: EndIndex, is_next: _IsNext, most: int) -> Subquery:
    """Select the next scopes on MariaDB and MySQL, which skip from value to value themselves."""
    _, column = _aliased(index)
    scopes = select(column.label("scope"), column.label("number")).where(is_next(column))
    return scopes.distinct().order_by(column).limit(most).subquery("ttl_scopes")


def _skipped(index: EndIndex, is_next: _IsNext, most: int) -> CTE:
    """Select the next scopes by one look-up after the other, where a database can't skip."""

    def first(is_next: _IsNext) -> ScalarSelect[Any]:
        source, column = _aliased(index)
        scopes = select(column).where(index.holds(source), is_next(column)).order_by(column)
        return scopes.limit(1).correlate_except(source).scalar_subquery()

    one, limit = literal_column("1", Integer()), literal_column(str(most), Integer())
    begin = select(first(is_next).label("scope"), one.label("number"))
    walk = begin.cte("ttl_scopes", recursive=True)
    following = first(lambda scope: scope > walk.c.scope)
    more = select(following, walk.c.number + one)
    return walk.union_all(more.where(walk.c.scope.is_not(None), walk.c.number < limit))


def _aliased(index: EndIndex) -> tuple[FromClause, ColumnElement[object]]:
    """The rows of an index under a new alias, and their scope."""
    source = index.source.alias()
    return source, _scope_column(index.binding, source)


def _scope_column(binding: Binding, source: FromClause) -> ColumnElement[object]:
    column = binding.columns_of(source).discriminator
    assert column is not None  # noqa: S101 (or there are no scopes)
    return column


def _table_age(binding: Binding) -> ColumnElement[object]:
    """The age at which rows without a scope expire."""
    return age_of(binding, None, BASE_ROW_WRITTEN)
