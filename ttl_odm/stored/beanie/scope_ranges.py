"""The way of a sweep from scope to scope, by an index that the scope leads.

All scopes with the same default form one range, up to the instant at which their documents end. All
scopes without a default of their own form another.

This module must not know which documents are deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ttl_odm.beanie.policy.commands import is_multikey
from ttl_odm.beanie.policy.predicate import value_at
from ttl_odm.beanie.policy.ttl_indexes import inheriting_branches
from ttl_odm.beanie.sweep.due import age_of, reached
from ttl_odm.core.values import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bson import DatetimeMS
    from bson.raw_bson import RawBSONDocument

    from ttl_odm.beanie.drivers import Document, Filter
    from ttl_odm.beanie.policy.commands import Hint, RawCollection
    from ttl_odm.core.policy import TTL, Policy

_MOST_FINDS: Final = 50
"""Finds for the oldest document of many scopes; a hundred scopes take about five."""


@dataclass(frozen=True, slots=True)
class ScopedRange:
    """The documents of some scopes, before a date, in an index that the scope leads.

    The server goes from one scope to the next, and reads the documents of each before that date. It
    does so by conditions, not by the bounds of a `KeyRange`, which are one piece of the index. The
    server needs a proof that the partial index holds every match of a branch, so each branch has
    all conditions.

    Attributes:
        index: The index.
        field: The date's field.
        high: The end of the range, outside of it.
        order: The scope's field.
        scopes: The filter for the scopes, with a condition on that field.
        branches: Filters that together match the documents in the index.
        low: The scope to begin with; None for the first one.
        is_ordered: Whether the server can begin at a scope, and returns scopes in order; it can't
            if an array is in the index.
    """

    index: Hint
    field: str
    high: object
    order: str
    scopes: Filter
    branches: tuple[Filter, ...]
    low: object = None
    is_ordered: bool = True

    def after(self, low: object) -> ScopedRange:
        """Return the rest of the range, from a scope on."""
        return replace(self, low=low)

    def place_of(self, row: Filter) -> object:
        """Return the scope to go on with after a document; None for its first scope."""
        scope = value_at(row, self.order)
        # A field that is missing comes before null, and NaN is not equal to itself.
        is_place = self.is_ordered and scope is not None and scope == scope  # noqa: PLR0124
        return scope if is_place else None

    def condition(self, *conditions: Filter) -> Document:
        """Return the filter for the documents of the range that meet more conditions."""
        within = [self.scopes, {self.field: {"$lt": self.high}}, *conditions]
        if self.low is not None:
            # A plain condition compares only values of the same type.
            within.append({"$expr": {"$gte": [f"${self.order}", {"$literal": self.low}]}})
        return {"$or": [{"$and": [branch, *within]} for branch in self.branches]}

    async def find(
        self,
        place: RawCollection,
        filter: Filter,  # noqa: A002 (MongoDB's name for it)
        **clauses: object,
    ) -> list[RawBSONDocument]:
        """Find documents in the range, from scope to scope."""
        if self.is_ordered:
            clauses["sort"] = {self.order: 1, self.field: 1}
        return await place.find(self.condition(filter), **clauses, hint=self.index)

    async def ages(
        self, place: RawCollection, policy: Policy, expired: Filter, now: DatetimeMS
    ) -> list[float]:
        """Return for how many seconds the first documents of scopes have been expired.

        A scope's first document is its oldest. So each find asks for an older document of a later
        scope, and few finds cover all scopes. If every scope has an older document than the scope
        before it there would be many finds; after fifty of them the last age has to do.
        """
        ages: list[float] = []
        reach = self
        while len(ages) < _MOST_FINDS:
            first = await reach.find(place, expired, limit=1)
            if not first:
                break
            ages.append(age_of(policy, first[0], now))
            low, high = reach.place_of(first[0]), first[0][reach.field]
            reach = replace(reach, low=reach.low if low is None else low, high=high)
        return ages


@dataclass(frozen=True, slots=True)
class ScopeWalk:
    """The way through an index that the scope leads.

    Attributes:
        index: The name of the index.
        has_arrays: Whether a document is, or was, in it more than once.
    """

    index: str
    has_arrays: bool

    def ranges(self, policy: TTL, now: DatetimeMS) -> Iterator[tuple[TTL, ScopedRange]]:
        """Yield a range for the scopes without a default of their own, and one for each default."""
        by = policy.by
        assert by is not None  # noqa: S101 (or no scope leads the index)
        scopes: dict[int | None, list[object]] = {}
        for scope, seconds in policy.defaults.items():
            scopes.setdefault(seconds, []).append(scope)
        # An array is none of the scopes in it, but the index holds it under each of them.
        is_array = {"$isArray": [f"${by}"]}
        single = {"$expr": {"$not": [is_array]}}
        ranges: list[tuple[int | None, Filter, Filter]] = [
            (policy.default, {"$nin": [*policy.defaults]}, single),
            *((seconds, {"$in": same}, single) for seconds, same in scopes.items()),
        ]
        if self.has_arrays:
            ranges.append((policy.default, {"$nin": []}, {"$expr": is_array}))
        field, branches = policy.last_modified, tuple(inheriting_branches(policy))
        for seconds, condition, kind in ranges:
            if seconds is not None and seconds != NEVER:
                which = {by: condition, **kind}
                reach = (self.index, field, reached(now, seconds), by, which, branches)
                own = policy.with_default(seconds)
                yield own, ScopedRange(*reach, is_ordered=not self.has_arrays)


async def scope_walk(place: RawCollection, index: str) -> ScopeWalk:
    """Return the way through an index, after reading what the server knows about that."""
    return ScopeWalk(index, await is_multikey(place, index))
