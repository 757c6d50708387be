"""When workers and readers repeat a read that may take long: for a tenth of the time at most.

*New consumers.* A transaction that records events reads which consumers there are. A consumer that
subscribes meanwhile isn't among them, and when it is handed the events that are kept, those of this
transaction aren't committed yet. So a consumer is *unsettled* at first: `Outbox.subscribe` is
called again now and then (`Resubscription`), and hands over the events that were committed late.
Until the consumer is settled, its done deliveries are kept, or their events would be handed over
again.

*Warnings.* A look for rows whose end comes near reads the rows that end in a *window*, from now
until `before` later. Most looks read only the rows that have come into it since the last one. A row
may also appear in the middle of the window: it is written with a short ttl, or its ttl or a default
is shortened. So now and then the whole window is read (`Looks`).

This module must not know any database.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

PAGES: Final = 20
"""Pages of rows that a worker records at once, of each table and `before`; then it sweeps."""

SETTLING: Final = timedelta(minutes=10)
"""How long a transaction that records events may take, for a new consumer to get them."""

_SHORTEST_REST: Final = timedelta(seconds=1)
_LONGEST_REST: Final = timedelta(minutes=1)
"""The least and the most time between two looks at a whole window: else a hundredth of it."""

_REST: Final = 10
"""The least time until the next read of this kind, as a multiple of the time that one took."""


def unsettled_from(now: datetime) -> datetime:
    """Return when the first event was recorded that may be late for a consumer that comes now."""
    return now - SETTLING


def settles_at(start: datetime) -> datetime:
    """Return when no event is late any more, given `unsettled_from`; none is recorded later."""
    return start + 2 * SETTLING


@dataclass(slots=True)
class Resubscription:
    """When consumers subscribe again, while one of them is unsettled.

    Attributes:
        due_at: When they do, by `monotonic`; infinite if all are settled.
    """

    due_at: float = 0.0
    _began: float = 0.0

    @property
    def is_due(self) -> bool:
        """Whether they should subscribe now."""
        return monotonic() >= self.due_at

    def begin(self) -> None:
        """Note that they are subscribing."""
        self._began = monotonic()

    def end(self, *, is_unsettled: bool) -> None:
        """Note that they have subscribed, and whether one of them is still unsettled."""
        now = monotonic()
        rest = max((now - self._began) * _REST, _SHORTEST_REST.total_seconds())
        self.due_at = now + rest if is_unsettled else inf


@dataclass(slots=True)
class Looks:
    """The looks at a window.

    Attributes:
        before: The length of the window.
        last: When the last look was, by the database's clock; None before the first.
        whole_at: When the next look at the whole window is due.
        default: The table's defaults at the last look.
        is_whole: Whether that was a look at the whole window that isn't read to its end.
    """

    before: timedelta
    last: datetime | None = None
    whole_at: datetime | None = None
    default: object = None
    is_whole: bool = False

    def after(self, now: datetime, default: object) -> datetime | None:
        """Return the end up to which a look may skip rows; None if it has to be whole."""
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
            self.whole_at = now + min(max(self.before / 100, _SHORTEST_REST), _LONGEST_REST)

    def end(self, now: datetime) -> None:
        """Note that a look is read to its end; after a long one the next whole look comes later."""
        if self.is_whole and self.last is not None and self.whole_at is not None:
            self.whole_at = max(self.whole_at, now + (now - self.last) * _REST)
            self.is_whole = False
