"""docs/combinations.md is made of `ttl_odm.combinations`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]


@pytest.fixture
def combinations(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tool, which is run from its folder."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import combinations

    return combinations


def test_the_page_is_current(combinations: ModuleType) -> None:
    written = combinations.PAGE.read_text(encoding="utf-8")
    assert written == combinations.page(), "run: python tools/combinations.py"


def test_no_name_in_braces_is_left(combinations: ModuleType) -> None:
    text = combinations.page().replace("on={...}", "")
    assert "{" not in text
