"""The collections that keep events and what consumers haven't dealt with.

``ttl_odm_events`` has a document for each event: the outbox. ``ttl_odm_consumers`` has who is told
of which collection. ``ttl_odm_deliveries`` has a document for each event that a consumer hasn't
dealt with yet. They are in the database of the documents that have events, and no Beanie classes,
so that an application need not pass them to `init_beanie`.

Events and deliveries have a ttl of their own. MongoDB deletes them by TTL indexes, up to a minute
or more too late: until then `kept_at` hides them. This module must not know how events are
recorded or delivered.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

from bson.codec_options import CodecOptions
from pymongo import IndexModel, ReadPreference, UpdateOne, WriteConcern

from ttl_odm.events.expiry import Expiry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from ttl_odm.beanie.drivers import Collection, Database, Document, Filter, Session

EVENTS: Final = "ttl_odm_events"
CONSUMERS: Final = "ttl_odm_consumers"
DELIVERIES: Final = "ttl_odm_deliveries"

RETENTION: Final = timedelta(days=7)
"""For how long an event is kept from its recording on, whether it was delivered or not."""

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

    Not in a transaction, which can't create an index on a collection that is there.
    """
    database = collections.events.database
    place = id(database.client), database.name
    if _prepared.get(place) is database.client:
        return
    expiring = IndexModel("recorded_at", expireAfterSeconds=int(RETENTION.total_seconds()))
    due = IndexModel([("consumer", 1), ("next_at", 1), ("event", 1)])
    await collections.events.create_indexes([expiring])
    await collections.deliveries.create_indexes([expiring, due])
    _prepared[place] = database.client


def kept_at(now: datetime) -> Document:
    """Return the condition that what was recorded hasn't expired, at the server's instant."""
    return {"recorded_at": {"$gt": now - RETENTION}}


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
    }


def event_of(document: Filter) -> Expiry:
    """Return the event that a document keeps."""
    before = document["before_seconds"]
    return Expiry(
        document["_id"],
        document["table"],
        tuple(document["key"]),
        document["row"],
        document["last_modified"],
        document["expires_at"],
        document["kind"],
        None if before is None else timedelta(seconds=before),
    )


def seconds_of(before: timedelta | None) -> int | None:
    """Return what the collections have for how long before its end a document is warned of."""
    return None if before is None else int(before.total_seconds())


def delivery_key(event: str, consumer: str) -> Document:
    """Return the key of the document that keeps a delivery."""
    return {"event": event, "consumer": consumer}


async def add_deliveries(
    collections: EventCollections,
    recorded: Mapping[str, datetime],
    consumers: Iterable[str],
    session: Session = None,
) -> None:
    """Let consumers have events, which were recorded at these instants, unless they have them."""
    added = []
    for consumer in consumers:
        for event, instant in recorded.items():
            key = delivery_key(event, consumer)
            delivery = {
                **key,
                "deliveries": 0,
                "next_at": instant,  # null: it is dead
                "error": None,
                "recorded_at": instant,
            }
            added.append(UpdateOne({"_id": key}, {"$setOnInsert": delivery}, upsert=True))
    for start in range(0, len(added), _CHUNK):
        chunk = added[start : start + _CHUNK]
        await collections.deliveries.bulk_write(chunk, ordered=False, session=session)
