"""Durations as command lines and files have them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttl_odm.core.values import duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90d", 7_776_000), ("12h", 43_200), ("30m", 1_800), ("45s", 45), ("2w", 1_209_600)),
        *(("1.5h", 5_400), (" 3 d ", 259_200), ("0.5", 0.5), ("0", 0), ("-1", -1)),
        *((7, 7), (0.25, 0.25)),
    ],
)
def test_a_duration_is_a_number_of_seconds(text: str | float, seconds: float) -> None:
    read = duration(text)
    assert (read, type(read)) == (seconds, type(seconds))


@pytest.mark.parametrize(
    "text", ["", "d", "9x", "1h30m", "-1d", "nan", "inf", "1e999", "1 2", "h1", float("inf")]
)
def test_what_is_none_is_refused(text: str | float) -> None:
    with pytest.raises(ValueError, match="is not a duration: give a number of seconds"):
        duration(text)


@given(st.text(alphabet="0123456789.eE+-_ smhdwx\u0663", max_size=12))
def test_any_text_has_an_end_or_is_refused(text: str) -> None:
    with suppress(ValueError):
        assert abs(duration(text)) < float("inf")
