"""An application under load: 16 writers and some readers on a few hot keys, and two sweepers.

It is there twice, with and without a policy. Its transactions take their locks in such an order
that without one none of them fails at a database's default isolation level. Each writer makes a
fixed number of transactions, so there is nothing to wait for and nothing to time.

This module knows neither SQLAlchemy nor Django.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

WRITERS: Final = 16
READERS: Final = 2
SWEEPERS: Final = 2
CONNECTIONS: Final = WRITERS + READERS + SWEEPERS

HOUR: Final = 3_600
CARTS: Final = 4
"""Hot ones. Each writer has one more, which ends and begins again."""

OWN: Final = 100
"""The key of the first writer's own."""

KEYS: Final = (*range(CARTS), *range(OWN, OWN + WRITERS))
"""The keys of all of these."""


class Writer(Random):
    """Which of the writers it is, and what it chooses."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.own = OWN + number


class App:
    """What the load is put on; `policy` is whether its rows expire."""

    EXPIRED: type[Exception]
    """The error of a write to a row that has expired."""

    FAILED: type[Exception]
    """The database's errors."""

    def __init__(self, *, policy: bool) -> None:
        self.policy = policy

    @property
    def transactions(self) -> list[Callable[[Any, Writer], None]]:
        """What writers do, one at a time, with what `transaction` returns."""
        raise NotImplementedError

    def transaction(self) -> AbstractContextManager[Any]:
        """A transaction."""
        raise NotImplementedError

    def read(self, session: Any) -> None:
        """What readers do."""
        raise NotImplementedError

    def sweep(self) -> None:
        """What sweepers do, again and again."""
        raise NotImplementedError

    def leave(self) -> None:
        """Give up what a thread has of its own."""


@dataclass
class Load:
    """The load on an application, and the errors that it gets of the database.

    Attributes:
        app: The application.
        transactions: How many each writer makes.
        errors: How many there were of each kind, by what failed and the error's first words.
        done: How many transactions went through.
    """

    app: App
    transactions: int
    errors: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> Load:
        """Return when all writers are done."""
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            beside = [pool.submit(self._read) for _ in range(READERS)]
            if self.app.policy:
                beside += [pool.submit(self._sweep) for _ in range(SWEEPERS)]
            try:
                list(pool.map(self._write, range(WRITERS)))
            finally:
                self._over.set()
            for other in beside:
                other.result()
        return self

    def _write(self, number: int) -> None:
        writer = Writer(number)
        for _ in range(self.transactions):
            transaction = writer.choice(self.app.transactions)
            self._attempt(transaction.__name__, lambda s, do=transaction: do(s, writer))
        self.app.leave()

    def _read(self) -> None:
        while not self._over.is_set():
            self._attempt("read", self.app.read)
        self.app.leave()

    def _sweep(self) -> None:
        while not self._over.is_set():
            self.app.sweep()
        self.app.leave()

    def _attempt(self, name: str, do: Callable[[Any], None]) -> None:
        try:
            with self.app.transaction() as session:
                do(session)
            self.done[name] += 1
        except self.app.EXPIRED:
            self.done[f"{name} of an expired row"] += 1
        except self.app.FAILED as error:
            self.errors[f"{name}: {str(getattr(error, 'orig', error))[:70]}"] += 1
