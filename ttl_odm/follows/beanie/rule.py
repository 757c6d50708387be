"""`FollowsRule` and `Followers`: everything that the base asks of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.beanie.policy.rules import RemovedDependents
from ttl_odm.combinations import combination
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.follows.beanie import documents
from ttl_odm.follows.beanie.find import FollowedLifetime, follow
from ttl_odm.follows.beanie.follower import (
    Following,
    check_orphans,
    check_orphans_of,
    check_same_kind,
    link_index,
)
from ttl_odm.follows.beanie.methods import FollowersMethods
from ttl_odm.follows.beanie.removal import (
    FollowersRemoval,
    check_followers,
    has_orphans,
    purge_orphans,
    remove_displaced,
)
from ttl_odm.follows.beanie.stages import judged
from ttl_odm.follows.sweep import ORPHANS, due_followers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import beanie
    from pymongo.asynchronous.cursor import AsyncCursor

    from ttl_odm.beanie.drivers import Collection, Document, Filter, Session
    from ttl_odm.beanie.gate.handle import Handle
    from ttl_odm.beanie.policy.bindings import Judge
    from ttl_odm.beanie.policy.commands import RawCollection
    from ttl_odm.beanie.policy.rules import Checked, Copy, EndOf, Rejected
    from ttl_odm.beanie.policy.ttl_indexes import Index
    from ttl_odm.core.policy import Policy
    from ttl_odm.sweeper import BatchRequest, BatchResult, Fact
    from ttl_odm.sweeper.findings import Finding


class FollowsRule(Following):
    """The rule of a collection whose documents live while their parents do."""

    def judged(self, reader: str) -> Judge:
        """Return the stages that look the parent up, which is in the same database."""
        if self.enforced_by_others:
            return None
        if reader != self.database:
            raise TTLError(
                f"{f'{self.database}.{self.collection}'!r} follows another collection, which a "
                f"pipeline in {reader!r} can't read: read it in its own database."
            )
        return judged(self)

    def check_shared(self, model: type, declared: Policy | None) -> None:
        """Reject documents with a lifetime, and those that would be orphans."""
        if declared is None:
            check_orphans_of(self, model)
        else:
            check_same_kind((self.model, self.declared), (model, declared), self.collection)

    def check(self) -> None:
        """Check that it leads to a parent, and that no other class would have orphans."""
        _ = self.links
        check_orphans(self)

    def index(self) -> Index:
        """Return the index of the link."""
        return link_index(self.links.own)

    def rejected(self, what: Rejected, where: str) -> TTLError:
        """Return the error, with the fix."""
        if what == "lifetime":
            return TTLConfigurationError(
                f"{where} documents have no lifetime of their own: {self.declared!r}. Change the "
                "parent's lifetime instead."
            )
        if what == "sweep":
            parent = self.root.model.__name__
            return TTLConfigurationError(
                f"{where} can't be swept alone: its documents follow those of {parent} and are "
                f"deleted with them. Sweep {parent} instead, or give both."
            )
        if what == "view":
            line = combination("beanie", "follows", "view")
            return TTLConfigurationError(
                f"{self.model.__name__}: {where} {line.reason}; {line.instead}."
            )
        return TTLError(
            f"find_raw_batches() can't read {where!r}, because its documents expire with their "
            "parents, which only a pipeline can read: use find(), aggregate() or "
            "aggregate_raw_batches()."
        )

    def methods(self, handle: Handle) -> FollowersMethods:
        """Return the methods that choose documents by a pipeline before they write them."""
        return FollowersMethods(handle, self)

    def finds(self, handle: Handle, cursor: AsyncCursor[Document]) -> FollowedLifetime:
        """Make the cursor send a pipeline."""
        follow(cursor, handle, self)
        return FollowedLifetime(handle, self)

    async def remove(
        self,
        collection: Collection,
        filter: Filter,  # noqa: A002 (MongoDB's name for it)
        collation: Document | None,
        session: Session,
    ) -> int:
        """Delete documents whose parents have expired, after their followers."""
        return await remove_displaced(collection, self, filter, collation, session)

    def end_in_memory(self, document: beanie.Document, end: EndOf) -> datetime | None:
        """Return when the parent in a fetched link expires."""
        return documents.end_in_memory(document, self.declared, end)

    async def end_of(self, document: beanie.Document, session: Session) -> datetime | None:
        """Return when the document at the root expires."""
        return await documents.end_of(document, self, session)

    async def is_gone(
        self,
        document: beanie.Document,
        session: Session,
        copy: Copy | None,
        *,
        inserts: bool = False,
    ) -> bool:
        """Say whether its parent has expired, or is missing."""
        return await documents.is_gone(document, self, session, copy, inserts=inserts)


class Followers:
    """The documents that follow documents of a policy; see `Dependents`."""

    part = ORPHANS

    async def remove(
        self, place: RawCollection, policy: Policy, rows: Sequence[Filter], limit: int | None
    ) -> RemovedDependents:
        """Remove followers, the deepest first; if some are left, their parents stay expired."""
        removal = FollowersRemoval(place, limit)
        await removal.of_expired(policy, rows)
        return RemovedDependents(removal.removed, removal.is_done)

    async def is_due(self, place: RawCollection) -> bool:
        """Say whether followers have orphans."""
        return await has_orphans(place)

    def facts(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return the fact about followers that go along."""
        return due_followers(rows)

    async def purge(self, place: RawCollection, request: BatchRequest) -> BatchResult:
        """Delete a batch of orphans."""
        return await purge_orphans(place, request)

    async def check(self, checked: Checked) -> list[Finding]:
        """Check that followers are found by an index."""
        return await check_followers(checked)
