"""Documents whose keys Beanie stores in another form: a UUID as binary, a date as a datetime."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from enum import Enum, IntEnum
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID, uuid4

import pytest
from beanie import BulkWriter, Document, init_beanie
from bson import Binary
from pydantic import AnyUrl, BaseModel

from tests.mongo.models import LONG_AGO, World, collection_of, opened
from tests.mongo.scratch import scratch
from ttl_odm import ExpiredError, Follows
from ttl_odm.beanie import Archive, TTLMixin, expires_at, ttl_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Seat(BaseModel):
    row: int
    place: str


class Colour(Enum):
    RED = "red"


class Side(str, Enum):
    LEFT = "left"


class Level(IntEnum):
    LOW = 1


KEYS = [
    uuid4(),
    Seat(row=1, place="A"),
    Colour.RED,
    date(2026, 5, 1),
    IPv4Address("127.0.0.1"),
    AnyUrl("https://example.org/"),
    timedelta(hours=1),
    b"\0key",
]


class Hall(TTLMixin, Document):
    __ttl__ = 3600
    __ttl_purge__ = "sweeper"
    id: int  # type: ignore[assignment]

    class Settings:
        name = "halls"


def declared(kind: Any, ttl: Any = 3600) -> Any:
    class Ticket(TTLMixin, Document):
        __ttl__: ClassVar[Any] = ttl
        id: kind
        hall: int = 1
        text: str = ""

        class Settings:
            name = "tickets"

    return Ticket


@pytest.fixture(params=KEYS, ids=lambda key: type(key).__name__)
async def place(
    request: pytest.FixtureRequest, mongodb_url: str
) -> AsyncIterator[tuple[World, Any]]:
    """Give a database, and a document that isn't stored yet."""
    model = declared(type(request.param))
    async with opened(mongodb_url, [model]) as world:
        yield world, model(id=request.param)


async def test_every_write_finds_its_document(place: tuple[World, Any]) -> None:
    world, ticket = place
    (await ticket.insert()).text = "new"
    assert ticket.last_modified is not None

    for write in (ticket.save, ticket.replace, ticket.touch, ticket.persist, ticket.inherit_ttl):
        await write()
    assert await ticket.expire_in(60)

    assert await expires_at(ticket) == ticket.expires_at
    (stored,) = world.of(ticket).find()
    assert (stored["text"], stored["ttl"]) == ("new", 60)


async def test_no_write_brings_an_expired_document_back(place: tuple[World, Any]) -> None:
    world, ticket = place
    await ticket.insert()
    (lazy,) = await type(ticket).find(lazy_parse=True).to_list()
    world.of(ticket).update_many({}, [{"$set": {"_ts": {"$subtract": ["$$NOW", 7_200_000]}}}])
    before = world.of(ticket).find_one()

    writes = (ticket.save, lazy.save, ticket.replace, ticket.touch, ticket.delete)
    for write in (*writes, lambda: ticket.set({"text": "new"})):
        with pytest.raises(ExpiredError):
            await write()
    async with BulkWriter() as writer:
        await ticket.save(bulk_writer=writer)

    assert world.of(ticket).find_one() == before
    await type(ticket)(id=ticket.id, text="another").insert()
    (stored,) = world.of(ticket).find()
    assert stored["text"] == "another"


@pytest.mark.parametrize("key", KEYS, ids=lambda key: type(key).__name__)
async def test_nor_one_that_expires_with_its_parent(mongodb_url: str, key: Any) -> None:
    model = declared(type(key), Follows(Hall, on={"hall": "id"}))
    async with opened(mongodb_url, [Hall, model]) as world:
        hall, ticket = await Hall(id=1).insert(), model(id=key)
        await ticket.insert()
        assert await expires_at(ticket) == hall.expires_at
        world.age(Hall, 1)

        for write in (ticket.save, ticket.replace, lambda: ticket.set({"text": "new"})):
            with pytest.raises(ExpiredError):
                await write()


PARENT_KEYS = [*KEYS, datetime(2026, 5, 1, tzinfo=timezone.utc), Side.LEFT, Level.LOW, 1.5]


@pytest.mark.parametrize("options", [{}, {"uuidRepresentation": "standard"}, {"tz_aware": True}])
@pytest.mark.parametrize("key", PARENT_KEYS, ids=lambda key: type(key).__name__)
async def test_a_parent_is_known_by_its_key(
    mongodb_url: str, key: Any, options: dict[str, Any]
) -> None:
    kind: Any = type(key)

    class Order(TTLMixin, Document):
        __ttl__ = 3600
        __ttl_purge__ = "sweeper"
        id: kind

        class Settings:
            name = "orders"

    class Item(TTLMixin, Document):
        __ttl__ = Follows(Order, on={"order": "id"})
        id: int  # type: ignore[assignment]
        order: kind

        class Settings:
            name = "items"

    async with scratch(mongodb_url, **options) as place:
        database = ttl_database(place.ours.database)
        await init_beanie(database=database, document_models=[Order, Item])
        await Order(id=key).insert()

        await Item(id=1, order=key).insert()
        await Item.insert_many([Item(id=2, order=key)])
        assert await Item.count() == 2

        place.database["orders"].update_many({}, [{"$set": {"_ts": LONG_AGO}}])
        with pytest.raises(ExpiredError, match="which has expired"):
            await Item(id=3, order=key).insert()


@pytest.mark.parametrize("options", [{}, {"uuidRepresentation": "standard"}])
async def test_a_displaced_document_with_a_uuid_is_archived(
    mongodb_url: str, options: dict[str, Any]
) -> None:
    class Order(TTLMixin, Document):
        __ttl__ = 3600
        __ttl_purge__ = "sweeper"
        __ttl_archive__ = Archive("old_orders")
        id: UUID  # type: ignore[assignment]

        class Settings:
            name = "orders"

    async with scratch(mongodb_url, **options) as place:
        database = ttl_database(place.ours.database)
        await init_beanie(database=database, document_models=[Order])
        orders, key = place.database["orders"], uuid4()
        await Order(id=key).insert()

        orders.update_many({}, [{"$set": {"_ts": LONG_AGO}}])
        await Order(id=key).insert()
        orders.update_many({}, [{"$set": {"_ts": LONG_AGO}}])
        if options:
            await collection_of(Order).insert_one({"_id": key})

        stored = Binary.from_uuid(key)
        (now,) = orders.find()
        assert now["_id"] == stored
        archived = place.database["old_orders"].find({}, {"_ts": 0})
        first, *again = [each.get("_original_id", each["_id"]) for each in archived]
        assert (first, again) == (stored, [stored] if options else [])
