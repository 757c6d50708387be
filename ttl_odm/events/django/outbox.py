"""The outbox in the tables of `ttl_odm.events.django.models`: `TableOutbox`.

A delivery is taken by an UPDATE with the condition that it is still due at the same instant, so
that exactly one of any number of workers gets it. No row stays locked while a consumer is at work.
Instants are those of the database's clock.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.db import IntegrityError, connections, transaction
from django.db.models import Case, Count, Exists, F, Min, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Concat

from ttl_odm.dialects.errors import is_missing_table
from ttl_odm.django.purge.errors import store_errors
from ttl_odm.django.time.clock import database_now
from ttl_odm.django.time.fields import Ahead, Cutoff, DatabaseNow, InstantField
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.django import LABEL
from ttl_odm.events.handlers import consumers_here
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
    RETENTION,
    Counts,
    event_of,
    row_of,
    seconds_of,
    states_of,
    subscription_of,
)
from ttl_odm.sweeper import StoreError, TransientStoreError, UnreachableStoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.events.expiry import Expiry

_CHUNK: Final = 500
"""The most rows, or ids, of one statement."""

_OPEN: Final = Q(next_at__isnull=False) | Q(error__isnull=False)
"""The condition that a delivery isn't done: it waits, or is dead."""

_DONE: Final[dict[str, None]] = {"next_at": None, "error": None}
"""The values of a delivery that is done, but kept."""


class TableOutbox:
    """A `ttl_odm.events.outbox.Outbox` of an alias of ``DATABASES``, which records events too."""

    def __init__(self, using: str) -> None:
        self._using = using

    # Recording, in a transaction of the caller's

    def record(self, events: Iterable[Expiry], now: datetime, recorded: Subscription) -> int:
        """Record the events that aren't recorded yet, with their deliveries; return their number.

        Args:
            events: The events.
            now: When they are recorded, by the database's clock.
            recorded: Their table, kind and `before`.
        """
        rows = self._consumers.filter(
            Q(before_seconds__isnull=True) | Q(before_seconds=seconds_of(recorded.before)),
            table_name__in=[recorded.table, EVERY_TABLE],
            kind=recorded.kind,
        )
        # Those in the database, and this process's own handlers.
        consumers = sorted({*rows.values_list("consumer", flat=True), *consumers_here(recorded)})
        number, waiting = 0, iter(events)
        while chunk := {event.id: event for event in islice(waiting, _CHUNK)}:
            # Such as that of a row that was restored, and has expired again.
            for known in self._events.filter(id__in=list(chunk)).values_list("id", flat=True):
                del chunk[known]
            model = self._events.model
            new = [model(**row_of(event, now, RETENTION)) for event in chunk.values()]
            self._events.bulk_create(new)
            self._add_deliveries({row.id: (now, row.kept_until) for row in new}, consumers)
            number += len(chunk)
        return number

    def _add_deliveries(
        self, recorded: Mapping[str, tuple[datetime, datetime]], consumers: Iterable[str]
    ) -> None:
        """Add deliveries of events to consumers.

        `recorded` has when each event was recorded and until when it is kept, by id.
        """
        model = self._deliveries.model
        rows = [
            model(
                event=event,
                consumer=consumer,
                deliveries=0,
                next_at=recorded_at,
                recorded_at=recorded_at,
                kept_until=kept_until,
            )
            for consumer in consumers
            for event, (recorded_at, kept_until) in recorded.items()
        ]
        self._deliveries.bulk_create(rows, batch_size=_CHUNK)

    # For workers and readers

    def subscribe(self, consumer: str, subscriptions: Collection[Subscription]) -> bool:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        is_unsettled = False
        with self._errors():
            known = {
                (row.table_name, row.kind): row for row in self._consumers.filter(consumer=consumer)
            }
            for one in subscriptions:
                row, before = known.get((one.table, one.kind)), seconds_of(one.before)
                if row is None:
                    self._register(consumer, one)
                    is_unsettled = True
                    continue
                if row.before_seconds != before:
                    self._subscription(consumer, one).update(before_seconds=before)
                if row.unsettled_from is not None:
                    is_unsettled |= not self._settle(consumer, one, row.unsettled_from)
        return is_unsettled

    def _register(self, consumer: str, subscription: Subscription) -> None:
        """Add a new subscription, and hand over the events that are kept."""
        # An IntegrityError: another process has just added it.
        with suppress(IntegrityError), transaction.atomic(using=self._using):
            self._consumers.create(
                consumer=consumer,
                table_name=subscription.table,
                kind=subscription.kind,
                before_seconds=seconds_of(subscription.before),
                unsettled_from=unsettled_from(database_now(connections[self._using])),
            )
            self._hand_over(consumer, subscription)

    def _settle(self, consumer: str, subscription: Subscription, start: datetime) -> bool:
        """Hand over events that were committed late; return whether they were the last."""
        row, end = self._subscription(consumer, subscription), settles_at(start)
        # Once the consumer is settled, done deliveries are no longer kept.
        is_unsettled = Exists(row.filter(unsettled_from__isnull=False))
        may_be_late = Q(recorded_at__range=(start, end))
        try:
            with store_errors(), transaction.atomic(using=self._using):
                is_last = database_now(connections[self._using]) >= end
                self._hand_over(consumer, subscription, may_be_late, is_unsettled)
                if is_last:
                    row.update(unsettled_from=None)
        except UnreachableStoreError:
            raise
        except (IntegrityError, TransientStoreError):
            return False  # another process hands them over
        return is_last

    def _subscription(self, consumer: str, subscription: Subscription) -> AnyQuerySet:
        """The row of a subscription."""
        table, kind = subscription.table, subscription.kind
        return self._consumers.filter(consumer=consumer, table_name=table, kind=kind)

    def _hand_over(self, consumer: str, subscription: Subscription, *only: Q | Exists) -> None:
        """Add deliveries of the events that are kept to a consumer, unless it has them."""
        # By their key: the index on the consumer would lead to each of its deliveries, every time.
        own = self._deliveries.alias(its=Concat("consumer", Value(""))).filter(its=consumer)
        delivered = own.filter(event=OuterRef("id"))
        kept = self._events.filter(~Exists(delivered), *only, kind=subscription.kind)
        if subscription.table != EVERY_TABLE:
            kept = kept.filter(table_name=subscription.table)
        if subscription.before is not None:
            kept = kept.filter(before_seconds=seconds_of(subscription.before))
        rows = kept.values_list("id", "recorded_at", "kept_until")
        self._add_deliveries({event: (at, until) for event, at, until in rows}, [consumer])

    def take(self, consumer: str, limit: int, hidden: timedelta) -> Sequence[Delivery]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        with self._errors():
            # At the statement's start: PostgreSQL can't use an index for a later instant.
            started = Cutoff(0, "instant", InstantField())
            are_due = self._with_event.filter(consumer=consumer, next_at__lte=started)
            rows = list(are_due.order_by("next_at", "event")[:limit])
            events = self._events_of(rows)
        taken, ahead = [], Ahead(hidden.total_seconds())
        try:
            with self._errors(), transaction.atomic(using=self._using):
                for row in rows:
                    if row.event not in events:
                        continue
                    delivery = Delivery(events[row.event].delivered(row.deliveries + 1), consumer)
                    due_row = self._row_of(delivery, row.deliveries).filter(next_at=row.next_at)
                    if due_row.update(next_at=ahead, deliveries=delivery.event.delivery):
                        taken.append(delivery)
        except UnreachableStoreError:
            raise
        except TransientStoreError:
            return []  # another worker is in the way
        return taken

    def done(self, deliveries: Collection[Delivery]) -> None:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        unsettled = self._consumers.filter(
            consumer=OuterRef("consumer"), unsettled_from__lte=OuterRef("recorded_at")
        )
        with self._errors(), transaction.atomic(using=self._using):
            for delivery in deliveries:
                row = self._row_of(delivery, delivery.event.delivery)
                if not row.filter(~Exists(unsettled)).delete()[0]:
                    row.update(**_DONE)

    def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        next_at = None if rest is None else Ahead(rest.total_seconds())
        with self._errors():
            row = self._row_of(delivery, delivery.event.delivery)
            # Unless it was skipped meanwhile.
            row.filter(next_at__isnull=False).update(next_at=next_at, error=error[:LONGEST_ERROR])

    def _row_of(self, delivery: Delivery, number: int) -> AnyQuerySet:
        """The row of a delivery, unless it has another number by now."""
        return self._deliveries.filter(
            event=delivery.event.id, consumer=delivery.consumer, deliveries=number
        )

    # For people

    def states(self) -> Sequence[ConsumerState]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        is_pending = Q(next_at__isnull=False)
        counts = self._deliveries.order_by().values("consumer")
        with self._errors():
            counted = list(
                counts.annotate(
                    pending=Count("next_at"),
                    retried=Count("next_at", filter=Q(deliveries__gt=0)),
                    kept=Count("recorded_at", filter=_OPEN),
                    oldest=Min("recorded_at", filter=is_pending),
                )
            )
            subscribed = list(self._consumers.order_by("consumer", "table_name", "kind"))
            now = database_now(connections[self._using])
        return states_of(
            [(row.consumer, subscription_of(row)) for row in subscribed],
            {row.pop("consumer"): Counts(**row) for row in counted},
            now,
        )

    def recorded(self, limit: int, *, since: datetime | None = None) -> Sequence[Recorded]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        latest = self._events.order_by("-recorded_at", "-id")
        if since is not None:
            latest = latest.filter(recorded_at__gte=since)
        with self._errors():
            rows = list(latest[:limit])
        return [Recorded(event_of(row), row.recorded_at) for row in reversed(rows)]

    def opened(
        self, limit: int, *, consumer: str | None = None, dead: bool | None = None
    ) -> Sequence[OpenDelivery]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        rows = self._with_event.filter(_OPEN).order_by("recorded_at", "event", "consumer")
        if consumer is not None:
            rows = rows.filter(consumer=consumer)
        if dead is not None:
            rows = rows.filter(next_at__isnull=dead)
        with self._errors():
            opened = list(rows[:limit])
            events = self._events_of(opened)
        return [
            OpenDelivery(
                events[row.event].delivered(row.deliveries), row.consumer, row.next_at, row.error
            )
            for row in opened
            if row.event in events
        ]

    def retry(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        now = DatabaseNow()
        # A delivery that is due already keeps its place in the queue.
        earliest = Case(
            When(next_at__lte=now, then=F("next_at")), default=now, output_field=InstantField()
        )
        with self._errors(), transaction.atomic(using=self._using):
            return sum(rows.update(next_at=earliest) for rows in self._chosen(consumer, events))

    def skip(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        with self._errors(), transaction.atomic(using=self._using):
            return sum(rows.update(**_DONE) for rows in self._chosen(consumer, events))

    def forget(self, consumer: str) -> int:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        its, number = self._deliveries.filter(consumer=consumer), 0
        with self._errors():
            # First, so that nothing more is recorded for it.
            self._consumers.filter(consumer=consumer).delete()
            while events := list(its.values_list("event", flat=True)[:_CHUNK]):
                with transaction.atomic(using=self._using):
                    chunk = its.filter(event__in=events)
                    number += chunk.filter(_OPEN).count()
                    chunk.delete()
        return number

    def _chosen(
        self, consumer: str | None, events: Collection[str] | None
    ) -> Iterator[AnyQuerySet]:
        """Yield the dead deliveries, or those of events; no row is in two of the querysets."""
        rows = self._deliveries.filter(_OPEN)
        if consumer is not None:
            rows = rows.filter(consumer=consumer)
        if events is None:
            yield rows.filter(next_at__isnull=True)
            return
        ids = iter(sorted(set(events)))
        while chunk := list(islice(ids, _CHUNK)):
            yield rows.filter(event__in=chunk)

    # The rows of the tables

    @property
    def _events(self) -> AnyQuerySet:
        return self._rows("Event")

    @property
    def _consumers(self) -> AnyQuerySet:
        return self._rows("Consumer")

    @property
    def _deliveries(self) -> AnyQuerySet:
        return self._rows("Delivery")

    @property
    def _with_event(self) -> AnyQuerySet:
        """The deliveries with an event; others remain only if events are deleted by hand."""
        return self._deliveries.filter(Exists(self._events.filter(id=OuterRef("event"))))

    def _rows(self, name: str) -> AnyQuerySet:
        model: Model = apps.get_model(LABEL, name)
        return QuerySet(model=model, using=self._using)

    def _events_of(self, deliveries: Iterable[Any]) -> dict[str, Expiry]:
        ids = iter(sorted({row.event for row in deliveries}))
        events: dict[str, Expiry] = {}
        while chunk := list(islice(ids, _CHUNK)):
            events |= {row.id: event_of(row) for row in self._events.filter(id__in=chunk)}
        return events

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise a sweeper's errors in place of Django's; name the fix if the tables are missing."""
        try:
            with store_errors():
                yield
        except StoreError as error:
            if not is_missing_table(error.__cause__ and error.__cause__.__cause__):
                raise
            raise TTLConfigurationError(
                f"The database {self._using!r} lacks the tables of events: run 'manage.py migrate "
                f"{LABEL} --database={self._using}'."
            ) from error
