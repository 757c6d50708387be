"""TIMESTAMP columns of MariaDB and MySQL in sessions whose time zone repeats an hour."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, models
from sqlalchemy import create_engine

from tests.django_app.data import raw, tables_of
from tests.sql.zones import AUTUMN, around, drop_zone, in_sql, make_zone
from ttl_odm import ExpireAt
from ttl_odm.django.checks import of_database
from ttl_odm.django.policy.bindings import binding_of
from ttl_odm.sweeper import Sweeper, SweepError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend

pytestmark = pytest.mark.databases("mariadb", "mysql")

ROWS = 40


def visits(name: str, kind: str, key: str = "name") -> Any:
    """A model whose field or key has a type that Django doesn't know of."""
    members = {
        "__module__": __name__,
        "__ttl__": ExpireAt("at"),
        "__ttl_sweep__": "scan" if key == "at" else "index",
        "name": models.CharField(max_length=40, primary_key=key == "name"),
        "at": models.DateTimeField(primary_key=key == "at", db_index=key != "at"),
        "Meta": type("Meta", (), {"app_label": "shop"}),
    }
    model: Any = type(f"Zoned{name.title()}", (models.Model,), members)
    model.kind = kind
    return model


@contextmanager
def written(model: Any) -> Iterator[None]:
    """Make its table, with rows that have expired, by a session in UTC."""
    table = model._meta.db_table
    with tables_of(model):
        raw(f"ALTER TABLE {table} MODIFY at {model.kind} NOT NULL")
        raw("SET time_zone = '+00:00'")
        rows = (f"('n{n}', {in_sql(at)})" for n, at in enumerate(around(AUTUMN, ROWS)))
        raw(f"INSERT INTO {table} (name, at) VALUES {', '.join(rows)}")  # noqa: S608
        yield


@contextmanager
def zone(backend: Backend) -> Iterator[None]:
    """Put the session into a time zone whose clocks change."""
    assert backend.sync_url is not None
    engine = create_engine(backend.sync_url)
    with engine.begin() as connection:
        name = make_zone(connection)
    try:
        raw(f"SET time_zone = '{name}'")
        yield
    finally:
        with engine.begin() as connection:
            drop_zone(connection, name)
        engine.dispose()


def sweeper(model: Any) -> Sweeper:
    return Sweeper(connections["default"], model, batch_size=7, lease=False)


def messages(model: Any) -> list[str]:
    binding = binding_of(model)
    assert binding is not None
    return [message.msg for message in of_database(binding, "default")]


@pytest.mark.parametrize("key", ["name", "at"])
def test_such_a_session_is_rejected_before_anything_is_deleted(backend: Backend, key: str) -> None:
    model = visits(f"bad{key}", "TIMESTAMP(6)", key)
    with written(model), zone(backend):
        assert any("at is a TIMESTAMP" in message for message in messages(model))
        with pytest.raises(SweepError, match=r"at is a TIMESTAMP.*init_command"):
            sweeper(model).run_once().raise_for_failures()
        assert raw(f"SELECT count(*) FROM {model._meta.db_table}") == [(ROWS,)]  # noqa: S608


@pytest.mark.parametrize("fixed", ["+00:00", "+05:30"])
@pytest.mark.parametrize("key", ["name", "at"])
def test_a_session_whose_clocks_never_change_is_swept(
    backend: Backend, key: str, fixed: str
) -> None:
    model = visits(f"good{key}{fixed[1:3]}", "TIMESTAMP(6)", key)
    with written(model):
        raw(f"SET time_zone = '{fixed}'")
        assert messages(model) == []
        assert sweeper(model).run_once().deleted == ROWS


def test_a_datetime_is_swept_in_any_session(backend: Backend) -> None:
    model = visits("other", "DATETIME(6)")
    with written(model), zone(backend):
        assert messages(model) == []
        assert sweeper(model).run_once().deleted == ROWS
