"""Models whose defaults the database stores, only while a test wants them."""

# ruff: noqa: DJ001, DJ008
from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from django.db import models

from tests.django_app.data import tables_of
from ttl_odm import TTL, Stored
from ttl_odm.django import TTLModel
from ttl_odm.stored.django.changes import begin_policies

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR, DAY = 3600, 86_400


def declared() -> SimpleNamespace:
    """Declare them; `tables_of` forgets them."""

    class InShop:
        app_label = "shop"

    class Cart(TTLModel):
        __ttl__: Any = Stored(HOUR)
        id = models.BigIntegerField(primary_key=True)
        views = models.IntegerField(default=0)

        class Meta(InShop):
            db_table = "stored_carts"

    class Basket(Cart):
        note = models.CharField(max_length=20)

        class Meta(InShop):
            db_table = "stored_baskets"

    class Message(TTLModel):
        __ttl__: Any = Stored(HOUR, by="tenant", least=10, most=DAY)
        id = models.BigIntegerField(primary_key=True)
        tenant = models.CharField(max_length=20, null=True)

        class Meta(InShop):
            db_table = "stored_messages"

    class Visit(models.Model):
        """Over columns of its own: numbers by number."""

        __ttl__: Any = TTL(Stored(HOUR, by="site"), last_modified="seen", override="life")
        id = models.BigIntegerField(primary_key=True)
        site = models.IntegerField()
        seen = models.DateTimeField(null=True)
        life = models.BigIntegerField(null=True)

        class Meta(InShop):
            db_table = "stored_visits"

    class Post(TTLModel):
        """That refers to others of its kind; its scopes are called as a policy's are."""

        __ttl__: Any = Stored(HOUR, by="scope")
        name = models.CharField(max_length=20, primary_key=True)
        scope = models.CharField(max_length=20)
        parent = models.ForeignKey("self", models.CASCADE, null=True)

        class Meta(InShop):
            db_table = "stored_posts"

    return SimpleNamespace(Cart=Cart, Basket=Basket, Message=Message, Visit=Visit, Post=Post)


@contextmanager
def stored_models() -> Iterator[SimpleNamespace]:
    """Have them, their tables, and the rows that they begin with."""
    made = declared()
    with tables_of(*vars(made).values()):
        begin_policies()
        yield made
