"""INSERTs of one row share their text: whatever the values are, it is the right one."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from django.db import models, transaction
from django.db.models import Value
from django.db.models.functions import Concat, Now, Upper
from django.db.models.sql.compiler import SQLInsertCompiler

from tests.django_app.data import tables_of
from ttl_odm.django import TTLModel

if TYPE_CHECKING:
    from tests.backends import Backend


class Counted(models.IntegerField):  # type: ignore[type-arg]
    """Counts how often it is asked for a value to save."""

    asked = 0

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:  # noqa: FBT001
        """The next number."""
        Counted.asked += 1
        return super().pre_save(model_instance, add)


class Shouted(models.CharField):  # type: ignore[type-arg]
    """Writes a text of its own, which hangs on the value."""

    def get_placeholder(self, value: Any, compiler: Any, connection: Any) -> str:  # noqa: ARG002
        """What Django before 6.1 asks for."""
        return "%s" if value == "quiet" else "UPPER(%s)"

    def get_placeholder_sql(self, value: Any, compiler: Any, connection: Any) -> Any:
        """What Django asks for since."""
        return self.get_placeholder(value, compiler, connection), (value,)


class Sum(models.IntegerField):  # type: ignore[type-arg]
    """Makes an expression of some values, as late as Django lets it."""

    def get_db_prep_save(self, value: Any, connection: Any) -> Any:  # noqa: ARG002
        """An expression for what is over nine."""
        return Value(9) + Value(value - 9) if value > 9 else value


_numbers = count()
"""A policy belongs to a table for good, so each test has one of its own."""


def declared(base: Any = TTLModel, **fields: Any) -> Any:
    """A model with these columns besides its key."""
    members = {
        "__module__": __name__,
        **({"__ttl__": 3600} if base is TTLModel else {}),
        "id": models.BigIntegerField(primary_key=True),
        "Meta": type("Meta", (), {"app_label": "shop"}),
        **fields,
    }
    return type(f"Worded{next(_numbers)}", (base,), members)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables for whose INSERTs Django has made a text."""
    tables: list[str] = []
    make = SQLInsertCompiler.assemble_as_sql

    def assemble(self: Any, *args: Any) -> Any:
        tables.append(self.query.get_meta().db_table)
        return make(self, *args)

    monkeypatch.setattr(SQLInsertCompiler, "assemble_as_sql", assemble)
    return tables


either_way = pytest.mark.parametrize(
    "around", [transaction.atomic, nullcontext], ids=["in a transaction", "by itself"]
)


def stored(model: Any, *fields: str) -> list[tuple[Any, ...]]:
    """What the rows hold."""
    return list(model.objects.order_by("id").values_list(*fields))


@either_way
def test_rows_that_differ_in_values_share_a_text(
    backend: Backend, around: Any, made: list[str]
) -> None:
    model = declared(
        name=models.CharField(max_length=9, null=True), data=models.JSONField(null=True)
    )
    with tables_of(model), around():
        rows = [("a", {"b": 1}), (None, [1]), ("%s", "%s"), ("c", None)]
        for number, (name, data) in enumerate(rows):
            row = model.objects.create(id=number, name=name, data=data)
            assert row.ttl is None
        model.objects.create(id=4, name="d", data={}, ttl=60)
        assert stored(model, "name", "data") == [*rows, ("d", {})]
        assert made == [model._meta.db_table]
        first, last = model.objects.get(id=0), model.objects.get(id=4)
        assert (first.expires_at - first.last_modified).total_seconds() == 3600
        assert (last.expires_at - last.last_modified).total_seconds() == 60


@either_way
def test_a_field_is_asked_as_often_as_without_a_policy(backend: Backend, around: Any) -> None:
    asked: dict[str, list[int]] = {}
    for base in (models.Model, TTLModel):
        model = declared(base, number=Counted(), at=models.DateTimeField(null=True))
        with tables_of(model), around():
            for number, at in enumerate([None, None, Now(), None]):
                before = Counted.asked
                model.objects.create(id=number, number=number, at=at)
                asked.setdefault(base.__name__, []).append(Counted.asked - before)
            assert [number for (number,) in stored(model, "number")] == [0, 1, 2, 3]
    assert asked["TTLModel"] == asked["Model"]


@either_way
def test_expressions_and_defaults_of_the_database_have_their_own(
    backend: Backend, around: Any
) -> None:
    model = declared(
        name=models.CharField(max_length=9, db_default="none"),
        total=Sum(),
        word=Shouted(max_length=9),
    )
    with tables_of(model), around():
        rows: list[dict[str, Any]] = [
            {"name": "a", "total": 1, "word": "quiet"},
            {"name": Upper(Value("b")), "total": 20, "word": "loud"},
            {"total": 3, "word": "quiet"},
            {"name": "d", "total": 40, "word": "loud"},
            {"name": Concat(Value("e"), Value("f")), "total": 5, "word": "loud"},
            {"name": "g", "total": 6, "word": "quiet"},
        ]
        for number, values in enumerate(rows):
            model.objects.create(id=number, **values)
        assert stored(model, "name", "total", "word") == [
            ("a", 1, "quiet"),
            ("B", 20, "LOUD"),
            ("none", 3, "quiet"),
            ("d", 40, "LOUD"),
            ("ef", 5, "LOUD"),
            ("g", 6, "quiet"),
        ]


def test_an_expression_that_a_field_makes_of_a_value_is_written(
    backend: Backend, made: list[str]
) -> None:
    model = declared(total=Sum())
    with tables_of(model):
        for number, total in enumerate((1, 20, 3, 40)):
            model.objects.create(id=number, total=total)
        assert stored(model, "total") == [(1,), (20,), (3,), (40,)]
        assert len(made) == 3  # the third has that of the first
