"""A package whose docstring lists its modules lists all of them, and no others."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest

from tests.packaging.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_ITEM = re.compile(r"^- ((?:`[a-z_.0-9]+`(?:, )?)+)(?: \(.*\))?:", re.MULTILINE)
_NAME = re.compile(r"`([a-z_.0-9]+)`")


def _docstring(folder: Path) -> str:
    return ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""


def _modules(folder: Path) -> set[str]:
    """The modules of a folder, and the packages in it."""
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


ROOMS = sorted(
    path.parent
    for path in (ROOT / "ttl_odm").rglob("__init__.py")
    if _ITEM.search(_docstring(path.parent))
)


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.relative_to(ROOT).as_posix())
def test_a_list_of_modules_agrees_with_the_folder(room: Path) -> None:
    text, modules = _docstring(room), _modules(room)
    named = {name.partition(".")[0] for name in _NAME.findall(text)}
    listed = [name for item in _ITEM.findall(text) for name in _NAME.findall(item)]
    assert modules - named == set()
    assert [name for name in listed if not _exists(room, name)] == []


def _exists(room: Path, name: str) -> bool:
    path = room.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()
