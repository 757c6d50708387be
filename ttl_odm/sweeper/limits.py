"""What bounds a sweep, and how much of it is left: rows, seconds, rows per second, rest.

Arithmetic only; the readings of the clock are passed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttl_odm.sweeper.store import BatchResult


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sweep may take.

    Attributes:
        max_rows: Rows that it may delete; None for all.
        max_seconds: Seconds after which it begins no batch any more; None for any number.
        max_rows_per_second: The rate that it may reach; None for any.
        nice: Seconds to rest for each second of work; None for what the pace says.
    """

    max_rows: int | None = None
    max_seconds: float | None = None
    max_rows_per_second: float | None = None
    nice: float | None = None


class Budget:
    """What one sweep may still take."""

    def __init__(self, limits: Limits, *, rest: float, began: float) -> None:
        """Begin with everything.

        Args:
            limits: Of the sweep.
            rest: Seconds for each second of work, where the limits don't say.
            began: When the sweep did, by a monotonic clock.
        """
        self._limits = limits
        self._rows = limits.max_rows
        self._rest = rest if limits.nice is None else limits.nice
        self._deadline = None if limits.max_seconds is None else began + limits.max_seconds

    def cap(self, size: int) -> int:
        """Return the rows that a batch may have, which would otherwise have `size`."""
        if self._limits.max_rows_per_second is not None:
            size = min(size, max(1, int(self._limits.max_rows_per_second)))
        return size if self._rows is None else min(size, self._rows)

    def spend(self, result: BatchResult) -> tuple[str, float]:
        """Count a batch in.

        Returns:
            Why to wait before the next one, and how many seconds.
        """
        if self._rows is not None:
            self._rows -= result.deleted
        rest = result.elapsed * self._rest
        rate = self._limits.max_rows_per_second
        owed = 0.0 if rate is None else result.deleted / rate - result.elapsed
        return ("rate", owed) if owed > rest else ("rest", rest)

    @property
    def has_rows(self) -> bool:
        """Whether another row may be deleted."""
        return self._rows is None or self._rows > 0

    def has_time(self, now: float) -> bool:
        """Whether another batch may begin."""
        return self._deadline is None or now < self._deadline

    def is_dated(self) -> bool:
        """Whether its time is limited at all."""
        return self._deadline is not None
