"""The commands of a plan: one small frozen value for each thing that a driver does.

A command's ``__iter__`` yields the command itself and returns the reply, which gives
``result = yield from PurgeBatch(...)`` its type. Errors of the store are thrown into the plan.

A new command goes here and into `ttl_odm.sweeper.drive`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from ttl_odm.sweeper.hooks import Hooks, Purged
from ttl_odm.sweeper.leases import Lease, LeaseState
from ttl_odm.sweeper.store import BatchRequest, BatchResult, Counted, Due, Server

if TYPE_CHECKING:
    from ttl_odm.sweeper.report import Progress, SweepReport

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Command(Generic[R_co]):
    """An order to the driver, whose reply is an ``R_co``."""

    __slots__ = ()

    def __iter__(self) -> Generator[Command[R_co], Any, R_co]:
        reply: R_co = yield self
        return reply


Plan: TypeAlias = Generator[Command[object], Any, R]
"""A generator of commands that returns an ``R``."""


@dataclass(frozen=True, slots=True)
class Now(Command[float]):
    """Read a monotonic clock, in seconds."""


@dataclass(frozen=True, slots=True)
class DatabaseNow(Command[datetime]):
    """Ask a `Clocked` store for the database's time."""


@dataclass(frozen=True, slots=True)
class AskServer(Command[Server | None]):
    """Ask the store which server answers; None if it isn't `Serving`."""


@dataclass(frozen=True, slots=True)
class IsStopping(Command[bool]):
    """Ask whether the sweeper is to stop."""


@dataclass(frozen=True, slots=True)
class Pause(Command[None]):
    """Wait for some seconds, or until the sweeper is to stop."""

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
    """Ask a `Counting` store to count what has expired in a target.

    `with_facts`: whether to count the facts of a `FactCounting` store, too.
    """

    target: str
    with_facts: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class PurgeBatch(Command[BatchResult]):
    """Ask the store to delete one batch: `drive.Ports.remote` calls its `purge`."""

    request: BatchRequest


@dataclass(frozen=True, slots=True)
class Divide(Command[Sequence[object]]):
    """Ask a `Dividing` store to split the rest of a range among workers."""

    request: BatchRequest
    shares: int


@dataclass(frozen=True, slots=True)
class Begin(Command[None]):
    """Ask the store to delete a batch while others run; see `AwaitBatch`."""

    request: BatchRequest


@dataclass(frozen=True, slots=True)
class AwaitBatch(Command[tuple[BatchRequest, BatchResult | Exception]]):
    """Wait for a batch that `Begin` started; one that failed comes with its error."""


@dataclass(frozen=True, slots=True)
class CallHooks(Command[None]):
    """Call the hooks that run after the commit."""

    hooks: Hooks
    purged: Purged


@dataclass(frozen=True, slots=True)
class Acquire(Command[Lease | None]):
    """Acquire the lease, which the driver releases in the end, whatever happens to the plan."""

    name: str
    holder: str
    duration: float


@dataclass(frozen=True, slots=True)
class Renew(Command[bool]):
    """Renew the lease."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class ReadLease(Command[LeaseState]):
    """Read the state of the lease."""

    name: str


@dataclass(frozen=True, slots=True)
class Record(Command[bool]):
    """Store the history with the lease.

    `ends`: whether the lease isn't needed any more, so that a store that is `Finishing` releases it
    in the same step.
    """

    lease: Lease
    history: str
    ends: bool = False


@dataclass(frozen=True, slots=True)
class Emit(Command[None]):
    """Pass an event to the log and to the caller, whose exception ends the driver."""

    event: Progress | SweepReport | Server
