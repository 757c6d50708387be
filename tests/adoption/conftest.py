"""What the tests of adopted applications share: the examples as modules, and rows made to expire.

Rows are moved into the past by `text`, which the gate doesn't see.
"""

from __future__ import annotations

import importlib.util
import sys
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DateTime, bindparam, create_engine, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine, TextClause

    from tests.backends import Backend
    from ttl_odm.sweeper import SweepReport

EXAMPLES = Path(__file__).parents[2] / "examples" / "adoption"
ROWS = 5
"""How many rows each test lets expire, to be swept in batches of two."""


@cache
def example(name: str) -> Any:
    """Import an example, once, for its models are mapped once."""
    spec = importlib.util.spec_from_file_location(f"adoption_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def moved(table: str, column: str, seconds: float, *, aware: bool = False) -> TextClause:
    """An UPDATE that sets a column of dates, in all rows, to so long before now (UTC)."""
    instant = datetime.now(timezone.utc) - timedelta(seconds=seconds)
    value = bindparam(
        "value", instant if aware else instant.replace(tzinfo=None), DateTime(timezone=aware)
    )
    statement = text(f"UPDATE {table} SET {column} = :value")  # noqa: S608 - a test's own table
    return statement.bindparams(value)


def stored(connection: Connection, table: str) -> int:
    """How many rows there are, expired or not."""
    return int(connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0)  # noqa: S608


def in_batches(report: SweepReport, table: str, rows: int, engine: Any) -> bool:
    """Whether a sweep by batches of two has deleted just these rows of a table."""
    (target,) = (each for each in report.targets if each.table == table)
    assert report.deleted == target.deleted == rows
    # Without an index PostgreSQL's batches are of pages, and such a small table is one.
    return target.batches >= (1 if engine.dialect.name == "postgresql" else rows // 2)


@pytest.fixture
def database(backend: Backend) -> Iterator[Engine]:
    """An engine for what a test does behind an application's back."""
    assert backend.sync_url is not None
    engine = create_engine(backend.sync_url)
    yield engine
    engine.dispose()
