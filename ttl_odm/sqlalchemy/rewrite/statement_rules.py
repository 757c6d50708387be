"""What a rule makes of statements: `StatementRule`, the half of `Rule` that the gate asks.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ttl_odm.sqlalchemy.policy.rules import Rule, rule_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import ColumnElement, FromClause, Insert, Table, Update
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext

    from ttl_odm.sqlalchemy.compat import Resolved
    from ttl_odm.sqlalchemy.rewrite.writes import Target

    SQL = ColumnElement[Any]

Asked = Literal["live", "expired", "expires_at"]
"""The public functions that say of a row when it expires."""


class Preparation(Protocol):
    """Something to do before a statement."""

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Do it, and return how many expired rows were in the way and are gone.

        `current` (see `KeyReclaimer`): the statement has failed on a row that its transaction
        doesn't see, and this is the second try.
        """
        ...


class Rows(Protocol):
    """The conditions for live rows in a statement: `LiveRows`."""

    @property
    def laterally(self) -> bool:
        """Whether a subquery in a FROM clause may be about a row of the query around it."""
        ...

    def alone(self, source: FromClause) -> ColumnElement[bool] | None:
        """The condition for a table or an alias by itself."""
        ...

    def exists(
        self,
        source: FromClause,
        other: FromClause,
        keys: Sequence[tuple[SQL, SQL]],
        live: ColumnElement[bool] | None = None,
    ) -> ColumnElement[bool]:
        """That another table has a row with the keys of this one, and that it is live."""
        ...


class Joins(Protocol):
    """What is joined to what in a FROM clause: `JoinKeys`."""

    def lead_to(self, table: Table, keys: Iterable[tuple[SQL, SQL]]) -> bool:
        """Whether each row with these keys brings along its row of a table, by the keys there."""
        ...


class StatementRule(Rule):
    """A rule, as statements meet it."""

    __slots__ = ()

    @abstractmethod
    def live(
        self, rows: Rows, source: FromClause, joins: Joins | None
    ) -> ColumnElement[bool] | None:
        """The condition for a FROM element; None if what it is joined to has it."""

    @abstractmethod
    def expression(self, asked: Asked, source: FromClause) -> ColumnElement[Any]:
        """What one of the public functions returns for a FROM element."""

    @abstractmethod
    def insert(
        self, statement: Insert, rows: Rows, dialect: Dialect
    ) -> tuple[Insert, Preparation | None]:
        """Let an INSERT add no row that would have expired: return it, and what happens before."""

    @abstractmethod
    def update(
        self, statement: Update, target: Target, rows: Rows, dialect: Dialect
    ) -> tuple[Update, Preparation | None]:
        """Let an UPDATE turn no row into one that would have expired, likewise."""

    @abstractmethod
    def delete(self, target: Target) -> Preparation | None:
        """What has to happen before a DELETE."""

    @abstractmethod
    def matched(
        self, criteria: list[ColumnElement[bool]], statement: Resolved, dialect: Dialect
    ) -> tuple[list[ColumnElement[bool]], Preparation | None]:
        """The conditions for the rows that an UPDATE or DELETE matches, `live` among them."""


def statement_rule_of(table: object) -> StatementRule | None:
    """The rule of a table, as statements meet it; None where it has none."""
    rule = rule_of(table)
    return rule if isinstance(rule, StatementRule) else None
