"""The collections that keep events and what consumers haven't dealt with.

``ttl_odm_events`` has a document for each event: the outbox. ``ttl_odm_consumers`` has who is told
of which collection. ``ttl_odm_deliveries`` has a document for each event that a consumer hasn't
dealt with yet. They are in the database of the documents that have events, and no Beanie classes,
so that an application need not pass them to `init_beanie`.

Events and deliveries have a ttl of their own: ``kept_until`` is its end. MongoDB deletes them by
TTL indexes, up to a minute or more too late: until then `kept_at` hides them. This module must not
know which documents have events, nor how these are delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

from bson.codec_options import CodecOptions
from pymongo import IndexModel, ReadPreference, UpdateOne, WriteConcern

from ttl_odm.events.expiry import Expiry
from ttl_odm.events.handlers import consumers_here
from ttl_odm.events.outbox import EVERY_TABLE, Subscription
from ttl_odm.events.rows import (
    CONSUMERS,
    DELIVERIES,
    EVENTS,
    before_of,
    kept_until,
    seconds_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection as Collection_
    from collections.abc import Iterable
    from datetime import datetime

    from ttl_odm.beanie.drivers import Collection, Database, Document, Filter, Session

_AWARE: Final[CodecOptions[Any]] = CodecOptions(tz_aware=True)
_MAJORITY: Final = WriteConcern("majority")
"""So that a failover takes nothing back that was noted."""
_CHUNK: Final = 1000
"""Deliveries that are sent at once."""


class EventCollections(NamedTuple):
    """The collections of a database, of either driver, past the gate."""

    events: Collection
    consumers: Collection
    deliveries: Collection


def collections_of(database: Database) -> EventCollections:
    """Return the collections in a database, gated or not; see `prepare`."""
    plain = database.client[database.name]
    return EventCollections(
        *(
            plain.get_collection(
                name,
                codec_options=_AWARE,
                read_preference=ReadPreference.PRIMARY,
                write_concern=_MAJORITY,
            )
            for name in (EVENTS, CONSUMERS, DELIVERIES)
        )
    )


_prepared: WeakValueDictionary[tuple[int, str], Any] = WeakValueDictionary()
"""The clients whose databases have the indexes, by their ids: a client's hash changes when it
connects."""


async def prepare(collections: EventCollections) -> None:
    """Create the collections and their indexes, once for each client and database.

    Not while a transaction is to use them that has begun: it couldn't read them any more.
    """
    database = collections.events.database
    place = id(database.client), database.name
    if _prepared.get(place) is database.client:
        return
    expiring = IndexModel("kept_until", expireAfterSeconds=0)
    due = IndexModel([("consumer", 1), ("next_at", 1), ("event", 1)])
    await collections.events.create_indexes([expiring, IndexModel("recorded_at")])
    await collections.deliveries.create_indexes([expiring, due])
    _prepared[place] = database.client


def kept_at(now: datetime) -> Document:
    """Return the condition that what was recorded hasn't expired, at the server's instant."""
    return {"kept_until": {"$gt": now}}


def document_of(event: Expiry, now: datetime) -> Document:
    """Return the document that keeps an event which is recorded at an instant."""
    return {
        "_id": event.id,
        "table": event.table,
        "kind": event.kind,
        "before_seconds": seconds_of(event.before),
        "key": [*event.key],
        "row": dict(event.row),
        "last_modified": event.last_modified,
        "expires_at": event.expires_at,
        "recorded_at": now,
        "kept_until": kept_until(event, now),
    }


def event_of(document: Filter) -> Expiry:
    """Return the event that a document keeps."""
    return Expiry(
        document["_id"],
        document["table"],
        tuple(document["key"]),
        document["row"],
        document["last_modified"],
        document["expires_at"],
        document["kind"],
        before_of(document["before_seconds"]),
    )


def delivery_key(event: str, consumer: str) -> Document:
    """Return the key of the document that keeps a delivery."""
    return {"event": event, "consumer": consumer}


async def add_deliveries(
    collections: EventCollections,
    events: Iterable[Filter],
    consumers: Collection_[str],
    session: Session = None,
) -> None:
    """Let consumers have events, given as documents, unless they have them."""
    added = []
    for event in events:
        for consumer in consumers:
            key = delivery_key(event["_id"], consumer)
            delivery = {
                **key,
                "deliveries": 0,
                "next_at": event["recorded_at"],  # null: it is dead
                "error": None,
                "recorded_at": event["recorded_at"],
                "kept_until": event["kept_until"],
            }
            added.append(UpdateOne({"_id": key}, {"$setOnInsert": delivery}, upsert=True))
    for start in range(0, len(added), _CHUNK):
        chunk = added[start : start + _CHUNK]
        await collections.deliveries.bulk_write(chunk, ordered=False, session=session)


async def consumers_of(collections: EventCollections, wanted: Subscription) -> list[str]:
    """Who is told of events: those that the database knows, and this process's own handlers.

    Not in the session of those who record them, whose transaction may have begun before a consumer
    came.
    """
    seconds = [None, seconds_of(wanted.before)]
    tables = [wanted.table, EVERY_TABLE]
    known = {"table": {"$in": tables}, "kind": wanted.kind, "before_seconds": {"$in": seconds}}
    stored = await collections.consumers.find(known).to_list(None)
    return sorted({*(row["consumer"] for row in stored), *consumers_here(wanted)})


async def insert_events(
    collections: EventCollections,
    documents: Iterable[Document],
    wanted: Subscription,
    session: Session,
) -> int:
    """Record events, as `document_of` makes them, that aren't recorded yet; return how many.

    In a transaction: events come with their deliveries. If another one records the same event, one
    of the two is rolled back.
    """
    new = {document["_id"]: document for document in documents}
    ids = {"_id": {"$in": [*new]}}
    for known in await collections.events.find(ids, {"_id": 1}, session=session).to_list(None):
        del new[known["_id"]]
    if new:
        await collections.events.insert_many([*new.values()], session=session)
        consumers = await consumers_of(collections, wanted)
        await add_deliveries(collections, new.values(), consumers, session)
    return len(new)
