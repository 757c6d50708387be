"""The outbox in collections: `CollectionOutbox`, over PyMongo's asynchronous driver or Motor.

A delivery is taken by an update that asks whether it is still due, so that of any number of workers
one gets it. Nothing is held while a consumer is at work, and nothing here needs a
transaction.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final

from bson import ObjectId
from pymongo import DeleteOne

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
    from collections.abc import Collection, Iterable, Sequence

    from ttl_odm.beanie.drivers import Database, Document, Filter
    from ttl_odm.events.expiry import Expiry

_HANDING_OVER: Final = timedelta(minutes=1)
"""After how long another process hands events over, instead of one that died."""
_CHUNK: Final = 1000
_MOST_CONSUMERS: Final = 10_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class CollectionOutbox:
    """A `ttl_odm.events.outbox.AsyncOutbox` in the collections of a database."""

    def __init__(self, database: Database) -> None:
        """Name the database, of either driver; nothing is created before somebody subscribes."""
        self._in = collections_of(database)

    async def subscribe(self, consumer: str, wanted: Collection[Subscription]) -> None:
        """As in `AsyncOutbox`."""
        with store_errors():
            await prepare(self._in)
            for one in wanted:
                await self._subscribe(consumer, one)

    async def _subscribe(self, consumer: str, wanted: Subscription) -> None:
        key = {"consumer": consumer, "table": wanted.table, "kind": wanted.kind}
        await self._in.consumers.update_one(
            {"_id": key},
            {
                "$set": {**key, "before_seconds": seconds_of(wanted.before)},
                "$setOnInsert": {"hand_over_at": _EPOCH},
            },
            upsert=True,
        )
        # Of several processes one hands the events over; if it dies, the next one that comes.
        now = formats.server_now()
        is_behind = {"hand_over_at": {"$type": "date"}, "$expr": {"$lte": ["$hand_over_at", now]}}
        taken = await self._in.consumers.update_one(
            {"_id": key, **is_behind}, [{"$set": {"hand_over_at": _after(_HANDING_OVER)}}]
        )
        if taken.modified_count:
            await self._hand_over(consumer, wanted)
            await self._in.consumers.update_one({"_id": key}, {"$set": {"hand_over_at": None}})

    async def _hand_over(self, consumer: str, wanted: Subscription) -> None:
        """Let a new consumer have the events that are kept."""
        kept: Document = {"kind": wanted.kind, **kept_at(await self._now())}
        if wanted.table != EVERY_TABLE:
            kept["table"] = wanted.table
        if wanted.before is not None:
            kept["before_seconds"] = seconds_of(wanted.before)
        fields = {"recorded_at": 1, "kept_until": 1}
        events: list[Document] = []
        async for event in self._in.events.find(kept, fields):
            events.append(event)
            if len(events) == _CHUNK:
                await add_deliveries(self._in, events, [consumer])
                events.clear()
        await add_deliveries(self._in, events, [consumer])

    async def take(self, consumer: str, limit: int, hidden: timedelta) -> Sequence[Delivery]:
        """As in `AsyncOutbox`."""
        with store_errors():
            now = await self._now()
            is_due: Document = {"consumer": consumer, "next_at": {"$lte": now}, **kept_at(now)}
            due = self._in.deliveries.find(is_due).sort([("next_at", 1), ("event", 1)])
            found = await due.limit(limit).to_list(None)
            if not found:
                return []
            number = {"$add": ["$deliveries", 1]}
            mark = ObjectId()
            taking = {"next_at": _after(hidden), "deliveries": number, "taken_by": mark}
            keys: Document = {"_id": {"$in": [one["_id"] for one in found]}}
            taken = await self._in.deliveries.update_many({**keys, **is_due}, [{"$set": taking}])
            if taken.modified_count < len(found):  # somebody else has been faster
                mine = self._in.deliveries.find({**keys, "taken_by": mark}, {"_id": 0, "event": 1})
                events_taken = {one["event"] for one in await mine.to_list(None)}
                found = [one for one in found if one["event"] in events_taken]
            events = await self._events(found)
        return [
            Delivery(events[one["event"]].delivered(one["deliveries"] + 1), consumer)
            for one in found
            if one["event"] in events
        ]

    async def done(self, deliveries: Collection[Delivery]) -> None:
        """As in `AsyncOutbox`."""
        removals = [DeleteOne(_this(one, one.event.delivery)) for one in deliveries]
        with store_errors():
            await self._in.deliveries.bulk_write(removals, ordered=False)

    async def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """As in `AsyncOutbox`."""
        note = {
            "next_at": None if rest is None else _after(rest),
            "error": {"$literal": error[:LONGEST_ERROR]},
        }
        with store_errors():
            is_this = _this(delivery, delivery.event.delivery)
            await self._in.deliveries.update_one(is_this, [{"$set": note}])

    async def states(self) -> Sequence[ConsumerState]:
        """As in `AsyncOutbox`."""
        with store_errors():
            now = await self._now()
            subscribed = await self._in.consumers.find().sort("_id", 1).to_list(None)
            counted = await first_batch(self._in.deliveries, _counting(now))
        return states_of(
            [(row["consumer"], _subscription_of(row)) for row in subscribed],
            {row.pop("_id"): Counts(**row) for row in counted},
            now,
        )

    async def recorded(self, limit: int, *, since: datetime | None = None) -> Sequence[Recorded]:
        """As in `AsyncOutbox`."""
        with store_errors():
            wanted: Document = kept_at(await self._now())
            if since is not None:
                wanted["recorded_at"] = {"$gte": since}
            latest = self._in.events.find(wanted).sort([("recorded_at", -1), ("_id", -1)])
            found = await latest.limit(limit).to_list(None)
        return [Recorded(event_of(one), one["recorded_at"]) for one in reversed(found)]

    async def opened(
        self, limit: int, *, consumer: str | None = None, dead: bool | None = None
    ) -> Sequence[OpenDelivery]:
        """As in `AsyncOutbox`."""
        with store_errors():
            wanted: Document = kept_at(await self._now())
            if consumer is not None:
                wanted["consumer"] = consumer
            if dead is not None:
                wanted["next_at"] = None if dead else {"$ne": None}
            opened = self._in.deliveries.find(wanted)
            opened = opened.sort([("recorded_at", 1), ("event", 1), ("consumer", 1)]).limit(limit)
            found = await opened.to_list(None)
            events = await self._events(found)
        return [
            OpenDelivery(
                events[one["event"]].delivered(one["deliveries"]),
                one["consumer"],
                one["next_at"],
                one["error"],
            )
            for one in found
            if one["event"] in events
        ]

    async def retry(
        self, consumer: str | None = None, events: Collection[str] | None = None
    ) -> int:
        """As in `AsyncOutbox`."""
        with store_errors():
            at_once = [{"$set": {"next_at": formats.server_now()}}]
            changed = await self._in.deliveries.update_many(_chosen(consumer, events), at_once)
        return int(changed.matched_count)

    async def skip(self, consumer: str | None = None, events: Collection[str] | None = None) -> int:
        """As in `AsyncOutbox`."""
        with store_errors():
            deleted = await self._in.deliveries.delete_many(_chosen(consumer, events))
        return int(deleted.deleted_count)

    async def forget(self, consumer: str) -> int:
        """As in `AsyncOutbox`."""
        own = {"consumer": consumer}
        with store_errors():
            # First of all, so that nothing more is recorded for it.
            await self._in.consumers.delete_many(own)
            deleted = await self._in.deliveries.delete_many(own)
        return int(deleted.deleted_count)

    async def _now(self) -> datetime:
        return as_datetime((await RawCollection(self._in.events).server()).now)

    async def _events(self, deliveries: Iterable[Filter]) -> dict[str, Expiry]:
        """Return the events of some deliveries by their ids."""
        ids = list({one["event"] for one in deliveries})
        found = await self._in.events.find({"_id": {"$in": ids}}).to_list(None) if ids else []
        return {one["_id"]: event_of(one) for one in found}


def _after(rest: timedelta) -> Document:
    """Return the expression for an instant so long after the server's present one."""
    return {"$add": [formats.server_now(), rest // timedelta(milliseconds=1)]}


def _this(delivery: Delivery, number: int) -> Document:
    """Return the filter for a delivery, unless it has been delivered another number of times."""
    return {"_id": delivery_key(delivery.event.id, delivery.consumer), "deliveries": number}


def _subscription_of(row: Filter) -> Subscription:
    return Subscription(row["table"], row["kind"], before_of(row["before_seconds"]))


def _chosen(consumer: str | None, events: Collection[str] | None) -> Document:
    """Return the filter for what a tool retries or skips: dead deliveries, or those of events."""
    chosen: Document = {"next_at": None} if events is None else {"event": {"$in": [*events]}}
    return chosen if consumer is None else {**chosen, "consumer": consumer}


def _counting(now: datetime) -> Document:
    """Return the command that counts the deliveries of each consumer."""
    is_pending = {"$ne": ["$next_at", None]}
    is_retried = {"$and": [is_pending, {"$gt": ["$deliveries", 0]}]}

    def number(condition: Document) -> Document:
        return {"$sum": {"$cond": [condition, 1, 0]}}

    group = {
        "_id": "$consumer",
        "kept": {"$sum": 1},
        "pending": number(is_pending),
        "retried": number(is_retried),
        "oldest": {"$min": {"$cond": [is_pending, "$recorded_at", None]}},  # which passes nulls by
    }
    pipeline = [{"$match": kept_at(now)}, {"$group": group}]
    return {
        "aggregate": DELIVERIES,
        "pipeline": pipeline,
        "cursor": {"batchSize": _MOST_CONSUMERS},
    }
