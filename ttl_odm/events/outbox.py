"""What workers and readers need of a database's outbox: `Outbox`, `AsyncOutbox`.

This module must not know any database.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime, timedelta

    from ttl_odm.events.expiry import Expiry

EVERY_TABLE: Final = "*"
"""Instead of a table's name: the events of all tables."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event that is due for a consumer.

    Attributes:
        event: The event, with the number that the delivery will have.
        consumer: The consumer.
        due_at: Since when it is due (aware, UTC).
    """

    event: Expiry
    consumer: str
    due_at: datetime


class Outbox(Protocol):
    """The events of a database, and which of them consumers haven't dealt with."""

    def subscribe(self, consumer: str, tables: Collection[str]) -> None:
        """Let a consumer have the events of some tables, or of `EVERY_TABLE`.

        It gets those that are kept already, too. A second call for the same tables changes nothing.
        """
        ...

    def due(self, consumer: str, limit: int) -> Sequence[Delivery]:
        """Return events that are due for a consumer, those that have been for longest first."""
        ...

    def claim(self, delivery: Delivery, hidden: timedelta) -> bool:
        """Take an event that is due, so that nobody else does; False if somebody else has.

        If it is neither done nor failed by then, it is due again when `hidden` is over.
        """
        ...

    def done(self, delivery: Delivery) -> None:
        """Note that a consumer has dealt with an event."""
        ...

    def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """Note that it hasn't, and when the event is due again; None if it is dead."""
        ...


class AsyncOutbox(Protocol):
    """An `Outbox` whose methods are coroutines."""

    async def subscribe(self, consumer: str, tables: Collection[str]) -> None:
        """As in `Outbox`."""
        ...

    async def due(self, consumer: str, limit: int) -> Sequence[Delivery]:
        """As in `Outbox`."""
        ...

    async def claim(self, delivery: Delivery, hidden: timedelta) -> bool:
        """As in `Outbox`."""
        ...

    async def done(self, delivery: Delivery) -> None:
        """As in `Outbox`."""
        ...

    async def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """As in `Outbox`."""
        ...
