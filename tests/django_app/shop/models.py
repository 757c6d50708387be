"""Models of the tests: with a policy, with a policy over columns of their own, and without.

Foreign keys have no constraint in the database, so that the oracle can delete rows for real and
leave those that refer to them; `Order` and `Line` have theirs.
"""

# ruff: noqa: ANN001, ANN003, ANN201, D106, DJ001, DJ008
from __future__ import annotations

from django.db import models
from django.db.models.functions import Lower

from ttl_odm import ExpireAfter, ExpireAt
from ttl_odm.django import InstantField, TTLModel


def to(model, on_delete=models.CASCADE, **options):
    return models.ForeignKey(model, on_delete, db_constraint=False, **options)


class User(models.Model):
    name = models.CharField(max_length=20)


class Tag(models.Model):
    name = models.CharField(max_length=20)


class Session(TTLModel):
    __ttl__ = 3600
    key = models.CharField(max_length=20, unique=True)
    user = to(User, null=True)
    number = models.IntegerField(default=0)
    tags = models.ManyToManyField(Tag, through="Tagging")

    class Meta:
        ordering = ["key"]


class Tagging(models.Model):
    session = to(Session)
    tag = to(Tag)


class Note(models.Model):
    text = models.CharField(max_length=20)
    session = to(Session)
    perhaps = to(Session, null=True, related_name="+")


class Profile(TTLModel):
    __ttl__ = 3600
    user = models.OneToOneField(User, models.CASCADE, db_constraint=False)
    motto = models.CharField(max_length=20)


class Node(TTLModel):
    __ttl__ = 3600
    name = models.CharField(max_length=20)
    parent = to("self", models.SET_NULL, null=True, related_name="children")


class Event(TTLModel):
    __ttl__ = 3600
    title = models.CharField(max_length=20)


class Concert(Event):
    event_ptr = models.OneToOneField(
        Event, models.CASCADE, parent_link=True, primary_key=True, db_constraint=False
    )
    band = models.CharField(max_length=20)
    code = models.CharField(max_length=20, unique=True, null=True)
    user = to(User, null=True)


class Seat(TTLModel):
    __ttl__ = 3600
    row = models.CharField(max_length=5)
    number = models.IntegerField()
    label = models.CharField(max_length=20, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["row", "number"], name="seat_place"),
        ]


class StoredSeat(models.Model):
    """Where a test lets seats go; it declares that itself."""

    id = models.BigIntegerField(primary_key=True)
    row = models.CharField(max_length=5)
    label = models.CharField(max_length=20, default="none", unique=True)
    number = models.BigIntegerField()
    last_modified = InstantField()
    changed = models.DateTimeField(auto_now=True)
    archived_at = models.DateTimeField()
    note = models.CharField(max_length=20, default="from the shop")


class KeptSeat(TTLModel):
    """An archive whose rows live for a day from the moment when it gets them."""

    __ttl__ = 86_400
    id = models.BigIntegerField(primary_key=True)
    label = models.CharField(max_length=20)


class Letter(TTLModel):
    """Its rows may be wide."""

    __ttl__ = 3600
    body = models.TextField()


class StoredLetter(models.Model):
    id = models.BigIntegerField(primary_key=True)
    body = models.TextField()


class Nick(TTLModel):
    __ttl__ = 3600
    name = models.CharField(max_length=20)

    class Meta:
        constraints = [models.UniqueConstraint(Lower("name"), name="nick_lower")]


class Handle(TTLModel):
    """Its keys are the database's, in part: a default, and a generated column."""

    __ttl__ = 3600
    space = models.CharField(max_length=5, db_default="main")
    number = models.IntegerField()
    name = models.CharField(max_length=20)
    lower = models.GeneratedField(
        expression=Lower("name"),
        output_field=models.CharField(max_length=20),
        db_persist=True,
        unique=True,
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["space", "number"], name="handle_place")]


class Link(models.Model):
    __ttl__ = ExpireAt("expires")
    token = models.CharField(max_length=20, primary_key=True)
    expires = models.DateTimeField(null=True)


class StoredLink(models.Model):
    """An archive with a key of its own."""

    token = models.CharField(max_length=20)
    expires = models.DateTimeField(null=True)


class KeyedLink(models.Model):
    """An archive with the key of what it keeps."""

    token = models.CharField(max_length=20, primary_key=True)
    expires = models.DateTimeField(null=True)


class Upload(models.Model):
    __ttl__ = ExpireAfter("created", 3600, unit="s")
    name = models.CharField(max_length=20)
    created = models.BigIntegerField(null=True)


class Order(TTLModel):
    __ttl__ = 3600
    code = models.CharField(max_length=20, unique=True)


class Line(TTLModel):
    __ttl__ = 3600
    order = models.ForeignKey(Order, models.CASCADE)


class Receipt(models.Model):
    order = models.ForeignKey(Order, models.PROTECT)


class Proxied(Session):
    class Meta:
        proxy = True
