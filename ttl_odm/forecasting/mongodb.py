"""Counting for `ttl-odm plan` in MongoDB: one aggregation, of a sample where there is much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from ttl_odm.beanie.commands import first_batch, run
from ttl_odm.beanie.own_writes import collection_of
from ttl_odm.beanie.predicate import expired_expr
from ttl_odm.core.policy import TTL
from ttl_odm.forecasting.forecast import Measured, questions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.core.policy import Policy

BIG: Final = 1_000_000
SAMPLED: Final = 40_000
"""Documents: MongoDB draws so many one by one, and not more than a twentieth of a collection."""

_MILLISECONDS: Final = 600_000
_NEVER: Final = {"$literal": False}


async def measure(
    model: Any, current: Policy, planned: Policy | None, bounds: Sequence[int], big: int = BIG
) -> Measured:
    """Count.

    Args:
        model: A document class that `init_beanie` has seen.
        current: Its policy.
        planned: Another one over the same fields; None for none.
        bounds: Those of the histogram, seconds before now.
        big: Documents from which on a sample is taken.
    """
    collection: Any = collection_of(model)
    # By commands that go past the gate: expired documents count, and by the metadata.
    rows = int((await run(collection, {"count": collection.name}))["n"])
    asked = questions(is_planned=planned is not None, bounds=bounds)
    policies = {"current": current, **({} if planned is None else {"planned": planned})}
    sums = {
        str(place): {"$sum": {"$cond": [_condition(name, policies), 1, 0]}}
        for place, name in enumerate(asked)
    }
    pipeline: list[dict[str, Any]] = [{"$group": {"_id": None, **sums}}]
    if rows > big:
        pipeline.insert(0, {"$sample": {"size": min(SAMPLED, rows // 20)}})
    command = {
        "aggregate": collection.name,
        "pipeline": pipeline,
        "cursor": {},
        "maxTimeMS": _MILLISECONDS,
    }
    found = await first_batch(collection, command)
    answers = [found[0][str(place)] if found else 0 for place in range(len(asked))]
    is_sample = rows > big
    return Measured(asked, [answers], rows if is_sample else None, is_drawn_singly=is_sample)


def _condition(name: str, policies: dict[str, Policy]) -> Any:
    kind, _, number = name.partition(" ")
    policy = policies["current"]
    field = f"${policy.last_modified if isinstance(policy, TTL) else policy.field}"
    is_dated = {"$eq": [{"$type": field}, "date"]}
    if kind in policies:
        return _at(policies[kind], int(number))
    if kind == "older":
        moment = {"$subtract": ["$$NOW", int(number) * 1000]}
        return {"$and": [is_dated, {"$lte": [field, moment]}]}
    if kind in ("lost", "revived"):
        before, after = _at(policy, 0), _at(policies["planned"], 0)
        first, second = (after, before) if kind == "lost" else (before, after)
        return {"$and": [first, {"$not": [second]}]}
    own = policy.override if isinstance(policy, TTL) else None
    has_own = _NEVER if own is None else {"$gt": [f"${own}", None]}
    return {"rows": True, "dated": is_dated, "own": has_own}[kind]


def _at(policy: Policy, seconds: int) -> Any:
    later: Any = {"$add": ["$$NOW", seconds * 1000]}
    return expired_expr(policy, cast("str", later))
