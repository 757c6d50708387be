"""Counting for `ttl-odm plan` in MongoDB: one aggregation, or of a big collection a sample.

The sample is of `stretches` of ``_id``, where these are ObjectIds or integers; otherwise documents
are drawn one by one, which reads the collection but judges few. It is not ``$sample``: its random
cursor prefers some documents so much that the answer was off by twice its error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bson import Int64, ObjectId

from ttl_odm.beanie.policy import binding
from ttl_odm.beanie.policy.binding import collection_of
from ttl_odm.beanie.policy.commands import details_of, first_batch, run
from ttl_odm.beanie.policy.predicate import expired_expr
from ttl_odm.beanie.policy.ttl_indexes import check as check_policy
from ttl_odm.beanie.time import instants
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.forecast import stretches
from ttl_odm.forecast.estimates import Drawn, Measured
from ttl_odm.forecast.forecast import questions
from ttl_odm.inspection.evidence import SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ttl_odm.core.policy import Policy

_MILLISECONDS: Final = 600_000
_NEVER: Final = {"$literal": False}


def collection_for(database: Any, given: Any) -> Any:
    """Return the collection of a document class, or the one of a name."""
    return database[given] if isinstance(given, str) else collection_of(given)


def as_stored(model: type | None, planned: Policy | None) -> Policy | None:
    """Return a planned policy as it is meant for stored documents.

    Args:
        model: The document class, if there is one.
        planned: The policy; None for none.

    Raises:
        TTLConfigurationError: It can't work on MongoDB.
    """
    if planned is None:
        return None
    check_policy(planned)
    return planned if model is None else binding.as_stored(model, planned)


async def measure(
    collection: Any,
    current: Policy | None,
    planned: Policy | None,
    bounds: Sequence[int],
    big: float = SMALL,
) -> Measured:
    """Count.

    Args:
        collection: Of PyMongo's asynchronous driver or of Motor, gated or not.
        current: Its policy; None for none, where another is planned.
        planned: Another one; None for none.
        bounds: Those of the histogram, seconds before now.
        big: Documents beyond which a sample is taken; infinity for none.

    Raises:
        TTLConfigurationError: There is no such collection.
    """
    # By commands that go past the gate: expired documents count, and by the metadata.
    if not await details_of(collection):
        raise TTLConfigurationError(f"there is no collection {collection.name!r} in the database.")
    rows = int((await run(collection, {"count": collection.name}))["n"])
    both = {"current": current, "planned": planned}
    policies = {name: policy for name, policy in both.items() if policy is not None}
    asked = questions(policies, bounds)
    sums = {
        str(place): {"$sum": {"$cond": [_condition(name, policies), 1, 0]}}
        for place, name in enumerate(asked)
    }
    counting = _Counting(collection, {"$group": {"_id": None, **sums}}, asked)
    if rows > big:
        return await counting.in_stretches(rows) or await counting.drawn_singly(rows)
    return Measured(asked, [await counting.of([])])


class _Counting:
    """The asking of one collection.

    Args:
        collection: It.
        group: The stage that answers.
        asked: What.
    """

    def __init__(self, collection: Any, group: dict[str, Any], asked: Sequence[str]) -> None:
        self._collection = collection
        self._group = group
        self._asked = asked

    async def of(self, stages: list[dict[str, Any]]) -> list[int]:
        """Count what stages of a pipeline let through."""
        found = await self._aggregated([*stages, self._group])
        return [found[0][str(place)] if found else 0 for place in range(len(self._asked))]

    async def in_stretches(self, rows: int) -> Measured | None:
        """Count in one stretch of each part; None where ``_id`` is not made for it."""
        ends = [await self._first_by(order) for order in (1, -1)]
        kind = type(ends[0])
        if kind is not type(ends[1]) or kind not in _KEYS:
            return None
        lowest, highest = map(_place, ends)
        count = highest - lowest + 1
        width = stretches.width_of(count, rows)
        places, every = stretches.drawn(lowest, count, width)
        found = []
        for low, high in places:
            within = {"$gte": _KEYS[kind](low), "$lt": _KEYS[kind](high)}
            some: list[dict[str, Any]] = [
                {"$match": {"_id": within}},
                {"$limit": stretches.TOO_MANY},
            ]
            found.append(await self.of(some))
            if found[-1][0] >= stretches.TOO_MANY:
                break
        return stretches.measured(self._asked, found, every)

    async def drawn_singly(self, rows: int) -> Measured:
        """Count in a sample of single documents."""
        rate = min(1.0, stretches.PARTS * stretches.ROWS / rows)
        found = await self.of([{"$match": {"$sampleRate": rate}}])
        return Measured(self._asked, [found], Drawn.SINGLY, rows)

    async def _first_by(self, order: int) -> Any:
        stages: list[dict[str, Any]] = [
            {"$sort": {"_id": order}},
            {"$limit": 1},
            {"$project": {"_id": 1}},
        ]
        (found,) = await self._aggregated(stages)
        return found["_id"]

    async def _aggregated(self, pipeline: list[dict[str, Any]]) -> list[dict[str, Any]]:
        command = {
            "aggregate": self._collection.name,
            "pipeline": pipeline,
            "cursor": {},
            "maxTimeMS": _MILLISECONDS,
        }
        return await first_batch(self._collection, command)


def _place(key: Any) -> int:
    return int(str(key), 16) if isinstance(key, ObjectId) else int(key)


def _object_id(place: int) -> ObjectId:
    return ObjectId(f"{min(place, _LAST):024x}")


_LAST: Final = 2**96 - 1
_KEYS: Final[dict[type, Callable[[int], Any]]] = {
    ObjectId: _object_id,
    int: Int64,
    Int64: Int64,
}
"""The kinds of ``_id`` that can be counted along, and how a place becomes one."""


def _condition(name: str, policies: dict[str, Policy]) -> Any:
    kind, _, number = name.partition(" ")
    policy = policies.get("planned") or policies["current"]
    field = f"${policy.last_modified if isinstance(policy, TTL) else policy.field}"
    is_dated = {"$eq": [{"$type": field}, "date"]}
    if kind in policies:
        return _at(policies[kind], int(number))
    if kind == "older":
        moment = {"$subtract": [instants.server_now(), int(number) * 1000]}
        return {"$and": [is_dated, {"$lte": [field, moment]}]}
    if kind in ("lost", "revived"):
        before, after = (_at(policies[each], 0) for each in ("current", "planned"))
        first, second = (after, before) if kind == "lost" else (before, after)
        return {"$and": [first, {"$not": [second]}]}
    own = policy.override if isinstance(policy, TTL) else None
    has_own = _NEVER if own is None else {"$gt": [f"${own}", None]}
    return {"rows": True, "dated": is_dated, "own": has_own}[kind]


def _at(policy: Policy, seconds: int) -> Any:
    return expired_expr(policy, {"$add": [instants.server_now(), seconds * 1000]})
