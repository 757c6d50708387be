"""Statements about thousands of rows stay below the limits of databases."""

# ruff: noqa: DJ008
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, models
from django.db.models.functions import Lower

from tests.django_app.data import raw, tables_of
from tests.django_app.shop.models import Line, Order
from tests.django_app.test_undeleted_rows import triggered
from ttl_odm import Follows
from ttl_odm.django import TTLModel
from ttl_odm.sweeper import Skip, Sweeper
from ttl_odm.testing import TTLClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend

MANY, MOST = 1_200, 999

limited = pytest.mark.databases("sqlite")
"""The only database whose limit Django 5.2 keeps to itself."""


def limit_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Django bind no more than `MOST` values, as to an SQLite that was built that way."""
    features, name = connection.features, "max_query_params"
    monkeypatch.setattr(type(features), name, MOST)
    monkeypatch.delitem(vars(features), name, raising=False)


def check_values(execute: Any, sql: str, params: Any, many: Any, context: Any) -> Any:
    """Run a statement unless it binds more values than the limit."""
    assert params is None or len(params) <= MOST, sql[:200]
    return execute(sql, params, many, context)


@limited
def test_expired_rows_that_refer_to_many_deleted_rows_are_purged(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_values(monkeypatch)
    with TTLClock() as clock, connection.execute_wrapper(check_values):
        Order.objects.bulk_create([Order(pk=pk, code=str(pk)) for pk in range(1, MANY + 1)])
        Line.objects.bulk_create([Line(order_id=pk) for pk in range(1, MANY + 1)])
        clock.advance(1_800)
        assert Order.objects.touch() == MANY
        clock.advance(1_800)
        assert Order.objects.all().delete()[0] == MANY
    assert raw("SELECT COUNT(*) FROM shop_line") == [(0,)]


@pytest.mark.slow
@limited
def test_many_rows_that_refer_to_each_other_are_deleted_with_expired_ones(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Branch(TTLModel):
        __ttl__ = 3600
        number: Any = models.IntegerField(unique=True)
        parent: Any = models.ForeignKey("self", models.CASCADE, null=True)

        class Meta:
            app_label = "shop"

    limit_values(monkeypatch)
    with tables_of(Branch), TTLClock() as clock, connection.execute_wrapper(check_values):
        Branch.objects.bulk_create([Branch(pk=pk, number=pk) for pk in range(1, 3 * MANY)])
        parents = models.F("pk") % MANY + 1
        Branch.objects.filter(pk__gt=MANY).update(parent=parents)
        clock.advance(1_800)
        Branch.objects.filter(pk__lte=2 * MANY).touch()
        clock.advance(1_800)
        assert Branch.objects.all().delete()[0] == 2 * MANY
        assert not Branch.all_objects.exists()


@pytest.mark.slow
@pytest.mark.databases("sqlite", "postgres", "mysql")  # MariaDB has no such keys
def test_many_rows_may_take_many_computed_keys_of_expired_ones(backend: Backend) -> None:
    names = "abcdef"

    class Alias(TTLModel):
        __ttl__ = 3600
        a: Any = models.CharField(max_length=20)
        b: Any = models.CharField(max_length=20)
        c: Any = models.CharField(max_length=20)
        d: Any = models.CharField(max_length=20)
        e: Any = models.CharField(max_length=20)
        f: Any = models.CharField(max_length=20)

        class Meta:
            app_label = "shop"
            constraints = [
                models.UniqueConstraint(Lower(name), name=f"alias_{name}") for name in "abcdef"
            ]

    def rows() -> Iterator[Alias]:
        for number in range(250):
            yield Alias(**{name: f"{name}{number}" for name in names})

    with tables_of(Alias), TTLClock() as clock:
        Alias.objects.bulk_create(rows())
        clock.advance(3_600)
        Alias.objects.bulk_create(rows())
        assert Alias.objects.count() == Alias.all_objects.count() == 250


@limited
def test_any_number_of_followers_may_survive_their_delete(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Twig(models.Model):
        __ttl__ = Follows("order")
        order: Any = models.ForeignKey(Order, models.CASCADE, db_constraint=False)

        class Meta:
            app_label = "shop"

    limit_values(monkeypatch)
    with tables_of(Twig):
        Order.objects.create(pk=1, code="a")
        Twig.objects.bulk_create([Twig(order_id=1) for _ in range(MANY + 1)])
        raw("DELETE FROM shop_order")
        with triggered("shop_twig", "OLD.id > 1"), connection.execute_wrapper(check_values):
            target = Sweeper(connection, Order).run_once().targets[-1]
        assert (target.error, dict(target.skips)) == (None, {Skip.REFUSED: MANY})
        assert target.referring == {"shop_twig": 1}


@limited
def test_any_number_of_followers_may_refer_to_one_of_them(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Twig(models.Model):
        __ttl__ = Follows("order")
        order: Any = models.ForeignKey(Order, models.CASCADE)
        first: Any = models.ForeignKey("self", models.CASCADE, null=True)

        class Meta:
            app_label = "shop"

    limit_values(monkeypatch)
    with tables_of(Twig), TTLClock() as clock:
        Order.objects.create(pk=1, code="a")
        Twig.objects.create(pk=1, order_id=1)
        Twig.objects.bulk_create([Twig(order_id=1, first_id=1) for _ in range(MANY)])
        clock.advance(3_600)
        with connection.execute_wrapper(check_values):
            Sweeper(connection, Order).run_once().raise_for_failures()
        assert raw("SELECT COUNT(*) FROM shop_twig") == [(0,)]
