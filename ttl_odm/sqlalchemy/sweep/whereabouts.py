"""Where a sweep finds the rows of a table: the seams for extensions.

A store has a `Whereabouts` for each table that it sweeps, and asks it for the next rows, for parts
that can be removed as a whole, and for the facts of reports. An extension has one for tables that a
model lays out in its way, and for those that PostgreSQL keeps in several tables, even if no model
says so. `store` has the one for all other tables.

A `Walk` takes a sweep from one default of a table to the next. `SweptSource` is the half of
`DefaultSource` that makes it.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ttl_odm.sqlalchemy.policy.sources import DefaultSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Table

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.rules import Checked
    from ttl_odm.sqlalchemy.policy.sources import Seconds
    from ttl_odm.sqlalchemy.purge.removal import Bounds, KeyRange
    from ttl_odm.sweeper import BatchRequest, BatchResult, Fact, Part
    from ttl_odm.sweeper.findings import Finding

    Stretch = tuple[Any, Any]
    """The bookmarks where a stretch begins and ends; only their maker understands them."""

    Marks = Callable[[Table, Stretch], Sequence[object]]
    """Finds the marks that divide a stretch of a table."""


class Find(Protocol):
    """Finds the next rows to delete."""

    def __call__(
        self, source: Table, stretch: Stretch, bounds: Bounds | None = None, /
    ) -> KeyRange | None:
        """Find them in a stretch of a table, within further bounds."""
        ...


class Further(NamedTuple):
    """The work in a table besides deleting rows.

    Attributes:
        parts: The parts of a sweep that come first.
        facts: Facts for reports.
        overdue: The condition for rows that aren't kept until a partition is dropped; empty if none
            is kept.
    """

    parts: tuple[Part, ...] = ()
    facts: Mapping[str, Fact] = {}
    overdue: Sequence[ColumnElement[bool]] = ()


@dataclass(slots=True)
class Whereabouts(ABC):
    """Where the rows of a table are, and which are removed as a whole, for one store."""

    binding: Binding

    @abstractmethod
    def due(self, connection: Connection, *, is_on: bool) -> Further:
        """Find further work by a connection fresh from the pool; `is_on`: whether rows expire."""

    @abstractmethod
    def purge(self, connection: Connection, request: BatchRequest) -> BatchResult:
        """Do a step of a part that removes rows as a whole, by a connection fresh from the pool."""

    @abstractmethod
    def next_range(
        self, connection: Connection, request: BatchRequest, find: Find
    ) -> tuple[Table, KeyRange | None]:
        """Find the next rows and the table that has them, in a transaction."""

    @abstractmethod
    def divide(
        self, connection: Connection, request: BatchRequest, shares: int, marks: Marks
    ) -> Sequence[object]:
        """Find the marks between the stretches of several workers, in a transaction."""

    @abstractmethod
    def facts(self, connection: Connection) -> Mapping[str, Fact]:
        """Return the facts for reports about rows removed as a whole, in a transaction."""

    @abstractmethod
    def check(self, checked: Checked) -> Iterator[Finding]:
        """Yield the findings of ``ttl-odm check`` on the table."""


class EndIndex(Protocol):
    """The index over the rows that inherit; see `PartIndex`."""

    @property
    def binding(self) -> Binding:
        """The policy of the rows."""
        ...

    @property
    def source(self) -> Table:
        """The table that has the rows."""
        ...

    def holds(self, source: FromClause) -> ColumnElement[bool]:
        """Return the condition of the partial index."""
        ...

    def end(self, source: FromClause) -> ColumnElement[object]:
        """Return the key that orders the rows of a scope."""
        ...


class Ranges(Protocol):
    """The rows that inherit, in a table or in a child of it."""

    def next_range(self, connection: Connection, size: int, resume: object) -> KeyRange | None:
        """Find the range of the next batch, by reading only; None when nothing is left."""
        ...

    def stretches(self, connection: Connection) -> Iterator[list[ColumnElement[bool]]]:
        """Yield the conditions for all expired rows, in parts."""
        ...


class Walk(Protocol):
    """A sweep's way from one default to the next, by an index that groups their rows."""

    def life_beside(self) -> tuple[Seconds, list[ColumnElement[bool]]]:
        """Return the age at which the rows outside the walk expire, and their conditions."""
        ...

    def overdue(self, connection: Connection, index: EndIndex) -> float | None:
        """Return for how many seconds the first row of the walk has been expired; None if none."""
        ...

    def ranges(self, source: Table, bounds: Bounds | None = None) -> Ranges:
        """Return the ranges of the rows that inherit, in a table or a child, within bounds."""
        ...


class SweptSource(DefaultSource):
    """A source of several defaults, among which a sweep may walk."""

    @abstractmethod
    def walk(self, connection: Connection) -> Walk | None:
        """Return the walk, by a connection fresh from the pool; None if no index serves it."""

    @abstractmethod
    def age_in(
        self, scope: ColumnElement[object] | None, collation: str | None
    ) -> ColumnElement[object]:
        """Return the expression that looks up the age of a scope, or of rows without one.

        It is in seconds. Scopes that are equal under a collation share the shortest age.
        """

    @abstractmethod
    def first_ends(
        self, index: EndIndex, dialect: str, collation: str | None, most: int
    ) -> FromClause:
        """Return a subquery of the first scopes in an index, with the first entry of each.

        Its columns are `scope`, `age` (in seconds) and `began`.
        """
