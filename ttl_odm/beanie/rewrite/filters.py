"""Filters and pipelines, rewritten so that they see live documents only.

Pure functions from what the user wrote to what the server gets. Nothing here changes its
arguments, and nothing talks to a server.

Aggregation pipelines reach other collections by name (``$lookup``, ``$unionWith``,
``$graphLookup``), at any depth, so the policies are passed as a function from names. A pipeline
that touches no collection with a policy comes back as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from ttl_odm.beanie.policy.predicate import expired_expr, live_expr
from ttl_odm.beanie.policy.ttl_indexes import shortest_default
from ttl_odm.beanie.rewrite import merge
from ttl_odm.beanie.time import instants
from ttl_odm.core.policy import TTL

if TYPE_CHECKING:
    from datetime import datetime

    from ttl_odm.beanie.rewrite.stamps import Stamping
    from ttl_odm.core.policy import Policy

Document = dict[str, Any]
Pipeline = list[Document]


class Policies(Protocol):
    """The policies of the collections that a pipeline may reach."""

    def policy_named(self, database: str | None, collection: str) -> Policy | None:
        """Return a collection's policy; None for the database is the pipeline's own."""
        ...

    def stamping_named(self, database: str | None, collection: str) -> Stamping | None:
        """Return how writes to it are stamped."""
        ...


_NO_DOCUMENTS: Final = frozenset(
    {
        "$changeStream",
        "$collStats",
        "$currentOp",
        "$documents",
        "$indexStats",
        "$listLocalSessions",
        "$listSampledQueries",
        "$listSearchIndexes",
        "$listSessions",
        "$planCacheStats",
        "$queryStats",
        "$searchMeta",
        "$shardedDataDistribution",
    }
)
"""First stages that give something else than the collection's documents."""
_MUST_BE_FIRST: Final = frozenset({"$geoNear", "$search", "$vectorSearch"})


@lru_cache(maxsize=256)
def live(policy: Policy) -> Document | None:
    """Return the predicate of a policy on the server's clock, None if nothing ever expires.

    The same object every time: it must not be changed.
    """
    if never_expires(policy):
        return None
    return live_expr(policy)


def never_expires(policy: Policy) -> bool:
    """Say whether TTL is off."""
    return isinstance(policy, TTL) and shortest_default(policy) is None


def live_filter(given: Mapping[str, Any] | None, policy: Policy | None) -> Mapping[str, Any]:
    """Return the filter that matches the same documents as the given one, if they live."""
    predicate = None if policy is None else live(policy)
    given = {} if given is None else given
    return given if predicate is None else _with(given, predicate)


def expired_filter(given: Mapping[str, Any], policy: Policy) -> Mapping[str, Any] | None:
    """Return the filter that matches the same documents if they have expired, None for never."""
    return None if never_expires(policy) else _with(given, expired_expr(policy))


def at(given: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """Return a filter with a literal instant for the server's, which ``distinct`` doesn't know."""
    return {
        key: _replaced(value, now) if key == "$expr" else _within(value, now)
        for key, value in given.items()
    }


def insert_only(given: Mapping[str, Any]) -> Document:
    """Return the filter of an upsert that inserts what the given one would, and updates nothing.

    A ``$expr`` is not allowed in an upsert, so the predicate cannot be; but what follows from the
    filter's equalities is inserted all the same if nothing can match.
    """
    return {"$and": [dict(given), {"$nor": [{}]}]}


def equalities(given: Mapping[str, Any]) -> Document:
    """Return the fields of which a filter says what they are equal to."""
    found: Document = {}
    for name, value in given.items():
        if name == "$and":
            for each in value:
                found |= equalities(each)
        elif not name.startswith("$"):
            if not isinstance(value, Mapping) or not str(next(iter(value), "")).startswith("$"):
                found[name] = value
            elif "$eq" in value:
                found[name] = value["$eq"]
    return found


def live_pipeline(
    pipeline: Sequence[Mapping[str, Any]], own: Policy | None, policies: Policies
) -> Pipeline:
    """Return the pipeline that sees live documents only.

    Args:
        pipeline: What the user wrote.
        own: The policy of the collection that it starts from.
        policies: Those of the collections that it may look into.
    """
    stages = [made for stage in pipeline for made in _stages(dict(stage), policies)]
    predicate = None if own is None else live(own)
    return stages if predicate is None else _started(stages, predicate)


def _started(stages: Pipeline, predicate: Document) -> Pipeline:
    """Put the predicate as near to the start as MongoDB allows."""
    match = {"$match": {"$expr": predicate}}
    if not stages:
        return [match]
    operator = next(iter(stages[0]), "")
    if operator in _NO_DOCUMENTS:
        return stages
    if operator in _MUST_BE_FIRST:
        return [stages[0], match, *stages[1:]]
    if operator == "$match":  # into it: a $text must stay in the first stage
        return [{"$match": _with(stages[0]["$match"], predicate)}, *stages[1:]]
    return [match, *stages]


def _stages(stage: Document, policies: Policies) -> Pipeline:
    operator = next(iter(stage), "")
    if rewrite := _STAGES.get(operator):
        return [{operator: rewrite(stage[operator], policies)}]
    target = merge.target_of(stage)
    policy = None if target is None else policies.policy_named(*target)
    if target is None or policy is None:
        return [stage]
    return merge.stamped(stage, policy, policies.stamping_named(*target))


def _lookup(spec: Document, policies: Policies) -> Document:
    inner = spec.get("pipeline", [])
    outer = live_pipeline(inner, _policy_of(spec.get("from"), policies), policies)
    return {**spec, "pipeline": outer} if outer != inner else spec


def _graph_lookup(spec: Document, policies: Policies) -> Document:
    policy = _policy_of(spec["from"], policies)
    predicate = None if policy is None else live(policy)
    if predicate is None:
        return spec
    restriction = _with(spec.get("restrictSearchWithMatch", {}), predicate)
    return {**spec, "restrictSearchWithMatch": restriction}


def _union_with(spec: Document | str, policies: Policies) -> Document | str:
    given: Document = {"coll": spec} if isinstance(spec, str) else spec
    inner = given.get("pipeline", [])
    outer = live_pipeline(inner, _policy_of(given.get("coll"), policies), policies)
    return {**given, "pipeline": outer} if outer != inner else spec


def _facet(spec: Document, policies: Policies) -> Document:
    return {name: live_pipeline(inner, None, policies) for name, inner in spec.items()}


_STAGES: Final[dict[str, Callable[[Any, Policies], Any]]] = {
    "$facet": _facet,
    "$graphLookup": _graph_lookup,
    "$lookup": _lookup,
    "$unionWith": _union_with,
}


def _policy_of(source: object, policies: Policies) -> Policy | None:
    if isinstance(source, str):
        return policies.policy_named(None, source)
    if isinstance(source, Mapping):
        return policies.policy_named(source.get("db"), source.get("coll", ""))
    return None  # no collection: the stage makes its documents itself


def _with(given: Mapping[str, Any], predicate: Document) -> Document:
    """Add an expression at the top level, where equalities keep their use for indexes and shards.

    The predicate is first: an expression of the user's may fail on a document that is gone.
    """
    if "$expr" in given:
        return {**given, "$expr": {"$and": [predicate, given["$expr"]]}}
    return {**given, "$expr": predicate}


def _within(value: Any, now: datetime) -> Any:
    """Look for ``$expr`` in the branches of a filter ($and, $or, $nor)."""
    if isinstance(value, list):
        return [at(each, now) if isinstance(each, Mapping) else each for each in value]
    return value


def _replaced(expression: Any, now: datetime) -> Any:
    if expression in ("$$NOW", instants.server_now()):
        return now
    if isinstance(expression, Mapping):
        return {
            key: value if key == "$literal" else _replaced(value, now)
            for key, value in expression.items()
        }
    if isinstance(expression, list):
        return [_replaced(each, now) for each in expression]
    return expression
