"""How far replicas are behind, whatever the database.

Pure: from readings to seconds. This module must not know a server or a clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_MOST: Final = 1.0
"""The default of the seconds that a replica may be behind."""

_LONGEST: Final = 86_400.0
_BRIEF: Final = 0.05

_SHARE: Final = 0.25
"""The share of the limit at which a sweep begins to wait.

A replica that can't keep up falls further behind until it reaches the last write: up to four times
as far, if it is four times as slow as the primary.
"""


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica, and how far it is.

    Attributes:
        name: Its name, by its primary or by its URL.
        seconds: How far it is behind, as the engine measures it.
        position: How far it has replayed the primary's log, as a number that grows.
    """

    name: str
    seconds: float = 0.0
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The replicas at one moment.

    Attributes:
        replicas: The replicas that are replicating. A sweep doesn't wait for others, which are down
            or stopped.
        written: Where the primary's log ends, on the scale of `Replica.position`.
    """

    replicas: Sequence[Replica] = ()
    written: int | None = None


class Lag:
    """The lag of all replicas, over several readings.

    An engine's own measure stays the same while a replica is silent. Therefore the lag is at least
    the age of the oldest write that the replica hasn't replayed, by the readings.
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
            written.clear()  # another primary, which may lack writes, or one with a new log
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
    """Return the answer of a throttle: seconds to wait, or None to go on.

    Args:
        lag: Seconds by replica.
        at_most: Seconds that a replica may be behind; waiting begins at a quarter of them.
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
