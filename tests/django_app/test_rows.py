"""What becomes of single rows: the contract's table, stamps, the row helpers, no revival."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.db.models import F, Sum
from django.db.models.functions import NullIf, Upper
from django.utils import timezone as django_timezone

import ttl_odm.django
from tests.django_app.data import kill, raw
from tests.django_app.shop.models import (
    Concert,
    Event,
    Handle,
    Line,
    Link,
    Nick,
    Order,
    Receipt,
    Seat,
    Session,
    Upload,
    User,
)
from ttl_odm import (
    ExpireAfter,
    ExpireAt,
    ExpiredError,
    InvalidTTL,
    TTLConfigurationError,
    TTLError,
)
from ttl_odm.core.declaration import DeclaredTTL
from ttl_odm.django import include_expired, keep_last_modified
from ttl_odm.django.policy.bindings import binding_of
from ttl_odm.django.policy.predicate import Predicate
from ttl_odm.django.time import clock

if TYPE_CHECKING:
    from tests.backends import Backend
    from ttl_odm.core import Policy
    from ttl_odm.testing import TTLClock

HOUR = 3600


@pytest.mark.parametrize("value", [0, -2, 1.5, "60", True, 2**31, timedelta(seconds=-1)])
def test_what_is_no_ttl_is_refused_and_nothing_is_stored(backend: Backend, value: Any) -> None:
    with pytest.raises(InvalidTTL, match=r"Session\.ttl"):
        Session.objects.create(key="a", ttl=value)
    row = Session.objects.create(key="a")
    with pytest.raises(InvalidTTL):
        Session.objects.update(ttl=value)
    with pytest.raises(InvalidTTL):
        Session.objects.bulk_create([Session(key="b", ttl=value)])
    assert list(Session.objects.values_list("pk", "ttl")) == [(row.pk, None)]


def test_timedeltas_are_ttls(backend: Backend) -> None:
    Session.objects.create(key="a", ttl=timedelta(minutes=1))
    assert Session.objects.get().ttl == 60
    assert Session.objects.filter(ttl=timedelta(minutes=1)).exists()


def test_every_write_resets_the_last_modification(backend: Backend) -> None:
    row = Session.objects.create(pk=1, key="a")
    writes: list[Any] = [
        row.save,
        lambda: row.save(update_fields=["number"]),
        lambda: _set(row, number=F("number") + 1).save(),
        lambda: _set(row, number=F("number") + 1).save(update_fields=["number"]),
        row.touch,
        lambda: Session.objects.update(number=2),
        lambda: Session.objects.update(number=F("number") + 1),
        lambda: Session.objects.bulk_update([row], ["number"]),
        lambda: Session.objects.update_or_create(key="a", defaults={"number": 4}),
        lambda: Session.objects.update(last_modified=datetime(2000, 1, 1, tzinfo=timezone.utc)),
        lambda: Session.objects.update(ttl=None),
        lambda: Session.objects.filter(user__isnull=True).update(number=5),
        lambda: _upserted("a"),
    ]
    for write in writes:
        kill(Session, [1], HOUR // 2)
        before = clock.database_now(connection)
        write()
        assert Session.objects.get().last_modified >= before, write


def _set(row: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(row, name, value)
    return row


def _upserted(key: str) -> None:
    options: dict[str, Any] = {"update_conflicts": True, "update_fields": ["number"]}
    if connection.features.supports_update_conflicts_with_target:
        options["unique_fields"] = ["key"]
    Session.objects.bulk_create([Session(key=key, number=9)], **options)


def test_writes_to_a_subclass_table_reset_the_row(backend: Backend) -> None:
    row = Concert.objects.create(pk=1, title="a", band="b")
    writes: list[Any] = [
        lambda: Concert.objects.update(band="c"),
        lambda: Concert.objects.update(band="c", title="d"),
        lambda: Event.objects.update(title="e"),
        row.save,
        lambda: row.save(update_fields=["band"]),
        lambda: _set(row, band=Upper("band")).save(),
        lambda: _set(row, band=Upper("band")).save(update_fields=["band"]),
        row.touch,
    ]
    for write in writes:
        kill(Event, [1], HOUR // 2)
        before = clock.database_now(connection)
        write()
        assert Concert.objects.get().last_modified >= before, write


@pytest.mark.parametrize("atomic", [True, False])
def test_a_save_that_reads_what_it_wrote_takes_the_key_of_an_expired_row(
    backend: Backend,
    atomic: bool,  # noqa: FBT001
) -> None:
    row = Session.objects.create(pk=1, key="a", number=1)
    concert = Concert.objects.create(pk=1, title="a", band="b", code="a")
    handle = Handle.objects.create(pk=1, name="A", number=1)
    Session.objects.create(pk=2, key="dead")
    Concert.objects.create(pk=2, title="b", band="b", code="dead")
    Handle.objects.create(pk=2, name="B", number=2)
    for model in (Session, Event, Handle):
        kill(model, [2])
        kill(model, [1], HOUR // 2)
    before = clock.database_now(connection)
    # By Django 6 the database returns what an expression, and a generated column, has become.
    with transaction.atomic() if atomic else nullcontext():
        _set(row, key="dead", number=F("number") + 1).save()
        names = ["code", "band"]
        _set(concert, code="dead", band=Upper("band")).save(update_fields=names)
        _set(handle, number=2, name="C").save()
    row, concert, handle = Session.objects.get(), Concert.objects.get(), Handle.objects.get()
    assert (row.pk, row.key, row.number) == (1, "dead", 2)
    assert (concert.pk, concert.code, concert.band) == (1, "dead", "B")
    assert (handle.pk, handle.number, handle.lower) == (1, 2, "c")
    assert min(each.last_modified for each in (row, concert, handle)) >= before


def test_a_save_by_an_expression_of_a_row_that_has_expired_writes_nothing(
    backend: Backend,
) -> None:
    row = Session.objects.create(pk=1, key="a", number=1)
    concert = Concert.objects.create(pk=1, title="a", band="b", code="a")
    kill(Session, [1])
    kill(Event, [1])
    with pytest.raises(ExpiredError):
        _set(row, number=F("number") + 1).save()
    with pytest.raises(DatabaseError):
        _set(concert, band=Upper("band")).save(update_fields=["band"])
    assert list(include_expired(Session.objects).values_list("number", flat=True)) == [1]
    assert list(include_expired(Concert.objects).values_list("band", flat=True)) == ["b"]


def test_keep_last_modified_writes_without_resetting(backend: Backend) -> None:
    Session.objects.create(pk=1, key="a")
    Concert.objects.create(pk=1, title="a", band="b")
    kill(Session, [1], HOUR // 2)
    kill(Event, [1], HOUR // 2)
    before = [Session.objects.get().last_modified, Event.objects.get().last_modified]
    row = Session.objects.get()
    row.number = 3
    assert Session.objects.keep_last_modified().update(number=F("number") + 1) == 1
    assert Session.objects.keep_last_modified().bulk_update([row], ["number"]) == 1
    assert keep_last_modified(Concert.objects).update(band="c", title="d") == 1
    assert keep_last_modified(Concert.objects).update(band="e") == 1
    assert Session.objects.get().number == 3
    after = [Session.objects.get().last_modified, Event.objects.get().last_modified]
    assert after == before
    kill(Session, [1])
    assert Session.objects.keep_last_modified().update(number=1) == 0


def test_the_stamp_is_known_after_each_save(backend: Backend) -> None:
    row = Session.objects.create(key="a")
    first = row.last_modified
    assert first.tzinfo is timezone.utc
    row.save()
    assert row.last_modified >= first
    assert row.last_modified == Session.objects.get().last_modified
    assert Session(key="b").save() is None


def test_row_helpers(backend: Backend, ttl_clock: TTLClock) -> None:
    ttl_clock.freeze()
    row = Session.objects.create(key="a")
    assert row.expires_at == row.last_modified + timedelta(hours=1)
    row.expire_in(timedelta(minutes=2))
    row.save()
    assert Session.objects.get().ttl == 120
    row.persist()
    row.save()
    assert (row.expires_at, row.time_left, row.is_expired) == (None, None, False)
    row.inherit_ttl()
    row.save(update_fields=["ttl"])
    assert Session.objects.get().ttl is None
    end = (clock.database_now(connection) + timedelta(seconds=90.5)).replace(microsecond=123000)
    row.expire_at(end)
    row.save(update_fields=["ttl"])
    assert Session.objects.get().expires_at == row.expires_at == end
    row.expire_in(0)
    row.save()
    assert not Session.objects.exists()
    with pytest.raises(InvalidTTL, match="naive"):
        row.expire_at(datetime(2030, 1, 1))  # noqa: DTZ001


def test_touch_within_limits_is_decided_by_the_database(
    backend: Backend, django_queries: Any, ttl_clock: TTLClock
) -> None:
    ttl_clock.freeze()
    row = Session.objects.create(pk=1, key="a")
    kill(Session, [1], 100)
    row.last_modified = datetime(2000, 1, 1, tzinfo=timezone.utc)  # what is in memory counts not
    for every in (110, 3600.5, timedelta(minutes=2)):
        with django_queries() as queries:
            assert row.touch(at_most_every=every) is False
        assert queries[0]["sql"].startswith("UPDATE")
    assert Session.objects.get().time_left == timedelta(seconds=HOUR - 100)
    with django_queries() as queries:
        assert row.touch(at_most_every=90.5) is True
    assert len(queries) == 1
    assert Session.objects.get().time_left == timedelta(seconds=HOUR)
    assert row.last_modified == Session.objects.get().last_modified
    assert row.touch() is True
    for wrong in (0, -1, True, "soon", float("nan")):
        with pytest.raises(TTLConfigurationError, match="at_most_every"):
            row.touch(at_most_every=wrong)  # type: ignore[arg-type]
    with pytest.raises(TTLConfigurationError, match="only_if"):
        row.touch(only_if="later")  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", [ExpireAt("last_modified"), ExpireAfter("last_modified", 60)])
def test_touch_says_that_by_some_policies_no_write_prolongs_a_row(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, django_queries: Any, policy: Policy
) -> None:
    row = Session.objects.create(pk=1, key="a")
    before = raw("SELECT * FROM shop_session")
    monkeypatch.setattr(Session, "__ttl__", policy)
    monkeypatch.setattr(binding_of(Session), "default", DeclaredTTL(Session))
    with django_queries() as queries:
        for arguments in ({}, {"at_most_every": 60}, {"only_if": "longer"}):
            with pytest.raises(TTLError, match=r"Session\.touch\(\): with Expire.+'last_modified'"):
                row.touch(**arguments)
    assert not queries
    assert raw("SELECT * FROM shop_session") == before


@pytest.mark.parametrize("policy", [ExpireAt("last_modified"), ExpireAfter("last_modified", 60)])
def test_a_ttl_that_the_policy_does_not_read_is_not_changed(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    row = Session.objects.create(pk=1, key="a")
    monkeypatch.setattr(Session, "__ttl__", policy)
    monkeypatch.setattr(binding_of(Session), "own", None)
    monkeypatch.setattr(binding_of(Session), "default", DeclaredTTL(Session))
    before = {name: value for name, value in vars(row).items() if name != "_state"}
    for call in (
        row.persist,
        row.inherit_ttl,
        lambda: row.expire_in(60),
        lambda: row.expire_at(datetime(2100, 1, 1, tzinfo=timezone.utc)),
    ):
        with pytest.raises(TTLError, match=r"Session\.\w+\(\): with Expire.+'last_modified'"):
            call()
    assert {name: value for name, value in vars(row).items() if name != "_state"} == before


@pytest.mark.parametrize(
    ("default", "ttl", "granted"),
    [
        (HOUR, None, ("longer", "has_ttl")),
        (HOUR, 900, ("longer", "has_ttl")),
        (HOUR, -1, ("no_ttl",)),
        (-1, None, ("no_ttl",)),
        (-1, 900, ("longer", "has_ttl")),
        (None, None, ("no_ttl",)),
        (None, 900, ("no_ttl",)),
    ],
)
def test_touch_on_a_condition(
    backend: Backend,
    monkeypatch: pytest.MonkeyPatch,
    default: int | None,
    ttl: int | None,
    granted: tuple[str, ...],
) -> None:
    monkeypatch.setattr(Session, "__ttl__", default)
    row = Session.objects.create(pk=1, key="a", ttl=ttl)
    for only_if in ("longer", "shorter", "has_ttl", "no_ttl"):
        kill(Session, [1], 100)
        before = Session.objects.get().last_modified
        assert row.touch(only_if=only_if) is (only_if in granted), only_if
        assert (Session.objects.get().last_modified > before) is (only_if in granted), only_if


def test_touch_on_a_condition_of_a_subclass_row_and_of_one_that_is_gone(backend: Backend) -> None:
    row = Concert.objects.create(pk=1, title="a", band="b")
    kill(Event, [1], 100)
    assert row.touch(at_most_every=60, only_if="has_ttl") is True
    assert row.touch(at_most_every=60, only_if="has_ttl") is False
    kill(Event, [1])
    with pytest.raises(Concert.DoesNotExist):
        row.touch(at_most_every=60)
    with pytest.raises(ttl_odm.django.ExpiredError):
        row.touch(only_if="no_ttl")


def test_a_new_end_on_a_condition(backend: Backend, ttl_clock: TTLClock) -> None:
    ttl_clock.freeze()
    row = Session.objects.create(key="a", ttl=900)
    assert row.expire_in(60, only_if="longer") is False
    assert row.expire_in(600, only_if="no_ttl") is False
    assert row.expire_in(600, only_if="shorter") is True
    row.save()
    assert Session.objects.get().ttl == 600
    now = clock.database_now(connection)
    assert row.expire_at(now + timedelta(hours=1), only_if="shorter") is False
    assert row.expire_at(now + timedelta(hours=1), only_if="longer") is True
    row.save()
    assert Session.objects.get().expires_at == now + timedelta(hours=1)
    row.persist()
    row.save()
    assert row.expire_in(60, only_if="has_ttl") is False
    assert row.expire_in(60, only_if="no_ttl") is True
    assert row.expire_in(0) is True
    row.save()
    assert not Session.objects.exists()


def test_an_instance_of_an_expired_row_is_not_saved(backend: Backend) -> None:
    row = Session.objects.create(key="a")
    kill(Session, [row.pk])
    error = ttl_odm.django.ExpiredError
    for save in (row.save, row.touch, lambda: row.save(force_update=True)):
        for kind in (error, ExpiredError, DatabaseError, Session.DoesNotExist):
            with pytest.raises(kind, match=r"shop.Session .* has expired"), transaction.atomic():
                save()
    with pytest.raises(Session.DoesNotExist):
        row.refresh_from_db()
    assert row.delete()[0] == 0
    raw("DELETE FROM shop_session")
    row.pk = 7
    with pytest.raises(ExpiredError), transaction.atomic():
        row.save()  # purged since: that makes no difference
    assert raw("SELECT COUNT(*) FROM shop_session") == [(0,)]


def test_an_instance_of_an_expired_subclass_row_is_not_saved(backend: Backend) -> None:
    row = Concert.objects.create(title="a", band="b")
    kill(Event, [row.pk])
    for fields in (None, ["band"], ["title"]):
        with pytest.raises(DatabaseError), transaction.atomic():
            row.save(update_fields=fields)
    assert raw("SELECT band FROM shop_concert") == [("b",)]


def test_a_subclass_row_can_be_ended_by_a_save(backend: Backend) -> None:
    row = Concert.objects.create(title="a", band="b")
    row.expire_in(0)
    row.band = "c"
    row.save()
    assert not Concert.objects.exists()
    assert not Event.objects.exists()


def test_a_copy_is_a_new_row(backend: Backend) -> None:
    row = Session.objects.create(key="a")
    kill(Session, [row.pk])
    row.pk = None
    row._state.adding = True
    row.save()
    assert Session.objects.get().key == "a"


def test_date_fields_are_not_prolonged_by_writes(backend: Backend) -> None:
    link = Link.objects.create(token="a", expires=django_timezone.now() + timedelta(minutes=1))
    end = link.expires
    link.save()
    assert Link.objects.get().expires == end
    Link.objects.update(expires=django_timezone.now() - timedelta(seconds=5))
    assert not Link.objects.exists()
    with pytest.raises(ExpiredError), transaction.atomic():
        link.save()
    now = int(datetime.now(timezone.utc).timestamp())
    Upload.objects.create(name="new", created=now - 60)
    Upload.objects.create(name="old", created=now - 2 * HOUR)
    Upload.objects.create(name="never", created=None)
    assert set(Upload.objects.values_list("name", flat=True)) == {"new", "never"}


def test_in_one_transaction_rows_expire_between_statements(backend: Backend) -> None:
    with transaction.atomic():
        Session.objects.create(pk=1, key="a", ttl=HOUR)
        assert Session.objects.exists()
        kill(Session, [1], HOUR + 1)
        assert not Session.objects.exists()
        assert Session.objects.create(key="a").key == "a"


@pytest.mark.parametrize("atomic", [True, False])
def test_what_refers_to_a_displaced_row_goes_by_on_delete(backend: Backend, atomic: bool) -> None:  # noqa: FBT001
    order = Order.objects.create(code="a")
    Line.objects.create(order=order)
    kill(Order, [order.pk])
    if atomic:
        with transaction.atomic():
            Order.objects.create(code="a")
    else:
        Order.objects.create(code="a")
    assert not include_expired(Line.objects.all()).exists()
    order = Order.objects.get()
    Receipt.objects.create(order=order)
    kill(Order, [order.pk])
    with pytest.raises(IntegrityError, match="protected"):
        Order.objects.create(code="a")
    assert Receipt.objects.count() == 1


def test_expired_children_do_not_keep_their_parent(backend: Backend) -> None:
    order = Order.objects.create(code="a")
    line = Line.objects.create(order=order)
    kill(Line, [line.pk])
    order.delete()
    assert raw("SELECT COUNT(*) FROM shop_line") == [(0,)]


def test_a_failed_write_costs_no_key(backend: Backend) -> None:
    """The expired holder is deleted in the transaction of the write, and comes back with it."""
    Seat.objects.create(pk=1, row="a", number=1)
    kill(Seat, [1])
    with transaction.atomic():
        Seat.objects.create(row="a", number=1)
        transaction.set_rollback(True)
    assert raw("SELECT id FROM shop_seat") == [(1,)]


def test_an_insert_without_conflict_costs_no_further_statement(
    backend: Backend, django_queries: Any
) -> None:
    with django_queries() as queries:
        Session.objects.create(key="a")
        Nick.objects.create(name="a")
        Session.objects.update(number=1)
        list(Session.objects.all())
    assert len(queries) == 4
    with django_queries() as queries, transaction.atomic():
        User.objects.create(name="a")
        Session.objects.create(key="b")
    assert len(queries) <= 5


def test_an_expression_that_fails_on_an_expired_row_is_asked_of_live_ones(backend: Backend) -> None:
    Session.objects.create(pk=1, key="live", number=2)
    Session.objects.create(pk=2, key="dead", number=0)
    kill(Session, [2])
    ratios = Session.objects.annotate(ratio=10 / F("number"))
    assert [row.ratio for row in ratios.order_by("ratio")] == [5]
    assert ratios.aggregate(Sum("ratio")) == {"ratio__sum": 5}
    guarded = Session.objects.annotate(ratio=10 / NullIf("number", 0)).filter(ratio__gt=1)
    assert [row.key for row in guarded] == ["live"]
    assert guarded.update(number=2) == 1
    assert Session.objects.update(number=10 / F("number")) == 1
    assert guarded.delete()[0] == 1


@pytest.mark.slow
def test_other_databases_have_their_own_rows(backend: Backend, other: str) -> None:
    Session.objects.create(pk=1, key="a")
    row = Session.objects.get()
    row.save(using=other)
    Session.objects.using(other).create(key="b")
    kill(Session, [1], alias=other)
    assert Session.objects.count() == 1
    assert [each.key for each in Session.objects.using(other)] == ["b"]
    assert Session.objects.db_manager(other).create(key="a").key == "a"


def test_a_predicate_is_made_once_for_each_default(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    render = Predicate.render

    def counted(self: Predicate, *given: Any) -> str:
        made.append(render(self, *given))
        return made[-1]

    def write_and_read() -> None:
        Session.objects.update(number=1)
        assert Session.objects.filter(number=1).count() == 1

    Session.objects.create(pk=1, key="a")
    Predicate.of.cache_clear()  # the tests of another database may have made them
    monkeypatch.setattr(Predicate, "render", counted)
    for seconds in (1234, 2345, 1234):
        monkeypatch.setattr(Session, "__ttl__", seconds)
        write_and_read()
        write_and_read()
    assert len(made) == 4  # one for reads and one for writes
    monkeypatch.setattr(Session, "__ttl__", 1)
    kill(Session, [1], 2)
    assert not Session.objects.exists()


@pytest.mark.databases("sqlite")
def test_what_only_tables_without_the_check_hold_is_asked_for_last(backend: Backend) -> None:
    """A condition that costs each row with a ttl of its own half as much again as the rest."""
    query = str(Session.objects.all().query)
    assert query.index('"ttl" > 0') < query.index('"ttl" <= 0')


def test_deleting_an_expired_instance_takes_along_only_what_refers_to_it(backend: Backend) -> None:
    order = Order.objects.create(pk=1, code="a")
    Line.objects.create(order=order)
    kill(Order, [1])
    assert order.delete() == (1, {"shop.Line": 1})
    assert not Line.all_objects.exists()
    assert Order.all_objects.get().code == "a"
