"""The lease during a sweep (`Tenure`): when it is trusted, renewed and lost; and the `History`.

A lease is trusted from before its request was sent, and for a tenth less than it lasts: an answer
may take long to arrive, and the clocks of two machines don't run equally fast. It is renewed after
a third of its duration, so that several renewals may fail before it matters.

This module must not know a clock or a database: instants are the driver's monotonic ones, and the
driver releases the lease.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.sweeper.commands import Acquire, Now, ReadLease, Record, Renew
from ttl_odm.sweeper.leases import Lease
from ttl_odm.sweeper.report import Ending
from ttl_odm.sweeper.store import TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ttl_odm.sweeper.commands import Plan
    from ttl_odm.sweeper.leases import LeaseState

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


@dataclass(frozen=True, slots=True)
class Claim:
    """The lease that a run of a sweeper wants; its holder is unique to the run."""

    name: str
    holder: str
    duration: float


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
        content: dict[str, Any] = {"found": self._due, "rates": self._rates}
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


class Tenure:
    """A claim, and its lease once granted. Without a claim everything is allowed."""

    def __init__(self, claim: Claim | None) -> None:
        self._claim = claim
        self._lease: Lease | None = None
        self._unread: LeaseState | None = None
        """What the acquisition has read, which the first check needn't read again."""
        self._checked: LeaseState | None = None
        """What the last check has read."""
        self._renew_at = 0.0
        self._trusted_until = 0.0

    @property
    def look_after(self) -> float | None:
        """The most seconds between two calls of `keep`; None for any number."""
        return None if self._claim is None else self._claim.duration * RENEWED / 2

    def take(self) -> Plan[LeaseState | None]:
        """Take the lease unless it is ours; return its state if another sweeper has it.

        A paused sweeper keeps its lease, so if it is paused, this is a `Halt` as for the holder.
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
