"""How many rows one batch deletes, and how long to wait: arithmetic without a clock.

A batch should take about as long as a database's other users can bear to stand behind it. How
many rows that is depends on indexes, row width, caches and load, so it is found by measuring:
each batch that took longer or shorter than its target changes the size of the next one, by at
most a factor of two.

This module must not know what a batch does, nor a clock or a source of chance: what was measured,
and what was drawn, is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

_FIRST_BACKOFF: Final = 0.1
_LONGEST_BACKOFF: Final = 5.0


@runtime_checkable
class Pacing(Protocol):
    """Chooses batch sizes. One instance serves many sweeps, so it should keep no state."""

    @property
    def start(self) -> int:
        """Rows in the first batch of each target."""
        ...

    @property
    def rest(self) -> float:
        """Seconds to pause after a batch, for each second that it took."""
        ...

    def next(self, size: int, elapsed: float, /) -> int:
        """Return the rows to allow after a full batch of `size` rows took `elapsed` seconds."""
        ...

    def shrunk(self, size: int, /) -> int:
        """Return the rows to allow after a batch of `size` rows failed temporarily."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """A `Pacing` that adapts to how long batches take; the default of the built-in stores.

    Attributes:
        start: Rows in the first batch.
        lowest: The fewest rows that a slow batch shrinks to. After failures it shrinks further,
            down to a single row, because a batch that keeps timing out would never complete.
        highest: The most rows in a batch.
        target: Seconds that a batch should take.
        rest: Seconds to pause after a batch for each second that it took, for databases with a
            single writer, where only a pause lets others write.
    """

    start: int
    lowest: int
    highest: int
    target: float
    rest: float = 0.0

    def starting_at(self, size: int) -> Pace:
        """Return the same pace with a different first batch size, widening the range to fit."""
        return replace(
            self, start=size, lowest=min(self.lowest, size), highest=max(self.highest, size)
        )

    def gentle(self) -> Pace:
        """Return a pace with smaller batches and longer rests, which users don't notice."""
        return Pace(
            start=min(self.start, _GENTLE.start),
            lowest=min(self.lowest, _GENTLE.lowest),
            highest=min(self.highest, _GENTLE.highest),
            target=min(self.target, _GENTLE.target),
            rest=max(self.rest, _GENTLE.rest),
        )

    def next(self, size: int, elapsed: float) -> int:
        """Return the size of the next batch after a full one.

        Args:
            size: Rows that the batch was allowed.
            elapsed: Seconds that it took.

        Returns:
            The number of rows: `size`, at most halved or doubled towards the target, and within
            the range. A size that failures have pushed below the range returns to it step by step.
        """
        # A clock of coarse steps may say that no time has passed.
        ratio = self.target / elapsed if elapsed > 0 else 2.0
        rows = round(size * min(max(ratio, 0.5), 2.0))
        return min(max(rows, min(self.lowest, size)), self.highest)

    def shrunk(self, size: int) -> int:
        """Return the size to try after a batch of this size has failed."""
        return max(size // 2, 1)


_GENTLE: Final = Pace(start=100, lowest=10, highest=500, target=0.002, rest=4.0)
"""A fifth of a core, in pieces that are over before anybody waits for long."""

BUDGET: Final = 16 * 1024 * 1024
"""Bytes of rows that a batch may bring to Python, as far as the one before it tells."""

FIRST_LOADED: Final = 10
MOST_LOADED: Final = 1_000
"""Rows in the first batch, and in any, where rows come to Python: they may be wide."""


def fitting(size: int, rows: int, loaded: int) -> int:
    """Return as much of a batch's size as Python has room for, if `rows` took so many bytes."""
    room = BUDGET * rows // loaded if loaded and rows else size
    return max(1, min(size, room, MOST_LOADED))


def backoff(failures: int, jitter: float) -> float:
    """Return the seconds to wait before trying again, after so many failures in a row (from 1).

    The whole wait is drawn by lot (evenly from 0 to 1), so that several who failed together don't
    meet again.
    """
    return min(_FIRST_BACKOFF * 2.0 ** (failures - 1), _LONGEST_BACKOFF) * jitter
