"""`DefaultSource`: where the default ttl of a collection comes from, the class or the database.

A `Binding` has one. Operations, results in memory, sweeps and `ensure_indexes` ask it, and nobody
asks which one it is. `Fixed` is all that a class needs whose ``__ttl__`` says the default. The
package of a `DefaultExtension` brings another, which is imported when the first class declares such
a default. Its other halves are `IndexedSource`, in `ttl_odm.beanie.indexes.sources`, and
`SweptSource`, in `ttl_odm.beanie.sweep.walks`.

Documents with a default of their own, by the value of a field, are a *scope* (`Scoping`). All
others have the collection's.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ttl_odm.beanie.policy.predicate import kind_number
from ttl_odm.core.policy import TTL, default_extension
from ttl_odm.core.values import NEVER

if TYPE_CHECKING:
    from collections.abc import Collection as Collection_
    from collections.abc import Mapping

    from ttl_odm.beanie.drivers import Collection
    from ttl_odm.beanie.policy.commands import RawCollection
    from ttl_odm.beanie.policy.predicate import Expression
    from ttl_odm.core.declaration import DeclaredTTL
    from ttl_odm.core.policy import Policy
    from ttl_odm.sweeper import Fact


MOST_SCOPES: Final = 1_000
"""Of a collection, with a default of their own: each of them stands in each filter."""


@dataclass(frozen=True, slots=True)
class OwnScopes:
    """The names of scopes, and the expression for the number of a document's; -1: none of them."""

    names: tuple[str, ...]
    number: Expression

    def named(self, counted: Mapping[int, int]) -> Counter[str]:
        """Return what was counted by number by name, without all others."""
        by_scope: Counter[str] = Counter()
        for number, documents in counted.items():
            if number >= 0:
                by_scope[self.names[number]] += documents
        return by_scope


@dataclass(frozen=True, slots=True)
class Scoping(ABC):
    """Tells documents with a default of their own apart, and reports them.

    Attributes:
        field: The field whose values are the scopes.
    """

    field: str

    def own(self, policy: Policy) -> OwnScopes | None:
        """Return the scopes that have a default of their own under a policy; None for none."""
        if not isinstance(policy, TTL) or not policy.kinds:
            return None
        names = tuple(str(scope) for scope, _ in policy.kinds)
        return OwnScopes(names, kind_number(policy, self.field))

    @abstractmethod
    def due(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """What a count reports of the expired documents of each scope."""

    @abstractmethod
    def deleted(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """What a batch reports of the documents of each scope that it has deleted."""


class DefaultSource(ABC):
    """Where the default ttl of a collection comes from.

    Attributes:
        is_known: Whether Python knows the default. Where it does not, an operation has to `see` it
            before it begins, and what deletes has to `hold` it.
    """

    is_known: ClassVar[bool]

    @property
    @abstractmethod
    def scoping(self) -> Scoping | None:
        """How documents with defaults of their own are told apart; None if only a kind decides."""

    def own_scopes(self, policy: Policy) -> OwnScopes | None:
        """Return the scopes that have a default of their own under a policy; None for none."""
        return None if self.scoping is None else self.scoping.own(policy)

    @property
    def scopes_are_exact(self) -> bool:
        """Whether an equality matches documents of one scope only, and arrays.

        Under a collation of the collection's it may match documents of others.
        """
        return False

    def policy_of(self, scopes: Collection_[Any]) -> Policy:
        """Return the policy of documents with one of a few scopes, or with none.

        With the defaults that were noted last, as `policy`, but without all others.

        Raises:
            TTLError: Nothing was noted.
        """
        del scopes
        return self.policy

    # In operations

    @abstractmethod
    async def see(self, collection: Collection, *, anew: bool = False) -> None:
        """Note what the default is, unless that was done a moment ago, which `anew` rules out.

        Not in a session: a transaction would see the default as it was when it began.
        """

    @property
    @abstractmethod
    def policy(self) -> Policy:
        """The policy with the default that was noted last, however long ago.

        Raises:
            TTLError: None was.
        """

    @property
    @abstractmethod
    def is_recent(self) -> bool:
        """Whether what was noted decides about results in memory."""

    @abstractmethod
    def check_complete(self, method: str, collection: str) -> None:
        """Reject a read that is complete before `see` can be awaited.

        Args:
            method: What reads.
            collection: The full name of the collection.

        Raises:
            TTLError: The default has to be read first.
        """

    # In transactions that delete

    @abstractmethod
    async def hold(self, place: RawCollection, policy: Policy) -> Policy:
        """Return the policy by which documents may be deleted; nobody changes it before the commit.

        Args:
            place: The collection, in a transaction.
            policy: The policy by what is known so far.

        Raises:
            OperationFailure: A write conflict: another client is changing it, or deletes by it.
        """

    @abstractmethod
    def check_unheld(self, collection: str, where: str) -> None:
        """Reject a sweep that can't hold it, since there are no transactions.

        Args:
            collection: The name of the collection.
            where: What has no transactions.

        Raises:
            TTLConfigurationError: Somebody may change the default.
        """


@dataclass(frozen=True, eq=False)
class Fixed(DefaultSource):
    """The default as a class declares it, and those of kinds."""

    declared: DeclaredTTL

    is_known: ClassVar[bool] = True

    @property
    def scoping(self) -> None:
        """None."""

    async def see(self, collection: Collection, *, anew: bool = False) -> None:
        """Do nothing."""

    @property
    def policy(self) -> Policy:
        """The policy as it is declared now; functions have been asked for their defaults."""
        return self.declared.settled

    @property
    def is_recent(self) -> bool:
        """It is."""
        return True

    def check_complete(self, method: str, collection: str) -> None:
        """Do nothing: there is nothing to read."""

    async def hold(self, place: RawCollection, policy: Policy) -> Policy:  # noqa: ARG002 (the seam's)
        """The same policy: no transaction changes a class."""
        return policy

    def check_unheld(self, collection: str, where: str) -> None:
        """Do nothing, as above."""


def outline(policy: Policy) -> Policy:
    """Return a policy with -1 for a default that isn't in code.

    For all that doesn't hang on the default: fields, stamps, what can't be read.
    """
    return completed(policy, NEVER)


def completed(
    policy: Policy, default: int | None, scopes: Mapping[Any, int | None] | None = None
) -> Policy:
    """Return a policy with a default in the place of one that isn't in code.

    `scopes` are the defaults of scopes, which are kinds of documents like others.
    """
    declared = default_extension(policy)
    if declared is None or not isinstance(policy, TTL):
        return policy
    if declared.by is None:
        return policy.with_default(default)
    return policy.with_kinds(scopes or {}, by=declared.by, other=default)


def scope_of(policy: Policy) -> str | None:
    """Return the field whose values may have defaults of their own; None if there is none."""
    declared = default_extension(policy)
    return None if declared is None else declared.by
