"""A store of one's own: a sweeper over the standard library's sqlite3, without SQLAlchemy.

A store needs four things: a pace, its targets, what is due, and one batch. This one also counts
(for dry runs and the fuse) and tells the time (for windows). It passes the shipped suite, see
tests/examples/test_own_parts.py.

Run it: python examples/own_store.py
"""

from __future__ import annotations

# ruff: noqa: S608 - the names in these statements are our own
import sqlite3
import tempfile
from contextlib import closing, contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttl_odm.sweeper import (
    BatchRequest,
    BatchResult,
    Counted,
    Due,
    Pace,
    Part,
    StoreError,
    Sweeper,
    TransientStoreError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NOW = "(julianday('now') - 2440587.5) * 86400"
"""Seconds since 1970, by SQLite's clock."""

EXPIRED = f"modified + coalesce(ttl, :ttl) <= {NOW} AND coalesce(ttl, :ttl) > 0"


class PlainSQLiteStore:
    """Tables of (key, modified, ttl); `ttls` has each one's default: None for off, -1 for never."""

    pace = Pace(start=200, lowest=50, highest=1_000, target=0.025, rest=1.0)

    def __init__(self, file: str, ttls: dict[str, int | None]) -> None:
        self.file = file
        self.ttls = ttls

    def targets(self) -> Sequence[str]:
        """Name the tables."""
        return list(self.ttls)

    def due(self, target: str) -> Due | None:
        """Find the oldest expired row; None while TTL is off."""
        if self.ttls[target] is None:
            return None
        ((age,),) = self._select(target, f"max({NOW} - modified - coalesce(ttl, :ttl))")
        return Due((), 0.0) if age is None else Due((Part.ALL,), age)

    def count(self, target: str) -> Counted:
        """Count what has expired, and all rows."""
        ((due, rows),) = self._select(target, f"count(*), (SELECT count(*) FROM {target})")
        return Counted(due, rows)

    def now(self) -> datetime:
        """Tell SQLite's time."""
        with self._connected() as connection:
            ((seconds,),) = connection.execute(f"SELECT {NOW}")
        return datetime.fromtimestamp(seconds, timezone.utc)

    def purge(self, request: BatchRequest) -> BatchResult:
        """Delete a batch. The condition is in the statement that deletes."""
        some = f"SELECT rowid FROM {request.target} WHERE {EXPIRED} LIMIT :size"
        delete = f"DELETE FROM {request.target} WHERE rowid IN ({some})"
        with self._connected() as connection:
            values = {"ttl": self.ttls[request.target], "size": request.size}
            deleted = connection.execute(delete, values).rowcount
        # Nobody holds single rows in SQLite: a batch that isn't full is the last one.
        place = request.resume if isinstance(request.resume, int) else 0
        return BatchResult(deleted, place + deleted if deleted == request.size else None)

    def _select(self, target: str, what: str) -> list[Any]:
        with self._connected() as connection:
            values = {"ttl": self.ttls[target]}
            query = f"SELECT {what} FROM {target} WHERE {EXPIRED}"
            return connection.execute(query, values).fetchall()

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.file)) as connection, connection:
                yield connection
        except sqlite3.OperationalError as error:
            # The sweeper tries again after these, and gives the target up after others.
            passing = "locked" in str(error) or "busy" in str(error)
            raise (TransientStoreError if passing else StoreError)(str(error)) from error


def main() -> None:
    """Sweep a table of cache entries."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "cache.sqlite3")
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(
                "CREATE TABLE cache (key INTEGER PRIMARY KEY, modified REAL, ttl INT)"
            )
            connection.executemany(
                f"INSERT INTO cache VALUES (?, {NOW} - ?, ?)",
                [(key, key // 400 * 7200, None if key % 10 else -1) for key in range(1_000)],
            )
        store = PlainSQLiteStore(file, {"cache": 3600})
        print(Sweeper(store, dry_run=True).run_once())
        print(Sweeper(store).run_once())
        print(f"left: {store.count('cache').rows} rows")


if __name__ == "__main__":
    main()
