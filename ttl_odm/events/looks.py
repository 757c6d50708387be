"""When rows whose end comes near are looked for: `Looks`.

A look reads the rows that end in a *window*, from now until `before` later. Most looks read only
what has come into it since the last one. A row may come into its midst, too: it is written with a
short ttl, its ttl is shortened, or a default is. So now and then the whole window is read.

This module must not know any database.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

PAGES: Final = 20
"""Pages of rows that a worker records at once, of each table and `before`; then it sweeps."""

SHORTEST_REST: Final = timedelta(seconds=1)
LONGEST_REST: Final = timedelta(minutes=1)
"""The least and the most time between two looks at a whole window: else a hundredth of it."""

REST: Final = 10
"""How many times as long as such a look the time until the next one is at least."""


@dataclass(slots=True)
class Looks:
    """The looks at a window.

    Attributes:
        before: How long the window is.
        last: When the last look was, by the database's clock; None before the first.
        whole_at: When the next look at the whole window is due.
        default: What the table's defaults were at the last look.
        is_whole: Whether that one was at the whole window, and hasn't been read to its end.
    """

    before: timedelta
    last: datetime | None = None
    whole_at: datetime | None = None
    default: object = None
    is_whole: bool = False

    def after(self, now: datetime, default: object) -> datetime | None:
        """Return the end up to which a look may pass rows over; None if it has to be whole."""
        if (
            self.last is None
            or self.whole_at is None
            or not self.last <= now < self.whole_at  # also when the clock was set back
            or default != self.default
        ):
            return None
        return self.last + self.before

    def note(self, now: datetime, default: object, *, is_whole: bool) -> None:
        """Note a look."""
        self.last, self.default, self.is_whole = now, default, is_whole
        if is_whole:
            self.whole_at = now + min(max(self.before / 100, SHORTEST_REST), LONGEST_REST)

    def end(self, now: datetime) -> None:
        """Let a look at a whole window that took long rest for longer."""
        if self.is_whole and self.last is not None and self.whole_at is not None:
            self.whole_at = max(self.whole_at, now + (now - self.last) * REST)
            self.is_whole = False
