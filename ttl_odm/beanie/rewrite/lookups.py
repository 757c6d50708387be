"""Stages that go from parents to the documents that expire with them.

Pure functions. This module must not know drivers or callers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.beanie.drivers import Document, Pipeline
    from ttl_odm.beanie.policy.rules import Rule
    from ttl_odm.beanie.policy.ttl_indexes import Expression

LINKED: Final = "__ttl_linked"
"""The field of a parent that temporarily holds the documents that expire with it."""


def descend(rule: Rule) -> Pipeline:
    """Return the stages that go from parents to the documents with the rule."""
    (own, theirs), *others = rule.links.pairs
    let, inner = _comparison(others)
    lookup: Document = {
        "from": rule.collection,
        "localField": theirs,
        "foreignField": own,
        **({"let": let, "pipeline": inner} if let else {}),
        "as": LINKED,
    }
    return [
        {"$match": {path: {"$ne": None} for path in rule.links.theirs}},
        {"$lookup": lookup},
        {"$unwind": f"${LINKED}"},
        {"$replaceWith": f"${LINKED}"},
    ]


def counted(rules: Sequence[Rule], count: str, *, when: Expression | None = None) -> Pipeline:
    """Return the stages that give each document the number of documents that expire with it.

    Args:
        rules: The rules that lead to these documents, at any depth.
        count: The field for the number.
        when: The condition for documents to count for; others get 0.
    """
    below: dict[str, list[Rule]] = {}
    for rule in rules:
        below.setdefault(rule.links.collection, []).append(rule)
    return _counted(rules[0].links.collection, below, count, when)


def _counted(
    parent: str, below: dict[str, list[Rule]], count: str, when: Expression | None
) -> Pipeline:
    stages: Pipeline = []
    fields = []
    for place, rule in enumerate(below[parent]):
        name, key = f"{LINKED}_{place}", f"{LINKED}_key"
        (own, theirs), *others = rule.links.pairs
        let, inner = _comparison(others)
        has_more = rule.collection in below
        inner += _counted(rule.collection, below, count, None) if has_more else []
        one: Document | int = {"$add": [1, f"${count}"]} if has_more else 1
        inner.append({"$group": {"_id": None, count: {"$sum": one}}})
        # A value that no document has, for documents that don't meet `when` or have no key.
        has_key: Document = {"$ne": [{"$ifNull": [expression(theirs), None]}, None]}
        counts = has_key if when is None else {"$and": [when, has_key]}
        nothing = {"$literal": {LINKED: "nothing"}}
        stages += [
            {"$set": {key: {"$cond": [counts, expression(theirs), nothing]}}},
            {
                "$lookup": {
                    "from": rule.collection,
                    "localField": key,
                    "foreignField": own,
                    **({"let": let} if let else {}),
                    "pipeline": inner,
                    "as": name,
                }
            },
        ]
        fields.append({"$ifNull": [{"$first": f"${name}.{count}"}, 0]})
    return [*stages, {"$set": {count: {"$add": [0, *fields]}}}]


def _comparison(pairs: Sequence[tuple[str, str]]) -> tuple[Document, Pipeline]:
    """Return variables for a parent's fields, and the stages that compare them with documents."""
    let = {f"key{number}": expression(theirs) for number, (_, theirs) in enumerate(pairs)}
    inner = [
        {"$match": {"$expr": {"$eq": [expression(own), f"$$key{number}"]}}}
        for number, (own, _) in enumerate(pairs)
    ]
    return let, inner


@lru_cache(maxsize=256)
def expression(path: str) -> Expression:
    """Return the expression for a path, which may be the key of a DBRef."""
    field, ref, _ = path.partition(".$id")
    if not ref:
        return f"${path}"
    return {"$getField": {"field": {"$literal": "$id"}, "input": f"${field}"}}


def of_variable(variable: str, predicate: object) -> object:
    """Return a predicate on a document's fields as one on the fields of a variable."""
    if isinstance(predicate, str) and predicate.startswith("$") and not predicate.startswith("$$"):
        return f"{variable}.{predicate[1:]}"
    if isinstance(predicate, list):
        return [of_variable(variable, part) for part in predicate]
    if isinstance(predicate, dict) and "$literal" not in predicate:
        return {name: of_variable(variable, part) for name, part in predicate.items()}
    return predicate
