"""May the next batch begin? Everything that is checked between two batches.

`BatchGate.clear` returns when the next batch may begin, after any wait, and raises `Halt` when the
sweep has to end. Waits are cut into pieces, with the same checks after each piece, so that no wait
overlooks a stop, a pause or a lost lease. `Budget` counts what the limits allow.

This module must not know a clock: its readings are the driver's, and instants for the window are
the database's.
"""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.commands import (
    AskServer,
    AskThrottle,
    DatabaseNow,
    Emit,
    IsStopping,
    Now,
    Pause,
)
from ttl_odm.sweeper.pace import backoff
from ttl_odm.sweeper.report import Ending
from ttl_odm.sweeper.store import (
    StandbyStoreError,
    StoreError,
    TransientStoreError,
    UnreachableStoreError,
)
from ttl_odm.sweeper.tenure import Halt

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import datetime

    from ttl_odm.sweeper.commands import Command, Plan
    from ttl_odm.sweeper.options import Limits, Settings
    from ttl_odm.sweeper.store import BatchResult
    from ttl_odm.sweeper.tenure import Tenure

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

ATTEMPTS: Final = 5
"""The most attempts at a command while the database is reachable."""

AWAY: Final = 60.0
"""Seconds for which a database may be unreachable, such as during a restart of its server."""

LOOK: Final = 5.0
"""The most seconds of a wait between two checks."""

BRIEF: Final = 0.05
"""The fewest seconds that a throttle's wait lasts, so that 1e-9 doesn't make a busy loop."""

THROTTLED: Final = 1.0
"""Seconds to wait if a throttle returns a reason and no number."""

REASONS: Final = 20
"""The most reasons to wait in a report, since a throttle's reasons may contain numbers."""


class BatchGate:
    """Lets the batches of one sweep through, or ends it by a `Halt`.

    Attributes:
        waited: Seconds spent waiting, by reason.
    """

    def __init__(self, settings: Settings, tenure: Tenure) -> None:
        self.waited: dict[str, float] = {}
        self._settings = settings
        self._tenure = tenure
        self._budget = Budget(settings.limits, rest=settings.pace.rest, began=0.0)
        self._owed = ("rest", 0.0)
        self._zero: datetime | None = None
        """The database's time at 0 of the monotonic clock."""
        self._step = min(LOOK, tenure.look_after or LOOK)

    def begin(self, began: float) -> Plan[None]:
        """Read the clocks, and check for the first time."""
        settings = self._settings
        self._budget = Budget(settings.limits, rest=settings.pace.rest, began=began)
        if settings.window is not None:
            instant = yield from self.persist(DatabaseNow)
            self._zero = instant - timedelta(seconds=(yield from Now()))
        yield from self.look()

    def cap(self, size: int, promised: int = 0) -> int:
        """Return how many of `size` rows the next batch may have; see `Budget.cap`."""
        return self._budget.cap(size, promised)

    def spend(
        self,
        result: BatchResult,
        *,
        period: tuple[float, float] | None = None,
        is_whole: bool = False,
    ) -> None:
        """Count a batch, and owe the wait that it costs; see `Budget.spend`."""
        owed = self._budget.spend(result, period=period, is_whole=is_whole)
        self._owed = max(self._owed, owed, key=itemgetter(1))

    def begin_turn(self, share: float) -> Plan[None]:
        """Give a target a share, from 0 to 1, of what the limits have left."""
        self._budget.begin_turn(share, (yield from Now()))

    def clear(self) -> Plan[bool]:
        """Wait until the next batch may begin; return False if the target's turn is over."""
        if not self._budget.has_rows:
            raise Halt(Ending.MAX_ROWS)
        if self._settings.limits.are_shared and self._budget.ends_turn((yield from Now())):
            return False
        (reason, seconds), self._owed = self._owed, ("rest", 0.0)
        yield from self.wait(seconds, reason)
        yield from self.look()
        while self._settings.throttle:
            try:
                throttled = _wait_of((yield from AskThrottle()))
            except Exception as error:
                raise _halt(error) from error
            if throttled is not None:
                yield from self.wait(*throttled)
            yield from self.look()  # the throttle may have taken long, or been cut short by a stop
            if throttled is None:
                break
        return True

    def look(self) -> Plan[None]:
        """Check everything that may end a sweep."""
        if (yield from IsStopping()):
            raise Halt(Ending.STOPPED)
        try:
            yield from self._tenure.keep()
            if not self._settings.dry_run:
                yield from self._tenure.obey()
        except Exception as error:
            raise _halt(error) from error
        window, zero = self._settings.window, self._zero
        if zero is None and self._budget.deadline is None:
            return
        now = yield from Now()
        if not self._budget.has_time(now):
            raise Halt(Ending.MAX_SECONDS)
        if window and zero and not window.is_open(zero + timedelta(seconds=now)):
            raise Halt(Ending.WINDOW)

    def wait(self, seconds: float, reason: str) -> Plan[None]:
        """Wait, with a check every few seconds."""
        while seconds > 0:
            step = min(seconds, self._step)
            yield from Pause(step)
            if reason not in self.waited and len(self.waited) >= REASONS:
                reason = "other"
            self.waited[reason] = self.waited.get(reason, 0.0) + step
            seconds -= step
            if seconds > 0:
                yield from self.look()

    def see_server(self) -> Plan[None]:
        """Report which server answers, if anybody wants to know."""
        server = (yield from AskServer()) if self._settings.asks_server else None
        if server is not None:
            yield from Emit(server)

    def persist(
        self, command: Callable[[], Asks[R]], failed: Callable[[], None] = lambda: None
    ) -> Plan[R]:
        """Give a command, and again after transient failures, up to `ATTEMPTS` times.

        A database that is unreachable for longer than `AWAY` ends the sweep; so does a standby,
        at once if the sweep isn't to wait there.

        Args:
            command: Makes the command anew for each attempt.
            failed: Called before another attempt, unless the database is just unreachable.
        """
        failures = 0
        lost: list[float] = []  # when it was unreachable, since it was reached the last time
        while True:
            try:
                reply = yield from command()
            except UnreachableStoreError as error:
                lost.append((yield from Now()))
                is_standby = isinstance(error, StandbyStoreError)
                waits = self._settings.waits_at_standby or not is_standby
                if not waits or lost[-1] - lost[0] >= AWAY:
                    halt = Halt(Ending.STANDBY) if is_standby else Halt(Ending.FAILED, error)
                    raise halt from error
                tries = len(lost)
            except TransientStoreError:
                failures += 1
                if failures == ATTEMPTS:
                    raise
                lost.clear()
                tries = failures
            else:
                if lost:  # another server may have answered
                    with suppress(StoreError):
                        yield from self.see_server()
                return reply
            if len(lost) <= 1:  # while it is unreachable, the batch is not at fault
                failed()
            yield from self.wait(backoff(tries, self._settings.jitter()), "retry")
            yield from self.look()


class Asks(Protocol[R_co]):
    """A command or a plan: something to ``yield from``."""

    def __iter__(self) -> Generator[Command[Any], Any, R_co]:
        """Iterate as a generator."""
        ...


def _halt(error: Exception) -> Halt:
    # A lease or a throttle that fails is not a failure of the target at hand.
    return error if isinstance(error, Halt) else Halt(Ending.FAILED, error)


def _wait_of(answer: object) -> tuple[float, str] | None:
    """Return the seconds and the reason that a throttle's answer means; None to go on."""
    if isinstance(answer, str):
        return (THROTTLED, answer) if answer else None
    if answer is None or answer is False:
        return None
    if isinstance(answer, (int, float)) and math.isfinite(answer) and answer >= 0:
        return (max(float(answer), BRIEF), "throttle") if answer else None
    raise TTLConfigurationError(
        f"The throttle returned {answer!r}: return None to continue, a number of seconds to wait, "
        "or a reason to stop."
    )


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
        """When the rows of all batches so far are within the rate, for batches that run at once."""
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
        """Whether the share is used up."""
        has_rows = self._rows_of_turn is None or self._rows_of_turn > 0
        has_time = self._end_of_turn is None or now < self._end_of_turn
        return not self._is_new_turn and not (has_rows and has_time)

    def cap(self, size: int, promised: int = 0) -> int:
        """Return how many of `size` rows a batch may have.

        That is 0 while running batches, which were `promised` so many, may take all that is left.
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
            is_whole: Whether it went whole, which costs no time by its rows.
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
        """Whether another batch may begin."""
        return self.deadline is None or now < self.deadline
