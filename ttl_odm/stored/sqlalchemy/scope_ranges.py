"""The ranges of rows to delete where each scope of a stored default has its own end.

`ttl_odm.stored.scope_walk` says how a sweep goes from scope to scope; here its questions are
answered by statements, and what it finds becomes a `KeyRange`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import and_, or_

from ttl_odm.sqlalchemy.purge.statements import count_rows, padded
from ttl_odm.sqlalchemy.sweep.due import PartIndex
from ttl_odm.sqlalchemy.sweep.whereabouts import KeyRange
from ttl_odm.stored.scope_walk import (
    CountIn,
    Look,
    Scope,
    ScopePlace,
    answered,
    by_cutoff,
    in_stretches,
    next_range,
)
from ttl_odm.stored.sqlalchemy.scopes import next_scopes, table_age
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Table

    from ttl_odm.dialects.indexes import StoredIndex
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.sweep.whereabouts import Bounds
    from ttl_odm.sqlalchemy.time.clock import Clock
    from ttl_odm.stored.scope_walk import Question


class ScopeRanges:
    """Finds the ranges of the rows that inherit, of a table, in one of the tables that has them."""

    def __init__(
        self,
        binding: Binding,
        clock: Clock,
        stored: StoredIndex,
        source: Table,
        bounds: Bounds | None = None,
    ) -> None:
        self.binding = binding
        self._stored = stored
        self._source = source
        self._within = bounds
        self._index = PartIndex(binding, Part.INHERITING, clock, source)

    def next_range(self, connection: Connection, size: int, resume: object) -> KeyRange | None:
        """Find the range of the next batch, by reading only; None when nothing is left."""
        place = cast("ScopePlace | None", resume)
        found = answered(next_range(size, place), partial(self._answer, connection, size))
        if found is None:
            return None
        inside: KeyRange | None = found.inside
        if inside is not None:
            again = replace(found.begin, inside=(inside.again,))
            return replace(inside, again=again, resume=found.resume)
        bounds = self._bounds(found.scopes)
        expired = partial(self._index.expired, writing=True)
        return KeyRange(found.rows, bounds, expired, again=found.begin, resume=found.resume)

    def _answer(self, connection: Connection, size: int, question: Question) -> Any:
        if isinstance(question, Look):
            return next_scopes(connection, self._index, self._stored, question.after)
        if isinstance(question, CountIn):
            criteria = self._bounds(question.scopes)(self._source)
            return count_rows(connection, self._source, *criteria, limit=question.limit)
        scope = question.scope
        of_scope = partial(self._of_scope, None if scope is None else scope.value)
        seconds = table_age(self.binding) if scope is None else scope.seconds
        return self._index.among(of_scope, seconds).next_range(connection, size, question.resume)

    def stretches(self, connection: Connection) -> Iterator[list[ColumnElement[bool]]]:
        """The conditions for all rows that have expired, in parts."""
        expired = self._index.expired(self._source, writing=False)
        yield [*self._index.criteria(table_age(self.binding)), *self._of_scope(None, self._source)]
        look = partial(next_scopes, connection, self._index, self._stored)
        for scopes in in_stretches(look):
            yield [*self._bounds(scopes)(self._source), expired]

    def _of_scope(self, value: Any, source: FromClause) -> list[ColumnElement[bool]]:
        scope = self._column(source)
        return [scope.is_(None) if value is None else scope == value, *self._more(source)]

    def _bounds(self, scopes: Sequence[Scope]) -> Bounds:
        values = by_cutoff(scopes)

        def bounds(source: FromClause) -> list[ColumnElement[bool]]:
            column, end = self._column(source), self._index.end(source)
            stretches = (
                and_(column.in_(of_cutoff), end <= self._index.bound(cutoff))
                for cutoff, of_cutoff in padded(values.items())
            )
            return [self._index.holds(source), or_(*stretches), *self._more(source)]

        return bounds

    def _column(self, source: FromClause) -> ColumnElement[Any]:
        column = self.binding.columns_of(source).discriminator
        assert column is not None  # noqa: S101 (or there are no scopes)
        return column

    def _more(self, source: FromClause) -> list[ColumnElement[bool]]:
        return [] if self._within is None else self._within(source)
