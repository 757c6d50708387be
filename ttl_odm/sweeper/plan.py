"""The sweep as a plan: a generator that says what to do next and is told what came of it.

It yields commands and gets replies; errors of the store are thrown into it. So everything that
is a decision (which batch, how large, whether to try again, when to give a target up) is here,
runs without a database, a clock or a thread, and is the same for synchronous and asynchronous
stores. `ttl_odm.sweeper.drive` carries the commands out.

A command's ``__iter__`` yields the command itself and returns the reply, which gives
``result = yield from PurgeBatch(...)`` its type.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from ttl_odm.sweeper.pace import Pace, backoff
from ttl_odm.sweeper.report import Progress, SweepReport, TargetReport
from ttl_odm.sweeper.store import BatchResult, Due, Part, TransientStoreError

R = TypeVar("R")

ATTEMPTS: Final = 5
"""How often a command is tried before its target is given up."""


class Command(Generic[R]):
    """Something for a driver to do; the reply is an ``R``."""

    __slots__ = ()

    def __iter__(self) -> Generator[Command[R], R, R]:
        reply = yield self
        return reply


Plan = Generator[Command[Any], Any, R]
"""A generator of commands that returns an ``R``."""


@dataclass(frozen=True, slots=True)
class Now(Command[float]):
    """Read a monotonic clock, in seconds."""


@dataclass(frozen=True, slots=True)
class FindDue(Command[Due | None]):
    """Ask the store what has expired in a target."""

    target: str


@dataclass(frozen=True, slots=True)
class PurgeBatch(Command[BatchResult]):
    """Let the store delete one batch."""

    target: str
    part: Part
    size: int
    resume: object


@dataclass(frozen=True, slots=True)
class Pause(Command[None]):
    """Let others in, for some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit(Command[None]):
    """Tell whoever watches."""

    event: Progress


@dataclass(frozen=True, slots=True)
class Settings:
    """How to sweep.

    Attributes:
        pace: The batch sizes.
        jitter: Draws a number from 0 to 1, for the wait before another attempt.
        max_rows: Rows that the whole sweep may delete; None for all.
    """

    pace: Pace
    jitter: Callable[[], float]
    max_rows: int | None = None


def sweep(targets: Iterable[str], settings: Settings) -> Plan[SweepReport]:
    """Purge every target, one after the other; one that fails doesn't stop the others.

    Args:
        targets: Names, in the order in which to purge them.
        settings: How.

    Returns:
        The plan; run to its end it returns what was done.
    """
    began = yield from Now()
    budget = _Budget(settings.max_rows)
    reports = []
    for target in targets:
        report = yield from _TargetSweep(target, settings, budget).run()
        if report is not None:
            reports.append(report)
    ended = yield from Now()
    return SweepReport(tuple(reports), duration=ended - began, limited=budget.exceeded)


class _Budget:
    """The rows that the sweep may still delete."""

    def __init__(self, rows: int | None) -> None:
        self._rows = rows
        self.exceeded = False

    def cap(self, size: int) -> int:
        return size if self._rows is None else min(size, self._rows)

    def spend(self, rows: int) -> None:
        if self._rows is not None:
            self._rows -= rows

    def is_spent(self) -> bool:
        return self._rows is not None and self._rows <= 0


class _TargetSweep:
    """The sweep of one target, and what it has come to so far."""

    def __init__(self, target: str, settings: Settings, budget: _Budget) -> None:
        self._target = target
        self._settings = settings
        self._budget = budget
        self._size = settings.pace.start
        self._deleted = 0
        self._skipped = 0
        self._batches = 0

    def run(self) -> Plan[TargetReport | None]:
        """Purge the target; None when its TTL is off."""
        began = yield from Now()
        before = after = error = None
        try:
            due = yield from self._persist(lambda: FindDue(self._target))
            if due is None:
                return None
            before = after = due.oldest
            for part in due.parts:
                yield from self._purge(part)
            if self._batches:
                due = yield from self._persist(lambda: FindDue(self._target))
                after = None if due is None else due.oldest
        except Exception as failure:  # noqa: BLE001 (whatever it is, the others go on)
            error, after = failure, None
        ended = yield from Now()
        return TargetReport(
            self._target,
            deleted=self._deleted,
            skipped=self._skipped,
            batches=self._batches,
            duration=ended - began,
            oldest_before=before,
            oldest_after=after,
            error=error,
        )

    def _purge(self, part: Part) -> Plan[None]:
        """Purge one part to its end, or to that of the budget."""
        resume: object = None
        while not self._budget.is_spent():
            size, result = yield from self._purge_batch(part, resume)
            yield from Emit(
                Progress(self._target, result.deleted, self._deleted, size, result.elapsed)
            )
            if result.resume is None:
                # It ended before it was full, so it says nothing about the time that others take.
                return
            self._size = self._settings.pace.next(size, result.elapsed)
            if self._settings.pace.rest:
                yield from Pause(result.elapsed * self._settings.pace.rest)
            resume = result.resume
        self._budget.exceeded = True

    def _purge_batch(self, part: Part, resume: object) -> Plan[tuple[int, BatchResult]]:
        size = 0

        def batch() -> PurgeBatch:
            nonlocal size
            size = self._budget.cap(self._size)
            return PurgeBatch(self._target, part, size, resume)

        result = yield from self._persist(batch)
        self._budget.spend(result.deleted)
        self._deleted += result.deleted
        self._skipped += result.skipped
        self._batches += 1
        return size, result

    def _persist(self, command: Callable[[], Command[R]]) -> Plan[R]:
        """Give a command, and if need be again, with a smaller batch after each failure."""
        failures = 0
        while True:
            try:
                reply = yield from command()
            except TransientStoreError:
                failures += 1
                if failures == ATTEMPTS:
                    raise
            else:
                return reply
            self._size = self._settings.pace.shrunk(self._size)
            yield from Pause(backoff(failures, self._settings.jitter()))
