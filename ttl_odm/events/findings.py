"""The findings of `check` about the events of an application.

An adapter passes the state of its database; the findings and their texts are made here. This module
must not know any database.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from ttl_odm.events.expiry import EXPIRED, EXPIRING
from ttl_odm.events.outbox import EVERY_TABLE
from ttl_odm.sweeper.findings import Finding, Severity
from ttl_odm.sweeper.text import age, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from ttl_odm.events.handlers import Handler
    from ttl_odm.events.outbox import ConsumerState, Subscription

LATE: Final = 3600.0
"""The seconds that an event may wait for a consumer without a finding."""


class NoEvents(Enum):
    """Why a table has no events: the reason and the fix."""

    NO_POLICY = "it has no policy", "declare __ttl__ on the model of {table}"
    FOLLOWS = (
        "its rows follow their parent, and have no events of their own",
        "name the table of the parent",
    )
    NATIVE = (
        "MongoDB itself deletes its documents, and calls no hook",
        "declare __ttl_purge__ = 'sweeper' on the class of {table}",
    )


@dataclass(frozen=True, slots=True)
class Tools:
    """The commands and functions of an adapter, for the texts of findings.

    Attributes:
        command: The command that shows events, and retries them.
        options: The options after those of the command.
        where: The program of the command, unless `command` names it.
        worker: The worker that delivers events to handlers.
        engine: The first argument of ``events()``.
    """

    command: str = "events"
    options: str = ""
    where: str | None = "ttl-odm"
    worker: str = "an EventWorker"
    engine: str = "engine"

    def typed(self, words: str) -> str:
        """Return the command line with further words."""
        return f"{self.command} {words}{self.options}"


def uncalled(
    handlers: Iterable[Handler], reason: Callable[[Handler], NoEvents | None]
) -> Iterator[Finding]:
    """Find handlers that are never called.

    Args:
        handlers: The handlers of this process.
        reason: Returns why a handler's table has no events; None if it has, or isn't known here.
    """
    for handler in handlers:
        why_not = reason(handler)
        if why_not is None:
            continue
        why, fix = why_not.value
        message = f"the handler {handler.consumer} is never called, because {why}"
        fix = f"{fix.format(table=handler.table)}, or remove the handler"
        yield Finding(Severity.ERROR, "uncalled-handler", handler.table, message, fix)


def unrecorded(
    target: str, recorded: Collection[Subscription], missing: Sequence[str], fix: str
) -> Iterator[Finding]:
    """Report that a table's events can't be recorded, if tables for them are missing.

    Args:
        target: The table.
        recorded: Its events that the application wants recorded.
        missing: The names of the missing tables.
        fix: The command that creates them.
    """
    if not missing or not recorded:
        return
    if any(events.kind == EXPIRED for events in recorded):
        what = "no expired row of it can be deleted, because its events can't be recorded"
    else:
        what = "no warning of its rows can be recorded"
    message = f"{what}: the database lacks {' and '.join(missing)}"
    yield Finding(Severity.ERROR, "missing-event-tables", target, message, fix)


def unread(
    target: str,
    recorded: Iterable[Subscription],
    known: Collection[Subscription],
    tools: Tools,
) -> Iterator[Finding]:
    """Find events and warnings of a table that no consumer gets.

    Args:
        target: The table.
        recorded: The events that are recorded.
        known: The subscriptions of the database's consumers.
        tools: The adapter's commands and functions.
    """
    lost = [
        events
        for events in recorded
        if not any(
            one.table in (events.table, EVERY_TABLE)
            and one.kind == events.kind
            and one.before in (None, events.before)
            for one in known
        )
    ]
    reason = "no consumer gets them: no worker with a handler, and no reader, has ever connected"
    run = f"run {tools.worker} where its handlers are imported, or read events({tools.engine}, "
    if any(events.kind == EXPIRED for events in lost):
        yield Finding(
            Severity.WARNING,
            "unread-events",
            target,
            f"its events are recorded, but {reason}",
            f"{run}consumer=...); to record none, remove on_expired() and record_expired()",
        )
    befores = sorted(events.before for events in lost if events.before is not None)
    if befores:
        times = " and ".join(age(before.total_seconds()) for before in befores)
        yield Finding(
            Severity.WARNING,
            "unread-warnings",
            target,
            f"warnings are recorded {times} before its rows expire, but {reason}",
            f"{run}consumer=..., kinds=[{EXPIRING!r}]); to record none, remove on_expiring() and "
            "record_expiring()",
        )


def of_consumers(target: str, states: Iterable[ConsumerState], tools: Tools) -> Iterator[Finding]:
    """Find consumers that fail, and consumers whose events wait for too long.

    Args:
        target: The table of deliveries.
        states: The states of the consumers.
        tools: The adapter's commands and functions.
    """
    for state in states:
        name = shlex.quote(state.consumer)
        if state.dead:
            retry = tools.typed(f"retry --all-dead --consumer {name}")
            where = f"with {tools.where}, " if tools.where else ""
            yield Finding(
                Severity.WARNING,
                "dead-events",
                target,
                f"{counted(state.dead, 'event')} of the consumer {state.consumer} will not be "
                "delivered any more, because it has failed too often",
                f"{retry}  ({where}once it is fixed; {tools.typed('list --dead')} shows the "
                "errors)",
            )
        if state.lag > LATE:
            where = f" (with {tools.where})" if tools.where else ""
            yield Finding(
                Severity.WARNING,
                "late-events",
                target,
                f"the consumer {state.consumer} has {counted(state.pending, 'event')} to deal "
                f"with, the oldest of which was recorded {age(state.lag)} ago",
                f"run its worker, or its reader; {tools.typed(f'list --consumer {name}')}{where} "
                f"shows whether it fails on them; {tools.typed(f'forget {name}')} removes it, if "
                "its handler is gone",
            )
