"""The tables of stored defaults: as SQLAlchemy makes them, and only where the app is installed."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import connections
from sqlalchemy import MetaData, create_engine, inspect

from tests.guard import GUARD
from ttl_odm.sqlalchemy import policy_tables
from ttl_odm.stored.rows import CHANGES, POLICIES

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.backends import Backend

APP = "ttl_odm_policies"


def migrate(*to: str) -> None:
    call_command("migrate", APP, *to, verbosity=0, interactive=False)


def described(column: Any, engine: Engine) -> tuple[object, ...]:
    """What counts of a type: a long text is one, too, and SQLite has one kind of integers."""
    kind = type(column["type"].as_generic()).__name__
    if kind == "String" and column["type"].length is None:
        kind = "Text"
    if engine.dialect.name == "sqlite":
        kind = kind.replace("BigInteger", "Integer")
    is_exact = column["name"] in ("name", "scope")
    return kind, *([column["type"].length, column["type"].collation] if is_exact else [])


def schema(engine: Engine) -> dict[str, Any]:
    """Columns and keys, as the database knows them."""
    inspector = inspect(engine)
    found: dict[str, Any] = {}
    for table in (POLICIES, CHANGES):
        found[table] = {
            column["name"]: (described(column, engine), column["nullable"])
            for column in inspector.get_columns(table)
        }
        found[f"{table} key"] = inspector.get_pk_constraint(table)["constrained_columns"]
        found[f"{table} unique"] = [
            key["column_names"] for key in inspector.get_unique_constraints(table)
        ]
    return found


@pytest.mark.slow
def test_both_adapters_make_the_same_tables(backend: Backend) -> None:
    assert backend.sync_url is not None
    engine, metadata = create_engine(backend.sync_url), MetaData()
    policy_tables(metadata)
    try:
        by_django = schema(engine)
        migrate("zero")
        assert POLICIES not in connections["default"].introspection.table_names()
        metadata.create_all(engine)
        by_sqlalchemy = schema(engine)
        call_command("migrate", APP, fake_initial=True, verbosity=0, interactive=False)
        migrate("zero")
    finally:
        engine.dispose()
        migrate()
    for name, columns in by_django.items():
        assert columns == by_sqlalchemy[name]


@pytest.mark.databases("sqlite")
def test_nothing_is_left_to_migrate(backend: Backend) -> None:
    call_command("makemigrations", "ttl_odm", APP, check=True, dry_run=True, verbosity=0)


WITHOUT = """
import django
from django.conf import settings

settings.configure(
    INSTALLED_APPS=["ttl_odm.django", "django.contrib.contenttypes"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()

import sys
from django.core.management import call_command
from django.db import connection

call_command("migrate", verbosity=0)
print(*sorted(connection.introspection.table_names()))
print(*sorted(name for name in sys.modules if "ttl_odm.django.policies" in name))
"""


@pytest.mark.slow
def test_who_stores_nothing_gets_no_table() -> None:
    run = [sys.executable, "-c", WITHOUT]
    said = subprocess.run(run, capture_output=True, text=True, timeout=GUARD, check=True).stdout
    tables, modules = said.split("\n")[:2]
    assert tables.split() == ["django_content_type", "django_migrations", "ttl_odm_lease"]
    assert modules == ""


MISSING = """
import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

settings.configure(
    INSTALLED_APPS=["django.contrib.contenttypes"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
)
django.setup()

import ttl_odm.django

for name in ("TTLModel", "set_policy"):
    try:
        getattr(ttl_odm.django, name)
    except ImproperlyConfigured as error:
        print(error)
"""


@pytest.mark.slow
def test_an_app_that_is_not_installed_is_named() -> None:
    run = [sys.executable, "-c", MISSING]
    said = subprocess.run(run, capture_output=True, text=True, timeout=GUARD, check=True).stdout
    assert said.splitlines() == [
        'Models with a policy require the app "ttl_odm.django": add it to INSTALLED_APPS.',
        'Stored defaults require the app "ttl_odm.django.policies": add it to INSTALLED_APPS.',
    ]
