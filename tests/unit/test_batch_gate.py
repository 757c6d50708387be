"""What ends a sweep, and what makes it wait, between two batches."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scripted import BUSY, NOTHING, OWN, Script, due, endless, full, last, unhurried
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import BatchResult, Ending, Pace, Part, StoreError
from ttl_odm.sweeper.batch_gate import BRIEF, LOOK, REASONS
from ttl_odm.sweeper.commands import AskThrottle, DatabaseNow, FindDue, PurgeBatch
from ttl_odm.sweeper.options import DailyWindow
from ttl_odm.sweeper.pace import Budget, Limits

# max_rows


def test_max_rows_caps_the_last_batch() -> None:
    script = Script({"a": [OWN]}, [full(1_000), full(500)])
    report = script.run(max_rows=1_500)
    assert script.sizes == [1_000, 500]
    assert report.ended is Ending.MAX_ROWS
    assert report.limited


def test_max_rows_counts_what_was_deleted_not_what_was_looked_at() -> None:
    script = Script({"a": [OWN]}, [full(10), full(5)])
    script.run(max_rows=15)
    assert script.sizes == [15, 5]


def test_max_rows_counts_rows_that_referred_to_those_deleted() -> None:
    script = Script({"a": [OWN]}, [BatchResult(0, resume="on", referring={"b": 15})])
    report = script.run(max_rows=15)
    assert (report.ended, report.deleted) == (Ending.MAX_ROWS, 15)


def test_max_rows_that_just_suffice_limit_nothing() -> None:
    assert not Script({"a": [OWN, NOTHING]}, [last(15)]).run(max_rows=15).limited


def test_targets_after_max_rows_are_looked_at_and_not_purged() -> None:
    targets = {"a": [OWN], "b": [due(Part.OWN, oldest=90.0)], "c": [NOTHING]}
    report = Script(targets, [full(15)]).run(max_rows=15)
    assert [(each.table, each.batches, each.oldest_after) for each in report.targets] == [
        ("a", 1, 60.0),
        ("b", 0, 90.0),
        ("c", 0, 0.0),
    ]
    assert report.limited


@pytest.mark.parametrize(("answer", "age"), [(None, None), (BUSY, None), (StoreError("x"), None)])
def test_the_age_after_a_limit_is_asked_once(answer: Any, age: float | None) -> None:
    script = Script({"a": [OWN, answer]}, [full(15)])
    (target,) = script.run(max_rows=15).targets
    assert (target.oldest_after, target.error) == (age, None)
    assert len(script.of(FindDue)) == 2


# max_seconds, rests, rates


def test_after_max_seconds_no_batch_begins() -> None:
    script = Script({"a": [OWN]}, [full(1, number, elapsed=4.0) for number in range(10)])
    report = script.run(max_seconds=10)
    assert report.targets[0].batches == 3
    assert (report.ended, report.limited) == (Ending.MAX_SECONDS, True)


def test_a_database_with_one_writer_gets_rests() -> None:
    pace = Pace(start=200, lowest=50, highest=1_000, target=0.025, rest=1.0)
    script = Script({"a": [OWN, NOTHING]}, [full(200, elapsed=0.03), last(1)])
    report = script.run(pace=pace)
    assert script.pauses == [0.03]
    assert report.waited == {"rest": 0.03}


def test_the_others_get_none() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(1_000), last(1)])
    script.run()
    assert script.pauses == []


@pytest.mark.parametrize(("nice", "pauses"), [(0.5, [2.0]), (0.0, [])])
def test_nice_overrules_the_databases_rest(nice: float, pauses: list[float]) -> None:
    pace = Pace(start=200, lowest=50, highest=1_000, target=0.025, rest=1.0)
    script = Script({"a": [OWN, NOTHING]}, [full(200, elapsed=4.0), last(1)])
    script.run(pace=pace, nice=nice)
    assert script.pauses == pauses


def test_a_rest_is_owed_to_the_next_batch_also_in_another_target() -> None:
    batches = [BatchResult(1, elapsed=2.0), BatchResult(1, elapsed=3.0)]
    script = Script({"a": [OWN, NOTHING], "b": [OWN, NOTHING]}, batches)
    script.run(nice=1.0)
    assert script.pauses == [2.0]


def test_a_rate_caps_batches_at_a_second_and_waits_for_the_rest_of_it() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(500), full(250, "y"), last(1)])
    report = script.run(max_rows_per_second=500)
    assert script.sizes == [500, 500, 500]
    assert script.pauses == pytest.approx([0.9, 0.4])
    assert report.waited == {"rate": pytest.approx(1.3)}


def test_a_rate_below_one_row_per_second_still_gets_on() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(1), last(1)])
    script.run(max_rows_per_second=0.1)
    assert script.sizes == [1, 1]
    assert sum(script.pauses) == pytest.approx(9.9)


@unhurried
@given(
    st.lists(st.tuples(st.integers(0, 50), st.floats(0, 2)), min_size=1, max_size=30),
    st.floats(0.5, 100),
)
def test_a_rate_is_never_exceeded(batches: list[tuple[int, float]], rate: float) -> None:
    budget = Budget(Limits(max_rows_per_second=rate), rest=0.0, began=0.0)
    clock = rows = 0.0
    for found, elapsed in batches:
        deleted = min(found, budget.cap(1_000))
        _, wait = budget.spend(BatchResult(deleted, elapsed=elapsed))
        clock, rows = clock + elapsed + max(wait, 0), rows + deleted
        assert rows <= clock * rate * 1.000001 + 1e-6


# throttle


def throttled(*answers: Any) -> dict[type[Any], list[Any]]:
    return {AskThrottle: list(answers)}


def test_the_throttle_is_asked_before_each_batch() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(1), last(1)])
    script.run(throttle=True)
    kinds = [type(each) for each in script.asked if isinstance(each, (AskThrottle, PurgeBatch))]
    assert kinds == [AskThrottle, PurgeBatch] * 2


def test_without_a_throttle_nobody_is_asked() -> None:
    script = Script({"a": [OWN, NOTHING]}, [last(1)])
    script.run()
    assert script.of(AskThrottle) == []


def test_a_throttle_is_waited_for_until_it_lets_go() -> None:
    answers = throttled(0.5, "lag", 2, "lag", None)
    script = Script({"a": [OWN, NOTHING]}, [last(1)], instead=answers)
    report = script.run(throttle=True)
    assert script.pauses == [0.5, 1.0, 2.0, 1.0]
    assert report.waited == {"throttle": 2.5, "lag": 2.0}
    assert report.deleted == 1


@pytest.mark.parametrize("go_on", [None, 0, 0.0, "", False])
def test_these_answers_of_a_throttle_mean_go_on(go_on: Any) -> None:
    script = Script({"a": [OWN, NOTHING]}, [last(1)], instead=throttled(go_on))
    script.run(throttle=True)
    assert script.pauses == []


@pytest.mark.parametrize("nonsense", [-1, float("nan"), float("inf"), [], object()])
def test_a_throttle_that_talks_nonsense_fails_the_sweep(nonsense: Any) -> None:
    script = Script({"a": [OWN], "b": [OWN]}, instead=throttled(nonsense))
    report = script.run(throttle=True)
    assert report.ended is Ending.FAILED
    assert isinstance(report.error, TTLConfigurationError)
    assert not report.failed
    assert script.of(PurgeBatch) == []


def test_a_throttle_that_fails_fails_the_sweep() -> None:
    error = OSError("no metrics")
    report = Script({"a": [OWN]}, instead=throttled(error)).run(throttle=True)
    assert (report.ended, report.error) == (Ending.FAILED, error)


def test_a_throttle_with_a_new_reason_each_time_does_not_fill_the_report() -> None:
    reasons = [f"{number} seconds behind" for number in range(1_000)]
    script = Script({"a": [OWN, NOTHING]}, [last(1)], instead=throttled(*reasons))
    report = script.run(throttle=True)
    assert len(report.waited) == REASONS + 1
    assert sum(report.waited.values()) == 1_000


def test_a_throttle_of_next_to_nothing_is_not_asked_all_day() -> None:
    script = Script({"a": [OWN]}, instead=throttled(*[1e-9] * 1_000))
    script.run(throttle=True, max_seconds=1)
    assert set(script.pauses) == {BRIEF}


def test_a_long_wait_looks_around_now_and_then() -> None:
    script = Script({"a": [OWN]}, instead=throttled(3600), stop_at=12.0)
    report = script.run(throttle=True)
    assert report.ended is Ending.STOPPED
    assert max(script.pauses) == LOOK
    assert script.clock == 12.0


# stopping


def test_a_sweeper_that_is_to_stop_does_not_begin() -> None:
    script = Script({"a": [OWN]}, stop_at=0.0)
    report = script.run()
    assert (report.ended, report.targets) == (Ending.STOPPED, ())


def test_a_stop_ends_the_sweep_after_the_batch_at_hand() -> None:
    script = Script({"a": [OWN], "b": [OWN]}, [full(5, n, 1.0) for n in range(9)], stop_at=2.5)
    report = script.run()
    assert report.ended is Ending.STOPPED
    assert [(each.table, each.deleted, each.oldest_after) for each in report.targets] == [
        ("a", 15, None)
    ]


def test_a_stop_is_obeyed_between_two_attempts() -> None:
    script = Script({"a": [OWN]}, [BUSY] * 5, stop_at=0.2)
    report = script.run()
    assert report.ended is Ending.STOPPED
    assert len(script.of(PurgeBatch)) == 2


# the window

NIGHT = DailyWindow.of("01:00-05:00", "UTC")


def at(hour: int, minute: int = 0) -> Any:
    return datetime(2024, 1, 1, hour, minute, tzinfo=timezone.utc)


def test_outside_the_window_nothing_is_looked_at() -> None:
    script = Script({"a": [OWN]}, midnight=at(12))
    report = script.run(window=NIGHT)
    assert (report.ended, report.targets) == (Ending.WINDOW, ())
    assert script.of(FindDue) == []


def test_the_databases_clock_is_asked_once_a_sweep() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(1), last(1)], midnight=at(2))
    assert script.run(window=NIGHT).deleted == 2
    assert len(script.of(DatabaseNow)) == 1


def test_a_window_that_closes_ends_the_sweep() -> None:
    script = Script({"a": [OWN]}, [full(1, n, 60.0) for n in range(99)], midnight=at(4, 50))
    report = script.run(window=NIGHT)
    assert (report.ended, report.deleted) == (Ending.WINDOW, 10)


def test_a_clock_that_cannot_be_read_fails_the_sweep() -> None:
    error = StoreError("no clock")
    report = Script({"a": [OWN]}, instead={DatabaseNow: [error]}).run(window=NIGHT)
    assert (report.ended, report.error) == (Ending.FAILED, error)


@unhurried
@given(st.floats(0, 86_400), st.lists(st.floats(0, 4_000), min_size=1, max_size=30))
def test_no_batch_begins_outside_the_window(start: float, times: list[float]) -> None:
    midnight = at(0) + timedelta(seconds=start)
    script = Script({"a": [OWN]}, [full(1, n, t) for n, t in enumerate(times)], midnight=midnight)
    script.batches.append(last(0))
    seen: list[Any] = []

    def note(command: Any, clock: float) -> None:
        if isinstance(command, PurgeBatch):
            seen.append(midnight + timedelta(seconds=clock))

    script.before = note
    script.run(window=NIGHT)
    assert all(NIGHT.is_open(instant) for instant in seen)


# everything at once


@pytest.mark.slow
@unhurried
@given(
    st.lists(
        st.one_of(st.none(), st.floats(0, 20), st.text(max_size=3), st.just(BUSY)), max_size=60
    ),
    st.floats(0, 90),
)
def test_whatever_the_throttle_says_a_stop_ends_the_sweep(
    answers: list[Any], stop_at: float
) -> None:
    script = Script({"a": [OWN]}, endless(), instead=throttled(*answers), stop_at=stop_at)
    report = script.run(throttle=True)
    assert report.ended in {Ending.STOPPED, Ending.FAILED}
    assert script.clock <= stop_at + 0.1
