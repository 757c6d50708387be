"""An application with a lifespan that sweeps a store."""

import asyncio

from fastapi import FastAPI

from ttl_odm.integrations.fastapi import Sweeping
from ttl_odm.sweeper import AsyncSweeper
from ttl_odm.testing import AsyncInMemoryStore


async def main() -> None:
    swept = asyncio.Event()
    sweeper = AsyncSweeper(AsyncInMemoryStore(), on_report=lambda _report: swept.set())
    app = FastAPI(lifespan=Sweeping(sweeper))
    async with app.router.lifespan_context(app):
        await asyncio.wait_for(swept.wait(), timeout=600)


asyncio.run(main())
