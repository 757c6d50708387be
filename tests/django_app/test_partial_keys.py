"""Rows that come into a unique constraint without a change of the fields that it names."""

# ruff: noqa: DJ001
from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from django.db import IntegrityError, connection, models, transaction
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Lower, NullIf

from tests.django_app.data import kill, raw, tables_of
from ttl_odm.django import TTLModel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from django.test.utils import CaptureQueriesContext

    from tests.backends import Backend

GONE = datetime(2024, 1, 1, tzinfo=timezone.utc)


class InShop:
    app_label = "shop"


SHOWN = Case(When(deleted_at__isnull=True, then=F("email")))


def declared(kind: str) -> Any:
    """A model with soft deletes: no two rows that aren't deleted have the same address."""
    unique: dict[str, Any] = {
        "condition": {"fields": ["email"], "condition": Q(deleted_at__isnull=True)},
        "condition on two": {
            "fields": ["tenant", "email"],
            "condition": Q(deleted_at=None) & Q(tenant__gt=0),
        },
        "expression": {"expressions": [Lower(SHOWN)]},
        "expression with a condition": {
            "expressions": [Lower("email")],
            "condition": Q(deleted_at__isnull=True),
        },
        "generated": {"fields": ["tenant", "shown"]},
    }
    options = dict(unique[kind])
    expressions = options.pop("expressions", ())

    class Member(TTLModel):
        __ttl__ = 3600
        id = models.BigIntegerField(primary_key=True)
        tenant = models.IntegerField(default=1)
        email = models.CharField(max_length=40, null=True)
        deleted_at = models.DateTimeField(null=True)
        if kind == "generated":
            shown = models.GeneratedField(
                expression=SHOWN,
                output_field=models.CharField(max_length=40),
                db_persist=True,
            )

        class Meta(InShop):
            db_table = "members"
            constraints = [models.UniqueConstraint(*expressions, name="member_email", **options)]

    return Member


KINDS = [
    "condition",
    "condition on two",
    "expression",
    "expression with a condition",
    "generated",
]


def has(kind: str) -> bool:
    """Whether a database has such constraints."""
    features = connection.features
    needs = {"condition": features.supports_partial_indexes}
    needs["expression"] = features.supports_expression_indexes
    return all(there for word, there in needs.items() if word in kind)


@pytest.fixture
def members(backend: Backend) -> Callable[[], Iterator[Any]]:
    def each() -> Iterator[Any]:
        for kind in filter(has, KINDS):
            model = declared(kind)
            with tables_of(model):
                fill(model)
                yield model

    return each


def fill(m: Any) -> None:
    """Add two expired rows, one of them deleted, and a deleted one that is live."""
    m.objects.create(pk=1, email="ann")
    m.objects.create(pk=2, email="bob", deleted_at=GONE)
    m.objects.create(pk=3, email="ann", deleted_at=GONE)
    m.objects.create(pk=4, email="eve")
    kill(m, [1, 2])


def keys(m: Any) -> list[int]:
    return [pk for (pk,) in raw(f"SELECT id FROM {m._meta.db_table} ORDER BY id")]  # noqa: S608


def by_update(m: Any) -> None:
    assert m.objects.filter(pk=3).update(deleted_at=None) == 1


def by_update_of_sql(m: Any) -> None:
    shown = NullIf(F("deleted_at"), Value(GONE, models.DateTimeField()))
    assert m.objects.filter(email="ann").update(deleted_at=shown) == 1


def by_save(m: Any) -> None:
    row = m.objects.get(pk=3)
    row.deleted_at = None
    row.save()


def by_save_of_a_field(m: Any) -> None:
    row = m.objects.get(pk=3)
    row.deleted_at = None
    row.save(update_fields=["deleted_at"])


def by_bulk_update(m: Any) -> None:
    rows = list(m.objects.filter(pk__in=[3, 4]))
    for row in rows:
        row.deleted_at = None if row.pk == 3 else GONE
    m.objects.bulk_update(rows, ["deleted_at"])


def by_update_or_create(m: Any) -> None:
    assert not m.objects.update_or_create(pk=3, defaults={"deleted_at": None})[1]


def by_parts(m: Any) -> None:
    m.objects.filter(pk=3).update(email="zoe")
    m.objects.filter(pk=3).update(deleted_at=None)
    m.objects.filter(pk=3).update(email="ann", tenant=F("tenant") + 0)


WRITES = [
    *(by_update, by_update_of_sql, by_save, by_save_of_a_field, by_bulk_update),
    *(by_update_or_create, by_parts),
]


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_a_row_that_is_shown_again_takes_the_value_of_an_expired_row(
    members: Callable[[], Iterator[Any]], write: Callable[[Any], None], *, in_transaction: bool
) -> None:
    for model in members():
        with transaction.atomic() if in_transaction else nullcontext():
            write(model)
        assert keys(model) == [2, 3, 4], model._meta.constraints


def test_a_live_row_keeps_its_value(members: Callable[[], Iterator[Any]]) -> None:
    for model in members():
        model.objects.create(pk=5, email="eve", deleted_at=GONE)
        with pytest.raises(IntegrityError), transaction.atomic():
            model.objects.filter(pk=5).update(deleted_at=None)
        assert keys(model) == [1, 2, 3, 4, 5]


def test_an_insert_takes_the_value_among_the_rows_of_the_condition(
    members: Callable[[], Iterator[Any]],
) -> None:
    for model in members():
        model.objects.create(pk=6, email="bob")
        model.objects.create(pk=7, email="ann")
        assert set(keys(model)) >= {3, 4, 6, 7}
        assert 1 not in keys(model)


def test_a_part_of_a_key_takes_away_no_more_than_the_rest_of_it(backend: Backend) -> None:
    class Page(TTLModel):
        __ttl__ = 3600
        id = models.BigIntegerField(primary_key=True)
        site = models.IntegerField()
        slug = models.CharField(max_length=20)

        class Meta(InShop):
            db_table = "pages"
            constraints = [models.UniqueConstraint(fields=["site", "slug"], name="page_slug")]

    with tables_of(Page):
        for pk, site, slug in ((1, 1, "a"), (2, 1, "b"), (3, 2, "a")):
            Page.objects.create(pk=pk, site=site, slug=slug)
        kill(Page, [1, 2])
        Page.objects.filter(pk=3).update(site=1)
        assert keys(Page) == [2, 3]


@pytest.mark.parametrize(
    "key",
    [
        {"constraints": [models.UniqueConstraint(fields=["shop_id", "name"], name="shelf_name")]},
        {"unique_together": [("shop_id", "name")]},
    ],
    ids=" ".join,
)
def test_a_key_may_name_a_foreign_key_by_the_attribute_of_its_field(
    backend: Backend, key: dict[str, Any]
) -> None:
    class Shop(TTLModel):
        __ttl__ = 3600
        id = models.BigIntegerField(primary_key=True)

        class Meta(InShop):
            db_table = "shops"

    class Shelf(TTLModel):
        __ttl__ = 3600
        id = models.BigIntegerField(primary_key=True)
        shop = models.ForeignKey(Shop, models.CASCADE)
        name = models.CharField(max_length=20)
        Meta = type("Meta", (InShop,), {"db_table": "shelves", **key})

    with tables_of(Shop, Shelf):
        Shop.objects.create(pk=1)
        Shelf.objects.create(pk=1, shop_id=1, name="a")
        kill(Shelf, [1])
        Shelf.objects.create(pk=2, shop_id=1, name="a")
        assert keys(Shelf) == [2]


@pytest.mark.databases("postgres")
def test_a_row_that_leaves_the_constraint_costs_no_statement_more(
    backend: Backend, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    model = declared("condition")
    with tables_of(model):
        fill(model)
        with transaction.atomic(), django_queries() as recorded:
            model.objects.filter(pk=4).update(deleted_at=GONE)
        assert len(recorded) == 1


@pytest.mark.databases("postgres")
def test_so_it_is_if_the_condition_names_the_attribute_of_a_foreign_key(
    backend: Backend, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    class Badge(TTLModel):
        __ttl__ = 3600
        id = models.BigIntegerField(primary_key=True)
        number = models.IntegerField()
        holder = models.ForeignKey("self", models.SET_NULL, null=True)

        class Meta(InShop):
            db_table = "badges"
            constraints = [
                models.UniqueConstraint(
                    fields=["number"], condition=Q(holder_id__isnull=True), name="free_badge"
                )
            ]

    with tables_of(Badge):
        Badge.objects.create(pk=1, number=1)
        Badge.objects.create(pk=2, number=2)
        with transaction.atomic(), django_queries() as recorded:
            Badge.objects.filter(pk=2).update(holder_id=1)
        assert len(recorded) == 1
