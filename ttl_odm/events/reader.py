"""Readers of the outbox: `events`, a loop in place of a worker; and the states of consumers.

This module must not know any database.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.expiry import EXPIRED, EXPIRING
from ttl_odm.events.handlers import adapter_of, check_name
from ttl_odm.events.intervals import Resubscription
from ttl_odm.events.outbox import EVERY_TABLE, Subscription
from ttl_odm.events.worker import HIDDEN, POLL, checked_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterator, Sequence

    from ttl_odm.events.expiry import Expiry, Kind
    from ttl_odm.events.outbox import (
        AsyncOutbox,
        AsyncWarnings,
        ConsumerState,
        Outbox,
        Warnings,
    )

_KINDS: Final = (EXPIRED, EXPIRING)
_EXPIRED: Final[tuple[Kind, ...]] = (EXPIRED,)


class Events:
    """An iterable of the events of a consumer, which `events` returns."""

    def __init__(  # noqa: PLR0913 (see `events`)
        self,
        engine: object,
        targets: object,
        consumer: str,
        *,
        kinds: Collection[Kind],
        follow: bool,
        poll: float,
        hidden: float,
    ) -> None:
        """See `events`."""
        check_name(consumer)
        for kind in kinds:
            if kind not in _KINDS:
                raise TTLConfigurationError(
                    f"kinds = {kinds!r}: give some of {', '.join(map(repr, _KINDS))}."
                )
        self._source = adapter_of(engine).read_from(engine, targets)
        tables = [EVERY_TABLE] if targets is None else self._source.tables
        self._subscriptions = [Subscription(table, kind) for table in tables for kind in kinds]
        self._consumer = consumer
        self._follow = follow
        self._poll = checked_seconds("poll", poll)
        self._hidden = timedelta(seconds=checked_seconds("hidden", hidden))

    def __iter__(self) -> Iterator[Expiry]:
        """Iterate over the events that are due."""
        if self._source.is_async:
            raise TTLConfigurationError("The engine is asynchronous: write 'async for'.")
        outbox: Outbox = self._source.outbox()
        warnings: Warnings | None = self._source.warnings()
        resubscription = Resubscription()
        while True:
            if resubscription.is_due:
                resubscription.begin()
                is_unsettled = outbox.subscribe(self._consumer, self._subscriptions)
                resubscription.end(is_unsettled=is_unsettled)
            # One at a time, since the caller may end the loop after any event.
            taken = outbox.take(self._consumer, 1, self._hidden)
            for delivery in taken:
                if warnings is None or warnings.hold(delivery.event):
                    yield delivery.event
                outbox.done([delivery])
            if not taken:
                if not self._follow:
                    return
                time.sleep(self._poll)

    async def __aiter__(self) -> AsyncIterator[Expiry]:
        """Iterate over the events that are due."""
        if not self._source.is_async:
            raise TTLConfigurationError("The engine isn't asynchronous: write 'for'.")
        outbox: AsyncOutbox = self._source.outbox()
        warnings: AsyncWarnings | None = self._source.warnings()
        resubscription = Resubscription()
        while True:
            if resubscription.is_due:
                resubscription.begin()
                is_unsettled = await outbox.subscribe(self._consumer, self._subscriptions)
                resubscription.end(is_unsettled=is_unsettled)
            taken = await outbox.take(self._consumer, 1, self._hidden)
            for delivery in taken:
                if warnings is None or await warnings.hold(delivery.event):
                    yield delivery.event
                await outbox.done([delivery])
            if not taken:
                if not self._follow:
                    return
                await asyncio.sleep(self._poll)


def events(  # noqa: PLR0913 (they are independent of one another)
    engine: object,
    targets: object = None,
    *,
    consumer: str,
    kinds: Collection[Kind] = _EXPIRED,
    follow: bool = False,
    poll: float = POLL,
    hidden: float = HIDDEN,
) -> Events:
    """Return the events that a consumer hasn't dealt with yet, for a loop.

    For example::

        for event in events(engine, consumer="mailer"):
            send(event)

    An event is dealt with when the loop asks for the next one. If the loop raises an exception or
    ends before that, the event comes again once `hidden` is over. Several processes may read for
    one consumer: each event goes to one of them. A new consumer begins with the oldest event that
    is kept. This function records no events: an `EventWorker` does, or any sweeper.

    Args:
        engine: An Engine; or for ``async for`` an AsyncEngine, or a database of PyMongo's
            asynchronous driver or Motor.
        targets: The models whose events to read, as a `Sweeper` takes them; None for the events of
            all tables.
        consumer: The name of the consumer, which must stay the same.
        kinds: The kinds of events to read: ``"expired"``, ``"expiring"``, or both.
        follow: Whether to wait for further events at the end, for ever.
        poll: Seconds between two looks for further events.
        hidden: Seconds after which an event that wasn't dealt with is delivered again.

    Raises:
        TTLConfigurationError: The name, a kind, a number of seconds or the engine isn't valid.
    """
    return Events(engine, targets, consumer, kinds=kinds, follow=follow, poll=poll, hidden=hidden)


def consumer_states(engine: object, targets: object = None) -> Sequence[ConsumerState]:
    """Return the consumers of a database by name, with the numbers of events not dealt with.

    It scans the deliveries that are kept: call it when a monitoring system asks, not for each
    event.

    Args:
        engine: An Engine.
        targets: Models whose events are in the same tables; None for all models with events.

    Raises:
        TTLConfigurationError: The engine isn't synchronous; or the tables of events are missing.
    """
    source = adapter_of(engine).read_from(engine, targets)
    if source.is_async:
        raise TTLConfigurationError(
            "The engine is asynchronous: await async_consumer_states(engine)."
        )
    outbox: Outbox = source.outbox()
    return outbox.states()


async def async_consumer_states(engine: object, targets: object = None) -> Sequence[ConsumerState]:
    """Return the consumers of a database; see `consumer_states`, with an AsyncEngine."""
    source = adapter_of(engine).read_from(engine, targets)
    if not source.is_async:
        raise TTLConfigurationError("The engine isn't asynchronous: call consumer_states(engine).")
    outbox: AsyncOutbox = source.outbox()
    return await outbox.states()
