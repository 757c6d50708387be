"""How far replicas are behind, whatever the database.

Pure: readings go in, seconds come out. Nothing here asks a server or looks at a clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_MOST: Final = 1.0
"""Seconds that a replica may be behind, unless the caller says otherwise."""

_LONGEST: Final = 86_400.0
_BRIEF: Final = 0.05

_SHARE: Final = 0.25
"""The share of the limit from which on a sweep waits.

A replica that can't keep up is furthest behind later, when it comes to what was written last: it
needs four times as long as this for that, if it writes a quarter of what the primary does.
"""


@dataclass(frozen=True, slots=True)
class Replica:
    """What is known of one replica.

    Attributes:
        name: What its primary, or its URL, calls it.
        seconds: How far it is behind, as the engine measures it.
        position: How far it has replayed the primary's log, as a number that grows.
    """

    name: str
    seconds: float = 0.0
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What one question to the primary has shown.

    Attributes:
        replicas: Those that are replicating. A replica that is down or stopped isn't among them: a
            sweep doesn't wait for it.
        written: Where the primary's log ends, on the scale of `Replica.position`.
    """

    replicas: Sequence[Replica] = ()
    written: int | None = None


class Lag:
    """The lag of all replicas, over several readings.

    An engine's own measure stays the same while a replica is silent. Therefore it is compared with
    the age of the oldest write that the replica hasn't replayed, as far as readings show it.
    """

    def __init__(self) -> None:
        self._written: deque[tuple[float, int]] = deque()

    def of(self, reading: Reading, at: float) -> dict[str, float]:
        """Return how many seconds each replica is behind.

        Args:
            reading: The latest reading.
            at: Its time in seconds, on a monotonic clock.
        """
        written = self._written
        if reading.written is not None and written and reading.written < written[-1][1]:
            written.clear()  # another primary, which needn't have all, or one with a new log
        if reading.written is not None and (not written or written[-1][1] < reading.written):
            written.append((at, reading.written))
        positions = [r.position for r in reading.replicas if r.position is not None]
        replayed = min(positions, default=reading.written or 0)
        while written and written[0][1] <= replayed:
            written.popleft()
        return {replica.name: self._seconds(replica, at) for replica in reading.replicas}

    def _seconds(self, replica: Replica, at: float) -> float:
        if replica.position is None:
            return replica.seconds
        missing = (then for then, position in self._written if position > replica.position)
        since = next(missing, None)
        return 0.0 if since is None else max(replica.seconds, at - since)


def wait_for(lag: dict[str, float], at_most: float) -> float | None:
    """Return what a throttle returns: seconds to wait, or None to go on.

    Args:
        lag: Seconds by replica.
        at_most: Seconds that a replica may be behind; the wait begins at a quarter of them.
    """
    excess = max(lag.values(), default=0.0) - at_most * _SHARE
    return None if excess <= 0 else max(_BRIEF, min(excess, at_most))


def check_limit(seconds: object) -> None:
    """Reject a limit that isn't a number of seconds."""
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not is_number or not 0 < seconds <= _LONGEST:  # type: ignore[operator]
        raise TTLConfigurationError(
            f"at_most = {seconds!r}: give the seconds that a replica may be behind, more than 0 "
            f"and at most {_LONGEST:,.0f}."
        )
