"""The collections that keep events and what consumers haven't dealt with.

``ttl_odm_events`` has a document for each event: the outbox. ``ttl_odm_consumers`` has the
consumers, with the collections whose events they get. ``ttl_odm_deliveries`` has a document for
each event that a consumer hasn't dealt with yet. They are in the same database as the documents
that have events. They aren't Beanie classes, so an application needn't pass them to `init_beanie`.

Events and deliveries expire at ``kept_until``. MongoDB deletes them by TTL indexes, a minute or
more too late; until then `kept_at` hides them. This module must not know which documents have
events, nor how events are delivered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
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

_AWARE: Final[CodecOptions[Document]] = CodecOptions(tz_aware=True)
_MAJORITY: Final = WriteConcern("majority")
"""So that a failover loses no acknowledged write."""
_CHUNK: Final = 1000
"""Deliveries that are sent to the server at once."""


class EventCollections(NamedTuple):
    """The collections of a database, of either driver, without the gate."""

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


_prepared: WeakValueDictionary[tuple[int, str], object] = WeakValueDictionary()
"""The clients whose databases have the indexes, by id and name of the database; not in a set,
because a client's hash changes when it connects."""


async def prepare(collections: EventCollections) -> None:
    """Create the collections and their indexes, once for each client and database.

    Not during a transaction that uses them: it can't read collections created after it began.
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
    """Return the condition that an event, or a delivery, hasn't expired; `now` is the server's."""
    return {"kept_until": {"$gt": now}}


def document_of(event: Expiry, now: datetime) -> Document:
    """Return the document of an event that is recorded now."""
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
    """Return the event of a document of the outbox."""
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
    """Return the key of a delivery's document."""
    return {"event": event, "consumer": consumer}


async def add_deliveries(
    collections: EventCollections,
    events: Iterable[Filter],
    consumers: Collection_[str],
    session: Session = None,
) -> None:
    """Add deliveries of events, given as documents, to consumers that don't have them yet."""
    added = []
    for event in events:
        for consumer in consumers:
            key = delivery_key(event["_id"], consumer)
            delivery = {
                **key,
                "deliveries": 0,
                "next_at": event["recorded_at"],
                "error": None,
                "recorded_at": event["recorded_at"],
                "kept_until": event["kept_until"],
            }
            added.append(UpdateOne({"_id": key}, {"$setOnInsert": delivery}, upsert=True))
    for start in range(0, len(added), _CHUNK):
        chunk = added[start : start + _CHUNK]
        await collections.deliveries.bulk_write(chunk, ordered=False, session=session)


async def consumers_of(collections: EventCollections, recorded: Subscription) -> list[str]:
    """Return who gets events: the consumers in the database, and this process's own handlers.

    It doesn't use the recording session, whose transaction may have begun before a consumer
    subscribed.
    """
    seconds = [None, seconds_of(recorded.before)]
    tables = [recorded.table, EVERY_TABLE]
    known = {"table": {"$in": tables}, "kind": recorded.kind, "before_seconds": {"$in": seconds}}
    stored = await collections.consumers.find(known).to_list(None)
    return sorted({*(row["consumer"] for row in stored), *consumers_here(recorded)})


async def insert_events(
    collections: EventCollections,
    documents: Iterable[Document],
    recorded: Subscription,
    session: Session,
) -> int:
    """Record events that aren't recorded yet, with their deliveries; return how many they were.

    It runs in the transaction of the session. If two transactions record the same event, the server
    rolls one of them back.

    Args:
        collections: Where they are recorded.
        documents: The events, as `document_of` returns them.
        recorded: Their collection, kind and `before`.
        session: The session.
    """
    new = {document["_id"]: document for document in documents}
    ids = {"_id": {"$in": [*new]}}
    for known in await collections.events.find(ids, {"_id": 1}, session=session).to_list(None):
        del new[known["_id"]]
    if new:
        await collections.events.insert_many([*new.values()], session=session)
        consumers = await consumers_of(collections, recorded)
        await add_deliveries(collections, new.values(), consumers, session)
    return len(new)
