"""The same under Beanie 1 and Motor."""

import beanie
from motor.motor_asyncio import AsyncIOMotorClient, AsyncIOMotorDatabase

from ttl_odm.beanie import TTLMixin, ttl_database


class Event(TTLMixin, beanie.Document):
    __ttl__ = 3600


assert beanie.__version__.startswith("1.")
client = AsyncIOMotorClient("mongodb://127.0.0.1:1", connect=False)
database = ttl_database(client.shop)
assert isinstance(database, AsyncIOMotorDatabase)
assert type(database["events"]).__module__.startswith("ttl_odm.")
client.close()
assert {"last_modified", "ttl"} <= set(Event.model_fields)
