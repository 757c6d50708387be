"""Document classes that follow others, and a database of their own for each test."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

import inspect
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

from beanie import Document, Indexed, Link
from pydantic import Field

from tests.mongo.models import opened
from ttl_odm import ExpireAt, Follows
from ttl_odm.beanie import TTLMixin, ensure_indexes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.models import World

LONG_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)


class Cart(TTLMixin, Document):
    __ttl__ = 3600
    __ttl_purge__ = "sweeper"
    id: int
    name: str = ""

    class Settings:
        name = "carts"


class Item(TTLMixin, Document):
    __ttl__ = Follows("cart")
    id: int
    cart: Link[Cart] | None = None
    name: str = ""
    tags: list[str] = []
    code: Annotated[int | None, Indexed(unique=True, sparse=True)] = None

    class Settings:
        name = "items"
        keep_nulls = False


class Note(TTLMixin, Document):
    """Two levels below, by a plain field with another name."""

    __ttl__ = Follows(Item, on={"item_id": "id"})
    id: int
    item_id: int | None = Field(default=None, alias="item")
    text: str = ""

    class Settings:
        name = "notes"


class Thread(TTLMixin, Document):
    __ttl__ = ExpireAt("ends")
    __ttl_purge__ = "sweeper"
    id: int
    site: str = ""
    number: int = 0
    ends: datetime | None = None

    class Settings:
        name = "threads"


class Post(TTLMixin, Document):
    """By two fields; an orphan lives."""

    __ttl__ = Follows(Thread, on={"site": "site", "thread": "number"}, orphan="live")
    id: int
    site: str | None = None
    thread: int | None = None

    class Settings:
        name = "posts"


class Visit(TTLMixin, Document):
    __ttl__ = Follows("cart", renews=True)
    id: int
    cart: Link[Cart]
    page: str = ""

    class Settings:
        name = "visits"


class Step(TTLMixin, Document):
    """Of a visit."""

    __ttl__ = Follows("visit", renews=True, at_most_every=60)
    id: int
    visit: Link[Visit]

    class Settings:
        name = "steps"


class Shelf(Document):
    """Without a lifetime; it refers to items."""

    id: int
    item: Link[Item] | None = None

    class Settings:
        name = "shelves"


FAMILY = [Cart, Item, Note, Thread, Post, Visit, Step, Shelf]


@asynccontextmanager
async def families(url: str, **options: Any) -> AsyncIterator[World]:
    """Give the classes a database."""
    async with opened(url, FAMILY, **options) as world:
        await ensure_indexes(Cart, Thread)
        yield world


def ref(number: int, collection: str = "carts") -> Any:
    """Return a link as it is stored."""
    from bson import DBRef

    return DBRef(collection, number)


def expire(world: World, *keys: int) -> None:
    """Let carts expire, as time does."""
    world.raw["carts"].update_many({"_id": {"$in": list(keys)}}, {"$set": {"_ts": LONG_AGO}})


@asynccontextmanager
async def transaction(world: World, **options: Any) -> AsyncIterator[Any]:
    """Give the session of a transaction, which is committed in the end."""
    session = world.database.client.start_session()
    session = await session if inspect.isawaitable(session) else session
    async with session:
        begun = session.start_transaction(**options)
        begun = await begun if inspect.isawaitable(begun) else begun
        async with begun:
            yield session
