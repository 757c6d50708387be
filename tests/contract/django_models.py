"""The containers as Django models, in Django's registry only while these tests run.

A policy is put on models of the global registry only, and there other tests (of commands that
take all models) would meet them.
"""

# ruff: noqa: DJ001, DJ008
from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.contract.subject import CONTAINERS
from tests.django_app import project

project.set_up()

from django.apps import apps  # noqa: E402 (Django is set up now)
from django.db import models  # noqa: E402

from ttl_odm.django import TTLModel  # noqa: E402
from ttl_odm.django.policy.binding import unbind  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.sweeper import Purged

APP = "shop"


@dataclass(frozen=True)
class Models:
    """What `installed` has made.

    Attributes:
        told: what the hook of `seats` was given.
        containers: the models with a policy of their own.
        tables: all models, each after those that it refers to.
    """

    told: list[Purged]
    containers: dict[str, Any]
    tables: dict[str, Any]


class Archive:
    """Keeps the keys of what goes."""

    def write(self, purged: Any) -> None:
        with purged.transaction.cursor() as cursor:
            for (key,) in purged.keys:
                cursor.execute("INSERT INTO contract_old_seats (id) VALUES (%s)", [key])


@contextmanager
def installed() -> Iterator[Models]:
    """Make the models, and leave nothing of them."""
    made = _make()
    try:
        yield made
    finally:
        for model in made.tables.values():
            unbind(model._meta.db_table)
            del apps.all_models[APP][model._meta.model_name]
        apps.clear_cache()


def _make() -> Models:
    told: list[Purged] = []

    class InShop:
        app_label = APP

    class Named(models.Model):
        id = models.BigIntegerField(primary_key=True)
        name = models.CharField(max_length=40, unique=True, null=True)
        views = models.IntegerField(default=0)

        class Meta(InShop):
            abstract = True

    class Cart(TTLModel, Named):
        __ttl__: Any = CONTAINERS["carts"].policy

        class Meta(InShop):
            db_table = "contract_carts"

    class Permit(Named):
        __ttl__: Any = CONTAINERS["permits"].policy
        issued = models.DateTimeField(null=True)
        lifetime = models.BigIntegerField(null=True)

        class Meta(InShop):
            db_table = "contract_permits"

    class Grant(Named):
        __ttl__: Any = CONTAINERS["grants"].policy
        issued = models.DateTimeField(null=True)
        lifetime = models.BigIntegerField(null=True)

        class Meta(InShop):
            db_table = "contract_grants"

    class Visit(Named):
        __ttl__: Any = CONTAINERS["visits"].policy
        made = models.DateTimeField(null=True)

        class Meta(InShop):
            db_table = "contract_visits"

    class Voucher(Named):
        __ttl__: Any = CONTAINERS["vouchers"].policy
        ends = models.DateTimeField(null=True)

        class Meta(InShop):
            db_table = "contract_vouchers"

    class Coupon(Named):
        __ttl__: Any = CONTAINERS["coupons"].policy
        ends = models.DateTimeField(null=True)

        class Meta(InShop):
            db_table = "contract_coupons"

    class Ticket(Named):
        __ttl__: Any = CONTAINERS["tickets"].policy
        ends = models.BigIntegerField(null=True)

        class Meta(InShop):
            db_table = "contract_tickets"

    class OldSeat(models.Model):
        id = models.BigIntegerField(primary_key=True)

        class Meta(InShop):
            db_table = "contract_old_seats"

    class Place(TTLModel, Named):
        __ttl__: Any = CONTAINERS["seats"].policy
        __ttl_archive__ = Archive()
        __ttl_on_purged__ = told.append

        class Meta(InShop):
            db_table = "contract_seats"

    class Purchase(TTLModel, Named):
        __ttl__: Any = CONTAINERS["orders"].policy

        class Meta(InShop):
            db_table = "contract_orders"

    class Gift(Purchase):
        wish = models.CharField(max_length=40, null=True)

        class Meta(InShop):
            db_table = "contract_gifts"

    class Position(models.Model):
        id = models.BigIntegerField(primary_key=True)
        cart = models.ForeignKey(Cart, models.PROTECT)

        class Meta(InShop):
            db_table = "contract_lines"

    declared = {
        "carts": Cart,
        "permits": Permit,
        "grants": Grant,
        "visits": Visit,
        "vouchers": Voucher,
        "coupons": Coupon,
        "tickets": Ticket,
        "seats": Place,
        "orders": Purchase,
    }
    return Models(
        told, declared, {**declared, "old_seats": OldSeat, "gifts": Gift, "lines": Position}
    )
