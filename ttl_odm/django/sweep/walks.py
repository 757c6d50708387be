"""How a sweep goes from one default of a table to the next: `Walk`.

`SweptSource` is the half of `DefaultSource` that sweeps ask for it.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ttl_odm.django.policy.sources import DefaultSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.django.policy.bindings import AnyQuerySet, Binding


class Keys(NamedTuple):
    """Rows of one batch, by their primary keys, where the next batch begins, and this one."""

    keys: list[Any]
    resume: Any
    again: Any


class Range(Protocol):
    """The rows of the next batch, by their order alone."""

    @property
    def resume(self) -> Any:
        """Where the one after it begins; None when this is the last."""
        ...

    @property
    def is_crowded(self) -> bool:
        """Whether it has more rows, which nothing but their keys tells apart."""
        ...


class Walk(Protocol):
    """How a sweep goes from one default to the next, by an index with the rows of each together.

    It finds batches of the rows that inherit as `ExpiredRows` does.
    """

    def overdue(self) -> float | None:
        """For how many seconds the first row has been expired; None if there are none."""
        ...

    def next_range(self, resume: Any, size: int) -> Range | None:
        """The rows of the next batch, by their order alone; None if there are none."""
        ...

    def within(self, key_range: Any, /) -> AnyQuerySet:
        """The rows of a range."""
        ...

    def keys(self, resume: Any, size: int) -> Keys | None:
        """The keys of the next so many rows; None if there are none."""
        ...

    def stretches(self) -> Iterator[AnyQuerySet]:
        """All expired rows, in parts."""
        ...


class SweptSource(DefaultSource):
    """A source of defaults that a sweep may have a way to, from one to the next."""

    @abstractmethod
    def walk(self, using: str) -> Walk | None:
        """That way; None where no index leads there."""


def walk_of(binding: Binding, using: str) -> Walk | None:
    """How a sweep goes through the defaults of a table; None where it doesn't."""
    source = binding.source
    return source.walk(using) if isinstance(source, SweptSource) else None
