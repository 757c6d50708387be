"""What the sweeper asks of a database: `Store`, and what a store may offer beyond that.

A store knows how to find expired rows and how to delete one batch of them; when, how many and
what after a failure is the plan's business. One is found through the entry-point group
``ttl_odm.stores``, or given to the sweeper as it is.

`Store` is all that is needed. Each further Protocol is one more thing that a store can do, and a
sweeper that is asked for something its store can't do says so when it is made:

=================  ==================  =========================================================
a store that       offers              for
=================  ==================  =========================================================
`Counting`         ``count(target)``   dry runs, ``max_fraction`` and ``max_jump``
`Clocked`          ``now()``           ``window``
`Hooking`          ``hooks``           ``on_purged``
`Leasing`          ``leases``          one sweeper at a time, pause and resume, ``max_jump``
`Replicating`      ``hides_purges``    ``replicate=False``
`Dividing`         ``divide(...)``     ``workers``; without it, one does the work
`Named`            ``backend``         the field ``backend`` of logs and metrics
=================  ==================  =========================================================

Each has an asynchronous twin. This module must not know any database. Targets are names, and the
place where the next batch goes on is a value that only the store understands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from ttl_odm.errors import TTLError
from ttl_odm.sweeper.hooks import HookError, Hooks, Purged
from ttl_odm.sweeper.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ttl_odm.sweeper.leases import AsyncLeases, Leases
    from ttl_odm.sweeper.pace import Pacing
    from ttl_odm.sweeper.phases import Phase


class StoreError(TTLError):
    """The database refused; the driver's own error is the cause."""


class TransientStoreError(StoreError):
    """The database refused for now: a lock, a deadlock, a timeout."""


class UnreachableStoreError(TransientStoreError):
    """The database isn't there for now: a lost connection, a server that is restarted."""


class MissingTargetError(StoreError):
    """The database has no such table."""


class RefusedError(StoreError):
    """The database refuses to delete a row, for a reason that lies in the row."""

    @classmethod
    def by(cls, error: Exception, message: str) -> RefusedError:
        """Make the one that a batch reports, and which nobody raises, of a driver's error."""
        refused = cls(message)
        refused.__cause__ = error
        return refused


class Part(Enum):
    """A share of a target's expired rows that is purged by itself.

    The rows that inherit the default, those with a ttl of their own and those that are older than
    any may become are in different indexes; one condition over them makes every planner read the
    whole table.
    """

    PARTITIONS = "partitions"
    """Whole partitions: those that are wanted are made, those with no live row dropped. It comes
    first, and needs nothing to be expired."""

    INHERITING = "inheriting"
    OWN = "own"
    CAPPED = "capped"
    ALL = "all"
    """All at once, where the whole table has to be walked anyway."""


class Skip(Enum):
    """Why an expired row was left where it is."""

    LOCKED = "locked"
    """Somebody holds it; the next sweep gets it."""

    RESTRICTED = "restricted"
    """A row elsewhere refers to it, and the foreign key keeps it from being deleted."""

    REFUSED = "refused"
    """The database doesn't delete it, such as for a trigger that raises."""

    HOOK = "hook"
    """A hook or an archive failed on it."""


@dataclass(frozen=True, slots=True)
class PartitionsCounted:
    """How many partitions a target has, and what the next sweep has to do with them.

    Attributes:
        there: All that are there, without one for what belongs in no other.
        over: Those of them whose default life is over: they are dropped if nothing in them lives.
        missing: Those that are to be made.
        dead: Those of the `over` ones in which nothing can live, so that nothing keeps them but
            what a report's notes say.
    """

    there: int
    over: int
    missing: int
    dead: int = 0

    def __str__(self) -> str:
        to_make = f", {self.missing} more to be made" if self.missing else ""
        return f"{counted(self.there, 'partition')}, {self.over} over{to_make}"

    def to_dict(self) -> dict[str, int]:
        """Return plain values, for JSON."""
        return {
            "there": self.there,
            "over": self.over,
            "missing": self.missing,
            "dead": self.dead,
        }


@dataclass(frozen=True, slots=True)
class Due:
    """What there is to do in a target.

    Attributes:
        parts: Those that may hold expired rows; none when nothing has expired.
        oldest: Seconds since the first of the expired rows expired, 0.0 when there is none; None
            where finding out would mean reading the whole table: then `Counted` and `BatchResult`
            say what they have seen.
        loads_rows: Whether the rows themselves will come to Python, to be archived or deleted
            there, so that a batch has to be small if they are wide.
        partitions: How many partitions there are; None for a target that isn't cut by time.
    """

    parts: tuple[Part, ...]
    oldest: float | None
    loads_rows: bool = False
    partitions: PartitionsCounted | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """How much of a target has expired.

    Attributes:
        due: Rows that have expired and are still there.
        rows: All rows that are there, expired or not, at the instant at which `due` was counted.
        is_estimated: Whether `rows` is the database's own estimate, or of another instant.
        oldest: What `Due.oldest` could not say because the table has to be read for it; None if it
            could, or if nobody can tell.
        partitions: How many partitions there are; None for a target that isn't cut by time.
        by_scope: How many of the `due` rows are of each scope that has a default of its own; see
            `ttl_odm.Stored.by`.
    """

    due: int
    rows: int
    is_estimated: bool = False
    oldest: float | None = None
    partitions: PartitionsCounted | None = None
    by_scope: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One batch that a store is asked to purge.

    Attributes:
        target: One of the store's `targets`.
        part: One of those that `due` gave.
        size: Rows, at most; a partition goes whole, however many it has.
        resume: Where the batch before this one ended; None at the beginning of a part.
        until: Where another worker's stretch begins, one of the marks of `Dividing.divide`: rows
            from there on are none of this batch's. None at a part's end.
        hooks: Whom to call. Always empty for a store that isn't `Hooking`.
        timeout: Seconds that each statement may take, where the database can limit that; None for
            what the connection has.
        force: Whether the person who runs this has confirmed what a store would otherwise refuse,
            such as a foreign key without an index.
        replicate: Whether replicas and subscribers shall hear of it. Always True for a store that
            isn't `Replicating`.
    """

    target: str
    part: Part
    size: int
    resume: object = None
    hooks: Hooks = field(default_factory=Hooks)
    timeout: float | None = None
    force: bool = False
    replicate: bool = True
    until: object = None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What came of one batch.

    Attributes:
        deleted: Rows of the target, those that were archived included.
        resume: Where the next batch of this stretch goes on; None after the last one.
        archived: Rows of these that were copied to an archive before.
        skipped: Expired rows that were left, by reason.
        purged: What `BatchRequest.hooks` got, for the hooks after the commit; one for each table
            that they watch.
        failure: What a hook or an archive raised, or the database, if it was for a row's sake and
            trying again won't help. The batch was then rolled back; `skipped` counts its rows, and
            `resume` leads past them. The sweeper asks for the same rows again, in smaller
            batches, until it knows which of them have to stay.
        left: With a failure, the keys of the rows that it left; those of the first few will do.
        loaded: Bytes of rows that came to Python, more or less; see `weight`.
        elapsed: Seconds that the store took. The driver fills this in, and the next.
        phases: What it took them for, see `ttl_odm.sweeper.phases`.
        referring: Rows of other tables, by these, that had expired too and were deleted before,
            since they referred to rows of the target.
        oldest: Seconds since the first of the expired rows that the batch met had expired, where
            `Due.oldest` is None; None if it met none, or nobody can tell.
        notes: What whoever reads the report should know of the target, a sentence each.
        pause: Seconds to wait before the next batch, such as for a lock that others have.
        partitions: How many partitions there are now; None where that wasn't looked at.
        by_scope: How many of the deleted rows were of each scope that has a default of its own; see
            `ttl_odm.Stored.by`.
    """

    deleted: int
    resume: object = None
    archived: int = 0
    skipped: Mapping[Skip, int] = field(default_factory=dict)
    purged: Sequence[Purged] = ()
    failure: HookError | RefusedError | None = None
    left: Sequence[tuple[Any, ...]] = ()
    loaded: int = 0
    elapsed: float = 0.0
    phases: Mapping[Phase, float] = field(default_factory=dict)
    referring: Mapping[str, int] = field(default_factory=dict)
    oldest: float | None = None
    notes: Sequence[str] = ()
    pause: float = 0.0
    partitions: PartitionsCounted | None = None
    by_scope: Mapping[str, int] = field(default_factory=dict)


def weight(values: Iterable[object]) -> int:
    """Estimate the bytes that the values of rows take: what counts is whether they are wide."""
    total = 0
    for value in values:
        if isinstance(value, (str, bytes, bytearray, memoryview)):
            total += len(value)
        elif isinstance(value, Mapping):
            total += weight(value.values())
        elif isinstance(value, (list, tuple)):
            total += weight(value)
        total += _VALUE
    return total


_VALUE: Final = 50
"""Bytes of any value, besides what is in it."""


@runtime_checkable
class Store(Protocol):
    """A database with TTL tables, or collections."""

    @property
    def pace(self) -> Pacing:
        """The batch sizes that suit it."""
        ...

    def targets(self) -> Sequence[str]:
        """Name what there is to sweep, those that refer to others first. Asks no database."""
        ...

    def due(self, target: str) -> Due | None:
        """Find what has expired; None while TTL is off for this target.

        Raises:
            TransientStoreError: Trying again may help.
            MissingTargetError: There is nothing to sweep, which is not a failure.
        """
        ...

    def purge(self, request: BatchRequest) -> BatchResult:
        """Delete a batch of rows that are expired at this very moment, and commit.

        The condition has to be decided by the statement that deletes: a row that is renewed
        between a look and the deletion stays.

        Raises:
            TransientStoreError: Nothing was deleted; trying again, with fewer rows, may help.
        """
        ...


@runtime_checkable
class AsyncStore(Protocol):
    """A `Store` whose two questions to the database are coroutines."""

    @property
    def pace(self) -> Pacing:
        """As in `Store`."""
        ...

    def targets(self) -> Sequence[str]:
        """As in `Store`."""
        ...

    async def due(self, target: str) -> Due | None:
        """As in `Store`."""
        ...

    async def purge(self, request: BatchRequest) -> BatchResult:
        """As in `Store`."""
        ...


@runtime_checkable
class Counting(Protocol):
    """A store that can count without deleting."""

    def count(self, target: str) -> Counted:
        """Count what has expired; it may read as many index entries as there are expired rows."""
        ...


@runtime_checkable
class AsyncCounting(Protocol):
    """An asynchronous store that can count without deleting."""

    async def count(self, target: str) -> Counted:
        """As in `Counting`."""
        ...


@runtime_checkable
class Clocked(Protocol):
    """A store that tells the database's time."""

    def now(self) -> datetime:
        """Return the database's present instant, aware."""
        ...


@runtime_checkable
class AsyncClocked(Protocol):
    """An asynchronous store that tells the database's time."""

    async def now(self) -> datetime:
        """As in `Clocked`."""
        ...


@runtime_checkable
class Dividing(Protocol):
    """A store of which several batches may run at once, in stretches that have no row in common."""

    def divide(self, request: BatchRequest, shares: int) -> Sequence[object]:
        """Cut what is left of a stretch into some of about equal work.

        Args:
            request: The batch that would be next: from its ``resume`` to its ``until`` is what is
                left, and its ``size`` says below which a stretch is not worth a worker.
            shares: Into how many.

        Returns:
            Marks, in order, between these two. Each is the ``until`` of the stretch before it and
            the ``resume`` of the one after it, which have no row in common, and none is between
            them. There may be as many as `shares`: the last stretch is then what is to be divided
            later. None where it can't be divided.

        Raises:
            TransientStoreError: It goes on undivided.
        """
        ...


@runtime_checkable
class AsyncDividing(Protocol):
    """An asynchronous store of which several batches may run at once."""

    async def divide(self, request: BatchRequest, shares: int) -> Sequence[object]:
        """As in `Dividing`."""
        ...


@runtime_checkable
class Hooking(Protocol):
    """A store, synchronous or not, whose `purge` calls `BatchRequest.hooks`.

    It does so by `Hooks.call` (or `Hooks.call_async`) after its rows are deleted and before it
    commits, and rolls back on a `HookError`: see `BatchResult.failure`.
    """

    @property
    def hooks(self) -> Hooks:
        """Those that the targets themselves declare; the sweeper adds them to its own."""
        ...


@runtime_checkable
class Leasing(Protocol):
    """A store, synchronous or not, that keeps leases beside its targets."""

    @property
    def leases(self) -> Leases | AsyncLeases | None:
        """Where; None if these targets are to be swept without a lease."""
        ...


@runtime_checkable
class Replicating(Protocol):
    """A store, synchronous or not, whose database has replicas or subscribers."""

    @property
    def hides_purges(self) -> bool:
        """Whether it can keep a purge from these, as `BatchRequest.replicate` asks."""
        ...


@runtime_checkable
class Named(Protocol):
    """A store, synchronous or not, that says which kind of database it is."""

    @property
    def backend(self) -> str:
        """As in the labels of metrics: ``postgresql``, ``mariadb``, ``sqlite``, ``mongodb``."""
        ...


def backend_of(store: object) -> str:
    """Return which kind of database a store is; the name of its class where it doesn't say."""
    return store.backend if isinstance(store, Named) else type(store).__name__
