"""A sweeper's store in memory: `InMemoryStore`, and its asynchronous twin.

It is for tests of code around a sweeper (hooks, archives, paces, throttles, schedules) without a
database. It passes all of `ttl_odm.testing.StoreContract`: rows expire by the same rules, the
deletion judges again the rows that the search has found, and a hook that raises leaves everything
unchanged.

This module must not know pytest.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.core import TTL, expires_at, is_expired, row_ttl
from ttl_odm.sweeper import (
    ArchiveSink,
    BatchResult,
    Counted,
    Due,
    HookError,
    Hooks,
    Pace,
    Part,
    Purged,
    RefusedError,
    Skip,
    archive,
    archive_async,
    weight,
)
from ttl_odm.testing.memory_leases import AsyncInMemoryLeases, InMemoryLeases

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    from ttl_odm.sweeper import BatchRequest

_PACE: Final = Pace(start=100, lowest=10, highest=1_000, target=0.1)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row, with its number in the order of all insertions."""

    serial: int
    key: Hashable
    values: Mapping[str, object]
    last_modified: datetime
    ttl: int | None


@dataclass(slots=True)
class _Table:
    default: int | None
    hooks: object
    sink: ArchiveSink | None
    rows: dict[Hashable, _Row] = field(default_factory=dict)
    held: dict[Hashable, Skip] = field(default_factory=dict)

    def expires_at(self, row: _Row) -> datetime | None:
        return expires_at(TTL(self.default), instant=row.last_modified, own=row.ttl)

    def part_of(self, row: _Row) -> Part:
        return Part.INHERITING if row.ttl is None else Part.OWN


@dataclass(slots=True)
class _Batch:
    """Rows that are being deleted."""

    table: _Table
    rows: list[_Row]
    skipped: dict[Skip, int]
    resume: object
    purged: Purged
    failure: HookError | RefusedError | None = None

    def check(self) -> None:
        """Raise if one of the rows is refused."""
        for row in self.rows:
            if row.key in self.table.held:
                raise RefusedError(f"{row.key!r} is not to be deleted.")

    def result(self) -> BatchResult:
        if self.failure is not None:
            reason = Skip.HOOK if isinstance(self.failure, HookError) else Skip.REFUSED
            skipped = {**self.skipped, reason: len(self.rows)}
            keys = self.purged.keys
            return BatchResult(0, self.resume, skipped=skipped, failure=self.failure, left=keys)
        return BatchResult(
            len(self.rows),
            self.resume,
            archived=len(self.rows) if self.table.sink else 0,
            skipped=self.skipped,
            purged=[self.purged] if self.rows else [],
            loaded=weight(value for row in self.purged.rows or () for value in row.values()),
        )


class _Memory:
    """The tables, and all code that both stores share."""

    def __init__(self) -> None:
        self._tables: dict[str, _Table] = {}
        self._lock = threading.Lock()
        self._serial = 0
        self._offset = timedelta()
        self.outbox: list[object] = []
        """The objects that hooks have appended to `Purged.transaction`, after the commit."""

        self.between: Callable[[], object] = lambda: None
        """Called between the search for a batch and its deletion, for tests of races."""

    @property
    def pace(self) -> Pace:
        """A pace that begins with batches of a hundred rows."""
        return _PACE

    @property
    def hooks(self) -> Hooks:
        """The hooks that the tables were created with."""
        return Hooks.of({name: table.hooks for name, table in self._tables.items()})

    def clock(self) -> datetime:
        """Return the current time, which `advance` moves."""
        return datetime.now(timezone.utc) + self._offset

    def advance(self, seconds: float) -> None:
        """Move the clock on, for all rows and leases."""
        self._offset += timedelta(seconds=seconds)

    def create(
        self,
        target: str,
        default: int | None,
        *,
        hooks: object = None,
        archive: ArchiveSink | None = None,
    ) -> None:
        """Create an empty table, or change these properties of an existing one.

        Args:
            target: The name of the table.
            default: Its default ttl, as in ``__ttl__``.
            hooks: As in the sweeper's option ``on_purged``.
            archive: The sink that gets its rows before they are deleted.
        """
        with self._lock:
            table = _Table(TTL(default).default, hooks, archive)
            if target in self._tables:
                table.rows = self._tables[target].rows
            self._tables[target] = table

    def put(
        self,
        target: str,
        key: Hashable,
        values: Mapping[str, object] | None = None,
        *,
        ttl: int | None = None,
        age: float = 0.0,
    ) -> None:
        """Write a row that was last modified `age` seconds ago."""
        with self._lock:
            self._serial += 1
            modified = self.clock() - timedelta(seconds=age)
            self._tables[target].rows[key] = _Row(
                self._serial, key, {"key": key, **(values or {})}, modified, row_ttl(ttl)
            )

    def keys(self, target: str) -> set[Hashable]:
        """Return the keys of all rows in the table, expired or not."""
        return set(self._tables[target].rows)

    @contextmanager
    def hold(self, target: str, key: Hashable, reason: Skip = Skip.LOCKED) -> Iterator[None]:
        """Protect a row from deletion, as a lock or a foreign key would.

        `Skip.REFUSED` protects the row's whole batch, as a trigger that raises would.
        """
        held = self._tables[target].held
        held[key] = reason
        try:
            yield
        finally:
            del held[key]

    def targets(self) -> Sequence[str]:
        """Return the names of the tables, in the order of their creation."""
        return list(self._tables)

    def _due(self, target: str) -> Due | None:
        table, now = self._tables[target], self.clock()
        if table.default is None:
            return None
        expired = self._expired(table, Part.ALL, now)
        nonempty = {table.part_of(row) for _, row in expired}
        parts = tuple(part for part in (Part.INHERITING, Part.OWN) if part in nonempty)
        return Due(parts, (now - expired[0][0]).total_seconds() if expired else 0.0)

    def _count(self, target: str) -> Counted:
        table = self._tables[target]
        return Counted(len(self._expired(table, Part.ALL, self.clock())), len(table.rows))

    def _expired(self, table: _Table, part: Part, now: datetime) -> list[tuple[datetime, _Row]]:
        """Return the expired rows of a part in the order of expiry."""
        with self._lock:
            rows = list(table.rows.values())
        expired = [
            (end, row)
            for row in rows
            if (end := table.expires_at(row)) is not None
            and is_expired(end, now)
            and part in (Part.ALL, table.part_of(row))
        ]
        return sorted(expired, key=lambda item: (item[0], item[1].serial))

    def _batch(self, request: BatchRequest) -> tuple[list[_Row], object]:
        """Return the rows of a batch, and the position from which the next one continues."""
        table = self._tables[request.target]
        after: Any = request.resume
        until: Any = request.until
        expired = [
            (end, row)
            for end, row in self._expired(table, request.part, self.clock())
            if (after is None or (end, row.serial) > after)
            and (until is None or (end, row.serial) <= until)
        ][: request.size]
        is_full = len(expired) == request.size
        last = (expired[-1][0], expired[-1][1].serial) if is_full else None
        return [row for _, row in expired], last

    def _divide(self, request: BatchRequest, shares: int) -> Sequence[object]:
        """Return the marks that divide the rest of a range into equal shares."""
        rows = self._tables[request.target].rows
        rest, _ = self._batch(replace(request, size=len(rows) + 1))
        table = self._tables[request.target]
        shares = min(shares, len(rest) // request.size)
        ends = (rest[number * len(rest) // shares - 1] for number in range(1, shares))
        return [(table.expires_at(row), row.serial) for row in ends]

    @contextmanager
    def _deleting(self, request: BatchRequest) -> Iterator[_Batch]:
        """Find and delete a batch; restore its rows if the block raises.

        A `HookError` or `RefusedError` becomes part of the result; other errors are raised.
        """
        table, now = self._tables[request.target], self.clock()
        rows, resume = self._batch(request)
        self.between()
        skipped: dict[Skip, int] = {}
        deleted = []
        with self._lock:
            for row in rows:
                # Judged again: the row may have been renewed, replaced or deleted.
                present = table.rows.get(row.key)
                if present is None or not is_expired(table.expires_at(present), now):
                    continue
                reason = table.held.get(row.key)
                if reason is not None and reason is not Skip.REFUSED:
                    skipped[reason] = skipped.get(reason, 0) + 1
                else:
                    deleted.append(table.rows.pop(row.key))
        outbox: list[object] = []
        has_rows = table.sink is not None or request.hooks.wants_rows(request.target)
        purged = Purged(
            request.target,
            keys=[(row.key,) for row in deleted],
            count=len(deleted),
            as_of=now,
            rows=[row.values for row in deleted] if has_rows else None,
            duration=(self.clock() - now).total_seconds(),
            transaction=outbox,
        )
        batch = _Batch(table, deleted, skipped, resume, purged)
        try:
            yield batch
        except BaseException as error:
            with self._lock:
                for row in deleted:
                    table.rows.setdefault(row.key, row)
            if not isinstance(error, (HookError, RefusedError)):
                raise
            batch.failure = error
        else:
            self.outbox.extend(outbox)


class InMemoryStore(_Memory):
    """A `ttl_odm.sweeper.Store` with every optional feature of a store.

    ``Purged.transaction`` is a list; objects that a hook appends to it are in `outbox` after the
    commit.

    Attributes:
        leases: Its leases, which use its clock.
    """

    def __init__(self) -> None:
        super().__init__()
        self.leases = InMemoryLeases(self.clock)

    def now(self) -> datetime:
        """Return the current time."""
        return self.clock()

    def due(self, target: str) -> Due | None:
        """Find the expired rows."""
        return self._due(target)

    def count(self, target: str) -> Counted:
        """Count the expired rows."""
        return self._count(target)

    def divide(self, request: BatchRequest, shares: int) -> Sequence[object]:
        """Divide the rest of a range among several workers."""
        return self._divide(request, shares)

    def purge(self, request: BatchRequest) -> BatchResult:
        """Delete a batch, unless a hook or the archive raises."""
        with self._deleting(request) as batch:
            batch.check()
            if batch.rows and batch.table.sink is not None:
                archive(batch.table.sink, batch.purged)
            if batch.rows:
                request.hooks.call(batch.purged)
        return batch.result()


class AsyncInMemoryStore(_Memory):
    """`InMemoryStore` as a `ttl_odm.sweeper.AsyncStore`."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = AsyncInMemoryLeases(self.clock)

    async def now(self) -> datetime:
        """Return the current time."""
        await asyncio.sleep(0)
        return self.clock()

    async def due(self, target: str) -> Due | None:
        """Find the expired rows."""
        await asyncio.sleep(0)
        return self._due(target)

    async def count(self, target: str) -> Counted:
        """Count the expired rows."""
        await asyncio.sleep(0)
        return self._count(target)

    async def divide(self, request: BatchRequest, shares: int) -> Sequence[object]:
        """Divide the rest of a range among several workers."""
        await asyncio.sleep(0)
        return self._divide(request, shares)

    async def purge(self, request: BatchRequest) -> BatchResult:
        """Delete a batch, unless a hook or the archive raises."""
        await asyncio.sleep(0)
        with self._deleting(request) as batch:
            batch.check()
            if batch.rows and batch.table.sink is not None:
                await archive_async(batch.table.sink, batch.purged)
            if batch.rows:
                await request.hooks.call_async(batch.purged)
        return batch.result()
