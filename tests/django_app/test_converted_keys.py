"""Keys whose values the database stores otherwise than they were sent: rounded, padded, cut."""

# ruff: noqa: DJ008
from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from django.db import IntegrityError, connection, models, transaction
from django.db.models import F
from django.db.models.functions import Abs

from tests.django_app.data import kill, raw, tables_of
from ttl_odm import Follows
from ttl_odm.django import TTLModel
from ttl_odm.django.keys import conversions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.backends import Backend

    Write = Callable[[Any, dict[str, Any]], object]

MOMENT = datetime(2024, 1, 1, 12, 0, 0, 600_001, tzinfo=timezone.utc)


class Letters(models.CharField):
    """Of a fixed length, in a table from before Django."""

    def db_type(self, connection: Any) -> str:
        return "char(10)" if connection.vendor != "sqlite" else super().db_type(connection)


class InShop:
    app_label = "shop"


def declared() -> Any:
    class Tariff(TTLModel):
        __ttl__ = 3600
        id = models.BigIntegerField(primary_key=True)
        amount = models.DecimalField(max_digits=10, decimal_places=2, unique=True, null=True)
        moment = models.DateTimeField(unique=True, null=True)
        weight = models.FloatField(unique=True, null=True)
        letters = Letters(max_length=10, unique=True, null=True)
        number = models.IntegerField(unique=True, null=True)
        tenant = models.IntegerField(default=1)
        price = models.DecimalField(max_digits=10, decimal_places=2, null=True)
        deposit = models.DecimalField(max_digits=10, decimal_places=2, null=True)
        double = models.GeneratedField(
            expression=F("deposit") * 3,
            output_field=models.DecimalField(max_digits=10, decimal_places=1),
            db_persist=True,
        )

        class Meta(InShop):
            db_table = "tariffs"
            constraints = [
                models.UniqueConstraint(fields=["tenant", "price"], name="tariff_price"),
                models.UniqueConstraint(fields=["tenant", "double"], name="tariff_double"),
            ]

    return Tariff


COARSE = {
    "postgresql": "ALTER COLUMN moment TYPE timestamptz(0), ALTER COLUMN weight TYPE real",
    "mysql": "MODIFY moment datetime NULL, MODIFY weight float NULL",
}
"""What an older table may have instead of Django's types."""


@pytest.fixture
def model(backend: Backend) -> Iterator[Any]:
    conversions.forget()
    made = declared()
    with tables_of(made):
        if connection.vendor in COARSE:
            raw(f"ALTER TABLE tariffs {COARSE[connection.vendor]}")
        yield made
    conversions.forget()


VALUES: dict[str, dict[str, Any]] = {
    "a decimal with too many digits": {"amount": Decimal("1.236")},
    "a decimal from a float": {"amount": 1.236},
    "a decimal from a text": {"amount": "1.236"},
    "a fraction of a second": {"moment": MOMENT},
    "a short float": {"weight": 0.1},
    "a text padded with blanks": {"letters": "ab  "},
    "an integer from a decimal": {"number": Decimal("1.6")},
    "a part of a key": {"price": Decimal("1.236")},
    "what a generated column is made of": {"deposit": Decimal("1.236")},
}


def create(m: Any, values: dict[str, Any]) -> None:
    m.objects.create(pk=2, **values)


def save(m: Any, values: dict[str, Any]) -> None:
    m(pk=2, **values).save()


def get_or_create(m: Any, values: dict[str, Any]) -> None:
    assert m.objects.get_or_create(pk=2, defaults=values)[1]


def update_or_create(m: Any, values: dict[str, Any]) -> None:
    assert m.objects.update_or_create(pk=2, defaults=values)[1]


def bulk_create(m: Any, values: dict[str, Any]) -> None:
    m.objects.bulk_create([m(pk=2, **values), m(pk=4)])
    m.objects.filter(pk=4).delete()


def bulk_create_one(m: Any, values: dict[str, Any]) -> None:
    m.objects.bulk_create([m(pk=2, **values)])


def bulk_create_ignoring_conflicts(m: Any, values: dict[str, Any]) -> None:
    m.objects.bulk_create([m(pk=2, **values)], ignore_conflicts=True)


def update(m: Any, values: dict[str, Any]) -> None:
    m.objects.create(pk=2)
    assert m.objects.filter(pk=2).update(**values) == 1


def update_by_sql(m: Any, values: dict[str, Any]) -> None:
    m.objects.create(pk=2)
    ((name, value),) = values.items()
    if isinstance(value, (Decimal, float)) and name != "number":
        m.objects.filter(pk=2).update(**{name: F("tenant") * 0 + value})
    else:
        m.objects.filter(pk=2).update(**values)


def bulk_update(m: Any, values: dict[str, Any]) -> None:
    rows = m.objects.bulk_create([m(pk=2), m(pk=4)])
    for name, value in values.items():
        setattr(rows[0], name, value)
    m.objects.bulk_update(rows, list(values))
    m.objects.filter(pk=4).delete()


def save_again(m: Any, values: dict[str, Any]) -> None:
    row = m.objects.create(pk=2)
    for name, value in values.items():
        setattr(row, name, value)
    row.save(update_fields=list(values))


WRITES: list[Write] = [
    *(create, save, get_or_create, update_or_create, bulk_create, bulk_create_one),
    *(bulk_create_ignoring_conflicts, update, update_by_sql, bulk_update, save_again),
]


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_a_value_is_free_as_it_was_stored(
    model: Any, write: Write, *, in_transaction: bool
) -> None:
    for kind, values in VALUES.items():
        model.objects.create(pk=1, **values)
        model.objects.create(pk=3)
        kill(model, [1])
        with transaction.atomic() if in_transaction else nullcontext():
            write(model, values)
        assert set(model.all_objects.values_list("pk", flat=True)) == {2, 3}, kind
        with pytest.raises(IntegrityError), transaction.atomic():
            model.objects.create(pk=5, **values)
        raw("DELETE FROM tariffs")


def test_the_database_is_asked_for_types_once_and_only_where_it_matters(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Fee(TTLModel):
        __ttl__ = 3600
        id = models.BigIntegerField(primary_key=True)
        amount = models.DecimalField(max_digits=10, decimal_places=2, unique=True)

        class Meta(InShop):
            db_table = "fees"

    asked: list[str] = []
    read = conversions.read
    monkeypatch.setattr(conversions, "read", lambda *call: asked.append(call[1]) or read(*call))
    conversions.forget()
    with tables_of(Fee):
        for amounts, most in ((("1.23", "1.24"), 0), (("1.236", "1.246"), 1)):
            for amount in map(Decimal, amounts):
                Fee.objects.create(pk=1, amount=amount)
                kill(Fee, [1])
                Fee.objects.create(pk=2, amount=amount)
                assert raw("SELECT id FROM fees") == [(2,)]
                raw("DELETE FROM fees")
            assert len(asked) == (0 if connection.vendor == "sqlite" else most)


def test_an_expression_is_made_of_stored_values(backend: Backend) -> None:
    if not connection.features.supports_expression_indexes:
        return

    class Charge(TTLModel):
        __ttl__ = 3600
        id = models.BigIntegerField(primary_key=True)
        amount = models.DecimalField(max_digits=10, decimal_places=2)

        class Meta(InShop):
            db_table = "charges"
            constraints = [models.UniqueConstraint(Abs("amount"), name="charge_amount")]

    with tables_of(Charge):
        Charge.objects.create(pk=1, amount=Decimal("1.236"))
        kill(Charge, [1])
        Charge.objects.create(pk=2, amount=Decimal("-1.236"))
        kill(Charge, [2])
        Charge.objects.create(pk=3, amount=2)
        Charge.objects.filter(pk=3).update(amount=Decimal("1.236"))
        assert list(Charge.all_objects.values_list("pk", flat=True)) == [3]


def test_keys_of_followers(backend: Backend) -> None:
    class Basket(TTLModel):
        __ttl__ = 3600
        id = models.BigIntegerField(primary_key=True)

        class Meta(InShop):
            db_table = "baskets"

    class Part(models.Model):
        __ttl__ = Follows("basket")
        id = models.BigIntegerField(primary_key=True)
        basket = models.ForeignKey(Basket, models.CASCADE)
        amount = models.DecimalField(max_digits=10, decimal_places=2, unique=True, null=True)

        class Meta(InShop):
            db_table = "parts"

    with tables_of(Basket, Part):
        Basket.objects.create(pk=1)
        Basket.objects.create(pk=2)
        Part.objects.create(pk=1, basket_id=1, amount=Decimal("1.236"))
        Part.objects.create(pk=2, basket_id=1, amount=Decimal("2.236"))
        kill(Basket, [1])
        Part.objects.create(pk=3, basket_id=2, amount=Decimal("1.236"))
        assert Part.objects.filter(pk=3).update(amount=Decimal("2.236")) == 1
        assert raw("SELECT id FROM parts") == [(3,)]
