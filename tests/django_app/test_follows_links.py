"""The parent that a row gets where the database says which, and rows that followers refer to."""

# ruff: noqa: DJ008
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import IntegrityError, connection, models, transaction
from django.db.models import F, Max, OuterRef, ProtectedError, Subquery, Value
from django.db.models.functions import Concat

from tests.django_app.data import kill, raw, tables_of
from tests.django_app.family.models import (
    HOUR,
    Card,
    Cart,
    Claim,
    Item,
    Mark,
    Memo,
    Sticker,
    Toy,
    Ware,
)
from tests.django_app.following import EXPIRED, LIVE, fill, stored
from ttl_odm.django import ExpiredError, TTLModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.test.utils import CaptureQueriesContext

    from tests.backends import Backend

OTHER = 3
"""Another live cart."""


def carts() -> dict[int, int]:
    return dict(Item.objects.values_list("pk", "cart"))


def test_a_subquery_that_names_an_expired_parent_moves_no_row(backend: Backend) -> None:
    fill()
    Cart.objects.create(pk=OTHER)
    Card.objects.create(pk=1, item_id=10, spot=OTHER - 1)
    Card.objects.create(pk=2, item_id=11, spot=EXPIRED - 1)
    named = Card.objects.filter(item=OuterRef("pk"))
    moved = Subquery(named.annotate(above=F("spot") + 1).values("above"))
    assert Item.objects.update(cart=moved) == 1
    assert carts() == {10: OTHER, 11: LIVE}
    assert Item.objects.filter(card__spot=EXPIRED - 1).update(cart=F("cart") + 1) == 0
    dead = Subquery(named.order_by("-pk").values("pk")[:1])  # of item 11 its label's own key
    assert Item.objects.filter(pk=11).update(cart=dead) == 0
    assert carts() == {10: OTHER, 11: LIVE}


def test_a_subquery_over_parents_reads_live_ones(backend: Backend) -> None:
    fill()
    last = Cart.objects.order_by().values("ttl").annotate(last=Max("pk")).values("last")
    assert Item.objects.update(cart=Subquery(last[:1])) == 2
    every = Cart.all_objects.order_by("-pk").values("pk")[:1]
    assert Item.objects.update(cart=Subquery(every)) == 0
    assert carts() == {10: LIVE, 11: LIVE}


def wares() -> dict[int, int]:
    """Where those are that are stored, seen or not."""
    return dict(raw("SELECT id, spot FROM family_ware"))  # type: ignore[arg-type]


def put_wares() -> None:
    """Ware 1 in the live cart spot the expired one, ware 2 in the one after it."""
    fill()
    Cart.objects.bulk_create([Cart(pk=OTHER), Cart(pk=OTHER + 1)])
    Ware.objects.bulk_create([Ware(pk=1, spot=LIVE - 1), Ware(pk=2, spot=OTHER - 1)])


WAYS: dict[str, Any] = {
    "create": lambda: Ware.objects.create(pk=9),
    "save": lambda: Ware(pk=9, spot=EXPIRED - 1).save(),
    "an expression": lambda: Ware(pk=9, spot=Value(2) - Value(1)).save(),
    "bulk_create": lambda: Ware.objects.bulk_create([Ware(pk=8, spot=0), Ware(pk=9)]),
    "get_or_create": lambda: Ware.objects.get_or_create(pk=9, defaults={"spot": 1}),
    "move by save": lambda: Ware(pk=1, spot=1).save(force_update=True),
    "move by update": lambda: Ware.objects.filter(pk=1).update(spot=1),
    "bulk_update": lambda: Ware.objects.bulk_update(
        [Ware(pk=2, spot=0), Ware(pk=1, spot=1)], ["spot"]
    ),
    "update_or_create": lambda: Ware.objects.update_or_create(pk=1, defaults={"spot": 1}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_link_that_the_database_computes_puts_no_row_under_an_expired_parent(
    backend: Backend, way: str
) -> None:
    put_wares()
    with pytest.raises(ExpiredError, match="can't be put under Cart 2, which has expired"):
        WAYS[way]()
    assert wares() == {1: LIVE - 1, 2: OTHER - 1}


def test_rows_stay_whose_computed_link_would_lead_to_an_expired_parent(backend: Backend) -> None:
    put_wares()
    assert Ware.objects.update(spot=F("spot") + 1) == 1
    assert wares() == {1: LIVE - 1, 2: OTHER}
    assert Ware.objects.update(spot=0) == 2
    Ware.objects.create(pk=3, spot=OTHER)
    assert wares() == {1: 0, 2: 0, 3: OTHER}
    assert Ware.objects.get(pk=3).basket == OTHER + 1


PUT: dict[str, Any] = {
    "a foreign key": lambda: Item.objects.create(pk=9, cart_id=Value(1) + Value(1)),
    "a value": lambda: Memo.objects.create(pk=9, basket=Value(1) + Value(1)),
    "a subquery": lambda: Memo.objects.create(
        pk=9, basket=Subquery(Cart.all_objects.order_by("-pk").values("pk")[:1])
    ),
    "several rows": lambda: Memo.objects.bulk_create(
        [Memo(pk=8, basket=LIVE), Memo(pk=9, basket=Value(EXPIRED))]
    ),
    "the database's default": lambda: Toy.objects.create(pk=9),
    "the database's default for several": lambda: Toy.objects.bulk_create(
        [Toy(pk=8, basket=LIVE), Toy(pk=9)]
    ),
}


@pytest.mark.parametrize("way", PUT)
def test_an_expression_puts_no_row_under_an_expired_parent(backend: Backend, way: str) -> None:
    fill()
    before = stored()
    with pytest.raises(ExpiredError, match="can't be put under Cart 2, which has expired"):
        PUT[way]()
    assert stored() == before
    assert stored(Toy) == [0]
    Memo.objects.create(pk=9, basket=Value(2) - Value(1))
    assert Memo.objects.get(pk=9).basket == LIVE


@pytest.mark.databases("mariadb", "mysql")
def test_a_link_may_be_set_to_what_the_update_has_set_before(backend: Backend) -> None:
    fill()
    memo = Memo.objects.filter(basket=LIVE)
    assert memo.update(id=F("id") + 1, basket=F("id")) == 0  # 2 has expired
    assert memo.update(id=F("id") + 0, basket=F("id")) == 1
    assert list(Memo.objects.values_list("pk", "basket")) == [(1, LIVE)]


def put_stickers() -> None:
    """Cards 1 (on a live sticker), 2 (on an expired one with a mark), 3 (on an orphan)."""
    fill()
    Card.objects.bulk_create([Card(pk=n) for n in (1, 2, 3)])
    stickers = [(1, LIVE), (2, EXPIRED), (3, None)]
    for key, cart in stickers:
        raw(
            "INSERT INTO family_sticker (id, cart_id, label_id) VALUES (%s, %s, %s)",
            [key, cart, key],
        )
    raw("INSERT INTO family_mark (id, sticker_id) VALUES (1, 1), (2, 2)")


DELETES: dict[str, Any] = {
    "an object": lambda key: Card.objects.get(pk=key).delete(),
    "a queryset": lambda key: Card.objects.filter(pk=key).delete(),
}


@pytest.mark.parametrize("way", DELETES)
def test_a_row_that_only_expired_followers_refer_to_can_be_deleted(
    backend: Backend, way: str
) -> None:
    put_stickers()
    with transaction.atomic():
        DELETES[way](2)
        DELETES[way](3)
    assert stored(Card, Sticker, Mark) == [1, 1, 1]
    assert Cart.all_objects.get(pk=EXPIRED).ttl == 1
    with pytest.raises((ProtectedError, IntegrityError)):
        DELETES[way](1)


def test_the_key_of_such_a_row_can_be_changed(backend: Backend) -> None:
    put_stickers()
    with transaction.atomic():
        assert Card.objects.filter(pk=2).update(id=5) == 1
        assert Card.objects.filter(pk=3).update(id=F("id") + 3) == 1
    assert sorted(Card.objects.values_list("pk", flat=True)) == [1, 5, 6]
    assert stored(Sticker, Mark) == [1, 1]
    with pytest.raises(IntegrityError):
        Card.objects.filter(pk=1).update(id=7)
    assert Card.objects.filter(pk=1).update(id=1, spot=4) == 1


def claim_labels() -> None:
    """Cards "old", which only an expired claim refers to, and "other", with a live one."""
    Card.objects.create(pk=1, code="old")
    Card.objects.create(pk=2, code="other")
    Claim.objects.bulk_create([Claim(pk=1, label_id="old"), Claim(pk=2, label_id="other")])
    kill(Claim, [1], 7_200)


def test_expired_rows_give_way_to_another_value_of_what_they_refer_to(
    backend: Backend, django_queries: Callable[[], CaptureQueriesContext]
) -> None:
    claim_labels()
    label = Card.objects.get(pk=1)
    label.code = "new"
    label.save()
    with transaction.atomic(), django_queries() as queries:
        assert Card.objects.filter(code="new").update(code=Concat("code", Value("er"))) == 1
    assert not any("SAVEPOINT" in query["sql"] for query in queries)
    assert stored(Claim) == [1]
    with pytest.raises(IntegrityError):
        Card.objects.filter(pk=2).update(code="third")
    assert Card.objects.filter(pk=2).update(code="other") == 1


def test_rows_that_django_leaves_to_the_database_give_way_to_a_deletion(backend: Backend) -> None:
    class Shelf(models.Model):
        class Meta:
            app_label = "shop"

    class Book(TTLModel):
        __ttl__ = HOUR
        shelf = models.ForeignKey(Shelf, models.DO_NOTHING)

        class Meta:
            app_label = "shop"

    with tables_of(Shelf, Book):
        Shelf.objects.bulk_create([Shelf(pk=key) for key in (1, 2, 3)])
        Book.objects.bulk_create([Book(pk=key, shelf_id=key) for key in (1, 2, 3)])
        kill(Book, [1, 2], 2 * HOUR)
        assert Shelf.objects.filter(pk=1).delete() == (1, {"shop.Shelf": 1})
        assert stored(Shelf, Book) == [2, 2]
        with pytest.raises(IntegrityError), transaction.atomic():
            Shelf.objects.all().delete()
        assert stored(Shelf, Book) == [2, 2]


def test_expired_rows_give_way_to_an_upsert_of_what_they_refer_to(backend: Backend) -> None:
    claim_labels()
    options: dict[str, Any] = {"update_conflicts": True, "update_fields": ["code"]}
    if connection.vendor != "mysql":
        options["unique_fields"] = ["id"]
    Card.objects.bulk_create([Card(pk=1, code="new"), Card(pk=3, code="third")], **options)
    assert sorted(Card.objects.values_list("pk", "code")) == [
        (1, "new"),
        (2, "other"),
        (3, "third"),
    ]
    assert stored(Claim) == [1]
    with pytest.raises(IntegrityError), transaction.atomic():
        Card.objects.bulk_create([Card(pk=2, code="newer")], **options)
    assert Card.objects.get(pk=2).code == "other"


@pytest.mark.databases("mariadb", "mysql")
def test_a_parent_takes_a_key_that_the_database_hands_on(backend: Backend) -> None:
    put_stickers()
    raw("DELETE FROM family_mark")
    raw("CREATE TABLE cart_lines (cart_id bigint, line int, PRIMARY KEY (cart_id, line))")
    try:
        raw(
            "ALTER TABLE cart_lines ADD FOREIGN KEY (cart_id) REFERENCES family_cart (id) "
            "ON UPDATE CASCADE ON DELETE CASCADE"
        )
        Cart.objects.create(pk=3)
        raw("INSERT INTO cart_lines VALUES (2, 1), (3, 1)")
        assert Cart.objects.filter(pk=3).update(id=EXPIRED) == 1
        assert raw("SELECT cart_id, line FROM cart_lines") == [(EXPIRED, 1)]
    finally:
        raw("DROP TABLE cart_lines")
