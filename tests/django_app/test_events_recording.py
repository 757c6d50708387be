"""Events are recorded in the transaction that deletes a row, one for each of its lives."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connections, transaction
from django.test import override_settings
from sqlalchemy import MetaData, create_engine, inspect

from tests.django_app.data import raw
from tests.django_app.family.models import Cart, Item
from tests.django_app.shop.models import Concert, Event, Link, Seat, StoredSeat, Upload, User
from tests.django_app.stored import stored_models
from tests.django_app.with_events import (
    HOUR,
    all_of,
    handled,
    no_handlers,
    recorded,
    seats,
    waiting,
    worker,
)
from tests.guard import GUARD
from ttl_odm.django import Archive, DjangoStore, keep_last_modified, set_policy
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events import on_expired, record_expired
from ttl_odm.events.django import LABEL
from ttl_odm.events.sqlalchemy import event_tables
from ttl_odm.sweeper import HookError, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend
    from ttl_odm.testing import TTLClock


@pytest.fixture(autouse=True)
def _no_handlers() -> Iterator[None]:
    with no_handlers():
        yield


def test_a_sweep_records_what_it_deletes(backend: Backend, ttl_clock: TTLClock) -> None:
    got = handled(include=["label"])
    seats(1, 2)
    Seat.objects.create(pk=3, row="b", number=3, ttl=-1)
    began = Seat.objects.get(pk=2).last_modified
    ttl_clock.advance(HOUR)
    assert worker(Seat).run_once().done == 2
    event = next(event for event in got if event.key == (2,))
    assert (event.table, event.kind, event.delivery) == ("shop_seat", "expired", 1)
    assert event.row == {"id": 2, "_ts": began.isoformat(), "ttl": None, "label": "seat 2"}
    assert event.last_modified == began
    assert event.expires_at == began + timedelta(seconds=HOUR)
    assert [seat.pk for seat in Seat.all_objects.all()] == [3]
    assert waiting() == 0


@pytest.mark.slow
def test_any_sweeper_records_them(backend: Backend, ttl_clock: TTLClock) -> None:
    record_expired(Seat)
    seats(*range(1, 1201))
    ttl_clock.advance(HOUR)
    assert Sweeper(connections["default"], Seat, batch_size=700).run_once().deleted == 1200
    assert {event.key for event in all_of(Seat)} == {(number,) for number in range(1, 1201)}


@pytest.mark.parametrize("how", ["create", "bulk", "upsert", "update"])
def test_a_write_that_takes_the_key_records_it_in_its_own_transaction(
    backend: Backend, ttl_clock: TTLClock, how: str
) -> None:
    record_expired(Seat)
    seats(1)
    ttl_clock.advance(HOUR)
    Seat.objects.create(pk=9, row="z", number=9)
    new = Seat(pk=7, row="a", number=1)

    def write() -> None:
        if how == "create":
            Seat.objects.create(pk=1, row="b", number=1)
        elif how == "bulk":
            Seat.objects.bulk_create([new])
        elif how == "upsert":
            unique = None if connections["default"].vendor == "mysql" else ["row", "number"]
            Seat.objects.bulk_create(
                [new], update_conflicts=True, unique_fields=unique, update_fields=["label"]
            )
        else:
            Seat.objects.filter(pk=9).update(row="a", number=1)

    with transaction.atomic():
        write()
        assert recorded() == 1
        transaction.set_rollback(True)
    assert recorded() == 0
    assert raw("SELECT COUNT(*) FROM shop_seat WHERE id = 1") == [(1,)]
    write()
    (event,) = all_of()
    assert event.key == (1,)
    assert Sweeper(connections["default"], Seat).run_once().deleted == 0


def test_each_life_of_a_key_has_an_event_of_its_own(backend: Backend, ttl_clock: TTLClock) -> None:
    got = handled()
    for _ in range(3):
        seats(1)
        ttl_clock.advance(HOUR)
        worker(Seat).run_once()
        worker(Seat).run_once()
    assert [event.key for event in got] == [(1,)] * 3
    assert len({event.id for event in got}) == 3


def test_a_row_that_is_put_back_as_it_was_has_no_second_event(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    got = handled()
    seats(1)
    (stamp,) = raw("SELECT _ts FROM shop_seat")
    ttl_clock.advance(HOUR)
    worker(Seat).run_once()
    seats(1)
    raw("UPDATE shop_seat SET _ts = %s", stamp)
    worker(Seat).run_once()
    assert not Seat.all_objects.exists()
    assert len(got) == 1


def test_nothing_is_recorded_of_rows_that_are_renewed_or_deleted(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    got = handled()
    seats(1, 2, 3, 4)
    ttl_clock.advance(HOUR - 60)
    Seat.objects.get(pk=1).touch()
    Seat.objects.get(pk=2).delete()
    Seat.objects.filter(pk=3).delete()
    keep_last_modified(Seat.objects.filter(pk=4)).update(ttl=2 * HOUR)
    ttl_clock.advance(60)
    worker(Seat).run_once()
    assert got == []
    assert Seat.objects.count() == 2


@pytest.mark.slow
def test_without_the_tables_no_row_goes_unrecorded(backend: Backend, ttl_clock: TTLClock) -> None:
    record_expired(Seat)
    seats(1)
    ttl_clock.advance(HOUR)
    call_command("migrate", LABEL, "zero", verbosity=0, interactive=False)
    try:
        report = Sweeper(connections["default"], Seat).run_once()
        assert report.deleted == 0
        assert raw("SELECT COUNT(*) FROM shop_seat") == [(1,)]
        with pytest.raises(TTLConfigurationError, match=r"manage\.py migrate ttl_odm_events"):
            all_of(Seat)
        with pytest.raises(HookError):
            Seat.objects.create(pk=1, row="b", number=1)
    finally:
        call_command("migrate", LABEL, verbosity=0, interactive=False)
    assert raw("SELECT COUNT(*) FROM shop_seat") == [(1,)]


def test_an_archive_gets_the_rows_too(
    backend: Backend, ttl_clock: TTLClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive("shop.StoredSeat", archived_at="archived_at")
    monkeypatch.setattr(Seat, "__ttl_archive__", archive)
    got = handled()
    seats(1)
    ttl_clock.advance(HOUR)
    worker(Seat).run_once()
    assert [event.key for event in got] == [(1,)]
    assert StoredSeat.objects.count() == 1


def test_a_model_keeps_its_own_hooks(backend: Backend, ttl_clock: TTLClock) -> None:
    model: Any = Seat
    heard: list[Any] = []
    model.__ttl_on_purged__ = heard.append
    got = handled()
    handled(name="another")
    seats(1)
    ttl_clock.advance(HOUR)
    assert worker(Seat).run_once().done == 2
    assert len(got) == len(heard) == 1


def test_policies_over_fields_of_ones_own(backend: Backend, ttl_clock: TTLClock) -> None:
    end = DjangoStore().now().replace(microsecond=0) + timedelta(hours=1)
    for model in (Link, Upload):
        record_expired(model)
    Link.objects.create(token="a", expires=end)
    Upload.objects.create(pk=1, name="b", created=int(end.timestamp()) - HOUR)
    ttl_clock.advance(HOUR + 1)
    for model in (Link, Upload):
        Sweeper(connections["default"], model).run_once().raise_for_failures()
    link, upload = sorted(all_of(), key=lambda event: event.table)
    assert link.expires_at == link.last_modified == upload.expires_at == end
    assert link.row == {"token": "a", "expires": end.isoformat()}
    assert upload.row == {"id": 1, "created": int(end.timestamp()) - HOUR}


def test_a_row_in_two_tables_has_one_event_of_the_root(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    got = handled(Concert, include=["title"])
    user = User.objects.create(name="ann")
    Concert.objects.create(pk=1, title="fugue", band="b", code="c", user=user)
    Event.objects.create(pk=2, title="talk")
    ttl_clock.advance(HOUR)
    assert worker(Event).run_once().done == 2
    titles = sorted((event.table, event.key, event.row["title"]) for event in got)
    assert titles == [("shop_event", (1,), "fugue"), ("shop_event", (2,), "talk")]


def test_a_parent_has_an_event_and_its_followers_have_none(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    got = handled(Cart)
    with pytest.raises(TTLConfigurationError, match=r"Item can't have events: its rows follow"):
        on_expired(Item)
    Cart.objects.create(pk=1)
    Item.objects.create(pk=1, cart_id=1)
    ttl_clock.advance(HOUR)
    worker(Cart).run_once()
    assert [(event.table, event.key) for event in got] == [(Cart._meta.db_table, (1,))]
    assert raw(f"SELECT COUNT(*) FROM {Item._meta.db_table}") == [(0,)]  # noqa: S608


def test_a_stored_default_decides_when_a_row_expired(backend: Backend, ttl_clock: TTLClock) -> None:
    with stored_models() as models:
        got = handled(models.Message)
        for scope in (None, "acme"):
            set_policy(models.Message, HOUR, scope=scope, by="test")
        ttl_clock.advance(5)
        for key, tenant in ((1, "acme"), (2, "other"), (3, None)):
            models.Message.objects.create(pk=key, tenant=tenant)
        set_policy(models.Message, 2 * HOUR, scope="acme", by="test")
        for _ in range(2):
            ttl_clock.advance(HOUR + 5)
            worker(models.Message).run_once()
        lives = {}
        for event in got:
            assert event.last_modified is not None
            lives[event.key] = event.expires_at - event.last_modified
        assert lives == {
            (1,): timedelta(hours=2),
            (2,): timedelta(hours=1),
            (3,): timedelta(hours=1),
        }


def test_events_have_a_ttl_themselves(backend: Backend, ttl_clock: TTLClock) -> None:
    got = handled(attempts=1)
    seats(1)
    ttl_clock.advance(HOUR)
    Sweeper(connections["default"], Seat).run_once().raise_for_failures()
    assert (recorded(), waiting()) == (1, 1)
    ttl_clock.advance(7 * 24 * HOUR)
    worker(Seat).run_once()
    assert got == []
    for table in ("ttl_odm_events", "ttl_odm_deliveries"):
        assert raw(f"SELECT COUNT(*) FROM {table}") == [(0,)]  # noqa: S608


class _EventsElsewhere:
    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:
        return db == "other" if app_label == LABEL else None


@pytest.mark.databases("sqlite")
def test_the_tables_must_be_where_rows_are_deleted(backend: Backend) -> None:
    def found() -> set[str | None]:
        return {message.id for message in run_checks(tags=["database"], databases=["default"])}

    with override_settings(DATABASE_ROUTERS=[_EventsElsewhere()]):
        assert "ttl_odm_events.E001" not in found()
        record_expired(Seat)
        assert "ttl_odm_events.E001" in found()
    assert "ttl_odm_events.E001" not in found()


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("target", "include", "message"),
    [
        (User, (), "shop.User has no TTL, so its rows never expire"),
        (Seat, ["seat"], r"include = \['seat'\] names the field 'seat', and shop.Seat has no such"),
        (connections, (), "can't have events"),
    ],
)
def test_mistakes_are_named(backend: Backend, target: Any, include: Any, message: str) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        on_expired(target, include=include)
    assert "__ttl_on_purged__" not in vars(target if isinstance(target, type) else Seat)


MISSING = """
import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import models

settings.configure(
    INSTALLED_APPS=["ttl_odm.django"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()

from ttl_odm.django import TTLModel
from ttl_odm.events import on_expired


class Hold(TTLModel):
    __ttl__ = 3600

    class Meta:
        app_label = "holds"


try:
    on_expired(Hold)
except ImproperlyConfigured as error:
    print(error)
"""


@pytest.mark.slow
def test_an_app_that_is_not_installed_is_named() -> None:
    run = [sys.executable, "-c", MISSING]
    said = subprocess.run(run, capture_output=True, text=True, timeout=GUARD, check=True).stdout
    assert said == 'Events require the app "ttl_odm.events.django": add it to INSTALLED_APPS.\n'


def described(column: Any, engine: Engine) -> tuple[object, ...]:
    """What counts of a type: a long text is one, too, and SQLite has one kind of integers."""
    kind = type(column["type"].as_generic()).__name__
    length = getattr(column["type"], "length", None)
    is_short = kind == "String" and length is not None
    kind = {"BigInteger": "Integer", "String": "String" if is_short else "Text"}.get(kind, kind)
    if engine.dialect.name != "sqlite" and column["name"].endswith("_at"):
        kind = type(column["type"]).__name__
    collation = column["type"].collation if is_short else None
    return kind, length if is_short else None, collation, column["nullable"]


def schema(engine: Engine, metadata: MetaData) -> dict[str, Any]:
    """Columns, keys and indexes, as the database knows them."""
    inspector = inspect(engine)
    found: dict[str, Any] = {}
    for table in metadata.tables:
        for column in inspector.get_columns(table):
            found[f"{table}.{column['name']}"] = described(column, engine)
        found[f"{table} key"] = inspector.get_pk_constraint(table)["constrained_columns"]
        indexes = inspector.get_indexes(table)
        ours = [index["column_names"] for index in indexes if not index["name"].endswith("_like")]
        found[f"{table} indexes"] = sorted(ours)
    return found


@pytest.mark.slow
def test_both_adapters_make_the_same_tables(backend: Backend) -> None:
    assert backend.sync_url is not None
    engine, metadata = create_engine(backend.sync_url), MetaData()
    event_tables(metadata)
    try:
        by_django = schema(engine, metadata)
        call_command("migrate", LABEL, "zero", verbosity=0, interactive=False)
        metadata.create_all(engine)
        by_sqlalchemy = schema(engine, metadata)
        metadata.drop_all(engine)
    finally:
        engine.dispose()
        call_command("migrate", LABEL, verbosity=0, interactive=False)
    assert by_django == by_sqlalchemy


@pytest.mark.databases("sqlite")
def test_nothing_is_left_to_migrate(backend: Backend) -> None:
    call_command("makemigrations", LABEL, check=True, dry_run=True, verbosity=0)
