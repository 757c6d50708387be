"""Where a sweep finds the rows of a table: the seams for extensions.

A store has a `Whereabouts` for each table that it sweeps, and asks it for the next rows, for parts
that can be removed as a whole, and for the facts of reports. `Plain` is for a table that holds its
rows itself. An extension has another one for tables that a model lays out in its way, and for
those that PostgreSQL keeps in several tables, even if no model says so. Only for the latter this
module names a package, which isn't imported before there is such a table.

A `Walk` takes a sweep from one default of a table to the next. `SweptSource` is the half of
`DefaultSource` that makes it.

This module must not know which extensions there are, but for that name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from sqlalchemy import String, column, literal, select
from sqlalchemy import cast as sql_cast
from sqlalchemy import table as pg_table
from sqlalchemy.dialects.postgresql import REGCLASS

from ttl_odm.dialects.postgresql import relation
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.sources import DefaultSource
from ttl_odm.sweeper import BatchResult, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Table

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.rules import Checked
    from ttl_odm.sqlalchemy.policy.sources import Seconds
    from ttl_odm.sweeper import BatchRequest, Fact
    from ttl_odm.sweeper.findings import Finding

    Bounds = Callable[[FromClause], list[ColumnElement[bool]]]
    """Conditions for rows of a table, or of an alias of it."""

    Stretch = tuple[Any, Any]
    """The bookmarks where a stretch begins and ends; only their maker understands them."""

    Marks = Callable[[Table, Stretch], Sequence[object]]
    """Finds the marks that divide a stretch of a table."""

_OF_CHILDREN: Final = "ttl_odm.partitions"
"""The extension for tables that PostgreSQL keeps in several, though no model says so."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A stretch of a table with rows to delete.

    Attributes:
        rows: The largest number of rows that it can have. If that is more than a batch may have,
            the stretch can't be divided, and a part of the rows has to be deleted by count.
        bounds: The conditions of the stretch, for the table or an alias of it.
        expired: The predicate in a DELETE, for the table or an alias of it.
        again: Where the stretch begins.
        resume: Where the next one begins; None if this is the last.
        oldest: For how many seconds the first of the rows has been expired, if `find_due` can't
            know.
    """

    rows: int
    bounds: Bounds
    expired: Callable[[FromClause], ColumnElement[bool]]
    again: object
    resume: object
    oldest: float | None = None

    def criteria(self, source: FromClause) -> list[ColumnElement[bool]]:
        """Return the conditions for rows to delete."""
        return [*self.bounds(source), self.expired(source)]

    def with_bounds(self, more: Bounds | None) -> KeyRange:
        """Return the range of the rows that are within further bounds, too."""
        if more is None:
            return self
        bounds = self.bounds
        return replace(self, bounds=lambda source: [*bounds(source), *more(source)])


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


_NOTHING: Final = Further()


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


@dataclass(slots=True)
class Plain(Whereabouts):
    """All rows are in the table, and are deleted one by one."""

    _children: Whereabouts | None = field(init=False, default=None)
    """The whereabouts of a table that PostgreSQL keeps in several, once that is known."""

    def due(self, connection: Connection, *, is_on: bool) -> Further:  # noqa: ARG002 (others do)
        """Return no further work."""
        return _NOTHING

    def purge(self, connection: Connection, request: BatchRequest) -> BatchResult:  # noqa: ARG002
        """Remove nothing: no rows are removed as a whole."""
        return BatchResult(0)

    def next_range(
        self, connection: Connection, request: BatchRequest, find: Find
    ) -> tuple[Table, KeyRange | None]:
        """Find the next rows in the table."""
        table = self.binding.table
        if (
            self._children is None
            and request.resume is None
            and connection.dialect.name == "postgresql"
            and has_children(connection, table)
            and find_spec(_OF_CHILDREN) is not None
        ):
            self._children = _brought(f"{_OF_CHILDREN}.sqlalchemy", self.binding)
        if self._children is not None:
            return self._children.next_range(connection, request, find)
        return table, find(table, (request.resume, request.until))

    def divide(
        self, connection: Connection, request: BatchRequest, shares: int, marks: Marks
    ) -> Sequence[object]:
        """Find the marks in the table."""
        if self._children is not None:
            return self._children.divide(connection, request, shares, marks)
        return marks(self.binding.table, (request.resume, request.until))

    def facts(self, connection: Connection) -> Mapping[str, Fact]:  # noqa: ARG002 (others do)
        """Return no facts."""
        return {}

    def check(self, checked: Checked) -> Iterator[Finding]:  # noqa: ARG002 (others do)
        """Yield no findings."""
        return iter(())


def whereabouts_of(binding: Binding) -> Whereabouts:
    """Return where the rows of a policy's table are, for one store."""
    if binding.layout is None:
        return Plain(binding)
    return _brought(binding.layout.declared.package("sqlalchemy"), binding)


def _brought(package: str, binding: Binding) -> Whereabouts:
    module = import_module(f"{package}.whereabouts")
    return cast("Whereabouts", module.whereabouts(binding))


def has_children(connection: Connection, table: Table) -> bool:
    """Return whether PostgreSQL keeps rows of a table in others, so that a `ctid` isn't unique.

    A table that once had children counts, too.
    """
    catalog = pg_table("pg_class", column("oid"), column("relhassubclass"), schema="pg_catalog")
    has = select(catalog.c.relhassubclass).where(catalog.c.oid == regclass(connection, table))
    return bool(connection.execute(has).scalar_one())


def name_of(connection: Connection, table: Table) -> tuple[str | None, str]:
    """Return a table's schema on this connection, None for the connection's own, and its name."""
    return compat.place_of(connection.get_execution_options(), table)


def qualified_name(connection: Connection, table: Table) -> str:
    """Return the table's name on this connection, quoted, as a value."""
    return relation(*name_of(connection, table))


def regclass(connection: Connection, table: Table) -> ColumnElement[Any]:
    """Return the table's name as a `regclass`, for PostgreSQL's functions."""
    return sql_cast(literal(qualified_name(connection, table), String()), REGCLASS())


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

    def end(self, source: FromClause) -> ColumnElement[Any]:
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
    def age_in(self, scope: ColumnElement[Any] | None, collation: str | None) -> ColumnElement[Any]:
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


def walk_of(connection: Connection, binding: Binding) -> Walk | None:
    """Return the walk through the defaults of a table; None if there is none."""
    source = binding.source
    return source.walk(connection) if isinstance(source, SweptSource) else None
