"""`async_empty` on MongoDB: expired documents go, too."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

import pytest
from beanie import Document

from tests.mongo.models import opened
from ttl_odm import TTLError
from ttl_odm.beanie import TTLMixin
from ttl_odm.testing import TTLClock, async_empty, empty


class Ticket(TTLMixin, Document):
    __ttl__ = 86_400
    id: int

    class Settings:
        name = "tickets"


class Desk(Document):
    id: int

    class Settings:
        name = "desks"


async def test_emptying_a_collection_leaves_no_expired_document_behind(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    async with opened(mongodb_url, [Ticket, Desk]) as world:
        await Ticket(id=1).insert()
        await Desk(id=1).insert()
        ttl_clock.advance(86_400)
        await Ticket(id=2).insert()
        await Ticket.delete_all()
        assert world.keys(Ticket) == [1]  # what this function is for
        await async_empty(Ticket)
        assert world.keys(Ticket) == []
        assert world.keys(Desk) == [1]
        await async_empty(Ticket, Desk)
        assert world.keys(Desk) == []


async def test_a_wrong_call_says_what_to_write() -> None:
    with pytest.raises(TTLError, match="await async_empty"):
        empty(Ticket)
    with pytest.raises(TTLError, match="for SQLAlchemy's models only"):
        await async_empty(Ticket, session="no such thing")
