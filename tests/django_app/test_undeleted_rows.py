"""Rows that survive their DELETE without an error: a trigger, a signal's receiver, a library."""

# ruff: noqa: DJ008
from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.db import IntegrityError, connections, models
from django.db.models.deletion import Collector
from django.db.models.signals import post_delete, pre_delete

from tests.django_app.data import kill, raw, tables_of
from tests.django_app.shop.models import Event, Seat, StoredSeat
from tests.django_app.test_archive import archived, expired_seats
from ttl_odm import Follows
from ttl_odm.django import TTLModel
from ttl_odm.sweeper import Purged, Skip, Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.backends import Backend

__all__ = ["archived"]

with_triggers = pytest.mark.databases("sqlite", "postgres")
"""MariaDB's triggers can't keep a row without an error."""

MODES = ("plain", "hook", "archive", "signal")


@contextmanager
def triggered(table: str, condition: str) -> Iterator[None]:
    """Let a trigger of the database keep rows from being deleted."""
    if connections["default"].vendor == "sqlite":
        raw(
            f"CREATE TRIGGER keep BEFORE DELETE ON {table} WHEN {condition} "
            "BEGIN SELECT RAISE(IGNORE); END"
        )
        drops = ["DROP TRIGGER keep"]
    else:
        body = f"BEGIN IF {condition} THEN RETURN NULL; END IF; RETURN OLD; END"
        raw(f"CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$")
        raw(f"CREATE TRIGGER keep BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION keep()")
        drops = [f"DROP TRIGGER keep ON {table}", "DROP FUNCTION keep"]
    try:
        yield
    finally:
        for drop in drops:
            raw(drop)


@contextmanager
def received(signal: Any, receiver: Callable[..., None], sender: Any = Seat) -> Iterator[None]:
    signal.connect(receiver, sender)
    try:
        yield
    finally:
        signal.disconnect(receiver, sender)


@contextmanager
def recorded(mode: str, request: pytest.FixtureRequest, heard: list[Purged]) -> Iterator[None]:
    """Let something hang on seats."""
    if mode == "archive":
        request.getfixturevalue("archived")
    if mode == "hook":
        monkeypatch = request.getfixturevalue("monkeypatch")
        monkeypatch.setattr(Seat, "__ttl_on_purged__", heard.append, raising=False)
    if mode == "signal":
        with received(post_delete, _nothing):
            yield
    else:
        yield


def sweep(*models: Any, **options: Any) -> Any:
    """Sweep, and return the report of the last table."""
    report = Sweeper(connections["default"], list(models), lease=False, **options).run_once()
    report.raise_for_failures()
    return report.targets[-1]


def keys(heard: list[Purged]) -> list[int]:
    return sorted(key for purged in heard for (key,) in purged.keys)


def left(table: str) -> set[int]:
    return {key for (key,) in raw(f"SELECT id FROM {table}")}  # noqa: S608


@with_triggers
@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_rows_that_a_trigger_keeps_are_skipped_and_not_counted(
    backend: Backend,
    request: pytest.FixtureRequest,
    mode: str,
    at_once: bool,  # noqa: FBT001
    batch_size: int | None,
) -> None:
    heard: list[Purged] = []
    expired_seats(*range(1, 8))
    if at_once:
        raw("UPDATE shop_seat SET _ts = (SELECT min(_ts) FROM shop_seat)")
    with recorded(mode, request, heard), triggered("shop_seat", "OLD.id IN (2, 3, 7)"):
        for deleted in (4, 0):
            target = sweep(Seat, batch_size=batch_size)
            assert (target.deleted, dict(target.skips)) == (deleted, {Skip.REFUSED: 3})
            assert target.oldest_after
            assert left("shop_seat") == {2, 3, 7}
            assert len(target.left) == (0 if mode == "plain" else 3)
            assert keys(heard) == ([1, 4, 5, 6] if mode == "hook" else [])
            assert StoredSeat.objects.count() == (4 if mode == "archive" else 0)
    assert sweep(Seat).deleted == 3


@with_triggers
def test_a_limit_on_rows_counts_those_that_went(backend: Backend) -> None:
    expired_seats(*range(1, 8))
    with triggered("shop_seat", "OLD.id < 4"):
        assert sweep(Seat, max_rows=2, batch_size=4).deleted == 2
        assert sweep(Seat, max_rows=2, batch_size=4).deleted == 2
        assert sweep(Seat, max_rows=2, batch_size=4).deleted == 0


def test_rows_that_a_receiver_renews_before_the_delete_stay_as_they_were(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Purged] = []
    monkeypatch.setattr(Seat, "__ttl_on_purged__", heard.append, raising=False)
    expired_seats(1, 2, 3)

    def renew(instance: Seat, **_: Any) -> None:
        if instance.pk == 2:
            raw("UPDATE shop_seat SET ttl = -1 WHERE id = 2")

    with received(pre_delete, renew):
        for deleted in (2, 0):
            target = sweep(Seat)
            assert (target.deleted, dict(target.skips)) == (deleted, {Skip.REFUSED: 1})
            assert keys(heard) == [1, 3]
    assert raw("SELECT id, ttl FROM shop_seat") == [(2, None)]


def test_rows_that_a_library_marks_instead_of_deleting_them_are_not_reported(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Purged] = []
    monkeypatch.setattr(Seat, "__ttl_on_purged__", heard.append, raising=False)
    expired_seats(1, 2, 3)
    raw("UPDATE shop_seat SET label = 'kept' WHERE id = 2")
    original = Collector.delete

    def mark(self: Any) -> Any:
        seats = self.data.get(Seat, ())
        if not any(seat.label == "kept" for seat in seats):
            return original(self)
        raw("UPDATE shop_seat SET label = 'marked'")
        return len(seats), {Seat._meta.label: len(seats)}

    monkeypatch.setattr(Collector, "delete", mark)
    for deleted in (2, 0):
        target = sweep(Seat)
        assert (target.deleted, dict(target.skips)) == (deleted, {Skip.REFUSED: 1})
        assert keys(heard) == [1, 3]
    assert raw("SELECT id, label FROM shop_seat") == [(2, "kept")]


def test_a_row_that_a_receiver_creates_again_was_deleted(backend: Backend) -> None:
    expired_seats(1, 2)

    def create(instance: Seat, **_: Any) -> None:
        Seat.objects.create(pk=instance.pk, row="b", number=instance.number)

    with received(post_delete, create):
        assert sweep(Seat).deleted == 2
    assert set(Seat.objects.values_list("pk", flat=True)) == {1, 2}


@with_triggers
def test_rows_of_a_subclass_that_stay_are_not_counted(backend: Backend) -> None:
    Event.objects.bulk_create([Event(pk=key, title="") for key in (1, 2, 3)])
    kill(Event, [1, 2, 3])
    with triggered("shop_event", "OLD.id = 2"):
        for deleted in (2, 0):
            target = sweep(Event)
            assert (target.deleted, dict(target.skips)) == (deleted, {Skip.REFUSED: 1})


@with_triggers
@pytest.mark.parametrize("mode", ["plain", "signal"])
@pytest.mark.parametrize("is_enforced", [True, False])
def test_followers_that_stay_keep_their_parent(
    backend: Backend,
    mode: str,
    is_enforced: bool,  # noqa: FBT001
) -> None:
    class Basket(TTLModel):
        __ttl__ = 3600

        class Meta:
            app_label = "shop"

    class Good(models.Model):
        __ttl__ = Follows("basket")
        basket = models.ForeignKey(Basket, models.CASCADE, db_constraint=is_enforced)

        class Meta:
            app_label = "shop"

    with tables_of(Basket, Good):
        Basket.objects.bulk_create([Basket(pk=key) for key in (1, 2, 3)])
        Good.objects.bulk_create([Good(pk=key, basket_id=key // 10) for key in (10, 20, 21, 30)])
        kill(Basket, [1, 2, 3])
        heard = received(post_delete, _nothing, Good if mode == "signal" else Seat)
        with triggered("shop_good", "OLD.id = 21"), heard:
            for deleted in (2, 0):
                before = len(left("shop_good"))
                target = sweep(Basket)
                assert (target.deleted, dict(target.skips)) == (deleted, {Skip.REFUSED: 1})
                assert target.referring.get("shop_good", 0) == before - len(left("shop_good"))
                assert "shop.Good" in target.left[0]
        assert left("shop_basket") == {2}
        assert 21 in left("shop_good")


@with_triggers
@pytest.mark.parametrize("mode", ["plain", "signal"])
def test_orphans_that_stay_are_skipped_and_hold_up_no_others(backend: Backend, mode: str) -> None:
    class Basket(TTLModel):
        __ttl__ = 3600

        class Meta:
            app_label = "shop"

    class Good(models.Model):
        __ttl__ = Follows("basket")
        basket = models.ForeignKey(Basket, models.CASCADE, db_constraint=False)

        class Meta:
            app_label = "shop"

    with tables_of(Basket, Good):
        Basket.objects.create(pk=1)
        Good.objects.bulk_create([Good(pk=key, basket_id=1) for key in range(1, 8)])
        raw("DELETE FROM shop_basket WHERE id = 1")
        heard = received(post_delete, _nothing, Good if mode == "signal" else Seat)
        with triggered("shop_good", "OLD.id IN (1, 2, 5)"), heard:
            for removed in (4, 0):
                target = sweep(Basket, batch_size=2)
                assert target.referring.get("shop_good", 0) == removed
                assert (target.deleted, dict(target.skips)) == (0, {Skip.REFUSED: 3})
                assert "shop.Good still exist" in target.notes[0]
                assert left("shop_good") == {1, 2, 5}
        assert sweep(Basket).referring == {"shop_good": 3}


@with_triggers
def test_a_write_that_meets_such_a_row_says_what_keeps_it(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Purged] = []
    monkeypatch.setattr(Seat, "__ttl_on_purged__", heard.append, raising=False)
    expired_seats(1)
    with (
        triggered("shop_seat", "OLD.id = 1"),
        pytest.raises(IntegrityError, match=r"shop\.Seat still exist"),
    ):
        Seat.objects.create(pk=1, row="b", number=2)
    assert heard == []


def _nothing(**_: Any) -> None:
    pass
