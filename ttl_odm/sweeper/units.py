"""Values that are read in another unit than they were written in, such as milliseconds as seconds.

Such a mistake makes nothing expire, or everything at once, and no database reports it. Epoch
numbers show their unit by their size. Lifetimes don't, so they are guessed: few rows live for
exactly 1,000 hours, many for one. Texts without a time of day can't be read as instants.

This module must not know where the values come from.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from ttl_odm.core.values import MAX_TTL
from ttl_odm.sweeper.text import age

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ttl_odm.core.policy import Unit

UNITS: Final[Sequence[tuple[Unit, int, str]]] = (
    ("s", 1, "seconds"),
    ("ms", 1_000, "milliseconds"),
    ("us", 1_000_000, "microseconds"),
)
"""The units of epoch numbers: each with its number in a second and its name."""

EPOCHS: Final = frozenset(unit for unit, _, _ in UNITS)

EARLIEST: Final = 631_152_000
"""Epoch seconds of 1990: lower values are in another unit, or mean nothing."""

LATEST: Final = 5_680_281_600
"""Epoch seconds of 2150: higher values are in another unit, as those of 1990 in milliseconds."""

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_LONG: Final = 3_660 * _DAY
"""Ten years: longer lifetimes are in whole days, if they are meant."""

FIRST_INSTANT: Final = 1_500_000_000
"""Epoch seconds of 2017: a lifetime of that many seconds would be 47 years."""

LEAST_MILLISECONDS: Final = 1_000 * _MINUTE
"""The shortest lifetime that is recognized as milliseconds: a minute."""

_SHARE: Final = 0.1
"""The least share of lifetimes that look like milliseconds: a few may really be so long."""


@dataclass(frozen=True, slots=True)
class Misread:
    """Values of a field that are read in another unit than they were written in, or not as dates.

    Attributes:
        field: The field.
        unit: The unit that they seem to be in; None for lifetimes that seem to be instants.
        message: What is wrong, for people.
        is_most: Whether most of the values are.
        is_lifetime: Whether the field has a row's own ttl.
        form: How dates have to be written, where these texts are not read as dates; else None.
        example: One of the values.
    """

    field: str
    unit: Unit | None
    message: str
    is_most: bool = True
    is_lifetime: bool = False
    form: str | None = None
    example: object = None

    def __str__(self) -> str:
        return self.message

    @property
    def sentences(self) -> str:
        """The message and, where that is a unit in the policy or another form, the fix."""
        if self.form is not None:
            return f"{self.message}. Write them as {self.form}."
        fix = f" Declare unit={self.unit!r}." if self.is_most and not self.is_lifetime else ""
        return f"{self.message}.{fix}"


def unit_of(number: float) -> Unit | None:
    """Return the unit in which an epoch number lies between 1990 and 2150; None if in none."""
    for unit, factor, _ in UNITS:
        if EARLIEST * factor <= number <= LATEST * factor:
            return unit
    return None


def misread_instants(field: str, unit: Unit | None, values: Iterable[object]) -> Misread | None:
    """Return what is wrong with epoch numbers that a policy reads in a unit; None if nothing is."""
    factors: dict[Unit, int] = {name: factor for name, factor, _ in UNITS}
    if unit is None or unit not in factors:
        return None
    numbers = list(_numbers(values))
    others: Counter[Unit] = Counter(
        other for other in map(unit_of, numbers) if other is not None and other != unit
    )
    if not others:
        return None
    (other, count), *_ = others.most_common(1)
    example = next(number for number in numbers if unit_of(number) == other)
    effect = "seem to have been expired since January 1970"
    if factors[other] > factors[unit]:
        effect = "won't expire for thousands of years"
    message = (
        f"{_of(count, len(numbers))} hold {epoch_name(other)} in {field} (such as "
        f"{_plain(example)}), which are read as {epoch_name(unit)}: these rows {effect}"
    )
    return Misread(field, other, message, is_most=2 * count > len(numbers))


def misread_dates(field: str, form: str, values: Iterable[tuple[object, bool]]) -> Misread | None:
    """Return what is wrong with the values in a field of dates, which keep rows for ever.

    Args:
        field: The field.
        form: How dates have to be written, such as ``YYYY-MM-DD``.
        values: Each with whether it is read as a date; without NULL.
    """
    every = list(values)
    wrong = [value for value, is_date in every if not is_date]
    if not wrong:
        return None
    what = "date and time" if "HH" in form else "date"
    message = (
        f"{_of(len(wrong), len(every))} hold values in {field} that aren't read as a {what} (such "
        f"as {wrong[0]!r}): these rows never expire"
    )
    is_most = 2 * len(wrong) > len(every)
    return Misread(field, None, message, is_most=is_most, form=form, example=wrong[0])


def misread_lifetimes(field: str, values: Iterable[object]) -> Misread | None:
    """Return what is wrong with the seconds that rows have to live; None if nothing seems to be."""
    numbers = list(_numbers(values))
    wrong = [number for number in numbers if _is_no_lifetime(number)]
    if not wrong or len(wrong) < _SHARE * len(numbers):
        return None
    are_instants = all(FIRST_INSTANT <= number <= MAX_TTL for number in wrong) and any(
        number % _MINUTE for number in wrong
    )
    what = "instants, in epoch seconds," if are_instants else "milliseconds"
    example = wrong[0]
    message = (
        f"{_of(len(wrong), len(numbers))} seem to hold {what} in {field} (such as "
        f"{_plain(example)}), which are read as seconds to live: {age(example)}"
    )
    unit: Unit | None = None if are_instants else "ms"
    is_most = 2 * len(wrong) > len(numbers)
    return Misread(field, unit, message, is_most=is_most, is_lifetime=True)


def _is_no_lifetime(number: float) -> bool:
    """Return whether a number of seconds makes more sense as milliseconds, or as an instant."""
    if number == MAX_TTL:  # as good as never
        return False
    is_round = number % LEAST_MILLISECONDS == 0
    if number % (1_000 * _HOUR) == 0 or (is_round and number % _DAY):
        return True
    return number > MAX_TTL or (number > _LONG and number % _DAY != 0)


def _numbers(values: Iterable[object]) -> Iterator[float]:
    """Yield the positive numbers: 0 and negative ones mean never, or are reported separately."""
    for value in values:
        is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
        if is_number and 0 < float(value) < math.inf:  # type: ignore[arg-type]
            yield float(value)  # type: ignore[arg-type]


def _of(count: int, numbers: int) -> str:
    return f"{count:,} of {numbers:,} rows that were read"


def epoch_name(unit: Unit) -> str:
    """Return what epoch numbers in a unit are called."""
    return next(f"epoch {words}" for name, _, words in UNITS if name == unit)


def _plain(number: float) -> str:
    return f"{number:.0f}" if number.is_integer() else f"{number}"
