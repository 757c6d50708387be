"""Numbers in another unit than the one they are read in, told by the numbers alone."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from ttl_odm.core.values import MAX_TTL
from ttl_odm.sweeper.units import misread_instants, misread_lifetimes, unit_of

NOW = 1_800_000_000  # 2027
FACTORS: dict[Any, int] = {"s": 1, "ms": 1_000, "us": 1_000_000}
DAY = 86_400


@pytest.mark.parametrize("year", [631_152_000, NOW, 5_680_281_600])
def test_an_epoch_number_tells_its_unit_by_its_size(year: int) -> None:
    assert {unit: unit_of(year * factor) for unit, factor in FACTORS.items()} == {
        unit: unit for unit in FACTORS
    }


@pytest.mark.parametrize("number", [0, 1, 3_600, 253_402_300_799, 9_999_999_999, 2**63 - 1])
def test_sentinels_and_lifetimes_are_no_epoch_numbers(number: int) -> None:
    assert unit_of(number) is None


@pytest.mark.parametrize("stored", FACTORS)
@pytest.mark.parametrize("read", FACTORS)
@pytest.mark.parametrize("kind", [int, float, Decimal])
def test_instants_in_another_unit_are_found(stored: Any, read: Any, kind: Any) -> None:
    values = [kind((NOW + n) * FACTORS[stored]) for n in range(3)]
    wrong = misread_instants("expires", read, [None, *values, 0, -1, True, "x"])
    if stored == read:
        assert wrong is None
        return
    assert wrong is not None
    assert (wrong.field, wrong.unit, wrong.is_most) == ("expires", stored, True)
    assert wrong.message.startswith("3 of 3 rows")
    assert ("won't expire" in wrong.message) is (FACTORS[stored] > FACTORS[read])
    assert wrong.sentences.endswith(f" Declare unit='{stored}'.")


def test_a_few_instants_in_another_unit_are_found_too() -> None:
    wrong = misread_instants("expires", "s", [*range(NOW, NOW + 99), NOW * 1000])
    assert wrong is not None
    assert not wrong.is_most
    assert "1 of 100 rows that were read hold epoch milliseconds in expires" in wrong.message
    assert "Declare" not in wrong.sentences


@pytest.mark.parametrize("unit", [None, "iso"])
def test_dates_and_texts_have_no_unit(unit: Any) -> None:
    assert misread_instants("expires", unit, [NOW * 1000]) is None


@pytest.mark.parametrize(
    "lifetime",
    [
        *(60_000, 300_000, 900_000, 1_800_000, 3_600_000, 2 * 3_600_000, 12 * 3_600_000),
        *(DAY * 1000, 7 * DAY * 1000, 14 * DAY * 1000, 20 * DAY * 1000),
        *(30 * DAY * 1000, 90 * DAY * 1000, 365 * DAY * 1000),  # of more than four bytes
        *(14 * DAY * 1000 - 13, 2**31),  # what was left of a lifetime
    ],
)
def test_a_lifetime_in_milliseconds_is_found(lifetime: int) -> None:
    wrong = misread_lifetimes("ttl", [lifetime] * 3)
    assert wrong is not None
    assert (wrong.field, wrong.unit, wrong.is_most) == ("ttl", "ms", True)
    assert "milliseconds in ttl" in wrong.message
    assert wrong.sentences == f"{wrong.message}."


@pytest.mark.parametrize(
    "lifetime",
    [
        *(1, 2, 60, 3_600, 7_200, 5_000, 10_000, 43_200, DAY, 2 * DAY, 7 * DAY, 10 * DAY),
        *(14 * DAY, 25 * DAY, 30 * DAY, 50 * DAY, 60 * DAY, 90 * DAY, 100 * DAY, 180 * DAY),
        *(365 * DAY, 366 * DAY, 730 * DAY, 3_650 * DAY, 10_957 * DAY, 31_556_952, MAX_TTL),
    ],
)
def test_a_lifetime_in_seconds_is_taken_for_one(lifetime: int) -> None:
    assert misread_lifetimes("ttl", [lifetime] * 3) is None


def test_an_instant_is_no_lifetime() -> None:
    wrong = misread_lifetimes("ttl", [NOW + 7, NOW + 60, -1, None])
    assert wrong is not None
    assert wrong.unit is None
    assert "2 of 2 rows that were read seem to hold instants, in epoch seconds" in wrong.message


def test_some_lifetimes_in_milliseconds_are_found_but_a_few_may_be_seconds() -> None:
    wrong = misread_lifetimes("ttl", [*[3_600_000] * 2, *[3_600] * 8])
    assert wrong is not None
    assert not wrong.is_most
    assert misread_lifetimes("ttl", [3_600_000, *[3_600] * 99]) is None
    assert misread_lifetimes("ttl", []) is None
