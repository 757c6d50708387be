"""What the tests of pairs of capabilities share, see `ttl_odm.combinations`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from ttl_odm.combinations import COMBINATIONS

if TYPE_CHECKING:
    from ttl_odm.combinations import Adapter, Combination, Database


def pairs(adapter: Adapter, database: Database, *, but: Database | None = None) -> Any:
    """Parametrise a test with the pairs of an adapter on a database.

    Args:
        adapter: The adapter.
        database: One that has both capabilities of a pair.
        but: A database whose pairs another test tries.
    """
    lines = [
        pytest.param(line, id=f"{line.first}-{line.second}")
        for line in COMBINATIONS
        if line.adapter == adapter and line.is_on(database) and (but is None or not line.is_on(but))
    ]
    return pytest.mark.parametrize("line", lines)


def pattern(line: Combination) -> str:
    """The reason of a rejection and what to declare instead, as a message has them."""
    assert line.reason
    assert line.instead
    texts = (re.sub(r"\\\{\w+\\\}", ".+", re.escape(text)) for text in (line.reason, line.instead))
    return f"(?is){'.*'.join(texts)}"
