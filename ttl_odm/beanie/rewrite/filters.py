"""Filters, rewritten so that they match live documents only, and what can be read from them.

Pure functions from what the user wrote to what the server gets. Nothing here changes its
arguments, and nothing talks to a server. Names are compared as plain strings: a field as a class of
Beanie's has it (``Event.kind``) makes an operator of each comparison, which is always true.
"""

# ruff: noqa: A002 - `filter` is the drivers' own name for it

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from bson import Int64, ObjectId

from ttl_odm.beanie.policy.predicate import expired_expr, live_expr, never_expires
from ttl_odm.beanie.time import formats

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ttl_odm.beanie.drivers import Document, Filter, Pipeline, Projection
    from ttl_odm.core.policy import Policy

NOTHING: Final[Filter] = {"$nor": [{}]}
"""The filter that no document passes."""

PLAIN_VALUES: Final = frozenset({str, int, Int64, ObjectId})
"""The types of values that equal nothing else in a filter, but for a collation and arrays."""
PLAIN_OR_NONE: Final = PLAIN_VALUES | {type(None)}

_BRANCHES: Final = frozenset({"$and", "$nor", "$or"})
FEW_VALUES: Final = 16
"""So many stand in a filter at most for their number to count as small."""


@lru_cache(maxsize=256)
def live(policy: Policy) -> Document | None:
    """Return the predicate of a policy on the server's clock, None if nothing ever expires.

    The same object every time: it must not be changed.
    """
    return None if never_expires(policy) else live_expr(policy)


def live_filter(filter: Filter | None, policy: Policy | None) -> Filter:
    """Return the filter that matches the same documents as another one, if they live."""
    predicate = None if policy is None else live(policy)
    return (filter or {}) if predicate is None else with_expr(filter or {}, predicate)


def expired_filter(filter: Filter, policy: Policy) -> Document | None:
    """Return the filter that matches the same documents if they have expired, None for never."""
    return None if never_expires(policy) else with_expr(filter, expired_expr(policy))


def live_count(filter: Filter, policy: Policy | None) -> Pipeline | None:
    """Return the pipeline that counts live documents in one field, ``n``.

    The predicate stands behind the filter, in the sum: a filter with an expression reads every
    document, the sum does with an index that ends in the fields which decide. None where there is
    nothing to judge, or where an expression of the user's might fail on an expired document.
    """
    predicate = None if policy is None or has_expr(filter) else live(policy)
    if predicate is None:
        return None
    count = {"$sum": {"$cond": [predicate, 1, 0]}}
    return [{"$match": filter}, {"$group": {"_id": None, "n": count}}]


def with_expr(filter: Filter, predicate: Document) -> Document:
    """Add a predicate at the top level, where equalities keep their use for indexes and shards."""
    return {"$expr": predicate, **guarded(filter, predicate)}


def guarded(filter: Filter, predicate: Document) -> Document:
    """Return a filter whose own expressions are asked only where a predicate is true.

    An expression may fail on a document that is gone, and the server takes conditions in whatever
    order it likes: only within one expression is theirs certain.
    """
    made: Document = {}
    for field, value in filter.items():
        name = str(field)
        if name == "$expr":
            made[name] = {"$and": [predicate, value]}
        elif name in _BRANCHES and isinstance(value, list):
            made[name] = [
                guarded(branch, predicate) if isinstance(branch, Mapping) else branch
                for branch in value
            ]
        else:
            made[name] = value
    return made


def has_expr(filter: Filter) -> bool:
    """Say whether a filter has an expression of its own."""
    return "$expr" in filter or any(
        has_expr(branch)
        for name in _BRANCHES & filter.keys()
        for branch in filter[name]
        if isinstance(branch, Mapping)
    )


def with_keys(filter: Filter, keys: list[Any]) -> Document:
    """Return the filter that matches the same documents, if they are among these."""
    return within(filter, {"_id": {"$in": keys}})


def within(filter: Filter, condition: Document) -> Document:
    """Return the filter that matches the same documents, if they meet a condition too."""
    return {**filter, "$and": [*filter.get("$and", ()), condition]}


def at(filter: Filter, now: datetime) -> Filter:
    """Return a filter with a literal instant for the server's, which ``distinct`` doesn't know."""

    def inside(value: Any) -> Any:  # the branches of $and, $or and $nor
        if not isinstance(value, list):
            return value
        return [at(branch, now) if isinstance(branch, Mapping) else branch for branch in value]

    return {
        name: _replaced(value, now) if str(name) == "$expr" else inside(value)
        for name, value in filter.items()
    }


def _replaced(expression: Any, now: datetime) -> Any:
    if expression in ("$$NOW", formats.server_now()):
        return now
    if isinstance(expression, Mapping):
        return {
            key: value if key == "$literal" else _replaced(value, now)
            for key, value in expression.items()
        }
    if isinstance(expression, list):
        return [_replaced(part, now) for part in expression]
    return expression


def matching_nothing(filter: Filter) -> Document:
    """Return a filter that matches nothing, with the equalities of another.

    A find has it until its default has been read. And an upsert that is to insert only: a ``$expr``
    is not allowed there, but what follows from the equalities is inserted all the same.
    """
    return {"$and": [dict(filter), NOTHING]}


def equalities(filter: Filter) -> Document:
    """Return the fields of which a filter says what they are equal to."""
    equal: Document = {}
    for field, value in filter.items():
        name = str(field)
        if name == "$and":
            for branch in value:
                equal |= equalities(branch)
        elif not name.startswith("$"):
            if not isinstance(value, Mapping) or not str(next(iter(value), "")).startswith("$"):
                equal[name] = value
            elif "$eq" in value:
                equal[name] = value["$eq"]
    return equal


def values_of(filter: Filter, field: str) -> tuple[Any, ...] | None:
    """Return the few values of which a filter demands that a field has one; None if it doesn't.

    Strings, whole numbers and ObjectIds, by an equality or a short ``$in``, at the top level or in
    an ``$and``. It also matches arrays with such a value in them, and what a collation takes for
    the same.
    """
    for name, value in filter.items():
        values = None
        if str(name) == field:
            values = _demanded(value)
        elif str(name) == "$and" and isinstance(value, list):
            branches = (values_of(part, field) for part in value if isinstance(part, Mapping))
            values = next((part for part in branches if part is not None), None)
        if values is not None:
            return values
    return None


def _demanded(value: Any) -> tuple[Any, ...] | None:
    if type(value) in PLAIN_VALUES:
        return (value,)
    if not isinstance(value, Mapping):
        return None
    values = [value["$eq"]] if "$eq" in value else value.get("$in")
    if not isinstance(values, (list, tuple)) or len(values) > FEW_VALUES:
        return None
    return tuple(values) if all(type(one) in PLAIN_VALUES for one in values) else None


def is_inclusive(projection: Filter) -> bool:
    """Say whether a projection, in ``find`` or in ``$project``, names what it wants."""
    kinds = (
        _is_inclusion(value)
        for name, value in projection.items()
        if str(name) != "_id" or len(projection) == 1  # allowed in both kinds
    )
    return next((kind for kind in kinds if kind is not None), False)


def _is_inclusion(value: object) -> bool | None:
    """Say whether a field's value in a projection makes it inclusive, None for either."""
    if not isinstance(value, Mapping):
        return bool(value)
    for name, inner in value.items():
        if not name.startswith("$"):
            kind = _is_inclusion(inner)
        elif name == "$slice":  # of the field itself, or an expression
            kind = True if isinstance(inner, list) and not isinstance(inner[0], int) else None
        else:
            kind = None if name == "$meta" else True
        if kind is not None:
            return kind
    return None


def mentions(names: Iterable[str], field: str) -> bool:
    """Say whether any of these paths is a field, a part of it, or the whole that it is part of."""
    return any(
        name == field or name.startswith(f"{field}.") or field.startswith(f"{name}.")
        for name in map(str, names)
    )


def is_positional(projection: Projection | None) -> bool:
    """Say whether a projection shows an array's element that the filter has matched."""
    return any(name.endswith(".$") for name in projection or ())
