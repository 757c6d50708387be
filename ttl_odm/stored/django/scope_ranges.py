"""The rows to delete where each scope of a stored default has its own end.

`ttl_odm.stored.scope_walk` says how a sweep goes from scope to scope; here its questions are
answered by statements. `ScopedRows` gives batches as `ExpiredRows` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ttl_odm.django.sweep.due import ExpiredRows
from ttl_odm.django.sweep.walks import Keys
from ttl_odm.stored.django.lookup import StoredAge
from ttl_odm.stored.django.scopes import due_in_scopes, next_scopes
from ttl_odm.stored.scope_walk import (
    CountIn,
    Look,
    ScopePlace,
    ScopeRange,
    answered,
    by_cutoff,
    in_stretches,
    next_range,
)
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ttl_odm.dialects.indexes import StoredIndex
    from ttl_odm.django.policy.bindings import AnyQuerySet, Binding
    from ttl_odm.stored.scope_walk import Question, Scope


@dataclass(frozen=True, slots=True)
class ScopedRange:
    """The rows of the next batch, and where the one after it begins.

    It `is_crowded` where it has more rows, which nothing but their keys tells apart.
    """

    rows: AnyQuerySet
    resume: ScopePlace | None
    is_crowded: bool = False


class ScopedRows:
    """The expired rows that inherit, scope by scope: the `Walk` of a stored default."""

    def __init__(self, binding: Binding, using: str, index: StoredIndex) -> None:
        self._binding = binding
        self._using = using
        self._index = index
        self._rows = ExpiredRows(binding, using, Part.INHERITING)

    def overdue(self) -> float | None:
        """For how many seconds the first row of any scope, or of none, has been expired."""
        due = due_in_scopes(self._binding, self._using, self._index)
        ages = [scope.overdue for scope in due]
        of_none = self._of_scope(None).overdue()
        return max(ages if of_none is None else [*ages, of_none], default=None)

    def next_range(self, resume: Any, size: int) -> ScopedRange | None:
        """The rows of the next batch, by scope and order alone; None if there are none."""
        found = self._walk(resume, size, lambda rows, at: rows.next_range(at, size))
        if found is None:
            return None
        inside = found.inside
        if inside is None:
            return ScopedRange(self._of_scopes(found.scopes), found.resume)
        rows = self._of_scope(found.begin.due[0]).within(inside)
        return ScopedRange(rows, found.resume, inside.is_crowded)

    def within(self, found: ScopedRange) -> AnyQuerySet:
        """The rows of a range."""
        return found.rows

    def keys(self, resume: Any, size: int) -> Keys | None:
        """The keys of the next so many rows; None if there are none."""
        found = self._walk(resume, size, lambda rows, at: rows.keys(at, size))
        if found is None:
            return None
        if found.inside is not None:
            return Keys(found.inside.keys, found.resume, found.begin)
        rows = self._of_scopes(found.scopes)
        keys = list(rows.values_list("pk", flat=True)[:size])
        return Keys(keys, found.resume, found.begin)

    def stretches(self) -> Iterator[AnyQuerySet]:
        """All expired rows that inherit, in parts."""
        yield self._of_scope(None).all()
        look = partial(next_scopes, self._binding, self._using, self._index)
        yield from map(self._of_scopes, in_stretches(look))

    def _of_scope(self, scope: Scope | None) -> ExpiredRows:
        """Those of one scope; of no scope for None."""
        if scope is None:
            return self._rows.among(None, StoredAge(self._binding, "table"))
        return self._rows.among(scope.value, scope.seconds)

    def _of_scopes(self, scopes: Sequence[Scope]) -> AnyQuerySet:
        """Those of some scopes, in no order."""
        return self._rows.before(by_cutoff(scopes))

    def _walk(
        self, resume: ScopePlace | None, size: int, inside: Callable[[ExpiredRows, Any], Any]
    ) -> ScopeRange[Any] | None:
        def answer(question: Question) -> Any:
            if isinstance(question, Look):
                return next_scopes(self._binding, self._using, self._index, question.after)
            if isinstance(question, CountIn):
                every = self._rows.every_before(by_cutoff(question.scopes))
                return every[: question.limit].count()
            return inside(self._of_scope(question.scope), question.resume)

        return answered(next_range(size, resume), answer)
