"""What people see of a run: a line for each task, failures when their lot ends, and a summary.

On a terminal the tasks that run have lines of their own, which change every second. Elsewhere, as
in the log of a CI, a line a minute says how far they are.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from suite.slots import Began, Broken, Ended
from terminal import listening

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from suite.lots import Task
    from suite.records import Record
    from suite.slots import Event, Result

_EVERY_SECONDS: Final = 60.0
_TAIL_LINES: Final = 80
_MOST_LINES: Final = 400
_SLOWEST: Final = 5
_MOST_REASONS: Final = 12
_ERASE: Final = "\x1b[2K"
_ENOUGH_SECONDS: Final = 10.0
_UP: Final = "\x1b[1A"


def clock(seconds: float) -> str:
    """Write a duration: 4:05."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


def counted(number: int, noun: str) -> str:
    """Write a number of things: 1 test, 1,200 tests."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def progress(task: Task, record: Record, seconds: float) -> str:
    """Say how far a task is."""
    if not task.tests:
        return f"{task.title} {clock(seconds)}"
    if record.tests is None:
        return f"{task.title} collects"
    return f"{task.title} {record.part:.0%}, {counted(record.outcomes['failed'], 'failure')}"


def line(result: Result) -> str:
    """Say how a task has ended."""
    took = f"in {clock(result.seconds)}"
    record, title = result.record, result.task.title
    if result.cancelled:
        return f"ended    {title} before its time"
    if result.is_empty:
        return f"empty    {title}: no test for these databases"
    if result.failures:
        how = "failed" if not result.task.tests else _how_many_failed(result)
        return f"FAILED   {title}: {how} {took}"
    if not result.task.tests:
        return f"ok       {title} {took}"
    return f"ok       {title}: {counted(record.done, 'test')} {took}"


def _how_many_failed(result: Result) -> str:
    record = result.record
    some = [f"{len(record.failures):,} of {counted(record.tests or 0, 'test')} failed"]
    return " and ".join(
        [*(some if record.failures else []), *(["it broke off"] if result.crashed else [])]
    )


def details(result: Result) -> list[str]:
    """Return what people have to read of a task that has failed."""
    printed = result.log.read_text(errors="replace").splitlines() if result.log.exists() else []
    if result.task.tests and not result.crashed:
        printed = _tracebacks(printed)
    elif result.task.tests:
        printed = printed[-_TAIL_LINES:]
    if len(printed) > _MOST_LINES:
        half = _MOST_LINES // 2
        left_out = f"[... {len(printed) - _MOST_LINES:,} lines: see the log ...]"
        printed = [*printed[:half], left_out, *printed[-half:]]
    record = result.record
    named = [f"FAILED {node}" for node in record.failures]
    if result.crashed and record.running:
        named.append(f"it was running {record.running}")
    return [f"== {result.task.title}", *printed, *result.troubles, *named]


def _tracebacks(lines: Sequence[str]) -> list[str]:
    """Return pytest's sections of errors and failures, without its dots and its closing line."""
    kept: list[str] = []
    keeps = False
    for text in lines:
        if text.startswith("====="):
            title = text.strip("= ")
            keeps = title in {"ERRORS", "FAILURES"}
        if keeps:
            kept.append(text)
    return kept


def remaining(waiting: Iterable[Task], running: Sequence[tuple[Task, float]], slots: int) -> float:
    """Estimate how many seconds are left, on a machine as fast as ours.

    Args:
        waiting: The tasks that no slot has begun.
        running: The tasks that run, and which part of each is done.
        slots: How many slots there are.
    """
    left = [task.seconds * (1 - part) for task, part in running]
    loads = sorted([*left, *[0.0] * (slots - len(left))])
    for task in sorted(waiting, key=lambda task: -task.seconds):
        loads[0] += task.seconds
        loads.sort()
    return loads[-1] if loads else 0.0


@dataclass
class _Running:
    began: Began
    since: float = field(default_factory=time.monotonic)

    @property
    def part(self) -> float:
        """Which part is done; of a check nobody knows it, so it goes by the time."""
        task = self.began.task
        if task.tests:
            return self.began.follower.record.part
        return min(0.9, (time.monotonic() - self.since) / task.seconds)


class Screen:
    """Shows what happens while it happens.

    Args:
        tasks: All tasks.
        slots: How many slots there are.
        terminal: Whether lines can change.
    """

    def __init__(self, tasks: Sequence[Task], slots: int, *, terminal: bool) -> None:
        self._waiting = [*tasks]
        self._total = len(tasks)
        self._slots = slots
        self._terminal = terminal
        self._running: dict[int, _Running] = {}
        self._done = 0
        self._expected = 0.0
        self._took = 0.0
        self._shown = 0
        self._said = time.monotonic()

    def hear(self, event: Event | None) -> None:
        """Show what an event tells; without one, how far the tasks are."""
        if isinstance(event, Began):
            self._running[event.slot] = _Running(event)
            self._waiting.remove(event.task)
            if not self._terminal:
                self.print(f"begins   {event.task.title}")
        elif isinstance(event, Ended):
            self._end(event)
        elif isinstance(event, Broken):
            self.print(event.message)
        if self._terminal:
            self._draw()
        elif time.monotonic() - self._said > _EVERY_SECONDS and self._running:
            self.print("; ".join([*self._lines(), self._time_left()]))

    @contextlib.contextmanager
    def speaking(self) -> Iterator[None]:
        """Let what others say stand above the lines that change."""
        with listening(self.print):
            yield
        self._clear()

    def interrupted(self) -> list[str]:
        """Return what is known of the tasks that an interruption has ended."""
        lines = [f"interrupted: {self._done} of {self._total} done"]
        for running in self._running.values():
            failures = running.began.follower.record.failures
            lines += [f"FAILED {node}   [{running.began.task.environment}]" for node in failures]
        return lines

    def _end(self, event: Ended) -> None:
        result = event.result
        del self._running[event.slot]
        self._done += 1
        self._expected += result.task.seconds
        self._took += result.seconds
        self.print(f"{line(result)}   [{self._done}/{self._total}]")
        if result.failures:
            self.print(*details(result))

    def print(self, *lines: str) -> None:
        """Print lines that stay."""
        self._clear()
        sys.stdout.write("".join(f"{text}\n" for text in lines))
        sys.stdout.flush()
        self._said = time.monotonic()

    def _lines(self) -> list[str]:
        return [
            progress(each.began.task, each.began.follower.record, time.monotonic() - each.since)
            for _, each in sorted(self._running.items())
        ]

    def _time_left(self) -> str:
        running = [*self._running.values()]
        parts = [(each.began.task, each.part) for each in running]
        # What has been done so far tells how fast this machine is, and how busy.
        expected = self._expected + sum(task.seconds * part for task, part in parts)
        took = self._took + sum(time.monotonic() - each.since for each in running)
        if expected < _ENOUGH_SECONDS:
            return "time left is not known yet"
        minutes = remaining(self._waiting, parts, self._slots) * took / expected / 60
        return f"about {minutes:.0f} min left" if minutes >= 1 else "less than a minute left"

    def _draw(self) -> None:
        self._clear()
        width = shutil.get_terminal_size().columns - 1
        lines = [f"  {text}" for text in self._lines()]
        if lines:
            lines.append(f"  {self._done} of {self._total} done, {self._time_left()}")
        sys.stdout.write("".join(f"{text[:width]}\n" for text in lines))
        sys.stdout.flush()
        self._shown = len(lines)

    def _clear(self) -> None:
        sys.stdout.write(f"{_UP}{_ERASE}" * self._shown)
        self._shown = 0


def is_terminal() -> bool:
    """Tell whether lines can change where we print."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def summary(results: Sequence[Result], undone: Sequence[Task], notes: Sequence[str]) -> list[str]:
    """Return the lines at the end, but for the last one.

    Args:
        results: How the tasks have ended.
        undone: The tasks that were not run.
        notes: What else there is to say.
    """
    lines = ["", "== summary"]
    by_environment: dict[str, list[Result]] = {}
    for result in results:
        if result.task.tests:
            by_environment.setdefault(result.task.environment, []).append(result)
    for environment, ended in by_environment.items():
        lines += _of_environment(environment, ended)
    for result in results:
        if result.failures and not result.task.tests:
            lines.append(f"{result.task.name} failed")
    if undone:
        lines.append(f"not run: {', '.join(task.title for task in undone)}")
    lines += notes
    slowest = sorted(results, key=lambda result: -result.seconds)[:_SLOWEST]
    times = (f"{result.task.title} {clock(result.seconds)}" for result in slowest)
    lines.append(f"slowest: {'; '.join(times)}")
    return lines


def _of_environment(name: str, results: Sequence[Result]) -> list[str]:
    outcomes, left_out, skips = Counter[str](), Counter[str](), Counter[str]()
    for result in results:
        outcomes += result.record.outcomes
        left_out += result.record.left_out
        skips += result.record.skips
    failures = sum(result.failures for result in results)
    head = f"{name}: {counted(outcomes.total(), 'test')}, {counted(failures, 'failure')}"
    lines = [f"{head}, {skips.total():,} skipped, {left_out.total():,} left out"]
    lines += [f"    left out, {reason}: {number:,}" for reason, number in left_out.most_common()]
    most = skips.most_common(_MOST_REASONS)
    lines += [f"    skipped, {_plain(reason)}: {number:,}" for reason, number in most]
    if others := skips.total() - sum(number for _, number in most):
        lines.append(f"    skipped, for {len(skips) - len(most)} other reasons: {others:,}")
    return lines


def _plain(reason: str) -> str:
    return reason.removeprefix("Skipped: ").partition("\n")[0]


def closing_line(results: Sequence[Result]) -> str:
    """Count everything in one line, for machines: checks and lots that broke off have failed."""
    outcomes = sum((result.record.outcomes for result in results), Counter[str]())
    failed = sum(result.failures for result in results)
    skipped = outcomes["skipped"] + outcomes["xfailed"]
    return f"total: {outcomes['passed']} passed, {failed} failed, {skipped} skipped"


def keep_logs(results: Iterable[Result], folder: Path) -> list[Path]:
    """Copy the logs of the tasks that have failed to a folder, and return their paths."""
    kept = []
    for result in results:
        if result.failures and result.log.exists():
            folder.mkdir(parents=True, exist_ok=True)
            name = "-".join(re.findall(r"[\w.-]+", result.task.title)).lstrip(".")
            kept.append(folder / f"{name}.log")
            shutil.copyfile(result.log, kept[-1])
    return kept
