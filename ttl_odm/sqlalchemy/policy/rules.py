"""The seam for tables whose rows expire with rows of another table, by no policy of their own.

A `Rule` stands in ``Table.info`` where other tables have their `Binding`. Each of them leads to a
parent, and in the end to a table with a policy. `Dependents` removes such rows before the rows that
they belong to. Both come with an `Extension` that a model declares: nothing of it is imported, or
asked, before. What a rule makes of statements is in `ttl_odm.sqlalchemy.rewrite.statement_rules`.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from sqlalchemy import Column, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, CursorResult
    from sqlalchemy.engine import Dialect
    from sqlalchemy.orm import Mapper
    from typing_extensions import Self

    from ttl_odm.errors import TTLConfigurationError
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sweeper import BatchRequest, BatchResult, Fact, Part
    from ttl_odm.sweeper.findings import Finding

    Keys = Sequence[Sequence[Any]]
    Execute = Callable[[Any], CursorResult[Any]]
    """Executes a statement with the options of a write."""
    Kept = Callable[[Table], ColumnElement[bool] | None]
    """The condition for rows of a table that must stay for the sake of others."""

Rejected = Literal["lifetime", "change", "upsert", "unread", "sweep"]
"""What rows with a rule can't have, or do.

Their own lifetime; another declaration later on; an upsert that updates them; an end, where they
aren't in the database yet, or in no session; a sweep of their table alone.
"""


@dataclass(frozen=True, slots=True)
class Links:
    """The parent's table, and pairs of a column of the rows and the parent's that it equals.

    The parent has a `Binding` or a `Rule`. Of a joined subclass it is the table at the root.
    """

    parent: Table
    pairs: tuple[tuple[Column[Any], Column[Any]], ...]

    @property
    def own(self) -> list[Column[Any]]:
        """The columns of the rows."""
        return [own for own, _ in self.pairs]

    @property
    def theirs(self) -> list[Column[Any]]:
        """The columns of the parent."""
        return [theirs for _, theirs in self.pairs]


@dataclass(frozen=True, slots=True)
class Rule(ABC):
    """Rows of a table expire with rows of another; it has no columns for that.

    Attributes:
        table: The table.
        owner: The class that declares it.
        links: Finds the parent, which may be declared later; it raises TTLConfigurationError where
            that can't be.
    """

    table: Table
    owner: type
    links: Callable[[], Links]

    def on(self, table: Table) -> Self:
        """The same on another Table object, with the parent that stands beside it."""

        def links() -> Links:
            first = self.links()
            names = (first.parent.name, table.schema)
            others = table.metadata.tables.values()
            beside = next((one for one in others if (one.name, one.schema) == names), first.parent)
            columns = {column.name: column for column in table.c}
            parents = {column.name: column for column in beside.c}
            pairs = ((columns[own.name], parents[theirs.name]) for own, theirs in first.pairs)
            return Links(beside, tuple(pairs))

        return replace(self, table=table, links=cache(links))

    def has_key(self, columns: Iterable[str]) -> bool:
        """Whether these are the names of the columns that lead to the parent."""
        return {str(own.name) for own in self.links().own} == set(columns)

    @abstractmethod
    def meaning(self) -> object:
        """Compare this where several tables have one name: equal rules treat rows alike."""

    @abstractmethod
    def inherited_by(self, mapper: Mapper[Any], cls: type) -> None:
        """Check a subclass; TTLConfigurationError if there can't be such."""

    @abstractmethod
    def rejected(self, what: Rejected, where: str) -> TTLConfigurationError:
        """The error for what rows with this rule can't have, with the fix."""

    @abstractmethod
    def add_index(self) -> None:
        """Give the table the index of its link, unless an index of its own serves.

        Raises:
            TTLConfigurationError: The link is misdeclared.
        """

    @abstractmethod
    def remove(self, connection: Connection, execute: Execute, keys: Keys) -> int:
        """Delete expired rows that are in the way of a write, by primary key; return how many.

        Whatever hangs on them goes before. Rows stay that are live again by then.
        """


class Removed(NamedTuple):
    """The rows that went before others, by table, and whether those were all."""

    rows: Counter[str]
    is_done: bool = True


class Checked(Protocol):
    """A table that ``ttl-odm check`` looks at."""

    @property
    def connection(self) -> Connection:
        """A connection, in a transaction."""
        ...

    @property
    def dialect(self) -> Dialect:
        """Its dialect."""
        ...

    @property
    def binding(self) -> Binding:
        """The policy of the table."""
        ...

    @property
    def model(self) -> str:
        """Its name for ``--model``."""
        ...

    def error(self, code: str, message: str, fix: str) -> Finding:
        """Make a finding of what doesn't work."""
        ...

    def warning(self, code: str, message: str, fix: str) -> Finding:
        """Make a finding of what works badly."""
        ...


class Dependents(Protocol):
    """Removes rows with a rule before the rows that they belong to.

    It is asked only about policies of tables that rules lead to.
    """

    @property
    def part(self) -> Part:
        """The further part of a sweep that is left to it."""
        ...

    def reason(self, binding: Binding) -> str | None:
        """Why the rows of a policy can't go alone; None if they can."""
        ...

    def remove(
        self, connection: Connection, binding: Binding, keys: Keys, limit: int | None
    ) -> Removed:
        """Remove what goes before rows of a policy, by primary key; at most so many rows.

        If that isn't all, the rows of the policy have to stay expired until it is.
        """
        ...

    def is_due(self, connection: Connection, binding: Binding) -> bool:
        """Whether there is something in its part, by a connection fresh from the pool."""
        ...

    def facts(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return what a dry run reports of rows that go along with expired ones, by table."""
        ...

    def purge(
        self, connection: Connection, binding: Binding, request: BatchRequest, kept: Kept
    ) -> BatchResult:
        """Purge a batch of its part, except rows that are kept."""
        ...

    def check(self, checked: Checked) -> Iterator[Finding]:
        """Report what `ttl-odm check` finds on them."""
        ...
