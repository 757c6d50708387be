"""The right to sweep, as a store keeps it: `Lease`, `LeaseState`, `Leases`, `AsyncLeases`.

A lease is a row (a document, an entry) with a name: who holds it, until when on the database's
clock, and a token that grows with each holder. Beside it stand two things that all sweepers of a
database have to agree on: whether they are paused, and what the last sweeps found.

This module must not know any database, nor what the history says: see `ttl_odm.sweeper.tenure`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to sweep, for a while.

    Attributes:
        name: What it is for; sweepers of the same name exclude each other.
        holder: Who got it. Unique for each time that a sweeper is run, so nobody gets it twice.
        token: Larger than that of every lease of this name before (a fencing token).
        duration: Seconds that it lasts from its acquisition, and from each renewal.
    """

    name: str
    holder: str
    token: int
    duration: float


@dataclass(frozen=True, slots=True)
class LeaseState:
    """What everybody may know of a lease.

    Attributes:
        holder: Who holds it; None when it is free.
        token: The last one that was given out; 0 when none was.
        seconds_left: Until it ends, by the database's clock; 0.0 when it is free.
        paused: Whether sweepers of this name are to do nothing.
        history: What `record` last stored; empty when nothing was.
        recorded_ago: Seconds since then, by the database's clock; None when nothing was.
    """

    holder: str | None = None
    token: int = 0
    seconds_left: float = 0.0
    paused: bool = False
    history: str = ""
    recorded_ago: float | None = None


@runtime_checkable
class Leases(Protocol):
    """Where leases are kept. Each method commits by itself, and is safe to call from any thread.

    Each of them may raise a `TransientStoreError`, when trying again may help.
    """

    def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """Take a lease that is free or has ended; None while anybody holds it.

        Exactly one of any number of callers at once gets it. Being paused doesn't matter here.
        """
        ...

    def renew(self, lease: Lease) -> bool:
        """Let it last for its duration from now; False if it is lost.

        Lost means: released, or taken over. A lease that has ended but that nobody has taken since
        is renewed.
        """
        ...

    def release(self, lease: Lease) -> None:
        """Give it back; do nothing if it is lost."""
        ...

    def read(self, name: str) -> LeaseState:
        """Look, without changing anything; also where there never was a lease of this name.

        Sweepers ask this before each batch, so it should cost no more than reading one row.
        """
        ...

    def set_paused(self, name: str, paused: bool) -> None:  # noqa: FBT001 (what it is set to)
        """Pause the sweepers of a name, or let them go on; also when nobody holds the lease."""
        ...

    def record(self, lease: Lease, history: str) -> bool:
        """Store what the holder wants to be remembered: JSON, a few kilobytes at most.

        It outlives the lease. False, and nothing is stored, if the lease is lost.
        """
        ...


@runtime_checkable
class AsyncLeases(Protocol):
    """`Leases` whose methods are coroutines."""

    async def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """As in `Leases`."""
        ...

    async def renew(self, lease: Lease) -> bool:
        """As in `Leases`."""
        ...

    async def release(self, lease: Lease) -> None:
        """As in `Leases`."""
        ...

    async def read(self, name: str) -> LeaseState:
        """As in `Leases`."""
        ...

    async def set_paused(self, name: str, paused: bool) -> None:  # noqa: FBT001
        """As in `Leases`."""
        ...

    async def record(self, lease: Lease, history: str) -> bool:
        """As in `Leases`."""
        ...
