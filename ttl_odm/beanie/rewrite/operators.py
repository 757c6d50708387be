"""An update's operators as the stages of an equivalent pipeline.

Unlike operators, a pipeline can compute values from the updated document, such as its ``_exp``. So
an update is sent as stages if they do exactly what its operators do: setting and unsetting whole
fields, setting nested fields, and the usual forms of ``$inc``, ``$max``, ``$min``, ``$push``,
``$addToSet`` and ``$pull``.

An operator fails on a document with the wrong types (``$inc`` on a string), where stages would
succeed. So stages come with a guard that fails there too, and `operator_error` turns its error into
the operator's.

The functions are pure, except `sent`. This module must not know what a ttl is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeVar

from bson import Int64, ObjectId
from pymongo.errors import OperationFailure

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ttl_odm.beanie.drivers import Document, Filter, Pipeline

Result = TypeVar("Result")

_SETS: Final = ("$set", "$setOnInsert")
_KNOWN: Final = frozenset({*_SETS, "$addToSet", "$inc", "$max", "$min", "$pull", "$push", "$unset"})
_INTEGERS: Final = ["int", "long"]
_NUMBERS: Final = [*_INTEGERS, "double", "decimal"]
_TYPE_MISMATCH, _BAD_VALUE, _PATH_NOT_VIABLE = 14, 2, 28
_CONVERSION_FAILURE: Final = 241
_REJECTED: Final = re.compile(r"<ttl_odm (\d+): (.*?)>")


@dataclass(slots=True)
class _Parts:
    """The parts of the stages for an update: values by path, and cases in which it must fail."""

    sets: Document = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)
    failures: list[Document] = field(default_factory=list)

    def reject(self, case: Document, code: int, why: str, path: str) -> None:
        """Make the update fail on documents for which an expression is true."""
        # No operator raises a given error, but $toInt fails with its argument in the message. A
        # constant argument would fail for all documents.
        message = {"$concat": [f"<ttl_odm {code}: {why} ", {"$type": f"${path}"}, ">"]}
        self.failures.append({"case": case, "then": {"$toInt": message}})


def as_stages(update: Filter, *, guard: str, inserts: bool) -> Pipeline | None:
    """Return the stages that do exactly what an update's operators do, None if there are none.

    Args:
        update: The operators.
        guard: A field that the update doesn't contain; later stages must set it.
        inserts: Whether it is the update of an upsert that can only insert.
    """
    named = [(operator, str(name)) for operator, fields in update.items() for name in fields]
    # The server rejects paths that are equal, or of which one contains another.
    inside = sorted(f"{name}." for _, name in named)
    if update.keys() - _KNOWN or any(after.startswith(path) for path, after in pairwise(inside)):
        return None
    if any(_is_special(name, alone=operator in _SETS) for operator, name in named):
        return None
    parts = _Parts()
    for operator, fields in update.items():
        if operator == "$setOnInsert" and not inserts:
            continue
        for name, value in fields.items():
            if not _add(parts, operator, str(name), value):
                return None
    stages: Pipeline = []
    if parts.failures:  # before expressions that might fail in their own way
        stages.append({"$set": {guard: {"$switch": {"branches": parts.failures, "default": None}}}})
    if parts.sets:
        stages.append({"$set": parts.sets})
    if parts.unset:
        stages.append({"$unset": parts.unset})
    return stages


async def sent(writing: Awaitable[Result]) -> Result:
    """Await a write; if a guard rejected a document, raise the operator's error."""
    try:
        return await writing
    except OperationFailure as error:
        details = operator_error(error.details or {})
        if details.get("code") == error.code:
            raise
        raise type(error)(details["errmsg"], details["code"], details) from error


def operator_error(details: Filter) -> Document:
    """Return error details with an operator's error in place of a guard's."""
    match = _REJECTED.search(str(details.get("errmsg")))
    if match is None or details.get("code") != _CONVERSION_FAILURE:
        return dict(details)
    kept = {name: value for name, value in details.items() if name != "codeName"}
    return {**kept, "code": int(match[1]), "errmsg": match[2]}


def _is_special(path: str, *, alone: bool) -> bool:
    """Return whether a path has another meaning in a pipeline than in an operator.

    Positions in arrays have, and names with a dollar. So has the key, except in a plain ``$set``
    (``alone``).
    """
    first, *inner = path.split(".")
    is_position = any(part.isdecimal() for part in inner)
    has_name = all(part and not part.startswith("$") for part in (first, *inner))
    return is_position or not has_name or (first == "_id" and (bool(inner) or not alone))


def _add(parts: _Parts, operator: str, path: str, value: object) -> bool:
    """Add what an operator does to a path; return whether stages can do that."""
    if operator == "$unset":
        parts.unset.append(path)
        return "." not in path  # stages would unset it in every element of an array on the path
    _check_parents(parts, path)
    if operator in _SETS:
        parts.sets[path] = {"$literal": value}
        return True
    if operator == "$inc":
        return _increment(parts, path, value)
    if operator in ("$max", "$min"):
        return _compare(parts, operator, path, value)
    if operator == "$pull":
        return _pull(parts, path, value)
    return _append(parts, operator, path, value)


def _check_parents(parts: _Parts, path: str) -> None:
    """Make the update fail on documents in which a parent of the path is not a document."""
    fields = path.split(".")
    for length in range(1, len(fields)):
        parent = ".".join(fields[:length])
        no_document = {"$not": [{"$in": [{"$type": f"${parent}"}, ["object", "missing"]]}]}
        why = f"Cannot create field {fields[length]!r} in {parent!r}, which is of type"
        parts.reject(no_document, _PATH_NOT_VIABLE, why, parent)


def _increment(parts: _Parts, path: str, by: object) -> bool:
    if type(by) not in (int, Int64, float):
        return False
    old, kind = f"${path}", {"$type": f"${path}"}
    no_number = {"$not": [{"$in": [kind, [*_NUMBERS, "missing"]]}]}
    why = f"Cannot apply $inc to a value of non-numeric type: {path!r} is of type"
    parts.reject(no_number, _TYPE_MISMATCH, why, path)
    total: Document = {"$add": [old, {"$literal": by}]}
    if isinstance(by, float):  # $add is more exact than $inc
        rounded = {"$cond": [{"$eq": [kind, "long"]}, {"$toDouble": old}, old]}
        step = {"$cond": [{"$eq": [kind, "decimal"]}, {"$toDecimal": by}, {"$literal": by}]}
        total = {"$add": [rounded, step]}
    else:  # $add continues with a double where $inc fails
        overflows = {"$and": [{"$in": [kind, _INTEGERS]}, {"$eq": [{"$type": total}, "double"]}]}
        why = f"Failed to apply $inc: the sum would be too large for {path!r}, which is of type"
        parts.reject(overflows, _BAD_VALUE, why, path)
    parts.sets[path] = {"$cond": [{"$eq": [kind, "missing"]}, {"$literal": by}, total]}
    return True


def _compare(parts: _Parts, operator: str, path: str, value: object) -> bool:
    old, new = f"${path}", {"$literal": value}
    is_missing = {"$eq": [{"$type": old}, "missing"]}
    wins = {"$gt" if operator == "$max" else "$lt": [new, old]}
    parts.sets[path] = {"$cond": [{"$or": [is_missing, wins]}, new, old]}
    return True


def _pull(parts: _Parts, path: str, value: object) -> bool:
    if "." in path or not isinstance(value, (str, int, float, datetime, ObjectId)):
        return False  # a missing parent is not an error; a value may be a condition
    old = f"${path}"
    no_array = {"$not": [{"$in": [{"$type": old}, ["array", "missing"]]}]}
    parts.reject(no_array, _BAD_VALUE, f"Cannot apply $pull: {path!r} is of type", path)
    others = {"$filter": {"input": old, "cond": {"$ne": ["$$this", {"$literal": value}]}}}
    parts.sets[path] = {"$cond": [{"$isArray": [old]}, others, "$$REMOVE"]}
    return True


def _append(parts: _Parts, operator: str, path: str, value: object) -> bool:
    """Add what ``$push`` and ``$addToSet`` do."""
    values = [value]
    if isinstance(value, Mapping) and any(str(name).startswith("$") for name in value):
        if [*value] != ["$each"] or not isinstance(value["$each"], list):
            return False
        values = list(value["$each"])
    if operator == "$addToSet" and len(values) != 1:
        return False
    old = f"${path}"
    no_array = {"$not": [{"$in": [{"$type": old}, ["array", "missing"]]}]}
    why = f"The field {path!r} must be an array but is of type"
    parts.reject(no_array, _BAD_VALUE, why, path)
    array: Document = {"$cond": [{"$isArray": [old]}, old, []]}
    longer: Document = {"$concatArrays": [array, {"$literal": values}]}
    if operator == "$addToSet":
        longer = {"$cond": [{"$in": [{"$literal": values[0]}, array]}, array, longer]}
    parts.sets[path] = longer
    return True
