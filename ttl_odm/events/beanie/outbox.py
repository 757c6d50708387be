"""The outbox in collections: `CollectionOutbox`, over PyMongo's asynchronous driver or Motor.

A delivery is taken by an update that asks whether it is still due, so that of any number of workers
one gets it. Nothing is held while a consumer is at work, and nothing here needs a
transaction.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

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
from ttl_odm.events.rows import DELIVERIES, Counts, before_of, seconds_of, states_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable, Sequence

    from ttl_odm.beanie.drivers import Database, Document, Filter
    from ttl_odm.events.expiry import Expiry

_HANDING_OVER: Final = timedelta(minutes=1)
"""After how long another process hands events over, instead of one that died."""
_CHUNK: Final = 1000
_MOST_CONSUMERS: Final = 10_000
_UNSETTLED: Final[dict[str, Any]] = {"unsettled_from": {"$ne": None}}
_DONE: Final[dict[str, Any]] = {"$set": {"next_at": None, "error": None}}
"""Makes a delivery one that is done, but kept."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class CollectionOutbox:
    """A `ttl_odm.events.outbox.AsyncOutbox` in the collections of a database."""

    def __init__(self, database: Database) -> None:
        """Name the database, of either driver; nothing is created before somebody subscribes."""
        self._in = collections_of(database)

    async def subscribe(self, consumer: str, wanted: Collection[Subscription]) -> bool:
        """As in `AsyncOutbox`."""
        with store_errors():
            await prepare(self._in)
            return any([await self._subscribe(consumer, one) for one in wanted])

    async def _subscribe(self, consumer: str, wanted: Subscription) -> bool:
        """Subscribe; return whether the consumer is unsettled after that."""
        now = await self._now()
        key = {"consumer": consumer, "table": wanted.table, "kind": wanted.kind}
        await self._in.consumers.update_one(
            {"_id": key},
            {
                "$set": {**key, "before_seconds": seconds_of(wanted.before)},
                "$setOnInsert": {"hand_over_at": _EPOCH, "unsettled_from": unsettled_from(now)},
            },
            upsert=True,
        )
        await self._hand_over_once(key, consumer, wanted)
        row = await self._in.consumers.find_one({"_id": key, **_UNSETTLED})
        if row is None:
            return False
        # Until then another process hands over all that is kept.
        return row["hand_over_at"] is not None or not await self._settle(row, wanted, now)

    async def _hand_over_once(self, key: Document, consumer: str, wanted: Subscription) -> None:
        """Hand over what is kept, in one of several processes; if it dies, in the next."""
        is_due = {"$lte": ["$hand_over_at", formats.server_now()]}
        is_behind = {"hand_over_at": {"$type": "date"}, "$expr": is_due}
        taken = await self._in.consumers.update_one(
            {"_id": key, **is_behind}, [{"$set": {"hand_over_at": _after(_HANDING_OVER)}}]
        )
        if taken.modified_count:
            await self._hand_over(consumer, wanted)
            await self._in.consumers.update_one({"_id": key}, {"$set": {"hand_over_at": None}})

    async def _hand_over(self, consumer: str, wanted: Subscription) -> None:
        """Let a new consumer have the events that are kept."""
        async for events in self._kept(wanted, {}):
            await add_deliveries(self._in, events, [consumer])

    async def _settle(self, row: Filter, wanted: Subscription, now: datetime) -> bool:
        """Hand over events that were committed late; return whether they were the last."""
        consumer, start = row["consumer"], row["unsettled_from"]
        end = settles_at(start)
        may_be_late: Document = {"recorded_at": {"$gte": start, "$lte": end}}
        async for events in self._kept(wanted, may_be_late):
            keys = [delivery_key(event["_id"], consumer) for event in events]
            held = self._in.deliveries.find({"_id": {"$in": keys}}, {"_id": 0, "event": 1})
            known = {one["event"] for one in await held.to_list(None)}
            late = [event for event in events if event["_id"] not in known]
            # Once it is settled, deliveries that are done are no longer kept.
            if late and await self._in.consumers.find_one({"_id": row["_id"], **_UNSETTLED}):
                await add_deliveries(self._in, late, [consumer])
        if now < end:
            return False
        settled = {"$set": {"unsettled_from": None}}
        await self._in.consumers.update_one({"_id": row["_id"]}, settled)
        return True

    async def _kept(self, wanted: Subscription, only: Document) -> AsyncIterator[list[Document]]:
        """Yield the events that are kept for a subscription, a thousand at a time."""
        kept: Document = {"kind": wanted.kind, **kept_at(await self._now()), **only}
        if wanted.table != EVERY_TABLE:
            kept["table"] = wanted.table
        if wanted.before is not None:
            kept["before_seconds"] = seconds_of(wanted.before)
        cursor = self._in.events.find(kept, {"recorded_at": 1, "kept_until": 1})
        while events := await cursor.to_list(_CHUNK):
            yield events

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
        with store_errors():
            consumers = {"$in": list({one.consumer for one in deliveries})}
            unsettled = self._in.consumers.find({"consumer": consumers, **_UNSETTLED})
            starts: dict[str, datetime] = {}
            for row in await unsettled.to_list(None):
                start = starts.get(row["consumer"], row["unsettled_from"])
                starts[row["consumer"]] = min(start, row["unsettled_from"])
            changes: list[DeleteOne | UpdateOne] = []
            for one in deliveries:
                this, start = _this(one, one.event.delivery), starts.get(one.consumer)
                if start is not None:
                    changes.append(UpdateOne({**this, "recorded_at": {"$gte": start}}, _DONE))
                    this["recorded_at"] = {"$lt": start}
                changes.append(DeleteOne(this))
            await self._in.deliveries.bulk_write(changes, ordered=False)

    async def failed(self, delivery: Delivery, error: str, rest: timedelta | None) -> None:
        """As in `AsyncOutbox`."""
        note = {
            "next_at": None if rest is None else _after(rest),
            "error": {"$literal": error[:LONGEST_ERROR]},
        }
        with store_errors():
            is_this = _this(delivery, delivery.event.delivery)
            is_this["next_at"] = {"$ne": None}  # it wasn't skipped meanwhile
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
            wanted: Document = {**kept_at(await self._now()), **_state(dead=dead)}
            if consumer is not None:
                wanted["consumer"] = consumer
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
            changed = await self._in.deliveries.update_many(_chosen(consumer, events), _DONE)
        return int(changed.modified_count)

    async def forget(self, consumer: str) -> int:
        """As in `AsyncOutbox`."""
        its = {"consumer": consumer}
        with store_errors():
            # First of all, so that nothing more is recorded for it.
            await self._in.consumers.delete_many(its)
            is_open = {**its, **_state(dead=None), **kept_at(await self._now())}
            deleted = await self._in.deliveries.delete_many(is_open)
            await self._in.deliveries.delete_many(its)
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
    chosen = _state(dead=True if events is None else None)
    if events is not None:
        chosen["event"] = {"$in": [*events]}
    return chosen if consumer is None else {**chosen, "consumer": consumer}


def _state(*, dead: bool | None) -> Document:
    """Return the filter for deliveries that are dead, or that wait; for None, for all but done."""
    if dead is None:
        return {"$or": [_state(dead=True), _state(dead=False)]}
    return {"next_at": None, "error": {"$ne": None}} if dead else {"next_at": {"$ne": None}}


def _counting(now: datetime) -> Document:
    """Return the command that counts the deliveries of each consumer."""
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
        "oldest": {"$min": {"$cond": [is_pending, "$recorded_at", None]}},  # which passes nulls by
    }
    pipeline = [{"$match": kept_at(now)}, {"$group": group}]
    return {
        "aggregate": DELIVERIES,
        "pipeline": pipeline,
        "cursor": {"batchSize": _MOST_CONSUMERS},
    }
