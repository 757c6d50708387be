"""What a rule changes in statements: `StatementRule`, the half of `Rule` that the gate asks.

This module must not know which extensions exist.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ttl_odm.sqlalchemy.policy.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import ColumnElement, FromClause, Insert, Table, Update
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext

    from ttl_odm.sqlalchemy.compat import Resolved
    from ttl_odm.sqlalchemy.rewrite.writes import Target

    SQL = ColumnElement[Any]

Asked = Literal["live", "expired", "expires_at"]
"""The public functions that tell when a row expires."""


class Preparation(Protocol):
    """Something to do before a statement."""

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Do it, and return how many expired rows were in the way and have been deleted.

        `current` (see `KeyReclaimer`): the statement has failed on a row that its transaction
        doesn't see, and this is the second try.
        """
        ...


class Rows(Protocol):
    """The conditions for live rows in a statement: `LiveRows`."""

    @property
    def laterally(self) -> bool:
        """Whether a subquery in a FROM clause may depend on a row of the query around it."""
        ...

    def alone(self, source: FromClause) -> ColumnElement[bool] | None:
        """Return the condition for a table or an alias by itself."""
        ...

    def exists(
        self,
        source: FromClause,
        other: FromClause,
        keys: Sequence[tuple[SQL, SQL]],
        live: ColumnElement[bool] | None = None,
    ) -> ColumnElement[bool]:
        """Return the condition that another table has a live row with the keys of this one."""
        ...


class Joins(Protocol):
    """The columns by which a FROM clause joins rows: `JoinKeys`."""

    def lead_to(self, table: Table, keys: Iterable[tuple[SQL, SQL]]) -> bool:
        """Return whether every row with these keys comes with its row of a table, by its keys."""
        ...


class StatementRule(Rule):
    """A rule, as statements meet it."""

    __slots__ = ()

    @abstractmethod
    def live(
        self, rows: Rows, source: FromClause, joins: Joins | None
    ) -> ColumnElement[bool] | None:
        """Return the condition for a FROM element; None if a joined element has it."""

    @abstractmethod
    def expression(self, asked: Asked, source: FromClause) -> ColumnElement[Any]:
        """Return the result of one of the public functions for a FROM element."""

    @abstractmethod
    def insert(
        self, statement: Insert, rows: Rows, dialect: Dialect
    ) -> tuple[Insert, Preparation | None]:
        """Return an INSERT that adds no expired row, and what happens before it."""

    @abstractmethod
    def update(
        self, statement: Update, target: Target, rows: Rows, dialect: Dialect
    ) -> tuple[Update, Preparation | None]:
        """Return an UPDATE that lets no row expire by its parent, and what happens before it."""

    @abstractmethod
    def delete(self, target: Target) -> Preparation | None:
        """Return what has to happen before a DELETE."""

    @abstractmethod
    def matched(
        self, criteria: list[ColumnElement[bool]], statement: Resolved, dialect: Dialect
    ) -> tuple[list[ColumnElement[bool]], Preparation | None]:
        """Return the conditions for the rows that an UPDATE or DELETE matches, including `live`."""
