"""Everything that is looked at between two batches, in one place: may the next one begin?

`BatchGate.clear` returns when it may, having waited for what had to be waited for, and raises
`Halt` when the sweep has to end. Waits are cut into pieces, and each piece ends in the same look,
so that no wait is deaf to a stop, a pause or a lost lease.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.commands import AskThrottle, DatabaseNow, IsStopping, Now, Pause
from ttl_odm.sweeper.limits import Budget
from ttl_odm.sweeper.pace import backoff
from ttl_odm.sweeper.report import Ending
from ttl_odm.sweeper.store import TransientStoreError, UnreachableStoreError
from ttl_odm.sweeper.tenure import Halt

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import datetime

    from ttl_odm.sweeper.commands import Command, Plan
    from ttl_odm.sweeper.options import Settings
    from ttl_odm.sweeper.store import BatchResult
    from ttl_odm.sweeper.tenure import Tenure
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

ATTEMPTS: Final = 5
"""How often something is tried before it is given up, while the database answers."""

AWAY: Final = 60.0
"""Seconds for which a database may be away, as while its server is restarted."""

LOOK: Final = 5.0
"""Seconds of a wait after which to look around, at most."""

BRIEF: Final = 0.05
"""Seconds that a throttle's wait lasts at least: one that says 1e-9 is not to be asked all day."""

THROTTLED: Final = 1.0
"""Seconds to wait where a throttle gives a reason and no number."""

REASONS: Final = 20
"""Reasons to wait that a report tells apart: a throttle may put numbers into its own."""


class Asks(Protocol[R_co]):
    """A command or a plan: something to ``yield from``."""

    def __iter__(self) -> Generator[Command[Any], Any, R_co]:
        """Iterate as a generator."""
        ...


class BatchGate:
    """The state of one sweep as far as it decides whether the sweep goes on.

    Attributes:
        waited: Seconds that were spent waiting, by reason.
    """

    def __init__(self, settings: Settings, tenure: Tenure) -> None:
        self.waited: dict[str, float] = {}
        self._settings = settings
        self._tenure = tenure
        self._budget = Budget(settings.limits, rest=settings.pace.rest, began=0.0)
        self._owed = ("rest", 0.0)
        self._zero: datetime | None = None  # the database's instant at 0 of the monotonic clock
        self._step = min(LOOK, tenure.look_after or LOOK)

    def begin(self, began: float) -> Plan[None]:
        """Set the clocks, and look for the first time.

        Raises:
            Halt: The sweep is not to begin at all.
        """
        settings = self._settings
        self._budget = Budget(settings.limits, rest=settings.pace.rest, began=began)
        if settings.window is not None:
            instant = yield from self.persist(DatabaseNow)
            self._zero = instant - timedelta(seconds=(yield from Now()))
        yield from self.look()

    def cap(self, size: int) -> int:
        """Return the rows that the next batch may have, which would otherwise have `size`."""
        return self._budget.cap(size)

    def spend(self, result: BatchResult) -> None:
        """Count a batch in; what it costs in rest is waited for before the next one."""
        self._owed = self._budget.spend(result)

    def clear(self) -> Plan[None]:
        """Wait until the next batch may begin.

        Raises:
            Halt: It may not.
        """
        if not self._budget.has_rows:
            raise Halt(Ending.MAX_ROWS)
        (reason, seconds), self._owed = self._owed, ("rest", 0.0)
        yield from self.wait(seconds, reason)
        yield from self.look()
        if self._settings.throttle:
            while (throttled := (yield from self._throttle())) is not None:
                yield from self.wait(*throttled)
                yield from self.look()
            yield from self.look()  # asking may have taken long, and been cut short by a stop

    def look(self) -> Plan[None]:
        """Look at everything that may end a sweep.

        Raises:
            Halt: Something did.
        """
        if (yield from IsStopping()):
            raise Halt(Ending.STOPPED)
        yield from self._hold()
        if self._zero is None and not self._budget.is_dated():
            return
        now = yield from Now()
        if not self._budget.has_time(now):
            raise Halt(Ending.MAX_SECONDS)
        if not self._is_open(now):
            raise Halt(Ending.WINDOW)

    def wait(self, seconds: float, reason: str) -> Plan[None]:
        """Wait, and look around now and then.

        Raises:
            Halt: The sweep has to end meanwhile.
        """
        while seconds > 0:
            step = min(seconds, self._step)
            yield from Pause(step)
            self._note(reason, step)
            seconds -= step
            if seconds > 0:
                yield from self.look()

    def persist(
        self,
        command: Callable[[], Asks[R]],
        failed: Callable[[], None] = lambda: None,
    ) -> Plan[R]:
        """Give a command, and again after failures that may pass.

        Args:
            command: Makes it, anew for each attempt.
            failed: Called after each failure.

        Raises:
            TransientStoreError: It has failed `ATTEMPTS` times.
            Halt: The sweep has to end meanwhile, or the database was away for longer than `AWAY`.
        """
        failures = 0
        lost: list[float] = []  # when it wasn't reached, since it was reached the last time
        while True:
            try:
                reply = yield from command()
            except UnreachableStoreError as error:
                lost.append((yield from Now()))
                if lost[-1] - lost[0] >= AWAY:
                    raise Halt(Ending.FAILED, error) from error
                tries = len(lost)
            except TransientStoreError:
                failures += 1
                if failures == ATTEMPTS:
                    raise
                lost.clear()
                tries = failures
            else:
                return reply
            if len(lost) <= 1:  # while it is away, the batch is not at fault
                failed()
            yield from self.wait(backoff(tries, self._settings.jitter()), "retry")
            yield from self.look()

    def _note(self, reason: str, seconds: float) -> None:
        if reason not in self.waited and len(self.waited) >= REASONS:
            reason = "other"
        self.waited[reason] = self.waited.get(reason, 0.0) + seconds

    def _is_open(self, now: float) -> bool:
        window, zero = self._settings.window, self._zero
        return window is None or zero is None or window.is_open(zero + timedelta(seconds=now))

    def _hold(self) -> Plan[None]:
        try:
            yield from self._tenure.keep()
            if not self._settings.dry_run:
                yield from self._tenure.obey()
        except Exception as error:
            raise _halt(error) from error

    def _throttle(self) -> Plan[tuple[float, str] | None]:
        try:
            return _wait_of((yield from AskThrottle()))
        except Exception as error:
            raise _halt(error) from error


def _halt(error: Exception) -> Halt:
    # A lease or a throttle that fails is no failure of the target at hand.
    return error if isinstance(error, Halt) else Halt(Ending.FAILED, error)


def _wait_of(answer: object) -> tuple[float, str] | None:
    """Read what a throttle says: nothing, seconds, or a reason."""
    if isinstance(answer, str):
        return (THROTTLED, answer) if answer else None
    if answer is None or answer is False:
        return None
    if isinstance(answer, (int, float)) and math.isfinite(answer) and answer >= 0:
        return (max(float(answer), BRIEF), "throttle") if answer else None
    raise TTLConfigurationError(
        f"The throttle returned {answer!r}: return None to go on, seconds to wait, or a reason."
    )
