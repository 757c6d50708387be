"""`Partitions`: the ranges of time, and which are wanted."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttl_odm import Partitions, TTLConfigurationError
from ttl_odm.partitions import TimeRange

SPANS = ["1 hour", "2 hours", "3 hours", "4 hours", "6 hours", "8 hours", "12 hours"]
SPANS += ["1 day", "1 week", "1 month"]
FIRST, LAST = datetime(1970, 1, 1), datetime(9000, 1, 1)  # noqa: DTZ001 (Hypothesis adds the zone)
instants = st.datetimes(FIRST, LAST, timezones=st.just(timezone.utc))


def at(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("span", "start", "end", "suffix"),
    [
        ("1 hour", at(2026, 11, 25, 9), at(2026, 11, 25, 10), "p20261125_09"),
        ("6 hours", at(2026, 11, 25, 6), at(2026, 11, 25, 12), "p20261125_06"),
        ("1 day", at(2026, 11, 25), at(2026, 11, 26), "p20261125"),
        ("1 week", at(2026, 11, 23), at(2026, 11, 30), "p20261123"),
        ("1 month", at(2026, 11, 1), at(2026, 12, 1), "p20261101"),
    ],
)
def test_an_instant_is_in_a_stretch_with_a_name(
    span: str, start: datetime, end: datetime, suffix: str
) -> None:
    time_range = Partitions(span).at(at(2026, 11, 25, 9, 59, 59))
    assert time_range == TimeRange(start, end)
    assert time_range.suffix == suffix


def test_a_stretch_is_in_utc_whatever_the_zone_of_the_instant() -> None:
    new_york = timezone(timedelta(hours=-5))
    time_range = Partitions("1 day").at(datetime(2026, 11, 25, 21, tzinfo=new_york))
    assert time_range == TimeRange(at(2026, 11, 26), at(2026, 11, 27))


def test_a_month_may_be_the_last_of_its_year() -> None:
    time_range = Partitions("1 month").at(at(2026, 12, 31))
    assert time_range == TimeRange(at(2026, 12, 1), at(2027, 1, 1))


def test_a_start_that_is_no_full_hour_has_a_name_of_its_own() -> None:
    assert TimeRange(at(2026, 11, 25, 6, 30), at(2026, 11, 26)).suffix == "p20261125_063000"


@pytest.mark.parametrize("span", SPANS)
@given(now=instants)
def test_what_is_wanted_has_no_gap_and_no_overlap(span: str, now: datetime) -> None:
    wanted = list(Partitions(span, ahead=40).wanted(now))
    assert len(wanted) == 41
    assert wanted[0].start <= now < wanted[0].end
    for one, following in pairwise(wanted):
        assert one.end == following.start
        assert Partitions(span).at(one.end - timedelta(microseconds=1)) == one
    assert len({time_range.suffix for time_range in wanted}) == 41


def test_it_is_a_plain_value() -> None:
    assert Partitions("1 days") == Partitions("1 day")
    assert Partitions("1 day", ahead=7.0).ahead == 7  # type: ignore[arg-type]
    assert repr(Partitions("6 hours", ahead=2)) == (
        "Partitions(span='6 hours', ahead=2, survivors='sweep', made_by='sweeper')"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"span": "5 hours"}, "span = '5 hours': write '1 hour'"),
        ({"span": "2 days"}, "span = '2 days': write '1 hour'"),
        ({"span": "0 hours"}, "span = '0 hours': write '1 hour'"),
        ({"span": "a day"}, "span = 'a day': write '1 hour'"),
        ({"span": timedelta(days=1)}, r"span = datetime.timedelta\(days=1\): write '1 hour'"),
        ({"ahead": 0}, "ahead = 0: write a number from 1"),
        ({"ahead": True}, "ahead = True: write a number from 1"),
        ({"ahead": 1.5}, "ahead = 1.5: write a number from 1"),
        ({"survivors": "keep"}, "survivors = 'keep': write 'sweep' or 'move'"),
        ({"made_by": "pg_partman"}, "made_by = 'pg_partman': write 'sweeper' or 'others'"),
    ],
)
def test_a_slip_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(TTLConfigurationError, match=f"^Partitions.{message}"):
        Partitions(**{"span": "1 day", **values})
