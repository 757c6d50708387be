"""Removing the documents that follow others before those others, the deepest first.

This happens in the transaction that removes the parents, or in earlier ones, so no reader sees
followers of expired documents. The parents stay expired: see `FollowersRemoval.of_expired`. If the
server has no transactions, only the order helps: an interrupted removal leaves expired parents with
fewer followers, and never a follower without its parent.

Orphans are documents whose parent is missing, as it was deleted before them or never existed. They
are expired, unless ``orphan="live"``, but no sweep of their parents finds them. MongoDB has no
foreign keys that would prevent them, so each sweep looks up the parents of all keys.
"""

# ruff: noqa: A002 - `filter` is MongoDB's name for it

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ttl_odm.beanie.indexes.changes import Aim, check_clustered
from ttl_odm.beanie.keys import patiently
from ttl_odm.beanie.policy.commands import BY_KEY, RawCollection, details_of, indexes_of
from ttl_odm.beanie.policy.predicate import expired_expr
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY, inheriting_branches, own_expiry
from ttl_odm.beanie.purge.removal import transaction
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.follows import sealing_ttl
from ttl_odm.follows.beanie.follower import all_followers, check_options, followers_of, leads_to
from ttl_odm.follows.beanie.stages import having, judged, keys_in, keys_with_nulls, orphans_of
from ttl_odm.follows.sweep import Removal
from ttl_odm.sweeper import BatchResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.beanie.drivers import Collection, Document, Filter, Pipeline, Session
    from ttl_odm.beanie.policy.rules import Checked
    from ttl_odm.core.policy import Policy
    from ttl_odm.follows.beanie.follower import Following
    from ttl_odm.sweeper import BatchRequest
    from ttl_odm.sweeper.findings import Finding

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
        place = self.place.sibling(following.collection)
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


# Orphans


async def has_orphans(place: RawCollection) -> bool:
    """Say whether the collections that follow a collection have orphans."""
    for following in all_followers(place.collection):
        if await _orphaned_keys(place, following, 1):
            return True
    return False


async def purge_orphans(place: RawCollection, request: BatchRequest) -> BatchResult:
    """Delete a batch of orphans and their followers."""
    removal, has_more = FollowersRemoval(place, request.size), False
    has_transactions = (await place.server()).has_transactions
    for following in all_followers(place.collection):
        keys = await _orphaned_keys(place, following, request.size)
        has_more = has_more or len(keys) == request.size
        if not keys:
            continue
        if has_transactions:
            # If a parent was inserted meanwhile, no reader sees it with only some of them.
            async with transaction(place) as inside:
                within = replace(removal, place=inside)
                await _remove_orphans(within, following, keys)
        else:
            await _remove_orphans(removal, following, keys)
        if not removal.is_done:
            break
    resume = removal.resume(request, has_more=has_more)
    return BatchResult(0, resume, referring=dict(removal.removed))


async def _remove_orphans(
    removal: FollowersRemoval, following: Following, keys: list[tuple[object, ...]]
) -> None:
    """Remove the documents with these parent keys, if the parents are still missing."""
    own, theirs = following.links.own, following.links.theirs
    complete = [key for key in keys if None not in key]
    existing: list[tuple[object, ...]] = []
    if complete:
        parents = removal.place.sibling(following.links.collection)
        fields = {"_id": 1, **{path.partition(".")[0]: 1 for path in theirs}}
        rows = await parents.find(having(theirs, complete), projection=fields)
        existing = [keys_with_nulls(row, theirs) for row in rows]
    missing = [key for key in keys if key not in existing]
    if missing:
        await removal.of_matching(following, having(own, missing))


async def _orphaned_keys(
    place: RawCollection, following: Following, limit: int
) -> list[tuple[object, ...]]:
    """Return parent keys of documents that no parent has."""
    if following.declared.orphan == "live":
        return []
    own = following.links.own
    fields = list(dict.fromkeys(path.partition(".")[0] for path in own))
    if len(fields) == 1:
        distinct: Pipeline = [
            {"$group": {"_id": f"${fields[0]}"}},
            {"$replaceWith": {fields[0]: "$_id"}},
        ]
    else:
        distinct = [
            {"$group": {"_id": {field: f"${field}" for field in fields}}},
            {"$replaceWith": "$_id"},
        ]
    # Each key once: if an index begins with it, the server reads only that index.
    pipeline = [*distinct, *orphans_of(following), {"$limit": limit}]
    rows = await place.sibling(following.collection).aggregate(pipeline, allowDiskUse=True)
    return [keys_with_nulls(row, own) for row in rows]


# What ttl-odm check reports


async def check_followers(checked: Checked) -> list[Finding]:
    """Check that sweeps find the followers of a collection by an index."""
    findings = []
    for following in all_followers(checked.collection):
        own, model = following.links.own, following.model.__name__
        place = checked.collection.database.client[following.database][following.collection]
        existing = await indexes_of(place)
        aim = Aim(following.collection, (), following.declared, rebuild=False, can_change=True)
        options = (await details_of(place)).get("options", {})
        try:
            check_clustered(options, following.collection, following.declared)
            aim.relied_on(existing)
        except TTLConfigurationError as error:
            findings.append(checked.wrong_index(error, model))
        if not any(leads_to(index, own) for index in existing):
            message = (
                f"{following.collection}({', '.join(own)}) follows it and has no index, so a sweep "
                "reads all of that collection for each batch of expired documents"
            )
            fix = f"await ensure_indexes({model})"
            findings.append(checked.warning("missing-follows-index", message, fix))
    return findings
