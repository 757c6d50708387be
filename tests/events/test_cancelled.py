"""A worker that is cancelled in the middle of a statement leaves no lock behind."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event, text

from tests.events.holds import HOUR, seat_hold
from ttl_odm.events import record_expired
from ttl_odm.events.outbox import Subscription
from ttl_odm.events.sqlalchemy import source_of
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.testing import TTLClock


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("ticks", [1, 3])
@pytest.mark.parametrize("place", range(4))
async def test_a_file_is_free_after_events_were_being_taken(
    async_engine: AsyncEngine, ttl_clock: TTLClock, place: int, ticks: int
) -> None:
    model = seat_hold()
    record_expired(model)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        rows = [{"seat": f"A{number}", "person": "ann"} for number in range(3)]
        await connection.execute(model.__table__.insert(), rows)
    ttl_clock.advance(HOUR)
    assert (await AsyncSweeper(async_engine, model).run_once()).deleted == 3
    outbox: Any = source_of(async_engine, model).outbox()
    await outbox.subscribe("release", [Subscription("seat_holds")])
    statements, reached = 0, asyncio.Event()

    def count(*_: Any) -> None:
        nonlocal statements
        if statements == place:
            reached.set()
        statements += 1

    event.listen(async_engine.sync_engine, "before_cursor_execute", count)
    task = asyncio.create_task(outbox.take("release", 10, timedelta(minutes=1)))
    await reached.wait()
    for _ in range(2):
        task.cancel()
        for _ in range(ticks):
            await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    event.remove(async_engine.sync_engine, "before_cursor_execute", count)
    other = create_engine(
        async_engine.sync_engine.url.set(drivername="sqlite"),
        connect_args={"timeout": 0},
        isolation_level="AUTOCOMMIT",
    )
    with other.connect() as connection_of_another:
        connection_of_another.execute(text("BEGIN EXCLUSIVE"))
        connection_of_another.execute(text("ROLLBACK"))
    other.dispose()
