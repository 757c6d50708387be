"""`ensure_indexes(view=...)`: a view of live documents, for readers that go past the gate."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

import asyncio
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document, init_beanie

from tests.mongo.models import World, opened
from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLConfigurationError
from ttl_odm.beanie import TTLMixin, disable, enable, ensure_indexes
from ttl_odm.beanie.indexes.live_view import LIVE_VIEW

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOUR = 3600


class SeenEvent(TTLMixin, Document):
    __ttl__ = HOUR
    id: int

    class Settings:
        name = "events"


class SeenSwept(TTLMixin, Document):
    __ttl__ = HOUR
    __ttl_purge__ = "sweeper"
    id: int

    class Settings:
        name = "swept"


class SeenVisit(TTLMixin, Document):
    __ttl__ = ExpireAfter("made", HOUR)
    id: int
    made: Any = None

    class Settings:
        name = "visits"


class SeenVoucher(TTLMixin, Document):
    __ttl__ = ExpireAt("ends", null="expired")
    id: int
    ends: datetime | None = None

    class Settings:
        name = "vouchers"


class SeenAdopted(TTLMixin, Document):
    __ttl__ = TTL(HOUR, last_modified="changed", override="lives", never=(0,))
    id: int
    changed: datetime | None = None
    lives: int | None = None

    class Settings:
        name = "adopted"


MODELS = [SeenEvent, SeenSwept, SeenVisit, SeenVoucher, SeenAdopted]


class Asked(TTLMixin, Document):
    __ttl__ = TTL(lambda: HOUR)
    __ttl_purge__ = "sweeper"
    id: int

    class Settings:
        name = "asked"


@pytest.fixture
async def world(mongodb_url: str) -> AsyncIterator[World]:
    async with opened(mongodb_url, MODELS) as made:
        yield made


def views(world: World) -> dict[str, Any]:
    """The database's views, and what they are of."""
    listed = world.raw.list_collections(filter={"type": "view"})
    return {each["name"]: each["options"]["viewOn"] for each in listed}


def shown(world: World, name: str = "events_live") -> list[Any]:
    """What another program reads."""
    return sorted(document["_id"] for document in world.raw[name].find())


async def put(world: World, *ages: int) -> None:
    for key, age in enumerate(ages):
        await SeenEvent(id=key).insert()
        world.age(SeenEvent, key, age)


async def test_others_see_live_documents_through_it(world: World) -> None:
    await put(world, 10, 2 * HOUR, 2 * HOUR)
    world.of(SeenEvent).update_one({"_id": 2}, {"$set": {"ttl": 3 * HOUR}})
    (report,) = await ensure_indexes(SeenEvent, view="fresh")
    assert "fresh" in report.created
    assert views(world) == {"fresh": "events"}
    assert shown(world, "fresh") == [0, 2]
    (report,) = await ensure_indexes(SeenEvent, view="fresh")
    assert (report.created, report.changed, report.removed) == ((), (), ())
    assert "fresh" in report.unchanged


async def test_true_names_it_after_the_collection(world: World) -> None:
    await ensure_indexes(SeenEvent, SeenSwept, SeenAdopted, view=True)
    names = {"events", "swept", "adopted"}
    assert views(world) == {f"{name}_live": name for name in names}


@pytest.mark.parametrize("model", [SeenVisit, SeenVoucher, SeenAdopted, SeenSwept])
async def test_it_shows_what_the_gate_shows(world: World, model: Any) -> None:
    await ensure_indexes(model, view="seen")
    now = world.now()
    past, future = (
        datetime(2001, 1, 1, tzinfo=timezone.utc),
        datetime(2100, 1, 1, tzinfo=timezone.utc),
    )
    dates: list[Any] = [past, future, now, None, "odd", [past, future]]
    ttls: list[Any] = [None, -1, 0, 20, 20.5, "20", HOUR, 2**31 - 1]
    field = {SeenVisit: "made", SeenVoucher: "ends", SeenAdopted: "changed"}.get(model, "_ts")
    own = {SeenAdopted: "lives", SeenSwept: "ttl"}.get(model)
    documents: list[Any] = []
    for date in dates:
        for ttl in ttls if own else [None]:
            documents.append({"_id": len(documents), field: date, **({own: ttl} if own else {})})
    world.of(model).insert_many(documents)
    gated = world.database[model.get_collection_name()]
    assert shown(world, "seen") == sorted([each["_id"] async for each in gated.find({})])
    assert 0 < len(shown(world, "seen")) < len(documents)


async def test_it_follows_the_policy_with_every_call(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(world, 10, 2 * HOUR)
    await ensure_indexes(SeenEvent, view=True)
    monkeypatch.setattr(SeenEvent, "__ttl__", 3 * HOUR)
    (report,) = await ensure_indexes(SeenEvent)
    assert "events_live" in report.changed
    assert shown(world) == [0, 1]
    monkeypatch.setattr(SeenEvent, "__ttl__", 5)
    await ensure_indexes(SeenEvent)
    assert shown(world) == []
    monkeypatch.setattr(SeenEvent, "__ttl__", None)
    (report,) = await ensure_indexes(SeenEvent)
    assert "events_live" in report.removed
    assert views(world) == {}
    monkeypatch.setattr(SeenEvent, "__ttl__", HOUR)
    await ensure_indexes(SeenEvent)
    assert views(world) == {}


async def test_false_drops_it(world: World) -> None:
    await ensure_indexes(SeenEvent, view="one")
    await ensure_indexes(SeenEvent, view="two")
    assert set(views(world)) == {"one", "two"}
    (report,) = await ensure_indexes(SeenEvent, view=False)
    assert set(report.removed) == {"one", "two"}
    assert views(world) == {}


async def test_a_class_without_a_policy_loses_it(world: World) -> None:
    class Foreign(Document):
        id: int

        class Settings:
            name = "foreign"

    enable(Foreign, HOUR)
    await init_beanie(database=world.database, document_models=[*MODELS, Foreign])
    await ensure_indexes(Foreign, view=True)
    assert views(world) == {"foreign_live": "foreign"}
    disable(Foreign)
    await init_beanie(database=world.database, document_models=[*MODELS, Foreign])
    await ensure_indexes(Foreign)
    assert views(world) == {}


async def test_the_gate_does_not_filter_it_twice(world: World) -> None:
    await put(world, 10, 2 * HOUR)
    await ensure_indexes(SeenEvent, view=True)
    (stage,) = next(world.raw.list_collections(filter={"type": "view"}))["options"]["pipeline"]
    assert stage["$match"]["$comment"] == LIVE_VIEW
    view = world.database["events_live"]
    assert [each["_id"] async for each in view.find({})] == [0]
    joined = [
        {"$lookup": {"from": "events_live", "localField": "_id", "foreignField": "_id", "as": "e"}}
    ]
    await SeenSwept(id=0).insert()
    cursor = world.database["swept"].aggregate(joined)
    if asyncio.iscoroutine(cursor):  # PyMongo's, unlike Motor's
        cursor = await cursor
    assert [len(each["e"]) async for each in cursor] == [1]


async def test_a_guarded_database_reads_it(mongodb_url: str) -> None:
    async with opened(mongodb_url, MODELS, guard=True) as world:
        await put(world, 10, 2 * HOUR)
        await ensure_indexes(SeenEvent, view=True)
        assert await world.database["events_live"].count_documents({}) == 1


async def test_many_processes_make_it_at_the_same_time(world: World) -> None:
    await asyncio.gather(*(ensure_indexes(SeenEvent, view=True) for _ in range(8)))
    assert views(world) == {"events_live": "events"}
    await asyncio.gather(*(ensure_indexes(SeenEvent, view=False) for _ in range(8)))
    assert views(world) == {}


async def test_what_is_somebody_elses_stays(world: World) -> None:
    world.raw.command({"create": "events_live", "viewOn": "events", "pipeline": []})
    world.raw["plain"].insert_one({})
    for name in (True, "plain"):
        with pytest.raises(TTLConfigurationError, match=r"which ttl_odm didn't create"):
            await ensure_indexes(SeenEvent, view=name)
    await ensure_indexes(SeenEvent, view=False)
    assert views(world) == {"events_live": "events"}


async def test_one_name_is_for_one_collection(world: World) -> None:
    with pytest.raises(TTLConfigurationError, match=r"view='live' names a single view"):
        await ensure_indexes(SeenEvent, SeenSwept, view="live")
    assert views(world) == {}


async def test_a_default_that_a_function_tells_is_refused(mongodb_url: str) -> None:
    async with opened(mongodb_url, [Asked]) as world:
        with pytest.raises(TTLConfigurationError, match="a function returns the default"):
            await ensure_indexes(Asked, view=True)
        assert views(world) == {}
