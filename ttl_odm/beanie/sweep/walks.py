"""How a sweep goes from one default of a collection to the next: `Walk`.

`SweptSource` is the half of `DefaultSource` that sweeps ask for it.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from ttl_odm.beanie.policy.sources import DefaultSource

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bson import DatetimeMS
    from bson.raw_bson import RawBSONDocument
    from typing_extensions import Self

    from ttl_odm.beanie.drivers import Document, Filter
    from ttl_odm.beanie.policy.commands import Hint, RawCollection
    from ttl_odm.core.policy import TTL, Policy


class WalkedRange(Protocol):
    """The documents that have one default, up to their end, in an index that scopes lead.

    It has no bounds, as a `KeyRange` has: it isn't one piece of the index.
    """

    @property
    def index(self) -> Hint:
        """The index."""
        ...

    @property
    def order(self) -> str:
        """The field that the index has them in the order of."""
        ...

    def after(self, low: Any) -> Self:
        """Return the rest of it, from a `place_of`."""
        ...

    def place_of(self, row: Filter) -> Any:
        """Return where to go on behind a document; None for where this begins."""
        ...

    def condition(self) -> Document:
        """Return the filter for what is in it."""
        ...

    async def find(
        self,
        place: RawCollection,
        filter: Filter,  # noqa: A002 (MongoDB's name for it)
        **clauses: Any,
    ) -> list[RawBSONDocument]:
        """Find documents in it, in its order."""
        ...

    async def ages(
        self, place: RawCollection, policy: Policy, expired: Filter, now: DatetimeMS
    ) -> list[float]:
        """Return for how many seconds the first documents of scopes have been expired."""
        ...


class Walk(Protocol):
    """How a sweep goes from one default to the next, by an index that scopes lead."""

    def ranges(self, policy: TTL, now: DatetimeMS) -> Iterable[tuple[TTL, WalkedRange]]:
        """Return the ranges of all documents that inherit, each with the policy of its own."""
        ...


class SweptSource(DefaultSource):
    """A source of defaults that a sweep has a way to, from one to the next."""

    @abstractmethod
    async def walk(self, place: RawCollection, index: str) -> Walk:
        """Return that way, by an index that scopes lead, after a look at it."""


async def walk_by(place: RawCollection, source: DefaultSource, index: str) -> Walk | None:
    """How a sweep goes through the defaults of a collection by an index; None where it doesn't."""
    return await source.walk(place, index) if isinstance(source, SweptSource) else None
