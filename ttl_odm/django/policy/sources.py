"""`DefaultSource`: where the default ttl of a table comes from, the class or the database.

A `Binding` has one. Statements, instances in memory, sweeps and checks ask it, and nobody asks
which one it is. `Fixed` is all that a model needs whose ``__ttl__`` says the default. The package
of a `DefaultExtension` brings another, which is imported when the first model declares such a
default. Its other half, `SweptSource`, is in `ttl_odm.django.sweep.walks`.

Rows with a default of their own, by the value of a field, are a *scope* (`Scoping`). All other rows
have the table's.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from django.db import connections

from ttl_odm.core.values import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Model, QuerySet
    from django.db.models.expressions import Expression
    from django.db.models.sql import Query

    from ttl_odm.core.declaration import DeclaredTTL
    from ttl_odm.core.policy import Policy
    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.sweeper import Fact
    from ttl_odm.sweeper.findings import Finding

INHERITED_AGE: Final = "ttl_inherited_age"
"""The attribute that rows have the age in at which they expire by default, if it is looked up."""

_locks: ContextVar[bool] = ContextVar("ttl_odm_locks_defaults", default=False)


@contextmanager
def locking() -> Iterator[None]:
    """Let queries read the defaults that they look up as these are now, and lock them, shared.

    Otherwise a SELECT reads them as the transaction's snapshot has them.
    """
    token = _locks.set(True)
    try:
        yield
    finally:
        _locks.reset(token)


def is_locking() -> bool:
    """Whether queries do that at this moment: see `locking`."""
    return _locks.get()


def lock_defaults(bindings: Iterable[Binding], using: str) -> None:
    """Keep the default ttls of tables unchanged until the transaction ends.

    Defaults that Python knows need no lock.
    """
    sources = {
        binding.model._meta.db_table.replace('"', ""): binding.source
        for binding in bindings
        if not binding.source.is_known
    }
    if not sources or not connections[using].features.has_select_for_update:
        return
    for name in sorted(sources):  # in one order, or two transactions deadlock
        sources[name].lock(using)


@dataclass(frozen=True, slots=True)
class AgeLookup:
    """How a statement looks up the age at which rows expire that inherit, as SQL.

    Where that is never the age is `FOREVER`, and `OFF` while TTL is off.

    Attributes:
        age: The age.
        shortest: An age that no default is below, cheaper to look up than a row's own; None where
            all rows of the table in the statement have the same default.
    """

    age: str
    shortest: str | None

    def once(self, expression: str) -> str:
        """What is made of the age in the form that databases compute once for all rows.

        As it is where each row may have another default.
        """
        return f"(SELECT {expression})" if self.shortest is None else expression


class Scoping(ABC):
    """Tells rows with a default of their own apart, and reports them."""

    __slots__ = ()

    @abstractmethod
    def of_row(self, connection: BaseDatabaseWrapper, source: str) -> str:
        """SQL for the scope of a row of a table, quoted, where that has a default; else NULL."""

    @abstractmethod
    def fixed_in(
        self, query: Query, alias: str, connection: BaseDatabaseWrapper
    ) -> tuple[str, ...]:
        """The few scopes that rows of an alias can have by a query's conditions, as stored.

        Empty where they may have any.
        """

    @abstractmethod
    def numbers(self, rows: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
        """How many of some rows are of which scope with a default; None stands for all others."""

    @abstractmethod
    def is_used(self, using: str) -> bool:
        """Whether any scope has a default of its own in a database."""

    @abstractmethod
    def due(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """What a count reports of the expired rows of each scope."""

    @abstractmethod
    def deleted(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """What a batch reports of the rows of each scope that it has deleted."""


class DefaultSource(ABC):
    """Where the default ttl of a table comes from.

    Attributes:
        is_known: Whether Python knows the default. Where it does, nobody asks for `lock`.
        scoping: How rows with defaults of their own are told apart; None where all have the same.
    """

    is_known: ClassVar[bool]
    scoping: Scoping | None = None

    # In statements

    @abstractmethod
    def looked_up(
        self, connection: BaseDatabaseWrapper, source: str, scopes: Sequence[str] = ()
    ) -> AgeLookup | None:
        """How they look up the default of a row of a table, or of its alias, quoted.

        Args:
            connection: The connection.
            source: The table, or its alias.
            scopes: SQL for each of the scopes that `Scoping.fixed_in` has found.

        Returns:
            None where Python knows the default.

        Raises:
            TTLConfigurationError: There is no table to read it from.
        """

    @abstractmethod
    def row_age(self) -> Expression | None:
        """The age of such a lookup, as an expression of Django's; None where Python knows it."""

    # For instances in memory

    @abstractmethod
    def policy_of(self, obj: Model, using: str | None, age: int | None) -> Policy:
        """The policy of the row of an instance, with the default that it has now.

        Args:
            obj: The instance.
            using: The alias of the database; None for the instance's own.
            age: What `row_age` has read with the row; None if it was read without that.
        """

    # In transactions that delete

    @abstractmethod
    def lock(self, using: str) -> None:
        """Let nobody change the default until the transaction ends.

        Raises:
            TTLConfigurationError: There is no table to read it from.
            DatabaseError: The database's, which says what its user lacks, if it does.
        """

    # In sweeps

    @abstractmethod
    def defaults(self, using: str) -> Iterable[int | None]:
        """Every default that rows may inherit at this moment."""

    @abstractmethod
    def shortest_age(self) -> int | Expression | None:
        """The age at which the first rows that inherit expire; None if none ever does."""

    # In checks

    @abstractmethod
    def check(self) -> None:
        """Raise TTLConfigurationError where there can't be a table to read the default from."""

    @abstractmethod
    def findings(self, connection: BaseDatabaseWrapper) -> Iterable[Finding]:
        """Report what ``ttl_check`` finds on the default in a database."""


@dataclass(frozen=True, eq=False)
class Fixed(DefaultSource):
    """The default as a class declares it."""

    default: DeclaredTTL

    is_known: ClassVar[bool] = True

    def looked_up(
        self, connection: BaseDatabaseWrapper, source: str, scopes: Sequence[str] = ()
    ) -> None:
        """None."""

    def row_age(self) -> None:
        """None."""

    def policy_of(self, obj: Model, using: str | None, age: int | None) -> Policy:  # noqa: ARG002 (the seam's)
        """The policy as it is declared now, with what its functions return."""
        return self.default.settled

    def lock(self, using: str) -> None:
        """Do nothing: no transaction changes a class."""

    def defaults(self, using: str) -> Iterable[int | None]:  # noqa: ARG002 (as above)
        """As it is declared now."""
        return (self.default(),)

    def shortest_age(self) -> int | None:
        """The default, if it lets rows expire."""
        seconds = self.default()
        return None if seconds == NEVER else seconds

    def check(self) -> None:
        """Do nothing."""

    def findings(self, connection: BaseDatabaseWrapper) -> Iterable[Finding]:  # noqa: ARG002 (as above)
        """None."""
        return ()
