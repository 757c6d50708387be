"""What a store that counts has to say, for dry runs and the fuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ttl_odm.sweeper import Counting, FuseError
from ttl_odm.testing.contract.batches import DAY, HOUR

if TYPE_CHECKING:
    from ttl_odm.testing.rig import StoreRig

MANY = 1_100
"""Rows; more than the fuse lets pass in any case."""


def counted(rig: StoreRig, expired: int = 7, live: int = 3) -> None:
    """Make a target with so many rows."""
    if not isinstance(rig.store, Counting):
        pytest.skip("the store counts nothing")
    rig.create("carts", HOUR)
    rig.add("carts", range(expired), age=DAY)
    rig.add("carts", range(expired, expired + live), age=60)


class CountingContract:
    """`Counting.count`."""

    def test_what_has_expired_is_counted(self, rig: StoreRig) -> None:
        counted(rig)
        rig.add("carts", [100, 101], age=HOUR / 2, ttl=60)
        rig.add("carts", [102, 103], age=DAY, ttl=-1)
        assert rig.run(rig.store.count("carts")).due == 9

    def test_a_dry_run_tells_it_and_deletes_nothing(self, rig: StoreRig) -> None:
        counted(rig)
        rig.create("orders", HOUR)
        report = rig.sweep(dry_run=True)
        assert (report.deleted, report.due) == (0, 7)
        assert len(rig.keys("carts")) == 10

    def test_the_fuse_keeps_rows_when_too_much_is_due_until_it_is_forced(
        self, rig: StoreRig
    ) -> None:
        counted(rig, MANY, 0)
        report = rig.sweep(max_fraction=0.5)
        (target,) = report.targets
        assert isinstance(target.error, FuseError)
        assert (target.error.due, target.due, target.deleted) == (MANY, MANY, 0)
        assert len(rig.keys("carts")) == MANY
        assert rig.sweep(max_fraction=0.5, force=True).deleted == MANY
