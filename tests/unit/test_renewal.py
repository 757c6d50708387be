"""When a change of a row's end is granted, and when a touch is too early."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ttl_odm import TTLConfigurationError
from ttl_odm.core.renewal import grants, is_recent

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
