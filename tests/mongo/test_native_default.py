"""A default that changes at run time where MongoDB itself deletes: no live document goes."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document

from tests.mongo.models import World, opened
from ttl_odm import TTL, ExpireAfter
from ttl_odm.beanie import TTLMixin, disable, enable, ensure_indexes
from ttl_odm.core import MAX_TTL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOUR = 3600


class Ticket(TTLMixin, Document):
    __ttl__ = HOUR
    id: int
    made: datetime | None = None

    class Settings:
        name = "tickets"


class SweptTicket(TTLMixin, Document):
    __ttl__ = HOUR
    __ttl_purge__ = "sweeper"
    id: int

    class Settings:
        name = "swept_tickets"


class ForeignTicket(Document):
    id: int

    class Settings:
        name = "foreign_tickets"


@pytest.fixture
async def tickets(mongodb_url: str) -> AsyncIterator[World]:
    async with opened(mongodb_url, [Ticket, SweptTicket, ForeignTicket]) as world:
        yield world


def seconds(world: World, model: Any = Ticket) -> dict[str, int]:
    """The numbers by which MongoDB deletes."""
    indexes = world.of(model).index_information()
    return {
        name: index["expireAfterSeconds"]
        for name, index in indexes.items()
        if "expireAfterSeconds" in index
    }


async def put(world: World, model: Any = Ticket, *, age: int) -> Any:
    """Store a document of an age; as an application has it that read it before."""
    ticket = await model(id=1).insert()
    world.age(model, 1, age)
    ticket.last_modified -= timedelta(seconds=age)
    return ticket


@pytest.mark.parametrize(("longer", "number"), [(3 * HOUR, 3 * HOUR), (-1, MAX_TTL), (None, None)])
async def test_a_longer_life_begins_when_mongodb_knows_of_it(
    tickets: World, monkeypatch: pytest.MonkeyPatch, longer: int | None, number: int | None
) -> None:
    await ensure_indexes(Ticket)
    ticket = await put(tickets, age=2 * HOUR)

    monkeypatch.setattr(Ticket, "__ttl__", longer)

    assert seconds(tickets)["__ttl_default"] == HOUR
    assert await Ticket.get(1) is None
    assert await Ticket.find().count() == 0
    assert ticket.is_expired

    await ensure_indexes(Ticket)

    assert seconds(tickets).get("__ttl_default") == number
    assert await Ticket.get(1) is not None
    assert await Ticket.find().count() == 1
    assert not ticket.is_expired


async def test_a_shorter_life_ends_at_once_and_in_mongodb_with_the_next_call(
    tickets: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ensure_indexes(Ticket)
    ticket = await put(tickets, age=600)

    monkeypatch.setattr(Ticket, "__ttl__", 60)

    assert await Ticket.get(1) is None
    assert ticket.is_expired
    await ensure_indexes(Ticket)
    assert seconds(tickets)["__ttl_default"] == 60


async def test_a_default_that_comes_back_needs_no_call(
    tickets: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ensure_indexes(Ticket)
    await put(tickets, age=600)

    for default, count in [(60, 0), (HOUR, 1), (3 * HOUR, 1)]:
        monkeypatch.setattr(Ticket, "__ttl__", default)
        assert await Ticket.find().count() == count


async def test_a_ttl_that_did_not_count_ends_no_document_before_mongodb_knows(
    tickets: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Ticket(id=1, ttl=60).insert()
    tickets.age(Ticket, 1, 600)
    monkeypatch.setattr(Ticket, "__ttl__", None)
    await ensure_indexes(Ticket)
    assert await Ticket.find().count() == 1

    monkeypatch.setattr(Ticket, "__ttl__", -1)

    assert await Ticket.find().count() == 0  # shorter, so at once


async def test_indexes_that_another_process_made_count_too(
    tickets: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(tickets, age=2 * HOUR)

    monkeypatch.setattr(Ticket, "__ttl__", 3 * HOUR)

    assert await Ticket.find().count() == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (ExpireAfter("made", HOUR), ExpireAfter("made", 3 * HOUR)),
        (
            TTL(-1, max_lifetime=HOUR, created="made"),
            TTL(-1, max_lifetime=3 * HOUR, created="made"),
        ),
        (TTL(-1, max_lifetime=HOUR, created="made"), TTL(-1)),
        (ExpireAfter("made", HOUR), TTL(-1)),
    ],
)
async def test_so_do_dates_limits_and_other_policies(
    tickets: World, monkeypatch: pytest.MonkeyPatch, before: Any, after: Any
) -> None:
    monkeypatch.setattr(Ticket, "__ttl__", before)
    await ensure_indexes(Ticket, rebuild=True)
    await Ticket(id=1, made=tickets.now() - timedelta(hours=2)).insert()

    monkeypatch.setattr(Ticket, "__ttl__", after)

    assert await Ticket.find().count() == 0
    await ensure_indexes(Ticket, rebuild=True)
    assert await Ticket.find().count() == 1


async def test_a_shorter_limit_ends_lives_at_once(
    tickets: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ticket, "__ttl__", TTL(-1, max_lifetime=3 * HOUR, created="made"))
    await ensure_indexes(Ticket)
    await Ticket(id=1, made=tickets.now() - timedelta(hours=2)).insert()
    assert await Ticket.find().count() == 1

    monkeypatch.setattr(Ticket, "__ttl__", TTL(-1, max_lifetime=HOUR, created="made"))

    assert await Ticket.find().count() == 0


async def test_what_a_sweeper_deletes_lives_longer_at_once(
    tickets: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(tickets, SweptTicket, age=2 * HOUR)

    monkeypatch.setattr(SweptTicket, "__ttl__", 3 * HOUR)

    assert await SweptTicket.find().count() == 1


async def test_a_policy_that_is_given_again_waits_for_mongodb_too(tickets: World) -> None:
    enable(ForeignTicket, HOUR)
    try:
        await ensure_indexes(ForeignTicket)
        await ForeignTicket(id=1).insert()
        tickets.age(ForeignTicket, 1, 2 * HOUR)

        enable(ForeignTicket, 3 * HOUR)

        assert await ForeignTicket.find().count() == 0
        await ensure_indexes(ForeignTicket)
        assert await ForeignTicket.find().count() == 1
    finally:
        disable(ForeignTicket)
