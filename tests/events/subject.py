"""`EventSubject`: what a case of events may do to a backend, so that each case is written once.

As in `tests.contract.subject`, what a case sets up goes past the gate: `put` speaks to the
database by other means than the code under test. All methods are plain functions; a subject over an
asynchronous driver waits inside.

This module must not know any database.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ttl_odm.events import Expiry

HOUR: Final = 3600
"""The default ttl of a hold."""

BEFORE: Final = timedelta(minutes=10)
"""How long before its end a hold is warned of."""


class RolledBackError(Exception):
    """Ends a transaction."""


class EventSubject(ABC):
    """One adapter on one database: its table or collection with `id`, a name and a ttl.

    It has two handlers, of ``"expired"`` and of ``"expiring"`` (`BEFORE` the end), which include
    the name.

    Attributes:
        has_one_writer: Whether the database has one at a time.
        named: What the name is called there.
        got: What the handlers were given, in order.
        failures: How often the next call of a handler raises an exception.
    """

    named: ClassVar[str] = "person"
    has_one_writer: bool = False
    got: list[Expiry]
    failures: int = 0

    def handle(self, event: Expiry) -> None:
        """What both handlers do."""
        self.got.append(event)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the mail server is away")

    @abstractmethod
    def put(
        self, key: int, age: float = 0, *, person: str = "ann", ttl: int | None = None
    ) -> datetime:
        """Store a row whose instant lies so many seconds before the database's now; return it."""

    @abstractmethod
    def renew(self, key: int) -> None:
        """Renew a row by its `touch`."""

    @abstractmethod
    def set_ttl(self, key: int, ttl: int) -> None:
        """Give a row another ttl of its own, past the gate: its instant stays."""

    @abstractmethod
    def delete(self, key: int) -> None:
        """Delete a row through the gate."""

    @abstractmethod
    def insert(self, key: int, person: str, *, fails: bool = False) -> None:
        """Insert a row through the gate; if it `fails`, in a transaction that is rolled back."""

    @abstractmethod
    def keys(self) -> set[int]:
        """The keys of all rows that are stored, expired or not."""

    @abstractmethod
    def sweep(self) -> int:
        """Run a sweeper that isn't a worker's; return how many rows it says it has deleted."""

    @abstractmethod
    def sweep_while_comes(self, consumer: str) -> bool:
        """Sweep; a consumer subscribes to what has expired, before that is committed.

        It does so through a connection of its own. Return whether it could: a database with one
        writer at a time makes it wait.
        """

    @abstractmethod
    def work(self) -> None:
        """Let a worker sweep and deliver once."""

    @abstractmethod
    def pass_time(self, seconds: float) -> None:
        """Let time pass, by the test kit's clock."""

    @abstractmethod
    def read(self, consumer: str) -> Sequence[Expiry]:
        """Read what a consumer hasn't dealt with, of both kinds, in a loop."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing."""

    def told(self) -> list[tuple[str, int]]:
        """What the handlers were given since the last call: kinds and keys."""
        told = [(event.kind, event.key[0]) for event in self.got]
        self.got.clear()
        return told
