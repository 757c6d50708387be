"""A lease of one's own: in a file, for sweepers of one host that share no database.

A lease is a holder, an end, and a token that grows; beside it stand the flag that pauses all
sweepers and what the fuse remembers. Here all of it is JSON in a file, changed under a file lock
and by one clock. (Across hosts you would take the database, as the shipped stores do: a file on a
network has neither a lock nor a clock to trust.)

Run it: python examples/own_lease.py
"""

from __future__ import annotations

import fcntl
import json
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttl_odm.sweeper import Lease, LeaseState, Sweeper
from ttl_odm.testing import InMemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

FREE: dict[str, Any] = {"holder": None, "token": 0, "until": 0.0, "paused": False}


class FileLeases:
    """`ttl_odm.sweeper.Leases` in a folder, a file for each name."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """Take a lease that is free or has ended."""
        with self._changing(name) as kept:
            if kept["holder"] is not None and kept["until"] > time.time():
                return None
            lease = Lease(name, holder, kept["token"] + 1, duration)
            kept.update(holder=holder, token=lease.token, until=time.time() + duration)
            return lease

    def renew(self, lease: Lease) -> bool:
        """Let it last for its duration from now; False if it is lost."""
        with self._changing(lease.name) as kept:
            held = self._is_held(kept, lease)
            if held:
                kept["until"] = time.time() + lease.duration
            return held

    def release(self, lease: Lease) -> None:
        """Give it back; do nothing if it is lost."""
        with self._changing(lease.name) as kept:
            if self._is_held(kept, lease):
                kept.update(holder=None, until=0.0)

    def read(self, name: str) -> LeaseState:
        """Look at it."""
        with self._changing(name) as kept:
            left = max(kept["until"] - time.time(), 0.0)
            return LeaseState(
                kept["holder"] if left else None,
                kept["token"],
                left,
                paused=kept["paused"],
                history=kept.get("history", ""),
                recorded_ago=time.time() - kept["recorded_at"] if "recorded_at" in kept else None,
            )

    def set_paused(self, name: str, paused: bool) -> None:  # noqa: FBT001 (what it is set to)
        """Pause the sweepers of a name, or let them go on."""
        with self._changing(name) as kept:
            kept["paused"] = paused

    def record(self, lease: Lease, history: str) -> bool:
        """Store what the holder wants to be remembered."""
        with self._changing(lease.name) as kept:
            held = self._is_held(kept, lease)
            if held:
                kept.update(history=history, recorded_at=time.time())
            return held

    @staticmethod
    def _is_held(kept: dict[str, Any], lease: Lease) -> bool:
        return kept["token"] == lease.token and kept["holder"] == lease.holder

    @contextmanager
    def _changing(self, name: str) -> Iterator[dict[str, Any]]:
        """Read the file, and write it back if it was changed, while nobody else does."""
        with (self._folder / f"{name}.lease").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # ends when the file is closed
            file.seek(0)
            before = file.read()
            kept = {**FREE, **json.loads(before or "{}")}
            yield kept
            after = json.dumps(kept)
            if after != before:
                file.truncate(0)
                file.write(after)


def main() -> None:
    """Let two sweepers meet, and pause both."""
    with tempfile.TemporaryDirectory() as folder:
        leases = FileLeases(folder)
        store = InMemoryStore()
        store.create("carts", default=60)
        store.put("carts", 1, age=3600)
        sweeper = Sweeper(store, lease=leases)

        theirs = leases.acquire("ttl_odm", "another host", duration=60)
        assert theirs is not None  # noqa: S101
        print(sweeper.run_once())
        leases.release(theirs)
        sweeper.pause()
        print(sweeper.run_once())
        sweeper.resume()
        print(f"deleted: {sweeper.run_once().deleted}")


if __name__ == "__main__":
    main()
