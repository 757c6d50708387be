"""`ExpiredEvents`: the events of a test, recorded and delivered when its clock moves.

The pytest fixture ``expired_events`` of `ttl_odm.testing.plugin` is one. This module must know
neither pytest nor any database.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Final, overload

from ttl_odm.errors import TTLError
from ttl_odm.events.handlers import Handler, adapter_of
from ttl_odm.events.outbox import Subscription
from ttl_odm.events.worker import AsyncEventWorker, EventWorker, Worker

if TYPE_CHECKING:
    from datetime import timedelta

    from typing_extensions import Self

    from ttl_odm.events.expiry import Expiry
    from ttl_odm.events.outbox import Delivery
    from ttl_odm.testing.clock import TTLClock

CONSUMER: Final = "ttl_odm.testing"
"""The name of the test's consumer, beside those of the application's handlers."""


class _CollectorMixin(Worker):
    """Makes a worker collect the events, and the errors of handlers."""

    @cached_property
    def events(self) -> list[Expiry]:
        """The events that were delivered since the last look of the test."""
        return []

    @cached_property
    def errors(self) -> list[Exception]:
        """The errors of handlers since then."""
        return []

    def _handlers(self) -> list[Handler]:
        collect, tables = self.events.append, self._source.tables
        collectors = [Handler(CONSUMER, Subscription(table), collect) for table in tables]
        return super()._handlers() + collectors

    def _failed(
        self, handler: Handler, delivery: Delivery, error: Exception
    ) -> tuple[str, timedelta | None]:
        self.errors.append(error)
        return super()._failed(handler, delivery, error)


class _Collector(_CollectorMixin, EventWorker): ...


class _AsyncCollector(_CollectorMixin, AsyncEventWorker): ...


class ExpiredEvents(Sequence["Expiry"]):
    """The events of rows that have expired in a test; as a fixture, ``expired_events``.

    A test names its database. Then each move of its clock does what an `EventWorker` would have
    done by then: it sweeps, records events, and calls the application's handlers::

        def test_a_hold_ends(engine, ttl_clock, expired_events):
            expired_events.watch(engine, Base)
            ...
            ttl_clock.advance(3600)
            assert [event.key for event in expired_events] == [("A1",)]

    That move raises a handler's exception, once all other events are delivered. The event comes
    again when the clock has moved by a second, as in production.

    It compares equal to a list. Events of one move are in the order in which their rows expired.
    """

    def __init__(self, clock: TTLClock) -> None:
        """Follow a clock, within a context.

        Args:
            clock: The clock, which is in use.
        """
        self._clock = clock
        self._events: list[Expiry] = []
        self._workers: list[_Collector] = []
        self._async_workers: list[_AsyncCollector] = []
        self._is_behind = False
        self._context = ExitStack()

    def watch(self, engine: object, targets: object = None) -> Self:
        """Have each `advance` and `freeze` of the clock record and deliver events, from now on.

        With an asynchronous engine ``await expired_events.async_deliver()`` after a move.

        Args:
            engine: The engine of an `EventWorker`, or an `AsyncEventWorker`.
            targets: The targets of such a worker; None for all models with events.

        Raises:
            TTLConfigurationError: There is no model with events, or the engine can't have events.
        """
        if adapter_of(engine).source_of(engine, targets).is_async:
            self._async_workers.append(_AsyncCollector(engine, targets))
        else:
            self._workers.append(_Collector(engine, targets))
        return self

    def deliver(self) -> None:
        """Record and deliver the events that are due, as a move of the clock does.

        Raises:
            Exception: The error of the first handler that failed.
        """
        errors: list[Exception] = []
        for worker in self._workers:
            while worker.run_once().total:
                pass  # a worker takes some events at once, and handlers may make other rows expire
            errors += self._take(worker)
        if errors:
            raise errors[0]

    async def async_deliver(self) -> None:
        """Record and deliver the events that are due, for asynchronous engines.

        Raises:
            Exception: The error of the first handler that failed.
        """
        self._is_behind = False
        errors: list[Exception] = []
        for worker in self._async_workers:
            while (await worker.run_once()).total:
                pass  # as above
            errors += self._take(worker)
        if errors:
            raise errors[0]

    def _take(self, worker: _CollectorMixin) -> list[Exception]:
        """Take over the events that a worker has collected, and return the errors."""
        order = sorted(worker.events, key=lambda event: (event.expires_at, event.table, event.id))
        errors = [*worker.errors]
        self._events += order
        worker.events.clear()
        worker.errors.clear()
        return errors

    def _current(self) -> list[Expiry]:
        if self._is_behind:
            raise TTLError(
                "The clock has moved since the events of an asynchronous engine were delivered: "
                "await expired_events.async_deliver() first."
            )
        return self._events

    def __enter__(self) -> Self:
        def moved() -> None:
            self._is_behind = bool(self._async_workers)
            self.deliver()

        self._context.enter_context(self._clock.after_moves(moved))
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def clear(self) -> None:
        """Remove the events so far."""
        self._current().clear()

    @overload
    def __getitem__(self, index: int) -> Expiry: ...

    @overload
    def __getitem__(self, index: slice) -> list[Expiry]: ...

    def __getitem__(self, index: int | slice) -> Expiry | list[Expiry]:
        """Return one event, or a slice of them."""
        return self._current()[index]

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self._current())

    def __eq__(self, other: object) -> bool:
        """Return whether a list, or another instance, has the same events."""
        if not isinstance(other, (list, ExpiredEvents)):
            return NotImplemented
        return self._current() == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the events as a list."""
        return repr(self._events)
