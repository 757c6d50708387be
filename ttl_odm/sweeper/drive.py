"""Carrying a plan out: the two drivers, one for a `Store`, one for an `AsyncStore`.

A driver asks the store, measures, waits and reports; it decides nothing. What the store raises
goes into the plan. What ends the driver itself (a closed terminal, a cancelled task, an error in
the caller's own callback) closes the plan, gives the lease back, and goes on to the caller.
`Ports` is what both may touch, and how each command is answered.

What goes on is logged by the standard library's ``logging``, as ``ttl_odm.sweeper``. A record's
message is for people; the same is in its attributes (``extra``), which formatters for machines
print as fields. docs/metrics.md lists them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ttl_odm.sweeper import commands as c
from ttl_odm.sweeper.hooks import Hooks
from ttl_odm.sweeper.phases import timed
from ttl_odm.sweeper.report import Progress, SweepReport
from ttl_odm.sweeper.stop import Stop
from ttl_odm.sweeper.store import FactCounting, Hooking, TransientStoreError, backend_of
from ttl_odm.sweeper.text import visible
from ttl_odm.sweeper.under_way import Tasks, Threads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from ttl_odm.sweeper.facts import Fact
    from ttl_odm.sweeper.leases import Lease
    from ttl_odm.sweeper.options import OnProgress, OnReport, Throttle
    from ttl_odm.sweeper.phases import Stopwatch
    from ttl_odm.sweeper.store import Counted

T = TypeVar("T")

logger: Final = logging.getLogger("ttl_odm.sweeper")


def _count_with_facts(store: Any, target: str) -> Any:
    """What a store counts, with further facts; an awaitable if the store is asynchronous."""
    counted = store.count(target)
    if inspect.isawaitable(counted):
        return _await_with_facts(store, target, counted)
    return _with(counted, store.count_facts(target)) if counted.due else counted


async def _await_with_facts(store: Any, target: str, counting: Awaitable[Counted]) -> Counted:
    counted = await counting
    return _with(counted, await store.count_facts(target)) if counted.due else counted


def _with(counted: Counted, facts: Mapping[str, Fact]) -> Counted:
    return replace(counted, facts={**counted.facts, **facts})


@dataclass(slots=True)
class Ports:
    """What one run of a plan may touch, and what it has to give back.

    Attributes:
        leases: Where leases are kept; None if nothing asks for one.
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
            _log_batch(event, self.store)
            return self.on_progress and partial(self.on_progress, event)
        _log_report(event, self.store)
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
            case c.CountDue(target, with_facts):
                asks = partial(self.store.count, target)
                if with_facts and isinstance(self.store, FactCounting):
                    asks = partial(_count_with_facts, self.store, target)
            case c.PurgeBatch(request):
                asks = partial(self.store.purge, request)
            case c.Divide(request, shares):
                asks = partial(self.store.divide, request, shares)
        return asks or self._of_leases(command)

    def _of_leases(self, command: c.Command[Any]) -> Callable[[], Any]:
        match command:
            case c.Acquire(name, holder, duration):
                return partial(self.leases.acquire, name, holder, duration)
            case c.Renew(lease):
                return partial(self.leases.renew, lease)
            case c.ReadLease(name):
                return partial(self.leases.read, name)
            case c.Record(lease, history):
                return partial(self.leases.record, lease, history)
        raise TypeError(f"No driver knows the command {command!r}.")

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
            name = type(command).__name__
            fields = {
                "event": "trouble",
                "backend": backend_of(self.store),
                "command": name,
                "error": self.trouble,
                "error_type": type(error).__name__,
            }
            # In one line: drivers add hints in further lines, which log viewers take for records.
            message = "The database doesn't answer (%s); retrying: %s"
            logger.warning(message, name, " ".join(self.trouble.split()), extra=fields)


def drive(plan: c.Plan[T], ports: Ports) -> T:
    """Carry a plan out with a synchronous store, and return what it returns."""
    step: Callable[[], c.Command[Any]] = partial(next, plan)
    threads = Threads()
    try:
        with closing(plan):
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
                    step = partial(plan.send, _do(command, ports, threads))
                except Exception as error:  # noqa: BLE001 (the plan decides)
                    ports.refused(command, error)
                    step = partial(plan.throw, error)
    finally:
        with ExitStack() as ending:
            ending.callback(_release, ports)
            threads.close()


def _release(ports: Ports) -> None:
    if ports.lease is not None:
        try:
            ports.leases.release(ports.lease)
        except Exception as error:  # noqa: BLE001 (see there)
            _not_released(error)


def _do(  # noqa: PLR0911 (one for each kind)
    command: c.Command[Any], ports: Ports, threads: Threads
) -> object:
    match command:
        case c.Pause(seconds):
            ports.stop.wait(seconds)
            return None
        case c.AskThrottle():
            return ports.throttle and ports.throttle()
        case c.CallHooks(hooks, purged):
            hooks.call(purged, "commit")
            return None
        case c.Begin(request):
            threads.begin(request, lambda each: _ask(c.PurgeBatch(each), ports))
            return None
        case c.AwaitBatch():
            return threads.next()
    local = ports.local(command)
    if local is not None:
        return local()
    return _ask(command, ports)


def _ask(command: c.Command[Any], ports: Ports) -> Any:
    with timed() as watch:
        reply = ports.remote(command)()
    return ports.noted(command, reply, watch)


async def drive_async(plan: c.Plan[T], ports: Ports) -> T:
    """Carry a plan out with an asynchronous store, and return what it returns.

    A task that is cancelled finishes the command at hand, stops as if it had been asked to, and is
    cancelled then. See `_undivided`.
    """
    step: Callable[[], c.Command[Any]] = partial(next, plan)
    tasks = Tasks()
    try:
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
                    step = partial(plan.send, await _do_async(command, ports, tasks))
                except Exception as error:  # noqa: BLE001 (the plan decides)
                    ports.refused(command, error)
                    step = partial(plan.throw, error)
    except asyncio.CancelledError:  # for the second time, or there is none left
        await tasks.close(in_a_hurry=True)
        raise
    finally:
        await tasks.close(in_a_hurry=False)
        if ports.lease is not None:
            try:
                await _undivided(ports.leases.release(ports.lease), ports)
            except Exception as error:  # noqa: BLE001 (see there)
                _not_released(error)


async def _do_async(  # noqa: PLR0911 (one for each kind)
    command: c.Command[Any], ports: Ports, tasks: Tasks
) -> object:
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
        case c.CallHooks(hooks, purged):
            return await _undivided(hooks.call_async(purged, "commit"), ports)
        case c.Begin(request):
            tasks.begin(request, lambda each: _ask_async(c.PurgeBatch(each), ports))
            return None
        case c.AwaitBatch():
            return await _undivided(tasks.next(), ports)
    local = ports.local(command)
    return local() if local is not None else await _undivided(_ask_async(command, ports), ports)


async def _ask_async(command: c.Command[Any], ports: Ports) -> Any:
    with timed() as watch:
        reply = await ports.remote(command)()
    return ports.noted(command, reply, watch)


async def _undivided(work: Coroutine[Any, Any, T], ports: Ports) -> T:
    """Await something to its end, also when our own task is cancelled meanwhile.

    Drivers take a cancellation in the middle of a statement badly: aiosqlite's thread goes on and
    keeps the file locked, others throw the connection away. And whether the batch was committed
    would be anybody's guess. A second cancellation does interrupt it, where a store lets it.
    """
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            if ports.cancelled is not None:
                while not task.done():  # what is under way isn't left alone, whoever is in a hurry
                    task.cancel()
                    with suppress(asyncio.CancelledError):
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
    logger.warning("The lease could not be released, so it lasts until it expires: %s", error)


def _log_report(report: SweepReport, store: object) -> None:
    """Log a sweep: INFO, or WARNING when something failed, is missing or can't be deleted."""
    is_amiss = report.problems or any(target.missing or target.left for target in report.targets)
    level = logging.WARNING if is_amiss else logging.INFO
    fields: dict[str, Any] = {
        "event": "sweep",
        "backend": backend_of(store),
        "outcome": report.outcome,
        "deleted": report.deleted,
        "archived": report.archived,
        "skipped": report.skipped,
        "duration": report.duration,
        "problems": list(report.problems),
        "targets": [target.to_dict() for target in report.targets],
    }
    logger.log(level, "%s", report, extra=fields)


def _log_batch(progress: Progress, store: object) -> None:
    """Log a batch: DEBUG, or INFO when it failed (it may be tried again; the sweep will tell)."""
    level = logging.DEBUG if progress.error is None else logging.INFO
    if not logger.isEnabledFor(level):
        return
    fields: dict[str, Any] = {
        "event": "batch",
        "backend": backend_of(store),
        "table": progress.table,
        "outcome": "committed" if progress.error is None else "failed",
        "deleted": progress.deleted,
        "archived": progress.archived,
        "referring": dict(progress.referring),
        "batch_size": progress.batch_size,
        "duration": progress.elapsed,
        "phases": dict(progress.phases),
    }
    table, seconds = visible(progress.table), progress.elapsed
    if progress.error is None:
        rows = f"{progress.deleted:,}"
        if referring := sum(progress.referring.values()):
            rows += f" and {referring:,} referring"
        logger.log(level, "%s: %s rows deleted in %.3f s", table, rows, seconds, extra=fields)
        return
    problem = progress.problem
    fields |= {"error": problem, "error_type": type(progress.error).__name__}
    message = "%s: a batch failed after %.3f s: %s"
    logger.log(level, message, table, seconds, problem, extra=fields)
