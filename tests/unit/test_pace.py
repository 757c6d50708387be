"""Batch sizes and waits, as arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ttl_odm.sweeper import Pace
from ttl_odm.sweeper.pace import backoff

PACE = Pace(start=1_000, lowest=100, highest=10_000, target=0.1)


@pytest.mark.parametrize(
    ("size", "elapsed", "expected"),
    [
        (1_000, 0.1, 1_000),
        (1_000, 0.08, 1_250),
        (1_000, 0.125, 800),
        (1_000, 0.01, 2_000),  # at most doubled
        (1_000, 7.0, 500),  # at most halved
        (8_000, 0.01, 10_000),
        (150, 7.0, 100),
        (1_000, 0.0, 2_000),  # a clock of coarse steps
    ],
)
def test_the_next_batch_moves_towards_the_target(size: int, elapsed: float, expected: int) -> None:
    assert PACE.next(size, elapsed) == expected


@given(st.integers(100, 10**6), st.floats(0, 10**6))
def test_the_next_batch_is_always_within_the_range(size: int, elapsed: float) -> None:
    assert PACE.lowest <= PACE.next(size, elapsed) <= PACE.highest


@given(st.integers(1, 99), st.floats(0, 10**6))
def test_a_batch_that_failures_made_small_grows_step_by_step(size: int, elapsed: float) -> None:
    assert size <= PACE.next(size, elapsed) <= 2 * size


@pytest.mark.parametrize("pace", [PACE, PACE.starting_at(7)])
@given(st.integers(1, 10**6))
def test_a_failed_batch_shrinks_down_to_a_single_row(pace: Pace, size: int) -> None:
    assert pace.shrunk(size) == max(1, size // 2)


@pytest.mark.parametrize("size", [1, 50, 1_000, 50_000])
def test_a_chosen_first_batch_is_within_the_range(size: int) -> None:
    pace = PACE.starting_at(size)
    assert pace.start == size
    assert pace.lowest <= size <= pace.highest
    assert pace.next(size, pace.target) == size


def test_the_wait_before_another_attempt_doubles_and_is_drawn_by_lot() -> None:
    assert [backoff(failures, 1.0) for failures in (1, 2, 3)] == [0.1, 0.2, 0.4]
    assert backoff(3, 0.5) == 0.2
    assert backoff(3, 0.0) == 0.0


def test_the_wait_before_another_attempt_is_never_long() -> None:
    assert backoff(1_000, 1.0) == 5.0
