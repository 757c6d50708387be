"""`Walk`: how a sweep goes from one default of a table to the next.

`SweptSource` is the half of `DefaultSource` that provides it.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ttl_odm.django.policy.sources import DefaultSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.django.policy.options import AnyQuerySet


class Keys(NamedTuple):
    """The rows of a batch, by their primary keys.

    Attributes:
        keys: The primary keys.
        resume: Where the next batch begins; None when this is the last.
        again: Where this batch begins.
    """

    keys: list[object]
    resume: object
    again: object


class Range(Protocol):
    """The rows of the next batch, by their order alone."""

    @property
    def resume(self) -> object:
        """Where the next range begins; None when this is the last."""
        ...

    @property
    def is_crowded(self) -> bool:
        """Whether more rows than a batch have the same place, so only keys distinguish them."""
        ...


class Walk(Protocol):
    """How a sweep goes from one default to the next, by an index that groups rows by default.

    It finds batches of inheriting rows, as `ExpiredRows` does.
    """

    def overdue(self) -> float | None:
        """Return for how many seconds the first row has been expired; None if there are none."""
        ...

    def next_range(self, resume: object, size: int) -> Range | None:
        """Return the range of the next batch, by order alone; None if there are no rows."""
        ...

    def within(self, key_range: Any, /) -> AnyQuerySet:
        """Return the rows of a range."""
        ...

    def keys(self, resume: object, size: int) -> Keys | None:
        """Return the keys of the next rows, `size` of them; None if there are none."""
        ...

    def stretches(self) -> Iterator[AnyQuerySet]:
        """Yield all expired rows, in several querysets."""
        ...


class SweptSource(DefaultSource):
    """A source of defaults that may offer sweeps a `Walk`."""

    @abstractmethod
    def walk(self, using: str) -> Walk | None:
        """Return the walk; None if no index supports it."""


def walk_of(binding: Binding, using: str) -> Walk | None:
    """Return how a sweep goes through the defaults of a table; None if it doesn't."""
    source = binding.source
    return source.walk(using) if isinstance(source, SweptSource) else None
