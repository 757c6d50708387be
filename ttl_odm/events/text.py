"""What people are shown of an outbox: tables of consumers and of their events, lines of events.

This module must not know a terminal, nor any database.
"""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

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
"""Characters of an error that a table has room for."""


def consumer_rows(states: Iterable[ConsumerState]) -> list[tuple[str, ...]]:
    """The rows of a table of consumers, its head first."""
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
    """The rows of a table of events that consumers haven't dealt with, its head first."""
    return [
        ("event", "table", "key", "consumer", "deliveries", "due (UTC)", "error"),
        *(
            (
                one.event.id,
                visible(one.event.table),
                _key(one.event),
                visible(one.consumer),
                str(one.event.delivery),
                "dead" if one.due_at is None else _when(one.due_at),
                _in_short(one.error),
            )
            for one in opened
        ),
    ]


def recorded_line(recorded: Recorded) -> str:
    """An event in a line: when it was recorded (UTC), its id, what happened, and to which row."""
    event = recorded.event
    kind = event.kind if event.before is None else f"{event.kind} ({_span(event.before)} before)"
    return "  ".join(
        (_when(recorded.at), event.id, kind, visible(event.table), _key(event)),
    )


def unknown_consumer(consumer: str, states: Iterable[ConsumerState]) -> str | None:
    """The error for a name that isn't a consumer's, with the names that are; None if it is one."""
    known = [state.consumer for state in states]
    if consumer in known:
        return None
    names = ", ".join(map(visible, known)) or "the database knows none"
    return f"There is no consumer {consumer!r}: {names}."


def forgotten(consumer: str, number: int) -> str:
    """What was done when a consumer has been removed."""
    events = f"{counted(number, 'event')} won't be delivered to it any more"
    return f"{visible(consumer)} is forgotten; {events}."


def consumer_dict(state: ConsumerState) -> dict[str, Any]:
    """A consumer for JSON."""
    return {
        "consumer": state.consumer,
        "subscriptions": [
            {"table": one.table, "kind": one.kind, "before": as_json(one.before)}
            for one in state.subscriptions
        ],
        "pending": state.pending,
        "retried": state.retried,
        "dead": state.dead,
        "lag": state.lag,
    }


def open_dict(one: OpenDelivery) -> dict[str, Any]:
    """An event that a consumer hasn't dealt with, for JSON; an error in it has no password."""
    return {
        "consumer": one.consumer,
        "due_at": as_json(one.due_at),
        "error": None if one.error is None else without_passwords(one.error),
        "event": one.event.to_dict(),
    }


def recorded_dict(recorded: Recorded) -> dict[str, Any]:
    """An event that was recorded, for JSON."""
    return {"recorded_at": as_json(recorded.at), "event": recorded.event.to_dict()}


def _gets(wanted: Subscription) -> str:
    table = "all tables" if wanted.table == EVERY_TABLE else visible(wanted.table)
    if wanted.kind != EXPIRING:
        return table
    before = "" if wanted.before is None else f" {_span(wanted.before)} before"
    return f"{table} ({wanted.kind}{before})"


def _key(event: Expiry) -> str:
    return ", ".join(visible(str(value)) for value in event.key)


def _when(instant: datetime) -> str:
    return f"{instant.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S}"


def _span(before: timedelta) -> str:
    return age(before.total_seconds())


def _in_short(error: str | None) -> str:
    """The first line of an error, as far as there is room."""
    first: Sequence[str] = without_passwords(error or "-").splitlines() or ("-",)
    line = visible(first[0])
    return line if len(line) <= _LONGEST_ERROR else f"{line[: _LONGEST_ERROR - 3]}..."
