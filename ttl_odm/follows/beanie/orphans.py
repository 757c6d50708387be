"""Orphans: documents whose parent is missing, as it was deleted before them or never existed.

They are expired, unless ``orphan="live"``, but no sweep of their parents finds them. MongoDB has no
foreign keys that would prevent them, so each sweep looks up the parents of all keys in a
collection.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ttl_odm.beanie.purge.removal import transaction
from ttl_odm.follows.beanie.follower import all_followers
from ttl_odm.follows.beanie.removal import FollowersRemoval
from ttl_odm.follows.beanie.stages import having, keys_with_nulls, orphans_of
from ttl_odm.sweeper import BatchResult

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Pipeline
    from ttl_odm.beanie.policy.commands import RawCollection
    from ttl_odm.follows.beanie.follower import Following
    from ttl_odm.sweeper import BatchRequest


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
            # No reader sees some of these documents under a parent that was inserted meanwhile.
            async with transaction(place) as inside:
                within = replace(removal, place=inside)
                await _remove(within, following, keys)
        else:
            await _remove(removal, following, keys)
        if not removal.is_done:
            break
    resume = removal.resume(request, has_more=has_more)
    return BatchResult(0, resume, referring=dict(removal.removed))


async def _remove(
    removal: FollowersRemoval, following: Following, keys: list[tuple[Any, ...]]
) -> None:
    """Remove the documents with these parent keys, if the parents are still missing."""
    own, theirs = following.links.own, following.links.theirs
    complete = [key for key in keys if None not in key]
    existing: list[tuple[Any, ...]] = []
    if complete:
        parents = removal.place.beside(following.links.collection)
        fields = {"_id": 1, **{path.partition(".")[0]: 1 for path in theirs}}
        rows = await parents.find(having(theirs, complete), projection=fields)
        existing = [keys_with_nulls(row, theirs) for row in rows]
    missing = [key for key in keys if key not in existing]
    if missing:
        await removal.of_matching(following, having(own, missing))


async def _orphaned_keys(
    place: RawCollection, following: Following, limit: int
) -> list[tuple[Any, ...]]:
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
    rows = await place.beside(following.collection).aggregate(pipeline, allowDiskUse=True)
    return [keys_with_nulls(row, own) for row in rows]
