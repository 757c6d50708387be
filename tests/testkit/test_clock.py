"""`TTLClock` by itself: how it moves, and that nothing of a move outlives its context."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from ttl_odm import TTLError
from ttl_odm.testing import TTLClock

AT = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


def stands(clock: TTLClock) -> tuple[timedelta, datetime | None]:
    return clock.offset, clock.frozen_at


UNMOVED = (timedelta(0), None)


def test_moves_add_up_in_both_directions() -> None:
    with TTLClock() as clock:
        assert stands(clock) == UNMOVED
        clock.advance(90)
        clock.advance(0.5)
        clock.advance(timedelta(minutes=-1))
        assert clock.offset == timedelta(seconds=30.5)
        assert clock.moved(AT) == AT + timedelta(seconds=30.5)


def test_a_frozen_clock_stands_still_until_it_is_moved() -> None:
    with TTLClock() as clock:
        clock.freeze(AT)
        assert clock.frozen_at == clock.moved(AT - HOUR) == clock.moved(AT + HOUR) == AT
        clock.advance(-60)
        assert clock.moved(AT) == AT - timedelta(minutes=1)


def test_an_instant_in_another_time_zone_is_the_same_instant() -> None:
    with TTLClock() as clock:
        clock.freeze(AT.astimezone(timezone(HOUR)))
        assert clock.frozen_at == AT
        assert clock.frozen_at.tzinfo is timezone.utc


def test_without_an_instant_the_clock_stops_where_it_stands() -> None:
    with TTLClock() as clock:
        clock.advance(HOUR)
        before = datetime.now(timezone.utc) + HOUR
        clock.freeze()
        stopped = clock.frozen_at
        assert stopped is not None
        # A database that was asked in an earlier test may be ahead of this host by a little.
        after = datetime.now(timezone.utc) + HOUR
        assert before - timedelta(minutes=1) < stopped < after + timedelta(minutes=1)
        assert stopped.microsecond % 1000 == 0
        clock.freeze()
        assert clock.frozen_at == stopped


def test_the_end_of_a_moves_block_puts_the_clock_back() -> None:
    with TTLClock() as clock:
        clock.advance(10)
        with clock.advance(HOUR) as same:
            assert same is clock
            clock.advance(5)  # undone with the block around it
            with clock.freeze(AT):
                clock.advance(1)
                assert clock.frozen_at == AT + timedelta(seconds=1)
            assert stands(clock) == (HOUR + timedelta(seconds=15), None)
        assert stands(clock) == (timedelta(seconds=10), None)


def test_a_failure_within_puts_the_clock_back() -> None:
    clock = TTLClock()
    with clock:
        with pytest.raises(RuntimeError), clock.freeze(AT):
            raise RuntimeError
        assert stands(clock) == UNMOVED
        clock.advance(1)
    with pytest.raises(RuntimeError), clock, clock.freeze(AT):
        raise RuntimeError
    assert stands(clock) == UNMOVED


def test_blocks_may_end_in_the_wrong_order() -> None:
    with TTLClock() as clock:
        outer, inner = clock.advance(1), None
        with outer:
            inner = clock.advance(10)
            inner.__enter__()
        assert stands(clock) == UNMOVED
        clock.advance(100)
        inner.__exit__(None, None, None)  # its block was part of one that has ended
        assert clock.offset == timedelta(seconds=100)


def test_clocks_nest_and_each_goes_back_to_where_it_began() -> None:
    with TTLClock() as outer:
        outer.advance(HOUR)
        with TTLClock() as inner:
            assert inner.offset == HOUR
            inner.advance(HOUR)
            assert outer.offset == 2 * HOUR
            outer.freeze(AT)
        assert stands(outer) == stands(inner) == (HOUR, None)
    assert stands(outer) == UNMOVED


def test_a_clock_that_outlives_the_one_around_it_changes_nothing_any_more() -> None:
    outer, inner = TTLClock(), TTLClock()
    outer.__enter__()
    outer.advance(1)
    inner.__enter__()
    inner.advance(1)
    outer.__exit__(None, None, None)
    assert stands(inner) == UNMOVED
    with pytest.raises(TTLError, match="only within its context"):
        inner.advance(1)
    inner.__exit__(None, None, None)
    assert stands(inner) == UNMOVED


def test_a_function_is_called_after_each_move_until_the_end_of_its_block() -> None:
    at: list[datetime] = []
    with TTLClock() as clock:
        with clock.after_moves(lambda: at.append(clock.moved(AT))):
            clock.advance(HOUR)
            with clock.freeze(AT):
                with TTLClock() as inner:
                    inner.advance(60)
                clock.advance(30)
        clock.advance(HOUR)
    assert at == [AT + HOUR, AT, AT + timedelta(seconds=60), AT + timedelta(seconds=30)]


def test_what_such_a_function_raises_is_raised_by_the_move_which_has_been_made() -> None:
    def fail() -> None:
        raise RuntimeError

    with TTLClock() as clock, clock.after_moves(fail):
        with pytest.raises(RuntimeError):
            clock.advance(HOUR)
        assert clock.offset == HOUR


def test_a_clock_moves_only_within_its_context() -> None:
    clock = TTLClock()
    for move in (lambda: clock.advance(1), clock.freeze, lambda: clock.expiring(object(), 1)):
        with pytest.raises(TTLError, match="with TTLClock"):
            move()
    with clock, pytest.raises(TTLError, match="already in use"), clock:
        pass
    with clock:  # once more is fine
        clock.advance(1)
    assert stands(clock) == UNMOVED


@pytest.mark.parametrize("by", [True, "60", None, AT, 1j])
def test_what_is_no_time_to_move_by_is_refused(by: Any) -> None:
    with TTLClock() as clock, pytest.raises(TypeError, match="seconds or a timedelta"):
        clock.advance(by)


@pytest.mark.parametrize("by", [float("nan"), float("inf"), 1e18, timedelta.max, timedelta.min])
def test_a_time_that_leads_nowhere_is_refused(by: Any) -> None:
    with TTLClock() as clock:
        with pytest.raises(ValueError, match=r"finite|years"):
            clock.advance(by)
        clock.freeze(AT)
        with pytest.raises(ValueError, match=r"finite|years"):
            clock.advance(by)
        assert clock.frozen_at == AT


def test_a_naive_instant_is_refused() -> None:
    with TTLClock() as clock:
        with pytest.raises(ValueError, match="naive"):
            clock.freeze(datetime(2030, 1, 1))  # noqa: DTZ001 (the point)
        for at in (0, True, "2030-01-01", AT.date()):
            with pytest.raises(TypeError, match="aware datetime"):
                clock.freeze(at)  # type: ignore[arg-type]
        assert stands(clock) == UNMOVED


def test_only_what_has_a_policy_has_a_lifetime_to_expire_by() -> None:
    with TTLClock() as clock, pytest.raises(TTLError, match="no policy"):
        clock.expiring(dict, 1)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )


def test_the_clock_imports_no_database_and_no_pytest() -> None:
    run = python(
        "import sys; from ttl_odm.testing import TTLClock\n"
        "with TTLClock() as clock: clock.advance(1); clock.freeze()\n"
        "found = {'pytest', 'sqlalchemy', 'beanie', 'django'} & sys.modules.keys()\n"
        "assert not found, found"
    )
    assert run.returncode == 0, run.stderr


def test_the_plugin_imports_nothing_but_pytest() -> None:
    run = python(
        "import sys, ttl_odm, pytest; before = set(sys.modules)\n"
        "import ttl_odm.testing.plugin\n"
        "found = sys.modules.keys() - before - {'ttl_odm.testing', 'ttl_odm.testing.plugin'}\n"
        "assert not found, found"
    )
    assert run.returncode == 0, run.stderr


IMPORTED_LATE = """
from ttl_odm.testing import TTLClock
with TTLClock() as clock:
    clock.advance(60)
    import ttl_odm.sqlalchemy
    from sqlalchemy import create_engine, text
    told = text("SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)")
    with create_engine("sqlite://").connect() as connection:
        before = connection.scalar(told)
        {then}
        assert connection.scalar(told) - before > 100_000
"""


@pytest.mark.slow
def test_an_adapter_that_is_imported_late_follows_from_the_next_move_on() -> None:
    run = python(IMPORTED_LATE.format(then="clock.advance(60)"))
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_an_adapter_that_is_imported_too_late_is_told_of() -> None:
    run = python(IMPORTED_LATE.format(then="before -= 200_000"))
    assert "ttl_odm.sqlalchemy was imported after the TTLClock had moved" in run.stderr
