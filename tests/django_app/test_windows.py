"""Batches on PostgreSQL whose keys stay in the database: what nobody may notice of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from tests.django_app.data import kill, raw
from tests.django_app.shop.models import Nick
from ttl_odm.sweeper import Skip, Sweeper, SweepReport

if TYPE_CHECKING:
    from tests.backends import Backend

pytestmark = pytest.mark.databases("postgres")


def fill(rows: int, *, all_at_once: bool = False) -> None:
    """Expired rows, written at one instant or one after the other, and three live ones."""
    Nick.objects.bulk_create(Nick(pk=key, name=f"n{key}") for key in range(1, rows + 4))
    if all_at_once:
        kill(Nick, range(1, rows + 1))
    for key in () if all_at_once else range(1, rows + 1):
        kill(Nick, [key], seconds=90_000 - key)


def sweep(**options: int) -> SweepReport:
    """Sweep that table."""
    return Sweeper(connections["default"], [Nick], lease=False, **options).run_once()


@pytest.mark.parametrize("all_at_once", [False, True])
def test_batches_delete_every_expired_row_once_and_no_live_one(
    backend: Backend,
    all_at_once: bool,  # noqa: FBT001
) -> None:
    fill(25, all_at_once=all_at_once)
    report = sweep(batch_size=10)
    assert (report.deleted, report.skipped) == (25, 0)
    assert raw("SELECT id FROM shop_nick ORDER BY id") == [(26,), (27,), (28,)]


def test_keys_neither_come_nor_go(backend: Backend) -> None:
    fill(25)
    with CaptureQueriesContext(connections["default"]) as captured:
        assert sweep().deleted == 25
    deletes = [each["sql"] for each in captured if each["sql"].startswith("DELETE")]
    assert len(deletes) == 1
    assert "FOR UPDATE SKIP LOCKED" in deletes[0]


def test_rows_that_a_raw_foreign_key_holds_stay_and_are_counted(backend: Backend) -> None:
    fill(5)
    raw("CREATE TABLE holds (nick bigint REFERENCES shop_nick)")
    try:
        raw("INSERT INTO holds VALUES (2), (4)")
        report = sweep()
        assert report.deleted == 3
        assert dict(report.targets[0].skips) == {Skip.RESTRICTED: 2}
    finally:
        raw("DROP TABLE holds")
