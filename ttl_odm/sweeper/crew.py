"""How many workers purge a target at once: as many as bring something, up to what was asked for.

What a further worker brings depends on cores, disks, locks and on everybody else who wants them, so
it is found by measuring, as the batches' size is. All of them begin. Now and then one fewer, or one
more, works for a round: where it does almost as much, the other was in the way, of whoever else
there is, too. And where batches suddenly take much longer than they should, somebody else needs the
database: one worker goes at once, and comes back when there is room.

This module must not know a store or a clock: what was measured is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MOST_WORKERS: Final = 64
"""Each takes a connection, and a thread."""

GAIN: Final = 1.15
"""How much faster it has to be with another worker for that one to stay."""

SLOW: Final = 0.75
"""Part of a batch's size below which a pace sees trouble, not noise."""

_FIRST_WAIT: Final = 8
_LONGEST_WAIT: Final = 256
"""Rounds between two tries."""


@dataclass(slots=True)
class _Round:
    began: float
    rows: int = 0
    batches: int = 0
    is_slow: bool = False

    def add(self, rows: int, *, is_slow: bool) -> None:
        self.rows += rows
        self.batches += 1
        self.is_slow = self.is_slow or is_slow


class Crew:
    """The number of workers at one target, of `most`; `size` is how many the next round has."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.size = most
        self._home = most
        self._rate: float | None = None
        self._wait = _FIRST_WAIT
        self._rounds = 0
        self._is_to_be_fewer = True
        self._round: _Round | None = None

    def take(self, rows: int, now: float, *, is_full: bool, is_slow: bool) -> None:
        """Take in a batch that is over, at an instant of a monotonic clock.

        As many full ones, one after the other, as there are workers make a round. One that isn't
        full tells nothing, and what is around it as little.

        Args:
            rows: That it has deleted.
            now: The instant.
            is_full: Whether it was as large as it might be.
            is_slow: Whether the pace wants much smaller batches.
        """
        if not is_full:
            self._round = None
        elif self._round is None:
            self._round = _Round(now)
        else:
            self._round.add(rows, is_slow=is_slow)
            if self._round.batches >= self.size:
                over, size = self._round, self.size
                self.learn(over.rows, now - over.began, is_slow=over.is_slow)
                self._round = _Round(now) if size == self.size else None

    def learn(self, rows: int, seconds: float, *, is_slow: bool) -> None:
        """Take in what a round of full batches has done.

        Args:
            rows: That all of them have deleted.
            seconds: That the round took.
            is_slow: Whether the pace wants much smaller batches.
        """
        if self._most == 1 or seconds <= 0:
            return
        rate = rows / seconds
        if self.size != self._home:
            self._judge(rate)
        elif is_slow and self._home > 1:
            self._settle(self._home - 1, None)
            self._is_to_be_fewer = False
        else:
            self._rate = rate if self._rate is None else (self._rate + rate) / 2
            self._rounds += 1
            if self._rounds >= self._wait:
                self._try_another()

    def _try_another(self) -> None:
        size = self._home + (-1 if self._is_to_be_fewer else 1)
        self._is_to_be_fewer = not self._is_to_be_fewer
        self._rounds = 0
        if 1 <= size <= self._most:
            self.size = size

    def _judge(self, rate: float) -> None:
        """Compare a round of another number with those before it."""
        before = self._rate or 0.0
        if rate * GAIN >= before if self.size < self._home else rate >= before * GAIN:
            self._is_to_be_fewer = self.size < self._home  # more of the same may be better still
            self._settle(self.size, rate)
            return
        self.size, self._rounds = self._home, 0
        self._wait = min(self._wait * 2, _LONGEST_WAIT)

    def _settle(self, size: int, rate: float | None) -> None:
        self.size = self._home = size
        self._rate, self._rounds, self._wait = rate, 0, _FIRST_WAIT
