"""Sweeping again and again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.scripted import (
    BUSY,
    CLAIM,
    NOTHING,
    OWN,
    STANDBY,
    FakeLease,
    Script,
    endless,
    last,
    settings,
    unhurried,
)
from tests.unit.test_batch_gate import NIGHT, at
from ttl_odm.sweeper import Ending, StoreError
from ttl_odm.sweeper.batch_gate import LOOK
from ttl_odm.sweeper.commands import Acquire, FindDue, Renew
from ttl_odm.sweeper.plan import OPENS, run_forever


def idle(**given: Any) -> Script:
    return Script({"a": [NOTHING]}, **given)


def times_of(script: Script, kind: type[Any]) -> list[float]:
    """Write down when commands of a kind are asked, from now on."""
    times: list[float] = []
    before = script.before

    def note(command: Any, clock: float) -> None:
        before(command, clock)
        if isinstance(command, kind):
            times.append(clock)

    script.before = note
    return times


def test_it_sweeps_once_an_interval_until_it_is_stopped() -> None:
    script = idle(stop_at=150.0)
    sweeps = times_of(script, FindDue)
    report = script.run_forever(interval=60)
    assert sweeps == [0.0, 60.0, 120.0]
    assert report is not None
    assert [each.ended for each in script.reports] == [Ending.FINISHED] * 3


def test_a_stopped_sweeper_never_begins() -> None:
    script = idle(stop_at=0.0)
    assert script.run_forever() is None
    assert script.of(FindDue) == []


def test_a_stop_in_the_middle_of_a_sweep_ends_everything() -> None:
    script = Script({"a": [OWN]}, endless(), stop_at=5.0)
    report = script.run_forever()
    assert report is not None
    assert report.ended is Ending.STOPPED
    assert script.clock == pytest.approx(5.0, abs=0.2)


@pytest.mark.parametrize(("draw", "waited"), [(0.0, 45.0), (0.5, 60.0), (1.0, 75.0)])
def test_the_interval_varies_at_random(draw: float, waited: float) -> None:
    script = idle(stop_at=80.0)
    sweeps = times_of(script, FindDue)
    script.carry_out(run_forever(settings(jitter=lambda: draw), interval=60, jitter=0.25))
    assert sweeps[1] == waited


def test_a_failing_sweep_is_told_and_followed_by_another() -> None:
    script = idle(stop_at=100.0, instead={FindDue: [StoreError("no")]})
    report = script.run_forever()
    assert [bool(each.problems) for each in script.reports] == [True, False]
    assert report is not None
    assert not report.problems


def test_the_lease_is_kept_between_two_sweeps() -> None:
    script = idle(stop_at=300.0)
    renewals = times_of(script, Renew)
    script.run_forever(CLAIM, interval=120)
    assert len(script.of(Acquire)) == 1
    assert script.lease.token == 1
    assert all(later - sooner <= 40 for sooner, later in pairwise(renewals))


def test_another_sweeper_stands_by_and_takes_over_when_the_lease_ends() -> None:
    script = idle(lease=FakeLease("them", 7, until=42.0), stop_at=60.0)
    sweeps = times_of(script, FindDue)
    script.run_forever(CLAIM)
    assert sweeps == [42.0]
    assert [each.ended for each in script.reports] == [Ending.LEASE_HELD, Ending.FINISHED]


def test_standing_by_is_told_once() -> None:
    script = idle(lease=FakeLease("them", 7, until=50.0), stop_at=500.0)

    def renew(_: Any, clock: float) -> None:
        script.lease.until = clock + 50.0

    script.before = renew
    script.run_forever(CLAIM)
    assert [each.ended for each in script.reports] == [Ending.LEASE_HELD]
    assert len(script.of(Acquire)) <= 500.0 / OPENS + 1


def test_a_lease_that_is_given_back_before_its_end_is_taken_soon() -> None:
    script = idle(lease=FakeLease("them", 7, until=3_600.0), stop_at=200.0)

    def give_back(_: Any, clock: float) -> None:
        if clock >= 100.0 and script.lease.token == 7:
            script.lease.holder = None

    script.before = give_back
    sweeps = times_of(script, FindDue)
    script.run_forever(CLAIM, interval=3600)
    assert sweeps == [pytest.approx(100.0, abs=OPENS)]


def test_a_lease_that_says_nothing_of_its_end_is_not_asked_for_all_day() -> None:
    script = idle(lease=FakeLease("them", 7, until=1e9), stop_at=100.0)

    def about_to_end(_: Any, clock: float) -> None:
        script.lease.until = clock + 1e-9

    script.before = about_to_end
    script.run_forever(CLAIM)
    assert len(script.of(Acquire)) <= 101


@pytest.mark.parametrize(("left", "waits"), [(0.5, 1.125), (4.0, 4.5), (3_600.0, 11.25)])
def test_standing_by_is_prolonged_at_random_so_that_not_all_try_at_once(
    left: float, waits: float
) -> None:
    script = idle(lease=FakeLease("them", 7), stop_at=100.0)

    def held(_: Any, clock: float) -> None:
        script.lease.until = clock + left

    script.before = held
    tries = times_of(script, Acquire)
    plan = run_forever(settings(jitter=lambda: 0.5), CLAIM, interval=60, jitter=0.25)
    script.carry_out(plan)
    assert tries[1] - tries[0] == waits


def test_waiting_ends_with_the_interval() -> None:
    script = idle(stop_at=60.0)
    script.run_forever(interval=20)
    assert script.pauses == [LOOK] * 12


def test_a_lease_that_is_lost_in_the_interval_is_asked_for_again() -> None:
    script = idle(stop_at=400.0)

    def taken(_: Any, clock: float) -> None:
        if clock >= 30.0 and script.lease.token == 1:
            script.lease.taken_over(clock)

    script.before = taken
    script.run_forever(CLAIM, interval=60)
    endings = [each.ended for each in script.reports]
    assert endings[:3] == [Ending.FINISHED, Ending.LEASE_HELD, Ending.FINISHED]
    assert script.lease.holder == "us"


def test_trouble_in_the_interval_costs_nothing_but_the_wait() -> None:
    script = idle(stop_at=300.0, instead={Renew: [BUSY, StoreError("no")]})
    script.run_forever(CLAIM, interval=120)
    assert {each.ended for each in script.reports} == {Ending.FINISHED}


def test_a_paused_sweeper_goes_on_soon_after_it_is_let() -> None:
    script = idle(lease=FakeLease(paused=True), stop_at=700.0)

    def resume(_: Any, clock: float) -> None:
        script.lease.paused = clock < 100.0

    script.before = resume
    sweeps = times_of(script, FindDue)
    script.run_forever(CLAIM, interval=3600)
    assert sweeps == [pytest.approx(100.0, abs=OPENS)]
    assert [each.ended for each in script.reports] == [Ending.PAUSED, Ending.FINISHED]


def test_a_sweeper_of_a_standby_says_once_that_it_waits_and_goes_on_after_the_promotion() -> None:
    script = idle(stop_at=1_000.0)

    def promote(_: Any, clock: float) -> None:
        script.lease.trouble = STANDBY if clock < 400.0 else None

    script.before = promote
    sweeps = times_of(script, FindDue)
    script.run_forever(CLAIM, interval=3600)
    assert sweeps == [pytest.approx(400.0, abs=2 * OPENS)]
    assert [each.ended for each in script.reports] == [Ending.STANDBY, Ending.FINISHED]


def test_a_sweeper_ends_at_a_standby_where_it_should_not_wait() -> None:
    script = idle(stop_at=1_000.0, instead={Acquire: [STANDBY]})
    report = script.run_forever(CLAIM, waits_at_standby=False)
    assert report is not None
    assert report.ended is Ending.STANDBY
    assert script.reports == [report]
    assert script.clock == 0.0


def test_a_sweeper_begins_soon_after_its_window_opens_and_says_once_that_it_waits() -> None:
    script = idle(midnight=at(0, 50), stop_at=4_000.0)
    sweeps = times_of(script, FindDue)
    script.run_forever(interval=86_400, window=NIGHT)
    assert sweeps == [pytest.approx(600.0, abs=OPENS)]
    assert [each.ended for each in script.reports] == [Ending.WINDOW, Ending.FINISHED]


@pytest.mark.slow
@unhurried
@given(st.floats(0, 10), st.floats(0, 1), st.floats(0, 1), st.sampled_from([CLAIM, None]))
def test_no_interval_makes_it_spin(interval: float, jitter: float, draw: float, claim: Any) -> None:
    script = Script({"a": [NOTHING]}, stop_at=4.0)
    plan = run_forever(
        settings(jitter=lambda: draw),
        claim,
        interval=interval,
        jitter=jitter,
    )
    script.carry_out(plan)
    assert len(script.of(FindDue)) <= 4.0 / 0.05 + 1


@pytest.mark.slow
@unhurried
@given(st.lists(st.sampled_from([BUSY, StoreError("x"), last(3)]), max_size=20), st.floats(0, 100))
def test_a_stop_is_obeyed_in_every_state(batches: list[Any], stop_at: float) -> None:
    script = Script({"a": [OWN]}, [*batches, *(last(0) for _ in range(200))], stop_at=stop_at)
    script.run_forever(CLAIM, interval=1.0)
    assert script.clock <= stop_at + 0.1
