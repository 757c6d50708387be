"""FastAPI, Starlette, Litestar: sweepers that run as long as the application does.

One module serves all three, since only their lifespan matters. This module must not know any of
them, nor any database.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import AsyncSweeper, Sweeper
from ttl_odm.sweeper.options import check_interval
from ttl_odm.sweeper.sweeper import INTERVAL, JITTER

if TYPE_CHECKING:
    from ttl_odm.sweeper import SweepReport

logger = logging.getLogger(__name__)


class Sweeping(AbstractAsyncContextManager[None]):
    """A context manager that runs sweepers in the background; also works as a lifespan.

    On its own: ``FastAPI(lifespan=Sweeping(sweeper))`` or
    ``Litestar(lifespan=[Sweeping(sweeper)])``. Within your own lifespan::

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            await init_beanie(database=database, document_models=[Event])
            async with Sweeping(AsyncSweeper(engine, Base), AsyncSweeper(database, [Event])):
                yield

    On exit, each sweeper finishes its current batch and releases its lease. So close the engines
    after that, not before.
    """

    def __init__(
        self, *sweepers: AsyncSweeper | Sweeper, interval: float = INTERVAL, jitter: float = JITTER
    ) -> None:
        """Store what to run.

        Args:
            sweepers: An `AsyncSweeper` can be run any number of times. A `Sweeper`, which runs in
                a thread, stays stopped afterwards: create it within the lifespan.
            interval: Seconds from the end of one sweep to the start of the next.
            jitter: How far the interval varies at random, up or down, as a share of it.

        Raises:
            TTLConfigurationError: One of them isn't a sweeper.
        """
        for sweeper in sweepers:
            if not isinstance(sweeper, (AsyncSweeper, Sweeper)):
                raise TTLConfigurationError(
                    f"Sweeping({sweeper!r}): pass sweepers, such as AsyncSweeper(engine, Base)."
                )
        check_interval(interval, jitter)
        self._sweepers = sweepers
        self._interval = interval
        self._jitter = jitter
        self._tasks: list[asyncio.Task[SweepReport | None]] = []

    def __call__(self, _app: object) -> Sweeping:
        """Make the context manager of one application, as a framework calls a lifespan."""
        return Sweeping(*self._sweepers, interval=self._interval, jitter=self._jitter)

    async def __aenter__(self) -> None:
        for sweeper in self._sweepers:
            task = asyncio.create_task(self._run(sweeper), name="ttl_odm sweeper")
            task.add_done_callback(partial(_log_end, sweeper))
            self._tasks.append(task)

    async def __aexit__(self, *_: object) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        # A cancellation here is their second one, so they don't finish their batch.
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, sweeper: AsyncSweeper | Sweeper) -> SweepReport | None:
        if isinstance(sweeper, AsyncSweeper):
            return await sweeper.run_forever(interval=self._interval, jitter=self._jitter)
        thread = asyncio.ensure_future(
            asyncio.to_thread(sweeper.run_forever, interval=self._interval, jitter=self._jitter)
        )
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            sweeper.stop()
            await asyncio.wait([thread])
            raise


def _log_end(sweeper: AsyncSweeper | Sweeper, task: asyncio.Task[SweepReport | None]) -> None:
    """Log a sweeper's end before the application's, since expired rows pile up from then on."""
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        logger.error("A sweeper has ended with an error", exc_info=error)
    elif sweeper.ended_at_standby(task.result()):
        logger.warning(
            'A sweeper has ended, because its server takes no writes and standby is "exit". It '
            "starts again with the application"
        )
    else:
        logger.warning(
            "A sweeper has ended, because it was stopped. A stopped sweeper can't be restarted"
        )
