"""Deleting a live parent takes the rows that follow it along, as their foreign keys say."""

# ruff: noqa: DJ008
from __future__ import annotations

from contextlib import contextmanager
from itertools import product
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, models
from django.db.models.deletion import ProtectedError
from django.db.models.signals import post_delete, pre_delete

from tests.django_app.data import kill, raw, tables_of
from tests.django_app.family.models import HOUR, Chest, Label, Owner, Thing
from tests.django_app.following import stored as counts
from ttl_odm import Follows
from ttl_odm.django import TTLModel
from ttl_odm.django.policy.predicate import Predicate
from ttl_odm.follows.django.follower import following_of
from ttl_odm.sweeper import Hook, Purged, Sweeper
from ttl_odm.testing import TTLClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.backends import Backend


@contextmanager
def family(
    *,
    link: Any = models.CASCADE,
    null: bool = True,
    below: Any = models.CASCADE,
    of_best: Any = models.SET_NULL,
    orphan: Any = "expired",
) -> Iterator[SimpleNamespace]:
    """The models, with what their foreign keys do, of which the tables know nothing."""
    with pytest.MonkeyPatch.context() as patch:
        for model, name, on_delete in (
            (Thing, "chest", link),
            (Label, "thing", below),
            (Chest, "best", of_best),
        ):
            field: Any = model._meta.get_field(name)
            patch.setattr(field.remote_field, "on_delete", on_delete)
        patch.setattr(Thing._meta.get_field("chest"), "null", null)
        for model in (Thing, Label):
            following: Any = following_of(model)
            declared = Follows(following.declared.parent, orphan=orphan)
            patch.setitem(vars(following), "declared", declared)
        Predicate.of.cache_clear()
        yield SimpleNamespace(owner=Owner, chest=Chest, thing=Thing, label=Label)
    Predicate.of.cache_clear()


REFERRING = {
    "set null": models.SET_NULL,
    "cascade": models.CASCADE,
    "protect": models.PROTECT,
    "nothing": models.DO_NOTHING,
}


def fill(made: Any) -> None:
    """Write two chests of one owner, each with two things of two labels; and an expired third."""
    chests = (1, 2, 3)
    things = [10 * chest + number for chest in chests for number in (0, 1)]
    labels = [10 * thing + number for thing in things for number in (0, 1)]
    made.owner.objects.create(pk=1)
    made.chest.objects.bulk_create([made.chest(pk=key, owner_id=1) for key in chests])
    made.thing.objects.bulk_create([made.thing(pk=key, chest_id=key // 10) for key in things])
    made.label.objects.bulk_create([made.label(pk=key, thing_id=key // 10) for key in labels])
    raw("UPDATE family_chest SET best_id = 10 * id")
    kill(made.chest, [3], 2 * HOUR)


def empty() -> None:
    """Remove all rows for real."""
    raw("UPDATE family_chest SET best_id = NULL")
    for table in ("label", "thing", "chest", "owner"):
        raw(f"DELETE FROM family_{table}")  # noqa: S608


def stored(*tables: str) -> dict[str, list[int]]:
    tables = tables or ("owner", "chest", "thing", "label")
    found = {table: raw(f"SELECT id FROM family_{table} ORDER BY id") for table in tables}  # noqa: S608
    return {table: [pk for (pk,) in rows] for table, rows in found.items()}


@contextmanager
def listening(*classes: Any) -> Iterator[list[tuple[str, int]]]:
    """What signals say of rows of some models, in a list of names and keys."""
    heard: list[tuple[str, int]] = []

    def before(instance: Any, **_: Any) -> None:
        heard.append((f"pre {type(instance).__name__}", instance.pk))

    def after(instance: Any, **_: Any) -> None:
        heard.append((f"post {type(instance).__name__}", instance.pk))

    for model in classes:
        pre_delete.connect(before, sender=model)
        post_delete.connect(after, sender=model)
    try:
        yield heard
    finally:
        for model in classes:
            pre_delete.disconnect(before, sender=model)
            post_delete.disconnect(after, sender=model)


WAYS: dict[str, Callable[[Any], Any]] = {
    "delete": lambda made: made.chest.objects.get(pk=1).delete(),
    "queryset.delete": lambda made: made.chest.objects.filter(pk=1).delete(),
}
EXPIRED = {"thing": [30, 31], "label": [300, 301, 310, 311]}


@pytest.mark.parametrize("null", [True, False])
@pytest.mark.parametrize("of_best", [models.SET_NULL, models.CASCADE])
def test_a_parent_goes_with_its_followers_and_their_followers(
    backend: Backend,
    of_best: Any,
    null: bool,  # noqa: FBT001
) -> None:
    with family(null=null, of_best=of_best) as made:
        for delete in WAYS.values():
            fill(made)
            with listening(made.chest, made.thing, made.label) as heard:
                count, by_model = delete(made)
            assert stored("chest", "thing", "label") == {
                "chest": [2, 3],
                "thing": [20, 21, *EXPIRED["thing"]],
                "label": [200, 201, 210, 211, *EXPIRED["label"]],
            }
            assert by_model == {"family.Chest": 1, "family.Thing": 2, "family.Label": 4}
            assert count == 7
            gone = {"Chest": [1], "Thing": [10, 11], "Label": [100, 101, 110, 111]}
            assert sorted(heard) == sorted(
                (f"{when} {name}", key)
                for when in ("pre", "post")
                for name, keys in gone.items()
                for key in keys
            )
            empty()


@pytest.mark.slow
def test_rows_go_with_all_that_refers_to_them_and_what_follows_that(backend: Backend) -> None:
    with family() as made:
        for classes in ([], [made.label], [made.chest, made.thing]):
            fill(made)
            with listening(*classes):
                count, _ = made.owner.objects.get(pk=1).delete()
            assert stored() == {"owner": [], "chest": [], "thing": [], "label": []}
            assert count == 1 + 2 * 7


def test_followers_of_followers_stay_where_their_foreign_key_says_so(backend: Backend) -> None:
    with family(below=models.SET_NULL, orphan="live") as made:
        fill(made)
        with listening(made.thing):
            assert made.chest.objects.get(pk=1).delete()[0] == 3
        assert stored("chest", "thing") == {"chest": [2, 3], "thing": [20, 21, 30, 31]}
        unlinked = made.label.objects.filter(thing=None).values_list("pk", flat=True)
        assert sorted(unlinked) == [100, 101, 110, 111]


def test_live_followers_protect_their_parent_and_expired_ones_do_not(backend: Backend) -> None:
    with family(link=models.PROTECT) as made:
        fill(made)
        with pytest.raises(ProtectedError):
            made.chest.objects.get(pk=1).delete()
        assert made.chest.objects.get(pk=2)
        kill(made.chest, [1], 2 * HOUR)
        made.chest.objects.create(pk=1)
        assert stored("chest", "thing") == {"chest": [1, 2, 3], "thing": [20, 21, 30, 31]}


def test_a_parent_that_expires_meanwhile_stays_with_its_followers(backend: Backend) -> None:
    def expire(**_: Any) -> None:
        kill(made.chest, [1], 2 * HOUR)

    with family() as made:
        fill(made)
        before = stored()
        pre_delete.connect(expire, sender=made.chest)
        try:
            with listening(made.thing, made.label):
                assert made.chest.objects.get(pk=1).delete() == (0, {})
        finally:
            pre_delete.disconnect(expire, sender=made.chest)
        assert stored() == before
        assert not made.thing.objects.filter(chest_id=1).exists()


def test_a_receiver_does_not_reach_expired_orphans(backend: Backend) -> None:
    def write(**_: Any) -> None:
        written.append(made.thing.objects.filter(chest=None).delete()[0])
        written.append(made.thing.objects.filter(chest=None).update(chest=2))

    written: list[int] = []
    with family() as made:
        fill(made)
        made.thing.objects.create(pk=99)
        post_delete.connect(write, sender=made.chest)
        try:
            with listening(made.thing):
                made.chest.objects.get(pk=1).delete()
        finally:
            post_delete.disconnect(write, sender=made.chest)
        assert written == [0, 0]
        assert stored("thing") == {"thing": [20, 21, 30, 31, 99]}


def test_followers_without_a_foreign_key_go_where_another_takes_both_along(
    backend: Backend,
) -> None:
    class Sender(models.Model):
        class Meta:
            app_label = "shop"

    class Parcel(TTLModel):
        __ttl__ = HOUR
        sender = models.ForeignKey(Sender, models.CASCADE)

        class Meta:
            app_label = "shop"

    class Stamp(models.Model):
        __ttl__ = Follows(Parcel, on={"number": "id"})
        sender = models.ForeignKey(Sender, models.CASCADE)
        number = models.BigIntegerField(db_index=True)

        class Meta:
            app_label = "shop"

    with tables_of(Sender, Parcel, Stamp):
        for classes in ([], [Parcel], [Stamp]):
            sender = Sender.objects.create(pk=1)
            Parcel.objects.create(pk=1, sender=sender)
            Stamp.objects.create(pk=1, sender=sender, number=1)
            with listening(*classes):
                assert sender.delete()[0] == 3
            assert counts(Sender, Parcel, Stamp) == [0, 0, 0]


def test_a_subclass_with_a_table_goes_with_what_follows_its_root(backend: Backend) -> None:
    class Parcel(TTLModel):
        __ttl__ = HOUR

        class Meta:
            app_label = "shop"

    class Express(Parcel):
        class Meta:
            app_label = "shop"

    class Stamp(models.Model):
        __ttl__ = Follows("parcel")
        parcel = models.ForeignKey(Parcel, models.CASCADE, null=True)

        class Meta:
            app_label = "shop"

    with tables_of(Parcel, Express, Stamp):
        Express.objects.create(pk=1)
        Stamp.objects.create(pk=1, parcel_id=1)
        with listening(Stamp) as heard:
            assert Express.objects.get(pk=1).delete()[0] == 3
        assert heard == [("pre Stamp", 1), ("post Stamp", 1)]
        assert counts(Parcel, Express, Stamp) == [0, 0, 0]


RINGS: dict[str, Callable[[Any], Any]] = {
    "a sweep": lambda made: (
        Sweeper(connections["default"], [made.chest], lease=False).run_once().raise_for_failures()
    ),
    "an insert": lambda made: made.chest.objects.create(pk=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("of_best", REFERRING)
def test_an_expired_parent_that_refers_to_its_follower_goes(backend: Backend, of_best: Any) -> None:
    with family(of_best=REFERRING[of_best]) as made:
        for way, classes in product(RINGS, ([], [made.thing], [made.chest])):
            fill(made)
            with listening(*classes) as heard:
                RINGS[way](made)
            assert len(heard) == len(set(heard))
            assert stored("chest", "thing", "label") == {
                "chest": [1, 2, 3] if way == "an insert" else [1, 2],
                "thing": [10, 11, 20, 21],
                "label": [100, 101, 110, 111, 200, 201, 210, 211],
            }
            empty()


@pytest.mark.parametrize("of_best", REFERRING)
def test_the_key_of_a_follower_that_its_expired_parent_refers_to_is_free(
    backend: Backend, of_best: Any
) -> None:
    with family(of_best=REFERRING[of_best]) as made:
        fill(made)
        with listening(made.chest, made.thing) as heard:
            made.thing.objects.create(pk=30, chest_id=1)
        assert made.thing.objects.get(pk=30).chest_id == 1
        assert len(heard) == len(set(heard))
        Sweeper(connections["default"], [made.chest], lease=False).run_once().raise_for_failures()
        assert stored("chest", "thing") == {"chest": [1, 2], "thing": [10, 11, 20, 21, 30]}


def test_a_large_family_whose_parent_refers_to_it_goes_in_batches(backend: Backend) -> None:
    with family() as made:
        fill(made)
        things = [made.thing(pk=1_000 + number, chest_id=1) for number in range(20)]
        made.thing.objects.bulk_create(things)
        made.chest.objects.filter(pk=1).update(best=1_010)
        kill(made.chest, [1], 2 * HOUR)
        sweeper = Sweeper(connections["default"], [made.chest], lease=False, batch_size=4)
        sweeper.run_once().raise_for_failures()
        assert stored("chest", "thing") == {"chest": [2], "thing": [20, 21]}


def test_hooks_get_a_parent_as_it_was(backend: Backend) -> None:
    heard: list[Purged] = []
    with family() as made:
        fill(made)
        hook = Hook(heard.append, rows=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(made.chest, "__ttl_on_purged__", hook, raising=False)
            sweeper = Sweeper(connections["default"], [made.chest], lease=False)
            sweeper.run_once().raise_for_failures()
        assert [row["best_id"] for purged in heard for row in purged.rows or ()] == [30]


@contextmanager
def stalls() -> Iterator[tuple[Any, Any]]:
    """Stalls with a composite primary key, and notices that follow them by its fields."""

    class Stall(TTLModel):
        __ttl__ = HOUR
        pk = models.CompositePrimaryKey("hall", "number")
        hall: Any = models.IntegerField()
        number: Any = models.IntegerField()

        class Meta:
            app_label = "shop"

    class Notice(models.Model):
        __ttl__ = Follows(Stall, on={"hall": "hall", "number": "number"})
        hall: Any = models.IntegerField()
        number: Any = models.IntegerField()
        name: Any = models.CharField(max_length=20, unique=True)
        owner: Any = models.ForeignKey(Owner, models.CASCADE)

        class Meta:
            app_label = "shop"

    with tables_of(Stall, Notice):
        yield Stall, Notice


def test_the_key_of_an_expired_row_that_follows_a_composite_key_is_free(backend: Backend) -> None:
    with stalls() as (stall, notice), TTLClock() as clock:
        owner = Owner.objects.create(pk=1)
        stall.objects.create(hall=1, number=1)
        notice.objects.create(hall=1, number=1, name="a", owner=owner)
        clock.advance(HOUR)
        stall.objects.create(hall=1, number=2)
        fresh = notice.objects.create(hall=1, number=2, name="a", owner=owner)
        assert raw("SELECT id FROM shop_notice") == [(fresh.pk,)]
        sealed = raw("SELECT ttl FROM shop_stall WHERE number = 1")
        assert sealed == [(1,)]


@pytest.mark.slow
def test_many_expired_rows_that_follow_by_two_fields_don_t_keep_owners(backend: Backend) -> None:
    many = 1_100  # SQLite rejects expressions deeper than 1,000
    with stalls() as (stall, notice), TTLClock() as clock:
        Owner.objects.bulk_create([Owner(pk=pk) for pk in range(many)])
        stall.objects.bulk_create([stall(hall=1, number=n) for n in range(many)])
        notice.objects.bulk_create(
            [notice(hall=1, number=n, name=str(n), owner_id=n) for n in range(many)]
        )
        clock.advance(HOUR)
        assert Owner.objects.all().delete()[0] == many
        assert raw("SELECT COUNT(*) FROM shop_notice") == [(0,)]
