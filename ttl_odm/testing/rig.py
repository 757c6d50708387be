"""`StoreRig`: the access to a store that `ttl_odm.testing.StoreContract` needs.

A rig creates targets in the store's database, writes rows of any age, and reads what is really in
the database, past the store. For abilities that only some databases have (hold a row, write in the
deleting transaction, archive) there is a Protocol each; a rig with its methods gets its tests.

This module must not know pytest.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ttl_odm.sweeper import AsyncSweeper, Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractContextManager

    from typing_extensions import Unpack

    from ttl_odm.sweeper import ArchiveSink, SweepOptions, SweepReport


class StoreRig(ABC):
    """A store over an empty database, and the means to inspect it.

    Keys are ints from 0. Times are the database's. Even with an asynchronous store, the methods
    are plain functions; `run` waits for awaitables.

    Attributes:
        store: The store under test.
        loop: The event loop of `run`; an asynchronous store is only used there.
    """

    store: Any

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    @abstractmethod
    def create(self, target: str, default: int | None, hooks: object = None) -> None:
        """Create an empty target of the store.

        Args:
            target: A name: lower-case letters.
            default: The default ttl: seconds, -1 or None.
            hooks: The hooks that the target declares, as for the sweeper's option ``on_purged``.
        """

    @abstractmethod
    def set_default(self, target: str, default: int | None) -> None:
        """Change the default ttl of a target that has rows."""

    @abstractmethod
    def add(self, target: str, keys: Sequence[int], *, age: float, ttl: int | None = None) -> None:
        """Write rows that were last modified this many seconds ago, all at the same instant."""

    @abstractmethod
    def renew(self, target: str, key: int) -> None:
        """Update a row, so that it was last modified now, and commit."""

    @abstractmethod
    def keys(self, target: str) -> set[int]:
        """Return the keys of all rows in the table, expired or not."""

    @abstractmethod
    def before_delete(self, action: Callable[[], object]) -> AbstractContextManager[object]:
        """Run something once inside, as late as possible before rows are deleted.

        It runs after the store has found the batch and before the statement that deletes it. If
        one statement does both, it runs before that.
        """

    @abstractmethod
    def end_lease(self, name: str) -> None:
        """Let a lease end in the past, as if its holder had died.

        Choose an hour ago, for example: a clock correction of milliseconds can move "just now"
        into the future.
        """

    def run(self, result: object) -> Any:
        """Return a result, waiting for it if it is awaitable."""
        if not isawaitable(result):
            return result

        async def wait() -> object:
            return await result

        return self.loop.run_until_complete(wait())

    def sweep(self, **options: Unpack[SweepOptions]) -> SweepReport:
        """Sweep once."""
        report: SweepReport = self.run(self.sweeper(**options).run_once())
        return report

    def sweeper(self, **options: Unpack[SweepOptions]) -> Any:
        """Return a sweeper for the store, synchronous or asynchronous."""
        return (AsyncSweeper if self.is_async else Sweeper)(self.store, **options)

    @property
    def is_async(self) -> bool:
        """Whether the store is an `AsyncStore`."""
        return iscoroutinefunction(self.store.purge)

    def close(self) -> None:
        """Clean up; called after each test."""
        self.loop.close()


@runtime_checkable
class CanHold(Protocol):
    """A rig whose database has locks that a sweeper doesn't wait for."""

    def hold(self, target: str, key: int) -> AbstractContextManager[object]:
        """Lock a row during the block, in a separate transaction."""
        ...


@runtime_checkable
class CanRefuse(Protocol):
    """A rig whose database can be made to refuse rows, as by a trigger."""

    def refuse(self, target: str, keys: Collection[int]) -> AbstractContextManager[object]:
        """Let statements that delete one of these rows fail during the block."""
        ...


@runtime_checkable
class CanWrite(Protocol):
    """A rig whose database lets a hook write in the deleting transaction."""

    def write(self, transaction: Any, text: str) -> object:
        """Store a text in the transaction of a `Purged`; awaitable for asynchronous stores."""
        ...

    def written(self) -> list[str]:
        """Return the committed texts."""
        ...


@runtime_checkable
class CanArchive(Protocol):
    """A rig whose store has the mode ``archive``."""

    def create_archived(self, target: str, default: int | None, sink: ArchiveSink) -> None:
        """Create an empty target whose rows go to a sink before they are deleted."""
        ...
