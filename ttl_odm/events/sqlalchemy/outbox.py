"""The outbox in tables: `TableOutbox` over an `Engine`, `AsyncTableOutbox` over an `AsyncEngine`.

A delivery is taken by an UPDATE that increments its number, with the condition that this is still
the old one, so that exactly one of any number of workers gets it. No row stays locked while a
consumer is at work.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import Engine, case, delete, func, insert, literal, or_, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from ttl_odm.dialects.errors import is_missing_table
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.intervals import settles_at, unsettled_from
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
from ttl_odm.sqlalchemy.purge.statements import CHUNK, chunks
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

_DONE: Final[dict[str, None]] = {"next_at": None, "error": None}
"""The values of a delivery that is done, but kept."""

_PLANNED_ANEW: Final = text("SET LOCAL plan_cache_mode = 'force_custom_plan'")
"""Keeps PostgreSQL from executing a plan that it made while the tables were small, which compares
each event with each delivery."""


@dataclass(frozen=True, slots=True)
class Statements:
    """The statements of the outbox, for a connection that isn't in a transaction."""

    tables: EventTables

    def subscribe(
        self, connection: Connection, consumer: str, subscriptions: Collection[Subscription]
    ) -> bool:
        """See `ttl_odm.events.outbox.Outbox.subscribe`."""
        consumers, is_unsettled = self.tables.consumers, False
        with connection.begin():
            rows = connection.execute(
                select(consumers).where(consumers.c.consumer == consumer)
            ).all()
        known = {(row.table_name, row.kind): row for row in rows}
        for one in subscriptions:
            row, before = known.get((one.table, one.kind)), seconds_of(one.before)
            if row is None:
                self._register(connection, consumer, one)
                is_unsettled = True
                continue
            if row.before_seconds != before:
                change = update(consumers).where(*self._is_subscribed(consumer, one))
                with connection.begin():
                    connection.execute(change.values(before_seconds=before))
            if row.unsettled_from is not None:
                is_unsettled |= not self._settle(connection, consumer, one, row.unsettled_from)
        return is_unsettled

    def _register(self, connection: Connection, consumer: str, subscription: Subscription) -> None:
        """Add a new subscription, and hand over the events that are kept."""
        with suppress(IntegrityError), connection.begin():  # another process has just added it
            row = {
                "consumer": consumer,
                "table_name": subscription.table,
                "kind": subscription.kind,
                "before_seconds": seconds_of(subscription.before),
                "unsettled_from": unsettled_from(now_of(connection)),
            }
            connection.execute(insert(self.tables.consumers), [row])
            self._hand_over(connection, consumer, subscription)

    def _settle(
        self, connection: Connection, consumer: str, subscription: Subscription, start: datetime
    ) -> bool:
        """Hand over events that were committed late; return whether they were the last."""
        consumers, events = self.tables.consumers, self.tables.events
        is_this, end = self._is_subscribed(consumer, subscription), settles_at(start)
        # Once the consumer is settled, done deliveries are no longer kept.
        is_unsettled = (
            select(consumers.c.kind).where(*is_this, consumers.c.unsettled_from.is_not(None))
        ).exists()
        try:
            with connection.begin():
                is_last = now_of(connection) >= end
                may_be_late = events.c.recorded_at.between(start, end)
                self._hand_over(connection, consumer, subscription, may_be_late, is_unsettled)
                if is_last:
                    settled = update(consumers).where(*is_this)
                    connection.execute(settled.values(unsettled_from=None))
        except DBAPIError as error:
            if not (isinstance(error, IntegrityError) or is_passing(error)):
                raise
            return False  # another process hands them over
        return is_last

    def _is_subscribed(
        self, consumer: str, subscription: Subscription
    ) -> tuple[ColumnElement[bool], ...]:
        c, table, kind = self.tables.consumers.c, subscription.table, subscription.kind
        return c.consumer == consumer, c.table_name == table, c.kind == kind

    def _hand_over(
        self,
        connection: Connection,
        consumer: str,
        subscription: Subscription,
        *only: ColumnElement[bool],
    ) -> None:
        """Add deliveries of the events that are kept to a consumer, unless it has them."""
        if connection.dialect.name == "postgresql":
            connection.execute(_PLANNED_ANEW)
        events, deliveries = self.tables.events, self.tables.deliveries
        # By their key: the index on the consumer would lead to each of its deliveries, every time.
        delivered = select(deliveries.c.event).where(
            deliveries.c.event == events.c.id, deliveries.c.consumer + "" == consumer
        )
        kept = select(events.c.id, events.c.recorded_at, events.c.kept_until).where(
            ~delivered.correlate(events).exists(), events.c.kind == subscription.kind, *only
        )
        if subscription.table != EVERY_TABLE:
            kept = kept.where(events.c.table_name == subscription.table)
        if subscription.before is not None:
            kept = kept.where(events.c.before_seconds == seconds_of(subscription.before))
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
        due_deliveries = [
            Delivery(event_of(row).delivered(row.deliveries + 1), consumer) for row in rows
        ]
        try:
            taken = self._take_all(connection, due_deliveries, hidden)
            if taken is None:
                taken = self._take_each(connection, due_deliveries, hidden)
        except DBAPIError as error:
            if not is_passing(error):
                raise
            return []  # another worker is in the way
        return taken

    def _take_all(
        self, connection: Connection, due: list[Delivery], hidden: timedelta
    ) -> list[Delivery] | None:
        """Take deliveries by as few statements as possible.

        If another worker has taken some of them, take none and return None: their number is known
        then, but not which they are.
        """
        d, count = self.tables.deliveries.c, 0
        with connection.begin() as transaction:
            now = now_of(connection)
            for number, in_group in self._groups(due):
                take = update(self.tables.deliveries).where(
                    *in_group, d.deliveries == number - 1, d.next_at <= now
                )
                values = {"next_at": now + hidden, "deliveries": number}
                count += connection.execute(take, values).rowcount
            if 0 < count < len(due):
                transaction.rollback()
                return None
        return due if count else []

    def _take_each(
        self, connection: Connection, due: list[Delivery], hidden: timedelta
    ) -> list[Delivery]:
        """Take the deliveries that no other worker has taken, one by one."""
        d, taken = self.tables.deliveries.c, []
        with connection.begin():
            now = now_of(connection)
            take = update(self.tables.deliveries)
            for delivery in due:
                number = delivery.event.delivery
                is_due = (*self._is(delivery, number - 1), d.next_at <= now)
                values = {"next_at": now + hidden, "deliveries": number}
                if connection.execute(take.where(*is_due), values).rowcount:
                    taken.append(delivery)
        return taken

    def done(self, connection: Connection, deliveries: Collection[Delivery]) -> None:
        """See `ttl_odm.events.outbox.Outbox.done`."""
        table, consumers = self.tables.deliveries, self.tables.consumers.c
        is_to_be_kept = (
            select(consumers.kind)
            .where(
                consumers.consumer == table.c.consumer,
                consumers.unsettled_from <= table.c.recorded_at,
            )
            .correlate(table)
            .exists()
        )
        groups = [
            (*in_group, table.c.deliveries == number)
            for number, in_group in self._groups(deliveries)
        ]
        with connection.begin():
            deleted = sum(
                connection.execute(delete(table).where(*in_group, ~is_to_be_kept)).rowcount
                for in_group in groups
            )
            if deleted < len(deliveries):
                for in_group in groups:
                    connection.execute(update(table).where(*in_group).values(_DONE))

    def _groups(
        self, deliveries: Iterable[Delivery]
    ) -> Iterator[tuple[int, tuple[ColumnElement[bool], ...]]]:
        """Group deliveries of one consumer by number; yield that, and the conditions for rows."""
        d = self.tables.deliveries.c
        groups: dict[int, list[Delivery]] = {}
        for delivery in deliveries:
            groups.setdefault(delivery.event.delivery, []).append(delivery)
        for number, group in groups.items():
            ids = [delivery.event.id for delivery in group]
            yield number, (d.event.in_(ids), d.consumer == group[0].consumer)

    def failed(
        self, connection: Connection, delivery: Delivery, error: str, rest: timedelta | None
    ) -> None:
        """See `ttl_odm.events.outbox.Outbox.failed`."""
        with connection.begin():
            next_at = None if rest is None else now_of(connection) + rest
            is_this = self._is(delivery, delivery.event.delivery)
            waits = self.tables.deliveries.c.next_at.is_not(None)  # it wasn't skipped meanwhile
            change = update(self.tables.deliveries).where(*is_this, waits)
            connection.execute(change.values(next_at=next_at, error=error[:LONGEST_ERROR]))

    def states(self, connection: Connection) -> list[ConsumerState]:
        """See `ttl_odm.events.outbox.Outbox.states`."""
        with connection.begin():
            return self.states_in(connection)

    def states_in(self, connection: Connection) -> list[ConsumerState]:
        """Read the states in the connection's transaction."""
        consumers, d = self.tables.consumers, self.tables.deliveries.c
        is_pending = d.next_at.is_not(None)
        counts = select(
            d.consumer,
            func.count(case((self._is_open, 1))),
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
            .where(self._is_open)
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
            # A delivery that is due already keeps its place in the queue.
            earliest = case((next_at <= now, next_at), else_=now)
            for condition in self._chosen(consumer, events):
                change = update(deliveries).where(*condition).values(next_at=earliest)
                number += connection.execute(change).rowcount
        return number

    def skip(
        self, connection: Connection, consumer: str | None, events: Collection[str] | None
    ) -> int:
        """See `ttl_odm.events.outbox.Outbox.skip`."""
        number = 0
        with connection.begin():
            for condition in self._chosen(consumer, events):
                change = update(self.tables.deliveries).where(*condition).values(_DONE)
                number += connection.execute(change).rowcount
        return number

    def forget(self, connection: Connection, consumer: str) -> int:
        """See `ttl_odm.events.outbox.Outbox.forget`."""
        consumers, deliveries = self.tables.consumers, self.tables.deliveries
        is_its = deliveries.c.consumer == consumer
        with connection.begin():  # first, so that nothing more is recorded for it
            connection.execute(delete(consumers).where(consumers.c.consumer == consumer))
        chunk = select(deliveries.c.event, self._is_open).where(is_its).limit(CHUNK)
        number = 0
        while True:
            with connection.begin():
                rows = connection.execute(chunk).all()
                events = [event for event, _ in rows]
                connection.execute(delete(deliveries).where(is_its, deliveries.c.event.in_(events)))
            number += sum(bool(is_open) for _, is_open in rows)
            if len(rows) < CHUNK:
                return number

    @property
    def _is_open(self) -> ColumnElement[bool]:
        """The condition that a delivery isn't done: it waits, or is dead."""
        d = self.tables.deliveries.c
        return or_(d.next_at.is_not(None), d.error.is_not(None))

    def _chosen(
        self, consumer: str | None, events: Collection[str] | None
    ) -> Iterator[list[ColumnElement[bool]]]:
        """Yield conditions for dead deliveries, or those of events; no row meets two of them."""
        d = self.tables.deliveries.c
        own = [self._is_open] if consumer is None else [self._is_open, d.consumer == consumer]
        if events is None:
            yield [*own, d.next_at.is_(None)]
            return
        ids = sorted(set(events))
        for some in chunks(ids):
            yield [*own, d.event.in_(some)]

    def _is(self, delivery: Delivery, number: int) -> tuple[ColumnElement[bool], ...]:
        """The condition for a delivery's row, unless that has another number by now."""
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
    """Add deliveries of events to consumers.

    Args:
        connection: A connection in a transaction.
        tables: The tables of events.
        recorded: When each event was recorded and until when it is kept, by id.
        consumers: The consumers.
    """
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
    for some in chunks(rows):
        connection.execute(insert(tables.deliveries), some)


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

    def subscribe(self, consumer: str, subscriptions: Collection[Subscription]) -> bool:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return self._run(Statements.subscribe, consumer, subscriptions)

    def take(self, consumer: str, limit: int, hidden: timedelta) -> Sequence[Delivery]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return self._run(Statements.take, consumer, limit, hidden)

    def done(self, deliveries: Collection[Delivery]) -> None:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        self._run(Statements.done, deliveries)

    def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        self._run(Statements.failed, delivery, error, rest)

    def states(self) -> Sequence[ConsumerState]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return self._run(Statements.states)

    def recorded(self, limit: int, *, since: datetime | None = None) -> Sequence[Recorded]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return self._run(Statements.recorded, limit, since=since)

    def opened(
        self, limit: int, *, consumer: str | None = None, dead: bool | None = None
    ) -> Sequence[OpenDelivery]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return self._run(Statements.opened, limit, consumer=consumer, dead=dead)

    def retry(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return self._run(Statements.retry, consumer, events)

    def skip(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return self._run(Statements.skip, consumer, events)

    def forget(self, consumer: str) -> int:
        """See `Outbox` in `ttl_odm.events.outbox`."""
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

    async def subscribe(self, consumer: str, subscriptions: Collection[Subscription]) -> bool:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return await self._run(Statements.subscribe, consumer, subscriptions)

    async def take(self, consumer: str, limit: int, hidden: timedelta) -> Sequence[Delivery]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return await self._run(Statements.take, consumer, limit, hidden)

    async def done(self, deliveries: Collection[Delivery]) -> None:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        await self._run(Statements.done, deliveries)

    async def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        await self._run(Statements.failed, delivery, error, rest)

    async def states(self) -> Sequence[ConsumerState]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return await self._run(Statements.states)

    async def recorded(self, limit: int, *, since: datetime | None = None) -> Sequence[Recorded]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return await self._run(Statements.recorded, limit, since=since)

    async def opened(
        self, limit: int, *, consumer: str | None = None, dead: bool | None = None
    ) -> Sequence[OpenDelivery]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return await self._run(Statements.opened, limit, consumer=consumer, dead=dead)

    async def retry(
        self, consumer: str | None = None, events: Collection[str] | None = None
    ) -> int:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return await self._run(Statements.retry, consumer, events)

    async def skip(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        return await self._run(Statements.skip, consumer, events)

    async def forget(self, consumer: str) -> int:
        """See `Outbox` in `ttl_odm.events.outbox`."""
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
    """Open the outbox of an engine.

    Raises:
        TTLConfigurationError: It isn't an engine.
    """
    if isinstance(engine, Engine):
        return TableOutbox(engine, tables)
    if isinstance(engine, compat.async_types("AsyncEngine")):
        return AsyncTableOutbox(engine, tables)
    raise TTLConfigurationError(
        f"Events need an Engine or an AsyncEngine, not {type(engine).__name__}, because no "
        "connection is held while an event is handled."
    )
