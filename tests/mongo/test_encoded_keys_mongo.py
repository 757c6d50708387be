"""Documents whose keys Beanie stores in another form: a UUID as binary, a date as a datetime."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from datetime import date, timedelta
from enum import Enum
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import pytest
from beanie import BulkWriter, Document
from pydantic import AnyUrl, BaseModel

from tests.mongo.models import World, opened
from ttl_odm import ExpiredError, Follows
from ttl_odm.beanie import TTLMixin, expires_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Seat(BaseModel):
    row: int
    place: str


class Colour(Enum):
    RED = "red"


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
