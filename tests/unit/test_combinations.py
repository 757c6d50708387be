"""The table of what goes together is complete."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ttl_odm
from ttl_odm.combinations import (
    CAPABILITIES,
    COMBINATIONS,
    DATABASES,
    combination,
    combinations_of,
)

if TYPE_CHECKING:
    from ttl_odm.combinations import Adapter, Database

PACKAGE = Path(ttl_odm.__file__).parent

EXTENSIONS: dict[str, tuple[str, ...]] = {
    "events": (),  # a hook records them, so what goes together with hooks goes together with them
    "follows": ("followed", "follows"),
    "stored": ("stored",),
    "partitions": ("partitions",),
    "database_sweep": ("database_sweep",),
    "live_views": ("view", "rls"),
}
"""The capabilities of each package that is an extension, and of some that may become one."""

NOT_OF_TABLES = {
    *("alembic", "cli", "core", "dialects", "forecast", "guard", "inspection", "integrations"),
    *("metrics", "replication", "sweeper", "testing"),
}
"""Packages that are neither adapters nor bring a capability of a table."""


def pairs() -> list[tuple[Adapter, Database, str, str]]:
    return [
        (adapter, database, *pair)
        for adapter, databases in DATABASES.items()
        for database in databases
        for pair in combinations(
            [name for name in CAPABILITIES if database in CAPABILITIES[name].databases_on(adapter)],
            2,
        )
    ]


def test_each_pair_has_one_line_on_each_database() -> None:
    for adapter, database, first, second in pairs():
        lines = [line for line in combinations_of(adapter, first, second) if line.is_on(database)]
        assert len(lines) == 1, (adapter, database, first, second)


def test_no_line_is_about_what_does_not_exist() -> None:
    tried = {(adapter, frozenset(pair)) for adapter, _, *pair in pairs()}
    lines = {(line.adapter, frozenset((line.first, line.second))) for line in COMBINATIONS}
    assert lines == tried
    assert all(line.is_on(database) for line in COMBINATIONS for database in line.databases)


def test_each_package_is_an_adapter_or_has_capabilities_in_the_table() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages - NOT_OF_TABLES - EXTENSIONS.keys() == DATABASES.keys()
    named = {name for names in EXTENSIONS.values() for name in names}
    assert CAPABILITIES.keys() - named == {"archive", "hooks", "orm"}


def test_each_line_says_what_its_outcome_needs() -> None:
    for line in COMBINATIONS:
        assert bool(line.condition) == (line.outcome == "conditional"), line
        if line.outcome == "rejected":
            assert line.reason, line
            assert line.instead, line


def test_a_pair_is_found_in_either_order() -> None:
    line = combination("sqlalchemy", "orm", "archive")
    assert line is combination("sqlalchemy", "archive", "orm")
    assert "aren't archived" in line.reason


def test_names_are_put_into_messages() -> None:
    line = combination("beanie", "followed", "database_sweep")
    assert line.reason_for(model="Cart").startswith("MongoDB would delete Cart documents before")
    assert line.instead_for(model="Cart").startswith("declare __ttl_purge__ = 'sweeper' on Cart")


@pytest.mark.parametrize("name", CAPABILITIES)
def test_each_capability_has_a_page_on_each_adapter(name: str) -> None:
    docs = Path(__file__).parents[2] / "docs"
    for adapter in CAPABILITIES[name].declared:
        assert (docs / f"{CAPABILITIES[name].page_on(adapter)}.md").exists()
