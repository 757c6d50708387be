"""The sweepers, their options, hooks and reports, and the test kit."""

# pyright: reportUnnecessaryTypeIgnoreComment=error

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine
from typing_extensions import assert_type

from tests.typing.sql_models import Base, Cart, WebSession
from ttl_odm.sweeper import (
    AsyncSweeper,
    Ending,
    Hook,
    LeaseState,
    Purged,
    Sweeper,
    SweepReport,
    TargetReport,
)
from ttl_odm.testing import StoreContract, StoreRig, TTLClock, assert_no_leaks


def told(purged: Purged) -> None:
    assert_type(purged.table, str)
    assert_type(purged.count, int)
    assert_type(purged.as_of, datetime)
    assert_type(purged.rows, Sequence[Mapping[str, Any]] | None)


async def told_later(purged: Purged) -> None:
    print(purged)


def sweeping(engine: Engine) -> None:
    sweeper = Sweeper(engine, Base, max_rows=1_000, on_purged=Hook(told, when="commit"))
    report = sweeper.run_once()
    assert_type(report, SweepReport)
    assert_type(report.deleted, int)
    assert_type(report.ended, Ending)
    assert_type(report.targets, Sequence[TargetReport])
    assert_type(sweeper.status(), LeaseState)
    Sweeper(engine, [WebSession, Cart], on_purged={"carts": told}, dry_run=True).run_once()
    sweeper.stop()


async def sweeping_asynchronously(engine: AsyncEngine) -> None:
    sweeper = AsyncSweeper(engine, [WebSession], on_purged=told_later)
    assert_type(await sweeper.run_once(), SweepReport)
    await sweeper.pause()


def testing(ttl_clock: TTLClock, engine: Engine) -> None:
    ttl_clock.advance(60)
    ttl_clock.advance(timedelta(hours=1))
    ttl_clock.freeze()
    with TTLClock() as clock, clock.advance(1) as moved:
        assert_type(moved, TTLClock)
        assert_type(clock.frozen_at, datetime | None)
    with assert_no_leaks(engine) as leaks:
        assert_type(len(leaks), int)


class TestMyStore(StoreContract):
    def rig(self) -> StoreRig:
        raise NotImplementedError


def mistakes(ttl_clock: TTLClock) -> None:
    """Each line is one."""
    engine = create_engine("sqlite://")
    Sweeper(engine, Base, max_row=1)  # type: ignore[call-arg]
    Sweeper(engine, Base, max_rows="many")  # type: ignore[arg-type]
    Sweeper(engine).run_once().deleted = 5  # type: ignore[misc]
    Hook(told, when="later")  # type: ignore[arg-type]
    ttl_clock.advance("60")  # type: ignore[arg-type]
