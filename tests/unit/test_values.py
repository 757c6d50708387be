"""Which values are a ttl: strict for what a program says, lenient for what a database holds."""

from __future__ import annotations

import math
from datetime import date, timedelta
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttl_odm import NEVER, InvalidTTL, TTLError
from ttl_odm.core import MAX_TTL, default_ttl, lenient_ttl, row_ttl

if TYPE_CHECKING:
    from collections.abc import Callable

    Rule = Callable[[object], "int | None"]


class Hour(IntEnum):
    ONE = 3600


class Int64(int):
    """Stands in for bson.Int64."""


NUMBERS: list[tuple[object, int]] = [
    (-1, -1),
    (-1.0, -1),
    (1, 1),
    (20, 20),
    (20.0, 20),
    (Int64(20), 20),
    (Hour.ONE, 3600),
    (MAX_TTL, MAX_TTL),
    (float(MAX_TTL), MAX_TTL),
]
DURATIONS = [
    (timedelta(seconds=1), 1),
    (timedelta(hours=1), 3600),
    (timedelta(days=30), 2_592_000),
    (timedelta(milliseconds=2000), 2),
    (timedelta(seconds=MAX_TTL), MAX_TTL),
]
JUNK: list[object] = [
    *(0, -0.0, 0.0, -2, -5, MAX_TTL + 1, Int64(MAX_TTL + 2), -(2**31), 2**63, 10**5000),
    *(1.5, 20.5, -1.5, 0.1, math.nan, math.inf, -math.inf, 2147483648.0, 1e300),
    *(True, False, "3600", "20", "", "-1", b"20", "x" * 1000),
    *(Decimal(20), Decimal(-1), Fraction(20), 20 + 0j, date(2024, 1, 1)),
    *([], [20], (), (20,), {}, {"ttl": 20}, {20}, object(), int),
]
BAD_DURATIONS = [
    timedelta(0),
    timedelta(seconds=-1),
    timedelta(days=-1),
    timedelta(milliseconds=1500),
    timedelta(days=20_000, microseconds=1),
    timedelta(seconds=MAX_TTL + 1),
    timedelta.max,
    timedelta.min,
]

either_strict_rule = pytest.mark.parametrize("rule", [default_ttl, row_ttl])


def labels(value: object) -> str:
    """Name a case; pytest would print an int of 5000 digits, which Python refuses."""
    return "huge" if value == 10**5000 else repr(value)[:30]


@either_strict_rule
@pytest.mark.parametrize(("value", "seconds"), [(None, None), *NUMBERS, *DURATIONS], ids=labels)
def test_a_strict_rule_turns_every_valid_form_into_a_plain_int_or_none(
    rule: Rule, value: object, seconds: int | None
) -> None:
    result = rule(value)

    assert result == seconds
    assert type(result) is type(seconds)


@either_strict_rule
@pytest.mark.parametrize("value", [*JUNK, *BAD_DURATIONS], ids=labels)
def test_a_strict_rule_raises_for_everything_else(rule: Rule, value: object) -> None:
    with pytest.raises(InvalidTTL):
        rule(value)


@pytest.mark.parametrize(("value", "seconds"), NUMBERS, ids=labels)
def test_a_stored_whole_number_of_any_width_counts(value: object, seconds: int) -> None:
    result = lenient_ttl(value)

    assert result == seconds
    assert type(result) is int


@pytest.mark.parametrize("value", [None, *JUNK, *BAD_DURATIONS, timedelta(hours=1)], ids=labels)
def test_any_other_stored_value_is_no_override(value: object) -> None:
    assert lenient_ttl(value) is None


def test_the_error_names_the_place_the_value_and_what_to_write() -> None:
    with pytest.raises(InvalidTTL) as caught:
        default_ttl("3600", where="WebSession.__ttl__")

    message = str(caught.value)
    assert "WebSession.__ttl__ = '3600'" in message
    assert "None (TTL is off)" in message
    assert "1 to 2147483647" in message


def test_the_error_about_a_row_says_that_none_inherits() -> None:
    with pytest.raises(InvalidTTL, match=r"WebSession\.ttl = 0 .*None \(inherit the default\)"):
        row_ttl(0, where="WebSession.ttl")


@pytest.mark.parametrize("value", ["x" * 100_000, 10**5000], ids=labels)
def test_the_error_stays_short_whatever_the_value_is(value: object) -> None:
    with pytest.raises(InvalidTTL) as caught:
        row_ttl(value)

    assert len(str(caught.value)) < 300


def test_an_invalid_ttl_is_a_value_error_and_an_error_of_this_package() -> None:
    assert issubclass(InvalidTTL, ValueError)
    assert issubclass(InvalidTTL, TTLError)


# Values around every edge come up often enough only if they are asked for.
edges = st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 2**31 - 1, 2**31, 2**31 + 1, 2**63])
integers = st.one_of(edges, st.integers(-5, 5), st.integers())
floats = st.one_of(st.floats(), integers.filter(lambda n: abs(n) < 2**1000).map(float))
not_numbers = st.one_of(
    st.text(),
    st.binary(),
    st.booleans(),
    st.decimals(),
    st.fractions(),
    st.complex_numbers(),
    st.dates(),
    st.datetimes(),
    st.lists(st.integers()),
    st.dictionaries(st.text(), st.integers()),
)


@given(integers)
def test_of_all_ints_exactly_minus_one_and_int32_above_zero_are_valid(number: int) -> None:
    valid = number == -1 or number in range(1, 2**31)

    assert lenient_ttl(number) == (number if valid else None)
    assert accepts(default_ttl, number) == accepts(row_ttl, number) == valid


@given(floats)
def test_a_float_is_valid_where_the_int_that_it_equals_is(number: float) -> None:
    fraction, whole = math.modf(number)
    valid = fraction == 0 and accepts(row_ttl, int(whole)) if math.isfinite(number) else False

    assert lenient_ttl(number) == (int(number) if valid else None)
    assert accepts(default_ttl, number) == accepts(row_ttl, number) == valid


@given(not_numbers)
def test_what_is_no_number_is_never_valid(value: object) -> None:
    assert lenient_ttl(value) is None
    assert not accepts(default_ttl, value)
    assert not accepts(row_ttl, value)


@given(st.one_of(integers, floats, not_numbers))
def test_both_readings_agree_on_every_value_that_both_accept(value: object) -> None:
    if accepts(row_ttl, value):
        assert row_ttl(value) == lenient_ttl(value) == default_ttl(value)
    else:
        assert lenient_ttl(value) is None


@given(st.timedeltas())
def test_a_timedelta_is_valid_when_it_is_whole_seconds_in_range(duration: timedelta) -> None:
    seconds, rest = divmod(duration, timedelta(seconds=1))
    valid = not rest and 1 <= seconds <= MAX_TTL

    assert accepts(row_ttl, duration) == valid
    if valid:
        assert row_ttl(duration) == default_ttl(duration) == seconds


def test_never_is_the_value_of_cosmos_db() -> None:
    assert NEVER == -1


def accepts(rule: Rule, value: object) -> bool:
    try:
        rule(value)
    except InvalidTTL:
        return False
    return True
