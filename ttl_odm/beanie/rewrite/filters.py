"""Filters rewritten to match live documents only, and what can be read from filters.

Pure functions: nothing here changes its arguments or talks to a server. Names are compared as plain
strings, because comparing a field of a Beanie class (``Event.kind``) returns an operator, which is
always true.
"""

# ruff: noqa: A002 - `filter` is the drivers' own name for it

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from bson import Int64, ObjectId, Regex

from ttl_odm.beanie.policy.predicate import expired_expr, live_expr, never_expires
from ttl_odm.beanie.time import formats

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ttl_odm.beanie.drivers import Document, Filter, Pipeline, Projection
    from ttl_odm.core.policy import Policy

NOTHING: Final[Filter] = {"$nor": [{}]}
"""The filter that matches no document."""

PLAIN_VALUES: Final = frozenset({str, int, Int64, ObjectId})
"""Types whose values match only equal values in a filter, apart from collations and arrays."""
PLAIN_OR_NONE: Final = PLAIN_VALUES | {type(None)}

_BRANCHES: Final = frozenset({"$and", "$nor", "$or"})
FEW_VALUES: Final = 16
"""The maximum number of values that still counts as few."""


@lru_cache(maxsize=256)
def live(policy: Policy) -> Document | None:
    """Return the predicate of a policy by the server's clock, None if no document ever expires.

    It returns the same object each time, which must not be changed.
    """
    return None if never_expires(policy) else live_expr(policy)


def live_filter(filter: Filter | None, policy: Policy | None) -> Filter:
    """Return the filter that matches the live documents among those that a filter matches."""
    predicate = None if policy is None else live(policy)
    return (filter or {}) if predicate is None else with_expr(filter or {}, predicate)


def expired_filter(filter: Filter, policy: Policy) -> Document | None:
    """Return the filter for the expired documents that a filter matches, None if there are none."""
    return None if never_expires(policy) else with_expr(filter, expired_expr(policy))


def live_count(filter: Filter, policy: Policy | None) -> Pipeline | None:
    """Return the pipeline that counts live documents in one field, ``n``.

    The predicate is in the sum, not in the filter: a filter with an expression reads every
    document, while the sum can use an index that ends with the deciding fields. None if there is
    nothing to judge, or if an expression of the user's might fail on an expired document.
    """
    predicate = None if policy is None or has_expr(filter) else live(policy)
    if predicate is None:
        return None
    count = {"$sum": {"$cond": [predicate, 1, 0]}}
    return [{"$match": filter}, {"$group": {"_id": None, "n": count}}]


def with_expr(filter: Filter, predicate: Document) -> Document:
    """Add a predicate at the top level, so that equalities still select indexes and shards."""
    return {"$expr": predicate, **guarded(filter, predicate)}


def guarded(filter: Filter, predicate: Document) -> Document:
    """Return a filter whose own expressions are evaluated only if a predicate is true.

    An expression may fail on an expired document, and the server evaluates conditions in any order.
    The order is certain only within one expression.
    """
    guarded_filter: Document = {}
    for field, value in filter.items():
        name = str(field)
        if name == "$expr":
            guarded_filter[name] = {"$and": [predicate, value]}
        elif name in _BRANCHES and isinstance(value, list):
            guarded_filter[name] = [
                guarded(branch, predicate) if isinstance(branch, Mapping) else branch
                for branch in value
            ]
        else:
            guarded_filter[name] = value
    return guarded_filter


def has_expr(filter: Filter) -> bool:
    """Return whether a filter has an expression of its own."""
    return "$expr" in filter or any(
        has_expr(branch)
        for name in _BRANCHES & filter.keys()
        for branch in filter[name]
        if isinstance(branch, Mapping)
    )


def with_keys(filter: Filter, keys: list[object]) -> Document:
    """Return the filter that matches the same documents if they have one of these keys."""
    return within(filter, {"_id": {"$in": keys}})


def within(filter: Filter, condition: Document) -> Document:
    """Return the filter that matches the same documents if they also meet a condition."""
    return {**filter, "$and": [*filter.get("$and", ()), condition]}


def at(filter: Filter, now: datetime) -> Filter:
    """Return a filter with a literal instant for ``$$NOW``, which ``distinct`` doesn't support."""

    def inside(value: object) -> object:  # the branches of $and, $or and $nor
        if not isinstance(value, list):
            return value
        return [at(branch, now) if isinstance(branch, Mapping) else branch for branch in value]

    return {
        name: _replaced(value, now) if str(name) == "$expr" else inside(value)
        for name, value in filter.items()
    }


def _replaced(expression: object, now: datetime) -> object:
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
    """Return a filter that matches nothing, with the equalities of another filter.

    A find has it until its default has been read. An upsert has it if it is to insert only: a
    ``$expr`` isn't allowed there, and the values of the equalities are inserted all the same.
    """
    return {"$and": [dict(filter), NOTHING]}


def equalities(filter: Filter) -> Document:
    """Return the values that a filter requires of fields by equality.

    An upsert inserts these. A condition with a single alternative is one, too.
    """
    equal: Document = {}
    for field, value in filter.items():
        name = str(field)
        if name == "$and" or (name == "$or" and len(value) == 1):
            for branch in value:
                equal |= equalities(branch)
        elif not name.startswith("$"):
            if not isinstance(value, Mapping) or not str(next(iter(value), "")).startswith("$"):
                equal[name] = value
            elif "$eq" in value:
                equal[name] = value["$eq"]
            else:
                only = value.get("$in", value.get("$all"))
                if isinstance(only, (list, tuple)) and len(only) == 1 and _is_value(only[0]):
                    equal[name] = only[0]
    return equal


def _is_value(value: object) -> bool:
    """Return whether a list's element is a value, and not a pattern or a condition."""
    is_condition = isinstance(value, Mapping) and str(next(iter(value), "")).startswith("$")
    return not (is_condition or isinstance(value, (re.Pattern, Regex)))


def values_of(filter: Filter, field: str) -> tuple[object, ...] | None:
    """Return the few values of which a filter requires one in a field; None if it doesn't.

    The values are strings, whole numbers and ObjectIds, in an equality or a short ``$in``, at the
    top level or in an ``$and``. The filter also matches arrays that contain such a value, and
    values that a collation treats as equal.
    """
    for name, value in filter.items():
        values = None
        if str(name) == field:
            values = _required(value)
        elif str(name) == "$and" and isinstance(value, list):
            branches = (values_of(part, field) for part in value if isinstance(part, Mapping))
            values = next((part for part in branches if part is not None), None)
        if values is not None:
            return values
    return None


def _required(value: object) -> tuple[object, ...] | None:
    if type(value) in PLAIN_VALUES:
        return (value,)
    if not isinstance(value, Mapping):
        return None
    values = [value["$eq"]] if "$eq" in value else value.get("$in")
    if not isinstance(values, (list, tuple)) or len(values) > FEW_VALUES:
        return None
    return tuple(values) if all(type(element) in PLAIN_VALUES for element in values) else None


def is_inclusive(projection: Filter) -> bool:
    """Return whether a projection, in ``find`` or ``$project``, names the fields to include."""
    kinds = (
        _is_inclusion(value)
        for name, value in projection.items()
        if str(name) != "_id" or len(projection) == 1  # allowed in both kinds
    )
    return next((kind for kind in kinds if kind is not None), False)


def _is_inclusion(value: object) -> bool | None:
    """Return whether a field's value makes a projection inclusive, None if it may be either."""
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
    """Return whether any of these paths is a field, a part of it, or contains it."""
    return any(
        name == field or name.startswith(f"{field}.") or field.startswith(f"{name}.")
        for name in map(str, names)
    )


def is_positional(projection: Projection | None) -> bool:
    """Return whether a projection shows the element of an array that the filter matched."""
    return any(name.endswith(".$") for name in projection or ())
