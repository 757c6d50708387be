"""The pipeline stages that take the place of a predicate: they judge documents by their parents.

A filter can't look into another collection, but a pipeline can: by a ``$lookup`` of the parent, and
a ``$match`` for a live one. In the field `FOLLOWED` each document carries the fields of its parents
that say when they expire, until it is shown.

Pure functions. This module must not know drivers, nor its callers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bson import DBRef

from ttl_odm.beanie.policy.bindings import StageJudge
from ttl_odm.beanie.policy.predicate import deciding_fields, end_of, value_at
from ttl_odm.beanie.rewrite import filters
from ttl_odm.beanie.rewrite.lookups import expression, of_variable
from ttl_odm.beanie.rewrite.pipelines import live_stages
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from ttl_odm.beanie.drivers import Document, Filter, Pipeline
    from ttl_odm.core.policy import Policy
    from ttl_odm.follows.beanie.follower import Following

FOLLOWED: Final = "__ttl_followed"
"""The parents of a document; each has the fields that say when it expires."""
_LIVES: Final = "__ttl_lives"
"""In such a parent: whether it lives. Set only if orphans are live."""
_TRUE: Final[Document] = {"$literal": True}
_NO_MATCH: Final = frozenset({"$near", "$nearSphere", "$where"})
_NO_PROJECTION: Final = frozenset({"$elemMatch", "$slice"})

HIDE: Final[Document] = {"$unset": FOLLOWED}
"""The stage that removes `FOLLOWED`."""


@dataclass(frozen=True, slots=True)
class ByParents(StageJudge):
    """How the documents of a collection are judged; each of them gets `FOLLOWED`.

    `gives` are the stages that reduce a document to the fields that say when it expires.
    """

    gives: Pipeline


def judged(following: Following) -> ByParents:
    """Return how documents that follow others are judged at this moment.

    Each read asks, so the object is cached while nothing changes. Callers must not change it.
    """
    above, cached = following.above, following.cached
    basis: ByParents | tuple[Policy, Document | None]
    if above is not None:  # the parent is judged by its own parents
        basis = judged(above)
    else:
        policy = following.root.policy
        basis = policy, filters.live(policy)
    if cached is None or cached[0] != basis:  # comparing identical objects is fast
        parent = basis if isinstance(basis, ByParents) else _by_policy(*basis)
        cached = following.cached = basis, _by_parents(following, parent)
    result: ByParents = cached[1]
    return result


def _by_parents(following: Following, parent: ByParents) -> ByParents:
    orphans_live = following.declared.orphan == "live"
    # The condition of a parent with its own lifetime is evaluated outside of the lookup. Inside,
    # the server would parse it anew for each document.
    is_judged_outside = not orphans_live and not parent.stages
    if is_judged_outside:
        inner = parent.gives
    elif orphans_live:
        inner = [*parent.stages, {"$set": {_LIVES: parent.condition}}, *_with_lives(parent.gives)]
    else:
        inner = [*parent.live, *parent.gives]
    lives: Document = {"$ne": [f"${FOLLOWED}", []]}
    live_parents: object = f"${FOLLOWED}"
    if is_judged_outside and parent.condition is not _TRUE:
        parent_lives = of_variable("$$parent", parent.condition)
        parents = {"input": live_parents, "as": "parent"}
        lives = {"$anyElementTrue": [{"$map": {**parents, "in": parent_lives}}]}
        live_parents = {"$filter": {**parents, "cond": parent_lives}}
    elif orphans_live:
        any_lives = {"$anyElementTrue": [f"${FOLLOWED}.{_LIVES}"]}
        lives = {"$or": [{"$not": [lives]}, any_lives]}
    first = {"$ifNull": [{"$first": live_parents}, {}]}
    return ByParents([_lookup(following, inner)], lives, HIDE, [{"$replaceWith": first}])


def _lookup(following: Following, inner: Pipeline, *, skips_null_id: bool = False) -> Document:
    """Return the stage that looks up the parents, and runs further stages on them."""
    links = following.links
    (own, theirs), *others = links.pairs
    same_key: Pipeline = []
    let: Document = {}
    if theirs != "_id" or skips_null_id:  # null identifies nothing
        same_key.append({"$match": {theirs: {"$ne": None}}})
    for number, (mine, its) in enumerate(others):
        let[f"key{number}"] = expression(mine)
        both = [expression(its), f"$$key{number}"]
        same_key.append({"$match": {"$expr": {"$eq": both}, its: {"$ne": None}}})
    lookup: Document = {
        "from": links.collection,
        "localField": own,
        "foreignField": theirs,
        **({"let": let} if let else {}),
        "pipeline": [*same_key, *inner],
        "as": FOLLOWED,
    }
    return {"$lookup": lookup}


def _by_policy(policy: Policy, predicate: Document | None) -> ByParents:
    fields: Document = dict.fromkeys(deciding_fields(policy), 1)
    gives = [{"$project": {"_id": 0, **fields}}]
    return ByParents([], predicate or _TRUE, HIDE, gives)


def _with_lives(gives: Pipeline) -> Pipeline:
    """Return the stages `gives`, changed to keep the field that says whether a parent lives."""
    (stage,) = gives
    if "$project" in stage:
        return [{"$project": {**stage["$project"], _LIVES: 1}}]
    merged = {"$mergeObjects": [stage["$replaceWith"], {_LIVES: f"${_LIVES}"}]}
    return [{"$replaceWith": merged}]


def orphans_of(following: Following) -> Pipeline:
    """Return the stages that leave only documents without a parent, live or expired."""
    inner: Pipeline = [{"$limit": 1}, {"$project": {"_id": 1}}]
    return [_lookup(following, inner, skips_null_id=True), {"$match": {FOLLOWED: []}}]


def is_over(document: object, policy: Policy, now: datetime) -> bool:
    """Say whether all parents that a document carries have expired by now."""
    parents = document.get(FOLLOWED) if isinstance(document, Mapping) else None
    if not isinstance(parents, list) or not parents:
        return False  # it isn't known, or the document lives without a parent
    ends = [end_of(parent, policy) for parent in parents]
    return all(end is not None and end <= now for end in ends)


# Pipelines in place of finds


def find_pipeline(  # noqa: PLR0913 (the clauses of a find)
    judgement: StageJudge,
    condition: Filter,
    *,
    sort: Filter | None = None,
    skip: int = 0,
    limit: int = 0,
    projection: Filter | None = None,
) -> Pipeline:
    """Return the pipeline of a find: it returns live documents only, each with `FOLLOWED`."""
    _check_filter(condition)
    order: Pipeline = [{"$sort": dict(sort)}] if sort else []
    stages, _ = live_stages([{"$match": dict(condition)}] if condition else [], judgement)
    if not filters.has_expr(condition):  # the index that finds documents may sort them, too
        first, stages = (stages[:1], stages[1:]) if condition else ([], stages)
        stages = [*first, *order, *stages]
    else:
        stages = [*stages, *order]
    if skip:
        stages.append({"$skip": skip})
    if limit:
        stages.append({"$limit": limit})
    if projection:
        stages.append({"$project": _with_parents(projection)})
    return stages


def _with_parents(projection: Filter) -> Document:
    """Return a projection that keeps `FOLLOWED`."""
    fields = {str(name): value for name, value in projection.items()}
    for name, value in fields.items():
        operators = value.keys() & _NO_PROJECTION if isinstance(value, Mapping) else ()
        if operators or name.endswith(".$"):
            raise TTLError(
                f"The projection {projection!r} selects parts of an array, which pipelines don't "
                "support, and documents that follow others are read by pipelines: write $filter "
                "or $slice in aggregate()."
            )
    if filters.is_inclusive(fields) or (set(fields) == {"_id"} and fields["_id"]):
        fields[FOLLOWED] = 1
    return fields


def _check_filter(condition: Filter) -> None:
    """Reject operators that ``$match`` doesn't support; TTLError."""
    for name, value in condition.items():
        if str(name) in ("$and", "$or", "$nor") and isinstance(value, list):
            for branch in value:
                if isinstance(branch, Mapping):
                    _check_filter(branch)
            continue
        inside = value.keys() if isinstance(value, Mapping) else set()
        if operators := _NO_MATCH & {str(name), *map(str, inside)}:
            raise TTLError(
                f"The filter has {min(operators)}, which pipelines don't support, and documents "
                "that follow others are read by pipelines: write $geoNear in aggregate() for "
                "locations, $expr for $where."
            )


# The keys of parents in documents


def keys_in(document: Filter, paths: Iterable[str]) -> tuple[object, ...] | None:
    """Return the key of a document's parent; None if a part of it is missing."""
    values = keys_with_nulls(document, paths)
    return None if any(value is None for value in values) else values


def keys_with_nulls(document: Filter, paths: Iterable[str]) -> tuple[object, ...]:
    """Return the key of a document's parent, with None for each part that is missing."""
    return tuple(_at(document, path) for path in paths)


def _at(document: Filter, path: str) -> object:
    if path in document:
        return document[path]
    field, ref, _ = path.partition(".$id")
    if not ref:
        return value_at(document, path)
    value = value_at(document, field)
    if isinstance(value, DBRef):
        return value.id
    if isinstance(value, Mapping):
        return value.get("$id")
    return None


def mentions_links(names: Iterable[object], paths: Iterable[str]) -> bool:
    """Say whether one of these fields leads to the parent."""
    fields = [str(name) for name in names]
    return any(filters.mentions(fields, path) for path in paths)


def having(paths: Sequence[str], keys: Sequence[Sequence[object]]) -> Document:
    """Return the filter for documents with one of these keys."""
    if len(paths) == 1:
        return {paths[0]: {"$in": [key[0] for key in keys]}}
    return {"$or": [dict(zip(paths, key, strict=True)) for key in keys]}
