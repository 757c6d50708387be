"""Expired rows that refer to themselves, or to one another in a ring."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import django
import pytest
from django.db import connections, models, transaction

from tests.django_app.data import kill, raw, tables_of
from ttl_odm.django import TTLModel
from ttl_odm.sweeper import Hook, Purged, Skip, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend

    Rows = dict[int, int | None]


def ring(size: int) -> Rows:
    return {number: number % size + 1 for number in range(1, size + 1)}


SHAPES: dict[str, tuple[Rows, set[int], set[int]]] = {
    "a row and itself": ({1: 1, 2: 2, 3: None}, set(), set()),
    "two": (ring(2), set(), set()),
    "more than a batch": (ring(11), set(), set()),
    "a tail and a head": ({**ring(3), 4: 1, 5: 4, 3: 6, 6: None, 7: 7, 8: 7}, set(), set()),
    "a long chain": ({number: number - 1 or None for number in range(1, 300)}, set(), set()),
    "a live member": (ring(3), {2}, {1, 2, 3}),
    "a live row behind": ({**ring(3), 4: 2, 5: 5}, {4}, {1, 2, 3, 4}),
}
DELETIONS = {
    "nothing": models.DO_NOTHING,
    "protect": models.PROTECT,
    "cascade": models.CASCADE,
    "set null": models.SET_NULL,
}


@contextmanager
def posts(on_delete: Any, hooks: Any = None) -> Iterator[Any]:
    class RingPost(TTLModel):
        __ttl__ = 3600
        __ttl_on_purged__ = hooks
        answers = models.ForeignKey("self", on_delete, null=True)

        class Meta:
            app_label = "shop"

    with tables_of(RingPost):
        yield RingPost


def write(model: Any, rows: Rows, live: set[int]) -> None:
    model.objects.bulk_create(model(pk=key) for key in rows)
    for key, to in rows.items():
        raw("UPDATE shop_ringpost SET answers_id = %s WHERE id = %s", [to, key])
    kill(model, [key for key in rows if key not in live])


def stored() -> Rows:
    return dict(raw("SELECT id, answers_id FROM shop_ringpost"))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("deletion", DELETIONS)
def test_rows_that_keep_only_one_another_go(backend: Backend, deletion: str, shape: str) -> None:
    rows, live, stays = SHAPES[shape]
    if live and deletion == "set null":
        pytest.skip("Django unties live rows.")
    if deletion == "cascade":  # takes live rows along
        stays = set()
    with posts(DELETIONS[deletion]) as model:
        write(model, rows, live)
        report = Sweeper(connections["default"], [model], lease=False, batch_size=4).run_once()
        report.raise_for_failures()
        assert stored() == {key: rows[key] for key in stays}
        assert report.deleted == len(rows) - len(stays | live)
        assert report.targets[0].skips.get(Skip.RESTRICTED, 0) == len(stays - live)


@pytest.mark.skipif(django.VERSION < (6, 1), reason="Django 6.1 lets the database delete.")
@pytest.mark.parametrize("shape", ["a row and itself", "two", "more than a batch"])
@pytest.mark.parametrize("deletion", ["DB_CASCADE", "DB_SET_NULL"])
def test_rows_go_on_which_others_hang_by_the_database(
    backend: Backend, deletion: str, shape: str
) -> None:
    rows, *_ = SHAPES[shape]
    with posts(getattr(models, deletion)) as model:
        write(model, rows, set())
        Sweeper(connections["default"], [model], lease=False).run_once().raise_for_failures()
        assert stored() == {}
        write(model, rows, set())
        model.objects.create(pk=1)
        assert model.objects.filter(pk=1).exists()


@pytest.mark.parametrize("deletion", DELETIONS)
def test_hooks_get_rows_as_they_were(backend: Backend, deletion: str) -> None:
    heard: list[Purged] = []
    rows, *_ = SHAPES["a tail and a head"]
    with posts(DELETIONS[deletion], Hook(heard.append, rows=True)) as model:
        write(model, rows, set())
        report = Sweeper(connections["default"], [model], lease=False, batch_size=4).run_once()
        report.raise_for_failures()
        assert stored() == {}
        told = [row for purged in heard for row in purged.rows or ()]
        assert len(told) == len(rows)
        assert {row["id"]: row["answers_id"] for row in told} == rows


@pytest.mark.parametrize("deletion", DELETIONS)
@pytest.mark.parametrize("shape", ["a row and itself", "two", "more than a batch"])
def test_keys_of_rows_that_keep_only_one_another_are_free(
    backend: Backend, deletion: str, shape: str
) -> None:
    rows, *_ = SHAPES[shape]
    with posts(DELETIONS[deletion]) as model:
        write(model, rows, set())
        with transaction.atomic():
            model.objects.create(pk=1)
        assert model.objects.filter(pk=1).exists()


def check_on_mariadb(checks: int) -> None:
    if connections["default"].vendor == "mysql":
        raw(f"SET foreign_key_checks = {checks}")


@contextmanager
def books(on_delete: Any) -> Iterator[tuple[Any, Any]]:
    class RingAuthor(TTLModel):
        __ttl__ = 3600
        best = models.ForeignKey("RingBook", on_delete, null=True, related_name="+")

        class Meta:
            app_label = "shop"

    class RingBook(TTLModel):
        __ttl__ = 3600
        author = models.ForeignKey(RingAuthor, on_delete, null=True)

        class Meta:
            app_label = "shop"

    with ExitStack() as ending:
        # Of the tables none can be dropped first, on MariaDB, not even when they are empty.
        ending.callback(check_on_mariadb, 1)
        ending.enter_context(tables_of(RingAuthor, RingBook))
        ending.callback(check_on_mariadb, 0)
        for statement in ("DELETE FROM shop_ringauthor", "DELETE FROM shop_ringbook"):
            ending.callback(raw, statement)
        ending.callback(raw, "UPDATE shop_ringauthor SET best_id = NULL")
        for number in range(1, 7):
            RingAuthor.objects.create(pk=number)
            RingBook.objects.create(pk=number, author_id=number)
        raw("UPDATE shop_ringauthor SET best_id = id")
        raw("UPDATE shop_ringbook SET author_id = CASE WHEN id = 6 THEN 1 ELSE id + 1 END")
        yield RingAuthor, RingBook


@pytest.mark.parametrize("deletion", DELETIONS)
@pytest.mark.parametrize("live", [set(), {4}])
def test_rings_over_several_tables_go(backend: Backend, deletion: str, live: set[int]) -> None:
    if live and deletion in ("cascade", "set null"):
        pytest.skip("Django takes live rows along, or unties them.")
    keys = set(range(1, 7))
    with books(DELETIONS[deletion]) as (author, book):
        kill(author, list(keys))
        kill(book, list(keys - live))
        models_of_ring = [author, book]
        report = Sweeper(
            connections["default"], models_of_ring, lease=False, batch_size=2
        ).run_once()
        report.raise_for_failures()
        stays = len(keys) if live else 0
        for model in models_of_ring:
            assert raw(f"SELECT COUNT(*) FROM {model._meta.db_table}") == [(stays,)]  # noqa: S608
