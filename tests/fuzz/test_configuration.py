"""Whatever stands in pyproject.toml, it is taken or named, and no traceback is shown."""

from __future__ import annotations

import json
import os
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.test_command_line import call
from tests.fuzz.words import share, text

if TYPE_CHECKING:
    from collections.abc import Iterator

# Not those that would write a file, never end, or set up the export of the whole process.
KEYS = ["app", "url", "model", "models", "max_rows", "nice", "window", "yes", "lease", "excepted"]
KEYS += ["default_ttl", "policy", "deep", "max_age", "as_json", "lease_name", "force", "batch_size"]

scalars = st.one_of(
    text,
    st.sampled_from(["tests.cli.shop:Base", "sqlite://", "$NOT_SET", "${NOT_SET}", "$"]),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.dates(),
    st.datetimes(),
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(text, inner, max_size=2)),
    max_leaves=4,
)
tables = st.dictionaries(st.one_of(st.sampled_from(KEYS), text), values, max_size=4)
settings_tables = st.builds(
    lambda shared, own: {**shared, **own},
    tables,
    st.dictionaries(st.sampled_from(["sweep", "check", "plan", "swep"]), tables, max_size=2),
)
files = st.one_of(
    settings_tables.map(lambda value: {"tool": {"ttl_odm": value}}),
    values.map(lambda value: {"tool": {"ttl_odm": value}}),
    values.map(lambda value: {"tool": value}),
    st.dictionaries(text, values, max_size=2),
)


def toml(value: Any) -> str:
    """Write a value, tables inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value).replace("e+", "e").replace("e", ".0e" if "." not in repr(value) else "e")
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    return (
        json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        if isinstance(value, str)
        else str(value)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("configured")
    before = Path.cwd()
    os.chdir(made)
    yield made
    os.chdir(before)


@pytest.mark.slow
@share(1)
@given(files, st.sampled_from(["sweep", "check", "status", "plan"]))
def test_any_file_ends_in_a_documented_status(
    folder: Path, content: dict[str, Any], command: str
) -> None:
    lines = [f"{toml(key)} = {toml(item)}" for key, item in content.items()]
    (folder / "pyproject.toml").write_text("\n".join(lines), encoding="utf-8")
    call([command, *(["Cart"] if command == "plan" else [])])


@share(1)
@given(st.binary())
def test_bytes_that_are_no_toml_are_named(folder: Path, content: bytes) -> None:
    (folder / "pyproject.toml").write_bytes(b"[tool.ttl_odm]\n" + content)
    call(["check"])
