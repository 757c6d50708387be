"""An empty collection in a database of its own, through the driver that Beanie uses here.

`Scratch` has the collection twice: as ttl_odm gets it, and synchronously, as anybody else's
program would see it.
"""

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pymongo import MongoClient

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.collection import Collection
    from pymongo.database import Database

    Document = dict[str, Any]

BEANIE = int(version("beanie").partition(".")[0])


@dataclass(frozen=True)
class Scratch:
    """One collection, seen from two sides.

    Attributes:
        ours: What ttl_odm is given: an AsyncCollection or an AsyncIOMotorCollection.
        theirs: The same collection for a test, or another program.
    """

    ours: Any
    theirs: Collection[Document]

    @property
    def database(self) -> Database[Document]:
        return self.theirs.database

    def indexes(self) -> dict[str, Document]:
        """Return what the server has, but for the index on ``_id``, by name."""
        if self.theirs.name not in self.database.list_collection_names():
            return {}
        # Not list_indexes(): it gives naive dates whatever the client was told.
        answer = self.database.command(
            {"listIndexes": self.theirs.name}, codec_options=self.theirs.codec_options
        )
        listed = answer["cursor"]["firstBatch"]
        return {each.pop("name"): each for each in listed if each["name"] != "_id_"}

    def at(self, name: str) -> Any:
        """Return ttl_odm's side of another collection in the same database."""
        return self.ours.database[name]


def connect(url: str, **options: Any) -> Any:
    """Make an asynchronous client: Beanie before 2.0 speaks to MongoDB through Motor."""
    if BEANIE < 2:
        from motor.motor_asyncio import AsyncIOMotorClient

        return AsyncIOMotorClient(url, **options)
    from pymongo import AsyncMongoClient

    return AsyncMongoClient(url, **options)


@cache
def backend_of(url: str) -> Any:
    """Return what `ttl_database` has to be told about a server: "mongodb" or "documentdb".

    Gateways to documentdb introduce themselves by a field of their own: Azure's, and ours.
    """
    with MongoClient[Any](url) as client:
        return "documentdb" if "internal" in client.admin.command("hello") else "mongodb"


@asynccontextmanager
async def scratch(url: str, *, name: str | None = None, **options: Any) -> AsyncIterator[Scratch]:
    """Give a collection that does not exist yet, and drop its database afterwards.

    Args:
        url: the server's.
        name: that of a database which somebody else drops, to reach it through another client.
        options: the asynchronous client's.
    """
    owned = name is None
    name = name or f"ttl_odm_{uuid4().hex}"
    client = connect(url, **options)
    theirs: MongoClient[Document] = MongoClient(url, tz_aware=True)
    try:
        yield Scratch(client[name]["documents"], theirs[name]["documents"])
    finally:
        if owned:
            _drop(theirs[name])
        theirs.close()
        closing = client.close()
        if inspect.isawaitable(closing):
            await closing


def _drop(database: Database[Document]) -> None:
    """Leave nothing: a database without collections is none, and drop_database takes 100 ms."""
    names = database.list_collection_names()
    if any(name.startswith("system.") for name in names):  # views and time series
        database.client.drop_database(database)
    for name in names:
        database.drop_collection(name)
