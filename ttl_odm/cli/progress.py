"""A sweep while it runs: a bar with rate and estimate on a terminal, now and then a line in a log.

Both go to stderr, so that stdout has the report alone.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from rich.progress import Task, TaskID
    from typing_extensions import Self

    from ttl_odm.sweeper import Progress

_LINE_SECONDS: Final = 10.0


class _Rate(ProgressColumn):
    """Rows per second."""

    def render(self, task: Task) -> Text:
        """Return the text of a bar."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} rows/s", style="progress.data.speed")


class ProgressDisplay:
    """Shows the progress of one sweep; a context manager, and a sweeper's ``on_progress``.

    Args:
        due: Expired rows of each target, where they were counted.
        quiet: Whether to show nothing.
        seconds: Where there is no terminal, between two lines of one target.
    """

    def __init__(
        self,
        due: Mapping[str, int] | None = None,
        *,
        quiet: bool = False,
        seconds: float = _LINE_SECONDS,
    ) -> None:
        self._seconds = seconds
        self._due = due or {}
        self._quiet = quiet
        console = Console(stderr=True)
        self._bars: Bars | None = None
        if console.is_terminal and not quiet:
            self._bars = Bars(
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                _Rate(),
                TimeRemainingColumn(),
                console=console,
                expand=True,
            )
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}
        self._printed = time.monotonic()

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def __call__(self, progress: Progress) -> None:
        """Show one more batch."""
        table = progress.table
        if self._bars is not None:
            if table not in self._tasks:
                self._tasks[table] = self._bars.add_task(table, total=self._due.get(table))
            self._bars.update(self._tasks[table], completed=progress.deleted_so_far)
            return
        now = time.monotonic()
        began = self._began.setdefault(table, now - progress.elapsed)
        if self._quiet or now - self._printed < self._seconds:
            return
        self._printed = now
        rate = progress.deleted_so_far / max(now - began, 1e-9)
        click.echo(f"{table}: {progress.deleted_so_far:,} rows, {rate:,.0f}/s", err=True)
