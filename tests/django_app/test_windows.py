"""Batches that are deleted by a range of the index: what nobody may notice of it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from tests.django_app.data import kill, raw
from tests.django_app.shop.models import Nick
from ttl_odm.django.policy.bindings import binding_of
from ttl_odm.sweeper import Skip, Sweeper, SweepReport

if TYPE_CHECKING:
    from tests.backends import Backend


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


@pytest.mark.databases("postgres", "mariadb", "sqlite")
def test_neither_rows_nor_keys_come_to_python(backend: Backend) -> None:
    fill(25)
    with CaptureQueriesContext(connections["default"]) as captured:
        assert sweep(batch_size=10).deleted == 25
    statements = [each["sql"] for each in captured if "shop_nick" in each["sql"]]
    deletes = [sql for sql in statements if sql.startswith("DELETE") and "1 = 0" not in sql]
    assert len(deletes) >= 2
    assert not any(" IN (" in sql.replace("IN (-1)", "") for sql in deletes)
    lookups = [sql for sql in statements if sql.startswith("SELECT (")]
    assert len(lookups) == len(deletes)


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_row_that_somebody_holds_stays_and_is_counted(backend: Backend) -> None:
    fill(25)
    holder = connections["default"].copy("default")
    with closing(holder), holder.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT id FROM shop_nick WHERE id = 7 FOR UPDATE")
        report = sweep(batch_size=10)
        assert report.deleted == 24
        assert dict(report.targets[0].skips) == {Skip.LOCKED: 1}
        cursor.execute("ROLLBACK")
    assert sweep().deleted == 1


@pytest.mark.parametrize("size", [1, 4, 7, 100])
def test_rows_of_few_instants_are_deleted_whatever_the_size_of_a_batch(
    backend: Backend, size: int
) -> None:
    fill(20)
    for first, last in ((1, 7), (8, 9), (10, 20)):
        ((instant,),) = raw("SELECT _ts FROM shop_nick WHERE id = %s", [first])
        raw("UPDATE shop_nick SET _ts = %s WHERE id BETWEEN %s AND %s", [instant, first, last])
    report = sweep(batch_size=size)
    assert (report.deleted, report.skipped) == (20, 0)
    assert raw("SELECT id FROM shop_nick ORDER BY id") == [(21,), (22,), (23,)]


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_rows_that_a_raw_foreign_key_holds_stay_and_are_counted(backend: Backend) -> None:
    fill(5)
    raw("CREATE TABLE holds (nick bigint REFERENCES shop_nick (id))")
    try:
        raw("INSERT INTO holds VALUES (2), (4)")
        report = sweep()
        assert report.deleted == 3
        assert dict(report.targets[0].skips) == {Skip.RESTRICTED: 2}
    finally:
        raw("DROP TABLE holds")


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize("by", ["index", "scan"])
def test_a_session_that_wants_conditions_on_keys_is_swept(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(binding_of(Nick), "sweep", by)
    fill(25)
    raw("SET sql_safe_updates = 1")
    try:
        assert sweep().deleted == 25
        assert raw("SELECT @@sql_safe_updates") == [(1,)]
    finally:
        raw("SET sql_safe_updates = 0")
