"""The outbox in collections: `CollectionOutbox`, over PyMongo's asynchronous driver or Motor.

A delivery is taken by an update with the condition that it is still due, so that exactly one of any
number of workers gets it. Nothing is locked while a consumer is at work, and nothing here needs a
transaction.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final

from bson import ObjectId
from pymongo import DeleteOne, UpdateOne

from ttl_odm.beanie.policy.commands import RawCollection, as_datetime, first_batch
from ttl_odm.beanie.purge.errors import store_errors
from ttl_odm.beanie.time import formats
from ttl_odm.events.beanie.collections import (
    add_deliveries,
    collections_of,
    delivery_key,
    event_of,
    kept_at,
    prepare,
)
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
from ttl_odm.events.rows import DELIVERIES, Counts, before_of, seconds_of, states_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Sequence

    from ttl_odm.beanie.drivers import Database, Document, Filter
    from ttl_odm.events.expiry import Expiry

_HANDING_OVER: Final = timedelta(minutes=1)
"""The time after which another process hands events over, in place of one that died."""
_CHUNK: Final = 1000
_MOST_CONSUMERS: Final = 10_000
_UNSETTLED: Final[Document] = {"unsettled_from": {"$ne": None}}
_DONE: Final[Document] = {"$set": {"next_at": None, "error": None}}
"""Marks a delivery as done, but keeps it."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class CollectionOutbox:
    """A `ttl_odm.events.outbox.AsyncOutbox` in the collections of a database."""

    def __init__(self, database: Database) -> None:
        """Choose the database, of either driver; `subscribe` creates the collections."""
        self._collections = collections_of(database)
        self._events, self._consumers, self._deliveries = self._collections

    async def subscribe(self, consumer: str, subscriptions: Collection[Subscription]) -> bool:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        with store_errors():
            await prepare(self._collections)
            return any([await self._subscribe(consumer, one) for one in subscriptions])

    async def _subscribe(self, consumer: str, subscription: Subscription) -> bool:
        """Subscribe; return whether the consumer is unsettled after that."""
        now = await self._now()
        key = {"consumer": consumer, "table": subscription.table, "kind": subscription.kind}
        await self._consumers.update_one(
            {"_id": key},
            {
                "$set": {**key, "before_seconds": seconds_of(subscription.before)},
                "$setOnInsert": {"hand_over_at": _EPOCH, "unsettled_from": unsettled_from(now)},
            },
            upsert=True,
        )
        await self._hand_over_once(key, consumer, subscription)
        row = await self._consumers.find_one({"_id": key, **_UNSETTLED})
        if row is None:
            return False
        # While `hand_over_at` is set, another process hands over all events that are kept.
        return row["hand_over_at"] is not None or not await self._settle(row, subscription, now)

    async def _hand_over_once(
        self, key: Document, consumer: str, subscription: Subscription
    ) -> None:
        """Hand the kept events over, in one of several processes; if it dies, in the next one."""
        is_due = {"$lte": ["$hand_over_at", formats.server_now()]}
        is_behind = {"hand_over_at": {"$type": "date"}, "$expr": is_due}
        taken = await self._consumers.update_one(
            {"_id": key, **is_behind}, [{"$set": {"hand_over_at": _after(_HANDING_OVER)}}]
        )
        if taken.modified_count:
            await self._hand_over(consumer, subscription)
            await self._consumers.update_one({"_id": key}, {"$set": {"hand_over_at": None}})

    async def _hand_over(self, consumer: str, subscription: Subscription) -> None:
        """Add deliveries of the events that are kept to a new consumer."""
        async for events in self._kept(subscription, {}):
            await add_deliveries(self._collections, events, [consumer])

    async def _settle(self, row: Filter, subscription: Subscription, now: datetime) -> bool:
        """Hand over events that were committed late; return whether they were the last."""
        consumer, start = row["consumer"], row["unsettled_from"]
        end = settles_at(start)
        may_be_late: Document = {"recorded_at": {"$gte": start, "$lte": end}}
        async for events in self._kept(subscription, may_be_late):
            keys = [delivery_key(event["_id"], consumer) for event in events]
            delivered = self._deliveries.find({"_id": {"$in": keys}}, {"_id": 0, "event": 1})
            known = {delivery["event"] for delivery in await delivered.to_list(None)}
            late = [event for event in events if event["_id"] not in known]
            # Once the consumer is settled, done deliveries are no longer kept.
            if late and await self._consumers.find_one({"_id": row["_id"], **_UNSETTLED}):
                await add_deliveries(self._collections, late, [consumer])
        if now < end:
            return False
        settled = {"$set": {"unsettled_from": None}}
        await self._consumers.update_one({"_id": row["_id"]}, settled)
        return True

    async def _kept(
        self, subscription: Subscription, only: Document
    ) -> AsyncIterator[list[Document]]:
        """Yield the events that are kept for a subscription, a thousand at a time."""
        kept: Document = {"kind": subscription.kind, **kept_at(await self._now()), **only}
        if subscription.table != EVERY_TABLE:
            kept["table"] = subscription.table
        if subscription.before is not None:
            kept["before_seconds"] = seconds_of(subscription.before)
        cursor = self._events.find(kept, {"recorded_at": 1, "kept_until": 1})
        while events := await cursor.to_list(_CHUNK):
            yield events

    async def take(self, consumer: str, limit: int, hidden: timedelta) -> Sequence[Delivery]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        with store_errors():
            now = await self._now()
            is_due: Document = {"consumer": consumer, "next_at": {"$lte": now}, **kept_at(now)}
            due = self._deliveries.find(is_due).sort([("next_at", 1), ("event", 1)])
            rows = await due.limit(limit).to_list(None)
            if not rows:
                return []
            number = {"$add": ["$deliveries", 1]}
            mark = ObjectId()
            take = {"next_at": _after(hidden), "deliveries": number, "taken_by": mark}
            keys: Document = {"_id": {"$in": [row["_id"] for row in rows]}}
            taken = await self._deliveries.update_many({**keys, **is_due}, [{"$set": take}])
            if taken.modified_count < len(rows):  # another worker has taken some of them
                mine = self._deliveries.find({**keys, "taken_by": mark}, {"_id": 0, "event": 1})
                events_taken = {row["event"] for row in await mine.to_list(None)}
                rows = [row for row in rows if row["event"] in events_taken]
            events = await self._events_of(rows)
        return [
            Delivery(events[row["event"]].delivered(row["deliveries"] + 1), consumer)
            for row in rows
            if row["event"] in events
        ]

    async def done(self, deliveries: Collection[Delivery]) -> None:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        with store_errors():
            consumers = {"$in": list({delivery.consumer for delivery in deliveries})}
            unsettled = self._consumers.find({"consumer": consumers, **_UNSETTLED})
            starts: dict[str, datetime] = {}
            for row in await unsettled.to_list(None):
                start = starts.get(row["consumer"], row["unsettled_from"])
                starts[row["consumer"]] = min(start, row["unsettled_from"])
            changes: list[DeleteOne | UpdateOne] = []
            for delivery in deliveries:
                condition, start = _is(delivery), starts.get(delivery.consumer)
                if start is not None:
                    is_kept = {**condition, "recorded_at": {"$gte": start}}
                    changes.append(UpdateOne(is_kept, _DONE))
                    condition["recorded_at"] = {"$lt": start}
                changes.append(DeleteOne(condition))
            await self._deliveries.bulk_write(changes, ordered=False)

    async def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        note = {
            "next_at": None if rest is None else _after(rest),
            "error": {"$literal": error[:LONGEST_ERROR]},
        }
        with store_errors():
            condition = _is(delivery)
            condition["next_at"] = {"$ne": None}  # it wasn't skipped meanwhile
            await self._deliveries.update_one(condition, [{"$set": note}])

    async def states(self) -> Sequence[ConsumerState]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        with store_errors():
            now = await self._now()
            subscribed = await self._consumers.find().sort("_id", 1).to_list(None)
            counted = await first_batch(self._deliveries, _counting(now))
        subscriptions = [
            (
                row["consumer"],
                Subscription(row["table"], row["kind"], before_of(row["before_seconds"])),
            )
            for row in subscribed
        ]
        return states_of(subscriptions, {row.pop("_id"): Counts(**row) for row in counted}, now)

    async def recorded(self, limit: int, *, since: datetime | None = None) -> Sequence[Recorded]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        with store_errors():
            condition: Document = kept_at(await self._now())
            if since is not None:
                condition["recorded_at"] = {"$gte": since}
            latest = self._events.find(condition).sort([("recorded_at", -1), ("_id", -1)])
            rows = await latest.limit(limit).to_list(None)
        return [Recorded(event_of(row), row["recorded_at"]) for row in reversed(rows)]

    async def opened(
        self, limit: int, *, consumer: str | None = None, dead: bool | None = None
    ) -> Sequence[OpenDelivery]:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        with store_errors():
            condition: Document = {**kept_at(await self._now()), **_state(dead=dead)}
            if consumer is not None:
                condition["consumer"] = consumer
            opened = self._deliveries.find(condition)
            opened = opened.sort([("recorded_at", 1), ("event", 1), ("consumer", 1)]).limit(limit)
            rows = await opened.to_list(None)
            events = await self._events_of(rows)
        return [
            OpenDelivery(
                events[row["event"]].delivered(row["deliveries"]),
                row["consumer"],
                row["next_at"],
                row["error"],
            )
            for row in rows
            if row["event"] in events
        ]

    async def retry(
        self, consumer: str | None = None, events: Collection[str] | None = None
    ) -> int:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        with store_errors():
            at_once = [{"$set": {"next_at": formats.server_now()}}]
            changed = await self._deliveries.update_many(_chosen(consumer, events), at_once)
        return int(changed.matched_count)

    async def skip(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        with store_errors():
            changed = await self._deliveries.update_many(_chosen(consumer, events), _DONE)
        return int(changed.modified_count)

    async def forget(self, consumer: str) -> int:
        """See `Outbox` in `ttl_odm.events.outbox`."""
        its = {"consumer": consumer}
        with store_errors():
            # First, so that nothing more is recorded for it.
            await self._consumers.delete_many(its)
            is_open = {**its, **_state(dead=None), **kept_at(await self._now())}
            deleted = await self._deliveries.delete_many(is_open)
            await self._deliveries.delete_many(its)
        return int(deleted.deleted_count)

    async def _now(self) -> datetime:
        return as_datetime((await RawCollection(self._events).server()).now)

    async def _events_of(self, deliveries: Iterable[Filter]) -> dict[str, Expiry]:
        """Read the events of some deliveries, by id."""
        ids = list({delivery["event"] for delivery in deliveries})
        rows = await self._events.find({"_id": {"$in": ids}}).to_list(None) if ids else []
        return {row["_id"]: event_of(row) for row in rows}


def _after(rest: timedelta) -> Document:
    """The expression for an instant so long after the server's present one."""
    return {"$add": [formats.server_now(), rest // timedelta(milliseconds=1)]}


def _is(delivery: Delivery) -> Document:
    """The filter for a delivery, unless it was delivered again since."""
    key, number = delivery_key(delivery.event.id, delivery.consumer), delivery.event.delivery
    return {"_id": key, "deliveries": number}


def _chosen(consumer: str | None, events: Collection[str] | None) -> Document:
    """The filter for the deliveries that a tool retries or skips: dead ones, or those of events."""
    chosen = _state(dead=True if events is None else None)
    if events is not None:
        chosen["event"] = {"$in": [*events]}
    return chosen if consumer is None else {**chosen, "consumer": consumer}


def _state(*, dead: bool | None) -> Document:
    """The filter for dead deliveries, or waiting ones; for None, for both."""
    if dead is None:
        return {"$or": [_state(dead=True), _state(dead=False)]}
    return {"next_at": None, "error": {"$ne": None}} if dead else {"next_at": {"$ne": None}}


def _counting(now: datetime) -> Document:
    """The command that counts the deliveries of each consumer."""
    is_pending = {"$ne": ["$next_at", None]}
    is_open = {"$or": [is_pending, {"$ne": ["$error", None]}]}
    is_retried = {"$and": [is_pending, {"$gt": ["$deliveries", 0]}]}

    def number(condition: Document) -> Document:
        return {"$sum": {"$cond": [condition, 1, 0]}}

    group = {
        "_id": "$consumer",
        "kept": number(is_open),
        "pending": number(is_pending),
        "retried": number(is_retried),
        "oldest": {"$min": {"$cond": [is_pending, "$recorded_at", None]}},  # it ignores nulls
    }
    pipeline = [{"$match": kept_at(now)}, {"$group": group}]
    return {
        "aggregate": DELIVERIES,
        "pipeline": pipeline,
        "cursor": {"batchSize": _MOST_CONSUMERS},
    }
