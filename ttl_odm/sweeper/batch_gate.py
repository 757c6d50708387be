"""Whether the next batch may begin: everything that is checked between two batches.

`BatchGate.clear` returns when the next batch may begin, after any wait, and raises `Halt` when the
sweep has to end. Waits are cut into pieces, with the same checks after each piece, so that no wait
overlooks a stop, a pause or a lost lease.

`Tenure` is the lease during a sweep. It is trusted from before its request was sent, and for a
tenth less than it lasts: an answer may take long to arrive, and the clocks of two machines don't
run equally fast. It is renewed after a third of its duration, so that several renewals may fail
before it matters. `History` is what the last sweeps recorded with it.

This module must not know a clock or a database: its readings are the driver's, instants for the
window are the database's, and the driver releases the lease.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.commands import (
    Acquire,
    AskServer,
    AskThrottle,
    DatabaseNow,
    Emit,
    IsStopping,
    Now,
    Pause,
    ReadLease,
    Record,
    Renew,
)
from ttl_odm.sweeper.leases import Lease
from ttl_odm.sweeper.pace import Budget, backoff
from ttl_odm.sweeper.report import Ending
from ttl_odm.sweeper.store import (
    StandbyStoreError,
    StoreError,
    TransientStoreError,
    UnreachableStoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from datetime import datetime

    from ttl_odm.sweeper.commands import Command, Plan
    from ttl_odm.sweeper.leases import LeaseState
    from ttl_odm.sweeper.options import Settings
    from ttl_odm.sweeper.store import BatchResult

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

TRUSTED: Final = 0.9
RENEWED: Final = 1 / 3
"""Shares of a lease's duration."""

KEPT: Final = 10
"""The most sweeps in the history of a target."""

_MOST: Final = 1 << 62
"""More rows than any table has, which the fuse can still multiply."""


class Halt(Exception):  # noqa: N818 (no error: it ends a sweep from anywhere)
    """The sweep has to end here."""

    def __init__(self, ending: Ending, error: Exception | None = None) -> None:
        super().__init__(ending)
        self.ending = ending
        self.error = error


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
        """Report which server answers, if the user asks for it."""
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
            failed: Called before another attempt, unless the database is merely unreachable.
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

    def __iter__(self) -> Generator[Command[object], Any, R_co]:
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


@dataclass(frozen=True, slots=True)
class Claim:
    """The lease that a run of a sweeper wants; its holder is unique to the run."""

    name: str
    holder: str
    duration: float


class Tenure:
    """A claim, and its lease once granted. Without a claim everything is allowed."""

    def __init__(self, claim: Claim | None) -> None:
        self._claim = claim
        self._lease: Lease | None = None
        self._unread: LeaseState | None = None
        """The state that the acquisition has read, for the first check."""
        self._checked: LeaseState | None = None
        """The state that the last check has read."""
        self._renew_at = 0.0
        self._trusted_until = 0.0

    @property
    def look_after(self) -> float | None:
        """The most seconds between two calls of `keep`; None for any number."""
        return None if self._claim is None else self._claim.duration * RENEWED / 2

    def take(self) -> Plan[LeaseState | None]:
        """Take the lease unless it is ours; return its state if another sweeper has it.

        A paused holder keeps its lease, so this is a `Halt` if the sweepers are paused.
        """
        self._unread = None
        if self._claim is None or self._lease is not None:
            return None
        claim = self._claim
        sent = yield from Now()
        lease = yield from Acquire(claim.name, claim.holder, claim.duration)
        if lease is None:
            state = yield from ReadLease(claim.name)
            if state.holder == claim.holder:
                # An earlier request got it, and the answer was lost.
                sent = yield from Now()
                ours = Lease(claim.name, claim.holder, state.token, claim.duration)
                lease = ours if (yield from Renew(ours)) else None
            if lease is None:
                if state.paused:
                    raise Halt(Ending.PAUSED)
                return state
        self._lease, self._unread = lease, lease.state
        self._trust_from(sent)
        return None

    def keep(self) -> Plan[None]:
        """Renew the lease if it is time; a `Halt` means that it is lost, or may be."""
        if self._lease is None:
            return
        sent = yield from Now()
        if sent < self._renew_at:
            return
        try:
            kept = yield from Renew(self._lease)
        except TransientStoreError as error:
            if sent < self._trusted_until:
                return  # it is still ours, and there will be another attempt
            self._lease = None
            raise Halt(Ending.LEASE_LOST, error) from error
        if not kept:
            self._lease = None
            raise Halt(Ending.LEASE_LOST)
        self._trust_from(sent)

    def obey(self) -> Plan[None]:
        """Halt if the sweepers are paused, or the lease isn't ours any more."""
        if self._claim is None:
            return
        state, self._unread, self._checked = self._unread, None, None
        if state is None:
            try:
                state = yield from ReadLease(self._claim.name)
            except TransientStoreError:
                return  # the batch itself will fail in the same way, and wait
        self._checked = state
        if state.paused:
            raise Halt(Ending.PAUSED)
        if self._lease is not None and state.token != self._lease.token:
            self._lease = None  # taken over before its time, as by a wrong clock or a cut session
            raise Halt(Ending.LEASE_LOST)

    def history(self) -> Plan[History]:
        """Return the history of the last sweeps; an empty one without a claim.

        The check at a sweep's beginning has read it, and only the holder changes it.
        """
        if self._claim is None:
            return History()
        state = self._checked
        if state is None:  # it failed, or this is a dry run, which checks nothing
            state = yield from ReadLease(self._claim.name)
        return History.loads(state.history)

    def record(self, history: History, *, ends: bool) -> Plan[None]:
        """Record the history, if the lease is ours; and release it if that `ends` the run.

        Where the store can't release it in one step with that, the driver does in the end.
        """
        if self._lease is not None:
            yield from Record(self._lease, history.dumps(), ends)

    def _trust_from(self, sent: float) -> None:
        assert self._claim is not None  # noqa: S101 (there is no lease without a claim)
        self._renew_at = sent + self._claim.duration * RENEWED
        self._trusted_until = sent + self._claim.duration * TRUSTED


class History:
    """What the last sweeps found and did, by target; recorded with the lease.

    The fuse compares with it, and ``ttl-odm status`` shows it. A target whose fuse has blown isn't
    in it, or the next sweep would take the new number for usual.

    Attributes:
        last: The target of the last batch, if the last sweep ended early; None otherwise.
    """

    def __init__(
        self,
        due: Mapping[str, Sequence[int]] | None = None,
        rates: Mapping[str, float] | None = None,
        last: str | None = None,
    ) -> None:
        self.last = last
        self._due = {target: list(numbers)[-KEPT:] for target, numbers in (due or {}).items()}
        self._rates = dict(rates or {})

    @classmethod
    def loads(cls, text: str) -> History:
        """Read what `dumps` wrote; text that can't be read is an empty history."""
        try:
            content: Any = json.loads(text or "{}")
            due = {
                str(target): [min(int(number), _MOST) for number in numbers]
                for target, numbers in content["found"].items()
            }
            rates = {str(target): float(rate) for target, rate in content.get("rates", {}).items()}
            last = content.get("last")
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            # Another version wrote it, or a person did. The fuse has to learn again.
            return cls()
        return cls(due, rates, None if last is None else str(last))

    def dumps(self) -> str:
        """Write it, as JSON."""
        content: dict[str, object] = {"found": self._due, "rates": self._rates}
        if self.last is not None:
            content["last"] = self.last
        return json.dumps(content, separators=(",", ":"))

    def of(self, target: str) -> Sequence[int]:
        """Return how many expired rows the last sweeps found in a target, the latest last."""
        return self._due.get(target, [])

    def add(self, target: str, number: int) -> None:
        """Add a sweep, and forget the oldest beyond `KEPT`."""
        self._due[target] = [*self.of(target), number][-KEPT:]

    def rate_of(self, target: str) -> float | None:
        """Return the rows per second of the last sweep that deleted any; None if none has."""
        return self._rates.get(target)

    def add_rate(self, target: str, deleted: int, seconds: float) -> None:
        """Keep the speed of a sweep, if it deleted anything."""
        if deleted and seconds > 0:
            self._rates[target] = float(f"{deleted / seconds:.3g}")
