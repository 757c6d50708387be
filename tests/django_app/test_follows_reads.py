"""Reads of rows that follow a parent: they see what they would if the expired were deleted."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import models
from django.db.models import Count, Exists, OuterRef, Prefetch, Q, Subquery

from tests.django_app.family.models import HOUR, Cart, Draft, Item, Memo, Note
from tests.django_app.following import EXPIRED, LIVE, expire, fill, raw
from ttl_odm import TTLConfigurationError
from ttl_odm.django import include_expired, only_expired

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.backends import Backend


def keys(rows: Any) -> list[Any]:
    return sorted(row.pk for row in rows)


def bury() -> None:
    """Delete the expired for real, and nothing else."""
    raw("DELETE FROM family_note WHERE item_id >= 20")
    raw("DELETE FROM family_item WHERE cart_id = 2")
    raw("DELETE FROM family_memo WHERE basket IS NULL OR basket <> 1")
    raw("DELETE FROM family_draft WHERE basket = 2")
    raw("DELETE FROM family_cart WHERE id = 2")


PATHS: dict[str, Callable[[], Any]] = {
    "all": lambda: keys(Item.objects.all()),
    "count": Note.objects.count,
    "get": lambda: Item.objects.get(pk=20).pk,
    "first": lambda: getattr(Item.objects.filter(pk__gte=20).first(), "pk", None),
    "exists": Item.objects.filter(pk=20).exists,
    "in_bulk": lambda: sorted(Item.objects.in_bulk([10, 20])),
    "aggregate": lambda: Note.objects.aggregate(n=Count("*"), high=models.Max("id")),
    "values": lambda: sorted(Item.objects.values_list("cart", "id")),
    "distinct": lambda: sorted(Item.objects.values_list("cart", flat=True).distinct()),
    "join up": lambda: keys(Note.objects.filter(item__cart__id__gt=0)),
    "join up by a name": lambda: keys(Note.objects.filter(item__name="tea")),
    "join up, or": lambda: keys(Note.objects.filter(Q(item__name="tea") | Q(text="hot"))),
    "join up, not": lambda: keys(Note.objects.exclude(item__name="rum")),
    "join down": lambda: keys(Cart.objects.filter(items_name()).distinct()),
    "join down, not": lambda: keys(Cart.objects.exclude(item__note__text="hot")),
    "join down, none": lambda: keys(Cart.objects.filter(item__isnull=True)),
    "order by a parent": lambda: keys(Note.objects.order_by("item__cart__last_modified")),
    "annotate": lambda: sorted(Cart.objects.annotate(n=Count("item__note")).values_list("n")),
    "annotate up": lambda: sorted(
        Note.objects.values("item__cart").annotate(n=Count("*")).values_list("item__cart", "n")
    ),
    "select_related": lambda: keys(Note.objects.select_related("item__cart")),
    "select_related, counted": lambda: [
        (note.pk, note.item.cart.pk)
        for note in Note.objects.select_related("item__cart").order_by("pk")
    ],
    "prefetch down": lambda: [
        (
            cart.pk,
            keys(cart.item_set.all()),
            [keys(item.note_set.all()) for item in cart.item_set.all()],
        )
        for cart in Cart.objects.prefetch_related(
            Prefetch("item_set", Item.objects.order_by("pk").prefetch_related("note_set"))
        )
    ],
    "prefetch up": lambda: [
        (note.pk, note.item.cart_id)
        for note in Note.objects.prefetch_related("item__cart").order_by("pk")
    ],
    "related manager": lambda: keys(Cart(pk=EXPIRED).item_set.all()),
    "related count": Item(pk=20).note_set.count,
    "subquery": lambda: keys(Cart.objects.filter(pk__in=Memo.objects.values("basket"))),
    "subquery up": lambda: keys(Memo.objects.filter(basket__in=Cart.objects.values("pk"))),
    "exists down": lambda: keys(
        Cart.objects.filter(Exists(Item.objects.filter(cart=OuterRef("pk"))))
    ),
    "not exists": lambda: keys(
        Cart.objects.filter(~Exists(Memo.objects.filter(basket=OuterRef("pk"))))
    ),
    "scalar": lambda: sorted(
        Cart.objects.annotate(
            n=Subquery(Memo.objects.filter(basket=OuterRef("pk")).values("id")[:1])
        ).values_list("n")
    ),
    "union": lambda: sorted(Item.objects.values_list("id").union(Note.objects.values_list("id"))),
    "orphans": lambda: keys(Memo.objects.all()),
    "live orphans": lambda: keys(Draft.objects.all()),
    "live orphans, not": lambda: keys(Draft.objects.exclude(basket=1)),
    "iterator": lambda: keys(Item.objects.iterator(chunk_size=1)),
    "raw keys": lambda: sorted(Item.objects.values_list("cart_id", flat=True)),
    "refresh": lambda: Item(pk=20).refresh_from_db(),
    "locked": lambda: keys(Item.objects.order_by("pk")[:1]),
}


def items_name() -> Q:
    return Q(item__name="tea")


def outcome(path: Callable[[], Any]) -> Any:
    try:
        return path()
    except (models.ObjectDoesNotExist, LookupError) as error:
        return type(error).__name__


def test_no_read_tells_expired_families_from_deleted_ones(backend: Backend) -> None:
    fill()
    before = {name: outcome(path) for name, path in PATHS.items()}
    bury()
    after = {name: outcome(path) for name, path in PATHS.items()}
    assert before == after
    assert before["all"] == [10, 11]
    assert before["join down, none"] == []


def test_all_rows_can_be_read_and_the_expired_alone(backend: Backend) -> None:
    fill()
    assert keys(include_expired(Item.objects.all())) == [10, 11, 20, 21]
    assert keys(Item.all_objects.all()) == [10, 11, 20, 21]
    assert keys(only_expired(Note.objects.all())) == [200, 210]
    assert keys(only_expired(Memo.objects.all())) == [2, 3, 4]
    assert keys(only_expired(Draft.objects.all())) == [2]


def test_a_default_of_the_parent_holds_for_what_follows_at_once(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill()
    monkeypatch.setattr(Cart, "__ttl__", 3 * HOUR)
    assert Note.objects.count() == 4
    monkeypatch.setattr(Cart, "__ttl__", None)
    assert Note.objects.count() == 4
    assert Draft.objects.count() == 4
    Cart.all_objects.filter(pk=LIVE).update(ttl=-1)
    monkeypatch.setattr(Cart, "__ttl__", -1)
    assert Note.objects.count() == 4


def test_the_end_of_a_row_is_that_of_its_parent(backend: Backend) -> None:
    fill()
    item, cart = Item.objects.get(pk=10), Cart.objects.get(pk=LIVE)
    assert item.expires_at == cart.expires_at
    assert not item.is_expired
    assert item.time_left is not None
    assert item.time_left <= timedelta(seconds=HOUR)
    expire(LIVE)
    assert item.is_expired
    assert item.time_left == timedelta(0)
    with pytest.raises(TTLConfigurationError, match=r"Item.touch.*Set the parent's lifetime"):
        item.touch()
    with pytest.raises(TTLConfigurationError, match=r"Item.persist\(\)"):
        item.persist()
    with pytest.raises(TTLConfigurationError, match="isn't known before it is saved"):
        Item(pk=12, cart=cart).expires_at  # noqa: B018


@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_the_end_of_a_row_in_another_database_is_that_of_its_parent_there(
    backend: Backend, other: str
) -> None:
    fill()
    cart = Cart.objects.using(other).create(pk=LIVE, ttl=60)
    item = Item.objects.using(other).create(pk=10, cart=cart)
    assert item.expires_at == cart.expires_at
    assert item.expires_at != Item.objects.get(pk=10).expires_at


def test_a_follower_has_no_columns_of_the_contract() -> None:
    names = {field.name for field in Item._meta.get_fields()}
    assert names == {"id", "cart", "name", "note", "card"}
    assert Item._meta.indexes == []


def test_where_the_parent_is_joined_the_join_says_whether_a_row_is_live(backend: Backend) -> None:
    assert str(Note.objects.all().query).count("EXISTS") == 2
    assert "EXISTS" not in str(Note.objects.filter(item__cart__pk__gt=0, item__cart__ttl=1).query)
    assert "EXISTS" not in str(Cart.objects.filter(item__note__text="hot").query)
    assert "EXISTS" not in str(Note.objects.select_related("item__cart").query)
