"""What the sweeper asks of a database: `Store`, and what a store may offer beyond that.

A store knows how to find expired rows and how to delete one batch of them; the plan decides when,
how many, and what happens after a failure. It is found through the entry-point group
``ttl_odm.stores``, or passed to the sweeper.

Only `Store` is required. Each further Protocol is one more capability, and a sweeper whose options
require one that its store lacks is rejected when it is made:

==============  =======================  =====================================================
a store that    offers                   for
==============  =======================  =====================================================
`Counting`      ``count(target)``        dry runs, ``max_fraction`` and ``max_jump``
`FactCounting`  ``count_facts(target)``  facts that only dry runs count
`Clocked`       ``now()``                ``window``
`Hooking`       ``hooks``                ``on_purged``
`Leasing`       ``leases``               one sweeper at a time, pause, ``max_jump``
`Replicating`   ``hides_purges``         ``replicate=False``
`Dividing`      ``divide(...)``          ``workers``; without it, there is one
`Named`         ``backend``              the field ``backend`` of logs and metrics
`Serving`       ``server()``             the server that answered, for ``status``, ``on_server``
==============  =======================  =====================================================

Each has an asynchronous twin, unless one fits both. Targets are names, and only the store
understands the value at which the next batch resumes. Anything else that a store reports is a
`ttl_odm.sweeper.facts.Fact`. This module must not know any database.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, runtime_checkable

from ttl_odm.errors import TTLError
from ttl_odm.sweeper.hooks import HookError, Hooks, Purged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from datetime import datetime

    from ttl_odm.sweeper.facts import Fact
    from ttl_odm.sweeper.hooks import Phase
    from ttl_odm.sweeper.leases import AsyncLeases, Leases


class StoreError(TTLError):
    """The database rejected an operation; the driver's own error is the cause."""


class TransientStoreError(StoreError):
    """A temporary failure: a lock, a deadlock, a timeout."""


class UnreachableStoreError(TransientStoreError):
    """The database is temporarily unreachable: a lost connection, a server restart."""


class StandbyStoreError(UnreachableStoreError):
    """The server is reachable, but takes no writes, as a standby or a secondary does."""


def kind_of_error(*, is_standby: bool, is_away: bool, is_passing: bool) -> type[StoreError]:
    """Return the class for a driver's error: the most specific one that applies.

    Args:
        is_standby: Whether the server takes no writes.
        is_away: Whether it was lost, or can't be reached.
        is_passing: Whether trying again may help.
    """
    if is_standby:
        return StandbyStoreError
    if is_away:
        return UnreachableStoreError
    return TransientStoreError if is_passing else StoreError


class MissingTargetError(StoreError):
    """The database has no such table."""


class RefusedError(StoreError):
    """The database rejects the deletion of a row for a reason specific to that row."""

    @classmethod
    def by(cls, error: Exception, message: str) -> RefusedError:
        """Return an error with its cause, for a batch to report, not to raise."""
        refused = cls(message)
        refused.__cause__ = error
        return refused


@dataclass(frozen=True, slots=True)
class Part:
    """A share of a target's expired rows that is purged by itself.

    Rows that inherit the default, rows with their own ttl, and rows past the maximum lifetime are
    in different indexes. A single condition over all of them makes every planner read the whole
    table. A store may have parts of its own, by names of its own.

    Attributes:
        name: Unique among the parts of the target.
        whole: Whether a batch deletes something whole, regardless of its number of rows, so that
            its duration says nothing about other batches.
        last: Whether it holds what deleting the other parts leaves behind, so that it comes last.
    """

    name: str
    whole: bool = False
    last: bool = False

    INHERITING: ClassVar[Part]
    OWN: ClassVar[Part]
    CAPPED: ClassVar[Part]

    ALL: ClassVar[Part]
    """All expired rows, for a table that has to be walked anyway."""


Part.INHERITING = Part("inheriting")
Part.OWN = Part("own")
Part.CAPPED = Part("capped")
Part.ALL = Part("all")


class Skip(Enum):
    """Why an expired row was left in place."""

    LOCKED = "locked"
    """Another session has locked it; the next sweep deletes it."""

    RESTRICTED = "restricted"
    """Another row refers to it by a foreign key that prevents the deletion."""

    REFUSED = "refused"
    """The database rejects the deletion, such as by a trigger."""

    HOOK = "hook"
    """A hook or an archive failed on it."""


@dataclass(frozen=True, slots=True)
class Due:
    """The work in a target.

    Attributes:
        parts: The parts that may hold expired rows; empty if nothing has expired.
        oldest: How long, in seconds, the oldest expired row has been expired; 0.0 if there is
            none. None if that would mean reading the whole table; then `Counted` and `BatchResult`
            report what they have found.
        loads_rows: Whether the rows are loaded into Python, to be archived or deleted there, so
            that batches of wide rows must be small.
        facts: What else is known of the target, by names for JSON.
    """

    parts: tuple[Part, ...]
    oldest: float | None
    loads_rows: bool = False
    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counted:
    """How many rows of a target have expired.

    Attributes:
        due: Expired rows that are still in the table.
        rows: All rows in the table, expired or not, at the instant when `due` was counted.
        is_estimated: Whether `rows` is the database's own estimate, or from another instant.
        oldest: The age that `Due.oldest` left out because it requires reading the table; None if
            `Due.oldest` has it, or if unknown.
        facts: What else was counted. Reports have those about the `due` rows, and status those
            about the target.
    """

    due: int
    rows: int
    is_estimated: bool = False
    oldest: float | None = None
    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A batch for the store to purge.

    Attributes:
        target: One of the store's `targets`.
        part: One of the parts that `due` returned.
        size: The most rows to delete, unless the part goes whole.
        resume: Where the previous batch ended; None at the beginning of a part.
        until: Where another worker's range begins, a mark from `Dividing.divide`; rows from there
            on don't belong to this batch. None at a part's end.
        hooks: The hooks to call. Always empty for a store that isn't `Hooking`.
        timeout: Seconds that each statement may take, if the database can limit that; None for the
            connection's own timeout.
        force: Whether the user has confirmed what a store would otherwise reject, such as a
            foreign key without an index.
        replicate: Whether to replicate the deletions to replicas and subscribers. Always True for
            a store that isn't `Replicating`.
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
    """The result of one batch.

    Attributes:
        deleted: Rows deleted from the target, including archived ones.
        resume: Where the next batch of this range continues; None after the last one.
        archived: How many of them were archived first.
        skipped: Expired rows that were left in place, by reason.
        purged: The `Purged` that were passed to `BatchRequest.hooks`, for the hooks after the
            commit; one for each table that they watch.
        failure: The error of a hook, an archive or the database, if a row caused it and a retry
            won't help. The batch was then rolled back, `skipped` counts its rows, and `resume`
            points past them. The sweeper requests the same rows again in smaller batches, until it
            knows which of them must stay.
        left: After a failure, the keys of the rows left in place, or of the first few.
        loaded: Approximate bytes of rows loaded into Python; see `weight`.
        elapsed: Seconds that the store took. The driver fills in this field and the next.
        phases: How long each phase took; see `ttl_odm.sweeper.hooks.Phase`.
        referring: Expired rows of other tables that were deleted first because they referred to
            rows of the target, by table.
        oldest: If `Due.oldest` is None, how long, in seconds, the oldest expired row of the batch
            had been expired; None if there was none, or if unknown.
        notes: Remarks on the target for the report, one sentence each.
        pause: Seconds to wait before the next batch, such as for a lock that others hold.
        facts: What else to report, of the deleted rows or of the target as it is now.
    """

    deleted: int
    resume: object = None
    archived: int = 0
    skipped: Mapping[Skip, int] = field(default_factory=dict)
    purged: Sequence[Purged] = ()
    failure: HookError | RefusedError | None = None
    left: Sequence[tuple[object, ...]] = ()
    loaded: int = 0
    elapsed: float = 0.0
    phases: Mapping[Phase, float] = field(default_factory=dict)
    referring: Mapping[str, int] = field(default_factory=dict)
    oldest: float | None = None
    notes: Sequence[str] = ()
    pause: float = 0.0
    facts: Mapping[str, Fact] = field(default_factory=dict)


def weight(values: Iterable[object]) -> int:
    """Estimate the bytes that the rows' values take, to tell wide rows from narrow ones."""
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
"""Bytes of any value, besides its content."""


@runtime_checkable
class Pacing(Protocol):
    """Chooses batch sizes. One instance serves many sweeps, so it should keep no state."""

    @property
    def start(self) -> int:
        """Rows in the first batch of each target."""
        ...

    @property
    def rest(self) -> float:
        """Seconds to pause after a batch, for each second that it took."""
        ...

    def next(self, size: int, elapsed: float, /) -> int:
        """Return the rows to allow after a full batch of `size` rows took `elapsed` seconds."""
        ...

    def shrunk(self, size: int, /) -> int:
        """Return the rows to allow after a batch of `size` rows failed temporarily."""
        ...


@runtime_checkable
class Store(Protocol):
    """A database with TTL tables, or collections."""

    @property
    def pace(self) -> Pacing:
        """The batch sizes that suit it."""
        ...

    def targets(self) -> Sequence[str]:
        """List the targets, referring ones before those they refer to. Queries no database."""
        ...

    def due(self, target: str) -> Due | None:
        """Find what has expired; None while TTL is off for this target.

        Raises:
            TransientStoreError: A retry may help.
            MissingTargetError: The target doesn't exist, which is not a failure.
        """
        ...

    def purge(self, request: BatchRequest) -> BatchResult:
        """Delete a batch of rows that are expired now, and commit.

        The deleting statement itself must check the condition: a row that is renewed between the
        lookup and the deletion must stay.

        Raises:
            TransientStoreError: Nothing was deleted; a retry with fewer rows may help.
        """
        ...


@runtime_checkable
class AsyncStore(Protocol):
    """A `Store` whose database methods are coroutines."""

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
    """A store that can count expired rows without deleting them."""

    def count(self, target: str) -> Counted:
        """Count the expired rows; may read as many index entries as there are expired rows."""
        ...


@runtime_checkable
class AsyncCounting(Protocol):
    """An asynchronous store that can count expired rows without deleting them."""

    async def count(self, target: str) -> Counted:
        """As in `Counting`."""
        ...


@runtime_checkable
class FactCounting(Protocol):
    """A store, synchronous or not, that can count more than `Counting` does, for dry runs."""

    def count_facts(self, target: str) -> Mapping[str, Fact] | Awaitable[Mapping[str, Fact]]:
        """Return facts about the expired rows, besides those of `Counted`.

        An awaitable of them if the store is asynchronous. It is called where rows have expired.
        """
        ...


@runtime_checkable
class Clocked(Protocol):
    """A store that tells the database's time."""

    def now(self) -> datetime:
        """Return the database's current time (aware)."""
        ...


@runtime_checkable
class AsyncClocked(Protocol):
    """An asynchronous store that tells the database's time."""

    async def now(self) -> datetime:
        """As in `Clocked`."""
        ...


@runtime_checkable
class Dividing(Protocol):
    """A store that can run several batches at once, in ranges that share no row."""

    def divide(self, request: BatchRequest, shares: int) -> Sequence[object]:
        """Divide the rest of a range into parts of about equal work.

        Args:
            request: The batch that would come next. The rest of the range is from its ``resume``
                to its ``until``; a range of fewer rows than its ``size`` is not worth a worker.
            shares: How many parts.

        Returns:
            Marks, in order, between these two. Each is the ``until`` of the range before it and
            the ``resume`` of the one after it, with no row in both or in neither. There may be as
            many as `shares`: the last range is then to be divided later. Empty if it can't be
            divided.

        Raises:
            TransientStoreError: The range stays undivided.
        """
        ...


@runtime_checkable
class AsyncDividing(Protocol):
    """An asynchronous store that can run several batches at once."""

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
        """The hooks that the targets themselves declare; the sweeper adds them to its own."""
        ...


@runtime_checkable
class Leasing(Protocol):
    """A store, synchronous or not, that also keeps leases."""

    @property
    def leases(self) -> Leases | AsyncLeases | None:
        """The leases; None if these targets are swept without a lease."""
        ...


@runtime_checkable
class Replicating(Protocol):
    """A store, synchronous or not, whose database has replicas or subscribers."""

    @property
    def hides_purges(self) -> bool:
        """Whether it can keep a purge from being replicated, see `BatchRequest.replicate`."""
        ...


@dataclass(frozen=True, slots=True)
class Server:
    """One of the servers that keep the same data.

    Attributes:
        address: Its host and port, as it names them itself; None if it doesn't, as behind a local
            socket.
        takes_writes: False for a standby, and for one that is read-only for another reason.
    """

    address: str | None
    takes_writes: bool


@runtime_checkable
class Serving(Protocol):
    """A store that tells which server answers; None where there are no servers."""

    def server(self) -> Server | None:
        """Ask it, by a connection as `Store.purge` would use it."""
        ...


@runtime_checkable
class AsyncServing(Protocol):
    """An asynchronous store that tells which server answers."""

    async def server(self) -> Server | None:
        """As in `Serving`."""
        ...


@runtime_checkable
class Named(Protocol):
    """A store, synchronous or not, that names its kind of database."""

    @property
    def backend(self) -> str:
        """The label in metrics: ``postgresql``, ``mariadb``, ``sqlite``, ``mongodb``."""
        ...


def backend_of(store: object) -> str:
    """Return a store's kind of database; the name of its class unless it is `Named`."""
    return store.backend if isinstance(store, Named) else type(store).__name__
