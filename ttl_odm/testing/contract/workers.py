"""The contract of `divide`, and of a sweeper with several workers on the store."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from ttl_odm.sweeper import BatchRequest, Dividing, Ending, Hook, Hooking, Skip
from ttl_odm.testing.contract.batches import DAY, HOUR
from ttl_odm.testing.rig import CanHold, CanRefuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.sweeper import Progress, Purged, SweepOptions
    from ttl_odm.testing.rig import StoreRig

ROWS = 120


def stock(rig: StoreRig, rows: int = ROWS, *, apart: int = 1, ttl: int | None = None) -> None:
    """Create a target with rows that expired `apart` seconds apart, and as many live rows."""
    if not isinstance(rig.store, Dividing):
        pytest.skip("the store doesn't divide its work")
    rig.create("carts", HOUR)
    for key in range(rows if apart else 0):
        rig.add("carts", [key], age=DAY - key * apart, ttl=ttl)
    if not apart:
        rig.add("carts", range(rows), age=DAY, ttl=ttl)
    rig.add("carts", range(rows, 2 * rows), age=60)


def begin(rig: StoreRig, size: int) -> BatchRequest:
    """Purge the first batch of the only part; return the request for the next one."""
    (part,) = rig.run(rig.store.due("carts")).parts
    result = rig.run(rig.store.purge(BatchRequest("carts", part, size)))
    return BatchRequest("carts", part, size, result.resume)


def stretches(request: BatchRequest, marks: Sequence[object]) -> list[BatchRequest]:
    """Return the request for the first batch of each stretch between marks."""
    target, part, size = request.target, request.part, request.size
    begins, ends = (request.resume, *marks), (*marks, request.until)
    return [
        BatchRequest(target, part, size, begin, until=end)
        for begin, end in zip(begins, ends, strict=True)
    ]


def purge(rig: StoreRig, request: BatchRequest) -> set[int]:
    """Purge a stretch to its end, and return the deleted keys."""
    before, resume = rig.keys("carts"), request.resume
    while True:
        batch = BatchRequest("carts", request.part, request.size, resume, until=request.until)
        resume = rig.run(rig.store.purge(batch)).resume
        if resume is None:
            return before - rig.keys("carts")


class WorkerContract:
    """`Dividing.divide` and the option ``workers``."""

    @pytest.mark.parametrize("ttl", [None, 60])
    def test_stretches_have_no_row_in_common_and_all_together(
        self, rig: StoreRig, ttl: int | None
    ) -> None:
        stock(rig, ttl=ttl)
        request = begin(rig, 5)
        if request.resume is None:
            pytest.skip("the store deletes this few rows in one batch")
        rest = [key for key in range(ROWS) if key in rig.keys("carts")]
        marks = rig.run(rig.store.divide(request, 3))
        assert len(marks) <= 3
        gone = [purge(rig, stretch) for stretch in reversed(stretches(request, marks))]
        gone.reverse()
        assert [key for keys in gone for key in sorted(keys)] == rest
        assert all(len(keys) >= request.size for keys in gone)
        assert rig.keys("carts") == set(range(ROWS, 2 * ROWS))

    def test_a_stretch_may_be_divided_again(self, rig: StoreRig) -> None:
        stock(rig)
        request = begin(rig, 5)
        if request.resume is None:
            pytest.skip("the store deletes this few rows in one batch")
        rest = len(rig.keys("carts")) - ROWS
        all_of_them = stretches(request, rig.run(rig.store.divide(request, 2)))
        smaller = [
            stretch
            for large in all_of_them
            for stretch in stretches(large, rig.run(rig.store.divide(large, 2)))
        ]
        gone = [purge(rig, stretch) for stretch in smaller[::2] + smaller[1::2]]
        assert sum(map(len, gone)) == rest
        assert rig.keys("carts") == set(range(ROWS, 2 * ROWS))

    def test_what_is_too_little_is_not_divided(self, rig: StoreRig) -> None:
        stock(rig, 12)
        request = begin(rig, 5)
        assert list(rig.run(rig.store.divide(request, 4))) == []

    def test_rows_of_one_instant_are_on_one_side_of_a_mark(self, rig: StoreRig) -> None:
        stock(rig, apart=0)
        request = begin(rig, 5)
        if request.resume is None:
            pytest.skip("the store deletes this few rows in one batch")
        rest = len(rig.keys("carts")) - ROWS
        marks = rig.run(rig.store.divide(request, 3))
        gone = [purge(rig, stretch) for stretch in stretches(request, marks)]
        assert sum(map(len, gone)) == rest

    @pytest.mark.parametrize("apart", [0, 1])
    def test_workers_delete_each_row_once(self, rig: StoreRig, apart: int) -> None:
        stock(rig, apart=apart)
        deleted: Counter[object] = Counter()
        options: SweepOptions = {"workers": 3, "batch_size": 4}

        def record(purged: Purged) -> None:
            deleted.update(purged.keys)

        if isinstance(rig.store, Hooking):
            options["on_purged"] = Hook(record, when="commit")
        report = rig.sweep(**options)
        assert (report.deleted, report.problems) == (ROWS, ())
        assert rig.keys("carts") == set(range(ROWS, 2 * ROWS))
        if isinstance(rig.store, Hooking):
            assert deleted == Counter({(key,): 1 for key in range(ROWS)})

    def test_workers_exceed_max_rows_no_more_than_one_does(self, rig: StoreRig) -> None:
        stock(rig)
        report = rig.sweep(workers=3, batch_size=4, max_rows=37)
        assert (report.deleted, report.ended) == (37, Ending.MAX_ROWS)
        assert len(rig.keys("carts")) == 2 * ROWS - 37

    def test_a_stop_ends_the_sweep_after_the_batches_at_hand(self, rig: StoreRig) -> None:
        stock(rig)

        def stop(progress: Progress) -> None:
            if progress.deleted_so_far > 4:  # of those that ran at once
                sweeper.stop()

        sweeper = rig.sweeper(workers=3, batch_size=4, on_progress=stop)
        report = rig.run(sweeper.run_once())
        assert report.ended is Ending.STOPPED
        assert len(rig.keys("carts")) == 2 * ROWS - report.deleted > ROWS

    def test_a_row_that_somebody_holds_is_skipped_by_whoever_comes_to_it(
        self, rig: StoreRig
    ) -> None:
        if not isinstance(rig, CanHold):
            pytest.skip("the rig can't hold rows")
        stock(rig)
        with rig.hold("carts", 77):
            report = rig.sweep(workers=3, batch_size=4)
        (target,) = report.targets
        assert (report.problems, target.skips) == ((), {Skip.LOCKED: 1})
        assert rig.keys("carts") == {77, *range(ROWS, 2 * ROWS)}

    @pytest.mark.parametrize("apart", [0, 1])
    def test_rows_that_are_refused_keep_no_other_worker_from_its_own(
        self, rig: StoreRig, apart: int
    ) -> None:
        if not isinstance(rig, CanRefuse):
            pytest.skip("the rig can't refuse rows")
        stock(rig, apart=apart)
        with rig.refuse("carts", {30, 31, 90}):
            report = rig.sweep(workers=3, batch_size=8)
        (target,) = report.targets
        assert (report.problems, target.skips) == ((), {Skip.REFUSED: 3})
        assert sorted(row.split(":")[0] for row in target.left) == ["(30)", "(31)", "(90)"]
        assert rig.keys("carts") == {30, 31, 90, *range(ROWS, 2 * ROWS)}
