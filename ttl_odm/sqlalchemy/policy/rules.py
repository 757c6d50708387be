"""The seam for tables without a policy, whose rows expire with rows of another table.

A `Rule` is in ``Table.info`` where other tables have their `Binding`. It leads to a parent, and in
the end to a table with a policy. `Dependents` removes such rows before the rows that they belong
to. Both come with an `Extension` that a model declares, and are neither imported nor called before.
`ttl_odm.sqlalchemy.policy.references` finds the rules of a table; how a rule changes statements is
in `ttl_odm.sqlalchemy.rewrite.statement_rules`.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, CursorResult, Table
    from sqlalchemy.engine import Dialect
    from sqlalchemy.orm import Mapper
    from typing_extensions import Self

    from ttl_odm.errors import TTLConfigurationError
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sweeper import BatchRequest, BatchResult, Fact, Part
    from ttl_odm.sweeper.findings import Finding

    Keys = Sequence[Sequence[object]]
    Execute = Callable[[Any], CursorResult[Any]]
    """Executes a statement with the options of a write."""
    Kept = Callable[[Table], ColumnElement[bool] | None]
    """The condition for rows of a table that must stay because others need them."""

Rejected = Literal["lifetime", "change", "upsert", "unread", "sweep"]
"""What rows with a rule can't have, or do.

Their own lifetime; another declaration later on; an upsert that updates them; an end of life, while
they aren't in the database yet, or in no session; a sweep of their table alone.
"""


@dataclass(frozen=True, slots=True)
class Links:
    """The parent's table, and each column of the rows with the parent's column that it equals.

    The parent has a `Binding` or a `Rule`. For a joined subclass it is the table of the base.
    """

    parent: Table
    pairs: tuple[tuple[Column[object], Column[object]], ...]

    @property
    def own(self) -> list[Column[object]]:
        """The columns of the rows."""
        return [own for own, _ in self.pairs]

    @property
    def theirs(self) -> list[Column[object]]:
        """The columns of the parent."""
        return [theirs for _, theirs in self.pairs]


@dataclass(frozen=True, slots=True)
class Rule(ABC):
    """Rows of a table expire with rows of another; the table has no columns of a policy.

    Attributes:
        table: The table.
        owner: The class that declares the rule.
        links: Finds the parent, which may be declared later; raises TTLConfigurationError if it
            can't be the parent.
    """

    table: Table
    owner: type
    links: Callable[[], Links]

    def on(self, table: Table) -> Self:
        """Return the same rule for another Table object, with the parent in its MetaData."""

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
        """Return whether these are the names of the columns that lead to the parent."""
        return {str(own.name) for own in self.links().own} == set(columns)

    @abstractmethod
    def meaning(self) -> object:
        """Return a value that is equal for rules that treat rows alike, to compare namesakes."""

    @abstractmethod
    def inherited_by(self, mapper: Mapper[Any], cls: type) -> None:
        """Check a subclass; raise TTLConfigurationError if the class can't have it."""

    @abstractmethod
    def rejected(self, what: Rejected, where: str) -> TTLConfigurationError:
        """Return the error for what rows with this rule can't have, with the fix."""

    @abstractmethod
    def add_index(self) -> None:
        """Add the index of the link to the table, unless it has one that serves.

        Raises:
            TTLConfigurationError: The link is misdeclared.
        """

    @abstractmethod
    def remove(self, connection: Connection, execute: Execute, keys: Keys) -> int:
        """Delete expired rows that block a write, by primary key; return how many.

        Rows that depend on them are deleted first. Rows that are live again are skipped.
        """


class Removed(NamedTuple):
    """How many rows were removed before others, by table, and whether those were all."""

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
        """The dialect of the connection."""
        ...

    @property
    def binding(self) -> Binding:
        """The policy of the table."""
        ...

    @property
    def model(self) -> str:
        """The model's name for ``--model``."""
        ...

    def error(self, code: str, message: str, fix: str) -> Finding:
        """Return a finding about something that doesn't work."""
        ...

    def warning(self, code: str, message: str, fix: str) -> Finding:
        """Return a finding about something that works badly."""
        ...


class Dependents(Protocol):
    """Removes rows with a rule before the rows that they belong to.

    It is called only for policies of tables to which rules lead.
    """

    @property
    def part(self) -> Part:
        """The further part of a sweep that it purges."""
        ...

    def reason(self, binding: Binding) -> str | None:
        """Return why the rows of a policy can't be deleted by themselves; None if they can."""
        ...

    def remove(
        self, connection: Connection, binding: Binding, keys: Keys, limit: int | None
    ) -> Removed:
        """Remove the dependents of rows of a policy, by primary key; at most `limit` rows.

        If some remain, the rows of the policy have to stay, expired, until none does.
        """
        ...

    def is_due(self, connection: Connection, binding: Binding) -> bool:
        """Return whether its part has work, by a connection fresh from the pool."""
        ...

    def facts(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return a dry run's facts about the dependents of expired rows, counted by table."""
        ...

    def purge(
        self, connection: Connection, binding: Binding, request: BatchRequest, kept: Kept
    ) -> BatchResult:
        """Purge a batch of its part, except the rows of the condition `kept`."""
        ...

    def check(self, checked: Checked) -> Iterator[Finding]:
        """Yield the findings of `ttl-odm check` on them."""
        ...
