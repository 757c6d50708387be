"""The contract of a store's reports to hooks, and of its archives."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import Clocked, Hook, HookError, Hooking, Skip
from ttl_odm.testing.contract.batches import DAY, HOUR
from ttl_odm.testing.rig import CanArchive, CanWrite

if TYPE_CHECKING:
    from ttl_odm.sweeper import Purged
    from ttl_odm.sweeper.hooks import When
    from ttl_odm.testing.rig import StoreRig

both_moments = pytest.mark.parametrize("when", ["transaction", "commit"])


def fill_hooked(rig: StoreRig, hooks: object = None, target: str = "carts") -> None:
    """Create a target with ten expired rows, one live row, and perhaps hooks of its own."""
    if not isinstance(rig.store, Hooking):
        pytest.skip("the store doesn't call hooks")
    rig.create(target, HOUR, hooks)
    for number in range(10):
        rig.add(target, [number], age=DAY + number)
    rig.add(target, [99], age=60)


def keys_of(events: list[Purged]) -> list[int]:
    """Return all keys that were reported, in order."""
    return sorted(key for purged in events for (key,) in purged.keys)


class HookContract:
    """`BatchRequest.hooks`, `Hooking.hooks`, archives."""

    @both_moments
    def test_hooks_are_told_what_was_deleted(self, rig: StoreRig, when: When) -> None:
        fill_hooked(rig)
        events: list[Purged] = []
        report = rig.sweep(on_purged=Hook(events.append, when=when), batch_size=4)
        assert not report.problems
        assert keys_of(events) == list(range(10))
        for purged in events:
            assert (purged.table, purged.reason) == ("carts", "expired")
            assert purged.count == len(purged.keys) > 0
            assert purged.rows is None
            assert purged.duration >= 0
            assert (purged.transaction is None) is (when == "commit")
            if isinstance(rig.store, Clocked):
                ago = rig.run(rig.store.now()) - purged.as_of
                assert timedelta(0) <= ago < timedelta(minutes=10)

    @both_moments
    def test_hooks_get_the_rows_if_they_ask(self, rig: StoreRig, when: When) -> None:
        fill_hooked(rig)
        events: list[Purged] = []
        rig.sweep(on_purged=Hook(events.append, when=when, rows=True))
        assert keys_of(events) == list(range(10))
        for purged in events:
            assert purged.rows is not None
            values = [set(row.values()) for row in purged.rows]
            assert len(values) == purged.count
            assert all(key in row for (key,), row in zip(purged.keys, values, strict=True))

    def test_hooks_are_told_nothing_where_nothing_is_deleted(self, rig: StoreRig) -> None:
        fill_hooked(rig)
        rig.sweep()
        events: list[Purged] = []
        rig.sweep(on_purged=[events.append, Hook(events.append, when="commit")])
        assert events == []

    def test_hooks_may_be_for_one_target(self, rig: StoreRig) -> None:
        fill_hooked(rig)
        fill_hooked(rig, target="orders")
        events: list[Purged] = []
        rig.sweep(on_purged={"orders": events.append})
        assert {purged.table for purged in events} == {"orders"}

    @both_moments
    def test_hooks_may_be_declared_by_the_target(self, rig: StoreRig, when: When) -> None:
        events: list[Purged] = []
        fill_hooked(rig, Hook(events.append, when=when))
        rig.sweep()
        assert keys_of(events) == list(range(10))

    def test_a_hook_that_raises_for_a_row_leaves_that_one_and_all_others_go(
        self, rig: StoreRig
    ) -> None:
        fill_hooked(rig)
        is_broken = True

        def fails(purged: Purged) -> None:
            if is_broken and (4,) in purged.keys:
                raise ValueError("not now")

        report = rig.sweep(on_purged=fails, batch_size=8)
        (target,) = report.targets
        assert isinstance(target.error, HookError)
        assert rig.keys("carts") == {4, 99}
        assert (target.skips, target.deleted) == ({Skip.HOOK: 1}, 9)
        assert [row.split(":")[0] for row in target.left] == ["(4)"]
        is_broken = False
        assert rig.sweep(on_purged=fails).deleted == 1

    def test_a_hook_that_raises_once_undoes_its_batch_which_goes_nevertheless(
        self, rig: StoreRig
    ) -> None:
        fill_hooked(rig)
        events: list[Purged] = []

        def fails_once(purged: Purged) -> None:
            events.append(purged)
            if len(events) == 2:
                raise ValueError("not now")

        report = rig.sweep(on_purged=fails_once, batch_size=4)
        assert not report.problems
        assert (report.deleted, report.skipped) == (10, 0)
        assert keys_of([*events[:1], *events[2:]]) == list(range(10))

    def test_a_hook_that_raises_after_the_commit_undoes_nothing(self, rig: StoreRig) -> None:
        fill_hooked(rig)

        def fails(_: Purged) -> None:
            raise ValueError("too late")

        report = rig.sweep(on_purged=Hook(fails, when="commit"))
        assert isinstance(report.targets[0].error, HookError)
        assert report.deleted == 10
        assert rig.keys("carts") == {99}

    def test_what_a_hook_writes_in_the_transaction_is_committed_with_it_or_not_at_all(
        self, rig: StoreRig
    ) -> None:
        if not isinstance(rig, CanWrite):
            pytest.skip("the rig can't write in a transaction")
        fill_hooked(rig)
        events: list[Purged] = []

        def write(purged: Purged) -> object:
            events.append(purged)
            return rig.write(purged.transaction, str(sorted(purged.keys)))

        async def write_async(purged: Purged) -> None:
            result: Any = write(purged)
            await result

        def fails_once(_: Purged) -> None:
            if len(events) == 2:
                raise ValueError("not now")

        rig.sweep(on_purged=[write_async if rig.is_async else write, fails_once], batch_size=4)
        kept = [purged for number, purged in enumerate(events) if number != 1]
        assert rig.written() == [str(sorted(purged.keys)) for purged in kept]

    @both_moments
    def test_asynchronous_hooks_are_awaited_or_refused(self, rig: StoreRig, when: When) -> None:
        fill_hooked(rig)
        events: list[Purged] = []

        async def hook(purged: Purged) -> None:
            events.append(purged)

        if not rig.is_async:
            with pytest.raises(TTLConfigurationError, match="needs an AsyncSweeper"):
                rig.sweeper(on_purged=Hook(hook, when=when))
            return
        rig.sweep(on_purged=Hook(hook, when=when))
        assert keys_of(events) == list(range(10))

    def test_rows_are_archived_before_they_are_deleted(self, rig: StoreRig) -> None:
        sink = fill_archived(rig, fails_on=None)
        report = rig.sweep(batch_size=4)
        assert not report.problems
        assert keys_of(sink.events) == list(range(10))
        assert sum(len(purged.rows or ()) for purged in sink.events) == 10
        assert (report.deleted, report.archived) == (10, 10)
        assert rig.keys("carts") == {99}

    def test_rows_whose_archive_fails_are_not_deleted(self, rig: StoreRig) -> None:
        sink = fill_archived(rig, fails_on=4)
        report = rig.sweep(batch_size=8)
        (target,) = report.targets
        assert isinstance(target.error, HookError)
        assert rig.keys("carts") == {4, 99}
        assert target.skips == {Skip.HOOK: 1}
        assert target.deleted == target.archived == 9
        assert sum(purged.count for purged in sink.events) == 9


class _Sink:
    """Keeps the events that it gets; fails on the row with a certain key."""

    def __init__(self, fails_on: int | None) -> None:
        self.events: list[Purged] = []
        self._fails_on = fails_on

    def write(self, purged: Purged) -> None:
        if (self._fails_on,) in purged.keys:
            raise OSError("the disk is full")
        self.events.append(purged)


def fill_archived(rig: StoreRig, fails_on: int | None) -> _Sink:
    """Create a target with ten expired rows and one live row, and its sink."""
    if not isinstance(rig, CanArchive):
        pytest.skip("the store doesn't archive rows")
    sink = _Sink(fails_on)
    rig.create_archived("carts", HOUR, sink)
    for number in range(10):
        rig.add("carts", [number], age=DAY + number)
    rig.add("carts", [99], age=60)
    return sink
