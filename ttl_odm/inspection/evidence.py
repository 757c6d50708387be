"""A table (or collection) as it is: its fields, their kinds, and a sample of their values.

A database says what type a column has, but not what an integer in it counts. The values say that:
1,700,000,000 is a day in 2023 in seconds, and one in January 1970 in milliseconds.

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
"""Rows up to which a table is read whole."""


class Kind(Enum):
    """What a field is declared to hold (in MongoDB: what its values are)."""

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
    """A column, or a field of documents; indexed where an index over all rows begins with it.

    Its lowest and highest values are those of all rows, or of the sample. `ttl_seconds` is the
    ``expireAfterSeconds`` of a TTL index that MongoDB has on it; the note is for people, and says
    what has to be known of its type.
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
    """An index by which MongoDB deletes documents, all of them or those that match a condition.

    `field` is the path of the date, `deletes` says what goes when.
    """

    name: str
    field: str
    deletes: str
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table, or a collection; with a problem if it could not be read.

    The name begins with the schema where that is not the connection's own. Its fields are those
    that might say something, at least all that hold dates; the sample is a few hundred of its rows,
    as the driver gave them, to see by what kinds of values there are: how many there are of which,
    `ttl_odm.forecast` is asked. `references` name the columns of rows that refer to this table's.
    `module` is where the class is imported from, or, where there is none, the application's own
    Table, by its name `variable`; `django` is the label of Django's model. It has a policy if its
    class declares one (`policy`, where that is known), or ttl_odm has made indexes for one.
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
        """Return what the sample has in a field, but for NULL."""
        return [row[field] for row in self.sample if row.get(field) is not None]


def module_of(model: type | None) -> str | None:
    """Return where a class can be imported from; None where it can't, as a reflected one."""
    if model is None or getattr(sys.modules[model.__module__], model.__name__, None) is not model:
        return None
    return model.__module__


@dataclass(frozen=True, slots=True)
class Reading:
    """How the values of a field are to be understood as instants: unit (None: dates), and words."""

    unit: Unit | None
    kind: str


_NAIVE: Final = (Kind.NAIVE, Kind.DATE)
_ISO: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(?P<zone>Z|[+-]\d\d:?\d\d)?"
)
_UTC: Final = (None, "Z", "+00:00")


def reading_of(table: Table, field: Field) -> Reading | str:
    """Find out how a field tells time; or why it can't be used, for people."""
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
