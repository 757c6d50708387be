"""Asking a sweeper to stop: from another thread, from a coroutine, from a signal handler.

Celery and RQ ask with an exception, see `time_limit_of`.

A handler runs between any two instructions of the main thread, even inside
`threading.Event.wait`, for whose lock it would then wait for ever. So a sleeping sweeper waits for
a bare lock, which `Stop.ask` only has to release, or for an event of its loop, which is set
thread-safely. (`queue.SimpleQueue` is made for this, too, but its ``get`` in CPython 3.11 has
waited for ever when a timeout of a microsecond was over before the wait had begun.)
"""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TIME_LIMITS: Final = {("billiard", "SoftTimeLimitExceeded"), ("rq", "BaseTimeoutException")}


class Stop:
    """Whether a sweeper is to stop, for good."""

    def __init__(self) -> None:
        self.asked = False
        self._wakers: list[Callable[[], object]] = []

    def ask(self) -> None:
        """Stop it; may be called from anywhere, any number of times."""
        self.asked = True
        for wake in tuple(self._wakers):
            wake()

    def wait(self, seconds: float) -> None:
        """Sleep until the time is over or it is to stop."""
        bell = threading.Lock()
        bell.acquire()

        def ring() -> None:
            with suppress(RuntimeError):  # already released
                bell.release()

        with self._woken_by(ring):
            if not self.asked:
                bell.acquire(timeout=min(seconds, threading.TIMEOUT_MAX))

    async def wait_async(self, seconds: float) -> None:
        """`wait`, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        bell = asyncio.Event()
        with self._woken_by(lambda: loop.call_soon_threadsafe(bell.set)):
            if not self.asked:
                try:
                    await asyncio.wait_for(bell.wait(), seconds)
                except asyncio.TimeoutError:
                    return

    @contextmanager
    def _woken_by(self, wake: Callable[[], object]) -> Iterator[None]:
        self._wakers.append(wake)
        try:
            yield
        finally:
            self._wakers.remove(wake)


class Stoppable(Protocol):
    """A `Sweeper` or an `AsyncSweeper`."""

    def stop(self) -> None:
        """Stop after the batch at hand."""
        ...


@contextmanager
def stop_on_signals(
    *sweepers: Stoppable, signals: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT)
) -> Iterator[None]:
    """Let signals stop sweepers after the current batch; restore the handlers afterwards.

    A second signal does what it did before: SIGINT interrupts, SIGTERM kills. Works around
    `Sweeper.run_forever` and around ``asyncio.run`` or ``await`` of `AsyncSweeper.run_forever`
    (there a second SIGINT only cancels the task, as `asyncio.run` has it, and a third interrupts);
    in the main thread only, as Python's signal handlers do.

    Args:
        sweepers: The sweepers to stop.
        signals: The signals that stop them.
    """
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            number, handler = before.popitem()
            signal.signal(number, handler)

    def handle(_number: int, _frame: object) -> None:
        restore()
        for sweeper in sweepers:
            sweeper.stop()

    for number in signals:
        before[number] = signal.signal(number, handle)
    try:
        yield
    finally:
        restore()


def time_limit_of(error: BaseException | None) -> BaseException | None:
    """Return the exception by which a queue's time limit has caused an error; None if none has.

    A queue's signal handler raises it anywhere in the job, once, so a sweep that took it for the
    error of a table, or of a hook, would go on. Recognized by name: no queue is imported for this.
    """
    while error is not None:
        classes = {
            (base.__module__.partition(".")[0], base.__name__) for base in type(error).__mro__
        }
        if classes & _TIME_LIMITS:
            return error
        error = error.__cause__
    return None
