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
