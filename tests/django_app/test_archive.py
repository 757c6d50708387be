"""`Archive`: expired rows are copied to another table, in the transaction that deletes them."""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from django.core.checks import run_checks
from django.db import connections, transaction
from django.test import override_settings

from tests.django_app.data import kill, raw
from tests.django_app.shop.models import (
    Event,
    KeptSeat,
    KeyedLink,
    Link,
    Seat,
    Session,
    StoredLink,
    StoredSeat,
    User,
)
from ttl_odm import TTLConfigurationError
from ttl_odm.django import Archive, DjangoStore
from ttl_odm.sweeper import HookError, Skip, Sweeper

if TYPE_CHECKING:
    from tests.backends import Backend


@pytest.fixture
def archived(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let seats go to `StoredSeat`."""
    archive = Archive(into="shop.StoredSeat", archived_at="archived_at")
    monkeypatch.setattr(Seat, "__ttl_archive__", archive)


def expired_seats(*keys: int, using: str = "default") -> None:
    """Write rows that have expired."""
    Seat.objects.using(using).bulk_create(
        [Seat(pk=key, row="a", number=key, label=f"seat {key}") for key in keys]
    )
    kill(Seat, keys, alias=using)


@pytest.mark.usefixtures("archived")
def test_a_sweep_copies_the_fields_that_both_have(backend: Backend) -> None:
    expired_seats(1, 2)
    Seat.objects.create(pk=3, row="b", number=3)
    stamps = dict(Seat.all_objects.values_list("pk", "last_modified"))
    (target,) = Sweeper(connections["default"], Seat).run_once().targets
    assert (target.deleted, target.archived, target.error) == (2, 2, None)
    assert [seat.pk for seat in Seat.all_objects.all()] == [3]
    for old in StoredSeat.objects.all():
        assert (old.row, old.number, old.label) == ("a", old.pk, f"seat {old.pk}")
        assert old.last_modified == stamps[old.pk]
        assert old.note == "from the shop"
        age = DjangoStore().now() - old.archived_at
        assert timedelta(0) <= age < timedelta(minutes=1)
        assert old.changed.tzinfo is timezone.utc
    assert StoredSeat.objects.count() == 2


@pytest.mark.slow
@pytest.mark.usefixtures("archived")
def test_more_rows_than_a_statement_has_parameters(backend: Backend) -> None:
    expired_seats(*range(1, 401))
    report = Sweeper(connections["default"], Seat, batch_size=400).run_once()
    assert (report.deleted, StoredSeat.objects.count()) == (400, 400)


@pytest.mark.usefixtures("archived")
def test_a_displaced_row_is_archived_with_the_write(backend: Backend) -> None:
    expired_seats(1)
    with transaction.atomic():
        Seat.objects.create(row="a", number=1)
        assert StoredSeat.objects.get().label == "seat 1"
        transaction.set_rollback(True)
    assert not StoredSeat.objects.exists()
    Seat.objects.create(row="a", number=1)
    assert StoredSeat.objects.get().pk == 1
    assert Seat.all_objects.count() == 1


@pytest.mark.usefixtures("archived")
def test_a_row_that_the_archive_refuses_stays(backend: Backend) -> None:
    expired_seats(1, 2)
    with transaction.atomic():
        StoredSeat.objects.create(
            pk=7,
            row="x",
            number=0,
            label="seat 2",
            last_modified=DjangoStore().now(),
            archived_at=DjangoStore().now(),
        )
    (target,) = Sweeper(connections["default"], Seat).run_once().targets
    assert isinstance(target.error, HookError)
    assert (target.deleted, target.skips) == (1, {Skip.HOOK: 1})
    assert Seat.all_objects.count() == 1
    assert StoredSeat.objects.count() == 2
    with pytest.raises(HookError), transaction.atomic():
        Seat.objects.create(row="a", number=2)
    assert Seat.all_objects.count() == 1


def used(*, years_ago: int) -> None:
    """Write a link that has expired, in the place of one that had."""
    ends = DjangoStore().now() - timedelta(days=365 * years_ago)
    Link.objects.create(token="a", expires=ends)


def test_an_archive_with_a_key_of_its_own_keeps_every_row_of_a_key(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Link, "__ttl_archive__", Archive(StoredLink), raising=False)
    for years in (4, 3):
        used(years_ago=years)
        Sweeper(connections["default"], Link).run_once().raise_for_failures()
    used(years_ago=2)
    used(years_ago=1)
    assert StoredLink.objects.filter(token="a").count() == 3
    assert raw("SELECT COUNT(*) FROM shop_link") == [(1,)]


def test_an_archive_with_the_models_key_refuses_a_second_row(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Link, "__ttl_archive__", Archive(KeyedLink), raising=False)
    used(years_ago=3)
    used(years_ago=2)
    (target,) = Sweeper(connections["default"], Link).run_once().targets
    assert isinstance(target.error, HookError)
    assert (target.deleted, target.skips) == (0, {Skip.HOOK: 1})
    with pytest.raises(HookError), transaction.atomic():
        used(years_ago=1)
    assert KeyedLink.objects.count() == 1
    assert raw("SELECT COUNT(*) FROM shop_link") == [(1,)]


def test_rows_of_an_archive_with_a_ttl_begin_their_life_there(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Seat, "__ttl_archive__", Archive(KeptSeat))
    Seat.objects.create(pk=1, row="a", number=1, label="own", ttl=60)
    kill(Seat, [1])
    Sweeper(connections["default"], Seat).run_once().raise_for_failures()
    kept = KeptSeat.objects.get()
    assert (kept.label, kept.ttl) == ("own", None)
    assert kept.time_left is not None
    assert kept.time_left > timedelta(hours=23)


class _StoredSeatsElsewhere:
    def allow_migrate(self, db: str, app_label: str, model_name: Any = None, **_: Any) -> Any:  # noqa: ARG002
        return db == "other" if model_name == "storedseat" else None

    def db_for_write(self, model: Any, **_: Any) -> str | None:
        return "other" if model is StoredSeat else None


@pytest.mark.slow
@pytest.mark.usefixtures("archived")
def test_each_database_has_its_own_archive(backend: Backend, other: str) -> None:
    expired_seats(1)
    expired_seats(2, using=other)
    with override_settings(DATABASE_ROUTERS=[]):
        Sweeper(connections[other], Seat).run_once().raise_for_failures()
    assert [old.pk for old in StoredSeat.objects.using(other).all()] == [2]
    assert not StoredSeat.objects.exists()
    assert Seat.all_objects.count() == 1


@pytest.mark.slow
@pytest.mark.usefixtures("archived")
def test_an_archive_may_be_in_one_database_only(backend: Backend, other: str) -> None:
    expired_seats(2, using=other)
    with override_settings(DATABASE_ROUTERS=[_StoredSeatsElsewhere()]):
        Sweeper(connections[other], Seat).run_once().raise_for_failures()
    assert [old.pk for old in StoredSeat.objects.using(other).all()] == [2]


@pytest.mark.slow
@pytest.mark.usefixtures("archived")
def test_an_archive_in_another_database_is_refused(backend: Backend, other: str) -> None:
    expired_seats(1)
    with override_settings(DATABASE_ROUTERS=[_StoredSeatsElsewhere()]):
        with pytest.raises(TTLConfigurationError, match=r"shop.StoredSeat isn't in .*'default'"):
            Sweeper(connections["default"], Seat)
        with pytest.raises(TTLConfigurationError, match="isn't in the database"):
            Seat.objects.create(row="a", number=1)
        ids = {message.id for message in run_checks(tags=["database"], databases=["default"])}
        assert "ttl_odm.E003" in ids
    assert raw("SELECT id FROM shop_seat") == [(1,)]
    assert not StoredSeat.objects.using(other).exists()


@pytest.mark.parametrize(
    ("model", "archive", "message"),
    [
        (Seat, Archive("shop.Nothing"), "give a model, or its label"),
        (Seat, Archive("StoredSeat"), "give a model, or its label"),
        (Seat, Archive(int), "give a model, or its label"),
        (Seat, Archive(Seat), "is the model itself"),
        (Seat, Archive(StoredSeat, archived_at="at"), "has no field 'at'"),
        (Session, Archive("sessions.Session"), "has no field 'id'"),
        (Seat, Archive("shop.Concert"), "in several tables"),
        (Event, Archive(User), "models that inherit from shop.Event"),
        (Seat, "shop.StoredSeat", "__ttl_archive__"),
    ],
)
@pytest.mark.databases("sqlite")
def test_an_archive_that_does_not_fit_is_refused(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, model: Any, archive: Any, message: str
) -> None:
    monkeypatch.setattr(model, "__ttl_archive__", archive, raising=False)
    with pytest.raises(TTLConfigurationError, match=message):
        DjangoStore("default", model)
