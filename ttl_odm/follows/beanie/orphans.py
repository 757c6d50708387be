"""Documents that follow nothing: their parent was deleted before them, or never was.

They are expired, unless ``orphan="live"``, and no sweep of parents meets them. MongoDB has no
foreign keys that would keep them away, so each sweep compares the keys that a collection names with
those that are there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ttl_odm.beanie.purge.removal import transaction
from ttl_odm.follows.beanie.following import all_followers
from ttl_odm.follows.beanie.removal import FollowersRemoval
from ttl_odm.follows.beanie.stages import having, keys_with_nulls, parents_of
from ttl_odm.sweeper import BatchResult

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Pipeline
    from ttl_odm.beanie.policy.commands import RawCollection
    from ttl_odm.follows.beanie.following import Following
    from ttl_odm.sweeper import BatchRequest


async def has_orphans(place: RawCollection) -> bool:
    """Say whether there are any below a collection."""
    for following in all_followers(place.collection):
        if await _orphaned_keys(place, following, 1):
            return True
    return False


async def purge_orphans(place: RawCollection, request: BatchRequest) -> BatchResult:
    """Delete a batch of them, after what follows them."""
    removal, has_more = FollowersRemoval(place, request.size), False
    has_transactions = (await place.server()).has_transactions
    for following in all_followers(place.collection):
        keys = await _orphaned_keys(place, following, request.size)
        has_more = has_more or len(keys) == request.size
        if not keys:
            continue
        if has_transactions:
            # In it nobody sees a parent that has come meanwhile with some of these under it.
            async with transaction(place) as inside:
                within = replace(removal, place=inside)
                await _remove(within, following, keys)
        else:
            await _remove(removal, following, keys)
        if not removal.is_done:
            break
    before = request.resume if isinstance(request.resume, int) else 0
    done = removal.is_done and not has_more
    gone = removal.removed.total()
    resume = None if done or not gone else before + gone
    return BatchResult(0, resume, referring=dict(removal.removed))


async def _remove(
    removal: FollowersRemoval, following: Following, keys: list[tuple[Any, ...]]
) -> None:
    """Remove what has these keys, as far as they are still nobody's."""
    own, theirs = following.links.own, following.links.theirs
    named = [key for key in keys if None not in key]
    there: list[tuple[Any, ...]] = []
    if named:
        parents = removal.place.beside(following.links.collection)
        shown = {"_id": 1, **{path.partition(".")[0]: 1 for path in theirs}}
        rows = await parents.find(having(theirs, named), projection=shown)
        there = [keys_with_nulls(row, theirs) for row in rows]
    left = [key for key in keys if key not in there]
    if left:
        await removal.of_matching(following, having(own, left))


async def _orphaned_keys(
    place: RawCollection, following: Following, limit: int
) -> list[tuple[Any, ...]]:
    """Return keys that documents name, and no parent has."""
    if following.declared.orphan == "live":
        return []
    own = following.links.own
    fields = list(dict.fromkeys(path.partition(".")[0] for path in own))
    if len(fields) == 1:
        together: Pipeline = [
            {"$group": {"_id": f"${fields[0]}"}},
            {"$replaceWith": {fields[0]: "$_id"}},
        ]
    else:
        together = [
            {"$group": {"_id": {field: f"${field}" for field in fields}}},
            {"$replaceWith": "$_id"},
        ]
    # Once for each key. By an index that begins with it the server reads nothing else.
    pipeline = [*together, *parents_of(following), {"$limit": limit}]
    rows = await place.beside(following.collection).aggregate(pipeline, allowDiskUse=True)
    return [keys_with_nulls(row, own) for row in rows]
