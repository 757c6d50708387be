"""Models with a composite primary key, which has no column of its own."""

# ruff: noqa: DJ008
from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.db import IntegrityError, connections, models, transaction

from tests.django_app.data import raw, tables_of
from tests.django_app.test_units import wrong_units
from ttl_odm import ExpireAt
from ttl_odm.django import TTLModel
from ttl_odm.sweeper import Hook, Purged, Sweeper
from ttl_odm.testing import TTLClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend


@contextmanager
def berths() -> Iterator[Any]:
    """A table without the sweeper's indexes, whose rows are swept in the order of their keys."""

    class Berth(TTLModel):
        __ttl__ = 3600
        __ttl_sweep__ = "scan"
        pk = models.CompositePrimaryKey("ship", "number")
        ship: Any = models.CharField(max_length=5)
        number: Any = models.IntegerField()

        class Meta:
            app_label = "shop"

    with tables_of(Berth):
        yield Berth


def test_a_sweep_by_keys_goes_through_all_rows(backend: Backend) -> None:
    with berths() as berth, TTLClock() as clock:
        berth.objects.bulk_create([berth(ship=ship, number=n) for ship in "ab" for n in range(15)])
        clock.advance(3_600)
        berth.objects.create(ship="a", number=15)
        report = Sweeper(connections["default"], [berth], lease=False, batch_size=7).run_once()
        assert (report.deleted, report.skipped) == (30, 0)
        assert raw("SELECT ship, number FROM shop_berth") == [("a", 15)]


def test_a_hook_and_a_report_name_a_row_by_all_of_its_key(backend: Backend) -> None:
    def keep(purged: Purged) -> None:
        if ("b", 2) in purged.keys:
            raise ValueError("no")

    with berths() as berth, TTLClock() as clock:
        berth.objects.bulk_create([berth(ship="b", number=n) for n in range(3)])
        clock.advance(3_600)
        hooks = [Hook(keep, when="transaction")]
        report = Sweeper(connections["default"], [berth], lease=False, on_purged=hooks).run_once()
        assert report.deleted == 2
        (target,) = report.targets
        assert target.left[0].startswith("('b', 2): ")


@pytest.mark.slow
def test_instants_in_another_unit_are_found(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    class Pass(models.Model):
        __ttl__ = ExpireAt("ends", unit="s")
        pk = models.CompositePrimaryKey("gate", "number")
        gate: Any = models.CharField(max_length=5)
        number: Any = models.IntegerField()
        ends: Any = models.BigIntegerField()

        class Meta:
            app_label = "shop"

    with tables_of(Pass):
        end = int(time.time() + 3_600) * 1000
        Pass.objects.bulk_create([Pass(gate="a", number=n, ends=end) for n in range(3)])
        (wrong,) = wrong_units(capsys, "shop_pass")
        assert wrong["message"].startswith("3 of 3 rows that were read hold epoch milliseconds")


def test_a_part_of_a_key_may_take_that_of_an_expired_row(backend: Backend) -> None:
    with berths() as berth, TTLClock() as clock:
        berth.objects.bulk_create([berth(ship="a", number=n) for n in (1, 2)])
        clock.advance(3_600)
        berth.objects.bulk_create([berth(ship="a", number=n) for n in (8, 9)])
        assert berth.objects.filter(number=9).update(number=1) == 1
        with transaction.atomic():
            assert berth.objects.filter(number=8).update(number=models.F("number") - 6) == 1
        assert berth.objects.count() == berth.all_objects.count() == 2
        with pytest.raises(IntegrityError), transaction.atomic():
            berth.objects.filter(number=2).update(number=1)
