"""How a sweep goes from one default of a table to the next: `Walk`.

`SweptSource` is the half of `DefaultSource` that sweeps ask for it.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from ttl_odm.sqlalchemy.policy.sources import DefaultSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Connection, FromClause, Table

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import Seconds
    from ttl_odm.sqlalchemy.sweep.whereabouts import Bounds, KeyRange

    Condition = ColumnElement[bool]


class EndIndex(Protocol):
    """The index over the rows that inherit; see `PartIndex`."""

    @property
    def binding(self) -> Binding:
        """The policy of the rows."""
        ...

    @property
    def source(self) -> Table:
        """Where they are."""
        ...

    def holds(self, source: FromClause) -> Condition:
        """The condition of the partial index."""
        ...

    def end(self, source: FromClause) -> ColumnElement[Any]:
        """What orders the rows of a scope."""
        ...


class Ranges(Protocol):
    """The rows that inherit, in a table or in a child of it."""

    def next_range(self, connection: Connection, size: int, resume: object) -> KeyRange | None:
        """Find the range of the next batch, by reading only; None when nothing is left."""
        ...

    def stretches(self, connection: Connection) -> Iterator[list[Condition]]:
        """The conditions for all rows that have expired, in parts."""
        ...


class Walk(Protocol):
    """How a sweep goes from one default to the next, by an index with the rows of each together."""

    def life_beside(self) -> tuple[Seconds, list[Condition]]:
        """The age at which the rows expire that the walk leaves out, and their condition."""
        ...

    def overdue(self, connection: Connection, index: EndIndex) -> float | None:
        """For how many seconds the first row that it leads to has been expired; None for none."""
        ...

    def ranges(self, source: Table, bounds: Bounds | None = None) -> Ranges:
        """The ranges of all rows that inherit, in a table or a child of it, and in such bounds."""
        ...


class SweptSource(DefaultSource):
    """A source of defaults that a sweep may have a way to, from one to the next."""

    @abstractmethod
    def walk(self, connection: Connection) -> Walk | None:
        """That way, by a connection fresh from the pool; None where no index leads there."""

    @abstractmethod
    def age_in(self, scope: ColumnElement[Any] | None, collation: str | None) -> ColumnElement[Any]:
        """What looks up the age in seconds at which the rows of a scope, or of none, expire.

        Under a collation several scopes are the same; then it is the shortest of these.
        """

    @abstractmethod
    def first_ends(
        self, index: EndIndex, dialect: str, collation: str | None, most: int
    ) -> FromClause:
        """What selects the first scopes by an index, with the first entry of each.

        Its columns are `scope`, `age` (in seconds) and `began`.
        """


def walk_of(connection: Connection, binding: Binding) -> Walk | None:
    """How a sweep goes through the defaults of a table; None where it doesn't."""
    source = binding.source
    return source.walk(connection) if isinstance(source, SweptSource) else None
