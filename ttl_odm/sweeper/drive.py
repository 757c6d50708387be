"""Carrying a plan out: the two drivers, one for a `Store`, one for an `AsyncStore`.

A driver asks the store, measures, waits and tells; it decides nothing. What the store raises goes
into the plan. What ends the driver itself (a closed terminal, a cancelled task, an error in the
caller's own callback) closes the plan, gives the lease back, and goes on to the caller.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ttl_odm.sweeper import commands as c
from ttl_odm.sweeper.logs import logger
from ttl_odm.sweeper.phases import timed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from ttl_odm.sweeper.ports import Ports

T = TypeVar("T")


def drive(plan: c.Plan[T], ports: Ports) -> T:
    """Carry a plan out with a synchronous store, and return what it returns."""
    step: Callable[[], c.Command[Any]] = partial(next, plan)
    with _held(ports), closing(plan):
        while True:
            try:
                command = step()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(command, c.Emit):  # what a callback raises is the caller's
                call = ports.callback(command.event)
                step = partial(plan.send, call and call())
                continue
            try:
                step = partial(plan.send, _do(command, ports))
            except Exception as error:  # noqa: BLE001 (the plan decides)
                ports.refused(command, error)
                step = partial(plan.throw, error)


def _do(command: c.Command[Any], ports: Ports) -> object:
    match command:
        case c.Pause(seconds):
            ports.stop.wait(seconds)
            return None
        case c.AskThrottle():
            return ports.throttle and ports.throttle()
        case c.Tell(hooks, purged):
            hooks.tell(purged, "commit")
            return None
    local = ports.local(command)
    if local is not None:
        return local()
    with timed() as watch:
        reply = ports.remote(command)()
    return ports.noted(command, reply, watch)


@contextmanager
def _held(ports: Ports) -> Iterator[None]:
    try:
        yield
    finally:
        if ports.lease is not None:
            try:
                ports.leases.release(ports.lease)
            except Exception as error:  # noqa: BLE001 (see there)
                _not_released(error)


async def drive_async(plan: c.Plan[T], ports: Ports) -> T:
    """Carry a plan out with an asynchronous store, and return what it returns.

    A task that is cancelled finishes the command at hand, stops as if it had been asked to, and is
    cancelled then. See `_undivided`.
    """
    step: Callable[[], c.Command[Any]] = partial(next, plan)
    async with _held_async(ports):
        with closing(plan):
            while True:
                try:
                    command = step()
                except StopIteration as end:
                    if ports.cancelled is not None:
                        raise ports.cancelled from None
                    return end.value  # type: ignore[no-any-return]
                if isinstance(command, c.Emit):
                    call = ports.callback(command.event)
                    step = partial(plan.send, call and await _interruptible(call, ports))
                    continue
                try:
                    step = partial(plan.send, await _do_async(command, ports))
                except Exception as error:  # noqa: BLE001 (the plan decides)
                    ports.refused(command, error)
                    step = partial(plan.throw, error)


async def _do_async(command: c.Command[Any], ports: Ports) -> object:
    match command:
        case c.IsStopping():
            # A task that was cancelled hears of it when it waits the next time: now.
            await _interruptible(partial(asyncio.sleep, 0), ports)
            return ports.is_stopping()
        case c.Pause(seconds):
            if ports.is_stopping():
                return None
            return await _interruptible(partial(ports.stop.wait_async, seconds), ports)
        case c.AskThrottle():
            return ports.throttle and await _interruptible(ports.throttle, ports)
        case c.Tell(hooks, purged):
            return await _undivided(hooks.tell_async(purged, "commit"), ports)
    local = ports.local(command)
    return local() if local is not None else await _undivided(_ask_async(command, ports), ports)


async def _ask_async(command: c.Command[Any], ports: Ports) -> object:
    with timed() as watch:
        reply = await ports.remote(command)()
    return ports.noted(command, reply, watch)


@asynccontextmanager
async def _held_async(ports: Ports) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if ports.lease is not None:
            try:
                await _undivided(ports.leases.release(ports.lease), ports)
            except Exception as error:  # noqa: BLE001 (see there)
                _not_released(error)


async def _undivided(work: Coroutine[Any, Any, T], ports: Ports) -> T:
    """Await something to its end, also when our own task is cancelled meanwhile.

    Drivers take a cancellation in the middle of a statement badly: aiosqlite's thread goes on and
    keeps the file locked, others throw the connection away. And whether the batch was committed
    would be anybody's guess. A second cancellation does interrupt it.
    """
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            if ports.cancelled is not None:
                task.cancel()
                await asyncio.wait([task])
                raise
            ports.cancelled = error


async def _interruptible(call: Callable[[], Any], ports: Ports) -> Any:
    """Call something, await it if need be, and end at once when our own task is cancelled."""
    try:
        reply = call()
        return await reply if inspect.isawaitable(reply) else reply
    except asyncio.CancelledError as error:
        if ports.cancelled is not None:
            raise
        ports.cancelled = error
        return None


def _not_released(error: Exception) -> None:
    # It ends by itself; what brought us here must not be hidden.
    logger.warning("The lease could not be given back and lasts until its end: %s", error)
