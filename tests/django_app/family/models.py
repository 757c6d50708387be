"""Carts with items that follow them, and notes that follow the items; threads that are renewed.

Chests refer to one of the things that follow them.
"""

# ruff: noqa: DJ008
from __future__ import annotations

from django.db import models

from ttl_odm import Follows
from ttl_odm.django import TTLModel

HOUR = 3600


class Cart(TTLModel):
    __ttl__ = HOUR
    id = models.BigIntegerField(primary_key=True)


class Item(TTLModel):
    __ttl__ = Follows("cart")
    id = models.BigIntegerField(primary_key=True)
    cart = models.ForeignKey(Cart, models.CASCADE)
    name = models.CharField(max_length=20, default="tea")


class Note(models.Model):
    __ttl__ = Follows("item_id")
    id = models.BigIntegerField(primary_key=True)
    item = models.ForeignKey(Item, models.DO_NOTHING)
    text = models.CharField(max_length=20, default="hot")


class Memo(models.Model):
    __ttl__ = Follows(Cart, on={"basket": "id"})
    id = models.BigIntegerField(primary_key=True)
    basket = models.BigIntegerField(null=True, db_index=True)


class Draft(models.Model):
    __ttl__ = Follows(Cart, on={"basket": "id"}, orphan="live")
    id = models.BigIntegerField(primary_key=True)
    basket = models.BigIntegerField(null=True, db_index=True)


class Basket(TTLModel):
    """Under load, with what follows it; crates are the same without a policy."""

    __ttl__ = HOUR
    id = models.BigIntegerField(primary_key=True)
    writes = models.IntegerField(default=0)


class Fruit(models.Model):
    __ttl__ = Follows("basket")
    id = models.BigIntegerField(primary_key=True)
    basket = models.ForeignKey(Basket, models.CASCADE)
    writes = models.IntegerField(default=0)


class Crate(models.Model):
    id = models.BigIntegerField(primary_key=True)
    writes = models.IntegerField(default=0)


class Bottle(models.Model):
    id = models.BigIntegerField(primary_key=True)
    basket = models.ForeignKey(Crate, models.CASCADE)
    writes = models.IntegerField(default=0)


class Thread(TTLModel):
    __ttl__ = HOUR
    id = models.BigIntegerField(primary_key=True)


class Message(TTLModel):
    __ttl__ = Follows("thread", renews=True)
    id = models.BigIntegerField(primary_key=True)
    thread = models.ForeignKey(Thread, models.CASCADE)
    text = models.CharField(max_length=20, default="")


class Reply(models.Model):
    __ttl__ = Follows("message", renews=True, at_most_every=60)
    id = models.BigIntegerField(primary_key=True)
    message = models.ForeignKey(Message, models.CASCADE)


class Owner(models.Model):
    id = models.BigIntegerField(primary_key=True)


class Chest(TTLModel):
    __ttl__ = HOUR
    id = models.BigIntegerField(primary_key=True)
    owner = models.ForeignKey(Owner, models.CASCADE, null=True)
    best = models.ForeignKey("Thing", models.SET_NULL, null=True, related_name="+")


class Thing(models.Model):
    __ttl__ = Follows("chest")
    id = models.BigIntegerField(primary_key=True)
    chest = models.ForeignKey(Chest, models.CASCADE, null=True)


class Label(models.Model):
    __ttl__ = Follows("thing")
    id = models.BigIntegerField(primary_key=True)
    thing = models.ForeignKey(Thing, models.CASCADE, null=True)


class Card(models.Model):
    """Has no lifetime; `spot` is the cart before the one that an item is to have."""

    id = models.BigIntegerField(primary_key=True)
    item = models.ForeignKey(Item, models.DO_NOTHING, null=True, db_constraint=False)
    spot = models.BigIntegerField(default=0)
    code = models.CharField(max_length=10, null=True, unique=True)  # noqa: DJ001


class Sticker(models.Model):
    __ttl__ = Follows("cart")
    id = models.BigIntegerField(primary_key=True)
    cart = models.ForeignKey(Cart, models.DO_NOTHING, null=True)
    label = models.ForeignKey(Card, models.PROTECT)


class Claim(TTLModel):
    """Has a lifetime of its own, and refers by a code."""

    __ttl__ = HOUR
    id = models.BigIntegerField(primary_key=True)
    label = models.ForeignKey(Card, models.DO_NOTHING, to_field="code")


class Mark(models.Model):
    __ttl__ = Follows("sticker")
    id = models.BigIntegerField(primary_key=True)
    sticker = models.ForeignKey(Sticker, models.DO_NOTHING)


class Ware(models.Model):
    """Is in the cart after the one that it names."""

    __ttl__ = Follows(Cart, on={"basket": "id"})
    id = models.BigIntegerField(primary_key=True)
    spot = models.BigIntegerField(default=1)
    basket = models.GeneratedField(
        expression=models.F("spot") + 1,
        output_field=models.BigIntegerField(),
        db_persist=True,
        db_index=True,
    )


class Toy(models.Model):
    """Goes by itself into a cart."""

    __ttl__ = Follows(Cart, on={"basket": "id"})
    id = models.BigIntegerField(primary_key=True)
    basket = models.BigIntegerField(db_default=2, db_index=True)
