"""`EventWorker` and `AsyncEventWorker`: they sweep the tables with events, and deliver the events.

An event is recorded in the transaction that deletes its row. So that this happens when the row
expires, and not at the next hourly sweep, a worker sweeps the tables with events twice a second,
under a lease of its own: one of many workers sweeps. After each sweep it records the warnings that
are due. All workers deliver.

This module must not know any database.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import isawaitable
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.handlers import Handler, adapter_of, handlers, rest_after
from ttl_odm.events.intervals import Resubscription
from ttl_odm.sweeper import AsyncSweeper, Ending, StoreError, Sweeper, TransientStoreError
from ttl_odm.sweeper.stop import Stop, time_limit_of

if TYPE_CHECKING:
    from ttl_odm.events.outbox import (
        AsyncOutbox,
        AsyncWarnings,
        Delivery,
        Outbox,
        Warnings,
    )
    from ttl_odm.sweeper import SweepReport

logger: Final = logging.getLogger("ttl_odm.events")

LEASE: Final = "ttl_odm_events"
"""The name of the workers' lease."""

_LEFT_TO_OTHERS: Final = (Ending.LEASE_HELD, Ending.STANDBY)

LEASE_DURATION: Final = 10.0
"""The seconds after which another worker sweeps in place of one that died."""

POLL: Final = 0.5
HIDDEN: Final = 60.0
BATCH: Final = 100
"""The most events of a handler that a worker takes at once."""

MOMENT: Final = 0.5
"""The seconds that a handler should need for the events that are taken at once.

If the worker dies before these are over, events that the handler has dealt with come again.
"""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The results of deliveries.

    Attributes:
        done: How many events the handler has dealt with.
        failed: How many events will be delivered again.
        dead: How many events won't be delivered any more, since they have failed too often.
    """

    done: int = 0
    failed: int = 0
    dead: int = 0

    def __add__(self, other: Delivered) -> Delivered:
        return Delivered(self.done + other.done, self.failed + other.failed, self.dead + other.dead)

    @property
    def total(self) -> int:
        """The number of deliveries."""
        return self.done + self.failed + self.dead


OnDelivered: TypeAlias = Callable[[Delivered, str], object]
"""A callback that gets the results of some deliveries, and the name of their consumer."""

OnReport: TypeAlias = Callable[["SweepReport"], object]
"""A callback that gets the report of a sweep that records events."""


@dataclass(slots=True)
class _Batch:
    """The events of a handler that are taken at once: as many as it deals with in a `MOMENT`.

    Attributes:
        size: The number of events.
        began: When they were taken, by `monotonic`.
        done: The deliveries that the handler has dealt with.
    """

    size: int = 1
    began: float = 0.0
    done: list[Delivery] = field(default_factory=list)

    def begin(self) -> None:
        """Note that events are being taken."""
        self.began = monotonic()
        self.done.clear()

    def may_go_on(self, hidden: timedelta) -> bool:
        """Return whether there is time for another event before another worker may take it."""
        return monotonic() - self.began < hidden.total_seconds() / 2

    def end(self, taken: int) -> None:
        """Choose the size of the next batch."""
        seconds = monotonic() - self.began
        if seconds > MOMENT:
            self.size = max(self.size // 2, 1)
        elif taken == self.size and seconds < MOMENT / 2:
            self.size = min(self.size * 2, BATCH)


class Worker:
    """The base of both workers: their arguments, callbacks, and what follows from a failure."""

    _is_async: bool
    _sweeping: Any  # a Sweeper or an AsyncSweeper

    def __init__(  # noqa: PLR0913 (as many as the workers have)
        self,
        engine: object,
        targets: object,
        *,
        poll: float,
        hidden: float,
        on_delivered: OnDelivered | None,
        on_report: OnReport | None,
    ) -> None:
        source = adapter_of(engine).source_of(engine, targets)
        if source.is_async is not self._is_async:
            worker = AsyncEventWorker if source.is_async else EventWorker
            raise TTLConfigurationError(
                f"{type(self).__name__} can't work with {type(engine).__name__}: "
                f"use {worker.__name__}."
            )
        self._source = source
        self._poll = checked_seconds("poll", poll)
        self._hidden = timedelta(seconds=checked_seconds("hidden", hidden))
        self._stop = Stop()
        self._rest = Stop()  # ends the wait for events
        self._takes_all = targets is None
        self._on_delivered = on_delivered
        self._on_report = on_report
        self._batches: defaultdict[str, _Batch] = defaultdict(_Batch)
        self._resubscription = Resubscription()
        self._handlers()

    def _handlers(self) -> list[Handler]:
        """The handlers of the worker's tables; all handlers if it was given no targets."""
        own = [
            handler
            for handler in handlers
            if self._takes_all or handler.table in self._source.tables
        ]
        for handler in own:
            if handler.is_async and not self._is_async:
                raise TTLConfigurationError(
                    f"The handler {handler.consumer} is a coroutine function, which needs an "
                    "AsyncEventWorker."
                )
        return own

    def _sweeper(self, kind: Any, swept: Callable[[SweepReport], object]) -> Any:
        return kind(
            self._source.engine,
            self._source.targets,
            lease_name=LEASE,
            lease_duration=LEASE_DURATION,
            nice=0,  # few rows have expired since the last sweep, and handlers wait for them
            on_report=swept,
        )

    def stop(self) -> None:
        """End `run_forever` after the current events; may be called from any thread or signal."""
        self._stop.ask()
        self._rest.ask()
        self._sweeping.stop()

    def _reported(self, report: SweepReport) -> None:
        """Pass on the report of a sweep, and have the events that it has recorded delivered."""
        if self._on_report is not None:
            self._on_report(report)
        for problem in report.problems:
            logger.warning("Events weren't recorded: %s", problem)
        if report.deleted:
            self._rest.ask()

    def _passed_on(self, delivered: Delivered, handler: Handler) -> Delivered:
        """Pass on the results of a handler's deliveries, if there were any, and return them."""
        if self._on_delivered is not None and delivered.total:
            self._on_delivered(delivered, handler.consumer)
        return delivered

    def _failed(
        self, handler: Handler, delivery: Delivery, error: Exception
    ) -> tuple[str, timedelta | None]:
        """The error to keep of a delivery that has failed, and the rest before the next one.

        The time limit of a queue, in whose task the worker runs, is raised again: the handler
        hasn't failed.
        """
        if (limit := time_limit_of(error)) is not None:
            raise limit
        event, text = delivery.event, f"{type(error).__name__}: {error}"
        is_dead = event.delivery >= handler.attempts
        logger.warning(
            "The handler %s failed on the event %s of %s, delivery %d: %s; %s.",
            handler.consumer,
            event.id,
            event.table,
            event.delivery,
            text,
            "it is dead" if is_dead else "it will be delivered again",
            exc_info=error,
        )
        return text, None if is_dead else rest_after(event.delivery)


class EventWorker(Worker):
    """Records and delivers events: ``EventWorker(engine, Base).run_forever()``."""

    _is_async = False

    def __init__(  # noqa: PLR0913 (options, by keyword)
        self,
        engine: object,
        targets: object = None,
        *,
        poll: float = POLL,
        hidden: float = HIDDEN,
        on_delivered: OnDelivered | None = None,
        on_report: OnReport | None = None,
    ) -> None:
        """Find the models with events, and their handlers.

        Args:
            engine: An Engine.
            targets: The models whose events are recorded and delivered, as a `Sweeper` takes
                them; None for all models with events.
            poll: Seconds between two looks for expired rows, and for events.
            hidden: Seconds after which an event is delivered again if its handler hasn't returned,
                since its worker may have died. No handler should take longer.
            on_delivered: Called after some events were delivered to a handler, with their
                `Delivered` and the name of the handler's consumer; for metrics.
            on_report: Called with the `SweepReport` of each sweep, in the sweep's thread; for
                metrics.

        Raises:
            TTLConfigurationError: There is no model with events, the engine is asynchronous, or a
                handler is a coroutine function.
        """
        super().__init__(
            engine,
            targets,
            poll=poll,
            hidden=hidden,
            on_delivered=on_delivered,
            on_report=on_report,
        )
        self._outbox: Outbox = self._source.outbox()
        self._warnings: Warnings | None = self._source.warnings()
        self._sweeping: Sweeper = self._sweeper(Sweeper, self._swept)

    def run_once(self) -> Delivered:
        """Sweep once, and deliver the events that are due then, once.

        It delivers events even if another worker sweeps, or the sweep fails.
        """
        self._subscribe()
        self._swept(self._sweeping.run_once())
        return self._deliver_all()

    def run_forever(self) -> None:
        """Sweep and deliver until `stop` is called.

        It sweeps in a thread of its own, so that a slow handler doesn't delay the events of other
        rows. While the database is unreachable, it retries.
        """
        self._subscribe()
        with ThreadPoolExecutor(1, LEASE) as threads:
            sweep = threads.submit(self._sweep)
            try:
                while not sweep.done():
                    self._rest = Stop()  # before the look: no sweep after that is missed
                    if self._stop.asked:
                        break
                    if not self._delivered():
                        self._rest.wait(self._poll)
            finally:
                self._sweeping.stop()
            sweep.result()

    def _sweep(self) -> None:
        """Sweep until `stop` is called; runs in a thread of its own."""
        try:
            self._sweeping.run_forever(interval=self._poll, jitter=0.0)
        finally:
            self._source.leave_thread()

    def _swept(self, report: SweepReport) -> None:
        """Record warnings after a sweep, unless another worker does, and have them delivered."""
        self._reported(report)
        if self._warnings is None or report.ended in _LEFT_TO_OTHERS:
            return
        try:
            if self._warnings.record():
                self._rest.ask()
        except StoreError as error:
            logger.warning("Warnings weren't recorded: %s", error)

    def _delivered(self) -> bool:
        """Deliver the events that are due; return whether there were any."""
        try:
            if self._resubscription.is_due:
                self._subscribe()
            return self._deliver_all().total > 0
        except TransientStoreError as error:
            logger.warning("Events weren't delivered: %s", error)
            return False

    def _subscribe(self) -> None:
        self._resubscription.begin()
        unsettled = [
            self._outbox.subscribe(handler.consumer, [handler.subscription])
            for handler in self._handlers()
        ]
        self._resubscription.end(is_unsettled=any(unsettled))

    def _deliver_all(self) -> Delivered:
        result = Delivered()
        for handler in self._handlers():
            batch, remaining = self._batches[handler.consumer], BATCH
            while remaining > 0 and not self._stop.asked:
                taken, delivered = self._deliver_batch(handler, batch)
                result += self._passed_on(delivered, handler)
                # If it took few, another worker may have taken others of those it found.
                remaining = remaining - taken if taken else 0
        return result

    def _deliver_batch(self, handler: Handler, batch: _Batch) -> tuple[int, Delivered]:
        """Take events and deliver them; return how many were taken, and the results."""
        batch.begin()
        taken = self._outbox.take(handler.consumer, batch.size, self._hidden)
        delivered = Delivered()
        try:
            for delivery in taken:
                if batch.may_go_on(self._hidden):
                    delivered += self._deliver(handler, delivery, batch)
        finally:
            if batch.done:
                self._outbox.done(batch.done)
        batch.end(len(taken))
        return len(taken), delivered

    def _deliver(self, handler: Handler, delivery: Delivery, batch: _Batch) -> Delivered:
        if self._warnings is not None and not self._warnings.hold(delivery.event):
            batch.done.append(delivery)
            return Delivered()
        try:
            handler.call(delivery.event)
        except Exception as error:  # noqa: BLE001 (the application's)
            text, rest = self._failed(handler, delivery, error)
            self._outbox.failed(delivery, text, rest)
            return Delivered(dead=1) if rest is None else Delivered(failed=1)
        batch.done.append(delivery)
        return Delivered(done=1)


class AsyncEventWorker(Worker):
    """`EventWorker` for an AsyncEngine, or MongoDB; handlers may be coroutine functions."""

    _is_async = True

    def __init__(  # noqa: PLR0913 (options, by keyword)
        self,
        engine: object,
        targets: object = None,
        *,
        poll: float = POLL,
        hidden: float = HIDDEN,
        on_delivered: OnDelivered | None = None,
        on_report: OnReport | None = None,
    ) -> None:
        """Find the models with events, and their handlers.

        Args:
            engine: An AsyncEngine; or a database of PyMongo's asynchronous driver or Motor.
            targets: The models whose events are recorded and delivered, as an `AsyncSweeper` takes
                them; None for all models with events.
            poll: Seconds between two looks for expired rows, and for events.
            hidden: Seconds after which an event is delivered again if its handler hasn't returned,
                since its worker may have died. No handler should take longer.
            on_delivered: Called after some events were delivered to a handler, with their
                `Delivered` and the name of the handler's consumer; for metrics.
            on_report: Called with the `SweepReport` of each sweep; for metrics.

        Raises:
            TTLConfigurationError: There is no model with events, or the engine is synchronous.
        """
        super().__init__(
            engine,
            targets,
            poll=poll,
            hidden=hidden,
            on_delivered=on_delivered,
            on_report=on_report,
        )
        self._outbox: AsyncOutbox = self._source.outbox()
        self._warnings: AsyncWarnings | None = self._source.warnings()
        self._sweeping: AsyncSweeper = self._sweeper(AsyncSweeper, self._swept)

    async def run_once(self) -> Delivered:
        """Sweep once, and deliver the events that are due then; see `EventWorker.run_once`."""
        await self._subscribe()
        await self._swept(await self._sweeping.run_once())
        return await self._deliver_all()

    async def run_forever(self) -> None:
        """Sweep and deliver until `stop` is called, or the task is cancelled.

        While the database is unreachable, it retries.
        """
        await self._subscribe()
        sweep = asyncio.ensure_future(self._sweeping.run_forever(interval=self._poll, jitter=0.0))
        try:
            while not sweep.done():
                self._rest = Stop()  # before the look: no sweep after that is missed
                if self._stop.asked:
                    break
                if not await self._delivered():
                    await self._rest.wait_async(self._poll)
        finally:
            self._sweeping.stop()
            await sweep

    async def _swept(self, report: SweepReport) -> None:
        """Record warnings after a sweep, unless another worker does, and have them delivered."""
        self._reported(report)
        if self._warnings is None or report.ended in _LEFT_TO_OTHERS:
            return
        try:
            if await self._warnings.record():
                self._rest.ask()
        except StoreError as error:
            logger.warning("Warnings weren't recorded: %s", error)

    async def _delivered(self) -> bool:
        """Deliver the events that are due; return whether there were any."""
        try:
            if self._resubscription.is_due:
                await self._subscribe()
            return (await self._deliver_all()).total > 0
        except TransientStoreError as error:
            logger.warning("Events weren't delivered: %s", error)
            return False

    async def _subscribe(self) -> None:
        self._resubscription.begin()
        unsettled = [
            await self._outbox.subscribe(handler.consumer, [handler.subscription])
            for handler in self._handlers()
        ]
        self._resubscription.end(is_unsettled=any(unsettled))

    async def _deliver_all(self) -> Delivered:
        result = Delivered()
        for handler in self._handlers():
            batch, remaining = self._batches[handler.consumer], BATCH
            while remaining > 0 and not self._stop.asked:
                taken, delivered = await self._deliver_batch(handler, batch)
                result += self._passed_on(delivered, handler)
                # If it took few, another worker may have taken others of those it found.
                remaining = remaining - taken if taken else 0
        return result

    async def _deliver_batch(self, handler: Handler, batch: _Batch) -> tuple[int, Delivered]:
        """Take events and deliver them; return how many were taken, and the results."""
        batch.begin()
        taken = await self._outbox.take(handler.consumer, batch.size, self._hidden)
        delivered = Delivered()
        try:
            for delivery in taken:
                if batch.may_go_on(self._hidden):
                    delivered += await self._deliver(handler, delivery, batch)
        finally:
            if batch.done:
                await self._outbox.done(batch.done)
        batch.end(len(taken))
        return len(taken), delivered

    async def _deliver(self, handler: Handler, delivery: Delivery, batch: _Batch) -> Delivered:
        if self._warnings is not None and not await self._warnings.hold(delivery.event):
            batch.done.append(delivery)
            return Delivered()
        try:
            called = handler.call(delivery.event)
            if isawaitable(called):
                await called
        except Exception as error:  # noqa: BLE001 (the application's)
            text, rest = self._failed(handler, delivery, error)
            await self._outbox.failed(delivery, text, rest)
            return Delivered(dead=1) if rest is None else Delivered(failed=1)
        batch.done.append(delivery)
        return Delivered(done=1)


def checked_seconds(name: str, value: float) -> float:
    """Return an argument that is a number of seconds.

    Raises:
        TTLConfigurationError: It isn't a number of seconds above 0.
    """
    number: object = value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number < inf:
        raise TTLConfigurationError(f"{name} = {value!r}: give seconds, more than 0.")
    return value
