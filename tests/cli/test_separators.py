"""Numbers that people read have separators: also those of logs, reports and errors."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ttl_odm.alembic import backfill
from ttl_odm.beanie.indexes.strays import Inconsistency, StrayReport, Strays
from ttl_odm.sweeper import PartitionsCounted
from ttl_odm.sweeper.hooks import HookError, _named_errors


def test_those_of_a_backfill(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "_SECONDS_BETWEEN_LINES", 0.0)
    caplog.set_level(logging.INFO)
    with backfill._progress("carts", 1_234_567) as advance:
        advance(10_000)
    assert caplog.messages == [
        "backfill of carts: 1,234,567 rows",
        "backfill of carts: 10,000 of 1,234,567 rows",
        "backfill of carts: done",
    ]


def test_those_of_partitions() -> None:
    counted = PartitionsCounted(there=12_000, over=1_500, missing=1_001)
    assert str(counted) == "12,000 partitions, 1,500 over, 1,001 more to be created"


def test_those_of_strays() -> None:
    report = StrayReport("shop.carts", (Strays(Inconsistency.TOO_LATE, 12_345, (1,)),))
    assert "  12,345: expires, but" in str(report)


def test_those_of_a_failed_hook() -> None:
    def note() -> None:
        raise RuntimeError("no thanks")

    purged: Any = SimpleNamespace(count=1_000, table="carts")
    with (
        pytest.raises(HookError, match="failed on 1,000 rows of carts"),
        _named_errors("hook", note, purged),
    ):
        note()
