"""Removing the documents that follow others before those, the deepest first.

In the transaction that removes the parents, or in some before it: no reader sees followers of
expired documents. Those stay expired, see `FollowersRemoval.of_expired`. Where the server has no
transactions the order alone has to do: what is interrupted leaves expired parents with fewer
followers, and never a follower without its parent.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.beanie.policy.commands import BY_KEY
from ttl_odm.beanie.policy.predicate import expired_expr
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY, inheriting_branches, own_expiry
from ttl_odm.core.policy import TTL
from ttl_odm.follows import sealing_ttl
from ttl_odm.follows.beanie.following import followers_of
from ttl_odm.follows.beanie.options import check_options
from ttl_odm.follows.beanie.stages import having, keys_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.beanie.drivers import Document, Filter
    from ttl_odm.beanie.policy.commands import RawCollection
    from ttl_odm.core.policy import Policy
    from ttl_odm.follows.beanie.following import Following

_CHUNK: Final = 1_000
"""Keys in one command."""


@dataclass(slots=True)
class FollowersRemoval:
    """The followers of documents, to be removed.

    Args:
        place: A collection of the database, perhaps in a transaction.
        limit: How many documents may go; None for all.
    """

    place: RawCollection
    limit: int | None = None
    removed: Counter[str] = field(default_factory=Counter)

    @property
    def is_done(self) -> bool:
        """Whether none is left; otherwise the limit was reached."""
        return self.limit is None or self.removed.total() < self.limit

    async def of_expired(self, policy: Policy, rows: Sequence[Filter]) -> None:
        """Remove those of documents of the place, as far as these have expired.

        Where some followers are left, the documents that inherit the default get a ttl of their
        own, with which they stay expired: a default that is raised would bring them back with half
        of what followed them.
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
        """Remove documents that follow others, after what follows them."""
        for model in following.models:
            check_options(model)
        place = self.place.beside(following.collection)
        if self.limit is None and not followers_of(place.collection):
            self.removed[following.collection] += await place.delete([condition])
            return
        while self.is_done:
            left = _CHUNK if self.limit is None else self.limit - self.removed.total()
            rows = await place.find(
                condition, limit=min(left, _CHUNK), projection=self._fields_of(place)
            )
            if not rows:
                return
            await self._below(place, rows)
            if self.is_done:
                doomed = {"$and": [condition, {"_id": {"$in": [row["_id"] for row in rows]}}]}
                self.removed[following.collection] += await place.delete([doomed], BY_KEY)

    async def _below(self, place: RawCollection, rows: Sequence[Any]) -> None:
        for following in followers_of(place.collection):
            theirs = following.links.theirs
            keys = [key for row in rows if (key := keys_in(row, theirs)) is not None]
            for start in range(0, len(keys), _CHUNK):
                found = having(following.links.own, keys[start : start + _CHUNK])
                await self.of_matching(following, found)
                if not self.is_done:
                    return

    @staticmethod
    def _fields_of(place: RawCollection) -> Document:
        paths = (path for one in followers_of(place.collection) for path in one.links.theirs)
        return dict.fromkeys(("_id", *(path.partition(".")[0] for path in paths)), 1)
