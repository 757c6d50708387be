"""The index that a model's scopes lead: what migrations make of it, and what the checks say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import connections, migrations, models
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.state import ModelState, ProjectState

from tests.django_app.data import raw, tables_of
from tests.django_app.test_migrations import run, state_of
from ttl_odm import Stored
from ttl_odm.django import AddTTL, TTLIndex, TTLModel
from ttl_odm.django.checks import of_database, of_model
from ttl_odm.django.policy.bindings import binding_of
from ttl_odm.django.policy.indexes import sweeper_indexes
from ttl_odm.stored.django import scope_ranges
from ttl_odm.stored.django.changes import begin_policies

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("backend")

PLAIN = migrations.CreateModel(
    "Box",
    [("id", models.BigAutoField(primary_key=True)), ("tenant", models.CharField(max_length=40))],
)
NAME = "ix_shop_box_ttl_inherited"


def declared(*indexes: models.Index, by: str | None = "tenant", **fields: Any) -> Any:
    """A model of the table ``shop_box``."""
    fields = fields or {"tenant": models.CharField(max_length=40)}
    meta = type("Meta", (), {"app_label": "shop", "indexes": list(indexes)})
    names: dict[str, Any] = {
        "__module__": __name__,
        "__ttl__": Stored(60, by=by) if by else 60,
        "id": models.BigAutoField(primary_key=True),
        "Meta": meta,
        **fields,
    }
    return type("Box", (TTLModel,), names)


@pytest.fixture
def box() -> Iterator[Any]:
    """The model as it is, of a table whose index is of before it had scopes."""
    model = declared()
    with tables_of(model):
        begin_policies()
        replace(model, sweeper_indexes("shop_box")[0])
        yield model


def replace(model: Any, index: TTLIndex) -> None:
    """Put another index in the place of that over inheriting rows."""
    for statement in index.replacement(model, connections["default"]).split("; "):
        raw(statement)


def found(model: Any) -> list[tuple[str, str]]:
    """What the system check says of it: of the model, and of the database."""
    binding: Any = binding_of(model)
    messages = [*of_model(binding), *of_database(binding, "default")]
    return [(str(message.id), str(message.hint)) for message in messages]


def leads(model: Any) -> bool:
    """Whether sweeps of the table go from scope to scope, as a new process sees it."""
    scope_ranges.forget_indexes()
    binding: Any = binding_of(model)
    return scope_ranges.scope_index(binding, "default") is not None


def test_the_check_finds_an_index_of_before_and_its_fix_replaces_it(box: Any) -> None:
    ((code, hint),) = found(box)
    assert (code, leads(box)) == ("ttl_odm.W003", False)
    assert hint.startswith("Run makemigrations, and migrate.")
    for statement in hint.partition("changes nothing: ")[2].split("; "):
        raw(statement)
    assert (found(box), leads(box)) == ([], True)


def test_ttl_check_says_so_too(box: Any, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("ttl_check", "--json", "--model", "shop.Box")
    (content,) = map(json.loads, capsys.readouterr().out.splitlines())
    (finding,) = [each for each in content["findings"] if each["code"] == "ttl_odm.W003"]
    assert (finding["target"], finding["severity"]) == ("shop_box", "warning")
    assert finding["message"].startswith(f"The index {NAME} doesn't begin with tenant, so each ")
    assert NAME in finding["fix"]


def test_the_check_finds_a_model_that_lists_the_index_of_before() -> None:
    model = declared(sweeper_indexes("shop_box")[0])
    with tables_of(model):
        begin_policies()
        ((code, hint),) = found(model)
        assert code == "ttl_odm.W003"
        assert "['tenant', 'last_modified']" in hint


def test_long_texts_are_no_finding_where_no_index_may_begin_with_them() -> None:
    model = declared(tenant=models.TextField())
    with tables_of(model):
        begin_policies()
        assert found(model) == []
        assert leads(model) is (connections["default"].vendor != "mysql")


def test_makemigrations_replaces_the_index_of_a_model_that_gets_scopes() -> None:
    earlier = [PLAIN, AddTTL("box")]
    before, after = state_of(*earlier), state_of(PLAIN, AddTTL("box", by="tenant"))
    (migration,) = MigrationAutodetector(before, after)._detect_changes()["shop"]
    removed, added = migration.operations
    assert isinstance(removed, migrations.RemoveIndex)
    assert isinstance(added, migrations.AddIndex)
    assert added.index.fields == ["tenant", "last_modified"]
    model = declared()
    try:
        of_model_now = ModelState.from_model(model).options["indexes"]
        names = {index.name: index.fields for index in of_model_now}
        assert names == {
            index.name: index.fields for index in after.models["shop", "box"].options["indexes"]
        }
        run(earlier, atomic=False)
        assert not leads(model)
        state = state_of(*earlier)
        with connections["default"].schema_editor(atomic=False) as editor:
            for operation in (removed, added):
                to_state = state.clone()
                operation.state_forwards("shop", to_state)
                operation.database_forwards("shop", editor, state, to_state)
                state = to_state
        assert leads(model)
    finally:
        forget(model)


def test_add_ttl_makes_it_on_a_table_in_use() -> None:
    model = declared()
    try:
        run([PLAIN], atomic=True)
        state = ProjectState()
        PLAIN.state_forwards("shop", state)
        operation, after = AddTTL("box", by="tenant"), state.clone()
        assert operation.deconstruct()[2] == {"model_name": "box", "by": "tenant"}
        operation.state_forwards("shop", after)
        with connections["default"].schema_editor(atomic=False) as editor:
            operation.database_forwards("shop", editor, state, after)
        assert leads(model)
        with connections["default"].schema_editor(atomic=False) as editor:
            operation.database_backwards("shop", editor, after, state)
        assert raw("SELECT COUNT(*) FROM shop_box") == [(0,)]
    finally:
        forget(model)


def test_a_foreign_key_may_lead_it() -> None:
    from tests.django_app.shop.models import User

    model = declared(tenant=models.ForeignKey(User, models.CASCADE))
    with tables_of(model):
        begin_policies()
        assert (found(model), leads(model)) == ([], True)
        index = next(index for index in model._meta.indexes if index.name == NAME)
        with connections["default"].schema_editor() as editor:
            editor.remove_index(model, index)
        assert not leads(model)


def forget(model: Any) -> None:
    """Drop its table, and forget it."""
    from django.apps import apps

    from ttl_odm.django.policy.bindings import unbind

    raw("DROP TABLE IF EXISTS shop_box")
    unbind("shop_box")
    del apps.all_models["shop"][model._meta.model_name]
    apps.clear_cache()
