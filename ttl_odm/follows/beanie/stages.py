"""Documents that live while their parents do: what the server is asked, instead of a predicate.

A filter can't look into another collection, a pipeline can. So what stands in the place of a
predicate are stages: a ``$lookup`` of the parent, and a ``$match`` for having found a live one. By
`FOLLOWED` a document carries what says when its parent expires, until it is shown.

Pure functions. This module must not know drivers, nor who asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bson import DBRef

from ttl_odm.beanie.policy.entries import Judged
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
    from ttl_odm.follows.beanie.following import Following

FOLLOWED: Final = "__ttl_followed"
"""The parents of a document, of each what says when it expires."""
_LIVES: Final = "__ttl_lives"
"""In such a parent: whether it lives, where that has not been asked already."""
_TRUE: Final[Document] = {"$literal": True}
_NO_MATCH: Final = frozenset({"$near", "$nearSphere", "$where"})
_NO_PROJECTION: Final = frozenset({"$elemMatch", "$slice"})


HIDE: Final[Document] = {"$unset": FOLLOWED}


@dataclass(frozen=True, slots=True)
class ByParents(Judged):
    """How the documents of a collection are judged, each of which then has `FOLLOWED`.

    `gives` are the stages that leave, of a document, what says when it expires.
    """

    gives: Pipeline


def judged(following: Following) -> ByParents:
    """Return how documents that follow others are judged at this moment.

    The same object while nothing has changed, for each read asks: it must not be changed.
    """
    basis, kept = _basis(following), following.kept
    if kept is None or kept[0] != basis:  # the same objects are equal at once
        parent = basis if isinstance(basis, ByParents) else _by(*basis)
        kept = following.kept = basis, _made(following, parent)
    made: ByParents = kept[1]
    return made


def _basis(following: Following) -> ByParents | tuple[Policy, Document | None]:
    """Return by what a parent is judged: as what it follows is, or its policy and predicate."""
    above = following.above
    if above is not None:
        return judged(above)
    policy = following.root.policy
    return policy, filters.live(policy)


def _made(following: Following, parent: ByParents) -> ByParents:
    links = following.links
    is_open = following.declared.orphan == "live"
    (own, theirs), *others = links.pairs
    inner: Pipeline = []
    let: Document = {}
    if theirs != "_id":  # null identifies nothing
        inner.append({"$match": {theirs: {"$ne": None}}})
    for number, (mine, its) in enumerate(others):
        let[f"key{number}"] = expression(mine)
        both = [expression(its), f"$$key{number}"]
        inner.append({"$match": {"$expr": {"$eq": both}, its: {"$ne": None}}})
    # Of a parent with a lifetime of its own the server judges what it has found, not each parent
    # in a pipeline of its own: that it would parse anew, with the predicate, for each document.
    is_judged_here = not is_open and not parent.stages
    if is_judged_here:
        inner += parent.gives
    elif is_open:
        inner += [*parent.stages, {"$set": {_LIVES: parent.condition}}, *_with_lives(parent.gives)]
    else:
        inner += [*parent.live, *parent.gives]
    lookup: Document = {
        "from": links.collection,
        "localField": own,
        "foreignField": theirs,
        **({"let": let} if let else {}),
        "pipeline": inner,
        "as": FOLLOWED,
    }
    found: Document = {"$ne": [f"${FOLLOWED}", []]}
    living: Any = f"${FOLLOWED}"
    if is_judged_here and parent.condition is not _TRUE:
        lives = of_variable("$$parent", parent.condition)
        each = {"input": living, "as": "parent"}
        found = {"$anyElementTrue": [{"$map": {**each, "in": lives}}]}
        living = {"$filter": {**each, "cond": lives}}
    elif is_open:
        any_lives = {"$anyElementTrue": [f"${FOLLOWED}.{_LIVES}"]}
        found = {"$or": [{"$not": [found]}, any_lives]}
    first = {"$ifNull": [{"$first": living}, {}]}
    return ByParents([{"$lookup": lookup}], found, HIDE, [{"$replaceWith": first}])


def _by(policy: Policy, predicate: Document | None) -> ByParents:
    fields: Document = dict.fromkeys(deciding_fields(policy), 1)
    gives = [{"$project": {"_id": 0, **fields}}]
    return ByParents([], predicate or _TRUE, HIDE, gives)


def _with_lives(gives: Pipeline) -> Pipeline:
    """Return the stages that give what says when a document expires, with whether it lives."""
    (stage,) = gives
    if "$project" in stage:
        return [{"$project": {**stage["$project"], _LIVES: 1}}]
    merged = {"$mergeObjects": [stage["$replaceWith"], {_LIVES: f"${_LIVES}"}]}
    return [{"$replaceWith": merged}]


def parents_of(following: Following) -> Pipeline:
    """Return the stages that leave documents without a parent, live or not."""
    (own, theirs), *others = following.links.pairs
    let = {f"key{number}": expression(mine) for number, (mine, _) in enumerate(others)}
    same = [
        {"$match": {"$expr": {"$eq": [expression(its), f"$$key{number}"]}, its: {"$ne": None}}}
        for number, (_, its) in enumerate(others)
    ]
    inner = [{"$match": {theirs: {"$ne": None}}}, *same, {"$limit": 1}, {"$project": {"_id": 1}}]
    lookup: Document = {
        "from": following.links.collection,
        "localField": own,
        "foreignField": theirs,
        **({"let": let} if let else {}),
        "pipeline": inner,
        "as": FOLLOWED,
    }
    return [{"$lookup": lookup}, {"$match": {FOLLOWED: []}}]


def is_over(document: object, policy: Policy, now: datetime) -> bool:
    """Say whether all parents that a document carries have expired by now."""
    parents = document.get(FOLLOWED) if isinstance(document, Mapping) else None
    if not isinstance(parents, list) or not parents:
        return False  # nobody can tell, or it lives without one
    ends = [end_of(parent, policy) for parent in parents]
    return all(end is not None and end <= now for end in ends)


# Pipelines in the place of finds


def find_pipeline(  # noqa: PLR0913 (the clauses of a find)
    made: Judged,
    asked: Filter,
    *,
    sort: Filter | None = None,
    skip: int = 0,
    limit: int = 0,
    projection: Filter | None = None,
) -> Pipeline:
    """Return the pipeline that finds what a find would, of live documents, each with `FOLLOWED`."""
    _check_filter(asked)
    order: Pipeline = [{"$sort": dict(sort)}] if sort else []
    stages, _ = live_stages([{"$match": dict(asked)}] if asked else [], made)
    if not filters.has_expr(asked):  # the index that finds them may sort them, too
        first, stages = (stages[:1], stages[1:]) if asked else ([], stages)
        stages = [*first, *order, *stages]
    else:
        stages = [*stages, *order]
    if skip:
        stages.append({"$skip": skip})
    if limit:
        stages.append({"$limit": limit})
    if projection:
        stages.append({"$project": shown_with(projection)})
    return stages


def shown_with(projection: Filter) -> Document:
    """Return a projection that shows `FOLLOWED` besides."""
    made = {str(name): value for name, value in projection.items()}
    for name, value in made.items():
        operators = value.keys() & _NO_PROJECTION if isinstance(value, Mapping) else ()
        if operators or name.endswith(".$"):
            raise TTLError(
                f"The projection {projection!r} selects parts of an array, which pipelines don't "
                "support, and documents that follow others are read by pipelines: write $filter "
                "or $slice in aggregate()."
            )
    if filters.is_inclusive(made) or (set(made) == {"_id"} and made["_id"]):
        made[FOLLOWED] = 1
    return made


def _check_filter(asked: Filter) -> None:
    for name, value in asked.items():
        if str(name) in ("$and", "$or", "$nor") and isinstance(value, list):
            for branch in value:
                if isinstance(branch, Mapping):
                    _check_filter(branch)
            continue
        inside = value.keys() if isinstance(value, Mapping) else set()
        if found := _NO_MATCH & {str(name), *map(str, inside)}:
            operator = min(found)
            raise TTLError(
                f"The filter has {operator}, which pipelines don't support, and documents that "
                "follow others are read by pipelines: write $geoNear in aggregate() for "
                "locations, $expr for $where."
            )


# What a document says of its parent


def keys_in(document: Filter, paths: Iterable[str]) -> tuple[Any, ...] | None:
    """Return a parent's key as a document to be stored has it; None where a part is missing."""
    values = keys_with_nulls(document, paths)
    return None if any(value is None for value in values) else values


def keys_with_nulls(document: Filter, paths: Iterable[str]) -> tuple[Any, ...]:
    """Return the same, with None for each part that is missing."""
    return tuple(_at(document, path) for path in paths)


def _at(document: Filter, path: str) -> Any:
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
    """Say whether any of these fields is one that leads to the parent."""
    listed = [str(name) for name in names]
    return any(filters.mentions(listed, path) for path in paths)


def having(paths: Sequence[str], keys: Sequence[Sequence[Any]]) -> Document:
    """Return the filter for documents with one of these keys."""
    if len(paths) == 1:
        return {paths[0]: {"$in": [key[0] for key in keys]}}
    return {"$or": [dict(zip(paths, key, strict=True)) for key in keys]}
