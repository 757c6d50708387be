"""docs/engines.md belongs to the tree's list of engines, and no case on it came out wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

DOCS = Path(__file__).parents[2] / "docs"
COMMAND = "run: python3 tools/dev.py engines"


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The package in tools, which is run from there."""
    monkeypatch.syspath_prepend(DOCS.parent / "tools")
    import engines

    return engines


def test_the_page_says_what_was_measured_of_the_engines_in_the_list(engines: ModuleType) -> None:
    results = engines.load(DOCS / "engines.json")
    assert (DOCS / "engines.md").read_text(encoding="utf-8") == engines.page_of(results), COMMAND
    assert list(results) == list(engines.NAMES), COMMAND


def test_each_engine_was_asked_in_the_version_that_the_list_says(engines: ModuleType) -> None:
    for engine in engines.ENGINES:
        result = engines.load(DOCS / "engines.json")[engine.name]
        if isinstance(result, engines.Measured):
            assert result.version.startswith(engine.version), engine.name


def test_no_case_came_out_wrong(engines: ModuleType) -> None:
    results = engines.load(DOCS / "engines.json")
    measured = {
        name: result for name, result in results.items() if isinstance(result, engines.Measured)
    }
    assert {name for name, result in measured.items() if result.count("wrong")} == set()
    assert all(result.count("right") for result in measured.values())
