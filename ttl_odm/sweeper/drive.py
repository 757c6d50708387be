"""The two drivers that carry a plan out: one for a `Store`, one for an `AsyncStore`.

A driver asks the store, measures, waits and reports; it decides nothing. Errors of the store are
thrown into the plan. An exception that ends the driver itself (a closed terminal, a cancelled task,
a queue's time limit, an error in the caller's own callback) closes the plan, releases the lease,
and reaches the caller.

From top to bottom: `drive`, its twin `drive_async`, the `Ports` by which both answer commands,
batches that run at once (in `Threads` or `Tasks`), and the log. The logger is ``ttl_odm.sweeper``;
a record's message is for people, and its attributes (``extra``) have the same as fields for
machines. docs/metrics.md lists them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from contextlib import closing, suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ttl_odm.sweeper import commands as c
from ttl_odm.sweeper.hooks import Hooks, timed
from ttl_odm.sweeper.leases import Finishing
from ttl_odm.sweeper.pace import MOST_WORKERS
from ttl_odm.sweeper.report import Progress, SweepReport
from ttl_odm.sweeper.stop import Stop, time_limit_of
from ttl_odm.sweeper.store import (
    FactCounting,
    Hooking,
    Server,
    Serving,
    StandbyStoreError,
    TransientStoreError,
    backend_of,
)
from ttl_odm.sweeper.text import visible

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from concurrent.futures import Future, ThreadPoolExecutor

    from ttl_odm.sweeper.facts import Fact
    from ttl_odm.sweeper.hooks import Stopwatch
    from ttl_odm.sweeper.leases import Lease
    from ttl_odm.sweeper.options import OnProgress, OnReport, OnServer, Throttle
    from ttl_odm.sweeper.store import BatchRequest, Counted

T = TypeVar("T")

logger: Final = logging.getLogger("ttl_odm.sweeper")


def drive(plan: c.Plan[T], ports: Ports) -> T:
    """Carry a plan out with a synchronous store, and return what it returns."""
    step: Callable[[], c.Command[object]] = partial(next, plan)
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
                    if (limit := time_limit_of(error)) is not None:
                        raise limit from None
                    ports.log_trouble(command, error)
                    step = partial(plan.throw, error)
    finally:
        try:
            threads.close()
        finally:
            _release(ports)


def _release(ports: Ports) -> None:
    if ports.lease is not None:
        try:
            ports.leases.release(ports.lease)
        except Exception as error:  # noqa: BLE001 (see there)
            _not_released(error)


def _do(  # noqa: PLR0911 (one for each kind)
    command: c.Command[object], ports: Ports, threads: Threads
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
            threads.begin(request, lambda request: _ask(c.PurgeBatch(request), ports))
            return None
        case c.AwaitBatch():
            return threads.next()
    local = ports.local(command)
    if local is not None:
        return local()
    return _ask(command, ports)


def _ask(command: c.Command[object], ports: Ports) -> object:
    with timed() as watch:
        reply = ports.remote(command)()
    return ports.reply(command, reply, watch)


async def drive_async(plan: c.Plan[T], ports: Ports) -> T:
    """Carry a plan out with an asynchronous store, and return what it returns.

    A cancelled task finishes the current command, stops as if by `Stop`, and is cancelled then.
    See `_uncancelled`.
    """
    step: Callable[[], c.Command[object]] = partial(next, plan)
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
                    if (limit := time_limit_of(error)) is not None:
                        raise limit from None
                    ports.log_trouble(command, error)
                    step = partial(plan.throw, error)
    except asyncio.CancelledError:  # the second one, or one that came after the last command
        await tasks.close(cancels=True)
        raise
    finally:
        await tasks.close(cancels=False)
        if ports.lease is not None:
            try:
                await _uncancelled(ports.leases.release(ports.lease), ports)
            except Exception as error:  # noqa: BLE001 (see there)
                _not_released(error)


async def _do_async(  # noqa: PLR0911 (one for each kind)
    command: c.Command[object], ports: Ports, tasks: Tasks
) -> object:
    match command:
        case c.IsStopping():
            # A cancelled task gets its CancelledError where it waits the next time: here.
            await _interruptible(partial(asyncio.sleep, 0), ports)
            return ports.is_stopping()
        case c.Pause(seconds):
            if ports.is_stopping():
                return None
            return await _interruptible(partial(ports.stop.wait_async, seconds), ports)
        case c.AskThrottle():
            return ports.throttle and await _interruptible(ports.throttle, ports)
        case c.CallHooks(hooks, purged):
            return await _uncancelled(hooks.call_async(purged, "commit"), ports)
        case c.Begin(request):
            tasks.begin(request, lambda request: _ask_async(c.PurgeBatch(request), ports))
            return None
        case c.AwaitBatch():
            return await _uncancelled(tasks.next(), ports)
    local = ports.local(command)
    return local() if local is not None else await _uncancelled(_ask_async(command, ports), ports)


async def _ask_async(command: c.Command[object], ports: Ports) -> object:
    with timed() as watch:
        reply = await ports.remote(command)()
    return ports.reply(command, reply, watch)


async def _uncancelled(work: Awaitable[T], ports: Ports) -> T:
    """Await something to its end, even if our own task is cancelled meanwhile.

    Database drivers handle a cancellation in the middle of a statement badly: aiosqlite's thread
    goes on and keeps the file locked, others discard the connection. And it would be unknown
    whether the batch was committed. A second cancellation does interrupt it, if the store permits.
    """
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError as error:
            if task.cancelled():
                raise
            if ports.cancelled is not None:
                while not task.done():  # even then, no batch outlives the driver
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([task])
                raise
            ports.cancelled = error


async def _interruptible(call: Callable[[], object], ports: Ports) -> object:
    """Call something, await it if needed, and return at once if our own task is cancelled."""
    try:
        reply = call()
        return await reply if inspect.isawaitable(reply) else reply
    except asyncio.CancelledError as error:
        if ports.cancelled is not None:
            raise
        ports.cancelled = error
        return None


@dataclass(slots=True)
class Ports:
    """What one run of a plan may use, and the answers to its commands.

    Attributes:
        leases: Where leases are kept; None if the sweeper has none.
        lease: The lease to release in the end.
        cancelled: The cancellation to raise when the plan has ended.
        trouble: The last error since the database answered, so that it is logged once.
    """

    store: Any
    leases: Any = None
    throttle: Throttle | None = None
    on_progress: OnProgress | None = None
    on_report: OnReport | None = None
    on_server: OnServer | None = None
    stop: Stop = field(default_factory=Stop)
    lease: Lease | None = None
    cancelled: asyncio.CancelledError | None = None
    trouble: str = ""

    def is_stopping(self) -> bool:
        """Return whether the plan is to end."""
        return self.stop.asked or self.cancelled is not None

    def callback(self, event: Progress | SweepReport | Server) -> Callable[[], object] | None:
        """Log an event; return the caller's function for it, None if there is none."""
        if isinstance(event, Progress):
            _log_batch(event, self.store)
            return self.on_progress and partial(self.on_progress, event)
        if isinstance(event, Server):  # nothing to log: it is asked for this function only
            return self.on_server and partial(self.on_server, event)
        _log_report(event, self.store)
        return self.on_report and partial(self.on_report, event)

    def local(self, command: c.Command[object]) -> Callable[[], object] | None:
        """Return the answer, as a function, to a command without a database; None for others."""
        match command:
            case c.Now():
                return time.monotonic
            case c.IsStopping():
                return self.is_stopping
            case c.ListTargets():
                return partial(self.store.targets)
            case c.ListHooks():
                return lambda: self.store.hooks if isinstance(self.store, Hooking) else Hooks()
            case c.AskServer() if not isinstance(self.store, Serving):  # has AsyncServing's name
                return lambda: None
        return None

    def remote(  # noqa: C901, PLR0911 (one for each kind)
        self, command: c.Command[object]
    ) -> Callable[[], Any]:
        """Return the call of the database, or of the service that keeps the leases."""
        match command:
            case c.DatabaseNow():
                return partial(self.store.now)
            case c.AskServer():
                return partial(self.store.server)
            case c.FindDue(target):
                return partial(self.store.due, target)
            case c.CountDue(target, with_facts=True) if isinstance(self.store, FactCounting):
                return partial(_count_with_facts, self.store, target)
            case c.CountDue(target):
                return partial(self.store.count, target)
            case c.PurgeBatch(request):
                return partial(self.store.purge, request)
            case c.Divide(request, shares):
                return partial(self.store.divide, request, shares)
            case c.Acquire(name, holder, duration):
                return partial(self.leases.acquire, name, holder, duration)
            case c.Renew(lease):
                return partial(self.leases.renew, lease)
            case c.ReadLease(name):
                return partial(self.leases.read, name)
            case c.Record(lease, history) if self._finishes(command):
                return partial(self.leases.finish, lease, history)
            case c.Record(lease, history):
                return partial(self.leases.record, lease, history)
        raise TypeError(f"No driver knows the command {command!r}.")

    def reply(self, command: c.Command[object], reply: Any, watch: Stopwatch) -> object:
        """Return the reply, with the times of a batch; keep the lease for its release."""
        # Both are read between two attempts, so their success ends no trouble.
        if not isinstance(command, (c.ReadLease, c.AskServer)):
            self.trouble = ""
        match command:
            case c.Acquire():
                self.lease = reply or self.lease
            case c.Renew(lease):
                self.lease = lease if reply else None
            case c.Record() if self._finishes(command):
                self.lease = None
            case c.PurgeBatch():
                return replace(reply, elapsed=sum(watch.seconds.values()), phases=watch.seconds)
        return reply

    def _finishes(self, command: c.Record) -> bool:
        """Return whether a command also releases the lease, as the driver otherwise does."""
        return command.ends and isinstance(self.leases, Finishing)

    def log_trouble(self, command: c.Command[object], error: Exception) -> None:
        """Log that a command failed temporarily; the same error in succession only once.

        Batches have records of their own, and permanent errors are in the report.
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
            message = "The database doesn't answer (%s); retrying: %s"
            if isinstance(error, StandbyStoreError):
                message = "The server is a standby, which takes no writes (%s): %s"
            # In one line: drivers add hints in further lines, which log viewers take for records.
            logger.warning(message, name, " ".join(self.trouble.split()), extra=fields)


def _count_with_facts(store: Any, target: str) -> object:
    """Count with further facts; returns an awaitable if the store is asynchronous."""
    counted = store.count(target)
    if inspect.isawaitable(counted):
        return _await_with_facts(store, target, counted)
    return _with(counted, store.count_facts(target)) if counted.due else counted


async def _await_with_facts(store: Any, target: str, counting: Awaitable[Counted]) -> Counted:
    counted = await counting
    return _with(counted, await store.count_facts(target)) if counted.due else counted


def _with(counted: Counted, facts: Mapping[str, Fact]) -> Counted:
    return replace(counted, facts={**counted.facts, **facts})


class Threads:
    """Batches that run in a thread each; they need the lease, so no batch outlives the driver."""

    def __init__(self) -> None:
        """Start no thread before there is a batch."""
        self._pool: ThreadPoolExecutor | None = None
        self._batches: dict[Future[object], BatchRequest] = {}

    def begin(self, request: BatchRequest, purge: Callable[[BatchRequest], object]) -> None:
        """Start `purge` in a copy of the caller's context: its trace, its user."""
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 (few need it)

            self._pool = ThreadPoolExecutor(MOST_WORKERS, thread_name_prefix="ttl_odm-sweeper")
        self._batches[self._pool.submit(copy_context().run, purge, request)] = request

    def next(self) -> tuple[BatchRequest, object]:
        """Wait for a batch to end; return its result or its error."""
        from concurrent.futures import FIRST_COMPLETED, wait  # noqa: PLC0415 (see above)

        ended = wait(self._batches, return_when=FIRST_COMPLETED).done
        future = next(future for future in self._batches if future in ended)
        return self._batches.pop(future), future.exception() or future.result()

    def close(self) -> None:
        """Wait for all of them."""
        if self._pool is not None:
            self._pool.shutdown()


class Tasks:
    """Batches that run in a task each; see `Threads`."""

    def __init__(self) -> None:
        self._batches: dict[asyncio.Task[object], BatchRequest] = {}

    def begin(
        self, request: BatchRequest, purge: Callable[[BatchRequest], Awaitable[object]]
    ) -> None:
        """Start `purge`."""
        self._batches[asyncio.ensure_future(purge(request))] = request

    async def next(self) -> tuple[BatchRequest, object]:
        """Wait for a batch to end; return its result or its error."""
        ended, _ = await asyncio.wait(self._batches, return_when=asyncio.FIRST_COMPLETED)
        task = next(task for task in self._batches if task in ended)
        return self._batches.pop(task), task.exception() or task.result()

    async def close(self, *, cancels: bool) -> None:
        """Wait for all of them, even if cancelled again; `cancels` them if the store permits."""
        while running := [task for task in self._batches if not task.done()]:
            for task in running * cancels:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait(running)


def _not_released(error: Exception) -> None:
    # It expires by itself, and raising would hide the error that ended the driver.
    logger.warning("The lease could not be released, so it lasts until it expires: %s", error)


def _log_report(report: SweepReport, store: object) -> None:
    """Log a sweep: INFO, or WARNING when something failed, is missing or can't be deleted."""
    is_amiss = report.problems or any(target.missing or target.left for target in report.targets)
    level = logging.WARNING if is_amiss else logging.INFO
    if not logger.isEnabledFor(level):
        return
    fields: dict[str, object] = {
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
    """Log a batch: DEBUG, or INFO when it failed (it may be retried; the sweep's record tells)."""
    level = logging.DEBUG if progress.error is None else logging.INFO
    if not logger.isEnabledFor(level):
        return
    fields: dict[str, object] = {
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
