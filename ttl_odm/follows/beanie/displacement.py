"""Documents whose parents have expired, in the way of a write that needs their keys."""

# ruff: noqa: A002 - `filter` is MongoDB's name for it

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.beanie.keys import patiently
from ttl_odm.beanie.policy.commands import RawCollection
from ttl_odm.follows.beanie.removal import FollowersRemoval
from ttl_odm.follows.beanie.stages import judged

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Collection, Document, Filter, Session
    from ttl_odm.follows.beanie.following import Following


async def remove_followers(
    collection: Collection,
    following: Following,
    filter: Filter,
    collation: Document | None,
    session: Session,
) -> int:
    """Delete documents that a filter matches and whose parents have expired; return how many."""
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
