"""`Tail`: the events that were recorded last, and then those that are added.

Each look is a generator: it yields a question to an outbox, is sent the answer, and returns the new
events. Commands have the drivers: ``ttl-odm events`` awaits the answers, Django's command can't.

This module must not know a terminal, nor any database.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ttl_odm.sweeper.stop import Stop

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from datetime import datetime

    from ttl_odm.events.outbox import Recorded

    Look: TypeAlias = Generator["Question", Sequence[Recorded], Sequence[Recorded]]

LATEST: Final = 20
"""How many events are shown unless another number is asked for."""

POLL: Final = 1.0
"""Seconds between two looks."""

LEAST_POLL: Final = 0.1

_LATE: Final = timedelta(seconds=10)
"""How long a transaction may take to commit an event that a later look still finds."""

_CHUNK: Final = 1000
"""Events that a question asks for."""


class Question(NamedTuple):
    """The arguments of `Outbox.recorded`."""

    limit: int
    since: datetime | None = None


class Stopping(Stop):
    """A loop that signals stop."""

    stop = Stop.ask


class Tail:
    """The end of an outbox.

    The time of an event is that of its transaction, which may commit after a later one. So each
    look begins a while before the last event, and leaves out events that it knows.
    """

    def __init__(self) -> None:
        self._events: Sequence[Recorded] = ()

    def first(self, number: int) -> Look:
        """Return so many of the last events; read all that the next look will find again."""
        limit = max(number, 1)
        while True:
            events = yield Question(limit)
            if len(events) < limit or events[0].at < events[-1].at - _LATE:
                break
            limit *= 2
        self._events = events
        return events[max(len(events) - number, 0) :]

    def further(self) -> Look:
        """Return the events that were added since the last look."""
        known = {recorded.event.id for recorded in self._events}
        since = self._events[-1].at - _LATE if self._events else None
        limit = _CHUNK
        while True:
            events = yield Question(limit, since)
            if len(events) < limit:
                break
            limit *= 2
        self._events = events
        return [recorded for recorded in events if recorded.event.id not in known]
