"""Clients of a small table with TTL, and its sweepers, which record what they did: see `history`.

What is here is the same for all adapters. How each of them gets at the table is in a module of its
own, as an `Application`: `sqlalchemy_clients`, `beanie_clients`, `django_clients`.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from tests.clusters.history import History, Holding, Kind, Operation, Outcome, Row, Tenure

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.clusters.places import Places
    from ttl_odm.sweeper import Lease, Leases, LeaseState, Progress, Purged, SweepReport

DEFAULT_TTL = 2
LEASE = 3.0
"""Seconds that a sweeper's lease lasts."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def microseconds(instant: datetime) -> int:
    """A server's clock as histories have it."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def always(_server: str) -> bool:
    """Say that any server has all acknowledged writes."""
    return True


class Noted:
    """An operation that goes on. It has failed until something else is known."""

    def __init__(self, client: str, kind: Kind, keys: tuple[str, ...]) -> None:
        self.client = client
        self.kind = kind
        self.keys = keys
        self.begin = monotonic()
        self.server = ""
        self.outcome = Outcome.FAILED
        self.version: str | None = None
        self.rows: tuple[Row, ...] = ()
        self.asked: int | None = None
        self.answered: int | None = None

    def into(self, history: History, is_fresh: Callable[[str], bool]) -> Operation:
        """Record it, as it ends."""
        values: dict[str, Any] = vars(self)
        operation = Operation(**values, end=monotonic(), fresh=is_fresh(self.server))
        history.operations.append(operation)
        return operation


class Access(Protocol):
    """How a client gets at the table.

    Each method may raise what is in `away`, where a server can't be reached or is lost.
    """

    @property
    def away(self) -> tuple[type[Exception], ...]:
        """What is raised then."""
        ...

    def read(self, noted: Noted) -> None:
        """Read the live ones of some rows, and note the server, its clock and the rows."""
        ...

    def write(self, noted: Noted, ttl: int | None) -> None:
        """Do the write that is noted, with a ttl if it gives rows one.

        Note the server, its clock, the row that it left, and the outcome: unknown from the moment
        on from which it may happen.
        """
        ...

    def now(self) -> int:
        """The primary's clock."""
        ...


class Client:
    """One client: writes and reads, recorded.

    Args:
        name: Its name, which no other client of the history has.
        access: How it gets at the table.
        history: Where it records.
        is_fresh: Whether a member has all acknowledged writes, at the moment of its answer.
    """

    def __init__(
        self,
        name: str,
        access: Access,
        history: History,
        *,
        is_fresh: Callable[[str], bool] = always,
    ) -> None:
        self.name = name
        self.access = access
        self._history = history
        self._is_fresh = is_fresh
        self._numbers = itertools.count(1)

    def insert(self, key: str, ttl: int | None = None) -> Operation:
        """Insert a row."""
        return self._write(Kind.INSERT, key, ttl)

    def renew(self, key: str, ttl: int | None = None) -> Operation:
        """Load a row, and let it live from now on."""
        return self._write(Kind.RENEW, key, ttl)

    def touch(self, key: str) -> Operation:
        """Let a row's life start again."""
        return self._write(Kind.TOUCH, key)

    def update(self, key: str, ttl: int | None = None) -> Operation:
        """Change a row without loading it."""
        return self._write(Kind.UPDATE, key, ttl)

    def delete(self, key: str) -> Operation:
        """Delete a row."""
        return self._write(Kind.DELETE, key)

    def read(self, *keys: str) -> Operation:
        """Read the rows that are live."""
        noted = Noted(self.name, Kind.READ, keys)
        with suppress(*self.access.away):
            self.access.read(noted)
            noted.outcome = Outcome.ACKNOWLEDGED
        return noted.into(self._history, self._is_fresh)

    def _write(self, kind: Kind, key: str, ttl: int | None = None) -> Operation:
        noted = Noted(self.name, kind, (key,))
        if kind not in {Kind.TOUCH, Kind.DELETE}:
            noted.version = f"{self.name}-{next(self._numbers)}"
        with suppress(*self.access.away):
            self.access.write(noted, ttl)
        return noted.into(self._history, self._is_fresh)


class SweepJournal:
    """Records what a sweeper does: its leases, batches and deletions, and how it ended.

    Args:
        name: The sweeper's name, which no other client of the history has.
        history: Where it records.
        is_fresh: As for a `Client`.
    """

    def __init__(
        self, name: str, history: History, *, is_fresh: Callable[[str], bool] = always
    ) -> None:
        self.name = name
        self._history = history
        self._is_fresh = is_fresh
        self._since = monotonic()
        self._held: Lease | None = None

    def begin(self) -> None:
        """A sweep begins."""
        self._since = monotonic()

    def batch(self, progress: Progress) -> None:
        """A batch has ended; a sweeper's `on_progress`."""
        self._since = now = monotonic()
        if progress.error is None:
            self._note(Holding.WORKED, now - progress.elapsed)

    def purged(self, purged: Purged, server: str) -> None:
        """A hook was called of a sweeper that works at a server."""
        noted = Noted(self.name, Kind.PURGE, tuple(key for (key,) in purged.keys))
        noted.begin, noted.outcome = self._since, Outcome.ACKNOWLEDGED
        noted.server, noted.answered = server, microseconds(purged.as_of)
        noted.into(self._history, self._is_fresh)

    def acquired(
        self, lease: Lease | None, begin: float, asked: int | None, answered: int | None
    ) -> None:
        """The sweeper got the lease, or didn't: between two readings of the server's clock."""
        self._held = lease
        if lease is not None:
            self._note(Holding.ACQUIRED, begin, asked, answered)

    def renewed(self, lease: Lease, begin: float, asked: int | None, answered: int | None) -> None:
        """The lease was renewed; that is news if the answer was lost when it was acquired."""
        action = Holding.RENEWED if self._held == lease else Holding.ACQUIRED
        self._held = lease
        self._note(action, begin, asked, answered)

    def released(self, begin: float) -> None:
        """The sweeper has given its lease back, or has tried to."""
        self._note(Holding.RELEASED, begin)

    def break_off(self, error: Exception) -> None:
        """The sweeper has raised an error."""
        self._history.tenures.append(
            Tenure(
                client=self.name,
                begin=self._since,
                end=monotonic(),
                action=Holding.BROKE,
                token=0,
                duration=LEASE,
                error=f"{type(error).__name__}: {error}",
            )
        )

    def _note(
        self, action: Holding, begin: float, asked: int | None = None, answered: int | None = None
    ) -> None:
        assert self._held is not None
        self._history.tenures.append(
            Tenure(
                client=self.name,
                begin=begin,
                end=monotonic(),
                action=action,
                token=self._held.token,
                duration=self._held.duration,
                asked=asked,
                answered=answered,
            )
        )


class RecordedLeases:
    """`ttl_odm.sweeper.Leases` that records who holds the lease when."""

    def __init__(self, leases: Leases, journal: SweepJournal, access: Access) -> None:
        self._leases = leases
        self._journal = journal
        self._access = access

    def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """As in `Leases`."""
        begin, asked = monotonic(), self._now()
        lease = self._leases.acquire(name, holder, duration)
        self._journal.acquired(lease, begin, asked, self._now())
        return lease

    def renew(self, lease: Lease) -> bool:
        """As in `Leases`."""
        begin, asked = monotonic(), self._now()
        renewed = self._leases.renew(lease)
        if renewed:
            self._journal.renewed(lease, begin, asked, self._now())
        return renewed

    def release(self, lease: Lease) -> None:
        """As in `Leases`."""
        begin = monotonic()
        try:
            self._leases.release(lease)
        finally:
            self._journal.released(begin)

    def finish(self, lease: Lease, history: str) -> bool:
        """As in `Finishing`, which the leases that ship are."""
        leases: Any = self._leases
        begin = monotonic()
        try:
            return bool(leases.finish(lease, history))
        finally:
            self._journal.released(begin)

    def read(self, name: str) -> LeaseState:
        """As in `Leases`."""
        return self._leases.read(name)

    def set_paused(self, name: str, paused: bool) -> None:  # noqa: FBT001 (as in the Protocol)
        """As in `Leases`."""
        self._leases.set_paused(name, paused)

    def record(self, lease: Lease, history: str) -> bool:
        """As in `Leases`."""
        return self._leases.record(lease, history)

    def _now(self) -> int | None:
        """The server's clock; None where it can't be read, which is no reason to fail."""
        try:
            return self._access.now()
        except self._access.away:
            return None


class Sweeping(Protocol):
    """A sweeper and its journal."""

    @property
    def journal(self) -> SweepJournal:
        """Where it is recorded."""
        ...

    def run_once(self) -> SweepReport:
        """Sweep once."""
        ...


class Application(Protocol):
    """Something that uses a cluster by one of the adapters, in several threads at once."""

    @property
    def primary(self) -> Access:
        """To the server that takes writes."""
        ...

    @property
    def replica(self) -> Access:
        """To one of those that don't."""
        ...

    def sweeping(self, journal: SweepJournal, *, watched: bool) -> AbstractContextManager[Sweeping]:
        """Open a sweeper.

        Args:
            journal: Where it records.
            watched: Whether it is notified of the keys that it deletes; it then deletes in another
                way.
        """
        ...

    def reconnect(self) -> None:
        """Use new connections, as if a proxy had closed those to the former primary."""
        ...


class Opening(Protocol):
    """What a module with an `Application` has as ``opened``."""

    def __call__(self, places: Places) -> AbstractContextManager[Application]:
        """Make the table, and give the application that uses it."""
        ...
