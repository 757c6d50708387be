"""How a sweep goes from one default of a collection to the next: `Walk`.

`SweptSource` is the part of a `DefaultSource` that sweeps ask for a `Walk`.

This module must not know which extensions exist.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol

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
    """The expired documents with one default, in an index that scopes lead.

    It is not one piece of the index, so unlike a `KeyRange` it has no bounds.
    """

    @property
    def index(self) -> Hint:
        """The index."""
        ...

    @property
    def order(self) -> str:
        """The field whose order the documents have in the index."""
        ...

    def after(self, low: object) -> Self:
        """Return the rest of the range, beginning at a `place_of`."""
        ...

    def place_of(self, row: Filter) -> object:
        """Return the place of a document; None for the beginning of this range."""
        ...

    def condition(self) -> Document:
        """Return the filter for the documents in the range."""
        ...

    async def find(
        self,
        place: RawCollection,
        filter: Filter,  # noqa: A002 (MongoDB's name for it)
        **clauses: object,
    ) -> list[RawBSONDocument]:
        """Find documents in the range, in its order."""
        ...

    async def ages(
        self, place: RawCollection, policy: Policy, expired: Filter, now: DatetimeMS
    ) -> list[float]:
        """Return how many seconds the first documents of scopes have been expired."""
        ...


class Walk(Protocol):
    """The way from one default to the next in an index that scopes lead."""

    def ranges(self, policy: TTL, now: DatetimeMS) -> Iterable[tuple[TTL, WalkedRange]]:
        """Return the ranges of all documents that inherit a default, each with its own policy."""
        ...


class SweptSource(DefaultSource):
    """A source of several defaults, through which a sweep goes one by one."""

    @abstractmethod
    async def walk(self, place: RawCollection, index: str) -> Walk:
        """Return the walk through an index that scopes lead, after asking the server about it."""


async def walk_by(place: RawCollection, source: DefaultSource, index: str) -> Walk | None:
    """Return the walk through a collection's defaults by an index; None if its source has none."""
    return await source.walk(place, index) if isinstance(source, SweptSource) else None
