"""`empty` on Django's databases: expired rows go, too."""

# ruff: noqa: DJ008 - these models are never shown

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.db import models, transaction
from django.test.utils import isolate_apps

from tests.django_app.data import raw
from tests.django_app.shop.models import Concert, Event, Line, Node, Note, Order, Session, User
from ttl_odm import TTLError
from ttl_odm.testing import async_empty, empty
from ttl_odm.testing.cleanup import on_django

if TYPE_CHECKING:
    from tests.backends import Backend
    from ttl_odm.testing import TTLClock


def stored(table: str) -> int:
    return int(raw(f"SELECT COUNT(*) FROM {table}")[0][0])  # noqa: S608


def test_emptying_models_leaves_no_expired_row_behind(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    User.objects.create(pk=1, name="ann")
    session = Session.objects.create(pk=1, key="a", user_id=1)
    Note.objects.create(pk=1, text="a", session=session)
    order = Order.objects.create(pk=1)
    Line.objects.create(pk=1, order=order)
    node = Node.objects.create(pk=1, name="a")
    Node.objects.create(pk=2, name="b", parent=node)
    Concert.objects.create(pk=1, title="a", band="a")
    ttl_clock.advance(3600)
    Session.objects.all().delete()
    assert stored("shop_session") == 1  # what this function is for

    empty(Order, Session, Note, Line, Node, Concert)
    tables = [model._meta.db_table for model in (Order, Session, Note, Line, Node, Concert, Event)]
    assert [stored(table) for table in tables] == [0] * 7
    assert stored("shop_user") == 1


def test_it_can_be_rolled_back_like_everything_else(backend: Backend, ttl_clock: TTLClock) -> None:
    Session.objects.create(pk=1, key="a")
    ttl_clock.advance(3600)
    with transaction.atomic():
        empty(Session)
        assert stored("shop_session") == 0
        transaction.set_rollback(True)
    assert stored("shop_session") == 1


@isolate_apps("tests.django_app.shop")
def test_models_come_before_those_they_refer_to_and_with_their_own_tables() -> None:
    class Tag(models.Model):
        class Meta:
            app_label = "shop"

    class Place(models.Model):
        tags = models.ManyToManyField(Tag)

        class Meta:
            app_label = "shop"

    class Cafe(Place):
        class Meta:
            app_label = "shop"

    class Visit(models.Model):
        cafe = models.ForeignKey(Cafe, models.CASCADE)

        class Meta:
            app_label = "shop"

    tied = Place.tags.through
    assert {*on_django._relatives(Tag)} == {Tag, tied}
    assert {*on_django._relatives(Cafe)} == {Cafe, Place, tied}
    order = on_django._in_order([Tag, Place, Cafe, Visit, tied])
    assert order.index(Visit) < order.index(Cafe) < order.index(Place)
    assert order.index(tied) < min(order.index(Place), order.index(Tag))


async def test_a_wrong_call_says_what_to_write() -> None:
    with pytest.raises(TTLError, match="sync_to_async"):
        await async_empty(Session)
    with pytest.raises(TTLError, match="for SQLAlchemy's models only"):
        empty(Session, session="no such thing")
