"""The contract of a sweeper on the store, and of counts for dry runs and the fuse."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

from ttl_odm.sweeper import Clocked, Counting, Ending, FuseError, Hook, Hooking, Leasing
from ttl_odm.testing.contract.batches import DAY, HOUR, fill

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ttl_odm.sweeper import Progress, SweepOptions
    from ttl_odm.testing.rig import StoreRig


def at_once(rig: StoreRig, calls: Sequence[Callable[[], Any]]) -> list[Any]:
    """Call methods of a store at the same time, in threads or tasks; return the results."""
    if rig.is_async:

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(call() for call in calls))

        results: list[Any] = rig.run(all_of_them())
        return results
    results, start = [], threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> None:
        start.wait()
        results.append(call())

    threads = [threading.Thread(target=run, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class SweepContract:
    """`Sweeper.run_once` on the store."""

    def test_a_sweep_purges_every_target_and_reports_it(self, rig: StoreRig) -> None:
        rig.create("carts", HOUR)
        rig.create("orders", 60)
        rig.create("off", None)
        rig.add("carts", range(5), age=DAY)
        rig.add("carts", range(5, 8), age=60)
        rig.add("orders", range(3), age=HOUR)
        rig.add("off", range(3), age=DAY)
        report = rig.sweep(batch_size=2)
        assert not report.problems
        assert {target.table: target.deleted for target in report.targets} == {
            "carts": 5,
            "orders": 3,
        }
        for target in report.targets:
            assert target.oldest_before is None or target.oldest_before > 0
            assert target.oldest_after in (0.0, None)
        assert rig.keys("carts") == {5, 6, 7}
        assert rig.keys("orders") == set()
        assert rig.keys("off") == {0, 1, 2}

    def test_max_rows_are_not_exceeded(self, rig: StoreRig) -> None:
        fill(rig)
        fill(rig, target="orders")
        report = rig.sweep(max_rows=13, batch_size=4)
        assert (report.deleted, report.ended) == (13, Ending.MAX_ROWS)
        assert len(rig.keys("carts")) + len(rig.keys("orders")) == 7
        assert rig.sweep().deleted == 7

    def test_a_limit_is_shared_among_the_targets(self, rig: StoreRig) -> None:
        fill(rig)
        fill(rig, target="orders")
        assert rig.sweep(max_rows=4).deleted == 4
        assert len(rig.keys("carts")) < 10
        assert len(rig.keys("orders")) < 10

    def test_the_next_sweep_begins_where_the_last_one_ended(self, rig: StoreRig) -> None:
        if not isinstance(rig.store, Leasing) or rig.store.leases is None:
            pytest.skip("the store doesn't have leases")
        fill(rig)
        fill(rig, target="orders")
        tables = []

        def stop(progress: Progress) -> None:
            tables.append(progress.table)
            sweeper.stop()

        for _ in range(2):
            sweeper = rig.sweeper(batch_size=1, on_progress=stop)
            rig.run(sweeper.run_once())
        assert len(set(tables)) == 2

    def test_a_stop_ends_the_sweep_after_the_batch_at_hand(self, rig: StoreRig) -> None:
        fill(rig)

        def stop(_: Progress) -> None:
            sweeper.stop()

        sweeper = rig.sweeper(batch_size=3, on_progress=stop)
        report = rig.run(sweeper.run_once())
        assert report.ended is Ending.STOPPED
        assert len(rig.keys("carts")) == 10 - report.deleted > 0

    def test_sweepers_at_once_without_a_lease_delete_each_row_once(self, rig: StoreRig) -> None:
        fill(rig, 60)
        deleted: Counter[object] = Counter()
        options: SweepOptions = {"lease": False, "batch_size": 7}
        if isinstance(rig.store, Hooking):
            options["on_purged"] = Hook(lambda purged: deleted.update(purged.keys), when="commit")
        at_once(rig, [rig.sweeper(**options).run_once for _ in range(3)])
        # Each may have skipped rows that another sweeper held and then released.
        rig.sweep(**options)
        assert rig.keys("carts") == set()
        if isinstance(rig.store, Hooking):
            assert deleted == Counter({(number,): 1 for number in range(60)})

    def test_outside_its_window_it_sweeps_nothing(self, rig: StoreRig) -> None:
        if not isinstance(rig.store, Clocked):
            pytest.skip("the store doesn't have a clock")
        rig.create("carts", HOUR)
        rig.add("carts", [1], age=DAY)
        now = rig.run(rig.store.now())
        assert now.utcoffset() is not None
        now = now.astimezone(timezone.utc)
        soon, late = now + timedelta(hours=6), now + timedelta(hours=12)
        closed, opened = f"{soon:%H:%M}-{late:%H:%M}", f"{late:%H:%M}-{soon:%H:%M}"
        assert rig.sweep(window=closed, timezone="UTC").ended is Ending.WINDOW
        assert rig.keys("carts") == {1}
        assert rig.sweep(window=opened, timezone="UTC").deleted == 1


MANY = 1_100
"""Rows; more than the fuse always lets pass."""


def fill_counted(rig: StoreRig, expired: int = 7, live: int = 3) -> None:
    """Create a target with expired and live rows."""
    if not isinstance(rig.store, Counting):
        pytest.skip("the store doesn't count rows")
    rig.create("carts", HOUR)
    rig.add("carts", range(expired), age=DAY)
    rig.add("carts", range(expired, expired + live), age=60)


class CountingContract:
    """`Counting.count`."""

    def test_what_has_expired_is_counted(self, rig: StoreRig) -> None:
        fill_counted(rig)
        rig.add("carts", [100, 101], age=HOUR / 2, ttl=60)
        rig.add("carts", [102, 103], age=DAY, ttl=-1)
        assert rig.run(rig.store.count("carts")).due == 9

    def test_a_dry_run_tells_it_and_deletes_nothing(self, rig: StoreRig) -> None:
        fill_counted(rig)
        rig.create("orders", HOUR)
        report = rig.sweep(dry_run=True)
        assert (report.deleted, report.due) == (0, 7)
        assert len(rig.keys("carts")) == 10

    def test_the_fuse_keeps_rows_when_too_much_is_due_until_it_is_forced(
        self, rig: StoreRig
    ) -> None:
        fill_counted(rig, MANY, 0)
        report = rig.sweep(max_fraction=0.5)
        (target,) = report.targets
        assert isinstance(target.error, FuseError)
        assert (target.error.due, target.due, target.deleted) == (MANY, MANY, 0)
        assert len(rig.keys("carts")) == MANY
        assert rig.sweep(max_fraction=0.5, force=True).deleted == MANY
