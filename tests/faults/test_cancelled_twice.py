"""An asynchronous sweep that is cancelled again and again: no lock stays behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event, text

from tests.sql.sweeping import HOUR, add, cart
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("ticks", [1, 3])
@pytest.mark.parametrize("cancellations", [2, 3])
async def test_a_file_is_free_after_a_sweep_that_was_cancelled_more_than_once(
    async_engine: AsyncEngine, cancellations: int, ticks: int
) -> None:
    model, statements = cart(), 0
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
    other = create_engine(
        async_engine.sync_engine.url.set(drivername="sqlite"),
        connect_args={"timeout": 0},
        isolation_level="AUTOCOMMIT",
    )
    for place in range(6):
        async with async_engine.begin() as connection:
            await connection.run_sync(add, "carts", [(100 + place, None, 2 * HOUR)])
        statements, reached = 0, asyncio.Event()

        def count(*_: Any, at: int = place, reached: asyncio.Event = reached) -> None:
            nonlocal statements
            if statements == at:
                reached.set()
            statements += 1

        event.listen(async_engine.sync_engine, "before_cursor_execute", count)
        task = asyncio.create_task(
            AsyncSweeper(async_engine, model, lease_name=str(place)).run_once()
        )
        await reached.wait()
        for _ in range(cancellations):
            task.cancel()
            for _ in range(ticks):
                await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task
        event.remove(async_engine.sync_engine, "before_cursor_execute", count)
        with other.connect() as connection_of_another:
            connection_of_another.execute(text("BEGIN EXCLUSIVE"))
            connection_of_another.execute(text("ROLLBACK"))
    other.dispose()
