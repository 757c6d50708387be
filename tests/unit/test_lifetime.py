"""What `touch`, `expire_in` and `expire_at` take, and when a change of a row's end is granted."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ttl_odm import TTL, ExpireAt, InvalidTTL, TTLConfigurationError
from ttl_odm.core import MAX_TTL
from ttl_odm.core.lifetime import (
    check_instant,
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
    assert life_seconds(life, model="Cart") == seconds


@pytest.mark.parametrize(
    "life", [True, False, "60", 0.5, float("nan"), MAX_TTL + 1, timedelta(microseconds=1)]
)
def test_a_life_that_is_no_whole_number_of_seconds_is_refused(life: Any) -> None:
    with pytest.raises(InvalidTTL, match=r"^Cart\.ttl = .* is no ttl: give None"):
        life_seconds(life, model="Cart")


def test_a_life_of_none_is_no_way_to_give_up_an_own_ttl() -> None:
    message = "Cart.expire_in(None): give seconds, or call inherit_ttl()."
    with pytest.raises(InvalidTTL) as caught:
        life_seconds(None, model="Cart")  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_an_instant_without_a_zone_is_refused() -> None:
    check_instant(NOON, model="Cart")
    naive = NOON.replace(tzinfo=None)
    with pytest.raises(InvalidTTL) as caught:
        check_instant(naive, model="Cart")
    assert str(caught.value) == (
        f"Cart.expire_at({naive!r}): a naive datetime names no instant; add "
        "tzinfo=datetime.timezone.utc if it is UTC."
    )


def test_what_is_left_until_an_instant_is_rounded_up_to_whole_seconds() -> None:
    for ahead, seconds in [(-5, 1), (0, 1), (0.25, 1), (1, 1), (1.000001, 2), (60, 60)]:
        end = NOON + timedelta(seconds=ahead)
        assert seconds_until(end, NOON, model="Cart") == seconds
    longest = NOON + timedelta(seconds=MAX_TTL)
    assert seconds_until(longest, NOON, model="Cart") == MAX_TTL
    with pytest.raises(InvalidTTL, match=r"^Cart\.ttl = 2147483648 is no ttl"):
        seconds_until(longest + timedelta.resolution, NOON, model="Cart")


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
