"""What `touch`, `expire_in` and `expire_at` take, and when a change of a row's end is granted."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from ttl_odm import TTL, ExpireAt, InvalidTTL, TTLConfigurationError
from ttl_odm.core import MAX_TTL
from ttl_odm.core.lifetime import (
    end_instant,
    grants,
    is_recent,
    life_seconds,
    limited_end,
    seconds_until,
)

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
LATER = NOON + timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("only_if", "present", "new", "granted"),
    [
        (None, NOON, NOON, True),
        (None, None, None, True),
        ("longer", NOON, LATER, True),
        ("longer", NOON, NOON, False),
        ("longer", LATER, NOON, False),
        ("longer", NOON, None, True),
        ("longer", None, LATER, False),
        ("longer", None, None, False),
        ("shorter", LATER, NOON, True),
        ("shorter", NOON, NOON, False),
        ("shorter", NOON, LATER, False),
        ("shorter", None, NOON, True),
        ("shorter", NOON, None, False),
        ("shorter", None, None, False),
        ("has_ttl", NOON, LATER, True),
        ("has_ttl", LATER, NOON, True),
        ("has_ttl", None, NOON, False),
        ("no_ttl", None, NOON, True),
        ("no_ttl", None, None, True),
        ("no_ttl", NOON, LATER, False),
    ],
)
def test_a_change_is_granted_as_redis_would(
    only_if: Any, present: datetime | None, new: datetime | None, granted: Any
) -> None:
    assert grants(only_if, present, new) is granted


def test_an_unknown_condition_is_named() -> None:
    with pytest.raises(TTLConfigurationError, match=r"only_if='GT'.*'longer', 'shorter'"):
        grants("GT", NOON, LATER)  # type: ignore[arg-type]


def test_a_touch_is_due_once_the_interval_is_over() -> None:
    for each in (60, 60.0, timedelta(minutes=1)):
        assert is_recent(NOON, NOON + timedelta(seconds=59.999), each)
        assert not is_recent(NOON, NOON + timedelta(seconds=60), each)
    assert is_recent(LATER, NOON, 1)  # written by somebody whose clock is ahead


@pytest.mark.parametrize("value", [0, -1, True, "60", None, float("nan"), 1e300, timedelta(0)])
def test_an_interval_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(TTLConfigurationError, match="at_most_every"):
        is_recent(NOON, LATER, value)


@pytest.mark.parametrize(
    ("life", "seconds"),
    [
        (60, 60),
        (60.0, 60),
        (timedelta(minutes=1), 60),
        (MAX_TTL, MAX_TTL),
        (0, 0),
        (-1, 0),
        (-0.5, 0),
        (timedelta(0), 0),
        (timedelta(microseconds=-1), 0),
        (float("-inf"), 0),
    ],
)
def test_a_life_is_whole_seconds_and_zero_or_less_is_over_at_once(life: Any, seconds: int) -> None:
    assert life_seconds(life, where="Cart.ttl") == seconds


@pytest.mark.parametrize(
    "life", [True, False, "60", 0.5, float("nan"), MAX_TTL + 1, timedelta(microseconds=1)]
)
def test_a_life_that_is_no_whole_number_of_seconds_is_refused(life: Any) -> None:
    with pytest.raises(InvalidTTL, match=r"^Cart\.ttl = .* is not a ttl: give None"):
        life_seconds(life, where="Cart.ttl")


def test_a_life_of_none_is_no_way_to_give_up_an_own_ttl() -> None:
    message = "Cart.ttl: expire_in(None): give seconds, or call inherit_ttl()."
    with pytest.raises(InvalidTTL) as caught:
        life_seconds(None, where="Cart.ttl")  # type: ignore[arg-type]
    assert str(caught.value) == message


class _NoZone(tzinfo):
    def utcoffset(self, _: datetime | None) -> timedelta | None:
        return None


@pytest.mark.parametrize("zone", [None, _NoZone()])
def test_an_instant_without_a_zone_is_refused(zone: tzinfo | None) -> None:
    naive = NOON.replace(tzinfo=zone)
    with pytest.raises(InvalidTTL) as caught:
        end_instant(naive, where="Cart.ttl")
    assert str(caught.value) == (
        f"Cart.ttl: expire_at({naive!r}): a naive datetime is ambiguous; add "
        "tzinfo=datetime.timezone.utc if it is UTC."
    )


@pytest.mark.parametrize("other", ["x", None, NOON.date(), 60])
def test_what_is_no_instant_is_refused_too(other: Any) -> None:
    with pytest.raises(InvalidTTL, match=r"^Cart\.ttl: expire_at\(.*\): give an aware datetime"):
        end_instant(other, where="Cart.ttl")


AHEAD, BEHIND = (timezone(timedelta(hours=hours)) for hours in (14, -12))


@pytest.mark.parametrize("zone", [timezone.utc, AHEAD, BEHIND])
def test_an_instant_is_read_in_utc_and_what_is_long_past_stays_so(zone: timezone) -> None:
    read = end_instant(NOON.astimezone(zone), where="Cart.ttl")
    assert (read, read.tzinfo) == (NOON, timezone.utc)
    ancient = end_instant(datetime.min.replace(tzinfo=zone), where="Cart.ttl")
    assert ancient - timedelta(days=2) < NOON


@pytest.mark.parametrize("zone", [timezone.utc, AHEAD, BEHIND])
def test_an_instant_that_no_ttl_reaches_is_refused(zone: timezone) -> None:
    longest = (NOON + timedelta(seconds=MAX_TTL)).astimezone(zone)
    assert end_instant(longest, where="Cart.ttl", now=lambda: NOON) == longest
    message = r"^Cart\.ttl: expire_at\(.*\) is more than 2147483647 seconds .* persist\(\)"
    for instant in (longest + timedelta.resolution, datetime.max.replace(tzinfo=zone)):
        with pytest.raises(InvalidTTL, match=message):
            end_instant(instant, where="Cart.ttl", now=lambda: NOON)


def test_a_column_of_ends_reaches_further() -> None:
    for year in (2099, 9999):
        end = datetime(year, 12, 1, tzinfo=timezone.utc)
        assert end_instant(end, where="Cart.ends_at") == end
    with pytest.raises(InvalidTTL, match=r"^Cart\.ends_at: expire_at\(.*\) is after 9999-12-28"):
        end_instant(datetime.max.replace(tzinfo=timezone.utc), where="Cart.ends_at")


def test_nobody_is_asked_for_the_time_where_any_ttl_reaches_the_instant() -> None:
    end_instant(NOON, where="Cart.ttl", now=lambda: pytest.fail("it was"))


def test_what_is_left_until_an_instant_is_rounded_up_to_whole_seconds() -> None:
    for ahead, seconds in [(-5, 1), (0, 1), (0.25, 1), (1, 1), (1.000001, 2), (60, 60)]:
        assert seconds_until(NOON + timedelta(seconds=ahead), NOON) == seconds
    longest = NOON + timedelta(seconds=MAX_TTL)
    assert seconds_until(longest, NOON) == MAX_TTL
    assert seconds_until(longest + timedelta.resolution, NOON) == MAX_TTL


def test_an_end_that_is_asked_for_is_limited_by_the_policy() -> None:
    limited = TTL(60, max_lifetime=3600, created="created")
    limit = NOON + timedelta(hours=1)
    assert limited_end(limited, NOON, LATER) == LATER
    assert limited_end(limited, NOON, limit + timedelta.resolution) == limit
    assert limited_end(limited, NOON, None) == limit
    assert limited_end(limited, None, LATER) == LATER  # it doesn't say when it was created
    for policy in (TTL(60), ExpireAt("end")):
        assert limited_end(policy, None, LATER) == LATER
        assert limited_end(policy, None, None) is None
