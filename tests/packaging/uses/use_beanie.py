"""A document class with a ttl, and a database that is the gate; a server isn't needed for that."""

import asyncio

from beanie import Document
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from ttl_odm import InvalidTTL
from ttl_odm.beanie import TTLMixin, ttl_database


class Event(TTLMixin, Document):
    __ttl__ = 3600


async def main() -> None:
    client = AsyncMongoClient("mongodb://127.0.0.1:1", connect=False)
    database = ttl_database(client.shop)
    assert isinstance(database, AsyncDatabase)
    assert type(database["events"]).__module__.startswith("ttl_odm.")
    await client.close()


asyncio.run(main())
assert {"last_modified", "ttl"} <= set(Event.model_fields)
try:
    type("Wrong", (TTLMixin, Document), {"__ttl__": 0, "__module__": __name__})
except InvalidTTL as error:
    assert "Wrong.__ttl__ = 0" in str(error)  # noqa: PT017
else:
    raise AssertionError("0 is not a ttl")
