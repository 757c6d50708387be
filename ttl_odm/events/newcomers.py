"""Consumers that are new to a database: which events come late for them, and until when.

A transaction that records events reads which consumers there are. One that comes meanwhile isn't
among them, and when it is handed the events that are kept, those of this transaction aren't
committed yet. So a consumer is *unsettled* at first: `Outbox.subscribe` is called again now and
then, and hands over what has been committed late. A delivery that is done is kept until then, or it
would come back.

This module must not know any database.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

from ttl_odm.events.looks import REST, SHORTEST_REST

if TYPE_CHECKING:
    from datetime import datetime

SETTLING: Final = timedelta(minutes=10)
"""How long a transaction that records events may take, for a consumer that is new to get them."""


def unsettled_from(now: datetime) -> datetime:
    """Return when the first event was recorded that may be late for a consumer that comes now."""
    return now - SETTLING


def settles_at(start: datetime) -> datetime:
    """Return when no event is late any more, given `unsettled_from`; none is recorded later."""
    return start + 2 * SETTLING


@dataclass(slots=True)
class Subscribing:
    """When consumers subscribe again: while one is unsettled, for a tenth of the time at most.

    Attributes:
        due_at: When they do, by `monotonic`; infinite if all are settled.
    """

    due_at: float = 0.0
    _began: float = 0.0

    @property
    def is_due(self) -> bool:
        """Whether they should now."""
        return monotonic() >= self.due_at

    def begin(self) -> None:
        """Note that they are subscribing."""
        self._began = monotonic()

    def end(self, *, is_unsettled: bool) -> None:
        """Note that they have subscribed, and whether one of them has to again."""
        now = monotonic()
        rest = max((now - self._began) * REST, SHORTEST_REST.total_seconds())
        self.due_at = now + rest if is_unsettled else inf
