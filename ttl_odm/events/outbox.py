"""The interfaces of an adapter: `EventAdapter`, `EventSource`, `Outbox`, `Warnings`.

An adapter implements the latter two once for synchronous and once for asynchronous engines; the
methods of `AsyncOutbox` and `AsyncWarnings` are coroutine functions.

This module must not know any database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from ttl_odm.events.expiry import EXPIRED

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime, timedelta

    from ttl_odm.events.expiry import Expiry, Kind

EVERY_TABLE: Final = "*"
"""In place of a table's name: all tables."""

LONGEST_ERROR: Final = 2000
"""The most characters of a handler's error that are kept."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event that a consumer has taken.

    Attributes:
        event: The event, with the number of the delivery.
        consumer: The consumer.
    """

    event: Expiry
    consumer: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which events a consumer gets.

    Attributes:
        table: The table, or `EVERY_TABLE`.
        kind: The kind of events.
        before: For warnings: how long before the end they are given; None for all warnings.
    """

    table: str
    kind: Kind = EXPIRED
    before: timedelta | None = None


@dataclass(frozen=True, slots=True)
class OpenDelivery:
    """An event that a consumer hasn't dealt with, as people see it.

    Attributes:
        event: The event, with the number of its deliveries so far.
        consumer: The consumer.
        due_at: When it is delivered next (aware, UTC); None if it is dead.
        error: The error of the last delivery; None if it hasn't failed.
    """

    event: Expiry
    consumer: str
    due_at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event, and when it was recorded (aware, UTC)."""

    event: Expiry
    at: datetime


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """A consumer, and how many events it hasn't dealt with.

    Attributes:
        consumer: Its name.
        subscriptions: Which events it gets.
        pending: How many events will be delivered to it.
        retried: How many of the pending events were delivered before.
        dead: How many events won't be delivered any more, since they have failed too often.
        lag: The seconds since the oldest pending event was recorded, by the database's clock; 0.0
            if there is none.
    """

    consumer: str
    subscriptions: tuple[Subscription, ...]
    pending: int
    retried: int
    dead: int
    lag: float


class Outbox(Protocol):
    """The events of a database, and which of them consumers haven't dealt with."""

    def subscribe(self, consumer: str, subscriptions: Collection[Subscription]) -> bool:
        """Subscribe a consumer to events.

        It also gets the events that are already kept. A second call changes the `before` of a
        subscription to the same table and kind, and hands over the events that were committed late.

        Returns:
            Whether events may still be committed late, so that it has to be called again; see
            `ttl_odm.events.intervals`.
        """
        ...

    def take(self, consumer: str, limit: int, hidden: timedelta) -> Sequence[Delivery]:
        """Take events that are due for a consumer, so that no other worker takes them.

        The events that have been due for longest come first. An event that is neither done nor
        failed is due again when `hidden` is over. If another worker is in the way, none is taken.
        """
        ...

    def done(self, deliveries: Collection[Delivery]) -> None:
        """Note that a consumer has dealt with events, except for those that were taken again."""
        ...

    def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """Note that a delivery has failed, and how long it rests; None if it is dead."""
        ...

    def states(self) -> Sequence[ConsumerState]:
        """Return all consumers by name, and how many events they haven't dealt with."""
        ...

    def recorded(self, limit: int, *, since: datetime | None = None) -> Sequence[Recorded]:
        """Return the events that were recorded last, the oldest of them first.

        With `since`, only events that were recorded at that instant (aware) or later.
        """
        ...

    def opened(
        self, limit: int, *, consumer: str | None = None, dead: bool | None = None
    ) -> Sequence[OpenDelivery]:
        """Return the events that consumers haven't dealt with, the oldest first.

        Args:
            limit: The most that are returned.
            consumer: Only those of this consumer.
            dead: Only dead ones, or only those that aren't; None for both.
        """
        ...

    def retry(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """Have events delivered at once; return the number of their deliveries.

        Args:
            consumer: To this consumer only; None for each that hasn't dealt with them.
            events: Their ids; None for all dead events.
        """
        ...

    def skip(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """Have events not delivered any more; arguments and result as for `retry`."""
        ...

    def forget(self, consumer: str) -> int:
        """Remove a consumer whose handler is gone; return how many events it hadn't dealt with.

        It comes back as soon as a process that has its handler starts again. It takes several
        transactions, since the events may be many.
        """
        ...


class AsyncOutbox(Protocol):
    """An `Outbox` whose methods are coroutine functions."""

    async def subscribe(self, consumer: str, subscriptions: Collection[Subscription]) -> bool:
        """See `Outbox`."""
        ...

    async def take(self, consumer: str, limit: int, hidden: timedelta) -> Sequence[Delivery]:
        """See `Outbox`."""
        ...

    async def done(self, deliveries: Collection[Delivery]) -> None:
        """See `Outbox`."""
        ...

    async def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """See `Outbox`."""
        ...

    async def states(self) -> Sequence[ConsumerState]:
        """See `Outbox`."""
        ...

    async def recorded(self, limit: int, *, since: datetime | None = None) -> Sequence[Recorded]:
        """See `Outbox`."""
        ...

    async def opened(
        self, limit: int, *, consumer: str | None = None, dead: bool | None = None
    ) -> Sequence[OpenDelivery]:
        """See `Outbox`."""
        ...

    async def retry(
        self, consumer: str | None = None, events: Collection[str] | None = None
    ) -> int:
        """See `Outbox`."""
        ...

    async def skip(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """See `Outbox`."""
        ...

    async def forget(self, consumer: str) -> int:
        """See `Outbox`."""
        ...


class Warnings(Protocol):
    """Events of rows that are about to expire, for all tables of a worker that have such events."""

    def record(self) -> int:
        """Record the warnings that are due and weren't recorded yet, and return their number.

        The worker that sweeps calls it twice a second. If two workers call it at the same time,
        each warning is recorded once.
        """
        ...

    def hold(self, event: Expiry) -> bool:
        """Return whether an event still holds.

        A warning doesn't hold if its row is gone, or expires at another instant. Any other event
        holds, and so does one whose table isn't known here.
        """
        ...


class AsyncWarnings(Protocol):
    """`Warnings` whose methods are coroutine functions."""

    async def record(self) -> int:
        """See `Warnings`."""
        ...

    async def hold(self, event: Expiry) -> bool:
        """See `Warnings`."""
        ...


class EventAdapter(Protocol):
    """A package of `ttl_odm.events` for models, and engines, of one library."""

    def record(self, target: object, include: Sequence[str]) -> str:
        """Record the events of a model, and return its table; see `ttl_odm.events.record_expired`.

        Raises:
            TTLConfigurationError: The target can't have events, or lacks a column of `include`.
        """
        ...

    def warn(self, target: object, before: timedelta, include: Sequence[str]) -> str:
        """Record warnings of a model, and return its table; raises as `record` does."""
        ...

    def source_of(self, engine: Any, targets: object, /) -> EventSource:
        """Return the source of a worker's events.

        Raises:
            TTLConfigurationError: None of the targets has events, or the engine can't have them.
        """
        ...

    def read_from(self, engine: Any, targets: object, /) -> EventSource:
        """Return the source of a reader's events; with targets, raises as `source_of` does."""
        ...


class EventSource(Protocol):
    """The events of a worker, or of a reader."""

    @property
    def engine(self) -> Any:
        """The engine, connection or database, as a `Sweeper` takes it."""
        ...

    @property
    def targets(self) -> Sequence[object]:
        """The tables that a worker sweeps: those whose events are recorded, and the outbox."""
        ...

    @property
    def tables(self) -> Sequence[str]:
        """The names of the tables whose events, or warnings, are recorded."""
        ...

    @property
    def is_async(self) -> bool:
        """Whether the outbox and the warnings are asynchronous."""
        ...

    def outbox(self) -> Any:
        """Return an `Outbox` or an `AsyncOutbox`."""
        ...

    def warnings(self) -> Any:
        """Return `Warnings` or `AsyncWarnings`; None if no table has warnings."""
        ...

    def leave_thread(self) -> None:
        """Close the calling thread's own connection, if it has one.

        A synchronous worker calls it at the end of its sweeping thread.
        """
        ...
