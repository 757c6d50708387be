"""What a driver may touch, and how each command is answered; the same for both drivers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ttl_odm.sweeper import commands as c
from ttl_odm.sweeper.hooks import Hooks
from ttl_odm.sweeper.logs import log_batch, log_report, log_trouble
from ttl_odm.sweeper.report import Progress, SweepReport
from ttl_odm.sweeper.stopping import Stop
from ttl_odm.sweeper.store import Hooking, TransientStoreError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ttl_odm.sweeper.leases import Lease
    from ttl_odm.sweeper.options import OnProgress, OnReport, Throttle
    from ttl_odm.sweeper.phases import Stopwatch


@dataclass(slots=True)
class Ports:
    """What one run of a plan may touch, and what it has to give back.

    Attributes:
        store: A `Store`, or an `AsyncStore`; with what else it offers.
        leases: Where leases are kept; None if nothing asks for one.
        throttle: Asked before each batch.
        on_progress: Called after each batch.
        on_report: Called after each sweep of many.
        stop: Whether to stop.
        lease: The one that is held.
        cancelled: The cancellation that is to be obeyed when the plan has come to its end.
        trouble: What the database has said since it last answered.
    """

    store: Any
    leases: Any = None
    throttle: Throttle | None = None
    on_progress: OnProgress | None = None
    on_report: OnReport | None = None
    stop: Stop = field(default_factory=Stop)
    lease: Lease | None = None
    cancelled: asyncio.CancelledError | None = None
    trouble: str = ""

    def is_stopping(self) -> bool:
        """Whether anything wants the plan to come to its end."""
        return self.stop.asked or self.cancelled is not None

    def callback(self, event: Progress | SweepReport) -> Callable[[], object] | None:
        """The caller's function for an event, with the event, which is logged as well."""
        if isinstance(event, Progress):
            log_batch(event, self.store)
            return self.on_progress and partial(self.on_progress, event)
        log_report(event, self.store)
        return self.on_report and partial(self.on_report, event)

    def local(self, command: c.Command[Any]) -> Callable[[], Any] | None:
        """Return what answers a command without a database; None where one has to be asked."""
        match command:
            case c.Now():
                return time.monotonic
            case c.IsStopping():
                return self.is_stopping
            case c.ListTargets():
                return partial(self.store.targets)
            case c.ListHooks():
                return lambda: self.store.hooks if isinstance(self.store, Hooking) else Hooks()
        return None

    def remote(self, command: c.Command[Any]) -> Callable[[], Any]:
        """Return what asks the database, or the service that keeps the leases."""
        asks: Callable[[], Any] | None = None
        match command:
            case c.DatabaseNow():
                asks = partial(self.store.now)
            case c.FindDue(target):
                asks = partial(self.store.due, target)
            case c.CountDue(target):
                asks = partial(self.store.count, target)
            case c.PurgeBatch(request):
                asks = partial(self.store.purge, request)
            case c.Acquire(name, holder, duration):
                asks = partial(self.leases.acquire, name, holder, duration)
            case c.Renew(lease):
                asks = partial(self.leases.renew, lease)
            case c.ReadLease(name):
                asks = partial(self.leases.read, name)
            case c.Record(lease, history):
                asks = partial(self.leases.record, lease, history)
        if asks is None:
            raise TypeError(f"No driver knows the command {command!r}.")
        return asks

    def noted(self, command: c.Command[Any], reply: Any, watch: Stopwatch) -> Any:
        """Remember the lease, and write down how long a batch took, and for what."""
        if not isinstance(command, c.ReadLease):  # which is looked at between two tries
            self.trouble = ""
        match command:
            case c.Acquire():
                self.lease = reply or self.lease
            case c.Renew() if not reply:
                self.lease = None
            case c.PurgeBatch():
                return replace(reply, elapsed=sum(watch.seconds.values()), phases=watch.seconds)
        return reply

    def refused(self, command: c.Command[Any], error: Exception) -> None:
        """Log that a command has failed, and may be given again; the same trouble only once.

        Batches have records of their own, and what doesn't pass is in the report.
        """
        passes = isinstance(error, TransientStoreError) and not isinstance(command, c.PurgeBatch)
        if passes and str(error) != self.trouble:
            self.trouble = str(error)
            log_trouble(type(command).__name__, error, self.store)
