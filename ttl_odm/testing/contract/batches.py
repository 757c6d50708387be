"""The contract of `due` and `purge`, one batch at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from ttl_odm.core import effective_ttl
from ttl_odm.sweeper import AsyncStore, BatchRequest, Skip, Store
from ttl_odm.testing.rig import CanHold, CanRefuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.sweeper import BatchResult, Due, Part
    from ttl_odm.testing.rig import StoreRig

HOUR: Final = 3600
DAY: Final = 86_400

AGES: Final = (0, HOUR // 2, 2 * HOUR, 2 * DAY)
TTLS: Final = (None, -1, 60, HOUR, DAY)


def fill(rig: StoreRig, rows: int = 10, *, target: str = "carts", ttl: int | None = None) -> None:
    """Create a target with rows that expired a second apart."""
    rig.create(target, HOUR)
    for number in range(rows):
        rig.add(target, [number], age=DAY + number, ttl=ttl)


def batches(
    rig: StoreRig, target: str, size: int, parts: tuple[Part, ...] | None = None
) -> Iterator[BatchResult]:
    """Purge a target as the sweeper does, batch by batch."""
    if parts is None:
        due: Due | None = rig.run(rig.store.due(target))
        parts = () if due is None else due.parts
    for part in parts:
        resume: object = None
        while True:
            request = BatchRequest(target, part, size, resume)
            result: BatchResult = rig.run(rig.store.purge(request))
            yield result
            resume = result.resume
            if resume is None:
                break


class PurgeContract:
    """`Store.targets`, `Store.due`, `Store.purge`."""

    def test_it_is_a_store_and_knows_its_targets(self, rig: StoreRig) -> None:
        rig.create("carts", HOUR)
        rig.create("orders", -1)
        assert isinstance(rig.store, AsyncStore if rig.is_async else Store)
        assert sorted(rig.store.targets()) == ["carts", "orders"]
        assert rig.store.pace.start >= 1

    def test_nothing_is_due_while_ttl_is_off(self, rig: StoreRig) -> None:
        rig.create("carts", None)
        rig.add("carts", [1], age=DAY)
        rig.add("carts", [2], age=DAY, ttl=1)
        assert rig.run(rig.store.due("carts")) is None

    def test_nothing_is_due_while_nothing_has_expired(self, rig: StoreRig) -> None:
        rig.create("carts", HOUR)
        rig.add("carts", [1], age=60)
        due = rig.run(rig.store.due("carts"))
        # None from a store that would have to read the whole table.
        assert due.oldest in (0.0, None)
        assert due.parts == () or due.oldest is None
        assert sum(batch.deleted for batch in batches(rig, "carts", 10)) == 0
        assert rig.keys("carts") == {1}

    def test_the_oldest_expired_row_tells_how_far_behind_the_sweeper_is(
        self, rig: StoreRig
    ) -> None:
        rig.create("carts", HOUR)
        rig.add("carts", [1], age=HOUR + 10)
        rig.add("carts", [2], age=1_000, ttl=100)
        rig.add("carts", [3], age=10)
        oldest = rig.run(rig.store.due("carts")).oldest
        assert oldest is None or 900 <= oldest < 900 + 600

    @pytest.mark.parametrize("default", [None, -1, 60, DAY])
    def test_exactly_the_expired_rows_are_deleted(self, rig: StoreRig, default: int | None) -> None:
        rig.create("carts", default)
        kept = set()
        for number, (age, ttl) in enumerate((age, ttl) for age in AGES for ttl in TTLS):
            rig.add("carts", [number], age=age, ttl=ttl)
            lifetime = effective_ttl(default, ttl)
            if lifetime is None or age < lifetime:
                kept.add(number)
        list(batches(rig, "carts", 100))
        assert rig.keys("carts") == kept

    @pytest.mark.parametrize(("before", "after"), [(DAY, 60), (None, 60), (-1, 60)])
    def test_another_default_acts_at_once_on_rows_that_inherit_it(
        self, rig: StoreRig, before: int | None, after: int | None
    ) -> None:
        rig.create("carts", before)
        rig.add("carts", [1, 2], age=HOUR)
        rig.add("carts", [3], age=HOUR, ttl=DAY)
        list(batches(rig, "carts", 10))
        assert rig.keys("carts") == {1, 2, 3}
        rig.set_default("carts", after)
        list(batches(rig, "carts", 10))
        assert rig.keys("carts") == {3}

    @pytest.mark.parametrize("size", [1, 3, 100])
    def test_batches_are_no_larger_than_asked_and_lead_to_the_end(
        self, rig: StoreRig, size: int
    ) -> None:
        rig.create("carts", HOUR)
        for number in range(10):
            rig.add("carts", [number], age=DAY + number)
            rig.add("carts", [number + 10], age=DAY + number, ttl=60)
            rig.add("carts", [number + 20], age=60)
        results = list(batches(rig, "carts", size))
        assert all(0 <= batch.deleted <= size for batch in results)
        assert sum(batch.deleted for batch in results) == 20
        assert rig.keys("carts") == set(range(20, 30))

    def test_rows_that_expired_at_the_same_instant_may_be_more_than_a_batch(
        self, rig: StoreRig
    ) -> None:
        rig.create("carts", HOUR)
        rig.add("carts", range(50), age=DAY)
        rig.add("carts", range(50, 100), age=DAY, ttl=60)
        results = list(batches(rig, "carts", 7))
        assert all(batch.deleted <= 7 for batch in results)
        assert sum(batch.deleted for batch in results) == 100
        assert rig.keys("carts") == set()

    def test_the_next_pass_begins_at_the_beginning(self, rig: StoreRig) -> None:
        rig.create("carts", HOUR)
        for age in (DAY, 2 * DAY):  # rows of the second pass expired before those of the first
            rig.add("carts", range(5), age=age)
            assert sum(batch.deleted for batch in batches(rig, "carts", 2)) == 5

    def test_a_batch_of_nothing_is_the_last(self, rig: StoreRig) -> None:
        rig.create("carts", HOUR)
        rig.add("carts", [1], age=DAY)
        parts = rig.run(rig.store.due("carts")).parts
        list(batches(rig, "carts", 10))
        results = list(batches(rig, "carts", 10, parts))
        assert [(batch.deleted, batch.resume) for batch in results] == [(0, None)] * len(parts)

    @pytest.mark.parametrize("ttl", [None, 60])
    def test_a_row_that_is_renewed_between_look_and_deletion_stays(
        self, rig: StoreRig, ttl: int | None
    ) -> None:
        rig.create("carts", HOUR)
        rig.add("carts", range(10), age=DAY, ttl=ttl)
        with rig.before_delete(lambda: rig.renew("carts", 4)):
            list(batches(rig, "carts", 100))
        assert rig.keys("carts") == {4}


class HoldContract:
    """Locked rows, on a database with locks that a sweeper doesn't wait for."""

    @pytest.mark.parametrize("ttl", [None, 60])
    def test_a_row_that_somebody_holds_is_skipped_and_counted(
        self, rig: StoreRig, ttl: int | None
    ) -> None:
        if not isinstance(rig, CanHold):
            pytest.skip("the rig can't hold rows")
        fill(rig, ttl=ttl)
        with rig.hold("carts", 4):
            results = list(batches(rig, "carts", 100))
            assert rig.keys("carts") == {4}
        assert sum(batch.deleted for batch in results) == 9
        assert sum(batch.skipped.get(Skip.LOCKED, 0) for batch in results) == 1
        assert sum(batch.deleted for batch in batches(rig, "carts", 100)) == 1


class RefusalContract:
    """Rows that the database refuses to delete, as by a trigger: only these stay."""

    @pytest.mark.parametrize("apart", [0, 1])
    @pytest.mark.parametrize("ttl", [None, 60])
    def test_rows_that_are_refused_are_left_counted_and_named_and_all_others_go(
        self, rig: StoreRig, ttl: int | None, apart: int
    ) -> None:
        if not isinstance(rig, CanRefuse):
            pytest.skip("the rig can't refuse rows")
        rig.create("carts", HOUR)
        for number in range(40):
            rig.add("carts", [number], age=DAY + number * apart, ttl=ttl)
        with rig.refuse("carts", {7, 8, 31}):
            for _ in range(2):  # the next sweep tries them again
                report = rig.sweep(batch_size=16)
                assert rig.keys("carts") == {7, 8, 31}
                (target,) = report.targets
                assert not report.problems
                assert target.skips == {Skip.REFUSED: 3}
                assert sorted(row.split(":")[0] for row in target.left) == ["(31)", "(7)", "(8)"]
                rig.add("carts", [50], age=DAY)
        assert rig.sweep().deleted == 4
