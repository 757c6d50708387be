"""Holding the lease while sweeping."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scripted import (
    AWAY,
    BUSY,
    CLAIM,
    NOTHING,
    OWN,
    FakeLease,
    Script,
    endless,
    full,
    last,
    unhurried,
)
from ttl_odm.sweeper import Ending, StoreError
from ttl_odm.sweeper.batch_gate import RENEWED, TRUSTED
from ttl_odm.sweeper.commands import (
    Acquire,
    DatabaseNow,
    FindDue,
    Pause,
    PurgeBatch,
    ReadLease,
    Record,
    Renew,
)
from ttl_odm.sweeper.options import DailyWindow


def batches(elapsed: float, number: int = 1_000) -> list[Any]:
    return [full(1, n, elapsed) for n in range(number)]


def test_a_sweep_takes_the_lease_first() -> None:
    script = Script({"a": [OWN, NOTHING]}, [last(1)])
    report = script.run(CLAIM)
    assert script.of(Acquire) == [Acquire("ttl_odm", "us", 60.0)]
    assert (report.ended, report.deleted) == (Ending.FINISHED, 1)


def test_without_a_claim_nobody_asks_for_a_lease() -> None:
    script = Script({"a": [OWN, NOTHING]}, [last(1)])
    script.run()
    assert not [each for each in script.asked if isinstance(each, (Acquire, ReadLease, Record))]


def test_a_sweep_does_nothing_while_another_holds_the_lease() -> None:
    script = Script({"a": [OWN]}, lease=FakeLease("them", 7, until=30.0))
    report = script.run(CLAIM)
    assert (report.ended, report.holder, report.targets) == (Ending.LEASE_HELD, "them", ())
    assert not report.problems


def test_a_lease_that_has_ended_is_taken_over() -> None:
    script = Script({"a": [OWN, NOTHING]}, [last(1)], lease=FakeLease("them", 7, until=0.0))
    assert script.run(CLAIM).deleted == 1
    assert script.lease.token == 8


def test_a_lease_that_cannot_be_asked_for_is_asked_for_again() -> None:
    script = Script({"a": [OWN, NOTHING]}, [last(1)], instead={Acquire: [BUSY, BUSY]})
    assert script.run(CLAIM).deleted == 1


@pytest.mark.parametrize("errors", [[BUSY] * 5, [StoreError("no table")]])
def test_a_lease_that_is_nowhere_fails_the_sweep(errors: list[Any]) -> None:
    last_error = errors[-1]
    report = Script({"a": [OWN]}, instead={Acquire: [*errors]}).run(CLAIM)
    assert (report.ended, report.error, report.targets) == (Ending.FAILED, last_error, ())


def test_a_lease_that_is_out_of_reach_for_long_fails_the_sweep_with_the_reason() -> None:
    script = Script({"a": [OWN]}, instead={Acquire: [AWAY] * 100}, clock=1_000.0)
    report = script.run(CLAIM)
    assert (report.ended, report.error) == (Ending.FAILED, AWAY)
    assert 60.0 <= report.duration < 70.0


def test_a_sweep_lasts_from_its_beginning_on_the_clock_to_its_end() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(10, elapsed=0.5), last(1)], clock=1_000.0)
    assert script.run(CLAIM).duration == 0.5


def test_a_stop_while_asking_for_the_lease_is_obeyed() -> None:
    script = Script({"a": [OWN]}, instead={Acquire: [BUSY] * 5}, stop_at=0.05)
    assert script.run(CLAIM).ended is Ending.STOPPED


def test_the_lease_is_renewed_when_a_third_of_it_is_over() -> None:
    script = Script({"a": [OWN]}, batches(1.0, 100))
    renewed: list[float] = []
    script.before = lambda command, clock: isinstance(command, Renew) and renewed.append(clock)
    script.run(CLAIM, max_rows=100)
    assert renewed == [20.0, 40.0, 60.0, 80.0]


def test_a_batch_that_outlives_the_lease_is_the_last_one_if_another_has_taken_over() -> None:
    script = Script({"a": [OWN], "b": [OWN]}, [full(1, "x"), full(1, "y", 500.0), *endless()])

    def take_over(command: Any, clock: float) -> None:
        if clock > 100 and script.lease.holder != "them":
            script.lease.taken_over(clock)

    script.before = take_over
    report = script.run(CLAIM)
    assert (report.ended, report.deleted) == (Ending.LEASE_LOST, 2)
    assert [each.table for each in report.targets] == ["a"]
    assert not report.problems


def test_a_lease_that_is_taken_over_before_its_time_is_missed_within_one_batch() -> None:
    script = Script({"a": [OWN]}, batches(1.0))

    def take_over(_: Any, clock: float) -> None:
        if clock >= 3.0 and script.lease.token == 1:
            script.lease.taken_over(clock)

    script.before = take_over
    report = script.run(CLAIM)
    assert (report.ended, report.deleted) == (Ending.LEASE_LOST, 3)


def test_a_batch_that_outlives_the_lease_is_followed_by_others_if_nobody_has_taken_over() -> None:
    script = Script({"a": [OWN, NOTHING]}, [full(1, "y", 500.0), last(1)])
    assert script.run(CLAIM).deleted == 2


def test_a_renewal_that_fails_is_tried_again_while_the_lease_is_trusted() -> None:
    script = Script({"a": [OWN]}, batches(1.0), instead={Renew: [BUSY] * 10})
    report = script.run(CLAIM, max_rows=100)
    assert report.ended is Ending.MAX_ROWS


def test_a_lease_is_not_trusted_to_its_very_end() -> None:
    script = Script({"a": [OWN]}, batches(1.0), instead={Renew: [BUSY] * 1_000})
    report = script.run(CLAIM)
    assert (report.ended, report.error) == (Ending.LEASE_LOST, BUSY)
    assert script.clock == 60.0 * TRUSTED


def test_a_lease_is_trusted_from_before_it_was_asked_for() -> None:
    script = Script({"a": [OWN]}, batches(1.0))

    def slow(command: Any, clock: float) -> None:
        if isinstance(command, Acquire):
            script.clock = clock + 25.0  # the answer is under way for so long

    renewed: list[float] = []
    script.before = lambda command, clock: (
        slow(command, clock),
        isinstance(command, Renew) and renewed.append(clock),
    )
    script.run(CLAIM, max_rows=3)
    assert renewed[0] == 25.0  # at once: a third of it is over


def test_a_lease_that_cannot_be_renewed_fails_the_sweep_not_the_target() -> None:
    error = StoreError("no such table")
    script = Script({"a": [OWN]}, batches(1.0), instead={Renew: [error]})
    report = script.run(CLAIM)
    assert (report.ended, report.error, report.failed) == (Ending.FAILED, error, ())


# pausing


def test_a_paused_sweeper_does_not_begin() -> None:
    script = Script({"a": [OWN]}, lease=FakeLease(paused=True))
    report = script.run(CLAIM)
    assert (report.ended, report.targets) == (Ending.PAUSED, ())


def test_a_sweep_beside_a_paused_sweeper_that_keeps_its_lease_is_paused_too() -> None:
    script = Script({"a": [OWN]}, lease=FakeLease("them", 7, 30.0, paused=True))
    report = script.run(CLAIM)
    assert (report.ended, report.targets) == (Ending.PAUSED, ())


def test_a_pause_is_obeyed_within_one_batch() -> None:
    script = Script({"a": [OWN]}, batches(1.0))

    def pause(_: Any, clock: float) -> None:
        script.lease.paused = clock >= 3.0

    script.before = pause
    report = script.run(CLAIM)
    assert (report.ended, report.deleted) == (Ending.PAUSED, 3)


def test_a_dry_run_neither_takes_the_lease_nor_minds_a_pause() -> None:
    script = Script({"a": [OWN]}, lease=FakeLease("them", 7, 30.0, paused=True))
    report = script.run(CLAIM, dry_run=True)
    assert report.ended is Ending.FINISHED
    assert script.of(Acquire) == []


def test_a_look_at_the_lease_that_fails_for_now_stops_nothing() -> None:
    # The first one reads the history, before any target.
    script = Script({"a": [OWN, NOTHING]}, [last(1)], instead={ReadLease: [BUSY] * 4})
    assert script.run(CLAIM).deleted == 1


def test_a_history_that_cannot_be_stored_is_told_and_nothing_is_undone() -> None:
    error = StoreError("read only")
    script = Script({"a": [OWN, NOTHING]}, [last(1)], instead={Record: [error]})
    report = script.run(CLAIM)
    assert (report.deleted, report.error, report.ended) == (1, error, Ending.FAILED)


def test_an_idle_sweep_reads_the_lease_only_as_it_is_acquired() -> None:
    script = Script({"a": [NOTHING]}, lease=FakeLease(history='{"found":{"a":[7]}}', tells=True))
    script.run(CLAIM)
    assert not script.of(ReadLease)
    assert script.lease.history == '{"found":{"a":[7,0]},"rates":{}}'


def test_a_state_that_was_not_told_is_read_once_before_the_targets() -> None:
    script = Script({"a": [NOTHING]}, lease=FakeLease(history='{"found":{"a":[7]}}'))
    script.run(CLAIM)
    assert len(script.of(ReadLease)) == 1
    assert script.lease.history == '{"found":{"a":[7,0]},"rates":{}}'


def test_a_pause_that_the_acquisition_has_read_is_obeyed() -> None:
    script = Script({"a": [OWN]}, lease=FakeLease(paused=True, tells=True))
    report = script.run(CLAIM)
    assert (report.ended, report.targets) == (Ending.PAUSED, ())


def test_a_state_that_was_told_is_for_the_first_check_alone() -> None:
    script = Script({"a": [OWN]}, batches(1.0), lease=FakeLease(tells=True))

    def pause(command: Any, _: float) -> None:
        script.lease.paused |= isinstance(command, FindDue)

    script.before = pause
    report = script.run(CLAIM)
    assert (report.ended, report.deleted) == (Ending.PAUSED, 0)


def test_a_state_that_was_told_does_not_outlive_its_sweep() -> None:
    """The sweep that acquired the lease never came to its check, and the next one comes later."""
    lease = FakeLease(tells=True)
    script = Script({"a": [OWN]}, instead={DatabaseNow: [StoreError("no clock")]}, lease=lease)

    def pause(command: Any, clock: float) -> None:
        script.lease.paused |= isinstance(command, Pause)
        script.stop_at = clock if len(script.reports) > 1 else script.stop_at

    script.before = pause
    script.run_forever(CLAIM, window=DailyWindow.of("00:00-23:59", "UTC"))
    assert [report.ended for report in script.reports] == [Ending.FAILED, Ending.PAUSED]


def test_a_single_sweep_ends_its_lease_and_repeated_ones_keep_it() -> None:
    once = Script({"a": [NOTHING]})
    once.run(CLAIM)
    assert [command.ends for command in once.of(Record)] == [True]
    repeated = Script({"a": [NOTHING]}, stop_at=150.0)
    repeated.run_forever(CLAIM)
    assert [command.ends for command in repeated.of(Record)] == [False] * 3


# whatever happens


@unhurried
@given(
    st.lists(st.floats(0, 90), min_size=1, max_size=20),
    st.lists(st.sampled_from([BUSY, None]), max_size=30),
    st.floats(0, 200),
    st.sampled_from([0.0, 1.0]),
)
def test_no_batch_begins_on_a_lease_that_somebody_else_holds(
    times: list[float], renewals: list[Any], taken_at: float, nice: float
) -> None:
    script = Script({"a": [OWN]}, [*(full(1, n, t) for n, t in enumerate(times)), last(0)])
    trouble = list(renewals)
    wrong: list[float] = []

    def world(command: Any, clock: float) -> None:
        lease = script.lease
        # Nobody takes over before the end, by the database's clock.
        if clock >= max(taken_at, lease.until) and lease.token == 1:
            lease.taken_over(clock)
        if isinstance(command, Renew) and trouble:
            script.instead[Renew] = [each] if (each := trouble.pop()) else []
        if isinstance(command, PurgeBatch) and lease.holder == "them":
            wrong.append(clock)

    script.before = world
    script.run(CLAIM, nice=nice)
    assert wrong == []


@unhurried
@given(st.floats(1.0, 3600.0))
def test_a_renewal_comes_long_before_the_trust_ends(duration: float) -> None:
    assert duration * RENEWED * 2 < duration * TRUSTED < duration
