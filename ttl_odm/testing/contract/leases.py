"""The contract of a store's leases, alone and under a sweeper."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ttl_odm.sweeper import Ending, Finishing, FuseError, LeaseState, Leasing
from ttl_odm.testing.contract.batches import DAY, HOUR, fill
from ttl_odm.testing.contract.sweeps import at_once

if TYPE_CHECKING:
    from ttl_odm.sweeper import Lease
    from ttl_odm.testing.rig import StoreRig

NAME = "ttl_odm"
LONG = 60.0


class _PlainLeases:
    """The leases of any store, with synchronous methods."""

    def __init__(self, rig: StoreRig) -> None:
        if not isinstance(rig.store, Leasing) or rig.store.leases is None:
            pytest.skip("the store doesn't have leases")
        self._rig = rig
        self._leases: Any = rig.store.leases

    def acquire(self, holder: str = "us", name: str = NAME) -> Lease | None:
        lease: Lease | None = self._rig.run(self._leases.acquire(name, holder, LONG))
        return lease

    def acquired(self, holder: str = "us", name: str = NAME) -> Lease:
        lease = self.acquire(holder, name)
        assert lease is not None
        return lease

    def renew(self, lease: Lease) -> bool:
        kept: bool = self._rig.run(self._leases.renew(lease))
        return kept

    def release(self, lease: Lease) -> None:
        self._rig.run(self._leases.release(lease))

    def read(self, name: str = NAME) -> LeaseState:
        state: LeaseState = self._rig.run(self._leases.read(name))
        return state

    def record(self, lease: Lease, history: str) -> bool:
        stored: bool = self._rig.run(self._leases.record(lease, history))
        return stored

    def finish(self, lease: Lease, history: str) -> bool:
        if not isinstance(self._leases, Finishing):
            pytest.skip("these leases record and release in two steps")
        stored: bool = self._rig.run(self._leases.finish(lease, history))
        return stored

    def set_paused(self, *, paused: bool) -> None:
        self._rig.run(self._leases.set_paused(NAME, paused))

    def acquire_at_once(self, number: int) -> list[Lease | None]:
        """Let a number of holders try to acquire the lease at the same time."""
        holders = [f"holder {index}" for index in range(number)]
        acquire = self._leases.acquire
        return at_once(self._rig, [partial(acquire, NAME, holder, LONG) for holder in holders])


class LeaseContract:
    """`Leasing.leases`, and sweepers that hold one."""

    @pytest.fixture
    def leases(self, rig: StoreRig) -> _PlainLeases:
        """Return the store's leases."""
        return _PlainLeases(rig)

    def test_a_lease_that_never_was_can_be_looked_at(self, leases: _PlainLeases) -> None:
        assert leases.read() == LeaseState()

    def test_one_holds_a_lease_and_the_others_do_not(self, leases: _PlainLeases) -> None:
        lease = leases.acquired("us")
        assert (lease.name, lease.holder, lease.duration) == (NAME, "us", LONG)
        assert leases.acquire("them") is None
        assert leases.acquire("us") is None
        state = leases.read()
        assert (state.holder, state.token) == ("us", lease.token)
        assert 0 < state.seconds_left <= LONG

    def test_of_many_at_once_exactly_one_gets_it(self, leases: _PlainLeases) -> None:
        granted = leases.acquire_at_once(8)
        assert sum(lease is not None for lease in granted) == 1
        assert len(granted) == 8

    def test_leases_of_other_names_are_other_leases(self, leases: _PlainLeases) -> None:
        one, other = leases.acquired(), leases.acquired(name="other")
        assert leases.renew(one)
        leases.release(one)
        assert leases.read("other").holder == other.holder

    def test_a_lease_that_was_given_back_is_free(self, leases: _PlainLeases) -> None:
        first = leases.acquired()
        leases.release(first)
        state = leases.read()
        assert (state.holder, state.seconds_left) == (None, 0.0)
        assert leases.acquired("them").token > first.token

    def test_a_lease_that_has_ended_is_taken_over_with_a_larger_token(
        self, rig: StoreRig, leases: _PlainLeases
    ) -> None:
        first = leases.acquired("us")
        rig.end_lease(NAME)
        assert leases.read().holder is None
        second = leases.acquired("them")
        assert second.token > first.token

    def test_who_was_taken_over_can_change_nothing_any_more(
        self, rig: StoreRig, leases: _PlainLeases
    ) -> None:
        first = leases.acquired("us")
        rig.end_lease(NAME)
        second = leases.acquired("us")  # not even with the same name
        assert not leases.renew(first)
        assert not leases.record(first, "mine")
        leases.release(first)
        state = leases.read()
        assert (state.holder, state.token, state.history) == ("us", second.token, "")
        assert leases.renew(second)

    def test_a_lease_that_was_given_back_cannot_be_renewed(self, leases: _PlainLeases) -> None:
        lease = leases.acquired()
        leases.release(lease)
        assert not leases.renew(lease)
        assert not leases.record(lease, "mine")
        assert leases.read().holder is None
        leases.release(lease)

    def test_a_lease_that_has_ended_is_renewed_while_nobody_has_taken_it(
        self, rig: StoreRig, leases: _PlainLeases
    ) -> None:
        lease = leases.acquired()
        rig.end_lease(NAME)
        assert leases.renew(lease)
        assert leases.read().holder == "us"
        assert leases.acquire("them") is None

    def test_a_pause_outlives_leases_and_needs_none(self, leases: _PlainLeases) -> None:
        leases.set_paused(paused=True)
        assert leases.read().paused
        lease = leases.acquired()
        assert leases.renew(lease)
        assert leases.read().paused
        leases.release(lease)
        assert leases.read().paused
        leases.set_paused(paused=False)
        assert not leases.read().paused

    def test_a_history_outlives_leases(self, rig: StoreRig, leases: _PlainLeases) -> None:
        first = leases.acquired()
        assert leases.read().recorded_ago is None
        assert leases.record(first, '{"a": "ä, 😀"}')
        leases.release(first)
        leases.release(leases.acquired())
        leases.acquired("them")
        rig.end_lease(NAME)
        state = leases.read()
        assert state.history == '{"a": "ä, 😀"}'
        assert state.recorded_ago is not None
        assert 0 <= state.recorded_ago < 600

    def test_a_history_may_have_some_kilobytes(self, leases: _PlainLeases) -> None:
        lease = leases.acquired()
        assert leases.record(lease, "x" * 20_000)
        assert leases.record(lease, "y" * 20_000)
        assert leases.read().history == "y" * 20_000

    def test_a_lease_that_tells_its_state_tells_what_a_look_would(
        self, leases: _PlainLeases
    ) -> None:
        leases.set_paused(paused=True)
        first = leases.acquired()
        assert leases.record(first, "{}")
        leases.release(first)
        second = leases.acquired("them")
        state, read = second.state, leases.read()
        if state is None:
            pytest.skip("these leases don't return their state when acquired")
        left, ago = state.seconds_left, state.recorded_ago
        assert state == replace(read, seconds_left=left, recorded_ago=ago)
        assert read.seconds_left <= state.seconds_left <= LONG
        assert state.recorded_ago is not None
        assert read.recorded_ago is not None
        assert 0 <= state.recorded_ago <= read.recorded_ago

    def test_a_history_can_be_recorded_with_the_release(self, leases: _PlainLeases) -> None:
        first = leases.acquired()
        assert leases.finish(first, '{"a": "ä, 😀"}')
        state = leases.read()
        assert (state.holder, state.seconds_left, state.token) == (None, 0.0, first.token)
        assert state.history == '{"a": "ä, 😀"}'
        assert state.recorded_ago is not None
        assert not leases.renew(first)
        assert leases.acquired("them").token > first.token

    def test_who_was_taken_over_can_finish_nothing(
        self, rig: StoreRig, leases: _PlainLeases
    ) -> None:
        first = leases.acquired("us")
        rig.end_lease(NAME)
        second = leases.acquired("us")
        assert not leases.finish(first, "mine")
        state = leases.read()
        assert (state.holder, state.token, state.history) == ("us", second.token, "")
        assert leases.finish(second, "theirs")
        assert leases.read().history == "theirs"

    def test_a_sweeper_gives_its_lease_back(self, rig: StoreRig, leases: _PlainLeases) -> None:
        rig.create("carts", HOUR)
        assert rig.sweep().ended is Ending.FINISHED
        state = leases.read()
        assert (state.holder, state.token) == (None, 1)
        assert state.history

    def test_a_sweeper_does_nothing_while_another_has_the_lease(
        self, rig: StoreRig, leases: _PlainLeases
    ) -> None:
        rig.create("carts", HOUR)
        rig.add("carts", [1], age=DAY)
        lease = leases.acquired("them")
        report = rig.sweep()
        assert (report.ended, report.holder) == (Ending.LEASE_HELD, "them")
        assert rig.keys("carts") == {1}
        assert rig.sweep(lease=False).deleted == 1
        assert leases.renew(lease)

    def test_a_sweeper_takes_over_from_one_that_died(
        self, rig: StoreRig, leases: _PlainLeases
    ) -> None:
        rig.create("carts", HOUR)
        rig.add("carts", [1], age=DAY)
        leases.acquired("them")
        rig.end_lease(NAME)
        assert rig.sweep().deleted == 1

    def test_a_paused_sweeper_does_nothing_until_it_is_let(
        self, rig: StoreRig, leases: _PlainLeases
    ) -> None:
        rig.create("carts", HOUR)
        rig.add("carts", [1], age=DAY)
        sweeper = rig.sweeper()
        rig.run(sweeper.pause())
        assert rig.run(sweeper.status()).paused
        assert rig.sweep().ended is Ending.PAUSED
        assert rig.keys("carts") == {1}
        rig.run(sweeper.resume())
        assert not leases.read().paused
        assert rig.sweep().deleted == 1

    def test_a_pause_is_obeyed_within_one_batch(self, rig: StoreRig, leases: _PlainLeases) -> None:
        fill(rig)

        def pause(_: object) -> object:
            return rig.store.leases.set_paused(NAME, paused=True)

        async def pause_async(_: object) -> None:
            await rig.store.leases.set_paused(NAME, paused=True)

        report = rig.sweep(on_progress=pause_async if rig.is_async else pause, batch_size=3)
        assert (report.ended, report.targets[0].batches) == (Ending.PAUSED, 1)
        assert len(rig.keys("carts")) == 10 - report.deleted > 0
        assert leases.read().holder is None

    def test_the_fuse_remembers_what_other_sweepers_found(self, rig: StoreRig) -> None:
        _PlainLeases(rig)
        rig.create("carts", HOUR)
        for _ in range(3):
            rig.add("carts", range(5), age=DAY)
            assert rig.sweep(max_jump=10).deleted == 5
        rig.add("carts", range(1_100), age=DAY)
        report = rig.sweep(max_jump=10)
        assert isinstance(report.targets[0].error, FuseError)
        assert len(rig.keys("carts")) == 1_100
