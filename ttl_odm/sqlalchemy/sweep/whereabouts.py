"""Where a sweep finds the rows of a table: the seam for extensions that answer it otherwise.

`Whereabouts` is for tables whose rows aren't all in one place, or can be removed as a whole. A
store has one for each table that it sweeps, and asks it for the next rows, for what can be removed
as a whole, and for what reports say of it. `Plain` is that of a table of its own. An extension has
another, for tables that a model lays out in its way, and for those that PostgreSQL keeps in several
tables, whoever made them. Only for the latter this module has the name of a package, which isn't
imported before there is such a table.

`Walk` is for tables with several defaults: how a sweep goes from one default to the next.
`SweptSource` is the half of `DefaultSource` that sweeps ask for it.

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
    """Where to go on, and where to end: values that only those who gave them understand."""

    Marks = Callable[[Table, Stretch], Sequence[object]]
    """Finds marks that divide a stretch of a table."""

_OF_CHILDREN: Final = "ttl_odm.partitions"
"""The extension for tables that PostgreSQL keeps in several, though no model says so."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A stretch of a table with rows to delete.

    There are so many `rows` at most: more than a batch may have when the stretch can't be cut
    smaller; then they are to be deleted by count. `bounds` and `expired` (the predicate, in a
    DELETE) are for the table or an alias of it. The stretch begins at `again`, and the next one at
    `resume`; None when this is the last. `oldest` is for how many seconds the first of the rows has
    been expired, where `find_due` can't know.
    """

    rows: int
    bounds: Bounds
    expired: Callable[[FromClause], ColumnElement[bool]]
    again: object
    resume: object
    oldest: float | None = None

    def criteria(self, source: FromClause) -> list[ColumnElement[bool]]:
        """What makes a row one to delete: both of these."""
        return [*self.bounds(source), self.expired(source)]

    def with_bounds(self, more: Bounds | None) -> KeyRange:
        """The same rows but those that are out of further bounds."""
        if more is None:
            return self
        bounds = self.bounds
        return replace(self, bounds=lambda source: [*bounds(source), *more(source)])


class Find(Protocol):
    """Finds the next rows to delete."""

    def __call__(
        self, source: Table, stretch: Stretch, bounds: Bounds | None = None, /
    ) -> KeyRange | None:
        """Look in a stretch of a table, among the rows that further bounds leave."""
        ...


class Further(NamedTuple):
    """What there is to do in a table besides deleting rows.

    Attributes:
        parts: The parts of a sweep that come first.
        facts: What reports say of it.
        overdue: The condition for rows of which none waits to go whole; empty where none does.
    """

    parts: tuple[Part, ...] = ()
    facts: Mapping[str, Fact] = {}
    overdue: Sequence[ColumnElement[bool]] = ()


_NOTHING: Final = Further()


@dataclass(slots=True)
class Whereabouts(ABC):
    """Where the rows of a table are, and what of them goes whole; as one store knows it."""

    binding: Binding

    @abstractmethod
    def due(self, connection: Connection, *, is_on: bool) -> Further:
        """Look for work, by a connection fresh from the pool; rows expire if the TTL is on."""

    @abstractmethod
    def purge(self, connection: Connection, request: BatchRequest) -> BatchResult:
        """Do one step of a part that takes something whole, by a connection fresh from the pool."""

    @abstractmethod
    def next_range(
        self, connection: Connection, request: BatchRequest, find: Find
    ) -> tuple[Table, KeyRange | None]:
        """Find the next rows and the table that they are in; in a transaction."""

    @abstractmethod
    def divide(
        self, connection: Connection, request: BatchRequest, shares: int, marks: Marks
    ) -> Sequence[object]:
        """Find the marks between the stretches of several workers; in a transaction."""

    @abstractmethod
    def facts(self, connection: Connection) -> Mapping[str, Fact]:
        """What reports say of what goes whole; in a transaction."""

    @abstractmethod
    def check(self, checked: Checked) -> Iterator[Finding]:
        """Report what ``ttl-odm check`` finds on it."""


@dataclass(slots=True)
class Plain(Whereabouts):
    """All rows are in the table, and are deleted one by one."""

    _children: Whereabouts | None = field(init=False, default=None)
    """Of the tables that PostgreSQL has the rows in, once they were met."""

    def due(self, connection: Connection, *, is_on: bool) -> Further:  # noqa: ARG002 (others do)
        """Nothing."""
        return _NOTHING

    def purge(self, connection: Connection, request: BatchRequest) -> BatchResult:  # noqa: ARG002
        """Nothing goes whole."""
        return BatchResult(0)

    def next_range(
        self, connection: Connection, request: BatchRequest, find: Find
    ) -> tuple[Table, KeyRange | None]:
        """Find them in the table."""
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
        """Find them in the table."""
        if self._children is not None:
            return self._children.divide(connection, request, shares, marks)
        return marks(self.binding.table, (request.resume, request.until))

    def facts(self, connection: Connection) -> Mapping[str, Fact]:  # noqa: ARG002 (others do)
        """None."""
        return {}

    def check(self, checked: Checked) -> Iterator[Finding]:  # noqa: ARG002 (others do)
        """Nothing can be wrong."""
        return iter(())


def whereabouts_of(binding: Binding) -> Whereabouts:
    """Where the rows of a policy's table are, for one store."""
    if binding.layout is None:
        return Plain(binding)
    return _brought(binding.layout.declared.package("sqlalchemy"), binding)


def _brought(package: str, binding: Binding) -> Whereabouts:
    module = import_module(f"{package}.whereabouts")
    return cast("Whereabouts", module.whereabouts(binding))


def has_children(connection: Connection, table: Table) -> bool:
    """Whether PostgreSQL has rows of a table in others: a `ctid` is that of several rows.

    A table that once had such counts, too.
    """
    catalog = pg_table("pg_class", column("oid"), column("relhassubclass"), schema="pg_catalog")
    has = select(catalog.c.relhassubclass).where(catalog.c.oid == regclass(connection, table))
    return bool(connection.execute(has).scalar_one())


def name_of(connection: Connection, table: Table) -> tuple[str | None, str]:
    """Where a table is on this connection: its schema, None for the connection's own, and name."""
    return compat.place_of(connection.get_execution_options(), table)


def qualified_name(connection: Connection, table: Table) -> str:
    """The table's name on this connection, quoted, as a value."""
    return relation(*name_of(connection, table))


def regclass(connection: Connection, table: Table) -> ColumnElement[Any]:
    """The table's name as the database's own functions take it."""
    return sql_cast(literal(qualified_name(connection, table), String()), REGCLASS())


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

    def holds(self, source: FromClause) -> ColumnElement[bool]:
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

    def stretches(self, connection: Connection) -> Iterator[list[ColumnElement[bool]]]:
        """The conditions for all rows that have expired, in parts."""
        ...


class Walk(Protocol):
    """How a sweep goes from one default to the next, by an index with the rows of each together."""

    def life_beside(self) -> tuple[Seconds, list[ColumnElement[bool]]]:
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
