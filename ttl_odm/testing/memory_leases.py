"""Leases in memory: `InMemoryLeases`, and its asynchronous twin.

They work between the threads or tasks of one process.
"""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from ttl_odm.sweeper import Lease, LeaseState

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


@dataclass(slots=True)
class _Entry:
    """A lease as it is stored."""

    token: int = 0
    holder: str | None = None
    until: datetime | None = None
    paused: bool = False
    history: str = ""
    recorded_at: datetime | None = None

    def seconds_left(self, now: datetime) -> float:
        if self.holder is None or self.until is None:
            return 0.0
        return max((self.until - now).total_seconds(), 0.0)

    def state(self, now: datetime) -> LeaseState:
        seconds_left = self.seconds_left(now)
        return LeaseState(
            self.holder if seconds_left else None,
            self.token,
            seconds_left,
            paused=self.paused,
            history=self.history,
            recorded_ago=None
            if self.recorded_at is None
            else (now - self.recorded_at).total_seconds(),
        )


class InMemoryLeases:
    """`ttl_odm.sweeper.Leases` in a dict.

    Args:
        clock: Returns the current time.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._entries: defaultdict[str, _Entry] = defaultdict(_Entry)
        self._lock = threading.Lock()

    def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """Acquire a lease that is free or has ended."""
        with self._lock:
            entry = self._entries[name]
            if entry.seconds_left(self._clock()) > 0:
                return None
            entry.token += 1
            lease = Lease(name, holder, entry.token, duration)
            self._grant(entry, lease)
            return replace(lease, state=entry.state(self._clock()))

    def renew(self, lease: Lease) -> bool:
        """Extend the lease to its full duration from now; return False if it is lost."""
        with self._lock:
            entry = self._entries[lease.name]
            if not self._is_held(entry, lease):
                return False
            self._grant(entry, lease)
            return True

    def release(self, lease: Lease) -> None:
        """Release the lease; do nothing if it is lost."""
        with self._lock:
            entry = self._entries[lease.name]
            if self._is_held(entry, lease):
                entry.holder = entry.until = None

    def read(self, name: str) -> LeaseState:
        """Return the state of a lease."""
        with self._lock:
            return self._entries[name].state(self._clock())

    def set_paused(self, name: str, paused: bool) -> None:  # noqa: FBT001 (what it is set to)
        """Pause or resume the sweepers with this lease name."""
        with self._lock:
            self._entries[name].paused = paused

    def record(self, lease: Lease, history: str) -> bool:
        """Store the holder's data; return False if the lease is lost."""
        with self._lock:
            entry = self._entries[lease.name]
            if not self._is_held(entry, lease):
                return False
            entry.history, entry.recorded_at = history, self._clock()
            return True

    def finish(self, lease: Lease, history: str) -> bool:
        """Store the holder's data and release the lease; return False if it is lost."""
        with self._lock:
            entry = self._entries[lease.name]
            if not self._is_held(entry, lease):
                return False
            entry.history, entry.recorded_at = history, self._clock()
            entry.holder = entry.until = None
            return True

    def _grant(self, entry: _Entry, lease: Lease) -> None:
        entry.holder = lease.holder
        entry.until = self._clock() + timedelta(seconds=lease.duration)

    @staticmethod
    def _is_held(entry: _Entry, lease: Lease) -> bool:
        # True until another holder acquires it, even if it has ended.
        return entry.token == lease.token and entry.holder == lease.holder


class AsyncInMemoryLeases:
    """`InMemoryLeases` as `ttl_odm.sweeper.AsyncLeases`."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._leases = InMemoryLeases(clock)

    async def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """Acquire a lease that is free or has ended."""
        await asyncio.sleep(0)
        return self._leases.acquire(name, holder, duration)

    async def renew(self, lease: Lease) -> bool:
        """Extend the lease to its full duration from now; return False if it is lost."""
        await asyncio.sleep(0)
        return self._leases.renew(lease)

    async def release(self, lease: Lease) -> None:
        """Release the lease; do nothing if it is lost."""
        await asyncio.sleep(0)
        self._leases.release(lease)

    async def read(self, name: str) -> LeaseState:
        """Return the state of a lease."""
        await asyncio.sleep(0)
        return self._leases.read(name)

    async def set_paused(self, name: str, paused: bool) -> None:  # noqa: FBT001
        """Pause or resume the sweepers with this lease name."""
        await asyncio.sleep(0)
        self._leases.set_paused(name, paused)

    async def record(self, lease: Lease, history: str) -> bool:
        """Store the holder's data; return False if the lease is lost."""
        await asyncio.sleep(0)
        return self._leases.record(lease, history)

    async def finish(self, lease: Lease, history: str) -> bool:
        """Store the holder's data and release the lease; return False if it is lost."""
        await asyncio.sleep(0)
        return self._leases.finish(lease, history)
