"""What the sweeper asks of a database: `Store`, and `AsyncStore` with the same methods.

A store knows how to find expired rows and how to delete one batch of them; when, how many and
what after a failure is the plan's business. One is found through the entry-point group
``ttl_odm.stores``, or given to the sweeper as it is.

This module must not know any database. Targets are names, and the place where the next batch goes
on is a value that only the store understands.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.sweeper.pace import Pace


class StoreError(TTLError):
    """The database refused; the driver's own error is the cause."""


class TransientStoreError(StoreError):
    """The database refused for now: a lock, a deadlock, a timeout, a lost connection."""


class Part(Enum):
    """A share of a target's expired rows that is purged by itself.

    The rows that inherit the default and those with a ttl of their own are in different indexes;
    one condition over both makes every planner read the whole table.
    """

    INHERITING = "inheriting"
    OWN = "own"
    ALL = "all"
    """Both at once, where the whole table has to be walked anyway."""


@dataclass(frozen=True, slots=True)
class Due:
    """What there is to do in a target.

    Attributes:
        parts: Those that may hold expired rows; none when nothing has expired.
        oldest: Seconds since the first of the expired rows expired, 0.0 when there is none; None
            where finding out would mean reading the whole table.
    """

    parts: tuple[Part, ...]
    oldest: float | None


@dataclass(frozen=True, slots=True)
class BatchResult:
    """What came of one batch.

    Attributes:
        deleted: Rows.
        resume: Where the next batch of this part goes on; None after the last one.
        skipped: Expired rows that were left because somebody holds them.
        elapsed: Seconds that the store took. The driver fills this in.
    """

    deleted: int
    resume: object = None
    skipped: int = 0
    elapsed: float = 0.0


@runtime_checkable
class Store(Protocol):
    """A database with TTL tables, or collections."""

    @property
    def pace(self) -> Pace:
        """The batch sizes that suit it."""
        ...

    def targets(self) -> Sequence[str]:
        """Name what there is to sweep, those that refer to others first. Asks no database."""
        ...

    def due(self, target: str) -> Due | None:
        """Find what has expired; None while TTL is off for this target.

        Raises:
            TransientStoreError: Trying again may help.
        """
        ...

    def purge(self, target: str, part: Part, size: int, resume: object) -> BatchResult:
        """Delete a batch of rows that are expired at this very moment, and commit.

        Args:
            target: One of `targets`.
            part: One of those that `due` gave.
            size: Rows, at most.
            resume: Where the batch before this one ended; None at the beginning.

        Raises:
            TransientStoreError: Nothing was deleted; trying again, with fewer rows, may help.
        """
        ...


@runtime_checkable
class AsyncStore(Protocol):
    """A `Store` whose two questions to the database are coroutines."""

    @property
    def pace(self) -> Pace:
        """As in `Store`."""
        ...

    def targets(self) -> Sequence[str]:
        """As in `Store`."""
        ...

    async def due(self, target: str) -> Due | None:
        """As in `Store`."""
        ...

    async def purge(self, target: str, part: Part, size: int, resume: object) -> BatchResult:
        """As in `Store`."""
        ...
