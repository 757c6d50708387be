"""Batches that are under way beside each other: in threads for a `Store`, else in tasks.

A driver begins them, and waits for the next that is over; nothing here decides anything. Whatever
ends a driver waits for all of them first, since they need the lease.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from ttl_odm.sweeper.pace import MOST_WORKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future, ThreadPoolExecutor

    from ttl_odm.sweeper.store import BatchRequest


class Threads:
    """Batches that run in a thread each."""

    def __init__(self) -> None:
        """Start none before there is a batch."""
        self._pool: ThreadPoolExecutor | None = None
        self._batches: dict[Future[Any], BatchRequest] = {}

    def begin(self, request: BatchRequest, purge: Callable[[BatchRequest], Any]) -> None:
        """Let `purge` run, in a copy of the caller's context: its trace, its user."""
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 (few need it)

            self._pool = ThreadPoolExecutor(MOST_WORKERS, thread_name_prefix="ttl_odm-sweeper")
        self._batches[self._pool.submit(copy_context().run, purge, request)] = request

    def next(self) -> tuple[BatchRequest, Any]:
        """Wait for one that is over; return what came of it, or the error."""
        from concurrent.futures import FIRST_COMPLETED, wait  # noqa: PLC0415 (see above)

        over = wait(self._batches, return_when=FIRST_COMPLETED).done
        batch = next(each for each in self._batches if each in over)
        return self._batches.pop(batch), batch.exception() or batch.result()

    def close(self) -> None:
        """Wait for all of them."""
        if self._pool is not None:
            self._pool.shutdown()


class Tasks:
    """Batches that run in a task each."""

    def __init__(self) -> None:
        """Have none."""
        self._batches: dict[asyncio.Task[Any], BatchRequest] = {}

    def begin(
        self, request: BatchRequest, purge: Callable[[BatchRequest], Coroutine[Any, Any, Any]]
    ) -> None:
        """Let `purge` run."""
        self._batches[asyncio.ensure_future(purge(request))] = request

    async def next(self) -> tuple[BatchRequest, Any]:
        """Wait for one that is over; return what came of it, or the error."""
        over, _ = await asyncio.wait(self._batches, return_when=asyncio.FIRST_COMPLETED)
        batch = next(each for each in self._batches if each in over)
        return self._batches.pop(batch), batch.exception() or batch.result()

    async def close(self, *, in_a_hurry: bool) -> None:
        """Wait for all of them, whoever doesn't want to; `in_a_hurry` where a store lets them."""
        while left := [batch for batch in self._batches if not batch.done()]:
            for batch in left * in_a_hurry:
                batch.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait(left)
