"""Counts for `ttl-odm plan` in MongoDB; `sample` decides which documents are counted.

Stretches are ranges of ``_id``, if these are ObjectIds or integers. ``$sample`` isn't used: its
random cursor prefers some documents so much that the answer was off by twice its error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bson import Int64, ObjectId

from ttl_odm.beanie.policy import bindings
from ttl_odm.beanie.policy.bindings import collection_of, expires_itself
from ttl_odm.beanie.policy.commands import details_of, first_batch, run
from ttl_odm.beanie.policy.predicate import expired_expr
from ttl_odm.beanie.policy.rules import all_rules_below
from ttl_odm.beanie.policy.sources import MOST_SCOPES
from ttl_odm.beanie.policy.ttl_indexes import check as check_policy
from ttl_odm.beanie.rewrite.lookups import counted as stages_counting
from ttl_odm.beanie.time import formats
from ttl_odm.core.policy import TTL, instant_field
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.forecast import sample
from ttl_odm.forecast.estimates import of_followers
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.inspection.readers.mongodb import misread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ttl_odm.beanie.drivers import Collection, Database, Document, Pipeline
    from ttl_odm.beanie.policy.sources import OwnScopes
    from ttl_odm.core.policy import Policy
    from ttl_odm.forecast.estimates import Measured

_FOLLOWERS: Final = "__ttl_followers"
_MILLISECONDS: Final = 600_000
_LAST: Final = 2**96 - 1
_KEYS: Final[dict[type, Callable[[int], object]]] = {
    ObjectId: lambda place: ObjectId(f"{min(place, _LAST):024x}"),
    int: Int64,
    Int64: Int64,
}
"""The types of ``_id`` that have an order for samples, and what makes one of a place."""


def collection_for(database: Database, target: type | str) -> Collection:
    """Return the collection of a document class or of a name.

    Raises:
        TTLConfigurationError: The database can't count by age.
    """
    if expires_itself(getattr(database, "ttl_backend", "mongodb")):
        raise TTLConfigurationError(
            "Azure Cosmos DB has no command that reads when documents were last modified, so it "
            "can't be forecast which would expire."
        )
    return database[target] if isinstance(target, str) else collection_of(target)


def as_stored(model: type | None, planned: Policy | None) -> Policy | None:
    """Return a planned policy in terms of stored documents, whose fields may have aliases."""
    if planned is None:
        return None
    check_policy(planned)
    return planned if model is None else bindings.as_stored(model, planned)


def scopes_of(model: type | None, current: Policy | None) -> OwnScopes | None:
    """Return the scopes with stored defaults of their own, by a policy just read; None without."""
    bound = None if model is None else bindings.binding_of(model)
    return None if bound is None or current is None else bound.source.own_scopes(current)


async def measure(
    collection: Collection,
    current: Policy | None,
    planned: Policy | None,
    big: float = SMALL,
    scopes: OwnScopes | None = None,
) -> Measured:
    """Count the documents of a collection by its policy and a planned one; at least one exists.

    Args:
        collection: PyMongo's asynchronous one or Motor's, gated or not.
        current: The current policy, if there is one.
        planned: The planned policy, if there is one.
        big: The most documents that are all counted; of more, a sample is.
        scopes: The scopes whose documents are counted separately.

    Raises:
        TTLConfigurationError: The database has no such collection.
    """
    # Commands bypass the gate, so expired documents count. This count is from the metadata.
    if not await details_of(collection):
        raise TTLConfigurationError(f"there is no collection {collection.name!r} in the database.")
    rows = int((await run(collection, {"count": collection.name}))["n"])
    both = {"current": current, "planned": planned}
    policies = {name: policy for name, policy in both.items() if policy is not None}
    conditions = _conditions(policies)
    # The questions are numbered, since not every name can be a field's.
    sums = {
        str(number): {"$sum": {"$cond": [condition, 1, 0]}}
        for number, condition in enumerate(conditions.values())
    }
    rules = all_rules_below(collection)
    with_followers = sample.questions_of_followers(conditions) if rules else []
    names = [*conditions, *map(of_followers, with_followers)]
    counting: Pipeline = []
    if rules:
        ends = [conditions[name] for name in sample.ends_of(policies)]
        counting = stages_counting(rules, _FOLLOWERS, when={"$or": ends})
    for number, name in enumerate(with_followers, len(conditions)):
        sums[str(number)] = {"$sum": {"$cond": [conditions[name], f"${_FOLLOWERS}", 0]}}
    kind, order = await _order(collection) if rows > big else (int, None)
    plan = sample.plan(names, rows, big, order)
    try:
        part = next(plan)
        while True:
            stages: Pipeline = []
            if part.within is not None:
                low, high = map(_KEYS[kind], part.within)
                within = {"_id": {"$gte": low, "$lt": high}}
                stages = [{"$match": within}, {"$limit": part.limit}]
            elif part.share < 1:
                stages = [{"$match": {"$sampleRate": part.share}}]
            scope = None if scopes is None else scopes.number
            grouping = {"$group": {"_id": scope, **sums}}
            groups = await _aggregated(collection, [*stages, *counting, grouping])
            counted = [
                (_name(scopes, group["_id"]), *(group[key] for key in sums)) for group in groups
            ]
            part = plan.send(sample.answers(counted))
    except StopIteration as stop:
        measured: Measured = stop.value
        return measured


async def doubts(collection: Collection, policy: Policy | None) -> list[str]:
    """Return sentences about documents whose own ttl seems to be in another unit than seconds."""
    wrong = None if policy is None else await misread(collection, policy)
    return [] if wrong is None else [wrong.sentences]


def _name(scopes: OwnScopes | None, number: int | None) -> str | None:
    """Return the scope of a group; None for the group of all others."""
    return None if scopes is None or number is None or number < 0 else scopes.names[number]


async def _aggregated(collection: Collection, stages: Sequence[Document]) -> list[Document]:
    batch = {"batchSize": MOST_SCOPES + 1}  # the most groups that there can be
    command = {"aggregate": collection.name, "pipeline": list(stages), "cursor": batch}
    return await first_batch(collection, command | {"maxTimeMS": _MILLISECONDS})


async def _order(collection: Collection) -> tuple[type, sample.Order | None]:
    """Return the type of ``_id``, and the order of its values; None if they can't be ordered."""
    ends = []
    for direction in (1, -1):
        first = {"$sort": {"_id": direction}}, {"$limit": 1}, {"$project": {"_id": 1}}
        (document,) = await _aggregated(collection, first)
        ends.append(document["_id"])
    kind = type(ends[0])
    if kind is not type(ends[1]) or kind not in _KEYS:
        return int, None
    lowest, highest = (int(str(end), 16) if kind is ObjectId else int(end) for end in ends)
    return kind, sample.Order(lowest, highest - lowest + 1)


def _conditions(policies: dict[str, Policy]) -> dict[str, Any]:
    """Return the conditions of the questions, as expressions of an aggregation."""
    policy = policies.get("planned") or policies["current"]
    override = policy.override if isinstance(policy, TTL) else None
    field = f"${instant_field(policy)}"
    is_dated = {"$eq": [{"$type": field}, "date"]}
    now = formats.server_now()
    return sample.questions(
        policies,
        all_rows=True,
        dated=is_dated,
        own={"$gt": [f"${override}", None]} if override else {"$literal": False},
        expired=lambda name, seconds: expired_expr(policies[name], {"$add": [now, seconds * 1000]}),
        older=lambda seconds: {
            "$and": [is_dated, {"$lte": [field, {"$subtract": [now, seconds * 1000]}]}]
        },
        but_not=lambda one, other: {"$and": [one, {"$not": [other]}]},
    )
