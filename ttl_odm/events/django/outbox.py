"""The outbox in the tables of `ttl_odm.events.django.models`: `TableOutbox`.

A delivery is taken by an UPDATE that names the instant at which it was due, so that of any number
of workers one gets it. No row stays locked while a consumer is at work. Instants are the
database's.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from django.apps import apps
from django.db import IntegrityError, connections, transaction
from django.db.models import Case, Count, Exists, F, Min, OuterRef, Q, QuerySet, When

from ttl_odm.dialects.errors import is_missing_table
from ttl_odm.django.purge.errors import store_errors
from ttl_odm.django.time.clock import database_now
from ttl_odm.django.time.fields import Ahead, Cutoff, DatabaseNow, InstantField
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.django import LABEL
from ttl_odm.events.newcomers import settles_at, unsettled_from
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

    from ttl_odm.django.policy.bindings import AnyQuerySet, Model
    from ttl_odm.events.expiry import Expiry

_CHUNK: Final = 500
"""Rows, or ids, of one statement."""

_OPEN: Final = Q(next_at__isnull=False) | Q(error__isnull=False)
"""Whether a delivery isn't done: it waits, or is dead."""

_DONE: Final[dict[str, None]] = {"next_at": None, "error": None}
"""What a delivery says that is done, but kept."""


class TableOutbox:
    """A `ttl_odm.events.outbox.Outbox` over an alias of ``DATABASES``; and what records events."""

    def __init__(self, using: str) -> None:
        self._using = using

    # Recording, in a transaction of the caller's

    def consumers_of(self, wanted: Subscription) -> list[str]:
        """Return who gets the events of a table and kind."""
        before = seconds_of(wanted.before)
        rows = self._consumers.filter(
            Q(before_seconds__isnull=True) | Q(before_seconds=before),
            table_name__in=[wanted.table, EVERY_TABLE],
            kind=wanted.kind,
        )
        return list(rows.values_list("consumer", flat=True))

    def record(self, events: Iterable[Expiry], now: datetime, consumers: Sequence[str]) -> int:
        """Record events for some consumers, unless they were before; return how many weren't."""
        recorded, waiting = 0, iter(events)
        while chunk := {event.id: event for event in islice(waiting, _CHUNK)}:
            # A row that was put back as it was, and has expired again.
            for known in self._events.filter(id__in=list(chunk)).values_list("id", flat=True):
                del chunk[known]
            model = self._events.model
            rows = [model(**row_of(event, now, RETENTION)) for event in chunk.values()]
            self._events.bulk_create(rows)
            self._deliver({row.id: (now, row.kept_until) for row in rows}, consumers)
            recorded += len(chunk)
        return recorded

    def _deliver(
        self, recorded: Mapping[str, tuple[datetime, datetime]], consumers: Iterable[str]
    ) -> None:
        """Let consumers have events, given when they were recorded and until when they are kept."""
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

    def subscribe(self, consumer: str, wanted: Collection[Subscription]) -> bool:
        """As in `Outbox`."""
        is_unsettled = False
        with self._errors():
            known = {
                (row.table_name, row.kind): row for row in self._consumers.filter(consumer=consumer)
            }
            for one in wanted:
                row, before = known.get((one.table, one.kind)), seconds_of(one.before)
                if row is None:
                    self._register(consumer, one)
                    is_unsettled = True
                    continue
                if row.before_seconds != before:
                    self._subscribed(consumer, one).update(before_seconds=before)
                if row.unsettled_from is not None:
                    is_unsettled |= not self._settle(consumer, one, row.unsettled_from)
        return is_unsettled

    def _register(self, consumer: str, wanted: Subscription) -> None:
        """Note a new subscription, and hand over the events that are kept."""
        # An error of a key: somebody else has just done so.
        with suppress(IntegrityError), transaction.atomic(using=self._using):
            self._consumers.create(
                consumer=consumer,
                table_name=wanted.table,
                kind=wanted.kind,
                before_seconds=seconds_of(wanted.before),
                unsettled_from=unsettled_from(database_now(connections[self._using])),
            )
            self._hand_over(consumer, wanted)

    def _settle(self, consumer: str, wanted: Subscription, start: datetime) -> bool:
        """Hand over events that were committed late; return whether they were the last."""
        this, end = self._subscribed(consumer, wanted), settles_at(start)
        # Once it is settled, deliveries that are done are no longer kept.
        is_unsettled = Exists(this.filter(unsettled_from__isnull=False))
        may_be_late = Q(recorded_at__range=(start, end))
        try:
            with store_errors(), transaction.atomic(using=self._using):
                is_last = database_now(connections[self._using]) >= end
                self._hand_over(consumer, wanted, may_be_late, is_unsettled)
                if is_last:
                    this.update(unsettled_from=None)
        except UnreachableStoreError:
            raise
        except (IntegrityError, TransientStoreError):
            return False  # another process does the same
        return is_last

    def _subscribed(self, consumer: str, wanted: Subscription) -> AnyQuerySet:
        return self._consumers.filter(consumer=consumer, table_name=wanted.table, kind=wanted.kind)

    def _hand_over(self, consumer: str, wanted: Subscription, *only: Q | Exists) -> None:
        """Let a consumer have the events that are kept, unless it has them."""
        held = self._deliveries.filter(consumer=consumer, event=OuterRef("id"))
        kept = self._events.filter(~Exists(held), *only, kind=wanted.kind)
        if wanted.table != EVERY_TABLE:
            kept = kept.filter(table_name=wanted.table)
        if wanted.before is not None:
            kept = kept.filter(before_seconds=seconds_of(wanted.before))
        found = kept.values_list("id", "recorded_at", "kept_until")
        self._deliver({event: (at, until) for event, at, until in found}, [consumer])

    def take(self, consumer: str, limit: int, hidden: timedelta) -> Sequence[Delivery]:
        """As in `Outbox`."""
        with self._errors():
            are_due = self._with_event.filter(consumer=consumer, next_at__lte=_started())
            rows = list(are_due.order_by("next_at", "event")[:limit])
            events = self._events_of(rows)
        taken, ahead = [], Ahead(hidden.total_seconds())
        try:
            with self._errors(), transaction.atomic(using=self._using):
                for row in rows:
                    if row.event not in events:
                        continue
                    one = Delivery(events[row.event].delivered(row.deliveries + 1), consumer)
                    is_due = self._of(one, row.deliveries).filter(next_at=row.next_at)
                    if is_due.update(next_at=ahead, deliveries=one.event.delivery):
                        taken.append(one)
        except UnreachableStoreError:
            raise
        except TransientStoreError:
            return []  # another worker is in the way
        return taken

    def done(self, deliveries: Collection[Delivery]) -> None:
        """As in `Outbox`."""
        unsettled = self._consumers.filter(
            consumer=OuterRef("consumer"), unsettled_from__lte=OuterRef("recorded_at")
        )
        with self._errors(), transaction.atomic(using=self._using):
            for one in deliveries:
                this = self._of(one, one.event.delivery)
                if not this.filter(~Exists(unsettled)).delete()[0]:
                    this.update(**_DONE)

    def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """As in `Outbox`."""
        next_at = None if rest is None else Ahead(rest.total_seconds())
        with self._errors():
            this = self._of(delivery, delivery.event.delivery)
            # Unless it was skipped meanwhile.
            this.filter(next_at__isnull=False).update(next_at=next_at, error=error[:LONGEST_ERROR])

    def _of(self, delivery: Delivery, number: int) -> AnyQuerySet:
        """The row that is meant, unless it has been delivered another number of times."""
        return self._deliveries.filter(
            event=delivery.event.id, consumer=delivery.consumer, deliveries=number
        )

    # For people

    def states(self) -> Sequence[ConsumerState]:
        """As in `Outbox`."""
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
        """As in `Outbox`."""
        latest = self._events.order_by("-recorded_at", "-id")
        if since is not None:
            latest = latest.filter(recorded_at__gte=since)
        with self._errors():
            rows = list(latest[:limit])
        return [Recorded(event_of(row), row.recorded_at) for row in reversed(rows)]

    def opened(
        self, limit: int, *, consumer: str | None = None, dead: bool | None = None
    ) -> Sequence[OpenDelivery]:
        """As in `Outbox`."""
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
        """As in `Outbox`."""
        now = DatabaseNow()
        # One that is due already stays so, or it would wait behind others.
        earliest = Case(
            When(next_at__lte=now, then=F("next_at")), default=now, output_field=InstantField()
        )
        with self._errors(), transaction.atomic(using=self._using):
            return sum(rows.update(next_at=earliest) for rows in self._chosen(consumer, events))

    def skip(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """As in `Outbox`."""
        with self._errors(), transaction.atomic(using=self._using):
            return sum(rows.update(**_DONE) for rows in self._chosen(consumer, events))

    def forget(self, consumer: str) -> int:
        """As in `Outbox`."""
        its, number = self._deliveries.filter(consumer=consumer), 0
        with self._errors():
            # First of all, so that nothing more is recorded for it.
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
        """The dead deliveries, or those of events; no row is in two of the querysets."""
        rows = self._deliveries.filter(_OPEN)
        if consumer is not None:
            rows = rows.filter(consumer=consumer)
        if events is None:
            yield rows.filter(next_at__isnull=True)
            return
        ids = iter(sorted(set(events)))
        while chunk := list(islice(ids, _CHUNK)):
            yield rows.filter(event__in=chunk)

    # Their rows

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
        """The deliveries whose events are kept, as all are that nobody has deleted by hand."""
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


def _started() -> Cutoff:
    """The instant at which a statement began: PostgreSQL searches no index for a later one."""
    return Cutoff(0, "instant", InstantField())
