"""Removing the documents that follow others before those others, the deepest first.

This happens in the transaction that removes the parents, or in earlier ones, so no reader sees
followers of expired documents. The parents stay expired: see `FollowersRemoval.of_expired`. If the
server has no transactions, only the order helps: an interrupted removal leaves expired parents with
fewer followers, and never a follower without its parent.
"""

# ruff: noqa: A002 - `filter` is MongoDB's name for it

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ttl_odm.beanie.keys import patiently
from ttl_odm.beanie.policy.commands import BY_KEY, RawCollection
from ttl_odm.beanie.policy.predicate import expired_expr
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY, inheriting_branches, own_expiry
from ttl_odm.core.policy import TTL
from ttl_odm.follows import sealing_ttl
from ttl_odm.follows.beanie.follower import check_options, followers_of
from ttl_odm.follows.beanie.stages import having, judged, keys_in
from ttl_odm.follows.sweep import Removal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.beanie.drivers import Collection, Document, Filter, Session
    from ttl_odm.core.policy import Policy
    from ttl_odm.follows.beanie.follower import Following

_CHUNK: Final = 1_000
"""Keys in one command."""


@dataclass(slots=True)
class FollowersRemoval(Removal):
    """Removes followers of documents, up to a limit.

    Args:
        place: A collection of the database, perhaps in a transaction.
        limit: How many documents may be removed; None for any number.
    """

    place: RawCollection
    limit: int | None = None
    removed: Counter[str] = field(default_factory=Counter)

    async def of_expired(self, policy: Policy, rows: Sequence[Filter]) -> None:
        """Remove the followers of these documents, skipping documents that are live again.

        If some followers are left, the documents that inherit the default get a ttl of their own,
        with which they stay expired: a default that is raised would bring them back with the
        remaining followers only.
        """
        doomed: Document = {
            "_id": {"$in": [row["_id"] for row in rows]},
            "$expr": expired_expr(policy),
        }
        expired = await self.place.find(doomed, hint=BY_KEY, projection=self._fields_of(self.place))
        await self._below(self.place, expired)
        if not self.is_done and isinstance(policy, TTL) and policy.override is not None:
            inherits = {"$or": list(inheriting_branches(policy))}
            stages: list[Document] = [{"$set": {policy.override: sealing_ttl(policy.never)}}]
            if policy.unit is None:
                stages.append({"$set": {EXPIRY: own_expiry(policy)}})
            await self.place.update({"$and": [doomed, inherits]}, stages, BY_KEY)

    async def of_matching(self, following: Following, condition: Filter) -> None:
        """Remove documents that follow others, after their own followers."""
        for model in following.models:
            check_options(model)
        place = self.place.beside(following.collection)
        if self.limit is None and not followers_of(place.collection):
            self.removed[following.collection] += await place.delete([condition])
            return
        while self.is_done:
            size, fields = self.next_size(_CHUNK), self._fields_of(place)
            rows = await place.find(condition, limit=size, projection=fields)
            if not rows:
                return
            await self._below(place, rows)
            if self.is_done:
                doomed = {"$and": [condition, {"_id": {"$in": [row["_id"] for row in rows]}}]}
                self.removed[following.collection] += await place.delete([doomed], BY_KEY)

    async def _below(self, place: RawCollection, rows: Sequence[Filter]) -> None:
        for following in followers_of(place.collection):
            theirs = following.links.theirs
            keys = [key for row in rows if (key := keys_in(row, theirs)) is not None]
            for start in range(0, len(keys), _CHUNK):
                followers = having(following.links.own, keys[start : start + _CHUNK])
                await self.of_matching(following, followers)
                if not self.is_done:
                    return

    @staticmethod
    def _fields_of(place: RawCollection) -> Document:
        """Return the projection of the fields that followers refer to."""
        paths = (path for rule in followers_of(place.collection) for path in rule.links.theirs)
        return dict.fromkeys(("_id", *(path.partition(".")[0] for path in paths)), 1)


async def remove_displaced(
    collection: Collection,
    following: Following,
    filter: Filter,
    collation: Document | None,
    session: Session,
) -> int:
    """Delete documents in the way of a write, if their parents have expired; return how many."""
    clauses: Document = {} if collation is None else {"collation": collation}
    outside = RawCollection(collection)
    doomed = [{"$match": filter}, *judged(following).expired, {"$project": {"_id": 1}}]

    async def remove(place: RawCollection) -> int:
        rows = await place.aggregate(doomed, **clauses)
        removal = FollowersRemoval(place)
        if rows:
            await removal.of_matching(following, {"_id": {"$in": [row["_id"] for row in rows]}})
        return removal.removed[collection.name]

    if session is not None and session.in_transaction:
        return await remove(outside.within(session))
    if not await outside.aggregate([*doomed, {"$limit": 1}], **clauses):
        return 0
    if not (await outside.server()).has_transactions:
        return await remove(outside)
    return await patiently(outside, remove)
