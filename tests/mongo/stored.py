"""What the tests of stored defaults on MongoDB share."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from beanie import Document, init_beanie

from tests.mongo.scratch import scratch
from tests.mongo.sweeping import Commands
from ttl_odm.beanie import TTLMixin, ensure_indexes, ttl_database
from ttl_odm.beanie.policy.bindings import collection_of
from ttl_odm.stored import Stored
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.collection import Collection
    from pymongo.database import Database

    from ttl_odm.sweeper import SweepReport

    Raw = dict[str, Any]

HOUR = 3600
KEY = {"name": "carts", "scope": ""}


def declared(ttl: Any = None, purge: str = "sweeper", **attributes: Any) -> Any:
    """Declare a document class on the collection ``carts``."""

    class Cart(TTLMixin, Document):
        __ttl__: ClassVar[Any] = Stored(HOUR) if ttl is None else ttl
        __ttl_purge__ = purge

        id: int  # type: ignore[assignment]
        name: str = ""

        class Settings:
            name = "carts"

    for name, value in attributes.items():
        setattr(Cart, name, value)
    return Cart


@dataclass(frozen=True)
class Carts:
    """A collection with a stored default, and what another program sees of it."""

    database: Any
    model: Any
    raw: Database[Raw]
    commands: Commands

    @property
    def stored(self) -> Collection[Raw]:
        """The documents, ungated."""
        return self.raw["carts"]

    @property
    def collection(self) -> Any:
        """The documents, as the application has them."""
        return collection_of(self.model)

    def put(self, ttl: Any) -> None:
        """Change the default, as another process does."""
        self.raw["ttl_odm_policies"].update_one({"_id": KEY}, {"$set": {"ttl": ttl}})

    def row(self) -> Raw | None:
        """Return the policy's document."""
        return self.raw["ttl_odm_policies"].find_one({"_id": KEY})

    def add(self, *keys: int, age: float, **fields: Any) -> None:
        """Write documents that were last modified so long ago."""
        born = self.now() - timedelta(seconds=age)
        self.stored.insert_many([{"_id": key, "_ts": born, **fields} for key in keys])

    def now(self) -> datetime:
        """Return the server's clock."""
        options = self.stored.codec_options
        now: datetime = self.raw.command({"hello": 1}, codec_options=options)["localTime"]
        return now

    def keys(self) -> set[int]:
        """Return the keys of all documents that are there."""
        return {row["_id"] for row in self.stored.find({}, {"_id": 1})}

    async def shown(self) -> set[int]:
        """Return the keys of those that the application sees."""
        return {row["_id"] async for row in self.collection.find({}, {"_id": 1})}

    def seconds(self) -> int | None:
        """Return after how many seconds MongoDB deletes what inherits the default."""
        answer = self.raw.command({"listIndexes": "carts"})
        indexes = {index["name"]: index for index in answer["cursor"]["firstBatch"]}
        return indexes.get("__ttl_default", {}).get("expireAfterSeconds")

    async def sweep(self, **options: Any) -> SweepReport:
        """Sweep once, without a lease unless one is asked for."""
        options.setdefault("lease", False)
        return await AsyncSweeper(self.database, [self.model], **options).run_once()


@asynccontextmanager
async def carts(
    url: str, model: Any = None, *, begun: bool = True, commands: Commands | None = None
) -> AsyncIterator[Carts]:
    """Give an empty collection with a stored default, begun by `ensure_indexes`."""
    commands = Commands() if commands is None else commands
    async with scratch(url, event_listeners=[commands]) as place:
        database = ttl_database(place.ours.database)
        chosen = declared() if model is None else model
        await init_beanie(database=database, document_models=[chosen])
        if begun:
            await ensure_indexes(chosen)
        commands.sent.clear()
        yield Carts(database, chosen, place.database, commands)
