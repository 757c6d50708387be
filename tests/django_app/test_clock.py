"""`TTLClock` on Django's databases."""

from __future__ import annotations

import unittest
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.admin import ModelAdmin
from django.contrib.admin.sites import site
from django.core.management import call_command
from django.db import IntegrityError, connection, connections, models, transaction
from django.db.models import Count, Prefetch
from django.test import RequestFactory, TestCase
from django.test.utils import isolate_apps

from tests.django_app.data import kill, raw
from tests.django_app.shop.models import Concert, Event, Link, Note, Session, Upload, User
from ttl_odm import ExpiredError, TTLError
from ttl_odm.dialects import Family
from ttl_odm.django import DjangoStore, TTLModel, include_expired
from ttl_odm.django.sweep.leases import DjangoLeases
from ttl_odm.django.time import clock
from ttl_odm.sweeper import Sweeper
from ttl_odm.testing import TTLClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.backends import Backend

THEN = datetime(2031, 5, 4, 3, 2, 1, 123000, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
MILLISECOND = timedelta(milliseconds=1)


def stored(model: Any, pk: Any) -> Any:
    return include_expired(model.all_objects.all()).get(pk=pk)


# Texts

FORMS: dict[str, Any] = {
    "s": int(THEN.timestamp()),
    "ms": int(THEN.timestamp()) * 1000 + 123,
    "us": int(THEN.timestamp()) * 1_000_000 + 123_000,
}


def told(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {sql}".replace("%%", "%"))
        value = cursor.fetchone()[0]
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime) and value.tzinfo is None:
        value = value.replace(tzinfo=timezone.utc)
    return value


@pytest.mark.parametrize("writing", [False, True])
def test_each_form_of_a_column_hears_the_clock(
    backend: Backend, ttl_clock: TTLClock, *, writing: bool
) -> None:
    ttl_clock.freeze(at=THEN)
    for form, instant in FORMS.items():
        assert told(clock.now(connection, form, writing=writing)) == instant
        ten_ago = instant - 10 * clock.UNITS[form]
        assert told(clock.ago(connection, form, "10", writing=writing)) == ten_ago
    assert told(clock.now(connection, "datetime", writing=writing)) == THEN
    assert told(clock.ago(connection, "datetime", "10")) == THEN - timedelta(seconds=10)
    assert clock.database_now(connection) == THEN


def test_each_form_hears_a_clock_that_runs(backend: Backend, ttl_clock: TTLClock) -> None:
    for offset in (timedelta(days=4000, milliseconds=5), -timedelta(days=4000, milliseconds=5)):
        real = clock.database_now(connection)
        with ttl_clock.advance(offset):
            moved = clock.database_now(connection)
            text = told(clock.now(connection, "datetime", writing=True))
            seconds = told(clock.now(connection, "s", writing=True))
            after = clock.database_now(connection)
        assert real + offset <= moved <= text <= after <= clock.database_now(connection) + offset
        assert text.timestamp() - 1 < seconds <= after.timestamp()


def test_the_databases_precision_is_kept(backend: Backend, ttl_clock: TTLClock) -> None:
    ttl_clock.freeze(at=THEN + timedelta(microseconds=456))
    kept = THEN if backend.database == "sqlite" else THEN + timedelta(microseconds=456)
    session = Session.objects.create(key="a")
    assert session.last_modified == kept
    step = MILLISECOND if backend.database == "sqlite" else timedelta(microseconds=1)
    ttl_clock.advance(HOUR - step)
    assert Session.objects.exists()
    ttl_clock.advance(step)
    assert not Session.objects.exists()


# Stamps


def _save() -> None:
    session = Session.objects.get(pk=1)
    session.number = 5
    session.save()


def _touch() -> None:
    Session.objects.get(pk=1).touch()


def _update() -> None:
    assert Session.objects.update(number=5) == 1


def _bulk_update() -> None:
    session = Session.objects.get(pk=1)
    session.number = 5
    Session.objects.bulk_update([session], ["number"])


def _upsert() -> None:
    Session.objects.bulk_create(
        [Session(pk=1, key="a", number=5)],
        update_conflicts=True,
        update_fields=["number"],
        **({} if connection.vendor == "mysql" else {"unique_fields": ["key"]}),
    )


def _update_or_create() -> None:
    Session.objects.update_or_create(key="a", defaults={"number": 5})


@pytest.mark.parametrize(
    "write", [_save, _touch, _update, _bulk_update, _upsert, _update_or_create]
)
def test_every_write_is_stamped_with_the_instant_at_which_the_clock_stands(
    backend: Backend, ttl_clock: TTLClock, write: Callable[[], None]
) -> None:
    ttl_clock.freeze(at=THEN - HOUR / 2)
    Session.objects.create(pk=1, key="a")
    Session.objects.bulk_create([Session(pk=2, key="b")])
    Concert.objects.create(pk=1, title="a", band="b")
    assert {stored(Session, pk).last_modified for pk in (1, 2)} == {THEN - HOUR / 2}
    Session.objects.filter(pk=2).delete()
    ttl_clock.freeze(at=THEN)
    write()
    Concert.objects.update(band="c")
    assert stored(Session, 1).last_modified == THEN
    assert stored(Event, 1).last_modified == THEN


def test_what_the_database_does_by_itself_hears_the_real_time(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    ttl_clock.freeze(at=THEN)
    raw("INSERT INTO shop_event (title) VALUES ('a')")
    (event,) = include_expired(Event.objects.all())
    assert event.last_modified < THEN


# Reads

READS: dict[str, Callable[[], Any]] = {
    "get": lambda: Session.objects.filter(pk=1).first(),
    "list": lambda: list(Session.objects.all()),
    "count": Session.objects.count,
    "exists": Session.objects.exists,
    "aggregate": lambda: Session.objects.aggregate(n=Count("*"))["n"],
    "values": lambda: list(Session.objects.values_list("key")),
    "in_bulk": lambda: Session.objects.in_bulk([1]),
    "iterator": lambda: list(Session.objects.iterator()),
    "reverse": lambda: list(User.objects.get().session_set.all()),
    "join": lambda: list(User.objects.filter(session__key="a")),
    "inner join": lambda: list(Note.objects.filter(session__key="a")),
    "left join": lambda: Note.objects.select_related("perhaps").get().perhaps,
    "prefetch": lambda: list(
        User.objects.prefetch_related(Prefetch("session_set")).get().session_set.all()
    ),
    "union": lambda: list(
        Session.objects.filter(pk=1).order_by().union(Session.objects.filter(pk=2).order_by())
    ),
    "admin": lambda: list(ModelAdmin(Session, site).get_queryset(RequestFactory().get("/"))),
}


@pytest.mark.parametrize("name", READS)
def test_a_row_is_there_until_its_end_to_the_millisecond(
    backend: Backend, ttl_clock: TTLClock, name: str
) -> None:
    ttl_clock.freeze(at=THEN)
    user = User.objects.create(name="ann")
    session = Session.objects.create(pk=1, key="a", user=user)
    Note.objects.create(text="a", session=session, perhaps=session)
    ttl_clock.advance(HOUR - MILLISECOND)
    assert READS[name]()
    ttl_clock.advance(MILLISECOND)
    assert not READS[name]()
    ttl_clock.advance(-MILLISECOND)
    assert READS[name]()


def test_dates_and_numbers_of_the_applications_own_are_judged_by_the_clock_too(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    Link.objects.create(token="a", expires=THEN)
    Upload.objects.create(name="a", created=int(THEN.timestamp()))
    ttl_clock.freeze(at=THEN - MILLISECOND)
    assert [Link.objects.count(), Upload.objects.count()] == [1, 1]
    ttl_clock.freeze(at=THEN)
    assert [Link.objects.count(), Upload.objects.count()] == [0, 1]
    ttl_clock.freeze(at=THEN.replace(microsecond=0) + HOUR - MILLISECOND)
    assert Upload.objects.count() == 1
    ttl_clock.advance(MILLISECOND)
    assert Upload.objects.count() == 0


def test_a_row_is_there_until_its_end_by_a_clock_that_runs(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    Session.objects.create(key="a")
    Session.objects.create(key="b", ttl=7200)
    ttl_clock.advance(3000)
    assert Session.objects.count() == 2
    ttl_clock.advance(600)
    assert [each.key for each in Session.objects.all()] == ["b"]
    assert include_expired(Session.objects.all()).count() == 2


# Writes


def test_nothing_that_has_expired_is_written(backend: Backend, ttl_clock: TTLClock) -> None:
    session = Session.objects.create(pk=1, key="a")
    ttl_clock.advance(HOUR)
    assert Session.objects.update(number=1) == 0
    assert Session.objects.all().delete()[0] == 0
    for write in (session.save, session.touch):
        with pytest.raises(ExpiredError), transaction.atomic():
            write()
    with pytest.raises(Session.DoesNotExist):
        session.refresh_from_db()
    assert stored(Session, 1).number == 0


@pytest.mark.parametrize("in_transaction", [False, True])
def test_the_keys_of_what_has_expired_are_free(
    backend: Backend, ttl_clock: TTLClock, *, in_transaction: bool
) -> None:
    Session.objects.create(pk=1, key="a")
    with pytest.raises(IntegrityError), transaction.atomic():
        Session.objects.create(pk=2, key="a")
    ttl_clock.advance(HOUR)
    if in_transaction:
        with transaction.atomic():
            Session.objects.create(pk=2, key="a")
    else:
        Session.objects.create(pk=2, key="a")
    assert [each.pk for each in include_expired(Session.objects.all())] == [2]


@pytest.mark.parametrize("passing", ["by the clock", "in the database"])
def test_an_instance_whose_key_was_taken_again_writes_what_it_does_in_real_time(
    backend: Backend, ttl_clock: TTLClock, passing: str
) -> None:
    """As docs/django.md says: the clock is no more lenient, nor any stricter."""
    old = Session.objects.create(pk=1, key="old")
    old.refresh_from_db()
    seen = old.last_modified
    if passing == "by the clock":
        ttl_clock.advance(HOUR)
    else:
        kill(Session, [1], seconds=3600)
    with pytest.raises(ExpiredError), transaction.atomic():
        old.save()
    Session.objects.create(pk=1, key="new")
    same = Session.objects.filter(pk=1, last_modified=seen)
    assert (same.update(number=1), same.delete()[0]) == (0, 0)
    old.save(update_fields=["number"])
    assert Session.objects.get(pk=1).key == "new"
    old.delete()
    assert not Session.all_objects.exists()


def test_a_test_that_is_rolled_back_has_the_clock_throughout(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    with transaction.atomic():
        Session.objects.create(pk=1, key="a")
        ttl_clock.advance(HOUR)
        assert not Session.objects.exists()
        with suppress(ZeroDivisionError), transaction.atomic():
            Session.objects.create(pk=2, key="a")
            _ = 1 / 0
        Session.objects.create(pk=3, key="a")
        assert [each.pk for each in Session.objects.all()] == [3]
        transaction.set_rollback(True)
    assert not include_expired(Session.objects.all()).exists()
    Session.objects.create(pk=4, key="a")
    ttl_clock.advance(-HOUR)
    assert stored(Session, 4).last_modified > clock.database_now(connection)


def test_the_clock_moves_in_django_s_own_test_cases(backend: Backend) -> None:
    class Case(TestCase):
        def setUp(self) -> None:
            self.clock = TTLClock()
            self.clock.__enter__()
            self.addCleanup(self.clock.__exit__, None, None, None)

        def test_expiry(self) -> None:
            Session.objects.create(pk=1, key="a")
            self.clock.advance(3600)
            assert not Session.objects.exists()
            Session.objects.create(pk=2, key="a")
            self.clock.advance(3600)
            call_command("ttl_sweep", model=["shop.Session"])
            assert not include_expired(Session.objects.all()).exists()

        def test_failure(self) -> None:
            self.clock.advance(3600)
            raise RuntimeError

    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(result)
    assert result.testsRun == 2
    ((case, text),) = result.errors
    assert "raise RuntimeError" in text
    assert case.id().endswith("test_failure")
    assert not include_expired(Session.objects.all()).exists()
    before = clock.database_now(connection)
    session = Session.objects.create(key="a")
    assert before <= session.last_modified <= clock.database_now(connection)


# Row helpers


def test_a_row_tells_the_time_by_the_clock(backend: Backend, ttl_clock: TTLClock) -> None:
    ttl_clock.freeze(at=THEN)
    session = Session.objects.create(key="a")
    assert (session.expires_at, session.time_left) == (THEN + HOUR, HOUR)
    ttl_clock.advance(HOUR - MILLISECOND)
    assert (session.time_left, session.is_expired) == (MILLISECOND, False)
    session.touch()
    assert session.expires_at == THEN + 2 * HOUR - MILLISECOND
    ttl_clock.advance(HOUR)
    assert (session.time_left, session.is_expired) == (timedelta(), True)


def test_a_lifetime_is_set_by_the_clock(backend: Backend, ttl_clock: TTLClock) -> None:
    ttl_clock.freeze(at=THEN)
    session = Session(key="a")
    session.expire_at(THEN + timedelta(seconds=90, milliseconds=5))
    session.save()
    assert session.expires_at == THEN + timedelta(seconds=90, milliseconds=5)
    assert session.ttl == 91
    session.expire_in(5)
    session.save()
    assert session.expires_at == THEN + timedelta(seconds=5)
    session.expire_in(0)
    session.save()
    assert not Session.objects.exists()


# Sweeping


@pytest.mark.slow
def test_the_command_purges_what_has_expired_by_the_clock(
    backend: Backend, ttl_clock: TTLClock, capsys: pytest.CaptureFixture[str]
) -> None:
    Session.objects.create(pk=1, key="a")
    Session.objects.create(pk=2, key="b", ttl=7200)
    Link.objects.create(token="a", expires=THEN)
    call_command("ttl_sweep")
    assert [stored(Session, 1).pk, Link.objects.count()] == [1, 1]
    ttl_clock.advance(HOUR)
    call_command("ttl_sweep")
    assert [each.pk for each in include_expired(Session.objects.all())] == [2]
    ttl_clock.freeze(at=THEN)
    call_command("ttl_sweep")
    assert not include_expired(Session.objects.all()).exists()
    assert not include_expired(Link.objects.all()).exists()
    assert call_command("ttl_status") is None


def test_a_sweep_knows_how_long_rows_are_overdue(backend: Backend, ttl_clock: TTLClock) -> None:
    ttl_clock.freeze(at=THEN)
    Session.objects.create(key="a")
    ttl_clock.advance(HOUR + timedelta(minutes=5))
    due = DjangoStore("default").due("shop_session")
    assert due is not None
    assert due.oldest == 300
    report = Sweeper(connections["default"], [Session]).run_once()
    assert (report.deleted, report.problems) == (1, ())


def test_leases_stay_with_the_real_time(backend: Backend, ttl_clock: TTLClock) -> None:
    leases = DjangoLeases("default")
    lease = leases.acquire("a", "me", 86_400)
    ttl_clock.advance(timedelta(days=365))
    assert leases.acquire("a", "you", 86_400) is None
    assert lease is not None
    assert leases.renew(lease)
    assert 0 < leases.read("a").seconds_left <= 86_400
    leases.release(lease)


# Schemas


@isolate_apps("tests.django_app.shop")
def test_no_table_that_is_made_meanwhile_keeps_the_moved_now(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    class Made(TTLModel):
        __ttl__ = None

        class Meta:
            app_label = "shop"

    ttl_clock.freeze(at=THEN)
    with connection.schema_editor() as editor:
        editor.create_model(Made)
    try:
        raw("INSERT INTO shop_made (ttl) VALUES (NULL)")
        raw("ALTER TABLE shop_made ADD COLUMN more integer NULL")
        (made,) = raw("SELECT _ts FROM shop_made")
        assert clock.from_storage(connection, made[0]) < THEN
        assert clock.database_now(connection) == THEN
    finally:
        raw("DROP TABLE shop_made")


# Factories


@pytest.mark.parametrize("own", [None, 600, timedelta(minutes=10)])
@pytest.mark.parametrize("seconds", [-300, 20, 0])
def test_rows_are_made_that_expire_when_a_test_wants(
    backend: Backend, ttl_clock: TTLClock, own: int | None, seconds: int
) -> None:
    session = Session(key="a", ttl=own)
    ttl_clock.freeze(at=THEN)
    with ttl_clock.expiring(session, seconds):
        session.save()
    assert session.expires_at == THEN + timedelta(seconds=seconds)
    assert Session.objects.exists() is (seconds > 0)


@pytest.mark.parametrize("known", [True, False])
def test_what_was_written_and_has_expired_since_knows_its_end(
    backend: Backend, ttl_clock: TTLClock, *, known: bool
) -> None:
    ttl_clock.freeze(at=THEN)
    session = Session.objects.create(key="a", ttl=60)
    session.number = 1
    session.save()  # its last modification is the database's, and read when it is asked for
    if known:
        assert session.last_modified == THEN
    ttl_clock.advance(61)
    assert session.is_expired
    assert session.expires_at == THEN + timedelta(seconds=60)


def test_what_was_loaded_without_its_end_and_has_expired_since_knows_it(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    ttl_clock.freeze(at=THEN)
    Session.objects.create(key="a", ttl=60)
    (session,) = Session.objects.only("key")
    ttl_clock.advance(61)
    assert session.expires_at == THEN + timedelta(seconds=60)
    assert session.is_expired


def test_they_can_be_made_for_the_real_time(backend: Backend, ttl_clock: TTLClock) -> None:
    with ttl_clock.expiring(Session, -60):
        Session.objects.create(pk=1, key="a")
        Session.objects.create(pk=2, key="b")
    before = clock.database_now(connection)
    with ttl_clock.expiring(Concert, 30):
        concert = Concert.objects.create(title="a", band="b")
    assert not Session.objects.exists()
    assert include_expired(Session.objects.all()).count() == 2
    now = clock.database_now(connection)
    assert before <= concert.expires_at - timedelta(seconds=30) <= now


@pytest.mark.parametrize("target", [Link, Upload, User, Session(ttl=-1), models.Model])
def test_what_has_no_end_counted_from_its_writing_cant_be_made_so(
    ttl_clock: TTLClock, target: Any
) -> None:
    with pytest.raises(TTLError, match="expiring"):
        ttl_clock.expiring(target, 5)


# Before and after


def test_after_a_failure_everything_is_as_it_was(backend: Backend) -> None:
    present, sql = Family.present, str(Session.objects.all().query)
    session = Session.objects.create(key="a")
    with suppress(RuntimeError), TTLClock() as moved:
        moved.freeze(at=THEN)
        assert str(Session.objects.all().query) != sql
        assert session.is_expired
        raise RuntimeError
    assert Family.present is present
    assert str(Session.objects.all().query) == sql
    assert Session.objects.get() == session
    assert not session.is_expired


def test_a_failed_schema_change_leaves_the_clock_moved(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    ttl_clock.freeze(at=THEN)
    with suppress(ZeroDivisionError), connection.schema_editor():
        assert clock.database_now(connection) < THEN
        _ = 1 / 0
    assert clock.database_now(connection) == THEN


def test_a_queryset_that_was_made_before_follows_the_clock(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    Session.objects.create(key="a")
    found = Session.objects.filter(key="a")
    assert found.count() == 1
    ttl_clock.advance(HOUR)
    assert found.count() == 0
