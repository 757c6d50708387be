"""Rows that a cascade would delete although their model has an archive or hooks."""

# ruff: noqa: DJ001, DJ008
from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import django
import pytest
from django.db import IntegrityError, connections, models, transaction
from django.db.models.signals import post_delete

from tests.django_app.data import kill, raw, tables_of
from ttl_odm import Follows, Stored
from ttl_odm.django import Archive, TTLModel, set_policy
from ttl_odm.django.checks import check_policies
from ttl_odm.stored.django.changes import begin_policies
from ttl_odm.sweeper import Hook, HookError, Purged, Skip, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend

DB_CASCADE: Any = getattr(models, "DB_CASCADE", models.CASCADE)
DB_SET_NULL: Any = getattr(models, "DB_SET_NULL", models.SET_NULL)
SET_3 = models.SET(3)
by_database = pytest.mark.skipif(
    django.VERSION < (6, 1), reason="Django 6.1 lets the database delete."
)
modes = pytest.mark.parametrize("mode", ["archive", "hook"])


@contextmanager
def shop(mode: str, heard: list[Purged], on_delete: Any = DB_CASCADE) -> Iterator[Any]:
    """Baskets 1 and 2, and goods 10, 11 and 20 by their baskets; all have expired."""

    class Basket(TTLModel):
        __ttl__ = 3600
        name = models.CharField(max_length=10, unique=True, null=True)

        class Meta:
            app_label = "shop"

    class OldGood(models.Model):
        id = models.BigIntegerField(primary_key=True)

        class Meta:
            app_label = "shop"

    class Good(TTLModel):
        __ttl__ = 3600
        __ttl_archive__ = Archive(OldGood) if mode == "archive" else None
        __ttl_on_purged__ = heard.append if mode == "hook" else None
        basket = models.ForeignKey(Basket, on_delete, null=on_delete is DB_SET_NULL)

        class Meta:
            app_label = "shop"

    with tables_of(Basket, OldGood, Good):
        Basket.objects.bulk_create([Basket(pk=1, name="a"), Basket(pk=2, name="b")])
        Good.objects.bulk_create([Good(pk=n, basket_id=n // 10) for n in (10, 11, 20)])
        kill(Basket, [1, 2])
        kill(Good, [10, 11, 20])
        yield Basket, Good, OldGood


def kept(mode: str, heard: list[Purged]) -> list[int]:
    """The keys of goods that were archived, or reported."""
    if mode == "archive":
        return sorted(key for (key,) in raw("SELECT id FROM shop_oldgood"))
    return sorted(key for purged in heard for (key,) in purged.keys)


def stored(table: str) -> set[int]:
    return {key for (key,) in raw(f"SELECT id FROM shop_{table}")}  # noqa: S608


def live(key: int) -> None:
    raw("UPDATE shop_good SET ttl = -1 WHERE id = %s", [key])


def sweep(*targets: Any, **options: Any) -> Any:
    return Sweeper(connections["default"], list(targets), lease=False, **options).run_once()


@by_database
@modes
def test_a_sweep_of_the_parents_alone_removes_the_rows_first(backend: Backend, mode: str) -> None:
    heard: list[Purged] = []
    with shop(mode, heard) as (basket, _, _):
        report = sweep(basket)
        report.raise_for_failures()
        (target,) = report.targets
        assert (target.deleted, target.referring) == (2, {"shop_good": 3})
        assert kept(mode, heard) == [10, 11, 20]
        assert {purged.reason for purged in heard} <= {"expired"}


@by_database
@modes
def test_a_limit_between_the_tables_loses_no_row(backend: Backend, mode: str) -> None:
    heard: list[Purged] = []
    with shop(mode, heard) as (basket, good, _):
        for _ in range(10):
            sweep(basket, good, max_rows=1, batch_size=1).raise_for_failures()
            assert kept(mode, heard) == sorted({10, 11, 20} - stored("good"))
        assert stored("basket") == stored("good") == set()


@by_database
@pytest.mark.parametrize("both", [True, False])
def test_a_row_that_its_archive_rejects_keeps_its_parent(
    backend: Backend,
    both: bool,  # noqa: FBT001
) -> None:
    with shop("archive", []) as (basket, good, old):
        old.objects.create(pk=11)
        report = sweep(basket, good) if both else sweep(basket)
        (target,) = (one for one in report.targets if one.table == "shop_basket")
        assert isinstance(target.error, HookError)
        assert (target.deleted, dict(target.skips)) == (1, {Skip.HOOK: 1})
        assert stored("basket") == {1}
        assert 11 in stored("good")
        assert set(kept("archive", [])) == {10, 11, 20} - stored("good") | {11}


@by_database
@modes
@pytest.mark.parametrize("column", ["pk", "name"])
def test_a_write_that_takes_the_key_of_a_parent_records_its_rows(
    backend: Backend, mode: str, column: str
) -> None:
    heard: list[Purged] = []
    with shop(mode, heard) as (basket, _, _):
        basket.objects.create(**({"pk": 1} if column == "pk" else {"name": "a"}))
        assert kept(mode, heard) == [10, 11]
        assert stored("good") == {20}


@by_database
@modes
@pytest.mark.parametrize("on_delete", ["DB_CASCADE", "CASCADE"])
@pytest.mark.parametrize("how", ["create", "upsert", "update"])
def test_live_rows_keep_their_parent_from_a_write_that_takes_its_key(
    backend: Backend, mode: str, on_delete: str, how: str
) -> None:
    heard: list[Purged] = []
    with shop(mode, heard, getattr(models, on_delete)) as (basket, good, _):
        live(11)
        basket.objects.create(pk=5)

        def write() -> None:
            if how == "create":
                basket.objects.create(pk=1)
            elif how == "upsert":
                basket.objects.update_or_create(pk=1, defaults={"name": "c"})
            else:
                basket.objects.filter(id=5).update(id=1)

        message = "Rows of shop.Good refer to it, and a cascade would delete them without"
        with pytest.raises(IntegrityError, match=message), transaction.atomic():
            write()
        assert stored("basket") == {1, 2, 5}
        assert stored("good") == {10, 11, 20}
        good.objects.filter(pk=11).delete()
        heard.clear()
        write()
        assert kept(mode, heard) == [10]


@by_database
@modes
@pytest.mark.parametrize("how", ["queryset", "object"])
def test_deleting_a_live_parent_records_its_expired_rows(
    backend: Backend, mode: str, how: str
) -> None:
    heard: list[Purged] = []
    with shop(mode, heard) as (basket, _, _):
        raw("UPDATE shop_basket SET ttl = -1")
        live(11)
        rows = basket.objects.filter(pk=1)
        (rows if how == "queryset" else rows.get()).delete()
        assert kept(mode, heard) == [10]
        assert stored("good") == {20}


@by_database
@modes
def test_live_rows_keep_their_parent_and_the_report_says_why(backend: Backend, mode: str) -> None:
    heard: list[Purged] = []
    with shop(mode, heard) as (basket, good, _):
        live(11)
        for deleted in (1, 0):
            report = sweep(basket, good)
            report.raise_for_failures()
            (target,) = (one for one in report.targets if one.table == "shop_basket")
            assert (target.deleted, dict(target.skips)) == (deleted, {Skip.RESTRICTED: 1})
            assert "Rows of shop.Good refer to it, and a cascade would delete" in target.left[0]
        assert (stored("basket"), stored("good")) == ({1}, {11})
        assert kept(mode, heard) == [10, 20]


@modes
def test_live_rows_keep_their_parent_from_cascades_of_django_too(
    backend: Backend, mode: str
) -> None:
    heard: list[Purged] = []
    with shop(mode, heard, models.CASCADE) as (basket, _, _):
        live(11)
        sweep(basket).raise_for_failures()
        assert stored("basket") == {1}
        assert 11 in stored("good")
        assert kept(mode, heard) == sorted({10, 11, 20} - stored("good"))


@by_database
def test_hooks_of_the_sweeper_are_told_before_and_after_the_commit(backend: Backend) -> None:
    heard: list[Purged] = []
    with shop("", []) as (basket, _, _):
        hooks = {"shop_good": [Hook(heard.append), Hook(heard.append, when="commit")]}
        sweep(basket, on_purged=hooks).raise_for_failures()
        assert [purged.transaction is None for purged in heard] == [False, True]
        assert [sorted(purged.keys) for purged in heard] == [[(10,), (11,), (20,)]] * 2


@by_database
@pytest.mark.parametrize(
    ("on_delete", "stays"),
    [(DB_CASCADE, set()), (DB_SET_NULL, {10, 11, 20})],
    ids=["DB_CASCADE", "DB_SET_NULL"],
)
def test_rows_that_nobody_records_are_left_to_the_database_at_no_cost(
    backend: Backend, django_queries: Any, on_delete: Any, stays: set[int]
) -> None:
    with shop("", [], on_delete) as (basket, _, _):
        live(11)
        with django_queries() as queries:
            sweep(basket).raise_for_failures()
        assert not [one for one in queries if "shop_good" in one["sql"]]
        assert (stored("basket"), stored("good")) == (set(), stays)


@by_database
@pytest.mark.parametrize("how", ["sweep", "write", "queryset", "object"])
def test_a_foreign_key_that_changes_the_default_of_rows_brings_none_back(
    backend: Backend, how: str
) -> None:
    class Tenant(TTLModel):
        __ttl__ = 3600

        class Meta:
            app_label = "shop"

    class Letterbox(TTLModel):
        __ttl__: Any = Stored(-1, by="tenant")
        tenant = models.ForeignKey(Tenant, DB_SET_NULL, null=True)

        class Meta:
            app_label = "shop"

    with tables_of(Tenant, Letterbox):
        begin_policies()
        tenant = Tenant.objects.create(pk=1)
        set_policy(Letterbox, 3600, scope=1, by="ann")
        Letterbox.objects.bulk_create([Letterbox(pk=n, tenant=tenant) for n in (10, 11)])
        kill(Letterbox, [10])
        if how in ("sweep", "write"):
            kill(Tenant, [1])
        if how == "sweep":
            sweep(Tenant).raise_for_failures()
        elif how == "write":
            Tenant.objects.create(pk=1)
        elif how == "queryset":
            Tenant.objects.all().delete()
        else:
            tenant.delete()
        assert raw("SELECT id, tenant_id FROM shop_letterbox") == [(11, None)]


@contextmanager
def chain(*, has_policy: bool, follows: bool = False) -> Iterator[Any]:
    """A basket, a shelf in it, and a good on the shelf, each gone with the one before it."""

    class Basket(TTLModel):
        __ttl__ = 3600

        class Meta:
            app_label = "shop"

    class Shelf(TTLModel if has_policy else models.Model):  # type: ignore[misc]
        if follows:
            __ttl__ = Follows("basket")
        elif has_policy:
            __ttl__ = 3600
        basket = models.ForeignKey(Basket, models.CASCADE if follows else DB_CASCADE)

        class Meta:
            app_label = "shop"

    class OldGood(models.Model):
        id = models.BigIntegerField(primary_key=True)

        class Meta:
            app_label = "shop"

    class Good(TTLModel):
        __ttl__ = 3600
        __ttl_archive__ = Archive(OldGood)
        shelf = models.ForeignKey(Shelf, DB_CASCADE)

        class Meta:
            app_label = "shop"

    with tables_of(Basket, Shelf, OldGood, Good):
        for number in (1, 2):
            Basket.objects.create(pk=number)
            Shelf.objects.create(pk=number, basket_id=number)
            Good.objects.create(pk=10 * number, shelf_id=number)
        kill(Good, [10, 20])
        yield Basket, Shelf, Good


@by_database
@pytest.mark.parametrize("middle", ["no policy", "a policy", "a follower"])
@pytest.mark.parametrize("how", ["sweep", "write", "queryset", "object"])
def test_rows_far_below_are_archived(backend: Backend, middle: str, how: str) -> None:
    with chain(has_policy=middle != "no policy", follows=middle == "a follower") as models_of:
        basket, shelf, _ = models_of
        if how in ("sweep", "write"):
            kill(basket, [1, 2])
            if middle == "a policy":
                kill(shelf, [1, 2])
        if how == "sweep":
            sweep(basket).raise_for_failures()
        elif how == "write":
            for number in (1, 2):
                basket.objects.create(pk=number)
        elif how == "queryset":
            basket.objects.all().delete()
        else:
            for row in basket.objects.all():
                row.delete()
        assert kept("archive", []) == [10, 20]
        assert stored("shelf") == stored("good") == set()


@by_database
@pytest.mark.parametrize("middle", ["no policy", "a policy", "a follower"])
def test_a_live_row_far_below_keeps_what_it_hangs_on(backend: Backend, middle: str) -> None:
    with chain(has_policy=middle != "no policy", follows=middle == "a follower") as models_of:
        basket, _, _ = models_of
        kill(basket, [1, 2])
        live(10)
        sweep(basket).raise_for_failures()
        assert (stored("basket"), stored("good")) == ({1}, {10})
        assert kept("archive", []) == [20]
        with pytest.raises(IntegrityError, match=r"Rows of shop.Good refer to it"):
            basket.objects.create(pk=1)


@by_database
@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("mode", ["archive", "hook", ""])
def test_checks_name_the_key_by_which_the_database_deletes(backend: Backend, mode: str) -> None:
    with shop(mode, []) as (_, good, _):
        messages = [said for said in check_policies() if said.id == "ttl_odm.W007"]
        assert [said.obj for said in messages] == [good._meta.get_field("basket")] * bool(mode)
        for said in messages:
            assert "of shop.Basket by raw SQL or another program deletes rows of" in said.msg
    with shop(mode, [], models.CASCADE):
        assert "ttl_odm.W007" not in {said.id for said in check_policies()}


@pytest.mark.parametrize(
    "on_delete", [models.SET_NULL, models.SET_DEFAULT, SET_3], ids=["NULL", "DEFAULT", "SET"]
)
def test_a_live_row_that_is_unlinked_keeps_its_end(backend: Backend, on_delete: Any) -> None:
    class Shelf(TTLModel):
        __ttl__ = 3600
        name = models.CharField(max_length=10, unique=True)

        class Meta:
            app_label = "shop"

    class Jar(TTLModel):
        __ttl__ = 86_400
        shelf = models.ForeignKey(Shelf, on_delete, null=True, default=None)

        class Meta:
            app_label = "shop"

    with tables_of(Shelf, Jar):
        for pk, name in enumerate("abc", 1):
            Shelf.objects.create(pk=pk, name=name)
            Jar.objects.create(pk=pk, shelf_id=pk)
        kill(Jar, [1, 2, 3], 7200)
        kill(Shelf, [1, 2])
        before = dict(raw("SELECT id, _ts FROM shop_jar"))
        Shelf.objects.create(pk=9, name="a")
        report = Sweeper(connections["default"], [Shelf]).run_once()
        assert report.deleted == 1
        assert {jar.shelf_id for jar in Jar.objects.filter(pk__in=[1, 2])}.isdisjoint([1, 2])
        assert dict(raw("SELECT id, _ts FROM shop_jar")) == before


@contextmanager
def branches(hook: Any = None) -> Iterator[Any]:
    """Branch 2 has expired: 1 is above it, 3 and 4 are below it, and 5 is alone."""

    class Branch(TTLModel):
        __ttl__ = 3600
        __ttl_on_purged__ = hook
        parent = models.ForeignKey("self", models.CASCADE, null=True)

        class Meta:
            app_label = "shop"

    with tables_of(Branch):
        for key, parent in ((1, None), (2, 1), (3, 2), (4, 3), (5, None)):
            Branch.objects.create(pk=key, parent_id=parent)
        kill(Branch, [2])
        yield Branch


@pytest.mark.parametrize(
    ("how", "left"), [("sweep", {1, 5}), ("delete", {5}), ("insert", {1, 2, 5})]
)
def test_live_rows_go_with_an_expired_row_of_their_own_table(
    backend: Backend, how: str, left: set[int]
) -> None:
    told: list[int] = []

    def tell(instance: Any, **_: Any) -> None:
        told.append(instance.pk)

    with branches() as branch:
        post_delete.connect(tell, branch)
        if how == "sweep":
            report = Sweeper(connections["default"], branch).run_once()
            assert (report.deleted, dict(report.targets[0].skips)) == (1, {})
        elif how == "delete":
            branch.objects.get(pk=1).delete()
        else:
            branch.objects.create(pk=2)
        assert set(branch.all_objects.values_list("pk", flat=True)) == left
    assert sorted(told) == ([1, 2, 3, 4] if how == "delete" else [2, 3, 4])


def test_live_rows_that_are_reported_keep_an_expired_row_of_their_own_table(
    backend: Backend,
) -> None:
    heard: list[Purged] = []
    with branches(heard.append) as branch:
        (target,) = Sweeper(connections["default"], branch).run_once().targets
        assert (target.deleted, dict(target.skips)) == (0, {Skip.RESTRICTED: 1})
        with pytest.raises(IntegrityError, match="blocks this write"), transaction.atomic():
            branch.objects.create(pk=2)
        assert branch.all_objects.count() == 5
    assert heard == []
