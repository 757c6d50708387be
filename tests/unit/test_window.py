"""Hours of the day, by the wall clock of a time zone."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.window import DailyWindow


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hour", "minute", "is_open"),
    [(0, 59, False), (1, 0, True), (4, 59, True), (5, 0, False), (12, 0, False)],
)
def test_a_window_includes_its_start_and_not_its_end(
    hour: int, minute: int, *, is_open: bool
) -> None:
    assert DailyWindow.of("01:00-05:00", "UTC").is_open(utc(2024, 1, 1, hour, minute)) is is_open


@pytest.mark.parametrize(
    ("hour", "is_open"), [(21, False), (22, True), (23, True), (0, True), (3, True), (4, False)]
)
def test_a_window_may_go_over_midnight(hour: int, *, is_open: bool) -> None:
    assert DailyWindow.of("22:00-04:00", "UTC").is_open(utc(2024, 1, 1, hour)) is is_open


@pytest.mark.parametrize("text", ["20:00-24:00", "20:00-00:00", " 20:00 - 24:00 "])
def test_a_window_may_end_at_midnight(text: str) -> None:
    window = DailyWindow.of(text, "UTC")
    assert window.is_open(utc(2024, 1, 1, 23, 59))
    assert not window.is_open(utc(2024, 1, 2))


def test_a_window_is_meant_in_its_time_zone_in_summer_and_in_winter() -> None:
    window = DailyWindow.of("01:00-05:00", "Europe/Berlin")
    assert [hour for hour in range(24) if window.is_open(utc(2024, 1, 15, hour))] == [0, 1, 2, 3]
    assert [hour for hour in range(24) if window.is_open(utc(2024, 7, 15, hour))] == [0, 1, 2, 23]


def open_minutes(window: DailyWindow, day: datetime) -> int:
    return sum(window.is_open(day + timedelta(minutes=minute)) for minute in range(24 * 60))


@pytest.mark.parametrize(
    ("day", "minutes"),
    [
        (utc(2024, 3, 30, 12), 3 * 60),  # to the noon after the night in which 2 o'clock is 3
        (utc(2024, 10, 26, 12), 5 * 60),  # and in which 3 o'clock is 2 again
        (utc(2024, 6, 1, 12), 4 * 60),
    ],
)
def test_hours_that_the_clocks_skip_or_repeat_count_as_they_come(
    day: datetime, minutes: int
) -> None:
    assert open_minutes(DailyWindow.of("01:00-05:00", "Europe/Berlin"), day) == minutes


def test_a_window_within_an_hour_that_the_clocks_skip_stays_shut_that_day() -> None:
    window = DailyWindow.of("02:10-02:50", "Europe/Berlin")
    assert open_minutes(window, utc(2024, 3, 30, 12)) == 0
    assert open_minutes(window, utc(2024, 3, 31, 12)) == 40


@given(st.times(), st.times(), st.datetimes(timezones=st.just(timezone.utc)))
def test_a_window_and_the_rest_of_the_day_make_a_day(
    start: Any, end: Any, instant: datetime
) -> None:
    one, other = f"{start:%H:%M}", f"{end:%H:%M}"
    if one != other:
        inside, outside = (
            DailyWindow.of(f"{one}-{other}", "UTC"),
            DailyWindow.of(f"{other}-{one}", "UTC"),
        )
        assert inside.is_open(instant) is not outside.is_open(instant)


@pytest.mark.parametrize(
    "text", ["", "01:00", "1-5", "01:00-25:00", "01:00-05:60", "03:00-03:00", "00:00-24:00", 5]
)
def test_what_is_no_window_is_refused(text: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"^window = .*: give hours of the day"):
        DailyWindow.of(text, "UTC")


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../etc", None, "Europe"])
def test_what_is_no_time_zone_is_refused(name: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"^timezone = .*: give an IANA name"):
        DailyWindow.of("01:00-05:00", name)
