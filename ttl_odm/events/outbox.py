"""What workers and readers need of a database: `EventSource`, `Outbox`, `Warnings`.

An adapter implements each of them once for synchronous and once for asynchronous engines; the
methods of `AsyncOutbox` and `AsyncWarnings` are coroutines.

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
"""Instead of a table's name: the events of all tables."""

LONGEST_ERROR: Final = 2000
"""Characters of a handler's error that are kept."""


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
        table: Those of this table, or of `EVERY_TABLE`.
        kind: Those of this kind.
        before: For warnings: only those that are given so long before the end; None for all.
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
        error: What the last delivery has failed with; None if none has.
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
    """A consumer, and what it hasn't dealt with.

    Attributes:
        consumer: Its name.
        subscriptions: What it gets.
        pending: How many events will be delivered to it.
        retried: How many of these have been delivered before.
        dead: How many won't, since they have failed too often.
        lag: For how many seconds the oldest event that will be delivered has been recorded, by the
            database's clock; 0.0 if there is none.
    """

    consumer: str
    subscriptions: tuple[Subscription, ...]
    pending: int
    retried: int
    dead: int
    lag: float


class Outbox(Protocol):
    """The events of a database, and which of them consumers haven't dealt with."""

    def subscribe(self, consumer: str, wanted: Collection[Subscription]) -> bool:
        """Let a consumer have some events.

        It gets those that are kept already, too. A second call changes the `before` of a
        subscription to the same table and kind, and hands over what was committed late.

        Returns:
            Whether events may still be committed late, so that it has to be called again; see
            `ttl_odm.events.newcomers`.
        """
        ...

    def take(self, consumer: str, limit: int, hidden: timedelta) -> Sequence[Delivery]:
        """Take events that are due for a consumer, so that nobody else does.

        Those that have been due for longest come first. An event that is neither done nor failed by
        then is due again when `hidden` is over. None are taken if somebody else is in the way.
        """
        ...

    def done(self, deliveries: Collection[Delivery]) -> None:
        """Note that a consumer has dealt with events; those that were taken again are left."""
        ...

    def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """Note that it hasn't, and when the event is due again; None if it is dead."""
        ...

    def states(self) -> Sequence[ConsumerState]:
        """Return all consumers by name, and what they haven't dealt with."""
        ...

    def recorded(self, limit: int, *, since: datetime | None = None) -> Sequence[Recorded]:
        """Return the events that were recorded last, of these the oldest first.

        With `since` only those that were recorded at that instant (aware) or later.
        """
        ...

    def opened(
        self, limit: int, *, consumer: str | None = None, dead: bool | None = None
    ) -> Sequence[OpenDelivery]:
        """Return what consumers haven't dealt with, the events that were recorded first first.

        Args:
            limit: How many there may be.
            consumer: Only what this one hasn't.
            dead: Only what is dead, or only what isn't.
        """
        ...

    def retry(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """Let events be delivered at once that a consumer, or any, hasn't dealt with.

        Without the ids of events these are all dead ones. Returns how many there were.
        """
        ...

    def skip(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """Let nobody have events that a consumer, or any, hasn't dealt with; see `retry`."""
        ...

    def forget(self, consumer: str) -> int:
        """Remove a consumer whose handler is gone, and return how many events it hadn't dealt with.

        It comes back as soon as a process that has its handler starts again. Not in one
        transaction, since these may be many.
        """
        ...


class AsyncOutbox(Protocol):
    """An `Outbox` whose methods are coroutines."""

    async def subscribe(self, consumer: str, wanted: Collection[Subscription]) -> bool:
        """As in `Outbox`."""
        ...

    async def take(self, consumer: str, limit: int, hidden: timedelta) -> Sequence[Delivery]:
        """As in `Outbox`."""
        ...

    async def done(self, deliveries: Collection[Delivery]) -> None:
        """As in `Outbox`."""
        ...

    async def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """As in `Outbox`."""
        ...

    async def states(self) -> Sequence[ConsumerState]:
        """As in `Outbox`."""
        ...

    async def recorded(self, limit: int, *, since: datetime | None = None) -> Sequence[Recorded]:
        """As in `Outbox`."""
        ...

    async def opened(
        self, limit: int, *, consumer: str | None = None, dead: bool | None = None
    ) -> Sequence[OpenDelivery]:
        """As in `Outbox`."""
        ...

    async def retry(
        self, consumer: str | None = None, events: Collection[str] | None = None
    ) -> int:
        """As in `Outbox`."""
        ...

    async def skip(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """As in `Outbox`."""
        ...

    async def forget(self, consumer: str) -> int:
        """As in `Outbox`."""
        ...


class Warnings(Protocol):
    """Events of rows that are about to expire, for all tables of a worker that have any."""

    def record(self) -> int:
        """Record the warnings that are due and weren't recorded yet, and return their number.

        It is called twice a second, by the worker that sweeps. If two call it at the same time,
        each warning is recorded once.
        """
        ...

    def hold(self, event: Expiry) -> bool:
        """Whether an event is still worth telling.

        False for a warning whose row is gone, or expires at another instant. True for every event
        that isn't a warning, or whose table isn't known here.
        """
        ...


class AsyncWarnings(Protocol):
    """`Warnings` whose methods are coroutines."""

    async def record(self) -> int:
        """As in `Warnings`."""
        ...

    async def hold(self, event: Expiry) -> bool:
        """As in `Warnings`."""
        ...


class EventSource(Protocol):
    """Where the events of a worker, or of a reader, come from.

    Attributes:
        engine: What a `Sweeper` takes to connect.
        targets: What a worker sweeps: the tables whose events are recorded, and the outbox.
        tables: The names of the tables whose events, or warnings, are recorded.
        is_async: Whether the outbox and the warnings are asynchronous.
    """

    engine: Any
    targets: Sequence[Any]
    tables: Sequence[str]
    is_async: bool

    def outbox(self) -> Any:
        """Return an `Outbox` or an `AsyncOutbox`."""
        ...

    def warnings(self) -> Any:
        """Return `Warnings` or `AsyncWarnings`; None if no table has any."""
        ...

    def leave_thread(self) -> None:
        """Close the connection that the calling thread has to itself, if it has one.

        A synchronous worker calls it at the end of its sweeping thread.
        """
        ...
