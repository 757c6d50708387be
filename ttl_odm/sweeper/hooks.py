"""Hooks, which are notified of purged rows: `Purged`, `Hook`, `Hooks`, `ArchiveSink`.

A hook runs at one of two moments. Inside the deleting transaction it can write to the same
database, so that both happen or neither does (an outbox); if it raises, the batch rolls back.
After the commit the rows are certainly gone, but the hook isn't called if the process dies in
between.

This module must not know any database, nor whether its caller is a coroutine: `Hooks.call` and
`Hooks.call_async` are the only two places that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import isawaitable, iscoroutine, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.sweeper.phases import phase
from ttl_odm.sweeper.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

When: TypeAlias = Literal["transaction", "commit"]
"""The moment of a hook: inside the deleting transaction, or after it was committed."""

Reason: TypeAlias = Literal["expired", "displaced"]
"""Why rows were purged: by a sweep, or by a write that took their keys."""


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
        """Reject what would otherwise fail in the middle of a sweep."""
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
    def of(cls, hooks: Any) -> Hooks:
        """Build from what the user passed.

        Args:
            hooks: A function, a `Hook`, a list of these, or a mapping from targets to these.

        Raises:
            TTLConfigurationError: It is something else.
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
        """Whether any hook is called for this table."""
        return any(True for _ in self._of(table))

    def wants_rows(self, table: str) -> bool:
        """Whether any hook needs the values of the rows."""
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


def _listed(hooks: Any) -> list[Hook]:
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
def _named_errors(kind: Literal["hook", "archive"], call: Any, purged: Purged) -> Iterator[None]:
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
