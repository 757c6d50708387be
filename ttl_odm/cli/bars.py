"""Bars on a terminal: rows with separators, and a rate that counts rests and searches in.

rich's own rate begins with the first event, and so leaves out what a sweep reads before it finds
its first expired row. Here a bar's field ``seconds`` has the time that its rows took so far. This
module must not know what is swept.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from rich.progress import ProgressColumn
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Task


class Rows(ProgressColumn):
    """Rows so far, of all."""

    def render(self, task: Task) -> Text:
        """Return the text of a bar."""
        total = "?" if task.total is None else f"{int(task.total):,}"
        return Text(f"{int(task.completed):,}/{total}".rjust(2 * len(total) + 1))


class Rate(ProgressColumn):
    """Rows per second; that there are none yet, for a bar that waits for the first."""

    def render(self, task: Task) -> Text:
        """Return the text of a bar."""
        rate = _rate(task)
        words = "looking for expired rows" if rate is None else f"{rate:,.0f} rows/s"
        return Text(words, style="progress.data.speed")


class TimeLeft(ProgressColumn):
    """The time that the other rows will take at that rate."""

    def render(self, task: Task) -> Text:
        """Return the text of a bar."""
        rate = _rate(task)
        left = "-:--:--"
        if rate and task.remaining is not None:
            left = str(timedelta(seconds=round(max(task.remaining, 0) / rate)))
        return Text(left, style="progress.remaining")


def _rate(task: Task) -> float | None:
    seconds = task.fields.get("seconds", 0)
    return task.completed / seconds if task.completed and seconds else None
