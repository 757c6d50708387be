"""The progress of a sweep: bars on a terminal, lines elsewhere, always on stderr.

rich's own rate begins with the first event, and so leaves out what a sweep reads before it finds
its first expired row. Here a bar's field ``seconds`` has the time that its rows took so far, and
pauses and searches count.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from ttl_odm.sweeper import text
from ttl_odm.sweeper.command_line import is_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.progress import Task, TaskID
    from typing_extensions import Self

    from ttl_odm.sweeper import Progress

_LINE_SECONDS: Final = 10.0


class Rows(ProgressColumn):
    """The rows deleted so far and in total."""

    def render(self, task: Task) -> Text:
        """Return the column's text for a bar."""
        total = "?" if task.total is None else f"{int(task.total):,}"
        return Text(f"{int(task.completed):,}/{total}".rjust(2 * len(total) + 1))


class Rate(ProgressColumn):
    """Rows per second, or a note while the first expired row is searched for."""

    def render(self, task: Task) -> Text:
        """Return the column's text for a bar."""
        rate = _rate(task)
        words = "looking for expired rows" if rate is None else f"{rate:,.0f} rows/s"
        return Text(words, style="progress.data.speed")


class TimeLeft(ProgressColumn):
    """The time that the remaining rows will take at this rate."""

    def render(self, task: Task) -> Text:
        """Return the column's text for a bar."""
        rate = _rate(task)
        duration = "-:--:--"
        if rate and task.remaining is not None:
            duration = str(timedelta(seconds=round(max(task.remaining, 0) / rate)))
        return Text(duration, style="progress.remaining")


def _rate(task: Task) -> float | None:
    seconds = task.fields.get("seconds", 0)
    return task.completed / seconds if task.completed and seconds else None


class ProgressDisplay:
    """Shows the progress of one sweep: a context manager and a sweeper's ``on_progress``.

    On a terminal each target has a bar, with an estimate if its expired rows were counted.
    Elsewhere a line is printed every few seconds. Both go to stderr, so that stdout has the report
    alone. Rates are over all the time that a target has taken, as in the report.
    """

    def __init__(
        self,
        due: Mapping[str, int] | None = None,
        *,
        quiet: bool = False,
        seconds: float = _LINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._due = due or {}
        self._quiet = quiet
        console = Console(stderr=True)
        self._bars: Bars | None = None
        # Not rich's answer alone, which FORCE_COLOR changes for the log of a CI as well.
        if is_terminal(sys.stderr) and console.is_terminal and not quiet:
            self._bars = Bars(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=None),
                Rows(),
                Rate(),
                TimeLeft(),
                console=console,
                expand=True,
            )
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}
        self._clock = clock
        self._printed = self._last = clock()

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
            for table in [table for table, rows in self._due.items() if rows][:1]:
                self._show(table)  # it may take long to find its first expired row
        self._last = self._clock()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def _show(self, table: str) -> TaskID:
        """Return the bar of a target, which is added if there is none yet."""
        assert self._bars is not None  # noqa: S101 (there is a terminal)
        if table not in self._tasks:
            name = text.visible(table)
            self._tasks[table] = self._bars.add_task(name, total=self._due.get(table))
        return self._tasks[table]

    def __call__(self, progress: Progress) -> None:
        """Show a batch."""
        table = text.visible(progress.table)
        now = self._clock()
        # Targets are swept one after the other: this one since the last batch of another.
        began = self._began.setdefault(table, min(self._last, now - progress.elapsed))
        self._last = now
        if self._bars is not None:
            task, done = self._show(progress.table), progress.deleted_so_far
            self._bars.update(task, completed=done, seconds=now - began)
            return
        if self._quiet or now - self._printed < self._seconds:
            return
        self._printed = now
        rate = progress.deleted_so_far / max(now - began, 1e-9)
        click.echo(f"{table}: {progress.deleted_so_far:,} rows, {rate:,.0f}/s", err=True)
