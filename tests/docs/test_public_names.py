"""docs/contract.md lists every public name of the three adapters, and none that isn't there."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from tests.docs.blocks import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

ADAPTERS = {"SQLAlchemy": "sqlalchemy", "Beanie": "beanie", "Django": "django"}
CALLS = {"touch", "expire_in", "expire_at", "persist", "inherit_ttl"}
"""What changes a row's lifetime: one signature on all adapters."""


def cells(heading: str, adapter: str) -> Iterator[str]:
    """Yield an adapter's cells of the table that follows a line of "## Names"."""
    section = (ROOT / "docs" / "contract.md").read_text().split("## Names")[1].split("\n## ")[0]
    lines = iter(section.split(heading)[1].splitlines())
    header = next(line for line in lines if line.startswith("| what for"))
    column = [name.strip() for name in header.split("|")].index(adapter)
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            return
        yield line.split("|")[column]


def names(heading: str, adapter: str) -> list[str]:
    return [name for cell in cells(heading, adapter) for name in re.findall(r"`([^`]+)`", cell)]


def row_class(adapter: str) -> type:
    if adapter == "Django":
        from tests.django_app import project

        project.set_up()
    package = import_module(f"ttl_odm.{ADAPTERS[adapter]}")
    mixin: type = package.TTLModel if adapter == "Django" else package.TTLMixin
    return mixin


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_table_has_the_names_of_the_module(adapter: str) -> None:
    package = import_module(f"ttl_odm.{ADAPTERS[adapter]}")
    assert sorted(names("In the module", adapter)) == sorted(package.__all__)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_table_has_what_changes_a_rows_lifetime_with_its_arguments(adapter: str) -> None:
    documented = {name for name in names("On a row", adapter) if "(" in name}
    model = row_class(adapter)
    signatures = set()
    for name in CALLS:
        method = inspect.signature(getattr(model, name))
        _, *parameters = method.parameters.values()
        shown = [
            f"{parameter.name}=" if parameter.default is None else parameter.name
            for parameter in parameters
            if parameter.name != "session"
        ]
        signatures.add(f"{name}({', '.join(shown)})")
        answers = {"None"} if name in {"persist", "inherit_ttl"} else {"bool"}
        assert method.return_annotation in answers, name
    assert documented == signatures


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_table_has_what_a_row_says_of_its_lifetime(adapter: str) -> None:
    model = row_class(adapter)
    documented = {name for name in names("On a row", adapter) if "(" not in name}
    fields = {"ttl", "last_modified"}
    assert documented - fields == {"expires_at", "is_expired", "time_left"}
    assert documented - fields <= set(dir(model))


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_the_table_has_what_a_class_may_declare(adapter: str) -> None:
    declared = {name for name in names("On a class", adapter) if name.startswith("__")}
    source = inspect.getsource(row_class(adapter)) + inspect.getsource(
        import_module("ttl_odm.sweeper.hooks")
    )
    rejected = set() if adapter == "SQLAlchemy" else {"__ttl_partition__"}
    assert declared == set(re.findall(r"__ttl(?:_[a-z_]+)?__", source)) - rejected
