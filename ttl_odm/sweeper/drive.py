"""Carrying a plan out: the two drivers, one for a `Store`, one for an `AsyncStore`.

A driver asks the store, measures, waits and tells; it decides nothing. What the store raises goes
into the plan. What ends the driver itself (a closed terminal, a cancelled task, an error in the
caller's own callback) closes the plan and goes on to the caller.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ttl_odm.sweeper.plan import Command, Emit, FindDue, Now, Pause, Plan, PurgeBatch
from ttl_odm.sweeper.report import Progress

if TYPE_CHECKING:
    from ttl_odm.sweeper.store import AsyncStore, Store

T = TypeVar("T")

OnProgress = Callable[[Progress], object]
"""Called after each batch."""


def drive(plan: Plan[T], store: Store, on_progress: OnProgress | None = None) -> T:
    """Carry a plan out with a synchronous store, and return what it returns."""
    step: Callable[[], Command[Any]] = partial(next, plan)
    with closing(plan):
        while True:
            try:
                command = step()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(command, Emit):  # outside the try: what a callback raises is the caller's
                reply: object = on_progress and on_progress(command.event)
            else:
                try:
                    reply = _do(command, store)
                except Exception as error:  # noqa: BLE001 (the plan decides)
                    step = partial(plan.throw, error)
                    continue
            step = partial(plan.send, reply)


def _do(command: Command[Any], store: Store) -> object:
    match command:
        case Now():
            return time.monotonic()
        case Pause(seconds):
            time.sleep(seconds)
            return None
        case FindDue(target):
            return store.due(target)
        case PurgeBatch(target, part, size, resume):
            began = time.monotonic()
            result = store.purge(target, part, size, resume)
            return replace(result, elapsed=time.monotonic() - began)
    raise _unknown(command)


async def drive_async(plan: Plan[T], store: AsyncStore, on_progress: OnProgress | None = None) -> T:
    """Carry a plan out with an asynchronous store, and return what it returns."""
    step: Callable[[], Command[Any]] = partial(next, plan)
    with closing(plan):
        while True:
            try:
                command = step()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(command, Emit):
                reply: object = on_progress and on_progress(command.event)
            else:
                try:
                    reply = await _do_async(command, store)
                except Exception as error:  # noqa: BLE001 (the plan decides)
                    step = partial(plan.throw, error)
                    continue
            step = partial(plan.send, reply)


async def _do_async(command: Command[Any], store: AsyncStore) -> object:
    match command:
        case Now():
            return time.monotonic()
        case Pause(seconds):
            await asyncio.sleep(seconds)
            return None
        case FindDue(target):
            return await store.due(target)
        case PurgeBatch(target, part, size, resume):
            began = time.monotonic()
            result = await store.purge(target, part, size, resume)
            return replace(result, elapsed=time.monotonic() - began)
    raise _unknown(command)


def _unknown(command: object) -> TypeError:
    return TypeError(f"No driver knows the command {command!r}.")
