"""The index of the link: a model that follows others by `on=` has one, in its migrations too."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, migrations, models
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.writer import MigrationWriter

from tests.django_app.data import forget, raw
from tests.django_app.family.models import Cart
from ttl_odm import Follows
from ttl_odm.django import DjangoStore, FollowsIndex
from ttl_odm.django.management.findings import findings_of
from ttl_odm.django.policy.bindings import unbind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend

BY_CART = Follows(Cart, on={"cart": "id"})


@contextmanager
def declared(follows: Any, **members: Any) -> Iterator[Any]:
    """A model, which is forgotten at the end."""
    meta = type("Meta", (), {"app_label": "shop", **members.pop("Meta", {})})
    body = {"__module__": __name__, "Meta": meta, "__ttl__": follows, **members}
    try:
        yield type("Odd", (models.Model,), body)
    finally:
        unbind("shop_odd")
        forget("odd")


def number(**options: Any) -> models.BigIntegerField[Any, Any]:
    return models.BigIntegerField(**options)


def links_of(model: Any) -> list[FollowsIndex]:
    return [index for index in model._meta.indexes if isinstance(index, FollowsIndex)]


def test_the_fields_of_on_bring_their_index() -> None:
    with declared(BY_CART, cart=number()) as model:
        (index,) = links_of(model)
        assert index.fields == ["cart"]
        assert model.check() == []


@pytest.mark.parametrize(
    "members",
    [
        {"cart": number(db_index=True)},
        {"cart": number(unique=True)},
        {"cart": number(primary_key=True)},
        {"cart": number(), "Meta": {"indexes": [models.Index(fields=["cart", "id"], name="m")]}},
        {"cart": number(), "Meta": {"unique_together": [("cart", "id")]}},
        {
            "cart": number(),
            "Meta": {"constraints": [models.UniqueConstraint(fields=["cart", "id"], name="m")]},
        },
        {"cart": number(), "__ttl_sweep__": "scan"},
        {"cart": models.TextField()},
    ],
)
def test_an_index_of_the_model_is_enough(members: dict[str, Any]) -> None:
    with declared(BY_CART, **members) as model:
        assert links_of(model) == []


@pytest.mark.parametrize(
    "index",
    [
        models.Index(fields=["id", "cart"], name="m"),
        models.Index(fields=["cart"], name="m", condition=models.Q(id__gt=5)),
    ],
)
def test_an_index_over_some_rows_or_in_another_order_is_not(index: models.Index) -> None:
    with declared(BY_CART, cart=number(), Meta={"indexes": [index]}) as model:
        assert len(links_of(model)) == 1


def test_a_foreign_key_has_one_by_itself() -> None:
    with declared(Follows("cart"), cart=models.ForeignKey(Cart, models.CASCADE)) as model:
        assert links_of(model) == []
    without = models.ForeignKey(Cart, models.CASCADE, db_index=False)
    with declared(Follows("cart"), cart=without) as model:
        assert [index.fields for index in links_of(model)] == [["cart"]]


def test_a_key_may_name_a_foreign_key_by_its_attribute() -> None:
    without = models.ForeignKey(Cart, models.CASCADE, db_index=False)
    key = models.UniqueConstraint(fields=["cart_id", "id"], name="u")
    with declared(Follows("cart"), cart=without, Meta={"constraints": [key]}) as model:
        assert links_of(model) == []


def test_makemigrations_writes_it_and_then_agrees(backend: Backend) -> None:
    with declared(BY_CART, cart=number()) as model:
        after = ProjectState()
        after.add_model(ModelState.from_model(model))
        before = after.clone()
        del before.models["shop", model._meta.model_name].options["indexes"]
        before.models["shop", model._meta.model_name].options["indexes"] = []
        (migration,) = MigrationAutodetector(before, after)._detect_changes()["shop"]
        (operation,) = migration.operations
        assert isinstance(operation, migrations.AddIndex)
        text = MigrationWriter(migration).as_string()
        assert "ttl_odm.django.FollowsIndex(fields=['cart'], name=" in text
        assert MigrationAutodetector(after, after.clone())._detect_changes() == {}


@pytest.mark.slow
@pytest.mark.every_server
@pytest.mark.parametrize("atomic", [True, False])
def test_a_migration_adds_and_removes_it(backend: Backend, *, atomic: bool) -> None:
    connection = connections["default"]
    with declared(BY_CART, cart=number()) as model:
        (index,) = links_of(model)
        store = DjangoStore()
        with connection.schema_editor() as editor:
            editor.create_model(model)
        for is_there in (False, True):
            with connection.schema_editor(atomic=atomic) as editor:
                (editor.add_index if is_there else editor.remove_index)(model, index)
            with connection.cursor() as cursor:
                names = connection.introspection.get_constraints(cursor, model._meta.db_table)
            assert (index.name in names) is is_there
            found = [
                one
                for one in findings_of(store, "default", deep=False)
                if one.code == "missing-follows-index"
            ]
            assert bool(found) is not is_there
            if found:
                words = "a sweep reads all of that table for each batch of expired rows"
                assert found[0].message.endswith(words)
                assert "CREATE INDEX" in found[0].fix
                assert index.name in found[0].fix
        raw("DROP TABLE shop_odd")
