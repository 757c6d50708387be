"""The right to sweep, as a store keeps it: `Lease`, `LeaseState`, `Leases`, `AsyncLeases`.

Leases that do two things in one step offer them by `Lease.state` and `Finishing`.

A lease is a row (a document, an entry) with a name: who holds it, until when by the database's
clock, and a token that grows with each holder. It also has two things that all sweepers of a
database must agree on: whether they are paused, and what the last sweeps found.

This module must not know any database, nor the content of the history, which is a `History` of
`ttl_odm.sweeper.batch_gate`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable

ROW_WAIT: Final = 5
"""Seconds to wait for a lease's row, which others lock for the duration of an UPDATE."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to sweep, for a while.

    Attributes:
        name: The lease's name; sweepers with the same name exclude each other.
        holder: Who acquired it; unique to each run of a sweeper.
        token: A fencing token, larger than that of every earlier lease with this name.
        duration: Seconds that it lasts after it is acquired or renewed.
        state: Its state when it was acquired, if `acquire` has read that along with the token, so
            that a sweeper needn't read it again at once; None otherwise.
    """

    name: str
    holder: str
    token: int
    duration: float
    state: LeaseState | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The public state of a lease.

    Attributes:
        holder: Who holds it; None if it is free.
        token: The last fencing token issued; 0 if there was none.
        seconds_left: Seconds until it ends, by the database's clock; 0.0 if it is free.
        paused: Whether the sweepers with this lease name are paused.
        history: What `record` last stored; empty if nothing was.
        recorded_ago: Seconds since then, by the database's clock; None if nothing was stored.
    """

    holder: str | None = None
    token: int = 0
    seconds_left: float = 0.0
    paused: bool = False
    history: str = ""
    recorded_ago: float | None = None


@runtime_checkable
class Leases(Protocol):
    """A keeper of leases. Each method commits by itself, and is safe to call from any thread.

    Each method may raise a `TransientStoreError` if a retry may help.
    """

    def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """Acquire a lease that is free or has ended; return None while it is held.

        Of any number of concurrent callers, exactly one gets it. Pausing has no effect here.
        """
        ...

    def renew(self, lease: Lease) -> bool:
        """Extend the lease to its full duration from now; return False if it is lost.

        Lost means released or taken over. A lease that has ended but was not taken over is
        renewed.
        """
        ...

    def release(self, lease: Lease) -> None:
        """Release the lease; do nothing if it is lost."""
        ...

    def read(self, name: str) -> LeaseState:
        """Return the lease's state, even if no lease with this name ever existed.

        Sweepers call this before each batch, so it should cost no more than reading one row.
        """
        ...

    def set_paused(self, name: str, paused: bool) -> None:  # noqa: FBT001 (what it is set to)
        """Pause or resume the sweepers with this lease name, even if the lease is free."""
        ...

    def record(self, lease: Lease, history: str) -> bool:
        """Store data of the holder's: JSON, a few kilobytes at most.

        It outlives the lease. If the lease is lost, nothing is stored, and the result is False.
        """
        ...


@runtime_checkable
class Finishing(Protocol):
    """`Leases` or `AsyncLeases` that can record a history and release the lease in one step."""

    def finish(self, lease: Lease, history: str) -> bool | Awaitable[bool]:
        """Do as `record` and then `release` do, in one transaction; return what `record` returns.

        An awaitable of it if the leases are asynchronous.
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
