"""The outbox in tables: `TableOutbox` over an `Engine`, `AsyncTableOutbox` over an `AsyncEngine`.

A delivery is taken by an UPDATE that counts it, and names its number before, so that of any number
of workers one gets it. No row stays locked while a consumer is at work.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Engine, case, delete, func, insert, literal, select, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from ttl_odm.dialects.errors import is_missing_table
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.outbox import (
    EVERY_TABLE,
    LONGEST_ERROR,
    ConsumerState,
    Delivery,
    OpenDelivery,
    Recorded,
    Subscription,
)
from ttl_odm.events.rows import (
    CONSUMERS,
    DELIVERIES,
    EVENTS,
    Counts,
    event_of,
    seconds_of,
    states_of,
    subscription_of,
)
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.purge.errors import is_passing
from ttl_odm.sqlalchemy.purge.removal import CHUNK
from ttl_odm.sqlalchemy.sweep.store import now as now_of
from ttl_odm.sqlalchemy.sweep.transactions import asked, store_errors
from ttl_odm.sweeper import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from sqlalchemy import ColumnElement, Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.events.sqlalchemy.tables import EventTables

R = TypeVar("R")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements, for a connection without a transaction."""

    tables: EventTables

    def subscribe(
        self, connection: Connection, consumer: str, wanted: Collection[Subscription]
    ) -> None:
        """See `ttl_odm.events.outbox.Outbox.subscribe`."""
        c = self.tables.consumers.c
        with connection.begin():
            rows = connection.execute(
                select(c.table_name, c.kind, c.before_seconds).where(c.consumer == consumer)
            ).all()
        known = {(row.table_name, row.kind): row.before_seconds for row in rows}
        for one in wanted:
            before = seconds_of(one.before)
            if (one.table, one.kind) not in known:
                with suppress(IntegrityError), connection.begin():  # somebody else has just done so
                    row = {
                        "consumer": consumer,
                        "table_name": one.table,
                        "kind": one.kind,
                        "before_seconds": before,
                    }
                    connection.execute(insert(self.tables.consumers), [row])
                    self._hand_over(connection, consumer, one)
            elif known[one.table, one.kind] != before:
                is_this = (c.consumer == consumer, c.table_name == one.table, c.kind == one.kind)
                change = update(self.tables.consumers).where(*is_this)
                with connection.begin():
                    connection.execute(change.values(before_seconds=before))

    def _hand_over(self, connection: Connection, consumer: str, wanted: Subscription) -> None:
        """Let a new consumer have the events that are kept."""
        events, deliveries = self.tables.events, self.tables.deliveries
        held = select(deliveries.c.event).where(deliveries.c.consumer == consumer)
        kept = select(events.c.id, events.c.recorded_at, events.c.kept_until).where(
            events.c.id.not_in(held), events.c.kind == wanted.kind
        )
        if wanted.table != EVERY_TABLE:
            kept = kept.where(events.c.table_name == wanted.table)
        if wanted.before is not None:
            kept = kept.where(events.c.before_seconds == seconds_of(wanted.before))
        recorded = {row.id: (row.recorded_at, row.kept_until) for row in connection.execute(kept)}
        add_deliveries(connection, self.tables, recorded, [consumer])

    def take(
        self, connection: Connection, consumer: str, limit: int, hidden: timedelta
    ) -> list[Delivery]:
        """See `ttl_odm.events.outbox.Outbox.take`."""
        events, d = self.tables.events, self.tables.deliveries.c
        with connection.begin():
            due = (
                select(events, d.deliveries)
                .join(self.tables.deliveries, d.event == events.c.id)
                .where(d.consumer == consumer, d.next_at <= now_of(connection))
                .order_by(d.next_at, d.event)
                .limit(limit)
            )
            rows = connection.execute(due).all()
        if not rows:
            return []
        found = [Delivery(event_of(row).delivered(row.deliveries + 1), consumer) for row in rows]
        try:
            taken = self._take_all(connection, found, hidden)
            return self._take_each(connection, found, hidden) if taken is None else taken
        except DBAPIError as error:
            if not is_passing(error):
                raise
            return []  # another worker is in the way

    def _take_all(
        self, connection: Connection, found: list[Delivery], hidden: timedelta
    ) -> list[Delivery] | None:
        """Take deliveries by as few statements as can be.

        None, and nothing is taken, if another worker has taken some of them: how many they are is
        known then, but not which.
        """
        d, count = self.tables.deliveries.c, 0
        with connection.begin() as transaction:
            now = now_of(connection)
            for number, are_these in self._together(found):
                taking = update(self.tables.deliveries).where(
                    *are_these, d.deliveries == number - 1, d.next_at <= now
                )
                values = {"next_at": now + hidden, "deliveries": number}
                count += connection.execute(taking, values).rowcount
            if 0 < count < len(found):
                transaction.rollback()
                return None
        return found if count else []

    def _take_each(
        self, connection: Connection, found: list[Delivery], hidden: timedelta
    ) -> list[Delivery]:
        """Take those deliveries that no other worker has taken."""
        d = self.tables.deliveries.c
        with connection.begin():
            now = now_of(connection)
            taking = update(self.tables.deliveries)
            return [
                one
                for one in found
                if connection.execute(
                    taking.where(*self._is(one, one.event.delivery - 1), d.next_at <= now),
                    {"next_at": now + hidden, "deliveries": one.event.delivery},
                ).rowcount
            ]

    def done(self, connection: Connection, deliveries: Collection[Delivery]) -> None:
        """See `ttl_odm.events.outbox.Outbox.done`."""
        table = self.tables.deliveries
        with connection.begin():
            for number, are_these in self._together(deliveries):
                connection.execute(delete(table).where(*are_these, table.c.deliveries == number))

    def _together(
        self, deliveries: Iterable[Delivery]
    ) -> Iterator[tuple[int, tuple[ColumnElement[bool], ...]]]:
        """Deliveries of one consumer by their number, and the condition for their rows."""
        d = self.tables.deliveries.c
        groups: dict[int, list[Delivery]] = {}
        for one in deliveries:
            groups.setdefault(one.event.delivery, []).append(one)
        for number, group in groups.items():
            ids = [one.event.id for one in group]
            yield number, (d.event.in_(ids), d.consumer == group[0].consumer)

    def failed(
        self, connection: Connection, delivery: Delivery, error: str, rest: timedelta | None
    ) -> None:
        """See `ttl_odm.events.outbox.Outbox.failed`."""
        with connection.begin():
            next_at = None if rest is None else now_of(connection) + rest
            is_this = self._is(delivery, delivery.event.delivery)
            note = update(self.tables.deliveries).where(*is_this)
            connection.execute(note.values(next_at=next_at, error=error[:LONGEST_ERROR]))

    def states(self, connection: Connection) -> list[ConsumerState]:
        """See `ttl_odm.events.outbox.Outbox.states`."""
        with connection.begin():
            return self.states_in(connection)

    def states_in(self, connection: Connection) -> list[ConsumerState]:
        """The same, in a transaction."""
        consumers, d = self.tables.consumers, self.tables.deliveries.c
        is_pending = d.next_at.is_not(None)
        counts = select(
            d.consumer,
            func.count(),
            func.count(d.next_at),
            func.count(case((is_pending & (d.deliveries > 0), 1))),
            func.min(case((is_pending, d.recorded_at))),
        ).group_by(d.consumer)
        subscribed = connection.execute(select(consumers).order_by(*consumers.c)).all()
        counted = connection.execute(counts).all()
        return states_of(
            [(row.consumer, subscription_of(row)) for row in subscribed],
            {row[0]: Counts(*row[1:]) for row in counted},
            now_of(connection),
        )

    def recorded(
        self, connection: Connection, limit: int, *, since: datetime | None = None
    ) -> list[Recorded]:
        """See `ttl_odm.events.outbox.Outbox.recorded`."""
        events = self.tables.events
        latest = select(events).order_by(events.c.recorded_at.desc(), events.c.id.desc())
        if since is not None:
            latest = latest.where(events.c.recorded_at >= since)
        with connection.begin():
            rows = connection.execute(latest.limit(limit)).all()
        return [Recorded(event_of(row), row.recorded_at) for row in reversed(rows)]

    def opened(
        self,
        connection: Connection,
        limit: int,
        *,
        consumer: str | None = None,
        dead: bool | None = None,
    ) -> list[OpenDelivery]:
        """See `ttl_odm.events.outbox.Outbox.opened`."""
        events, d = self.tables.events, self.tables.deliveries.c
        opened = (
            select(events, d.consumer, d.deliveries, d.next_at, d.error)
            .join(self.tables.deliveries, d.event == events.c.id)
            .order_by(d.recorded_at, d.event, d.consumer)
            .limit(limit)
        )
        if consumer is not None:
            opened = opened.where(d.consumer == consumer)
        if dead is not None:
            opened = opened.where(d.next_at.is_(None) if dead else d.next_at.is_not(None))
        with connection.begin():
            rows = connection.execute(opened).all()
        return [
            OpenDelivery(
                event_of(row).delivered(row.deliveries), row.consumer, row.next_at, row.error
            )
            for row in rows
        ]

    def retry(
        self, connection: Connection, consumer: str | None, events: Collection[str] | None
    ) -> int:
        """See `ttl_odm.events.outbox.Outbox.retry`."""
        deliveries, number = self.tables.deliveries, 0
        next_at = deliveries.c.next_at
        with connection.begin():
            now = literal(now_of(connection), next_at.type)
            earliest = case((next_at <= now, next_at), else_=now)  # or it would wait behind others
            for those in self._chosen(consumer, events):
                change = update(deliveries).where(*those).values(next_at=earliest)
                number += connection.execute(change).rowcount
        return number

    def skip(
        self, connection: Connection, consumer: str | None, events: Collection[str] | None
    ) -> int:
        """See `ttl_odm.events.outbox.Outbox.skip`."""
        number = 0
        with connection.begin():
            for those in self._chosen(consumer, events):
                number += connection.execute(delete(self.tables.deliveries).where(*those)).rowcount
        return number

    def forget(self, connection: Connection, consumer: str) -> int:
        """See `ttl_odm.events.outbox.Outbox.forget`."""
        consumers, deliveries = self.tables.consumers, self.tables.deliveries
        with connection.begin():  # first of all, so that nothing more is recorded for it
            connection.execute(delete(consumers).where(consumers.c.consumer == consumer))
        own, number = deliveries.c.consumer == consumer, 0
        while True:
            with connection.begin():
                some = select(deliveries.c.event).where(own).limit(CHUNK)
                events = connection.scalars(some).all()
                those = delete(deliveries).where(own, deliveries.c.event.in_(events))
                number += connection.execute(those).rowcount if events else 0
            if len(events) < CHUNK:
                return number

    def _chosen(
        self, consumer: str | None, events: Collection[str] | None
    ) -> Iterator[list[ColumnElement[bool]]]:
        """Conditions for the dead deliveries, or those of events; no row meets two of them."""
        d = self.tables.deliveries.c
        own = [] if consumer is None else [d.consumer == consumer]
        if events is None:
            yield [*own, d.next_at.is_(None)]
            return
        ids = sorted(set(events))
        for start in range(0, len(ids), CHUNK):
            yield [*own, d.event.in_(ids[start : start + CHUNK])]

    def _is(self, delivery: Delivery, number: int) -> tuple[ColumnElement[bool], ...]:
        """The row that is meant, unless it has been delivered another number of times."""
        d = self.tables.deliveries.c
        return (
            d.event == delivery.event.id,
            d.consumer == delivery.consumer,
            d.deliveries == number,
        )


def add_deliveries(
    connection: Connection,
    tables: EventTables,
    recorded: Mapping[str, tuple[datetime, datetime]],
    consumers: Iterable[str],
) -> None:
    """Let consumers have events, given when they were recorded, and until when they are kept."""
    rows = [
        {
            "event": event,
            "consumer": consumer,
            "deliveries": 0,
            "next_at": recorded_at,
            "recorded_at": recorded_at,
            "kept_until": kept_until,
        }
        for consumer in consumers
        for event, (recorded_at, kept_until) in recorded.items()
    ]
    for start in range(0, len(rows), CHUNK):
        connection.execute(insert(tables.deliveries), rows[start : start + CHUNK])


@contextmanager
def _errors() -> Iterator[None]:
    """Raise a sweeper's errors in place of SQLAlchemy's; name the tables if they are missing."""
    try:
        with store_errors():
            yield
    except StoreError as error:
        cause = error.__cause__
        if not isinstance(cause, DBAPIError) or not is_missing_table(cause.orig):
            raise
        raise TTLConfigurationError(
            f"The database lacks one of the tables {EVENTS}, {CONSUMERS} and {DELIVERIES}: create "
            "them by Base.metadata.create_all(engine), or by a migration."
        ) from error


class TableOutbox:
    """A `ttl_odm.events.outbox.Outbox` over an `Engine`."""

    def __init__(self, engine: Engine, tables: EventTables) -> None:
        self._engine = engine
        self._statements = Statements(tables)

    def subscribe(self, consumer: str, wanted: Collection[Subscription]) -> None:
        """As in `Outbox`."""
        self._run(Statements.subscribe, consumer, wanted)

    def take(self, consumer: str, limit: int, hidden: timedelta) -> Sequence[Delivery]:
        """As in `Outbox`."""
        return self._run(Statements.take, consumer, limit, hidden)

    def done(self, deliveries: Collection[Delivery]) -> None:
        """As in `Outbox`."""
        self._run(Statements.done, deliveries)

    def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """As in `Outbox`."""
        self._run(Statements.failed, delivery, error, rest)

    def states(self) -> Sequence[ConsumerState]:
        """As in `Outbox`."""
        return self._run(Statements.states)

    def recorded(self, limit: int, *, since: datetime | None = None) -> Sequence[Recorded]:
        """As in `Outbox`."""
        return self._run(Statements.recorded, limit, since=since)

    def opened(
        self, limit: int, *, consumer: str | None = None, dead: bool | None = None
    ) -> Sequence[OpenDelivery]:
        """As in `Outbox`."""
        return self._run(Statements.opened, limit, consumer=consumer, dead=dead)

    def retry(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """As in `Outbox`."""
        return self._run(Statements.retry, consumer, events)

    def skip(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """As in `Outbox`."""
        return self._run(Statements.skip, consumer, events)

    def forget(self, consumer: str) -> int:
        """As in `Outbox`."""
        return self._run(Statements.forget, consumer)

    def _run(
        self,
        work: Callable[Concatenate[Statements, Connection, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        with _errors(), self._engine.connect() as connection:
            return work(self._statements, connection, *args, **kwargs)


class AsyncTableOutbox:
    """A `ttl_odm.events.outbox.AsyncOutbox` over an `AsyncEngine`."""

    def __init__(self, engine: AsyncEngine, tables: EventTables) -> None:
        self._engine = engine
        self._statements = Statements(tables)

    async def subscribe(self, consumer: str, wanted: Collection[Subscription]) -> None:
        """As in `Outbox`."""
        await self._run(Statements.subscribe, consumer, wanted)

    async def take(self, consumer: str, limit: int, hidden: timedelta) -> Sequence[Delivery]:
        """As in `Outbox`."""
        return await self._run(Statements.take, consumer, limit, hidden)

    async def done(self, deliveries: Collection[Delivery]) -> None:
        """As in `Outbox`."""
        await self._run(Statements.done, deliveries)

    async def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """As in `Outbox`."""
        await self._run(Statements.failed, delivery, error, rest)

    async def states(self) -> Sequence[ConsumerState]:
        """As in `Outbox`."""
        return await self._run(Statements.states)

    async def recorded(self, limit: int, *, since: datetime | None = None) -> Sequence[Recorded]:
        """As in `Outbox`."""
        return await self._run(Statements.recorded, limit, since=since)

    async def opened(
        self, limit: int, *, consumer: str | None = None, dead: bool | None = None
    ) -> Sequence[OpenDelivery]:
        """As in `Outbox`."""
        return await self._run(Statements.opened, limit, consumer=consumer, dead=dead)

    async def retry(
        self, consumer: str | None = None, events: Collection[str] | None = None
    ) -> int:
        """As in `Outbox`."""
        return await self._run(Statements.retry, consumer, events)

    async def skip(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """As in `Outbox`."""
        return await self._run(Statements.skip, consumer, events)

    async def forget(self, consumer: str) -> int:
        """As in `Outbox`."""
        return await self._run(Statements.forget, consumer)

    async def _run(
        self,
        work: Callable[Concatenate[Statements, Connection, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        def inside(connection: Connection) -> R:
            return work(self._statements, connection, *args, **kwargs)

        with _errors():
            return await asked(self._engine, inside)


def open_outbox(engine: Any, tables: EventTables) -> TableOutbox | AsyncTableOutbox:
    """Make the outbox of an engine."""
    if isinstance(engine, Engine):
        return TableOutbox(engine, tables)
    if isinstance(engine, compat.async_types("AsyncEngine")):
        return AsyncTableOutbox(engine, tables)
    raise TTLConfigurationError(
        f"Events need an Engine or an AsyncEngine, not {type(engine).__name__}, because no "
        "connection is held while an event is handled."
    )
