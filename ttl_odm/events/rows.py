"""Events, consumers and deliveries as the tables of an outbox keep them.

A delivery waits until its ``next_at``. If that is NULL and there is an ``error``, it is *dead*. If
both are NULL, it is *done* or was skipped, and is kept only so that its event isn't handed to the
consumer again. Most done deliveries are deleted at once: see `ttl_odm.events.intervals`.

The adapters for SQL make the same tables, so that services of both can share them. This module must
not know any database.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ttl_odm.events.expiry import Expiry
from ttl_odm.events.outbox import ConsumerState, Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

EVENTS: Final = "ttl_odm_events"
CONSUMERS: Final = "ttl_odm_consumers"
DELIVERIES: Final = "ttl_odm_deliveries"

RETENTION: Final = timedelta(days=7)
"""How long an event is kept after its recording, whether it was delivered or not."""


def kept_until(event: Expiry, now: datetime, retention: timedelta = RETENTION) -> datetime:
    """Return until when to keep an event that is recorded now.

    A warning is kept at least until its row expires, or it would be recorded again.
    """
    return max(now + retention, event.expires_at)


def event_of(row: Any) -> Expiry:
    """Return the event of a row of the outbox, whose attributes are the columns."""
    return Expiry(
        row.id,
        row.table_name,
        tuple(json.loads(row.row_key)),
        json.loads(row.row_values),
        row.last_modified,
        row.expires_at,
        row.kind,
        before_of(row.before_seconds),
    )


def row_of(event: Expiry, now: datetime, retention: timedelta) -> dict[str, Any]:
    """Return the columns of the row of an event that is recorded now."""
    return {
        "id": event.id,
        "table_name": event.table,
        "kind": event.kind,
        "before_seconds": seconds_of(event.before),
        "row_key": json.dumps(event.key),
        "row_values": json.dumps(event.row),
        "last_modified": event.last_modified,
        "expires_at": event.expires_at,
        "recorded_at": now,
        "kept_until": kept_until(event, now, retention),
    }


def subscription_of(row: Any) -> Subscription:
    """Return the subscription of a consumer's row, whose attributes are the columns."""
    return Subscription(row.table_name, row.kind, before_of(row.before_seconds))


def seconds_of(before: timedelta | None) -> int | None:
    """Return the column's value for the time before the end at which a warning is given."""
    return None if before is None else int(before.total_seconds())


def before_of(seconds: int | None) -> timedelta | None:
    """Return the time before the end at which a warning is given, from the column's value."""
    return None if seconds is None else timedelta(seconds=seconds)


class Counts(NamedTuple):
    """How many deliveries a consumer hasn't dealt with.

    Attributes:
        kept: The number of all deliveries.
        pending: The number of deliveries that aren't dead.
        retried: How many of the pending ones were delivered before.
        oldest: When the oldest pending one was recorded; None if there is none.
    """

    kept: int = 0
    pending: int = 0
    retried: int = 0
    oldest: datetime | None = None


def states_of(
    subscribed: Iterable[tuple[str, Subscription]], counted: Mapping[str, Counts], now: datetime
) -> list[ConsumerState]:
    """Return all consumers by name, given their subscriptions and the counts of deliveries."""
    by_consumer: dict[str, list[Subscription]] = {consumer: [] for consumer in counted}
    for consumer, subscription in subscribed:
        by_consumer.setdefault(consumer, []).append(subscription)
    states = []
    for consumer, subscriptions in sorted(by_consumer.items()):
        counts = counted.get(consumer, Counts())
        lag = 0.0 if counts.oldest is None else max((now - counts.oldest).total_seconds(), 0.0)
        states.append(
            ConsumerState(
                consumer,
                tuple(subscriptions),
                pending=counts.pending,
                retried=counts.retried,
                dead=counts.kept - counts.pending,
                lag=lag,
            )
        )
    return states
