"""`DefaultSource`: where the default ttl of a collection comes from, the class or the database.

Each `Binding` has one. Operations, results in memory, sweeps and `ensure_indexes` ask it without
knowing which one it is. `Fixed` is the source of a class whose ``__ttl__`` contains the default.
The package of a `DefaultExtension` has another source, and is imported when the first class
declares such a default. `IndexedSource` also adapts the indexes, by which MongoDB deletes, to the
default; `SweptSource`, in `ttl_odm.beanie.sweep.walks`, takes sweeps from one default to the next.

A *scope* is all documents with the same value in a certain field, if that value has its own default
(`Scoping`). All other documents have the collection's.

This module must not know which extensions exist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar

from ttl_odm.beanie.policy.predicate import kind_number
from ttl_odm.core.policy import TTL, default_extension
from ttl_odm.core.values import NEVER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from collections.abc import Collection as Collection_

    from ttl_odm.beanie.drivers import Collection
    from ttl_odm.beanie.policy.commands import RawCollection
    from ttl_odm.beanie.policy.predicate import Expression
    from ttl_odm.core.declaration import DeclaredTTL
    from ttl_odm.core.policy import Policy
    from ttl_odm.sweeper import Fact
    from ttl_odm.sweeper.findings import Finding

Report = TypeVar("Report")
Ensure: TypeAlias = "Callable[..., Awaitable[Report]]"
"""Brings the indexes to what a policy needs, as `ensure_collection` does."""

MOST_SCOPES: Final = 1_000
"""The maximum number of scopes in a collection: each filter names all of them."""


@dataclass(frozen=True, slots=True)
class OwnScopes:
    """The names of scopes, and the expression for the number of a document's scope, -1 for none."""

    names: tuple[str, ...]
    number: Expression

    def named(self, counted: Mapping[int, int]) -> Counter[str]:
        """Return counts by name instead of number, without documents outside all scopes."""
        by_scope: Counter[str] = Counter()
        for number, documents in counted.items():
            if number >= 0:
                by_scope[self.names[number]] += documents
        return by_scope


@dataclass(frozen=True, slots=True)
class Scoping(ABC):
    """Distinguishes documents with their own default, and reports on them.

    Attributes:
        field: The field whose values are the scopes.
    """

    field: str

    def own(self, policy: Policy) -> OwnScopes | None:
        """Return the scopes that have their own default under a policy; None for none."""
        if not isinstance(policy, TTL) or not policy.kinds:
            return None
        names = tuple(str(scope) for scope, _ in policy.kinds)
        return OwnScopes(names, kind_number(policy, self.field))

    @abstractmethod
    def due(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return what a count reports about the expired documents of each scope."""

    @abstractmethod
    def deleted(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return what a batch reports about the documents of each scope that it deleted."""


class DefaultSource(ABC):
    """Where the default ttl of a collection comes from.

    Attributes:
        is_known: Whether the default is in code. Otherwise each operation has to `see` it before it
            begins, and a transaction that deletes has to `hold` it.
    """

    is_known: ClassVar[bool]

    @property
    @abstractmethod
    def scoping(self) -> Scoping | None:
        """How documents with their own defaults are distinguished; None if there are no scopes."""

    def own_scopes(self, policy: Policy) -> OwnScopes | None:
        """Return the scopes that have their own default under a policy; None for none."""
        return None if self.scoping is None else self.scoping.own(policy)

    @property
    def scopes_are_exact(self) -> bool:
        """Whether an equality matches documents of one scope only, apart from arrays.

        If the collection has a collation, it may match documents of other scopes.
        """
        return False

    def policy_of(self, scopes: Collection_[object]) -> Policy:
        """Return the policy of documents that are in one of a few scopes, or in none.

        It is `policy` without the defaults of other scopes.

        Raises:
            TTLError: The default was never read.
        """
        del scopes
        return self.policy

    # In operations

    @abstractmethod
    async def see(self, collection: Collection, *, anew: bool = False) -> None:
        """Read the default, unless it was read a moment ago; with `anew` in any case.

        It is read outside the operation's session, since a transaction would read the default as it
        was when the transaction began.
        """

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """The policy with the default that was read last, however long ago.

        Raises:
            TTLError: It was never read.
        """

    @property
    @abstractmethod
    def is_recent(self) -> bool:
        """Whether the default was read recently enough to judge results in memory."""

    @abstractmethod
    def check_complete(self, method: str, collection: str) -> None:
        """Reject a read that is built before `see` can be awaited.

        Args:
            method: The method that reads.
            collection: The full name of the collection.

        Raises:
            TTLError: The default has to be read first.
        """

    # In transactions that delete

    @abstractmethod
    async def hold(self, place: RawCollection, policy: Policy) -> Policy:
        """Return the policy by which to delete; no other client can change it before the commit.

        Args:
            place: The collection, in a transaction.
            policy: The policy with the default that was read last.

        Raises:
            OperationFailure: A write conflict: another client is changing the default, or holds it.
        """

    @abstractmethod
    def check_unheld(self, collection: str, where: str) -> None:
        """Reject a sweep that can't hold the default, because there are no transactions.

        Args:
            collection: The name of the collection.
            where: What has no transactions, for the message.

        Raises:
            TTLConfigurationError: Another client may change the default.
        """


@dataclass(frozen=True, eq=False)
class Fixed(DefaultSource):
    """The source of a class whose ``__ttl__`` contains the default, or the defaults of kinds."""

    declared: DeclaredTTL

    is_known: ClassVar[bool] = True

    @property
    def scoping(self) -> None:
        """No scopes."""

    async def see(self, collection: Collection, *, anew: bool = False) -> None:
        """Do nothing."""

    @property
    def policy(self) -> Policy:
        """The policy as it is declared now, with the results of functions as defaults."""
        return self.declared.settled

    @property
    def is_recent(self) -> bool:
        """Always true."""
        return True

    def check_complete(self, method: str, collection: str) -> None:
        """Do nothing: there is nothing to read."""

    async def hold(self, place: RawCollection, policy: Policy) -> Policy:  # noqa: ARG002 (the seam's)
        """Return the same policy, since no other client can change a class."""
        return policy

    def check_unheld(self, collection: str, where: str) -> None:
        """Do nothing, as above."""


class IndexedSource(DefaultSource):
    """A source that adapts the indexes by which MongoDB deletes.

    These indexes contain the default as a number. So a change of the default changes the number
    too, in such an order that no read shows a document that MongoDB may delete.
    """

    @abstractmethod
    async def ensure(self, collection: Collection, ensure: Ensure[Report]) -> Report:
        """Bring the indexes to the default; write the initial default if none is stored yet.

        Raises:
            TTLConfigurationError: The server lacks a feature that this needs.
            TTLError: Other clients keep changing the default.
        """

    @abstractmethod
    async def check(self, collection: Collection, name: str, model: str | None) -> list[Finding]:
        """Return what `ttl-odm check` reports about the default.

        Args:
            collection: The collection.
            name: Its name in findings.
            model: The name of its class, for the fix.
        """


def outline(policy: Policy) -> Policy:
    """Return a policy with -1 for a default that isn't in code.

    For questions that don't depend on the default: its fields, stamps, whether it is valid.
    """
    return completed(policy, NEVER)


def completed(
    policy: Policy, default: int | None, scopes: Mapping[object, int | None] | None = None
) -> Policy:
    """Return a policy with a number in place of a default that isn't in code.

    `scopes` are the defaults of scopes; in the result they are kinds of documents.
    """
    declared = default_extension(policy)
    if declared is None or not isinstance(policy, TTL):
        return policy
    if declared.by is None:
        return policy.with_default(default)
    return policy.with_kinds(scopes or {}, by=declared.by, other=default)


def scope_of(policy: Policy) -> str | None:
    """Return the field whose values may have their own defaults; None if there is none."""
    declared = default_extension(policy)
    return None if declared is None else declared.by
