"""`DefaultSource`: where the default ttl of a table comes from, the class or the database.

A `Binding` has one. Statements, instances in memory, sweeps and checks call it, whichever it is.
`Fixed` is the source of a model whose ``__ttl__`` contains the default. The package of a
`DefaultExtension` brings another source, and is imported when the first model declares such a
default. Its other half, `SweptSource`, is in `ttl_odm.django.sweep.walks`.

The rows for which a field has one certain value may have a default of their own: they are a *scope*
(`Scoping`). All other rows have the table's default.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from ttl_odm.core.values import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Model
    from django.db.models.expressions import Expression
    from django.db.models.sql import Query

    from ttl_odm.core.declaration import DeclaredTTL
    from ttl_odm.core.policy import Policy
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.sweeper import Fact
    from ttl_odm.sweeper.findings import Finding

INHERITED_AGE: Final = "ttl_inherited_age"
"""The attribute of a row for the age at which it expires by default, if that is looked up."""

_locks: ContextVar[bool] = ContextVar("ttl_odm_locks_defaults", default=False)


@contextmanager
def locking() -> Iterator[None]:
    """Make queries read current defaults, and lock them in shared mode.

    Otherwise a SELECT reads the defaults of the transaction's snapshot.
    """
    token = _locks.set(True)
    try:
        yield
    finally:
        _locks.reset(token)


def is_locking() -> bool:
    """Whether queries lock the defaults that they read: see `locking`."""
    return _locks.get()


@dataclass(frozen=True, slots=True)
class AgeLookup:
    """SQL by which a statement looks up the age at which inheriting rows expire.

    The age is `FOREVER` for rows that never expire, and `OFF` while TTL is off.

    Attributes:
        age: The age.
        shortest: A lower bound of all defaults, cheaper to look up than a row's own; None if all
            rows of the table in the statement have the same default.
    """

    age: str
    shortest: str | None

    def once(self, expression: str) -> str:
        """Return an expression of the age in a form that databases compute once for all rows.

        If rows may have different defaults, return it unchanged.
        """
        return f"(SELECT {expression})" if self.shortest is None else expression


class Scoping(ABC):
    """Distinguishes rows with a default of their own, and reports them."""

    __slots__ = ()

    @abstractmethod
    def of_row(self, connection: BaseDatabaseWrapper, source: str) -> str:
        """Return SQL for the scope of a row of a table, quoted; NULL if it has no default."""

    @abstractmethod
    def fixed_in(
        self, query: Query, alias: str, connection: BaseDatabaseWrapper
    ) -> tuple[str, ...]:
        """Return the few scopes to which a query's conditions limit the rows of an alias.

        They are in the stored form. Empty if the rows may have any scope.
        """

    @abstractmethod
    def numbers(self, rows: AnyQuerySet) -> AnyQuerySet:
        """Return a query of numbers of rows by scope; None stands for scopes without a default."""

    @abstractmethod
    def is_used(self, using: str) -> bool:
        """Whether any scope has a default of its own in a database."""

    @abstractmethod
    def due(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return a count's report of the expired rows of each scope."""

    @abstractmethod
    def deleted(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return a batch's report of the deleted rows of each scope."""


class DefaultSource(ABC):
    """Where the default ttl of a table comes from.

    Attributes:
        is_known: Whether Python knows the default. If it does, `lock` isn't called.
        scoping: How rows with defaults of their own are distinguished; None if all rows have the
            same default.
    """

    is_known: ClassVar[bool]
    scoping: Scoping | None = None

    # In statements

    @abstractmethod
    def looked_up(
        self, connection: BaseDatabaseWrapper, source: str, scopes: Sequence[str] = ()
    ) -> AgeLookup | None:
        """Return how a statement looks up the default of a row.

        Args:
            connection: The connection.
            source: The row's table or alias, quoted.
            scopes: SQL for each of the scopes that `Scoping.fixed_in` has found.

        Returns:
            None if Python knows the default.

        Raises:
            TTLConfigurationError: There is no table to read the default from.
        """

    @abstractmethod
    def row_age(self) -> Expression | None:
        """Return the looked-up age as an expression of Django's; None if Python knows it."""

    # For instances in memory

    @abstractmethod
    def policy_of(self, obj: Model, using: str | None, age: int | None) -> Policy:
        """Return the policy of an instance's row, with its present default.

        Args:
            obj: The instance.
            using: The alias of the database; None for the instance's own.
            age: The value of `row_age` that was read with the row; None if it was not read.
        """

    # In transactions that delete

    @abstractmethod
    def lock(self, using: str) -> None:
        """Lock the default against changes until the transaction ends.

        Raises:
            TTLConfigurationError: There is no table to read the default from.
            DatabaseError: The database's error; it says so if its user lacks a privilege.
        """

    # In sweeps

    @abstractmethod
    def defaults(self, using: str) -> Iterable[int | None]:
        """Return every default that rows may inherit at this moment."""

    @abstractmethod
    def shortest_age(self) -> int | Expression | None:
        """Return the shortest age at which inheriting rows expire; None if none ever does."""

    # In checks

    @abstractmethod
    def check(self) -> None:
        """Raise TTLConfigurationError if there can't be a table to read the default from."""

    @abstractmethod
    def findings(self, connection: BaseDatabaseWrapper) -> Iterable[Finding]:
        """Report problems of the default in a database to ``ttl_check``."""


@dataclass(frozen=True, eq=False)
class Fixed(DefaultSource):
    """The default that a class declares."""

    default: DeclaredTTL

    is_known: ClassVar[bool] = True

    def looked_up(
        self, connection: BaseDatabaseWrapper, source: str, scopes: Sequence[str] = ()
    ) -> None:
        """Return None: Python knows the default."""

    def row_age(self) -> None:
        """Return None: Python knows the default."""

    def policy_of(self, obj: Model, using: str | None, age: int | None) -> Policy:  # noqa: ARG002 (the seam's)
        """Return the policy as declared now, with the present values of its functions."""
        return self.default.settled

    def lock(self, using: str) -> None:
        """Do nothing: no transaction changes a class."""

    def defaults(self, using: str) -> Iterable[int | None]:  # noqa: ARG002 (as above)
        """Return the default as declared now."""
        return (self.default(),)

    def shortest_age(self) -> int | None:
        """Return the default, if it lets rows expire."""
        seconds = self.default()
        return None if seconds == NEVER else seconds

    def check(self) -> None:
        """Do nothing."""

    def findings(self, connection: BaseDatabaseWrapper) -> Iterable[Finding]:  # noqa: ARG002 (as above)
        """Report nothing."""
        return ()
