"""Names of tables that mean something to SQL, or that are as long as a database lets them be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.db import IntegrityError, connections, migrations, models, transaction
from django.db.migrations.state import ProjectState

from tests.django_app.data import kill, raw, tables_of
from ttl_odm import Stored
from ttl_odm.django import AddTTL, TTLModel, include_expired
from ttl_odm.stored.django.changes import begin_policies
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from tests.backends import Backend

ODD = {
    "backslash": "back\\slash",
    "last-backslash": "ends\\",
    "quote": "o'clock",
    "dollar": "a$sweep$b$ttl_odm$",
    "braces": "{x}{0}{",
    "59-letters": "l" * 59,
}
odd = pytest.mark.parametrize("name", [pytest.param(name, id=key) for key, name in ODD.items()])


def declared(name: str, ttl: Any) -> Any:
    members = {
        "__module__": __name__,
        "__ttl__": ttl,
        "id": models.BigIntegerField(primary_key=True),
        "label": models.CharField(max_length=9, unique=True),
        "Meta": type("Meta", (), {"app_label": "shop", "db_table": name}),
    }
    return type("OddlyNamed", (TTLModel,), members)


@odd
@pytest.mark.parametrize("ttl", [3600, Stored(3600)], ids=["declared", "stored"])
def test_a_table_may_have_any_name(backend: Backend, name: str, ttl: Any) -> None:
    model = declared(name, ttl)
    with tables_of(model):
        begin_policies()
        for number in range(3):
            model.objects.create(id=number, label=f"l{number}")
        kill(model, [0, 1])
        assert list(model.objects.values_list("id", flat=True)) == [2]
        model.objects.create(id=0, label="l0")
        Sweeper(connections["default"], [model], lease=False).run_once().raise_for_failures()
        every = include_expired(model.objects.all()).values_list("id", flat=True)
        assert set(every) == {0, 2}
        with pytest.raises(IntegrityError), transaction.atomic():
            raw(f"UPDATE {connections['default'].ops.quote_name(name)} SET ttl = -5")  # noqa: S608


@pytest.mark.databases("mariadb", "mysql")
def test_a_migration_adds_the_ttl_of_a_table_with_a_long_name(backend: Backend) -> None:
    del backend
    connection, name = connections["default"], "l" * 59
    fields = [("id", models.BigAutoField(primary_key=True))]
    state = ProjectState()
    for operation in (
        migrations.CreateModel("Box", fields, options={"db_table": name}),
        AddTTL("Box"),
    ):
        before = state.clone()
        operation.state_forwards("shop", state)
        with connection.schema_editor(atomic=False) as editor:
            operation.database_forwards("shop", editor, before, state)
    try:
        raw(f"INSERT INTO {name} (ttl) VALUES (1)")  # noqa: S608
        assert raw(f"SELECT ttl FROM {name}") == [(1,)]  # noqa: S608
    finally:
        raw(f"DROP TABLE {name}")
