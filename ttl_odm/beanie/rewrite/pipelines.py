"""Pipelines rewritten to see live documents only, and to stamp what they write.

Pure functions. Pipelines reach other collections by name (``$lookup``, ``$unionWith``,
``$graphLookup``), at any depth, so they get `Policies`, which finds policies by name. A pipeline
that reaches no collection with a policy is returned as it is.

Documents are stamped before ``$out`` and ``$merge`` write them. ``$merge`` also meets existing
documents, and has to treat an expired one as absent, so that none of its values reappear. Its
``whenMatched`` does that, since there the server sees both documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from pymongo.errors import DuplicateKeyError, OperationFailure

from ttl_odm.beanie.policy.bindings import StageJudge
from ttl_odm.beanie.policy.predicate import deciding_fields, live_expr
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY
from ttl_odm.beanie.rewrite import filters
from ttl_odm.beanie.rewrite.filters import is_inclusive, mentions
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Document, Filter, Pipeline
    from ttl_odm.beanie.policy.bindings import Judge
    from ttl_odm.beanie.rewrite.stamps import Stamping
    from ttl_odm.core.policy import Policy


class Policies(Protocol):
    """The policies of the collections that a pipeline may reach."""

    def policy_named(self, database: str | None, collection: str) -> Policy | None:
        """Return a collection's policy; None for the database is the pipeline's own."""
        ...

    def judge_named(self, database: str | None, collection: str) -> Judge:
        """Return the policy or the stages that judge its documents."""
        ...

    def stamping_named(self, database: str | None, collection: str) -> Stamping | None:
        """Return how writes to the collection are stamped."""
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
"""First stages whose output is not the collection's documents."""
_KEEP_SHAPE: Final = frozenset(
    {
        *("$geoNear", "$graphLookup", "$limit", "$lookup", "$match"),
        *("$sample", "$search", "$skip", "$sort", "$unwind", "$vectorSearch"),
    }
)
_MAY_KEEP_SHAPE: Final = frozenset({"$addFields", "$project", "$set", "$unset"})
_MAKE_OTHERS: Final = frozenset({"$bucket", "$bucketAuto", "$count", "$group", "$sortByCount"})
_MUST_BE_FIRST: Final = frozenset({"$geoNear", "$search", "$vectorSearch"})

_MARK: Final = "__ttl_expired"
_MARKED: Final = f"${_MARK}"
"""The existing document, if it has expired, while the ``whenMatched`` stages run."""
_IS_MARKED: Final = {"$eq": [{"$type": _MARKED}, "object"]}
_FRESH: Final = {"$mergeObjects": ["$$new", {"_id": f"{_MARKED}._id"}]}
"""The new document in place of an existing one, whose ``_id`` can't change."""
_DUPLICATE: Final = "E11000 duplicate key in $merge: "
_REFUSED: Final = {
    "$cond": [
        _IS_MARKED,
        _MARKED,
        # No operator raises a given error, so `as_duplicate` turns this one into a duplicate key.
        {"$toInt": {"$concat": [_DUPLICATE, {"$toString": "$_id"}]}},
    ]
}


def live_pipeline(pipeline: Sequence[Filter], judge: Judge, policies: Policies) -> Pipeline:
    """Return the pipeline that sees live documents only.

    `judge` judges the documents of the collection that it starts from.
    """
    stages = [rewritten for stage in pipeline for rewritten in _stages(dict(stage), policies)]
    if isinstance(judge, StageJudge):
        return _judged(stages, judge)
    stages = _without_expiry(stages) if _has_expiry(judge) else stages
    predicate = None if judge is None else filters.live(judge)
    operator = next(iter(stages[0]), "") if stages else ""
    if judge is None or predicate is None or operator in _NO_DOCUMENTS:
        return stages
    stages = _guarded(stages, predicate, deciding_fields(judge))
    # The predicate stands as early as MongoDB allows.
    match = {"$match": {"$expr": predicate}}
    if operator in _MUST_BE_FIRST:
        return [stages[0], match, *stages[1:]]
    if operator == "$match":  # joined with it, since a $text must stay in the first stage
        return [{"$match": {"$expr": predicate, **stages[0]["$match"]}}, *stages[1:]]
    return [match, *stages]


def _judged(stages: Pipeline, judged: StageJudge) -> Pipeline:
    """Return the pipeline that sees live documents only, as judged by stages."""
    operator = next(iter(stages[0]), "") if stages else ""
    if operator in _NO_DOCUMENTS:
        return stages
    first = stages[:1] if operator in _MUST_BE_FIRST else []
    judging, rest = live_stages(stages[len(first) :], judged)
    return [*first, *judging, judged.hide, *rest]


def live_stages(first: Sequence[Filter], judged: StageJudge) -> tuple[Pipeline, Pipeline]:
    """Insert the judging stages into a pipeline; return the stages up to them, and the rest.

    They stand after the filters at the beginning, which may use indexes. But an expression in a
    filter may fail on an expired document, so such a filter comes after them, and is evaluated only
    for a live parent. (If it didn't refer to the parent, MongoDB would move it before the
    ``$lookup``.)
    """
    before: Pipeline = []
    rest = [dict(stage) for stage in first]
    while rest and isinstance(rest[0].get("$match"), Mapping):
        if filters.has_expr(rest[0]["$match"]):
            break
        before.append(rest.pop(0))
    guarded: Pipeline = []
    while rest and isinstance(rest[0].get("$match"), Mapping):
        guarded.append({"$match": filters.guarded(rest.pop(0)["$match"], judged.condition)})
    return [*before, *judged.live, *guarded], rest


class _Names:
    """`Policies` that only records the collections that it was asked for."""

    def __init__(self) -> None:
        self.asked: set[tuple[str | None, str]] = set()

    def policy_named(self, database: str | None, collection: str) -> None:
        self.asked.add((database, collection))

    judge_named = policy_named

    def stamping_named(self, database: str | None, collection: str) -> None:
        self.asked.add((database, collection))


def names_in(pipeline: object) -> set[tuple[str | None, str]]:
    """Return the collections that a pipeline reaches; None for the database is its own."""
    names = _Names()
    if isinstance(pipeline, Sequence) and pipeline:
        live_pipeline(pipeline, None, names)
    return names.asked


def _has_expiry(policy: Policy | None) -> bool:
    return isinstance(policy, TTL) and policy.override is not None and policy.unit is None


def _without_expiry(stages: Pipeline) -> Pipeline:
    """Return stages whose results have no ``_exp``, unless they name it.

    It is removed as late as possible, because MongoDB turns the first stages into a query.
    """
    if stages and next(iter(stages[0]), "") in _NO_DOCUMENTS:
        return stages
    hide = {"$unset": EXPIRY}
    for number, stage in enumerate(stages):
        if _names_its_fields(stage):
            return stages
        if not keeps(stage, (EXPIRY,)):
            return [*stages[:number], hide, *stages[number:]]
    return [*stages, hide]


def _names_its_fields(stage: Filter) -> bool:
    """Return whether a stage creates documents from fields that it names."""
    operator = next(iter(stage), "")
    names = operator in _MAKE_OTHERS or (operator == "$project" and is_inclusive(stage[operator]))
    return names and not any(whole in repr(stage) for whole in ("$$ROOT", "$$CURRENT"))


def _guarded(stages: Pipeline, predicate: Document, fields: tuple[str, ...]) -> Pipeline:
    """Return stages whose filters evaluate no expression on an expired document.

    MongoDB joins filters and moves them before other stages, so the filter with the predicate may
    not be the first.
    """
    guarded: Pipeline = []
    for number, stage in enumerate(stages):
        if not keeps(stage, fields):
            return [*guarded, *stages[number:]]
        operator = next(iter(stage))
        spec = stage[operator]
        if operator == "$match" and isinstance(spec, Mapping):
            spec = filters.guarded(spec, predicate)
        elif operator == "$geoNear" and "query" in spec:
            spec = {**spec, "query": filters.guarded(spec["query"], predicate)}
        guarded.append({operator: spec})
    return guarded


def keeps(stage: Filter, fields: tuple[str, ...]) -> bool:
    """Return whether a stage leaves these fields of its documents unchanged."""
    operator = next(iter(stage), "")
    spec: Any = stage.get(operator)
    if operator in _KEEP_SHAPE:
        names = [spec["as"]] if isinstance(spec, Mapping) and "as" in spec else []
    elif operator == "$project" and is_inclusive(spec):
        return all(spec.get(field) in (1, True) for field in fields)
    elif operator in _MAY_KEEP_SHAPE:
        names = [spec] if isinstance(spec, str) else list(spec)
    else:
        return False
    return not any(mentions(names, field) for field in fields)


def _stages(stage: Document, policies: Policies) -> Pipeline:
    """Return the stages that replace one, by the collections that it reads and writes."""
    operator = next(iter(stage), "")
    spec = stage.get(operator)
    if operator in ("$lookup", "$unionWith"):
        source: Document = {"coll": spec} if isinstance(spec, str) else stage[operator]
        inner = source.get("pipeline", [])
        judge = _judge_of(source.get("from" if operator == "$lookup" else "coll"), policies)
        outer = live_pipeline(inner, judge, policies)
        return [stage if outer == inner else {operator: {**source, "pipeline": outer}}]
    if operator == "$graphLookup":
        graph = stage[operator]
        policy = _judge_of(graph["from"], policies)
        if isinstance(policy, StageJudge):
            raise TTLError(
                f"$graphLookup can't walk {graph['from']!r}, whose documents expire with their "
                "parents: it can't look up other collections. Use $lookup, or "
                "include_expired=True."
            )
        matches = filters.live_filter(graph.get("restrictSearchWithMatch"), policy)
        rewritten = [
            {operator: {**graph, "restrictSearchWithMatch": matches}} if matches else stage
        ]
        return (
            [*rewritten, {"$unset": f"{graph['as']}.{EXPIRY}"}]
            if _has_expiry(policy)
            else rewritten
        )
    if operator == "$facet":
        facets = stage[operator].items()
        return [{operator: {name: live_pipeline(inner, None, policies) for name, inner in facets}}]
    target = _target_of(stage)
    policy = None if target is None else policies.policy_named(*target)
    if target is None or policy is None:
        return [stage]
    return _stamped(stage, policy, policies.stamping_named(*target))


def _judge_of(source: object, policies: Policies) -> Judge:
    if isinstance(source, str):
        return policies.judge_named(None, source)
    if isinstance(source, Mapping):
        return policies.judge_named(source.get("db"), source.get("coll", ""))
    return None  # the stage creates its documents without a collection


def _target_of(stage: Filter) -> tuple[str | None, str] | None:
    """Return the database (None: the pipeline's) and collection that a stage writes to, if any."""
    operator = next(iter(stage), "")
    if operator not in ("$out", "$merge"):
        return None
    target: Any = stage[operator]
    if operator == "$merge" and isinstance(target, Mapping):
        target = target["into"]
    if isinstance(target, Mapping):
        return target.get("db"), target["coll"]
    return None, target


def _stamped(stage: Document, policy: Policy, stamping: Stamping | None) -> Pipeline:
    """Return the stages for a ``$out`` or ``$merge`` to a collection with a policy."""
    stamps = [] if stamping is None else stamping.stages(keep=False)
    if "$out" in stage:  # replaces the whole collection
        return [*stamps, stage]
    spec = stage["$merge"]
    merge: Document = {"into": spec} if isinstance(spec, str) else dict(spec)
    absent = _MARKED if merge.get("whenNotMatched") == "discard" else _FRESH
    mark = {"$set": {_MARK: {"$cond": [live_expr(policy), "$$REMOVE", "$$ROOT"]}}}
    matched = merge.get("whenMatched", "merge")
    named: dict[str, Pipeline] = {
        "fail": [{"$set": {_MARK: _REFUSED}}],
        "keepExisting": [],
        "merge": [{"$replaceWith": {"$mergeObjects": ["$$ROOT", "$$new"]}}, *stamps],
        "replace": [{"$replaceWith": {"$mergeObjects": ["$$new", {_MARK: _MARKED}]}}],
    }
    is_pipeline = isinstance(matched, list)
    steps = [*map(_keeping_mark, matched), *stamps] if is_pipeline else named[matched]
    unmark = {"$replaceWith": {"$cond": [_IS_MARKED, absent, "$$ROOT"]}}
    merge["let"] = {"new": "$$ROOT", **merge.get("let", {})}
    merge["whenMatched"] = [mark, *steps, unmark]
    return [*stamps, {"$merge": merge}]


def as_duplicate(error: OperationFailure) -> OperationFailure:
    """Return a pipeline's error, as a duplicate key if it comes from ``whenMatched: "fail"``."""
    if _DUPLICATE not in str(error):
        return error
    return DuplicateKeyError(str(error), 11000, error.details)


def _keeping_mark(stage: Filter) -> Document:
    """Return a user's stage, changed to keep the mark, and to evaluate nothing on a marked one.

    An expression may fail on an expired document, from which nothing is taken over anyway.
    """
    operator = next(iter(stage), "")
    spec: Any = stage.get(operator)
    if operator in ("$addFields", "$set") and isinstance(spec, Mapping):
        return {operator: _for_live(spec)}
    if operator == "$project" and is_inclusive(spec):
        return {"$project": {**_for_live(spec), _MARK: 1}}
    if operator in ("$replaceRoot", "$replaceWith"):
        root = spec["newRoot"] if operator == "$replaceRoot" else spec
        live_root = {"$cond": [_IS_MARKED, {}, root]}
        return {"$replaceWith": {"$mergeObjects": [live_root, {_MARK: _MARKED}]}}
    return dict(stage)


def _for_live(fields: Filter) -> Document:
    """Return a stage's fields with expressions that are null for a marked document."""
    return {name: _value_for_live(value) for name, value in fields.items()}


def _value_for_live(value: object) -> object:
    if isinstance(value, Mapping) and not str(next(iter(value), "")).startswith("$"):
        return _for_live(value)  # fields inside a field
    is_expression = isinstance(value, (Mapping, list))
    return {"$cond": [_IS_MARKED, None, value]} if is_expression else value
