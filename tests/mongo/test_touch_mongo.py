"""`touch` of a query: documents are renewed, and read with it, without being loaded before."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from beanie import Document

from tests.mongo.models import Adopted, Event, Strict, Tracked, Visit, Voucher, World, opened
from tests.mongo.sweeping import Commands
from ttl_odm import TTL, InvalidTTL, TTLConfigurationError, TTLError
from ttl_odm.beanie import enable


@pytest.fixture
def events(world: World) -> World:
    """Documents that were written 100 seconds ago; one of them has expired."""
    for key, ttl in (("a", None), ("dead", 50), ("never", -1), ("own", 1000)):
        number = len(key)
        world.of(Event).insert_one({"_id": number, "name": key, "ttl": ttl})
        world.age(Event, number, 100)
    return world


def renewed(world: World) -> list[str]:
    """The documents that are younger than the oldest, which nothing renews; expired ones too."""
    stamps = {row["name"]: row["_ts"] for row in world.of(Event).find()}
    oldest = min(stamps.values())
    return sorted(name for name, at in stamps.items() if at - oldest > timedelta(seconds=50))


async def test_many_are_renewed_and_counted(events: World) -> None:
    assert await Event.find(Event.name == "a").touch() == 1
    assert await Event.find(Event.name == "dead").touch() == 0
    assert await Event.find(Event.name == "none").touch() == 0
    assert renewed(events) == ["a"]
    assert await Event.find().touch() == 3
    assert renewed(events) == ["a", "never", "own"]


async def test_one_is_renewed_and_returned(events: World) -> None:
    event = await Event.find_one(Event.name == "own").touch()
    assert event is not None
    assert (event.ttl, event.expires_at - event.last_modified) == (1000, timedelta(seconds=1000))
    assert await Event.find_one(Event.name == "dead").touch() is None
    assert await Event.find_one(Event.name == "none").touch() is None
    assert renewed(events) == ["own"]
    event.score = 5
    await event.save()
    assert events.stored(Event, event.id)["score"] == 5


async def test_documents_written_recently_are_left_alone(events: World) -> None:
    before = events.stored(Event, 1)
    assert await Event.find(Event.name == "a").touch(at_most_every=130.5) == 0
    for life in (None, 7):
        event = await Event.find_one(Event.name == "a").touch(at_most_every=1000, expire_in=life)
        assert event is not None
        assert (event.last_modified, event.ttl) == (before["_ts"], None)
    assert await Event.find_one(Event.name == "dead").touch(at_most_every=1000) is None
    assert events.stored(Event, 1) == before
    assert await Event.find(Event.name == "a").touch(at_most_every=timedelta(minutes=1)) == 1
    event = await Event.find_one(Event.name == "own").touch(at_most_every=90, expire_in=7)
    assert event is not None
    assert (event.ttl, event.expires_at - event.last_modified) == (7, timedelta(seconds=7))
    assert renewed(events) == ["a", "own"]


async def test_expire_in_gives_documents_their_own_life(events: World) -> None:
    assert await Event.find().touch(expire_in=timedelta(minutes=5)) == 3
    rows = await Event.find().to_list()
    assert [(row.ttl, row.expires_at - row.last_modified) for row in rows] == [
        (300, timedelta(minutes=5))
    ] * 3
    stored = events.stored(Event, 1)
    assert stored["_exp"] == stored["_ts"] + timedelta(minutes=5)
    assert await Event.find(Event.name == "a").touch(expire_in=0) == 1
    assert await Event.find_one(Event.name == "a").touch() is None
    ended = await Event.find_one(Event.name == "own").touch(expire_in=0, only_if="has_ttl")
    assert ended is not None
    assert ended.is_expired
    assert await Event.find().count() == 1


# They end in 3500 and in 900 seconds, and never.
@pytest.mark.parametrize(
    ("only_if", "life", "granted"),
    [
        ("longer", None, ["a", "own"]),
        ("has_ttl", None, ["a", "own"]),
        ("no_ttl", None, ["never"]),
        ("shorter", None, []),
        ("longer", 2000, ["own"]),
        ("longer", 4000, ["a", "own"]),
        ("longer", 500, []),
        ("shorter", 2000, ["a", "never"]),
        ("shorter", 4000, ["never"]),
        ("has_ttl", 2000, ["a", "own"]),
        ("no_ttl", 2000, ["never"]),
    ],
)
@pytest.mark.parametrize("one", [False, True])
async def test_a_condition_chooses_the_same_documents_as_for_one_in_memory(
    events: World, only_if: Any, life: int | None, granted: list[str], *, one: bool
) -> None:
    if one:
        for name in ("a", "never", "own"):
            query = Event.find_one(Event.name == name)
            event = await query.touch(only_if=only_if, expire_in=life)
            assert event is not None
            assert (event.ttl == life and life is not None) == (name in granted and bool(life))
        assert await Event.find_one(Event.name == "dead").touch(only_if=only_if) is None
    else:
        assert await Event.find().touch(only_if=only_if, expire_in=life) == len(granted)
    assert renewed(events) == granted


async def test_each_touch_is_one_command(mongodb_url: str) -> None:
    commands = Commands()
    async with opened(mongodb_url, [Event], listeners=[commands]) as world:
        await Event(id=1, name="a").insert()
        commands.sent.clear()
        assert await Event.find_one(Event.id == 1).touch(at_most_every=60) is not None
        assert await Event.find_one(Event.id == 1).touch() is not None
        assert await Event.find(Event.id == 1).touch(at_most_every=60) == 0
        sent = [next(iter(command)) for command in commands.sent]
        assert [name for name in sent if name != "hello"] == [
            "findAndModify",
            "findAndModify",
            "update",
        ]
        assert world.keys(Event) == [1]


async def test_other_declarations_are_renewed_likewise(world: World) -> None:
    past = world.now() - timedelta(seconds=100)
    world.of(Adopted).insert_one({"_id": 1, "changed": past, "lives": 600})
    world.of(Strict).insert_one({"_id": 1, "_ts": past})
    world.of(Tracked).insert_one({"_id": 1, "_ts": past, "name": "a"})
    for model in (Adopted, Strict, Tracked):
        renew: Any = model
        assert await renew.find().touch(at_most_every=200) == 0
        assert await renew.find().touch(at_most_every=60, expire_in=50) == 1
        row = await renew.find_one().touch(expire_in=40, only_if="longer")
        assert row.expires_at - world.now() > timedelta(seconds=40)
        row = await renew.find_one().touch(expire_in=40, only_if="shorter")
        assert timedelta(0) < row.expires_at - world.now() <= timedelta(seconds=40)
    assert await Tracked.find_one().touch() is not None


async def test_a_date_of_expiry_is_set_by_a_touch_that_says_how_long(world: World) -> None:
    ends = world.now() + timedelta(seconds=600)
    world.of(Voucher).insert_one({"_id": 1, "ends": ends})
    assert await Voucher.find().touch(expire_in=500, only_if="longer") == 0
    voucher = await Voucher.find_one().touch(expire_in=500, only_if="no_ttl")
    assert voucher is not None
    assert voucher.expires_at == ends
    voucher = await Voucher.find_one().touch(expire_in=900, only_if="longer")
    assert voucher is not None
    assert voucher.expires_at > ends
    assert await Voucher.find().touch(expire_in=0) == 1
    assert await Voucher.find_one() is None


async def test_what_has_nothing_to_touch_is_rejected(world: World) -> None:
    for query in (Visit.find(), Visit.find_one(), Voucher.find()):
        with pytest.raises(TTLConfigurationError, match="can't be touched"):
            await query.touch()
    with pytest.raises(TTLConfigurationError, match="no ttl of their own"):
        await Visit.find().touch(expire_in=60)
    with pytest.raises(TTLConfigurationError, match="at_most_every"):
        await Voucher.find().touch(expire_in=60, at_most_every=5)
    for wrong in ({"at_most_every": 0}, {"only_if": "GT"}):
        with pytest.raises(TTLConfigurationError, match=next(iter(wrong))):
            await Event.find().touch(**wrong)
    for life in (1.5, True, 2**31):
        with pytest.raises(InvalidTTL, match=r"Event\.ttl"):
            await Event.find_one().touch(expire_in=life)
    with pytest.raises(TTLConfigurationError, match="skip and limit"):
        await Event.find().limit(1).touch()
    with pytest.raises(TTLConfigurationError, match="fetch_links"):
        await Event.find_one(fetch_links=True).touch()
    with pytest.raises(TTLError, match="include_expired"):
        await Event.find(include_expired=True).touch()


class Foreign(Document):
    """One of another package's."""

    id: int
    seen: datetime | None = None


async def test_classes_of_others_are_renewed_once_they_have_a_policy(mongodb_url: str) -> None:
    enable(Foreign, TTL(3600, last_modified="seen", override=None))
    async with opened(mongodb_url, [Foreign]) as world:
        past = datetime.now(timezone.utc) - timedelta(seconds=100)
        world.of(Foreign).insert_one({"_id": 1, "seen": past})
        query: Any = Foreign.find_one(Foreign.id == 1)
        row = await query.touch(at_most_every=60)
        assert row.seen.replace(tzinfo=timezone.utc) > past
        with pytest.raises(TTLConfigurationError, match="no ttl of their own"):
            await query.touch(expire_in=60)
