"""A table (or collection) as it is: its fields, their kinds, and a sample of their values.

A database knows a column's type, but not the unit of an integer in it. The values show that:
1,700,000,000 is a day in 2023 in seconds, but one in January 1970 in milliseconds.

This module must not know where the evidence comes from.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from statistics import median
from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper import findings
from ttl_odm.sweeper.units import epoch_name, unit_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ttl_odm.core.policy import Policy, Unit


SMALL: Final = findings.SMALL
"""Rows up to which a whole table is read."""


class Kind(Enum):
    """What a field holds, by its declaration (in MongoDB: by its values)."""

    AWARE = "datetime with time zone"
    NAIVE = "datetime without time zone"
    DATE = "date"
    INTEGER = "integer"
    FLOAT = "float"
    SHORT_FLOAT = "float of 4 bytes"
    TEXT = "text"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field of documents.

    Attributes:
        name: The field's name.
        kind: What it holds.
        is_nullable: Whether it may be NULL or missing.
        is_indexed: Whether an index over all rows begins with it.
        lowest: The lowest value.
        highest: The highest value.
        ttl_seconds: ``expireAfterSeconds`` of MongoDB's TTL index on it; None without one.
        note: A warning about its type for the user; or "".
        is_sampled: Whether `lowest` and `highest` are those of the sample, not of all rows.
    """

    name: str
    kind: Kind
    is_nullable: bool = True
    is_indexed: bool = False
    lowest: object = None
    highest: object = None
    ttl_seconds: int | None = None
    note: str = ""
    is_sampled: bool = False


@dataclass(frozen=True, slots=True)
class TTLIndex:
    """An index by which MongoDB deletes documents.

    Attributes:
        name: The index's name.
        field: The path of the date.
        deletes: Which documents it deletes, and when, for messages.
        is_partial: Whether it has only the documents that match a condition.
    """

    name: str
    field: str
    deletes: str
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table or a collection.

    Attributes:
        name: The table's name; begins with the schema unless that is the connection's own.
        fields: The fields that may matter: all with dates, and those with telling names.
        sample: A few hundred rows as the driver returned them. They show what kinds of values
            there are; `ttl_odm.forecast` counts how many.
        rows: The number of rows; None if unknown.
        is_estimated: Whether `rows` is an estimate.
        model: The name of the class; None without one.
        is_collection: Whether it is a collection of MongoDB.
        schema: The table's schema; None for the connection's own.
        problem: Why the table can't be read; None if it could.
        references: The columns of other tables that refer to this one.
        module: The module with the class, or, without a class, with the application's Table.
        variable: The name of that Table in its module; None for a class.
        django: The label of Django's model; None without one.
        has_policy: Whether its class declares a policy, or it has indexes that ttl_odm created.
        policy: The policy, if known.
        ttl_indexes: The TTL indexes by which MongoDB deletes documents.
    """

    name: str
    fields: Sequence[Field] = ()
    sample: Sequence[Mapping[str, object]] = ()
    rows: int | None = None
    is_estimated: bool = False
    model: str | None = None
    is_collection: bool = False
    schema: str | None = None
    problem: str | None = None
    references: Sequence[str] = ()
    module: str | None = None
    variable: str | None = None
    django: str | None = None
    has_policy: bool = False
    policy: Policy | None = None
    ttl_indexes: Sequence[TTLIndex] = ()

    def values(self, field: str) -> list[object]:
        """Return the sample's values of a field, without NULL."""
        return [row[field] for row in self.sample if row.get(field) is not None]


def module_of(model: type | None) -> str | None:
    """Return the module that a class can be imported from; None for a reflected one."""
    if model is None or getattr(sys.modules[model.__module__], model.__name__, None) is not model:
        return None
    return model.__module__


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read the values of a field as instants.

    Attributes:
        unit: The unit of numbers; None for dates.
        kind: What the values are, for messages.
    """

    unit: Unit | None
    kind: str


_NAIVE: Final = (Kind.NAIVE, Kind.DATE)
_ISO: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_UTC: Final = (None, "Z", "+00:00")


def reading_of(table: Table, field: Field) -> Reading | str:
    """Return how to read a field as instants, or a phrase that says why that is impossible."""
    if table.django is not None and field.kind in (Kind.DATE, Kind.TEXT):
        return f"is a {field.kind.value}: Django's policies take DateTimeFields and epoch numbers"
    if field.kind is Kind.AWARE or (field.kind in _NAIVE and not table.is_collection):
        return Reading(None, field.kind.value)
    if table.is_collection:
        return "holds no dates, and MongoDB compares only dates with its clock"
    if field.kind in (Kind.INTEGER, Kind.FLOAT):
        return _epoch(table.values(field.name))
    if field.kind is Kind.TEXT:
        return _text(table.values(field.name))
    is_short = field.kind is Kind.SHORT_FLOAT
    short = "a float of 4 bytes, which stores epoch seconds in steps of 128: make it a double"
    return f"is {short}" if is_short else "holds no dates"


def _epoch(values: Sequence[object]) -> Reading | str:
    numbers = [float(value) for value in values if isinstance(value, (int, float, Decimal))]
    numbers = [number for number in numbers if 0 < number < math.inf]
    if not numbers:
        return (
            "holds numbers, but there are no rows that show whether these are seconds or "
            "milliseconds"
        )
    unit = unit_of(median(numbers))
    if unit is not None:
        return Reading(unit, epoch_name(unit))
    return f"holds numbers (such as {numbers[0]:g}) that are not epoch times"


def _text(values: Sequence[object]) -> Reading | str:
    texts = [value for value in values if isinstance(value, str)]
    if not texts:
        return "is text, but there are no rows that show its format"
    for text in texts:
        match = _ISO.fullmatch(text)
        if match is None:
            example = f"is text (such as {text[:40]!r})"
            return f"{example}, not ISO 8601 with seconds: write YYYY-MM-DD HH:MM:SS"
        if match["zone"] not in _UTC:
            return f"is text (such as {text[:40]!r}) in a time zone that is not UTC"
    if not all(text.endswith(("Z", "+00:00")) for text in texts):
        return Reading("iso", "ISO 8601 text without a time zone, read as UTC")
    return Reading("iso", "ISO 8601 text in UTC")
