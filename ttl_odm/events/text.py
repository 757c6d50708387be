"""The texts of commands about the outbox: tables of consumers and events, and sentences.

This module must not know a terminal, nor any database.
"""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Final

from ttl_odm.events.expiry import EXPIRING, as_json
from ttl_odm.events.outbox import EVERY_TABLE
from ttl_odm.sweeper.command_line import without_passwords
from ttl_odm.sweeper.text import age, counted, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from ttl_odm.events.expiry import Expiry
    from ttl_odm.events.outbox import ConsumerState, OpenDelivery, Recorded, Subscription

_LONGEST_ERROR: Final = 100
"""The most characters of an error in a table."""

NO_CONSUMERS: Final = (
    "The database knows no consumer: no worker or reader has connected to it so far."
)


def consumer_rows(states: Iterable[ConsumerState]) -> list[tuple[str, ...]]:
    """Return the rows of a table of consumers, its head first."""
    return [
        ("consumer", "gets", "pending", "retried", "dead", "lag"),
        *(
            (
                visible(state.consumer),
                ", ".join(map(_gets, state.subscriptions)) or "?",
                f"{state.pending:,}",
                f"{state.retried:,}",
                f"{state.dead:,}",
                age(state.lag) if state.pending else "-",
            )
            for state in states
        ),
    ]


def open_rows(opened: Iterable[OpenDelivery]) -> list[tuple[str, ...]]:
    """Return the rows of a table of events that consumers haven't dealt with, its head first."""
    return [
        ("event", "table", "key", "consumer", "deliveries", "due (UTC)", "error"),
        *(
            (
                delivery.event.id,
                visible(delivery.event.table),
                _key(delivery.event),
                visible(delivery.consumer),
                str(delivery.event.delivery),
                "dead" if delivery.due_at is None else _when(delivery.due_at),
                _in_short(delivery.error),
            )
            for delivery in opened
        ),
    ]


def more_than(limit: int) -> str:
    """Return the hint below a table of events that is cut off."""
    return f"There are more than {limit:,}: --limit shows them."


def recorded_line(recorded: Recorded) -> str:
    """Return an event as a line: when it was recorded (UTC), its id, what happened, and the row."""
    event = recorded.event
    kind = event.kind if event.before is None else f"{event.kind} ({_span(event.before)} before)"
    return "  ".join(
        (_when(recorded.at), event.id, kind, visible(event.table), _key(event)),
    )


def unknown_consumer(consumer: str, states: Iterable[ConsumerState]) -> str | None:
    """Return the error for a name that no consumer has; None if a consumer has it."""
    known = [state.consumer for state in states]
    if consumer in known:
        return None
    names = ", ".join(map(visible, known)) or "the database knows none"
    return f"There is no consumer {consumer!r}: {names}."


def retried(number: int) -> str:
    """Return the result of retrying events."""
    return f"{counted(number, 'event')} will be delivered at once."


def skipped(number: int) -> str:
    """Return the result of skipping events."""
    return f"{counted(number, 'event')} won't be delivered any more."


def forgotten(consumer: str, number: int) -> str:
    """Return the result of removing a consumer."""
    events = f"{counted(number, 'event')} won't be delivered to it any more"
    return f"{visible(consumer)} is forgotten; {events}."


def consumer_dict(state: ConsumerState) -> dict[str, object]:
    """Return a consumer for JSON."""
    return {
        "consumer": state.consumer,
        "subscriptions": [
            {
                "table": subscription.table,
                "kind": subscription.kind,
                "before": as_json(subscription.before),
            }
            for subscription in state.subscriptions
        ],
        "pending": state.pending,
        "retried": state.retried,
        "dead": state.dead,
        "lag": state.lag,
    }


def open_dict(delivery: OpenDelivery) -> dict[str, object]:
    """Return an event that a consumer hasn't dealt with, for JSON; its error has no password."""
    return {
        "consumer": delivery.consumer,
        "due_at": as_json(delivery.due_at),
        "error": None if delivery.error is None else without_passwords(delivery.error),
        "event": delivery.event.to_dict(),
    }


def recorded_dict(recorded: Recorded) -> dict[str, object]:
    """Return an event and when it was recorded, for JSON."""
    return {"recorded_at": as_json(recorded.at), "event": recorded.event.to_dict()}


def _gets(subscription: Subscription) -> str:
    table, kind, before = subscription.table, subscription.kind, subscription.before
    table = "all tables" if table == EVERY_TABLE else visible(table)
    if kind != EXPIRING:
        return table
    return f"{table} ({kind}{'' if before is None else f' {_span(before)} before'})"


def _key(event: Expiry) -> str:
    return ", ".join(visible(str(value)) for value in event.key)


def _when(instant: datetime) -> str:
    return f"{instant.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}"


def _span(before: timedelta) -> str:
    return age(before.total_seconds())


def _in_short(error: str | None) -> str:
    """The first line of an error, cut off if it is too long."""
    first: Sequence[str] = without_passwords(error or "-").splitlines() or ("-",)
    line = visible(first[0])
    return line if len(line) <= _LONGEST_ERROR else f"{line[: _LONGEST_ERROR - 3]}..."
