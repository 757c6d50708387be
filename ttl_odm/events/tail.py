"""The events that were recorded last, and those that come: `Tail` decides what to read when.

Each look is a generator: it yields what is to be asked of an outbox, is sent the answer, and
returns the events that are new. Commands have the drivers: ``ttl-odm events`` awaits, Django's
can't.

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
"""How long a transaction may take to commit events that are still to be seen."""

_CHUNK: Final = 1000
"""Events that are asked for at once."""


class Question(NamedTuple):
    """The arguments of `Outbox.recorded`."""

    limit: int
    since: datetime | None = None


class Stopping(Stop):
    """What signals stop."""

    stop = Stop.ask


class Tail:
    """The end of an outbox.

    The time of an event is that of its transaction, which may commit after a later one. So each
    look begins a while before the last event, and leaves out those that were there before.
    """

    def __init__(self) -> None:
        self._found: Sequence[Recorded] = ()

    def first(self, number: int) -> Look:
        """Return so many of the last events; read all that the next look will find again."""
        limit = max(number, 1)
        while True:
            found = yield Question(limit)
            if len(found) < limit or found[0].at < found[-1].at - _LATE:
                break
            limit *= 2
        self._found = found
        return found[max(len(found) - number, 0) :]

    def further(self) -> Look:
        """Return the events that have come since the last look."""
        known = {one.event.id for one in self._found}
        since = self._found[-1].at - _LATE if self._found else None
        limit = _CHUNK
        while True:
            found = yield Question(limit, since)
            if len(found) < limit:
                break
            limit *= 2
        self._found = found
        return [one for one in found if one.event.id not in known]
