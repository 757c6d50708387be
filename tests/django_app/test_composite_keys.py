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
from ttl_odm.django.checks import check_policies
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


@contextmanager
def cabins() -> Iterator[tuple[Any, Any, Any]]:
    """Cabins, bookings that expire, and plates that don't: both refer to cabins by two fields."""

    class Cabin(TTLModel):
        __ttl__ = 3600
        pk = models.CompositePrimaryKey("ship", "number")
        ship: Any = models.CharField(max_length=5)
        number: Any = models.IntegerField()

        class Meta:
            app_label = "shop"

    def to_cabin(on_delete: Any) -> Any:
        keys = ("ship", "number")
        return models.ForeignObject(Cabin, on_delete, from_fields=keys, to_fields=keys)

    class Booking(TTLModel):
        __ttl__ = 3600
        ship: Any = models.CharField(max_length=5)
        number: Any = models.IntegerField()
        cabin: Any = to_cabin(models.PROTECT)

        class Meta:
            app_label = "shop"

    class Plate(models.Model):
        ship: Any = models.CharField(max_length=5)
        number: Any = models.IntegerField()
        cabin: Any = to_cabin(models.DO_NOTHING)

        class Meta:
            app_label = "shop"
            indexes = [models.Index(fields=["ship", "number"], name="plate_cabin")]

    with tables_of(Cabin, Booking, Plate):
        yield Cabin, Booking, Plate


def test_rows_to_which_others_refer_by_several_fields_are_swept(backend: Backend) -> None:
    with cabins() as (cabin, booking, plate), TTLClock() as clock:
        for model in (cabin, booking, plate):
            model.objects.bulk_create([model(ship="a", number=n) for n in range(5)])
        clock.advance(3_600)
        cabin.objects.create(ship="a", number=0)  # whose key is free
        report = Sweeper(connections["default"], [cabin, booking], lease=False).run_once()
        report.raise_for_failures()
        assert raw("SELECT number FROM shop_cabin") == [(0,)]
        assert booking.all_objects.count() == 0
        assert plate.objects.count() == 5


def test_expired_rows_that_refer_by_several_fields_block_no_change(backend: Backend) -> None:
    with cabins() as (cabin, booking, _), TTLClock() as clock:
        for number in range(3):
            cabin.objects.create(ship="a", number=number)
            booking.objects.create(ship="a", number=number)
        clock.advance(1_800)
        cabin.objects.touch()
        clock.advance(1_800)
        assert cabin.objects.filter(number=0).update(number=9) == 1
        assert cabin.objects.get(number=1).delete()[0] == 1
        assert raw("SELECT number FROM shop_booking") == [(2,)]


def test_checks_know_references_by_several_fields(backend: Backend) -> None:
    with cabins():
        found = [m for m in check_policies() if getattr(m.obj, "name", None) == "cabin"]
        (message,) = found  # a plate has an index, and no constraint that would keep the cabin
        assert (message.id, message.obj.model.__name__) == ("ttl_odm.W002", "Booking")
        assert "fields=['ship', 'number']" in str(message.hint)


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
