"""How much a sweep may do: rows in a batch, batches at once, and the wait before the next one.

A batch should take about as long as other users of the database can bear to wait for it. How many
rows that is depends on indexes, row width, caches and load, so it is measured: each batch that took
longer or shorter than its target changes the size of the next one, by at most a factor of two
(`Pace`). What another worker gains depends on cores, disks, locks and other users, and is measured,
too (`Crew`). `Budget` counts what the limits of a sweep have left, and a `CulpritSearch` finds the
rows that make their batch fail, by smaller batches.

Arithmetic only. This module must not know what a batch does, nor a clock or a source of randomness:
its callers pass measurements and random numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ttl_odm.sweeper.store import BatchResult

_FIRST_BACKOFF: Final = 0.1
_LONGEST_BACKOFF: Final = 5.0


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
        gentle_rows: Rows in a batch of the `gentle` pace: as many as the database deletes in about
            a millisecond. The time of such a small batch doesn't show it, because Python and the
            network take most of it. None for a database where it wasn't measured.
    """

    start: int
    lowest: int
    highest: int
    target: float
    rest: float = 0.0
    gentle_rows: int | None = None

    def starting_at(self, size: int) -> Pace:
        """Return the same pace with a different first batch size, widening the range to fit."""
        return replace(
            self, start=size, lowest=min(self.lowest, size), highest=max(self.highest, size)
        )

    def gentle(self) -> Pace:
        """Return a pace with smaller batches and longer rests, which users don't notice."""
        gentle, rows = _GENTLE, self.gentle_rows
        if rows is not None:
            lowest = min(gentle.lowest, rows)
            gentle = replace(gentle, start=rows, lowest=lowest, highest=rows, target=_FAR)
        return replace(
            self,
            start=min(self.start, gentle.start),
            lowest=min(self.lowest, gentle.lowest),
            highest=min(self.highest, gentle.highest),
            target=min(self.target, gentle.target),
            rest=max(self.rest, gentle.rest),
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
"""A fifth of a core, in batches so short that no user waits for long."""

_FAR: Final = 0.025
"""Seconds that a gentle batch of known size may take, round trips and Python included: one that
takes longer meets a slow disk, or a busy server."""

MOST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of rows that a batch may load into Python, judging by the one before it."""

FIRST_LOADED: Final = 10
MOST_LOADED: Final = 1_000
"""The most rows in the first batch, and in any, if rows are loaded: they may be wide."""


def loadable(size: int, rows: int, loaded: int) -> int:
    """Return how many of `size` rows Python has room for, if `rows` took so many bytes."""
    room = MOST_BYTES * rows // loaded if loaded and rows else size
    return max(1, min(size, room, MOST_LOADED))


def backoff(failures: int, jitter: float) -> float:
    """Return the seconds to wait before the next attempt, after so many failures in succession.

    The whole wait is random (`jitter` is uniform from 0 to 1), so that several sweepers that failed
    together don't collide again.
    """
    return min(_FIRST_BACKOFF * 2.0 ** (failures - 1), _LONGEST_BACKOFF) * jitter


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sweep may take, by its `SweepOptions`."""

    max_rows: int | None = None
    max_seconds: float | None = None
    max_rows_per_second: float | None = None
    nice: float | None = None

    @property
    def are_shared(self) -> bool:
        """Whether the targets share a limit, so that what one takes the others can't."""
        return self.max_rows is not None or self.max_seconds is not None


class Budget:
    """What one sweep may still take: rows, seconds, rows per second, rest.

    Attributes:
        deadline: When it is over, by the monotonic clock of `began`; None for never.
    """

    def __init__(self, limits: Limits, *, rest: float, began: float) -> None:
        """Start full; `rest` is seconds for each second of work, unless `limits.nice` is set."""
        self._limits = limits
        self._rows = limits.max_rows
        self._rest = rest if limits.nice is None else limits.nice
        self.deadline = None if limits.max_seconds is None else began + limits.max_seconds
        self._paid_until = 0.0
        """When the rate allows the rows of all batches so far, for batches that run at once."""
        self._rows_of_turn, self._end_of_turn = self._rows, self.deadline
        self._is_new_turn = True

    def begin_turn(self, share: float, now: float) -> None:
        """Give the next turn a share, from 0 to 1, of what is left; one batch in any case."""
        self._is_new_turn = True
        if self._rows is not None:
            # Rounding up would be at the expense of later turns.
            self._rows_of_turn = max(1, math.floor(round(self._rows * share, 9)))
        if self.deadline is not None:
            self._end_of_turn = now + (self.deadline - now) * share

    def ends_turn(self, now: float) -> bool:
        """Return whether the share is used up."""
        has_rows = self._rows_of_turn is None or self._rows_of_turn > 0
        has_time = self._end_of_turn is None or now < self._end_of_turn
        return not self._is_new_turn and not (has_rows and has_time)

    def cap(self, size: int, promised: int = 0) -> int:
        """Return how many of `size` rows a batch may have.

        That is 0 while running batches, which were `promised` rows, may take all that are left.
        """
        most = self._limits.max_rows_per_second
        if most is not None:
            size = min(size, max(0 if promised else 1, int(most) - promised))
        if self._rows is None or self._rows_of_turn is None:
            return size
        return max(0, min(size, self._rows - promised, self._rows_of_turn - promised))

    def spend(
        self,
        result: BatchResult,
        *,
        period: tuple[float, float] | None = None,
        is_whole: bool = False,
    ) -> tuple[str, float]:
        """Count a batch, and return why to wait before the next one, and for how many seconds.

        Args:
            result: The batch.
            period: When it began and ended by the monotonic clock, if others ran at the same time:
                all of them share the seconds that pass.
            is_whole: Whether it deleted something whole, which takes no time for its rows, so the
                rate doesn't count them.
        """
        rows = result.deleted + sum(result.referring.values())
        self._is_new_turn = False
        if self._rows is not None and self._rows_of_turn is not None:
            self._rows -= rows
            self._rows_of_turn -= rows
        rest, rate = result.elapsed * self._rest, self._limits.max_rows_per_second
        if rate is None or is_whole:
            return "rest", rest
        if period is None:
            owed = rows / rate - result.elapsed
        else:
            began, now = period
            self._paid_until = max(began, self._paid_until) + rows / rate
            owed = self._paid_until - now
        return ("rate", owed) if owed > rest else ("rest", rest)

    @property
    def has_rows(self) -> bool:
        """Whether another row may be deleted."""
        return self._rows is None or self._rows > 0

    def has_time(self, now: float) -> bool:
        """Return whether another batch may begin."""
        return self.deadline is None or now < self.deadline


SINGLED_OUT: Final = 5
"""The most failing rows in succession that are found one by one; then whole batches are left."""


@dataclass(slots=True)
class CulpritSearch:
    """The search for rows that make their batch fail: how large the next batch of a range is.

    A trigger rejects a row, an archive doesn't take it, a hook chokes on it: the whole batch is
    rolled back. It is halved until the culprit stands alone; that row is left, and the others go.
    Where many such rows follow each other, as after an earlier sweep took all between them, only
    the first `SINGLED_OUT` are found one by one. From then on failing batches are left whole, each
    twice as large as the one before it, until one succeeds; then the last one that was left is
    purged again, row by row. So a thousand culprits cost some thirty batches more than ten, and no
    other row stays.

    Attributes:
        limit: The most rows of the next batch; None while nothing is wrong.
        last_left: The last batch that was left whole, and where it began; None if a batch has
            succeeded since, or if it had a single row.
    """

    limit: int | None = None
    last_left: tuple[object, BatchResult] | None = None
    _in_a_row: int = 0
    _may_grow: bool = False

    def cap(self, size: int) -> int:
        """Return the rows that a batch may have, which would otherwise have `size`."""
        return size if self.limit is None else min(size, self.limit)

    @property
    def _least(self) -> int:
        """Rows of a batch that is left whole."""
        return 1 << max(0, self._in_a_row - SINGLED_OUT)

    def leaves(self, begin: object, size: int, result: BatchResult) -> bool:
        """Return whether to leave a failed batch; otherwise it is tried with fewer rows."""
        rows = min(size, sum(result.skipped.values()))
        self._may_grow = False
        if rows > self._least:
            self.limit = max(rows // 2, self._least)
            return False
        self._in_a_row += 1
        self.limit = self._least
        self.last_left = (begin, result) if rows > 1 else None
        return True

    def grow(self, size: int) -> None:
        """Let batches grow after one that succeeded; the search ends when they have `size` rows."""
        self._in_a_row = 0
        if self.limit is not None:
            # The other half of a failed batch has the culprit if this half had none.
            self.limit *= 2 if self._may_grow else 1
            self._may_grow = True
            if self.limit >= size:
                self.limit = None

    def go_back(self) -> tuple[object, BatchResult] | None:
        """Return the last batch that was left whole, to purge it again; None if there is none."""
        last, self.last_left = self.last_left, None
        if last is not None:
            self._in_a_row, self.limit = 0, 1
        return last


MOST_WORKERS: Final = 64
"""Each takes a connection, and a thread."""

GAIN: Final = 1.15
"""How many times as fast a target has to be purged with another worker for that one to stay."""

SLOW: Final = 0.75
"""A batch was slow, beyond noise, if the pace then wants less than this share of its size."""

_FIRST_WAIT: Final = 8
_LONGEST_WAIT: Final = 256
"""Rounds between two trials."""


@dataclass(slots=True)
class _Round:
    began: float
    rows: int = 0
    batches: int = 0
    is_slow: bool = False


class Crew:
    """How many workers purge a target at once, of at most `most`.

    A target begins with all of them. Now and then a round has one worker fewer, or one more, as a
    trial: if fewer do almost as much, the other one was in the way, of other users, too. If batches
    suddenly take much longer than they should, other users need the database: one worker stops at
    once, and returns when there is room.

    Attributes:
        size: The workers of the next round.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.size = most
        self._settled = most
        self._rate: float | None = None
        self._wait = _FIRST_WAIT
        self._rounds = 0
        self._tries_fewer = True
        self._round: _Round | None = None

    def take(self, rows: int, now: float, *, is_full: bool, is_slow: bool) -> None:
        """Count a batch that has ended.

        As many full batches in succession as there are workers make a round. A batch that isn't
        full says nothing about the speed, and ends its round.

        Args:
            rows: Rows that it deleted.
            now: When it ended, by a monotonic clock.
            is_full: Whether it was as large as it might be.
            is_slow: Whether the pace wants much smaller batches.
        """
        if not is_full:
            self._round = None
        elif self._round is None:
            self._round = _Round(now)
        else:
            current, size = self._round, self.size
            current.rows += rows
            current.batches += 1
            current.is_slow = current.is_slow or is_slow
            if current.batches >= size:
                self.learn(current.rows, now - current.began, is_slow=current.is_slow)
                self._round = _Round(now) if size == self.size else None

    def learn(self, rows: int, seconds: float, *, is_slow: bool) -> None:
        """Choose the size by a round of full batches.

        Args:
            rows: Rows that the round deleted.
            seconds: Seconds that the round took.
            is_slow: Whether the pace wants much smaller batches.
        """
        if self._most == 1 or seconds <= 0:
            return
        rate = rows / seconds
        if self.size != self._settled:
            self._judge_trial(rate)
        elif is_slow and self._settled > 1:
            self._settle(self._settled - 1, None)
            self._tries_fewer = False
        else:
            self._rate = rate if self._rate is None else (self._rate + rate) / 2
            self._rounds += 1
            if self._rounds >= self._wait:
                size = self._settled + (-1 if self._tries_fewer else 1)
                self._tries_fewer = not self._tries_fewer
                self._rounds = 0
                self.size = size if 1 <= size <= self._most else self.size

    def _judge_trial(self, rate: float) -> None:
        """Compare a round of another size with those before it."""
        before = self._rate or 0.0
        if rate * GAIN >= before if self.size < self._settled else rate >= before * GAIN:
            self._tries_fewer = self.size < self._settled  # one more step may be better still
            self._settle(self.size, rate)
            return
        self.size, self._rounds = self._settled, 0
        self._wait = min(self._wait * 2, _LONGEST_WAIT)

    def _settle(self, size: int, rate: float | None) -> None:
        self.size = self._settled = size
        self._rate, self._rounds, self._wait = rate, 0, _FIRST_WAIT
