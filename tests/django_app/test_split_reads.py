"""A router sends reads to a replica and writes to the primary, as Django's documentation has it.

The alias of the replica leads to the same database, by connections that take no writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections
from django.db.backends.signals import connection_created
from django.test import override_settings

from tests.backends import READ_ONLY
from tests.django_app import project
from tests.django_app.data import kill
from tests.django_app.family.models import Cart, Item
from tests.django_app.shop.models import Session
from ttl_odm import ExpiredError
from ttl_odm.django import include_expired

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend

PRIMARY, REPLICA = "default", "other"
HOUR = 3600

pytestmark = pytest.mark.every_server


class Split:
    """The router."""

    def db_for_read(self, _model: Any, **_hints: object) -> str:
        return REPLICA

    def db_for_write(self, _model: Any, **_hints: object) -> str:
        return PRIMARY

    def allow_relation(self, _one: Any, _other: Any, **_hints: object) -> bool:
        return True


class Apart:
    """One for two databases with different rows, of which the application writes the first one."""

    def db_for_write(self, _model: Any, **_hints: object) -> str:
        return PRIMARY


def take_no_writes(connection: Any, **_: object) -> None:
    if connection.alias == REPLICA:
        read_only = {"sqlite": "PRAGMA query_only = ON", **READ_ONLY}
        with connection.cursor() as cursor:
            cursor.execute(read_only[connection.vendor])


@pytest.fixture
def replica(backend: Backend) -> Iterator[None]:
    before = connections.settings[REPLICA]
    project.point_at(REPLICA, project.database_settings(backend))
    connection_created.connect(take_no_writes)
    with override_settings(DATABASE_ROUTERS=[f"{__name__}.{Split.__name__}"]):
        yield
    connection_created.disconnect(take_no_writes)
    connections[REPLICA].close()
    project.point_at(REPLICA, before)


@pytest.fixture
def row(replica: None) -> Session:
    """One that was read from the replica."""
    Session.objects.create(key="a")
    read = Session.objects.get(key="a")
    assert read._state.db == REPLICA
    return read


def test_a_row_of_the_replica_is_renewed_on_the_primary(row: Session) -> None:
    kill(Session, [row.pk], 100)
    before = Session.objects.get().last_modified
    assert row.touch(at_most_every=10)
    assert not row.touch(at_most_every=HOUR)
    row.number = 7
    row.save()
    assert Session.objects.get().number == 7
    assert Session.objects.get().last_modified != before
    assert Session.objects.filter(pk=row.pk).touch() == 1


def test_saving_it_does_not_revive_it(row: Session) -> None:
    kill(Session, [row.pk])
    with pytest.raises(ExpiredError):
        row.save()
    with pytest.raises(ExpiredError):
        row.touch(at_most_every=1)
    assert not Session.objects.exists()
    assert include_expired(Session.objects).count() == 1


def test_what_looks_before_it_writes_looks_at_the_primary(row: Session) -> None:
    assert Session.objects.get_or_create(key="a")[1] is False
    kill(Session, [row.pk])
    new, is_new = Session.objects.get_or_create(key="a")
    assert (is_new, new._state.db) == (True, PRIMARY)
    Session.objects.update_or_create(key="a", defaults={"number": 8})
    Session.objects.bulk_create([Session(key="b"), Session(key="c")])
    assert Session.objects.filter(key="b").update(number=9) == 1
    assert Session.objects.filter(key="c").delete()[0] == 1
    assert [*Session.objects.values_list("key", "number")] == [("a", 8), ("b", 9)]


def test_rows_that_follow_one_are_written_by_what_the_primary_has(replica: None) -> None:
    Cart.objects.create(pk=1)
    cart = Cart.objects.get()
    Item.objects.create(pk=1, cart=cart, name="one")
    assert Item.objects.get().cart._state.db == REPLICA
    item = Item.objects.get()
    item.name = "two"
    item.save()
    kill(Cart, [cart.pk])
    item.name = "three"
    with pytest.raises(ExpiredError):
        item.save()
    assert not Item.objects.exists()


@pytest.mark.slow
def test_a_row_of_another_database_is_copied(backend: Backend, other: str) -> None:
    with override_settings(DATABASE_ROUTERS=[f"{__name__}.{Apart.__name__}"]):
        Session(key="a").save(using=other)
        copied = Session.objects.using(other).get()
        copied.save(using=PRIMARY)
        assert [*Session.objects.using(PRIMARY).values_list("key", flat=True)] == ["a"]
