"""The ranges of rows to delete where each scope of a stored default has its own end.

A scope with many rows to delete is gone through as a table is, range by range. Scopes with few
share a range, or a sweep over thousands of them would be thousands of batches: as many as have no
more rows together than a batch may. How many that is, is found by counting up to a batch's size,
and halving; the next time it begins with what was right this time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, or_

from ttl_odm.sqlalchemy.sweep.due import KeyRange, PartIndex, count_rows
from ttl_odm.sqlalchemy.sweep.scopes import AT_ONCE, Scope, next_scopes, table_age
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Table

    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sqlalchemy.sweep.stored_indexes import StoredIndex
    from ttl_odm.sqlalchemy.time.clock import Clock

    Bounds = Callable[[FromClause], list[ColumnElement[bool]]]

_ENDS: Final = 20
"""Different ends of life among the scopes of a range: each is another stretch of the index."""


@dataclass(frozen=True, slots=True)
class ScopePlace:
    """Where a sweep goes on.

    Attributes:
        due: Scopes with rows to delete that were found and are not done; one that is None stands
            for the rows of no scope, which come first.
        after: The last scope that was looked at; None where all were.
        has_more: Whether scopes after these are still to be looked at.
        inside: Where to go on among the rows of the first of `due`, in a tuple; None where several
            scopes may share a range.
        width: How many of them.
    """

    due: tuple[Scope | None, ...] = (None,)
    after: Any = None
    has_more: bool = True
    inside: tuple[Any] | None = (None,)
    width: int = AT_ONCE

    def past(self, number: int) -> ScopePlace | None:
        """The place behind so many scopes; None where nothing is left."""
        place = replace(self, due=self.due[number:], inside=None)
        return place if place.due or place.has_more else None


class ScopeRanges:
    """Finds the ranges of the rows that inherit, in a table or in one of its partitions."""

    def __init__(
        self,
        binding: Binding,
        clock: Clock,
        stored: StoredIndex,
        source: Table,
        beside: Bounds | None = None,
    ) -> None:
        self.binding = binding
        self._stored = stored
        self._source = source
        self._beside = beside
        self._index = PartIndex(binding, Part.INHERITING, clock, source)

    def next_range(
        self, connection: Connection, size: int, resume: ScopePlace | None
    ) -> KeyRange | None:
        """Find the range of the next batch, by reading only; None when nothing is left."""
        place = ScopePlace() if resume is None else resume
        while True:
            if not place.due:
                scopes = next_scopes(connection, self._index, self._stored, place.after)
                more = scopes.last is not None
                place = replace(place, due=scopes.due, after=scopes.last, has_more=more)
                if not place.due and not more:
                    return None
                continue
            found, number = self._among(connection, size, place)
            if found is not None:
                return found
            following = place.past(number)
            if following is None:
                return None
            place = following

    def stretches(self, connection: Connection) -> Iterator[list[ColumnElement[bool]]]:
        """The conditions for all rows that have expired, in parts."""
        expired = self._index.expired(self._source, writing=False)
        yield [*self._index.criteria(table_age(self.binding)), *self._of_scope(None, self._source)]
        after, has_more = None, True
        while has_more:
            due, after = next_scopes(connection, self._index, self._stored, after)
            has_more = after is not None
            while due:
                number = _alike(due)
                yield [*self._bounds(due[:number])(self._source), expired]
                due = due[number:]

    def _among(
        self, connection: Connection, size: int, place: ScopePlace
    ) -> tuple[KeyRange | None, int]:
        """The range of the first scopes that are due, and how many those are."""
        if place.inside is not None:
            return self._inside(connection, size, place, place.inside[0]), 1
        scopes = [scope for scope in place.due[: place.width] if scope is not None]
        number = _alike(scopes)
        while True:
            bounds = self._bounds(scopes[:number])
            rows = count_rows(connection, self._source, *bounds(self._source), limit=size + 1)
            if rows <= size:
                break
            if number == 1:
                return self._inside(connection, size, place, None), 1
            number //= 2
        if not rows:
            return None, number
        width = number if 2 * rows > size else 2 * number
        resume = place.past(number)
        if resume is not None:
            resume = replace(resume, width=min(width, AT_ONCE))
        expired = partial(self._index.expired, writing=True)
        again = replace(place, width=number)
        return KeyRange(rows, bounds, expired, again=again, resume=resume), number

    def _inside(
        self, connection: Connection, size: int, place: ScopePlace, resume: Any
    ) -> KeyRange | None:
        """The next range of the first scope alone."""
        scope = place.due[0]
        of_scope = partial(self._of_scope, None if scope is None else scope.value)
        seconds = table_age(self.binding) if scope is None else scope.seconds
        index = self._index.among(of_scope, seconds)
        found = index.next_range(connection, size, resume)
        if found is None:
            return None
        following = place.past(1)
        if found.resume is not None:
            following = replace(place, inside=(found.resume,))
        return replace(found, again=replace(place, inside=(found.again,)), resume=following)

    def _of_scope(self, value: Any, source: FromClause) -> list[ColumnElement[bool]]:
        scope = self._column(source)
        return [scope.is_(None) if value is None else scope == value, *self._more(source)]

    def _bounds(self, scopes: Sequence[Scope]) -> Bounds:
        values: dict[Any, list[Any]] = {}
        for scope in scopes:
            values.setdefault(scope.cutoff, []).append(scope.value)

        def bounds(source: FromClause) -> list[ColumnElement[bool]]:
            column, end = self._column(source), self._index.end(source)
            stretches = (
                and_(column.in_(of_cutoff), end <= self._index.bound(cutoff))
                for cutoff, of_cutoff in values.items()
            )
            return [self._index.holds(source), or_(*stretches), *self._more(source)]

        return bounds

    def _column(self, source: FromClause) -> ColumnElement[Any]:
        column = self.binding.columns_of(source).discriminator
        assert column is not None  # noqa: S101 (or there are no scopes)
        return column

    def _more(self, source: FromClause) -> list[ColumnElement[bool]]:
        return [] if self._beside is None else self._beside(source)


def _alike(scopes: Sequence[Scope]) -> int:
    """How many of the first scopes have few enough ends for one statement."""
    ends: dict[Any, None] = {}
    for number, scope in enumerate(scopes):
        ends[scope.cutoff] = None
        if len(ends) > _ENDS:
            return number
    return len(scopes)
