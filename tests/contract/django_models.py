"""The containers as Django models, in Django's registry only while these tests run.

A policy is put on models of the global registry only, and there other tests (of commands that
take all models) would meet them.
"""

# ruff: noqa: DJ001, DJ008
from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.contract.tables import declared
from tests.django_app import project

project.set_up()

from django.apps import apps  # noqa: E402 (Django is set up now)
from django.db import models  # noqa: E402

from ttl_odm.django import TTLModel  # noqa: E402
from ttl_odm.django.policy.bindings import unbind  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ttl_odm.sweeper import Purged


@dataclass(frozen=True)
class Place:
    """Where models are declared, and what tells their tables from those of others."""

    app: str
    prefix: str
    policy: Callable[[str], Any]


DECLARED = Place("shop", "contract_", declared)


@dataclass(frozen=True)
class Models:
    """What `installed` has made.

    Attributes:
        place: where that is.
        told: what the hook of `seats` was given.
        containers: the models with a policy of their own.
        tables: all models, each after those that it refers to.
    """

    place: Place
    told: list[Purged]
    containers: dict[str, Any]
    tables: dict[str, Any]


@dataclass(frozen=True)
class Archive:
    """Keeps the keys of what goes."""

    table: str

    def write(self, purged: Any) -> None:
        with purged.transaction.cursor() as cursor:
            for (key,) in purged.keys:
                cursor.execute(f"INSERT INTO {self.table} (id) VALUES (%s)", [key])  # noqa: S608


@contextmanager
def installed(place: Place) -> Iterator[Models]:
    """Make the models, and leave nothing of them."""
    made = _make(place)
    try:
        yield made
    finally:
        for model in made.tables.values():
            unbind(model._meta.db_table)
            del apps.all_models[place.app][model._meta.model_name]
        apps.clear_cache()


def _make(place: Place) -> Models:
    told: list[Purged] = []

    class InShop:
        app_label = place.app

    class Named(models.Model):
        id = models.BigIntegerField(primary_key=True)
        name = models.CharField(max_length=40, unique=True, null=True)
        views = models.IntegerField(default=0)

        class Meta(InShop):
            abstract = True

    class Cart(TTLModel, Named):
        __ttl__: Any = place.policy("carts")

        class Meta(InShop):
            db_table = f"{place.prefix}carts"

    class Permit(Named):
        __ttl__: Any = place.policy("permits")
        issued = models.DateTimeField(null=True)
        lifetime = models.BigIntegerField(null=True)

        class Meta(InShop):
            db_table = f"{place.prefix}permits"

    class Grant(Named):
        __ttl__: Any = place.policy("grants")
        issued = models.DateTimeField(null=True)
        lifetime = models.BigIntegerField(null=True)

        class Meta(InShop):
            db_table = f"{place.prefix}grants"

    class Visit(Named):
        __ttl__: Any = place.policy("visits")
        made = models.DateTimeField(null=True)

        class Meta(InShop):
            db_table = f"{place.prefix}visits"

    class Voucher(Named):
        __ttl__: Any = place.policy("vouchers")
        ends = models.DateTimeField(null=True)

        class Meta(InShop):
            db_table = f"{place.prefix}vouchers"

    class Coupon(Named):
        __ttl__: Any = place.policy("coupons")
        ends = models.DateTimeField(null=True)

        class Meta(InShop):
            db_table = f"{place.prefix}coupons"

    class Ticket(Named):
        __ttl__: Any = place.policy("tickets")
        ends = models.BigIntegerField(null=True)

        class Meta(InShop):
            db_table = f"{place.prefix}tickets"

    class OldSeat(models.Model):
        number = models.BigAutoField(primary_key=True)
        id = models.BigIntegerField()

        class Meta(InShop):
            db_table = f"{place.prefix}old_seats"

    class Spot(TTLModel, Named):
        __ttl__: Any = place.policy("seats")
        __ttl_archive__ = Archive(f"{place.prefix}old_seats")
        __ttl_on_purged__ = told.append

        class Meta(InShop):
            db_table = f"{place.prefix}seats"

    class Price(TTLModel, Named):
        __ttl__: Any = place.policy("prices")
        amount = models.DecimalField(max_digits=10, decimal_places=2, unique=True, null=True)
        code = models.CharField(max_length=20, null=True)
        hidden = models.IntegerField(null=True)
        shown = models.GeneratedField(
            expression=models.Case(models.When(hidden__isnull=True, then=models.F("code"))),
            output_field=models.CharField(max_length=20),
            db_persist=True,
            unique=True,
        )

        class Meta(InShop):
            db_table = f"{place.prefix}prices"

    class Purchase(TTLModel, Named):
        __ttl__: Any = place.policy("orders")

        class Meta(InShop):
            db_table = f"{place.prefix}orders"

    class Gift(Purchase):
        wish = models.CharField(max_length=40, null=True)

        class Meta(InShop):
            db_table = f"{place.prefix}gifts"

    class Position(models.Model):
        id = models.BigIntegerField(primary_key=True)
        cart = models.ForeignKey(Cart, models.PROTECT)

        class Meta(InShop):
            db_table = f"{place.prefix}lines"

    containers = {
        "carts": Cart,
        "permits": Permit,
        "grants": Grant,
        "visits": Visit,
        "vouchers": Voucher,
        "coupons": Coupon,
        "tickets": Ticket,
        "seats": Spot,
        "prices": Price,
        "orders": Purchase,
    }
    return Models(
        place,
        told,
        containers,
        {**containers, "old_seats": OldSeat, "gifts": Gift, "lines": Position},
    )
