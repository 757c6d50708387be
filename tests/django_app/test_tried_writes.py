"""Writes are tried first: without a conflict they are one statement, and no try leaves a trace."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from django.db import DatabaseError, IntegrityError, connections, models, transaction
from psycopg import IsolationLevel

from tests.django_app import project
from tests.django_app.data import kill, raw, tables_of
from tests.django_app.shop.models import Concert, Event, Link, Nick, Seat, Session
from ttl_odm.django import TTLModel
from ttl_odm.django.keys.writes import forget_trials
from ttl_odm.testing import TTLClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.test.utils import CaptureQueriesContext

    from tests.backends import Backend


@pytest.fixture(autouse=True)
def _nobody_has_asked() -> Iterator[None]:
    forget_trials()
    yield
    forget_trials()


CREATES: dict[str, Callable[[], Any]] = {
    "own key": lambda: Session.objects.create(pk=1, key="a"),
    "unique field": lambda: Session.objects.create(key="b"),
    "unique constraint": lambda: Seat.objects.create(row="a", number=1),
    "unique expression": lambda: Nick.objects.create(name="Ann"),
    "nothing to return": lambda: Link.objects.create(token="a"),
}


@pytest.mark.parametrize("create", CREATES.values(), ids=CREATES)
def test_an_insert_in_a_transaction_is_one_statement(
    backend: Backend, django_queries: Callable[[], CaptureQueriesContext], create: Callable[[], Any]
) -> None:
    with transaction.atomic(), django_queries() as recorded:
        row = create()
    assert len(recorded) == 1, recorded.captured_queries
    assert row.pk
    assert type(row).objects.get().pk == row.pk


def test_a_subclass_is_one_statement_for_each_table(
    backend: Backend, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    with transaction.atomic(), django_queries() as recorded:
        Concert.objects.create(pk=1, title="a", band="b", code="c")
    sent = [query["sql"].split()[0] for query in recorded.captured_queries]
    assert sent.count("INSERT") == 2, recorded.captured_queries
    assert not {"SELECT", "DELETE"} & set(sent)  # Django itself sends an UPDATE


@pytest.mark.databases("sqlite", "mariadb", "mysql")
def test_many_inserts_and_updates_of_a_unique_column_are_one_statement(
    backend: Backend, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    with transaction.atomic(), django_queries() as recorded:
        Session.objects.bulk_create([Session(pk=1, key="a"), Session(pk=2, key="b")])
        Session.objects.filter(pk=1).update(key="c")
    assert len(recorded) == 2, recorded.captured_queries


def test_a_write_that_meets_an_expired_row_in_a_transaction_replaces_it(backend: Backend) -> None:
    for key in "abcd":
        Session.objects.create(pk=ord(key), key=key)
    kill(Session, map(ord, "abcd"))
    with transaction.atomic():
        Session.objects.create(pk=ord("a"), key="new", number=1)
        Session.objects.bulk_create([Session(key="b", number=1), Session(key="c", number=1)])
        with transaction.atomic():
            Session.objects.filter(key="new").update(key="d")
    assert list(Session.objects.values_list("key", "number")) == [("b", 1), ("c", 1), ("d", 1)]
    assert Session.all_objects.count() == 3


def test_a_live_key_is_an_integrity_error_and_a_savepoint_undoes_it(backend: Backend) -> None:
    Session.objects.create(pk=1, key="a")
    Session.objects.create(pk=2, key="b")
    kill(Session, [2])
    with transaction.atomic():
        Session.objects.create(pk=3, key="c")
        for taken in ({"pk": 1, "key": "x"}, {"key": "a"}, {"pk": 2, "key": "a"}):
            with pytest.raises(IntegrityError), transaction.atomic():
                Session.objects.create(**taken)
    assert set(Session.objects.values_list("pk", "key")) == {(1, "a"), (3, "c")}
    # What the third of them displaced came back with the savepoint.
    assert Session.all_objects.filter(pk=2).exists()


def test_other_errors_of_integrity_are_raised_as_they_are(
    backend: Backend, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    with django_queries() as recorded, pytest.raises(IntegrityError):
        Session.objects.create(pk=1, key=None)
    assert sum("INSERT" in query["sql"] for query in recorded.captured_queries) <= 1


@pytest.mark.databases("postgres")
@pytest.mark.parametrize("level", ["REPEATABLE_READ", "SERIALIZABLE"])
def test_a_transaction_that_does_not_see_who_has_the_key_gets_an_integrity_error(
    backend: Backend, level: str
) -> None:
    given = project.database_settings(backend)
    given["OPTIONS"] = {"isolation_level": IsolationLevel[level]}
    project.point_at("other", given)
    try:
        with transaction.atomic(using="other"):
            assert not Session.objects.using("other").exists()  # here its snapshot begins
            Session.objects.create(pk=1, key="a")
            with pytest.raises(IntegrityError), transaction.atomic(using="other"):
                Session.objects.using("other").create(pk=1, key="a")
    finally:
        connections["other"].close()


@pytest.mark.databases("postgres")
def test_a_trigger_that_keeps_rows_elsewhere_keeps_each_one_once(backend: Backend) -> None:
    with transaction.atomic():
        Link.objects.create(token="a")  # the database has been asked
    raw("CREATE TABLE elsewhere (row_ text)")
    raw(
        "CREATE FUNCTION keep_elsewhere() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO elsewhere VALUES (NEW.token); RETURN NULL; END $$"
    )
    raw(
        "CREATE TRIGGER elsewhere BEFORE INSERT ON shop_link FOR EACH ROW "
        "EXECUTE FUNCTION keep_elsewhere()"
    )
    try:
        with transaction.atomic():
            Link.objects.create(token="b")
        assert raw("SELECT row_ FROM elsewhere") == [("b",)]
        assert [row.token for row in Link.objects.all()] == ["a"]
    finally:
        raw("DROP TABLE elsewhere; DROP FUNCTION keep_elsewhere() CASCADE")


@pytest.mark.databases("postgres")
def test_a_key_that_is_checked_at_the_commit_is_free(backend: Backend) -> None:
    class Late(TTLModel):
        __ttl__ = 3600
        name: Any = models.CharField(max_length=5)

        class Meta:
            app_label = "shop"
            constraints = [
                models.UniqueConstraint(
                    fields=["name"], name="late_name", deferrable=models.Deferrable.DEFERRED
                )
            ]

    with tables_of(Late):
        Late.objects.create(pk=1, name="a")
        kill(Late, [1])
        with transaction.atomic():
            Late.objects.create(pk=2, name="a")
        assert list(Late.all_objects.values_list("pk", flat=True)) == [2]


@pytest.mark.databases("postgres")
def test_a_key_that_becomes_deferrable_is_an_error_once(backend: Backend) -> None:
    with transaction.atomic():
        Link.objects.create(token="a")
    raw("ALTER TABLE shop_link ADD CONSTRAINT late UNIQUE (expires) DEFERRABLE")
    try:
        with pytest.raises(DatabaseError, match="deferrable"), transaction.atomic():
            Link.objects.create(token="b")
        with transaction.atomic():
            Link.objects.create(token="b")
        assert {row.token for row in Link.objects.all()} == {"a", "b"}
    finally:
        raw("ALTER TABLE shop_link DROP CONSTRAINT late")


@pytest.mark.databases("mariadb", "mysql")
def test_a_user_who_may_not_update_inserts_all_the_same(backend: Backend) -> None:
    connection = connections["default"]
    settings = connection.settings_dict
    user, name = settings["USER"], settings["NAME"]
    raw(f"CREATE USER '{name}'@'%'")
    raw(f"GRANT SELECT, INSERT, DELETE ON `{name}`.* TO '{name}'@'%'")
    Link.objects.create(token="a", expires=datetime(2000, 1, 1, tzinfo=timezone.utc))
    connection.close()
    settings["USER"] = name
    try:
        with transaction.atomic():
            Link.objects.bulk_create([Link(token="b"), Link(token="a")])
        with transaction.atomic():
            Link.objects.create(token="c")
        assert {row.token for row in Link.objects.all()} == {"a", "b", "c"}
    finally:
        connection.close()
        settings["USER"] = user
        raw(f"DROP USER '{name}'@'%'")


@pytest.mark.databases("postgres")
def test_a_table_of_another_schema_is_tried_too(
    backend: Backend, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    class Far(TTLModel):
        __ttl__ = 3600
        __ttl_sweep__ = "scan"
        name: Any = models.CharField(max_length=5, primary_key=True)

        class Meta:
            app_label = "shop"
            db_table = 'far"."far'

    raw("CREATE SCHEMA far")
    try:
        with tables_of(Far):
            with transaction.atomic(), django_queries() as recorded:
                Far.objects.create(name="a")
            assert len(recorded) == 1
            raw("UPDATE far.far SET _ts = now() - interval '1 day'")
            with transaction.atomic():
                Far.objects.create(name="a", ttl=7)
            assert [row.ttl for row in Far.all_objects.all()] == [7]
    finally:
        raw("DROP SCHEMA far CASCADE")


@pytest.mark.databases("mariadb", "mysql")
def test_an_engine_that_undoes_nothing_is_not_tried(backend: Backend) -> None:
    Link.objects.create(token="a", expires=datetime(2000, 1, 1, tzinfo=timezone.utc))
    raw("ALTER TABLE shop_link ENGINE = MyISAM")
    try:
        with transaction.atomic():
            Link.objects.bulk_create([Link(token="b"), Link(token="a")])
        assert {row.token for row in Link.objects.all()} == {"a", "b"}
    finally:
        raw("ALTER TABLE shop_link ENGINE = InnoDB")


def test_the_key_that_a_database_numbers_is_read_after_a_try(backend: Backend) -> None:
    with transaction.atomic():
        row = Session.objects.create(key="a")
    assert Session.objects.get(key="a").pk == row.pk
    kill(Session, [row.pk])
    with transaction.atomic():
        again = Session.objects.create(key="a")
    assert Session.objects.get(key="a").pk == again.pk != row.pk


def test_an_event_with_an_expired_key_is_replaced_with_its_subclass(backend: Backend) -> None:
    Concert.objects.create(pk=1, title="old", band="old", code="x")
    kill(Event, [1])
    with transaction.atomic():
        Concert.objects.create(pk=1, title="new", band="new", code="x")
    assert list(Concert.objects.values_list("title", "band")) == [("new", "new")]
    assert raw("SELECT COUNT(*) FROM shop_concert") == [(1,)]


def test_a_composite_key_of_an_expired_row_is_free(
    backend: Backend, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    class Berth(TTLModel):
        __ttl__ = 3600
        __ttl_sweep__ = "scan"
        pk = models.CompositePrimaryKey("ship", "number")
        ship: Any = models.CharField(max_length=5)
        number: Any = models.IntegerField()
        guest: Any = models.CharField(max_length=5)

        class Meta:
            app_label = "shop"

    with tables_of(Berth):
        with transaction.atomic(), django_queries() as recorded:
            Berth.objects.create(ship="a", number=1, guest="old")
        assert len(recorded) == 1
        Berth.objects.filter(ship="a").update(ttl=1)
        with TTLClock() as clock, transaction.atomic():
            clock.advance(60)
            assert not Berth.objects.exists()
            Berth.objects.create(ship="a", number=1, guest="new")
            with pytest.raises(IntegrityError), transaction.atomic():
                Berth.objects.create(ship="a", number=1, guest="late")
            assert [row.guest for row in Berth.all_objects.all()] == ["new"]


def test_a_transaction_that_is_broken_says_so(backend: Backend) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            Session.objects.create(pk=1, key="a")
