"""`ExpiredEvents`: the events of a test, recorded and delivered when its clock moves.

It is the pytest fixture ``expired_events``, in `ttl_odm.testing.plugin`; this module knows neither
pytest nor any database.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, overload

from ttl_odm.errors import TTLError
from ttl_odm.events.handlers import Handler, adapter_of
from ttl_odm.events.outbox import Subscription
from ttl_odm.events.worker import AsyncEventWorker, EventWorker, Worker

if TYPE_CHECKING:
    from datetime import timedelta

    from typing_extensions import Self

    from ttl_odm.events.expiry import Expiry
    from ttl_odm.events.outbox import Delivery, EventSource
    from ttl_odm.testing.clock import TTLClock

CONSUMER: Final = "ttl_odm.testing"
"""The consumer under whose name a test gets events, besides the application's handlers."""


class _Collecting(Worker):
    """What a worker in a test does besides: it keeps the events, and the errors of handlers."""

    @cached_property
    def found(self) -> list[Expiry]:
        """The events that weren't taken from here yet."""
        return []

    @cached_property
    def errors(self) -> list[Exception]:
        """What handlers have raised on them."""
        return []

    def _handlers(self) -> list[Handler]:
        wanted = [Subscription(table) for table in self._source.tables]
        return super()._handlers() + [Handler(CONSUMER, one, self.found.append) for one in wanted]

    def _failed(
        self, handler: Handler, delivery: Delivery, error: Exception
    ) -> tuple[str, timedelta | None]:
        self.errors.append(error)
        return super()._failed(handler, delivery, error)


class _Collector(_Collecting, EventWorker): ...


class _AsyncCollector(_Collecting, AsyncEventWorker): ...


class ExpiredEvents(Sequence["Expiry"]):
    """The events of rows that have expired in a test; as a fixture, ``expired_events``.

    A test says which database it is about. Then each move of its clock does what an `EventWorker`
    would have done by then: it sweeps, records events, and calls the application's handlers::

        def test_a_hold_ends(engine, ttl_clock, expired_events):
            expired_events.watch(engine, Base)
            ...
            ttl_clock.advance(3600)
            assert [event.key for event in expired_events] == [("A1",)]

    An exception of a handler is raised by that move, once all else is delivered. The event comes
    again when the clock has moved by a second, as in production.

    It compares equal to a list. Events of one move are in the order in which their rows expired.
    """

    def __init__(self, clock: TTLClock) -> None:
        """Follow a clock, within a context.

        Args:
            clock: The clock, which is in use.
        """
        self._clock = clock
        self._found: list[Expiry] = []
        self._workers: list[_Collector] = []
        self._async_workers: list[_AsyncCollector] = []
        self._is_behind = False
        self._context = ExitStack()

    def watch(self, engine: Any, targets: Any = None) -> Self:
        """Let each `advance` and `freeze` of the clock record and deliver events, from now on.

        With an asynchronous engine ``await expired_events.async_deliver()`` after a move.

        Args:
            engine: As for an `EventWorker`, or an `AsyncEventWorker`.
            targets: Likewise; None for all models with events.

        Raises:
            TTLConfigurationError: There is no model with events, or the engine doesn't fit.
        """
        source: EventSource = adapter_of(engine).source_of(engine, targets)
        if source.is_async:
            self._async_workers.append(_AsyncCollector(engine, targets))
        else:
            self._workers.append(_Collector(engine, targets))
        return self

    def deliver(self) -> None:
        """Record and deliver what is due, as a move of the clock does.

        Raises:
            Exception: What the first handler that failed has raised.
        """
        errors: list[Exception] = []
        for worker in self._workers:
            while worker.run_once().total:
                pass  # a worker takes so many at once, and handlers may let other rows expire
            errors += self._take(worker)
        if errors:
            raise errors[0]

    async def async_deliver(self) -> None:
        """As `deliver`, for asynchronous engines.

        Raises:
            Exception: As for `deliver`.
        """
        self._is_behind = False
        errors: list[Exception] = []
        for worker in self._async_workers:
            while (await worker.run_once()).total:
                pass  # as above
            errors += self._take(worker)
        if errors:
            raise errors[0]

    def _take(self, worker: _Collecting) -> list[Exception]:
        """Take over the events that a worker has met, and return the errors."""
        order = sorted(worker.found, key=lambda event: (event.expires_at, event.table, event.id))
        errors = [*worker.errors]
        self._found += order
        worker.found.clear()
        worker.errors.clear()
        return errors

    def _moved(self) -> None:
        self._is_behind = bool(self._async_workers)
        self.deliver()

    def _seen(self) -> list[Expiry]:
        if self._is_behind:
            raise TTLError(
                "The clock has moved since the events of an asynchronous engine were delivered: "
                "await expired_events.async_deliver() first."
            )
        return self._found

    def __enter__(self) -> Self:
        self._context.enter_context(self._clock.after_moves(self._moved))
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def clear(self) -> None:
        """Forget the events so far."""
        self._seen().clear()

    @overload
    def __getitem__(self, index: int) -> Expiry: ...

    @overload
    def __getitem__(self, index: slice) -> list[Expiry]: ...

    def __getitem__(self, index: int | slice) -> Expiry | list[Expiry]:
        """One event, or several."""
        return self._seen()[index]

    def __len__(self) -> int:
        """How many there are."""
        return len(self._seen())

    def __eq__(self, other: object) -> bool:
        """Whether a list, or another one, has the same events."""
        if not isinstance(other, (list, ExpiredEvents)):
            return NotImplemented
        return self._seen() == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """The events."""
        return repr(self._found)
