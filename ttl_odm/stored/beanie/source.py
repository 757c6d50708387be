"""`StoredSource`: the answers to all that Beanie's adapter asks about a stored default."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ttl_odm.beanie.policy.sources import IndexedSource, Scoping
from ttl_odm.beanie.sweep.walks import SweptSource
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.stored.beanie import turns
from ttl_odm.stored.beanie.lookup import StoredDefault, is_begun
from ttl_odm.stored.beanie.scope_ranges import scope_walk
from ttl_odm.stored.scopes import deleted_by_scope, due_by_scope
from ttl_odm.sweeper.findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Collection as Collection_
    from collections.abc import Mapping
    from typing import TypeVar

    from ttl_odm.beanie.drivers import Collection
    from ttl_odm.beanie.policy.bindings import Binding
    from ttl_odm.beanie.policy.commands import RawCollection
    from ttl_odm.beanie.policy.sources import Ensure
    from ttl_odm.core.policy import Policy
    from ttl_odm.stored.beanie.scope_ranges import ScopeWalk
    from ttl_odm.sweeper import Fact

    Report = TypeVar("Report")


class StoredScopes(Scoping):
    """The scopes of a stored default: the values of `Stored.by`."""

    __slots__ = ()

    def due(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """What a count reports of the expired documents of each scope."""
        return due_by_scope(rows)

    def deleted(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """What a batch reports of the documents of each scope that it has deleted."""
        return deleted_by_scope(rows)


class StoredSource(IndexedSource, SweptSource):
    """The default of a collection, and those of its scopes, as the database stores them.

    Attributes:
        default: The default.
    """

    is_known: ClassVar[bool] = False

    def __init__(self, binding: Binding) -> None:
        self.default = StoredDefault(binding)

    @property
    def scoping(self) -> StoredScopes | None:
        """The values of `Stored.by`; None without scopes."""
        by = self.default.declared.by
        return None if by is None else StoredScopes(by)

    @property
    def scopes_are_exact(self) -> bool:
        """Whether the collection is known to have no collation."""
        return self.default.cache.has_no_collation is True

    def policy_of(self, scopes: Collection_[object]) -> Policy:
        """The policy of documents of a few scopes, by the defaults that were read last."""
        return self.default.policy_of(scopes)

    # In operations

    async def see(self, collection: Collection, *, anew: bool = False) -> None:
        """Read the default into the cache, unless the cached one may be used again."""
        await self.default.see(collection, anew=anew)

    @property
    def policy(self) -> Policy:
        """The policy by the default that was read last."""
        return self.default.policy

    @property
    def is_recent(self) -> bool:
        """Whether the default was read in the last ten seconds."""
        return self.default.is_recent

    def check_complete(self, method: str, collection: str) -> None:
        """Reject every read that can't read the default first."""
        raise TTLError(
            f"{method} can't read {collection!r}, whose default ttl is stored in the database and "
            "has to be read first: use its collection's find() or aggregate()."
        )

    # In transactions that delete

    async def hold(self, place: RawCollection, policy: Policy) -> Policy:  # noqa: ARG002 (the seam's)
        """The policy by the stored default, whose changes fail until the commit."""
        return await self.default.hold(place)

    def check_unheld(self, collection: str, where: str) -> None:
        """Reject every sweep without a transaction."""
        raise TTLConfigurationError(
            f"{collection!r} has a stored default, which mustn't change while documents are "
            f"deleted by it. This requires a transaction, and {where} has none."
        )

    # In sweeps

    async def walk(self, place: RawCollection, index: str) -> ScopeWalk:
        """The way from scope to scope."""
        return await scope_walk(place, index)

    # In the schema

    async def ensure(self, collection: Collection, ensure: Ensure[Report]) -> Report:
        """Adapt the indexes to the stored default, while no other client changes it."""
        return await turns.ensure(collection, self.default, ensure)

    async def check(self, collection: Collection, name: str, model: str | None) -> list[Finding]:
        """Report a default that isn't stored."""
        await self.see(collection)
        if await is_begun(collection):
            return []
        message = "its default ttl should be stored in the database, but isn't: nothing expires"
        fix = f"await ensure_indexes({model})"
        return [Finding(Severity.ERROR, "no-stored-default", name, message, fix)]
