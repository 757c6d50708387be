"""What is wrong with the events of an application, as `check` reports it.

An adapter says what it has found in its database; the findings, and their words, are here. This
module must not know any database.
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
"""Seconds for which an event may wait for a consumer without a finding."""


class NoEvents(Enum):
    """Why a table has no events: the reason, and what to do about it."""

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
    """What an adapter's users type or call.

    Attributes:
        command: The command that shows events, and retries them.
        options: What follows its own options.
        where: The program that has the command, unless `command` says it.
        worker: What delivers events to handlers.
        engine: The first argument of ``events()``.
    """

    command: str = "events"
    options: str = ""
    where: str | None = "ttl-odm"
    worker: str = "an EventWorker"
    engine: str = "engine"

    def typed(self, words: str) -> str:
        """Return the command with further words."""
        return f"{self.command} {words}{self.options}"


def uncalled(
    handlers: Iterable[Handler], reason: Callable[[Handler], NoEvents | None]
) -> Iterator[Finding]:
    """Find handlers that are never called.

    Args:
        handlers: Those of this process.
        reason: Returns why the table of one has no events; None if it has, or isn't known here.
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
    """Report that events of a table can't be recorded, if tables for them are missing.

    Args:
        target: The table.
        recorded: Which events of it are recorded.
        missing: The names of the missing tables.
        fix: What creates them.
    """
    if not missing or not recorded:
        return
    if any(one.kind == EXPIRED for one in recorded):
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
        recorded: Which events of it are recorded.
        known: What the database's consumers get.
        tools: The adapter's.
    """
    lost = [one for one in recorded if not any(_has(consumer, one) for consumer in known)]
    nobody = "no consumer gets them: no worker with a handler, and no reader, has ever connected"
    run = f"run {tools.worker} where its handlers are imported, or read events({tools.engine}, "
    if any(one.kind == EXPIRED for one in lost):
        yield Finding(
            Severity.WARNING,
            "unread-events",
            target,
            f"its events are recorded, but {nobody}",
            f"{run}consumer=...); to record none, remove on_expired() and record_expired()",
        )
    befores = sorted(one.before for one in lost if one.before is not None)
    if befores:
        times = " and ".join(age(before.total_seconds()) for before in befores)
        yield Finding(
            Severity.WARNING,
            "unread-warnings",
            target,
            f"warnings are recorded {times} before its rows expire, but {nobody}",
            f"{run}consumer=..., kinds=[{EXPIRING!r}]); to record none, remove on_expiring() and "
            "record_expiring()",
        )


def _has(known: Subscription, recorded: Subscription) -> bool:
    """Whether a consumer gets events that are recorded."""
    return (
        known.table in (recorded.table, EVERY_TABLE)
        and known.kind == recorded.kind
        and known.before in (None, recorded.before)
    )


def of_consumers(target: str, states: Iterable[ConsumerState], tools: Tools) -> Iterator[Finding]:
    """Find consumers that fail, and those that have events wait for too long.

    Args:
        target: The table of deliveries.
        states: What the consumers haven't dealt with.
        tools: The adapter's.
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
