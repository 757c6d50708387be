"""Document classes for the tests of the gate, and a database of their own for each test.

A Beanie class has one collection at a time: `opened` gives it the one in a fresh database.
"""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

from beanie import Document, Indexed, Link, View, init_beanie
from pymongo import MongoClient

from tests.mongo.scratch import BEANIE, connect
from ttl_odm import TTL, ExpireAfter, ExpireAt
from ttl_odm.beanie import TTLMixin, ttl_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from pymongo.collection import Collection
    from pymongo.database import Database
    from pymongo.monitoring import CommandListener

    Raw = dict[str, Any]

LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)


class Event(TTLMixin, Document):
    __ttl__ = 3600
    id: int
    name: Annotated[str, Indexed(unique=True)]
    score: int = 0
    tags: list[str] = []

    class Settings:
        name = "events"


class Tracked(TTLMixin, Document):
    id: int
    name: str = ""
    score: int = 0

    class Settings:
        name = "tracked"
        ttl = 3600
        use_state_management = True
        state_management_save_previous = True
        use_revision = True


class Swept(TTLMixin, Document):
    __ttl__ = 3600
    __ttl_purge__ = "sweeper"
    id: int
    score: int = 0

    class Settings:
        name = "swept"


class Strict(TTLMixin, Document):
    __ttl__ = TTL(3600, values="strict")
    id: int

    class Settings:
        name = "strict"


class Visit(TTLMixin, Document):
    __ttl__ = ExpireAfter("made", 3600)
    id: int
    made: Any = None

    class Settings:
        name = "visits"


class Voucher(TTLMixin, Document):
    __ttl__ = ExpireAt("ends", null="expired")
    id: int
    ends: datetime | None = None

    class Settings:
        name = "vouchers"


class Adopted(TTLMixin, Document):
    __ttl__ = TTL(3600, last_modified="changed", override="lives", never=(0,))
    id: int
    changed: datetime | None = None
    lives: int | None = None

    class Settings:
        name = "adopted"


class Cached(TTLMixin, Document):
    __ttl__ = 3600
    id: int
    name: str = ""

    class Settings:
        name = "cached"
        use_cache = True
        cache_expiration_time = timedelta(hours=2)


class CachedTicket(TTLMixin, Document):
    __ttl__ = 86_400
    id: int
    event: Link[Event] | None = None

    class Settings:
        name = "cached_tickets"
        use_cache = True
        cache_expiration_time = timedelta(hours=2)


class Plain(Document):
    id: int
    event: Link[Event] | None = None

    class Settings:
        name = "plain"


class Names(View):
    name: str

    class Settings:
        source = Event
        pipeline = [{"$project": {"name": 1}}]


MODELS = [
    Event,
    Tracked,
    Swept,
    Strict,
    Visit,
    Voucher,
    Adopted,
    Cached,
    CachedTicket,
    Plain,
    Names,
]


@dataclass(frozen=True)
class World:
    """The classes' database.

    Attributes:
        database: The gated one, through Beanie's driver.
        raw: The same, ungated and synchronous.
    """

    database: Any
    raw: Database[Raw]

    def of(self, model: Any) -> Collection[Raw]:
        """Return the ungated collection of a class."""
        return self.raw[model.get_collection_name()]

    def stored(self, model: Any, key: object) -> Raw:
        """Return a document as it is stored."""
        found = self.of(model).find_one({"_id": key})
        assert found is not None
        return found

    def keys(self, model: Any) -> list[object]:
        """Return the keys of all stored documents."""
        return sorted(each["_id"] for each in self.of(model).find({}, {"_id": 1}))

    def age(self, model: Any, key: object, seconds: float = 7200) -> None:
        """Set ``_ts`` to so long before the server's present."""
        past = {"$subtract": ["$$NOW", int(seconds * 1000)]}
        self.of(model).update_one({"_id": key}, [{"$set": {"_ts": past}}])

    def now(self) -> datetime:
        """Return the server's clock."""
        options = self.raw.codec_options
        reply: Raw = self.raw.command({"hello": 1}, codec_options=options)
        now: datetime = reply["localTime"]
        return now


@asynccontextmanager
async def opened(
    url: str,
    models: list[Any] = MODELS,
    *,
    listeners: Sequence[CommandListener] = (),
    **options: Any,
) -> AsyncIterator[World]:
    """Give the classes a database, and drop it afterwards; listeners hear of the commands.

    Then they have the one again that they had before.
    """
    before = [(model, model.__dict__.get("_document_settings")) for model in models]
    name = f"ttl_odm_{uuid4().hex}"
    client = connect(url, event_listeners=listeners)
    raw: MongoClient[Raw] = MongoClient(url, tz_aware=True)
    try:
        database = ttl_database(client[name], **options)
        await init_beanie(database=database, document_models=models)
        yield World(database, raw[name])
    finally:
        for model, settings in before:
            model._document_settings = settings
        raw.drop_database(name)
        raw.close()
        closing = client.close()
        if inspect.isawaitable(closing):
            await closing


def collection_of(model: Any) -> Any:
    """Return the class's collection, whatever Beanie calls it."""
    return model.get_motor_collection() if BEANIE < 2 else model.get_pymongo_collection()
