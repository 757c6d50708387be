"""What happens to purged rows besides their deletion: hooks, archives, and the time they take.

A hook runs at one of two moments. Inside the deleting transaction it can write to the same
database, so that both happen or neither does (an outbox); if it raises, the batch rolls back.
After the commit the rows are certainly gone, but the hook isn't called if the process dies in
between.

From top to bottom: `Purged`, which hooks and archives receive; `Hook`, `Hooks`, `ArchiveSink` and
`Archive`; what a model declares besides ``__ttl__``, for every adapter; and the stopwatch that
times the phases of a batch.

This module must not know any database, nor whether its caller is a coroutine: `Hooks.call` and
`archive` each have an asynchronous twin. The adapters decide what an archive is in a database, and
whether it fits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.sweeper.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

PurgeT = TypeVar("PurgeT", bound=str)

When: TypeAlias = Literal["transaction", "commit"]
"""The moment of a hook: inside the deleting transaction, or after it was committed."""

Reason: TypeAlias = Literal["expired", "displaced"]
"""Why rows were purged: by a sweep, or by a write that took their keys."""

Phase: TypeAlias = Literal["find", "delete", "archive", "hook", "commit", "after_commit"]
"""Find and lock the rows of a batch; delete them; copy them to an archive; hooks inside the
transaction; its commit; hooks after it."""

SweepBy: TypeAlias = Literal["index", "scan"]
"""How expired rows are found: by the sweeper's indexes, or by reading the whole table in slices."""


@dataclass(frozen=True, slots=True)
class Purged:
    """The rows that one batch purged from one table.

    Attributes:
        table: The target that the rows were in.
        keys: Their primary keys, each a tuple, in no particular order.
        count: How many there are.
        as_of: The database's time at which they counted as expired (aware, UTC).
        rows: Their values by column (by field, for documents), if a hook or an archive asked for
            them; None otherwise.
        duration: Seconds since the batch began.
        reason: Why they were purged.
        transaction: The handle for writing in the deleting transaction: a SQLAlchemy
            ``Connection`` (``AsyncConnection`` for a coroutine) or a MongoDB session. None after
            the commit.
    """

    table: str
    keys: Sequence[tuple[Any, ...]]
    count: int
    as_of: datetime
    rows: Sequence[Mapping[str, Any]] | None = None
    duration: float = 0.0
    reason: Reason = "expired"
    transaction: Any = None


OnPurged: TypeAlias = Callable[[Purged], object]
"""A hook's function; with an asynchronous store it may be a coroutine function."""


@runtime_checkable
class ArchiveSink(Protocol):
    """A place to keep rows that are being purged."""

    def write(self, purged: Purged, /) -> object:
        """Store `purged.rows`, in the deleting transaction.

        An exception rolls the batch back. A sink outside the database may receive the same rows
        again if the process dies before the commit, so it must recognize them by their keys. With
        an asynchronous store this may be a coroutine function.
        """
        ...


@dataclass(frozen=True, slots=True)
class Archive:
    """Copy rows to another table or collection in the transaction that deletes them.

    On SQL databases, columns are matched by name. The archive must have at least the primary key;
    it receives every column it shares with the model, and its other columns get the server's
    default. Documents are copied byte for byte. If the archive has a ttl of its own, it counts
    from when a row is archived.

    Attributes:
        into: The archive. On SQLAlchemy a Table, a model, or a function without arguments that
            returns one; on Beanie a collection's name in the same database, or a document class;
            on Django a model, or its label.
        archived_at: The column or field that is set to the time of archiving, in UTC; None for
            none.
    """

    into: Any
    archived_at: str | None = None


class HookError(TTLError):
    """A hook or an archive failed; its own error is the cause."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A function to call for each batch, and when.

    Attributes:
        call: Called with a `Purged`.
        when: ``"transaction"``: called at least once for each purged row. ``"commit"``: at most
            once.
        rows: Whether it needs the values of the rows, not only their keys.
    """

    call: OnPurged
    when: When = "transaction"
    rows: bool = False

    def __post_init__(self) -> None:
        """Reject values that would otherwise fail in the middle of a sweep."""
        if not callable(self.call):
            raise TTLConfigurationError(f"A hook must be callable, but {self.call!r} isn't.")
        if self.when not in ("transaction", "commit"):
            raise TTLConfigurationError(
                f"when = {self.when!r}: a hook runs in the 'transaction' or after the 'commit'."
            )

    @property
    def is_async(self) -> bool:
        """Whether the function must be awaited."""
        return iscoroutinefunction(self.call) or iscoroutinefunction(
            getattr(type(self.call), "__call__", None)  # noqa: B004 (an object with async __call__)
        )


@dataclass(frozen=True, slots=True)
class Hooks:
    """All hooks of a sweeper, each with its target (None: all targets); false if there are none.

    A store asks `watches` and `wants_rows` before it deletes, and calls `call` or `call_async`
    before it commits.
    """

    entries: tuple[tuple[str | None, Hook], ...] = ()

    @classmethod
    def of(cls, hooks: object) -> Hooks:
        """Build from the option `on_purged`, or from a model's declaration.

        Args:
            hooks: A function, a `Hook`, a list of these, or a mapping from targets to these.

        Raises:
            TTLConfigurationError: It is none of these.
        """
        if isinstance(hooks, Hooks):
            return hooks
        if isinstance(hooks, Mapping):
            return cls(tuple((name, hook) for name in hooks for hook in _listed(hooks[name])))
        return cls(tuple((None, hook) for hook in _listed(hooks)))

    def __bool__(self) -> bool:
        return bool(self.entries)

    def __add__(self, other: Hooks) -> Hooks:
        return Hooks(self.entries + other.entries)

    @property
    def named(self) -> Hooks:
        """The hooks that are for one target each."""
        return Hooks(tuple(entry for entry in self.entries if entry[0] is not None))

    def watches(self, table: str) -> bool:
        """Return whether any hook is called for this table."""
        return any(True for _ in self._of(table))

    def wants_rows(self, table: str) -> bool:
        """Return whether any hook needs the values of the rows."""
        return any(hook.rows for hook in self._of(table))

    @property
    def has_async(self) -> bool:
        """Whether any hook must be awaited."""
        return any(hook.is_async for _, hook in self.entries)

    def call(self, purged: Purged, when: When = "transaction") -> None:
        """Call the hooks of a moment.

        Raises:
            HookError: A hook raised an exception; the remaining ones were not called.
        """
        for hook, details in self._calls(purged, when):
            with _named_errors("hook", hook.call, purged):
                _reject_coroutine(hook.call(details))

    async def call_async(self, purged: Purged, when: When = "transaction") -> None:
        """Call the hooks of a moment, and await coroutines; see `call`."""
        for hook, details in self._calls(purged, when):
            with _named_errors("hook", hook.call, purged):
                result = hook.call(details)
                if isawaitable(result):
                    await result

    def _calls(self, purged: Purged, when: When) -> Iterator[tuple[Hook, Purged]]:
        details = purged if when == "transaction" else replace(purged, transaction=None)
        for hook in self._of(purged.table):
            if hook.when == when:
                yield hook, details if hook.rows else replace(details, rows=None)

    def _of(self, table: str) -> Iterator[Hook]:
        return (hook for name, hook in self.entries if name in (None, table))


def archive(sink: ArchiveSink, purged: Purged) -> None:
    """Write to a sink, for stores.

    Raises:
        HookError: The sink raised an exception.
    """
    with _named_errors("archive", sink.write, purged):
        _reject_coroutine(sink.write(purged))


async def archive_async(sink: ArchiveSink, purged: Purged) -> None:
    """Write to a sink, and await it if it is a coroutine; see `archive`."""
    with _named_errors("archive", sink.write, purged):
        result = sink.write(purged)
        if isawaitable(result):
            await result


def _listed(hooks: object) -> list[Hook]:
    if hooks is None:
        return []
    if isinstance(hooks, Hook):
        return [hooks]
    if callable(hooks):
        return [Hook(hooks)]
    if isinstance(hooks, Sequence) and not isinstance(hooks, str):
        return [hook for item in hooks for hook in _listed(item)]
    raise TTLConfigurationError(
        f"on_purged = {hooks!r}: pass a function, a Hook, a list of these, or a mapping from "
        "targets to these."
    )


def _reject_coroutine(result: object) -> None:
    """Reject a coroutine: dropping it would look as if it had run."""
    if isawaitable(result):
        if iscoroutine(result):
            result.close()
        raise TTLConfigurationError("it is a coroutine function, which needs an AsyncSweeper.")


@contextmanager
def _named_errors(kind: Literal["hook", "archive"], call: object, purged: Purged) -> Iterator[None]:
    """Time a call, and name the function in the error that it raises."""
    try:
        with phase(kind):
            yield
    except Exception as error:
        name = getattr(call, "__qualname__", type(call).__name__)
        reason = " ".join(str(error).split()) or type(error).__name__
        rows = counted(purged.count, "row")
        raise HookError(
            f"The {kind} {name} failed on {rows} of {purged.table}: {reason}"
        ) from error


# --- what a model declares --------------------------------------------------------------------
#
# The attributes are read when they are needed, because an archive may be declared after the model.

_UNREAD: Final = object()


def declarations(
    *, purge: str | None, archive: object, on_purged: object, sweep: str | None
) -> dict[str, object]:
    """Return what ``enable()`` sets on a class besides ``__ttl__``; None leaves the class's own."""
    attributes = {
        "__ttl_purge__": purge,
        "__ttl_archive__": archive,
        "__ttl_on_purged__": on_purged,
        "__ttl_sweep__": sweep,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def purge_of(owner: type, possible: Sequence[PurgeT], declared: object = _UNREAD) -> PurgeT:
    """Return who deletes the expired rows of a model, or how.

    Args:
        owner: The model.
        possible: The adapter's values, the default first.
        declared: What was declared instead of the class's ``__ttl_purge__``.
    """
    value = getattr(owner, "__ttl_purge__", possible[0]) if declared is _UNREAD else declared
    for purge in possible:
        if isinstance(value, str) and value == purge:
            return purge
    fix = f"write {' or '.join(map(repr, possible))}"
    if isinstance(value, (Archive, ArchiveSink)):
        fix = f"to archive rows, declare __ttl_archive__. Here {fix}"
    raise TTLConfigurationError(f"{owner.__name__}.__ttl_purge__ = {value!r}: {fix}.")


def archive_of(owner: type) -> Archive | ArchiveSink | None:
    """Return the archive of a model; None if it has none."""
    value: object = getattr(owner, "__ttl_archive__", None)
    if value is None or isinstance(value, Archive):
        return value
    if isinstance(value, ArchiveSink) and not isinstance(value, type):
        return value
    raise TTLConfigurationError(
        f"{owner.__name__}.__ttl_archive__ = {value!r}: write Archive(...), or an object with a "
        "method write()."
    )


def hooks_of(owner: type, table: str) -> Hooks:
    """Return the hooks of a model, for its table."""
    return Hooks.of({table: getattr(owner, "__ttl_on_purged__", None)})


def reject_partitions(owner: type, declared: object = _UNREAD) -> None:
    """Reject ``__ttl_partition__`` where the adapter has no partitions.

    Raises:
        TTLConfigurationError: It is declared.
    """
    name = "__ttl_partition__"
    value = getattr(owner, name, None) if declared is _UNREAD else declared
    if value is not None:
        from ttl_odm.combinations import CAPABILITIES  # noqa: PLC0415 (only if it is wrong)

        why = CAPABILITIES["partitions"].absent
        raise TTLConfigurationError(
            f"{owner.__name__}.{name} = {value!r}: {why}; leave {name} out."
        )


def sweep_of(owner: type) -> SweepBy:
    """Return how the sweeper finds the expired rows of a model."""
    value: object = getattr(owner, "__ttl_sweep__", "index")
    if value == "index":
        return "index"
    if value == "scan":
        return "scan"
    raise TTLConfigurationError(
        f"{owner.__name__}.__ttl_sweep__ = {value!r}: write 'index' or 'scan'."
    )


# --- the phases of a batch --------------------------------------------------------------------
#
# A driver starts a stopwatch for each batch, and the functions of a store name its phases without
# passing the stopwatch around. The phases add up to the whole batch: time without a name counts as
# "delete", so a store may name none.

_running: ContextVar[Stopwatch | None] = ContextVar("ttl_odm_stopwatch", default=None)


class Stopwatch:
    """Seconds by phase; one phase runs at a time."""

    def __init__(self) -> None:
        self.seconds: dict[Phase, float] = {}
        self._phase: Phase = _DEFAULT
        self._since = time.monotonic()

    def turn_to(self, phase: Phase) -> Phase:
        """Start another phase, and return the previous one."""
        before, now = self._phase, time.monotonic()
        self.seconds[before] = self.seconds.get(before, 0.0) + now - self._since
        self._phase, self._since = phase, now
        return before


_DEFAULT: Final[Phase] = "delete"


@contextmanager
def timed() -> Iterator[Stopwatch]:
    """Time the phases of the block."""
    watch = Stopwatch()
    token = _running.set(watch)
    try:
        yield watch
    finally:
        _running.reset(token)
        watch.turn_to(_DEFAULT)


@contextmanager
def phase(name: Phase) -> Iterator[None]:
    """Count the block for this phase, not for the one around it; no effect outside a batch."""
    watch = _running.get()
    if watch is None:
        yield
        return
    before = watch.turn_to(name)
    try:
        yield
    finally:
        watch.turn_to(before)
