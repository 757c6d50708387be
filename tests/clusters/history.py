"""What clients of a cluster did and saw, for `checker`: operations, leases and failovers.

Plain values, without a database. `begin` and `end` are seconds of one monotonic clock, that of the
host on which all clients ran. What a server answered about time is in microseconds of that server's
own clock since 1970, so a ttl of a second is a million of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

SECOND = 1_000_000
"""A server's clock per second."""


class Kind(Enum):
    """What a client asked for."""

    INSERT = "insert"
    RENEW = "renew"
    TOUCH = "touch"
    UPDATE = "update"
    DELETE = "delete"
    READ = "read"
    PURGE = "purge"
    """A sweeper's deletion that a hook was notified of; `answered` is the hook's `as_of`."""


WRITES = frozenset({Kind.INSERT, Kind.RENEW, Kind.TOUCH, Kind.UPDATE, Kind.DELETE})


class Outcome(Enum):
    """What came of it."""

    ACKNOWLEDGED = "acknowledged"
    MISSED = "missed"
    """Acknowledged: the server found no such row, so it wrote nothing."""

    REFUSED = "refused"
    """An INSERT that the server rejected because of a live row with its key."""

    FAILED = "failed"
    """It didn't happen: the COMMIT was never sent."""

    UNKNOWN = "unknown"
    """The connection was lost while it was committed. It may happen at any time from its beginning
    on, or never."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row as a server showed it.

    Attributes:
        key: Its key.
        version: What the client that wrote it last called its write; unique to that write.
        changed: Its ``_ts``, by the server's clock.
        ttl: Its own ttl in seconds, -1 for never; None to inherit the default.
        judged: The server's clock in the statement that showed it.
    """

    key: str
    version: str
    changed: int
    ttl: int | None
    judged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of one client.

    Attributes:
        client: Who asked.
        server: The name of the member that answered.
        begin: When the client began.
        end: When the client had the answer, or gave up.
        keys: The keys that it was about: one, except for a READ of several and a PURGE.
        outcome: What came of it.
        version: What a write calls itself; None for a TOUCH, which leaves the version.
        rows: What the server showed: the rows found by a READ, or the row that a write left.
        asked: The server's clock before the statement; None if unknown.
        answered: The server's clock after the statement; None if unknown.
        fresh: Whether the server has all acknowledged writes: false for a replica, which may lag,
            and for a primary that was replaced meanwhile.
    """

    kind: Kind
    client: str
    server: str
    begin: float
    end: float
    keys: tuple[str, ...]
    outcome: Outcome = Outcome.ACKNOWLEDGED
    version: str | None = None
    rows: tuple[Row, ...] = ()
    asked: int | None = None
    answered: int | None = None
    fresh: bool = True


class Holding(Enum):
    """What a sweeper did with a lease."""

    ACQUIRED = "acquired"
    RENEWED = "renewed"
    RELEASED = "released"
    """It may have been released, from `begin` on: the answer doesn't matter."""

    WORKED = "worked"
    """It purged a batch."""

    BROKE = "broke"
    """It ended with an error of its driver's, instead of waiting for a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """Something that a sweeper did, as a rule as the holder of a lease.

    Attributes:
        client: The sweeper.
        begin: When it began.
        end: When it had the answer.
        action: What it did.
        token: The lease's fencing token.
        duration: Seconds that the lease lasts from each acquisition or renewal.
        asked: The server's clock before it.
        answered: The server's clock after it.
        error: Why it broke.
    """

    client: str
    begin: float
    end: float
    action: Holding
    token: int
    duration: float
    asked: int | None = None
    answered: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """A member took another's place.

    Attributes:
        begin: When the old primary began to fail.
        end: When the new one took writes.
        old: The name of the old primary.
        new: The name of the new primary.
        fault: What became of the old primary: a "kill", "switchover" or "partition".
        loses: For how many seconds before `begin` the engine may lose acknowledged writes, because
            it replicates asynchronously; 0 for an engine that loses none.
    """

    begin: float
    end: float
    old: str
    new: str
    fault: str = "kill"
    loses: float = 0.0

    def may_lose(self, begin: float, end: float) -> bool:
        """Whether the engine may lose a write of this period."""
        return end > self.begin - self.loses and begin < self.end if self.loses else False


@dataclass(slots=True)
class History:
    """Everything that happened in one run; several threads may append to it.

    Attributes:
        default: The default ttl in seconds: -1 for never, None while TTL is off.
    """

    default: int | None
    operations: list[Operation] = field(default_factory=list)
    tenures: list[Tenure] = field(default_factory=list)
    failovers: list[Failover] = field(default_factory=list)

    def expiry(self, row: Row) -> int | None:
        """When a row expires, by the clock of the server that stamped it; None for never."""
        ttl = self.default if row.ttl is None else row.ttl
        if self.default is None or ttl is None or ttl == -1:
            return None
        return row.changed + ttl * SECOND

    def outages(self) -> list[float]:
        """Return for each failover how many seconds no write was acknowledged.

        They end with the first write that the new primary acknowledged. A failover that no such
        write followed isn't in the list.
        """
        acknowledged = [
            operation
            for operation in self.operations
            if operation.kind in WRITES and operation.outcome is Outcome.ACKNOWLEDGED
        ]
        lengths = []
        for failover in self.failovers:
            writes = (w for w in acknowledged if w.server == failover.new)
            end = min((w.end for w in writes if w.begin > failover.begin), default=None)
            if end is not None:
                lengths.append(end - failover.begin)
        return lengths


def is_before(first: Operation | Tenure, second: Operation | Tenure) -> bool:
    """Whether one had ended when the other began."""
    return first.end < second.begin
