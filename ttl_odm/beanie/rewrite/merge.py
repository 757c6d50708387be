"""``$out`` and ``$merge`` into a collection whose documents expire: writes, by a pipeline.

What they write is stamped before. ``$merge`` also meets documents that are there: an expired one
is taken to be absent, so that nothing of it comes back to life. That is said in ``whenMatched``,
in which the server sees both documents.

Pure functions, as in `ttl_odm.beanie.rewrite.filters`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pymongo.errors import DuplicateKeyError, OperationFailure

from ttl_odm.beanie.policy.predicate import live_expr
from ttl_odm.beanie.rewrite.projections import is_inclusive

if TYPE_CHECKING:
    from ttl_odm.beanie.rewrite.stamps import Stamping
    from ttl_odm.core.policy import Policy

Document = dict[str, Any]

_MARK: Final = "__ttl_expired"
_MARKED: Final = f"${_MARK}"
"""What was there, if it has expired, while the steps for what is there run."""
_FRESH: Final = {"$mergeObjects": ["$$new", {"_id": "$_id"}]}
"""The new document in the place of one that is there, whose ``_id`` cannot change."""
_DUPLICATE: Final = "E11000 duplicate key in $merge: "
_REFUSED: Final = {
    "$cond": [
        {"$eq": [{"$type": _MARKED}, "object"]},
        _MARKED,
        # No expression raises an error of one's choice: `as_duplicate` makes it the right one.
        {"$toInt": {"$concat": [_DUPLICATE, {"$toString": "$_id"}]}},
    ]
}


def target_of(stage: Mapping[str, Any]) -> tuple[str | None, str] | None:
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


def stamped(stage: Document, policy: Policy, stamping: Stamping | None) -> list[Document]:
    """Return the stages that write to a collection with a policy.

    Args:
        stage: The user's ``$out`` or ``$merge``.
        policy: That of the target.
        stamping: How writes to it are stamped, None where they are not.
    """
    stamps = [] if stamping is None else stamping.stages(keep=False)
    if "$out" in stage:  # replaces the whole collection
        return [*stamps, stage]
    spec = stage["$merge"]
    given: Document = {"into": spec} if isinstance(spec, str) else dict(spec)
    absent = _MARKED if given.get("whenNotMatched") == "discard" else _FRESH
    mark = {"$set": {_MARK: {"$cond": [live_expr(policy), "$$REMOVE", "$$ROOT"]}}}
    is_marked = {"$eq": [{"$type": _MARKED}, "object"]}
    there = _steps(given.get("whenMatched", "merge"), stamps)
    given["let"] = {"new": "$$ROOT", **given.get("let", {})}
    given["whenMatched"] = [
        mark,
        *there,
        {"$replaceWith": {"$cond": [is_marked, absent, "$$ROOT"]}},
    ]
    return [*stamps, {"$merge": given}]


def as_duplicate(error: OperationFailure) -> OperationFailure:
    """Return the error of a pipeline: that of ``whenMatched: "fail"`` is a duplicate key."""
    if _DUPLICATE not in str(error):
        return error
    return DuplicateKeyError(str(error), 11000, error.details)


def _steps(matched: str | list[Document], stamps: list[Document]) -> list[Document]:
    """Return what the user wants to happen where a document is there."""
    if isinstance(matched, list):
        return [*map(_keeping_mark, matched), *stamps]
    named: dict[str, list[Document]] = {
        "fail": [{"$set": {_MARK: _REFUSED}}],
        "keepExisting": [],
        "merge": [{"$replaceWith": {"$mergeObjects": ["$$ROOT", "$$new"]}}, *stamps],
        "replace": [{"$replaceWith": {"$mergeObjects": ["$$new", {_MARK: _MARKED}]}}],
    }
    return named[matched]


def _keeping_mark(stage: Mapping[str, Any]) -> Document:
    """Return a stage of the user's that loses no mark."""
    operator = next(iter(stage), "")
    spec: Any = stage.get(operator)
    if operator == "$project" and is_inclusive(spec):
        return {"$project": {**spec, _MARK: 1}}
    if operator in ("$replaceRoot", "$replaceWith"):
        root = spec["newRoot"] if operator == "$replaceRoot" else spec
        return {"$replaceWith": {"$mergeObjects": [root, {_MARK: _MARKED}]}}
    return dict(stage)
