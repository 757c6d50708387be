"""What may follow what, what is refused, and what the checks say."""

# ruff: noqa: DJ008
from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, models

from tests.django_app.data import forget, kill, tables_of
from tests.django_app.family.models import Cart, Item, Memo
from tests.django_app.following import EXPIRED, fill, stored
from tests.django_app.shop.models import Concert, Event, Tag, Upload
from ttl_odm import ExpiredError, Follows, TTLConfigurationError
from ttl_odm.django import TTLModel
from ttl_odm.django.admin import TTLAdminMixin
from ttl_odm.django.checks import check_policies
from ttl_odm.django.policy.bindings import unbind
from ttl_odm.follows.django.follower import all_followers, followers_of, following_of
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend


@contextmanager
def declared(declared: Any, *, base: Any = models.Model, **members: Any) -> Iterator[Any]:
    """A model, which is forgotten at the end."""
    meta = type("Meta", (), {"app_label": "shop"})
    body = {"__module__": __name__, "Meta": meta, "__ttl__": declared, **members}
    try:
        yield type("Odd", (base,), body)
    finally:
        unbind("shop_odd")
        forget("odd")


def to(model: Any, **options: Any) -> Any:
    return models.ForeignKey(model, models.CASCADE, **options)


def number(**options: Any) -> Any:
    return models.BigIntegerField(**options)


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no such field": (Follows("basket"), {"cart": to(Cart)}, "no ForeignKey .* it has 'cart'"),
    "no relation": (Follows("n"), {"n": number()}, r"no ForeignKey or OneToOneField 'n'"),
    "no lifetime": (Follows("tag"), {"tag": to(Tag)}, r"rows of shop.Tag have no lifetime"),
    "no such column": (Follows(Cart, on={"n": "id"}), {}, "names the field 'n'"),
    "no such key": (Follows(Cart, on={"n": "nr"}), {"n": number()}, "names the field 'nr'"),
    "not unique": (Follows(Item, on={"n": "cart"}), {"n": number()}, "neither its primary key nor"),
    "no model": (Follows(int, on={"n": "id"}), {"n": number()}, "int is not a model"),
    "itself": (Follows("up"), {"up": to("self")}, "rows of their own table"),
    "no stamp": (Follows("up", renews=True), {"up": to(Upload)}, "no write renews rows of shop"),
    "an archive": (Follows("cart"), {"cart": to(Cart), "__ttl_archive__": 1}, "Leave __ttl_arch"),
    "a hook": (Follows("cart"), {"cart": to(Cart), "__ttl_on_purged__": print}, "Leave __ttl_on_p"),
    "a purge": (Follows("cart"), {"cart": to(Cart), "__ttl_purge__": "orm"}, "Leave __ttl_purge"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_followed_is_refused(case: str) -> None:
    what, members, message = REFUSED[case]
    with pytest.raises(TTLConfigurationError, match=message):
        find_parent(what, members)


def find_parent(what: Any, members: dict[str, Any]) -> None:
    with declared(what, **members) as model:
        following = following_of(model)
        assert following is not None
        assert following.links.parent is not None


def test_a_follower_has_no_subclasses_with_tables_and_keeps_its_parent() -> None:
    with pytest.raises(TTLConfigurationError, match=r"family.Memo follows its parent"):
        type(
            "Odd",
            (Memo,),
            {"__module__": __name__, "Meta": type("Meta", (), {"app_label": "shop"})},
        )
    forget("odd")
    with pytest.raises(
        TTLConfigurationError, match=r"Item.__ttl__: Follows can't be assigned, changed or removed"
    ):
        Item.__ttl__ = 60


def test_a_subclass_is_followed_at_its_root() -> None:
    with declared(Follows("concert"), concert=to(Concert)) as model:
        following = following_of(model)
        assert following is not None
        assert following.links.parent is Event
        assert following in followers_of(Event)


def test_followers_are_known_at_every_depth() -> None:
    names = {following.model.__name__ for following in all_followers(Cart)}
    assert names == {"Item", "Note", "Memo", "Draft", "Sticker", "Mark", "Ware", "Toy"}
    assert {following.model.__name__ for following in followers_of(Item)} == {"Note"}


def test_a_parent_may_be_named_by_a_unique_field_and_by_several(backend: Backend) -> None:
    class Shelf(TTLModel):
        __ttl__ = 3600
        code = models.CharField(max_length=5, unique=True)
        row, place = models.IntegerField(), models.IntegerField()

        class Meta:
            app_label = "shop"
            constraints = [models.UniqueConstraint(fields=["row", "place"], name="shelf_place")]

    class Book(models.Model):
        __ttl__ = Follows("shelf")
        shelf = models.OneToOneField(Shelf, models.CASCADE, to_field="code")

        class Meta:
            app_label = "shop"

    class Label(models.Model):
        __ttl__ = Follows(Shelf, on={"row": "row", "place": "place"})
        row, place = models.IntegerField(), models.IntegerField()

        class Meta:
            app_label = "shop"

    with tables_of(Shelf, Book, Label):
        live, dead = (Shelf.objects.create(code=c, row=n, place=n) for n, c in enumerate("ab"))
        for n, shelf in enumerate((live, dead)):
            Book.objects.create(shelf=shelf)
            Label.objects.create(row=n, place=n)
        kill(Shelf, [dead.pk], 7200)
        assert [book.shelf_id for book in Book.objects.all()] == ["a"]
        assert [label.row for label in Label.objects.all()] == [0]
        with pytest.raises(ExpiredError, match="Shelf 'b'"):
            Book.objects.update(shelf=dead)
        with pytest.raises(ExpiredError, match=r"Shelf \(1, 1\)"):
            Label.objects.create(row=1, place=1)
        assert Label.objects.update(place=1) == 1
        assert not Label.objects.exists()
        Sweeper(connections["default"], [Shelf], lease=False).run_once().raise_for_failures()
        counts = stored(Shelf, Book, Label)
        assert counts == [1, 1, 0]


def test_checks_say_what_will_get_in_the_way(backend: Backend) -> None:
    class Bill(models.Model):
        item = models.ForeignKey(Item, models.PROTECT)
        cart = models.ForeignKey(Cart, models.DO_NOTHING)

        class Meta:
            app_label = "shop"

    class Slip(models.Model):
        __ttl__ = Follows(Cart, on={"basket": "id"})
        basket = models.TextField()  # which MariaDB and MySQL can't index
        before = models.ForeignKey("self", models.CASCADE)

        class Meta:
            app_label = "shop"

    with tables_of(Bill, Slip):
        found = {(message.id, message.obj): message for message in check_policies()}
        kept = found["ttl_odm.W004", Bill._meta.get_field("item")]
        assert kept.hint is not None
        assert "__ttl__ = Follows('item') on shop.Bill" in kept.hint
        assert ("ttl_odm.W004", Bill._meta.get_field("cart")) in found
        assert "on_delete=DO_NOTHING" in found["ttl_odm.W004", Bill._meta.get_field("cart")].msg
        unindexed = found["ttl_odm.W005", Slip]
        assert "'basket'" in unindexed.msg
        assert unindexed.hint == "Add models.Index(fields=['basket']), or db_index=True."
        assert ("ttl_odm.W006", Slip._meta.get_field("before")) in found
    labels = {getattr(message.obj, "model", message.obj) for message in check_policies()}
    assert labels.isdisjoint({Item, Memo, Cart})


def test_the_admin_shows_the_end_of_the_parent(backend: Backend) -> None:
    fill()
    item = Item.all_objects.get(pk=10 * EXPIRED)
    assert TTLAdminMixin().expires(item) == item.expires_at
