"""What a plan can ask for: one small frozen value for each thing that a driver does.

A command's ``__iter__`` yields the command itself and returns the reply, which gives
``result = yield from PurgeBatch(...)`` its type. Errors of the store are thrown into the plan.

A new command goes here and into the two drivers in `ttl_odm.sweeper.drive`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from ttl_odm.sweeper.hooks import Hooks, Purged
from ttl_odm.sweeper.leases import Lease, LeaseState
from ttl_odm.sweeper.store import BatchRequest, BatchResult, Counted, Due

if TYPE_CHECKING:
    from ttl_odm.sweeper.report import Progress, SweepReport

R = TypeVar("R")


class Command(Generic[R]):
    """Something for a driver to do; the reply is an ``R``."""

    __slots__ = ()

    def __iter__(self) -> Generator[Command[R], R, R]:
        reply = yield self
        return reply


Plan: TypeAlias = Generator[Command[Any], Any, R]
"""A generator of commands that returns an ``R``."""


@dataclass(frozen=True, slots=True)
class Now(Command[float]):
    """Read a monotonic clock, in seconds."""


@dataclass(frozen=True, slots=True)
class DatabaseNow(Command[datetime]):
    """Ask a `Clocked` store for its instant."""


@dataclass(frozen=True, slots=True)
class IsStopping(Command[bool]):
    """Ask whether somebody wants the sweeper to stop."""


@dataclass(frozen=True, slots=True)
class Pause(Command[None]):
    """Wait for some seconds, or until somebody wants the sweeper to stop."""

    seconds: float


@dataclass(frozen=True, slots=True)
class AskThrottle(Command[object]):
    """Call the user's throttle."""


@dataclass(frozen=True, slots=True)
class ListTargets(Command[Sequence[str]]):
    """Ask the store for its targets, in the order in which to sweep them."""


@dataclass(frozen=True, slots=True)
class ListHooks(Command[Hooks]):
    """Ask the store for the hooks that its targets declare; none if it isn't `Hooking`."""


@dataclass(frozen=True, slots=True)
class FindDue(Command[Due | None]):
    """Ask the store what has expired in a target."""

    target: str


@dataclass(frozen=True, slots=True)
class CountDue(Command[Counted]):
    """Let a `Counting` store count what has expired in a target.

    With further facts about these rows, if they are wanted and the store can count them.
    """

    target: str
    with_facts: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class PurgeBatch(Command[BatchResult]):
    """Let the store delete one batch."""

    request: BatchRequest


@dataclass(frozen=True, slots=True)
class Divide(Command[Sequence[object]]):
    """Let a `Dividing` store cut what is left of a stretch, of which a batch would be next."""

    request: BatchRequest
    shares: int


@dataclass(frozen=True, slots=True)
class Begin(Command[None]):
    """Let the store delete a batch beside those of other stretches that are under way."""

    request: BatchRequest


@dataclass(frozen=True, slots=True)
class AwaitBatch(Command[tuple[BatchRequest, BatchResult | Exception]]):
    """Wait for one of those to be over; one that fails says nothing of the others."""


@dataclass(frozen=True, slots=True)
class CallHooks(Command[None]):
    """Call the hooks that run after the commit."""

    hooks: Hooks
    purged: Purged


@dataclass(frozen=True, slots=True)
class Acquire(Command[Lease | None]):
    """Take the lease. The driver gives it back in the end, whatever happens to the plan."""

    name: str
    holder: str
    duration: float


@dataclass(frozen=True, slots=True)
class Renew(Command[bool]):
    """Prolong the lease."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class ReadLease(Command[LeaseState]):
    """Look at the lease."""

    name: str


@dataclass(frozen=True, slots=True)
class Record(Command[bool]):
    """Store the history beside the lease."""

    lease: Lease
    history: str


@dataclass(frozen=True, slots=True)
class Emit(Command[None]):
    """Report to whoever watches; what that raises is the caller's, and ends the driver."""

    event: Progress | SweepReport
