"""`StoreRig`: what `ttl_odm.testing.StoreContract` needs to know to test a store.

A rig makes targets in the store's database, writes rows that are as old as a test wants them, and
looks at what is really there, past the store. What only some databases can do (hold a row, write
in the deleting transaction, archive) is a Protocol each; a rig that has the methods has the tests.

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
    """A store over an empty database, and the means to look behind it.

    Keys are ints from 0 on. Instants are the database's. With an asynchronous store the methods
    are plain functions nevertheless; `run` waits for what has to be awaited.

    Attributes:
        store: The store under test.
        loop: Where `run` waits; an asynchronous store is only ever used there.
    """

    store: Any

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    @abstractmethod
    def create(self, target: str, default: int | None, hooks: Any = None) -> None:
        """Make an empty target, one of the store's from now on.

        Args:
            target: A name: lower-case letters.
            default: The default ttl: seconds, -1 or None.
            hooks: That the target declares itself, as in the sweeper's option ``on_purged``.
        """

    @abstractmethod
    def set_default(self, target: str, default: int | None) -> None:
        """Change the default ttl of a target that has rows."""

    @abstractmethod
    def add(self, target: str, keys: Sequence[int], *, age: float, ttl: int | None = None) -> None:
        """Write rows, last modified so many seconds ago, all at the same instant."""

    @abstractmethod
    def renew(self, target: str, key: int) -> None:
        """Write a row again, so that it was last modified now, and commit."""

    @abstractmethod
    def keys(self, target: str) -> set[int]:
        """Return the keys of all rows that are there, expired or not."""

    @abstractmethod
    def before_delete(self, action: Callable[[], object]) -> AbstractContextManager[object]:
        """Let something happen once inside, as late as it can before rows are deleted.

        After the store has looked for the batch, before the statement that deletes: for a store
        that does both in one statement, before that.
        """

    @abstractmethod
    def end_lease(self, name: str) -> None:
        """Let a lease have ended long ago, as if its holder had died.

        An hour ago, say: a clock that is set right, even by milliseconds, makes "just now" future.
        """

    def run(self, result: Any) -> Any:
        """Wait for a result, if it is one to wait for."""
        if not isawaitable(result):
            return result

        async def wait() -> Any:
            return await result

        return self.loop.run_until_complete(wait())

    def sweep(self, **options: Unpack[SweepOptions]) -> SweepReport:
        """Sweep once."""
        report: SweepReport = self.run(self.sweeper(**options).run_once())
        return report

    def sweeper(self, **options: Unpack[SweepOptions]) -> Any:
        """Return a sweeper of the store, of the kind that fits."""
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
        """Lock a row meanwhile, in a transaction of its own."""
        ...


@runtime_checkable
class CanRefuse(Protocol):
    """A rig whose database can be made to refuse rows, as by a trigger."""

    def refuse(self, target: str, keys: Collection[int]) -> AbstractContextManager[object]:
        """Let the database delete none of these rows meanwhile: a statement that tries it fails."""
        ...


@runtime_checkable
class CanWrite(Protocol):
    """A rig whose database lets a hook write in the deleting transaction."""

    def write(self, transaction: Any, text: str) -> object:
        """Store a text, in the transaction of a `Purged`; to be awaited in asynchronous stores."""
        ...

    def written(self) -> list[str]:
        """Return the texts that were committed."""
        ...


@runtime_checkable
class CanArchive(Protocol):
    """A rig whose store has the mode ``archive``."""

    def create_archived(self, target: str, default: int | None, sink: ArchiveSink) -> None:
        """Make an empty target whose rows go to a sink before they are deleted."""
        ...
