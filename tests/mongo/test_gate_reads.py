"""Cursors, caches, views, pipelines that write, and the clock that they go by."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document, Link, View, init_beanie
from bson import DatetimeMS
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pydantic import BaseModel, ConfigDict, Field
from pymongo.errors import DuplicateKeyError, OperationFailure

from tests.mongo.models import (
    LONG_AGO,
    Cached,
    CachedTicket,
    Event,
    Names,
    Plain,
    Voucher,
    World,
    collection_of,
    opened,
)
from tests.mongo.scratch import connect
from tests.mongo.sweeping import Commands
from ttl_odm import TTL, TTLError
from ttl_odm.beanie import TTLMixin, disable, enable, ttl_database
from ttl_odm.beanie.gate.cursors import for_find
from ttl_odm.beanie.policy.predicate import live_expr
from ttl_odm.beanie.rewrite import filters, pipelines
from ttl_odm.beanie.time import clock as server_clock
from ttl_odm.beanie.time.clock import ServerClock, instant_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

HOUR = timedelta(hours=1)


class Later:
    """Lets the server's clock, as the driver knows it, stand in the future."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch

    def by(self, delta: timedelta) -> None:
        real = ServerClock.at_most
        self._patch.setattr(ServerClock, "at_most", lambda clock: real(clock) + delta)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    return Later(monkeypatch)


async def put(world: World, count: int = 10) -> Any:
    """Store live documents, the odd ones of which live for a minute."""
    documents = [
        {"_id": key, "name": f"n{key}", **({"ttl": 1800} if key % 2 else {})}
        for key in range(count)
    ]
    world.of(Event).insert_many(documents)
    world.of(Event).update_many({}, [{"$set": {"_ts": "$$NOW"}}])
    return collection_of(Event)


# Cursors


PROJECTIONS: list[Any] = [
    None,
    {},
    {"name": 1},
    {"_id": 1},
    {"name": 0},
    {"ttl": 0},
    {"_ts": 0, "ttl": 0},
    ["name"],
    [],
    {"_id": 0, "name": 1},
    {"name": 1, "_ts": 1},
    {"n": "$name"},
    {"tags": {"$slice": 1}},
]


@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
async def test_what_expires_in_a_buffer_is_not_handed_out(
    world: World, later: Later, projection: Any
) -> None:
    collection = await put(world)
    plain = [each async for each in collection._gate.plain.find({}, projection).sort("_id")]

    cursor = collection.find({}, projection).sort("_id")
    first = await cursor.next()
    later.by(timedelta(minutes=40))
    rest = [each async for each in cursor]

    assert [first, *rest] == [plain[0], *plain[2::2]]


async def test_what_expires_while_a_list_is_fetched_is_not_in_it(
    world: World, later: Later
) -> None:
    collection = await put(world)

    cursor = collection.find({}, batch_size=2).sort("_id")
    await cursor.next()
    later.by(timedelta(minutes=40))

    assert [each["_id"] for each in await cursor.to_list(None)] == [2, 4, 6, 8]


async def test_one_batch_that_the_server_has_judged_is_as_it_came(
    world: World, later: Later
) -> None:
    collection = await put(world)
    later.by(2 * HOUR)

    # Because of the limit the server has to decide, and has just done so.
    assert len(await collection.find().limit(20).to_list(None)) == 10
    assert await collection.find().to_list(None) == []


async def test_an_aggregation_is_judged_while_its_documents_are_whole(
    world: World, later: Later
) -> None:
    collection = await put(world)

    async def read(pipeline: Any) -> list[Any]:
        cursor = collection.aggregate(pipeline, batchSize=1)
        cursor = await cursor if hasattr(cursor, "__await__") else cursor
        with pytest.MonkeyPatch.context() as patch:
            found = [await cursor.next()]
            Later(patch).by(timedelta(minutes=40))
            found += [each async for each in cursor]
        return [each["_id"] for each in found]

    whole = [{"$sort": {"_id": 1}}, {"$set": {"more": 1}}, {"$unset": "name"}]
    assert await read(whole) == [0, 2, 4, 6, 8]
    assert await read([*whole, {"$project": {"name": 1}}]) == list(range(10))


async def test_a_list_has_the_length_that_was_asked_for(world: World) -> None:
    collection = await put(world, 20)
    for key in range(1, 20, 2):
        world.age(Event, key, 2400)

    cursor = collection.find().sort("_id")

    assert [each["_id"] for each in await cursor.to_list(3)] == [0, 2, 4]
    assert [each["_id"] for each in await cursor.to_list(3)] == [6, 8, 10]
    assert [each["_id"] for each in await cursor.to_list(30)] == [12, 14, 16, 18]
    assert await cursor.to_list(3) == []
    assert [each["_id"] async for each in collection.find().sort("_id").limit(2)] == [0, 2]
    assert [each["_id"] async for each in collection.find().sort("_id").skip(8)] == [16, 18]
    assert (await collection.find_one({}, sort=[("_id", -1)]))["_id"] == 18


async def test_odd_documents_of_the_driver_are_judged_by_the_server(world: World) -> None:
    await put(world, 4)
    world.age(Event, 1, 2400)
    raw = collection_of(Event).with_options(
        codec_options=CodecOptions(document_class=RawBSONDocument)
    )
    numbers = collection_of(Event).with_options(
        codec_options=CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS)
    )

    for collection in (raw, numbers):
        assert [each["_id"] async for each in collection.find().sort("_id")] == [0, 2, 3]
        assert await collection.find_one({"_id": 1}) is None
        assert (await collection.find_one({"_id": 3}))["ttl"] == 1800


@pytest.mark.parametrize("junk", [[LONG_AGO], "2020", None, {"a": 1}, [], 5])
async def test_a_find_judges_odd_last_modifications_as_the_server_does(
    world: World, junk: object
) -> None:
    world.of(Event).insert_one({"_id": 1, "name": "a", "_ts": junk})

    assert [each["_id"] async for each in collection_of(Event).find()] == [1]
    assert await Event.count() == 1


async def test_a_clone_of_a_cursor_judges_too(world: World, later: Later) -> None:
    collection = await put(world)
    cursor = collection.find().sort("_id")
    await cursor.next()

    clone = cursor.clone()
    await clone.next()
    later.by(timedelta(minutes=40))

    assert [each["_id"] async for each in clone] == [2, 4, 6, 8]
    assert await collection.find({"_id": 2}).distinct("name") == ["n2"]


async def test_asking_for_expired_documents_judges_none(world: World, later: Later) -> None:
    collection = await put(world)
    cursor = collection.find({}, include_expired=True)
    await cursor.next()
    later.by(2 * HOUR)

    assert len([each async for each in cursor]) == 9


@pytest.mark.parametrize(
    ("projection", "sent", "hidden"),
    [
        (None, None, {"_exp"}),
        ({"name": 1}, {"name": 1, "_ts": 1, "ttl": 1}, {"_ts", "ttl"}),
        ({"name": 1, "ttl": 1}, {"name": 1, "ttl": 1, "_ts": 1}, {"_ts"}),
        ({"ttl.x": 1}, {"ttl.x": 1}, set()),
        ({"_ts": "$name"}, {"_ts": "$name"}, set()),
        ({"ttl.x": 0}, {"ttl.x": 0}, {"_exp"}),
        ({"ttl": 0, "name": 0}, {"name": 0}, {"ttl", "_exp"}),
        ({"_ts": 0}, None, {"_ts", "_exp"}),
        ({"_id": 0}, {"_id": 0}, {"_exp"}),
        (["name"], {"name": 1, "_ts": 1, "ttl": 1}, {"_ts", "ttl"}),
        ({"_exp": 1}, {"_exp": 1, "_ts": 1, "ttl": 1}, {"_ts", "ttl"}),
        ({"a": {"b": 0}}, {"a": {"b": 0}}, {"_exp"}),
        ({"a": {"b": 1}}, {"a": {"b": 1}, "_ts": 1, "ttl": 1}, {"_ts", "ttl"}),
        ({"a": {"$slice": 1}}, {"a": {"$slice": 1}}, {"_exp"}),
        (
            {"n": {"$slice": ["$a", 1]}},
            {"n": {"$slice": ["$a", 1]}, "_ts": 1, "ttl": 1},
            {"_ts", "ttl"},
        ),
    ],
)
async def test_projections_fetch_what_is_needed_and_hide_it(
    world: World, projection: Any, sent: Any, hidden: set[str]
) -> None:
    lifetime, made = for_find(collection_of(Event)._gate, projection)

    assert made == sent
    assert set(lifetime.hidden) == hidden


async def test_what_changes_one_document_refuses_a_positional_projection(world: World) -> None:
    collection = await put(world)

    with pytest.raises(TTLError, match="elemMatch"):
        await collection.find_one_and_update(
            {"tags": "x"}, {"$set": {"score": 1}}, projection={"tags.$": 1}
        )


async def test_what_is_no_document_is_not_judged(world: World) -> None:
    await Voucher(id=1, ends=datetime.now(timezone.utc) + HOUR).insert()
    world.of(Voucher).insert_one({"_id": 2})  # expired, as it has no date
    vouchers = collection_of(Voucher)

    plan = await vouchers.find().explain()
    assert plan["queryPlanner"]["winningPlan"]["stage"] == "COLLSCAN"
    assert [key async for key in vouchers.find(return_key=True).hint("_id_")] == [{"_id": 1}]


# Beanie's cache


class Name(BaseModel):
    name: str


async def test_a_cached_result_is_forgotten_when_a_document_in_it_expires(
    world: World, later: Later
) -> None:
    await Cached.insert_many([Cached(id=1, name="a"), Cached(id=2, name="b", ttl=1800)])
    assert await Cached.find().count() == 2
    assert len(await Cached.find().to_list()) == 2
    assert (await Cached.find_one(Cached.id == 2)).name == "b"
    world.of(Cached).update_many({}, {"$set": {"name": "changed"}})
    assert [each.name for each in await Cached.find().to_list()] == ["a", "b"]
    assert (await Cached.find_one(Cached.id == 2)).name == "b"

    later.by(timedelta(minutes=40))

    assert [each.name for each in await Cached.find().to_list()] == ["changed"]
    assert (await Cached.find_one(Cached.id == 2)).name == "changed"


async def test_a_changed_default_counts_for_cached_results(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Cached(id=1, name="a").insert()
    world.age(Cached, 1, 600)
    assert len(await Cached.find(Cached.id == 1).to_list()) == 1

    monkeypatch.setattr(Cached, "__ttl__", 60)

    assert await Cached.find(Cached.id == 1).to_list() == []


async def test_what_does_not_say_when_it_expires_is_not_cached(world: World) -> None:
    await Cached(id=1, name="a").insert()
    assert (await Cached.find(projection_model=Name).to_list())[0].name == "a"
    assert await Cached.find().sum("_id") == 1

    world.age(Cached, 1)

    assert await Cached.find(projection_model=Name).to_list() == []
    assert await Cached.find().sum("_id") is None


class NameAndAge(BaseModel):
    name: str
    last_modified: datetime = Field(alias="_ts")


async def test_a_projection_without_the_ttl_is_not_cached(world: World) -> None:
    await Cached(id=1, name="a", ttl=60).insert()
    assert await Cached.find(projection_model=NameAndAge).to_list()
    assert await Cached.find_one(Cached.id == 1, projection_model=NameAndAge)
    assert await Cached.find().project(NameAndAge).to_list()
    assert await Cached.find().aggregate([{"$project": {"_ts": 1}}]).to_list()

    world.age(Cached, 1, 600)

    assert await Cached.find(projection_model=NameAndAge).to_list() == []
    assert await Cached.find_one(Cached.id == 1, projection_model=NameAndAge) is None
    assert await Cached.find().project(NameAndAge).to_list() == []
    assert await Cached.find().aggregate([{"$project": {"_ts": 1}}]).to_list() == []


class Pass(Document):
    """Says itself when it expires, under the mixin's name for it, and not what its own ttl is."""

    id: int
    changed: datetime | None = None
    expires_at: str = "by the end of May"

    class Settings:  # noqa: D106 (Beanie's)
        name = "passes"
        use_cache = True
        cache_expiration_time = timedelta(hours=2)


@pytest.fixture
async def passes(mongodb_url: str) -> AsyncIterator[World]:
    enable(Pass, TTL(3600, last_modified="changed"))
    async with opened(mongodb_url, [Pass]) as world:
        yield world
    disable(Pass)


async def test_a_class_without_the_ttl_among_its_fields_is_not_cached(passes: World) -> None:
    await Pass(id=1).insert()
    passes.of(Pass).update_one({"_id": 1}, {"$set": {"ttl": 60}})
    assert len(await Pass.find().to_list()) == 1
    assert await Pass.find_one(Pass.id == 1) is not None

    ago = {"$subtract": ["$$NOW", 600_000]}
    passes.of(Pass).update_one({"_id": 1}, [{"$set": {"changed": ago}}])

    assert await Pass.find().to_list() == []
    assert await Pass.find_one(Pass.id == 1) is None


async def test_linked_and_joined_documents_are_not_cached(world: World) -> None:
    lookup = {"from": "events", "localField": "_id", "foreignField": "_id", "as": "events"}
    await Event(id=1, name="e").insert()
    await CachedTicket(id=1, event=Event.link_from_id(1)).insert()

    async def reads() -> list[Any]:
        found = await CachedTicket.find(fetch_links=True).to_list()
        one = await CachedTicket.find_one(CachedTicket.id == 1, fetch_links=True)
        joined = await CachedTicket.aggregate([{"$lookup": lookup}]).to_list()
        return [found[0].event, one.event, *joined[0]["events"]]

    assert len(await reads()) == 3
    assert all(isinstance(event, Event) for event in (await reads())[:2])

    world.age(Event, 1)

    assert [event for event in await reads() if isinstance(event, (Event, dict))] == []


async def test_expired_documents_neither_come_from_the_cache_nor_get_into_it(
    world: World,
) -> None:
    await Cached(id=1, name="a").insert()
    world.age(Cached, 1)

    assert len(await Cached.find(include_expired=True).to_list()) == 1
    assert await Cached.find().to_list() == []
    assert await Cached.find_one(Cached.id == 1, include_expired=True) is not None
    assert await Cached.find_one(Cached.id == 1) is None
    assert await Cached.find(include_expired=True).aggregate([]).to_list()
    assert await Cached.find(include_expired=True).count() == 1


# Views


async def test_a_view_shows_live_documents_and_follows_the_default(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(world, 2)
    world.age(Event, 0, 600)

    async def names() -> list[str]:
        found = await Names.find().to_list()
        assert await Names.find().count() == len(found)
        assert len(await Names.aggregate([]).to_list()) == len(found)
        return sorted(each.name for each in found)

    assert await names() == ["n0", "n1"]
    monkeypatch.setattr(Event, "__ttl__", 60)
    assert await names() == ["n1"]
    monkeypatch.setattr(Event, "__ttl__", None)
    assert await names() == ["n0", "n1"]


@pytest.mark.parametrize("service", ["mongodb", "documentdb"])
async def test_a_view_that_was_made_without_the_gate_is_defined_anew(
    mongodb_url: str, service: Any
) -> None:
    class Thing(TTLMixin, Document):
        __ttl__ = 3600
        id: int

    class Things(View):
        id: int

        class Settings:
            source = Thing
            pipeline: list[Any] = []

    commands = Commands()
    client = connect(mongodb_url, event_listeners=[commands])
    database = client[f"ttl_odm_views_{time.monotonic_ns()}"]
    try:
        await database.command({"create": "Things", "viewOn": "Thing", "pipeline": []})
        gated = ttl_database(database, backend=service)
        await init_beanie(database=gated, document_models=[Thing, Things])
        await Thing(id=1).insert()
        await Thing.find().update([{"$set": {"_ts": datetime(2020, 1, 1)}}])  # noqa: DTZ001
        with_old_stamp = {"$set": {"_ts": datetime(2020, 1, 1, tzinfo=timezone.utc)}}
        await collection_of(Thing).update_one({}, [with_old_stamp], keep_last_modified=True)

        assert await Things.find().to_list() == []
        assert await Thing.find(include_expired=True).count() == 1
        (definition,) = commands.of("collMod")
        is_durable = definition.get("writeConcern", {}).get("w") == "majority"
        assert is_durable is (service == "mongodb")
    finally:
        await client.drop_database(database.name)
        closing = client.close()
        if closing is not None:
            await closing


# Pipelines that write


MERGES: dict[str, Any] = {
    "merge": "merge",
    "replace": "replace",
    "keepExisting": "keepExisting",
    "a pipeline": [{"$set": {"name": {"$concat": ["$name", "+"]}, "more": "$$new.ttl"}}],
    "a pipeline that leaves little": [{"$project": {"name": 1}}],
    "a pipeline that puts another in its place": [{"$replaceRoot": {"newRoot": {"_id": "$_id"}}}],
}


async def merge(world: World, how: Any, **options: Any) -> None:
    """Merge 1 and 3 into an expired 1 and a live 2, and a live 4 with a ttl of its own."""
    world.of(Event).insert_many([{"_id": key, "name": f"o{key}", "old": 1} for key in (1, 2, 4)])
    world.age(Event, 1)
    world.age(Event, 2, 1800)
    world.of(Plain).insert_many([{"_id": 1, "name": "new"}, {"_id": 3, "name": "x"}])

    stage = {"$merge": {"into": "events", "whenMatched": how, **options}}
    cursor = collection_of(Plain).aggregate([stage])
    await (await cursor if hasattr(cursor, "__await__") else cursor).to_list(None)


@pytest.mark.parametrize("how", MERGES)
async def test_merge_takes_expired_documents_for_absent(world: World, how: str) -> None:
    before = world.now()
    await merge(world, MERGES[how])

    stored = world.stored(Event, 1)
    assert stored == {"_id": 1, "_ts": stored["_ts"], "name": "new"}
    for key in (1, 3):
        assert before <= world.stored(Event, key)["_ts"] <= world.now()
    assert world.stored(Event, 2)["old"]


@pytest.mark.parametrize("how", ["merge", "replace", "keepExisting"])
async def test_merge_by_another_key_takes_expired_documents_for_absent(
    world: World, how: str
) -> None:
    world.of(Event).insert_one({"_id": 1, "name": "a", "old": 1})
    world.age(Event, 1)
    world.of(Plain).insert_one({"_id": 9, "name": "a"})

    stage = {"$merge": {"into": "events", "on": "name", "whenMatched": how}}
    cursor = collection_of(Plain).aggregate([stage])
    await (await cursor if hasattr(cursor, "__await__") else cursor).to_list(None)

    stored = world.stored(Event, 1)  # an _id can't change
    assert stored == {"_id": 1, "_ts": stored["_ts"], "name": "a"}


@pytest.mark.parametrize(
    "stage",
    [
        {"$set": {"name": {"$toInt": "$name"}}},
        {"$addFields": {"in": {"many": [{"$toInt": "$name"}]}}},
        {"$project": {"name": {"$toInt": "$name"}}},
        {"$replaceWith": {"name": {"$toInt": "$name"}}},
    ],
    ids=lambda stage: next(iter(stage)),
)
async def test_merge_evaluates_nothing_on_expired_documents(world: World, stage: Any) -> None:
    await merge(world, [stage])  # "o1" is no number

    stored = world.stored(Event, 1)
    assert stored == {"_id": 1, "_ts": stored["_ts"], "name": "new"}
    with pytest.raises(OperationFailure, match="Failed to parse number 'new'"):
        await merge_again(world, [stage])


@pytest.mark.parametrize("how", [*MERGES, "fail"])
async def test_merge_that_discards_what_is_new_leaves_expired_documents_expired(
    world: World, how: str
) -> None:
    await merge(world, MERGES.get(how, how), whenNotMatched="discard")

    assert world.stored(Event, 1)["name"] == "o1"
    assert await Event.get(1) is None
    assert world.keys(Event) == [1, 2, 4]


async def test_merge_that_fails_for_what_is_there_fails_for_live_documents_only(
    world: World,
) -> None:
    await merge(world, "fail")
    assert "old" not in world.stored(Event, 1)

    with pytest.raises(DuplicateKeyError, match=r"E11000 duplicate key in \$merge: 1"):
        await merge_again(world, "fail")


async def merge_again(world: World, how: Any) -> None:
    stage = {"$merge": {"into": "events", "whenMatched": how}}
    cursor = collection_of(Plain).aggregate([stage])
    await (await cursor if hasattr(cursor, "__await__") else cursor).to_list(None)


@pytest.mark.parametrize("how", MERGES)
async def test_merge_into_live_documents_does_as_it_says_and_stamps(world: World, how: str) -> None:
    collection = collection_of(Event)
    await collection.insert_one({"_id": 1, "name": "o1", "ttl": 3600, "old": 1})
    world.of(Event).update_one(
        {"_id": 1},
        [{"$set": {each: {"$subtract": [f"${each}", 1800000]} for each in ("_ts", "_exp")}}],
    )
    before = world.stored(Event, 1)
    world.of(Plain).insert_one({"_id": 1, "name": "new"})

    await merge_again(world, MERGES[how])

    stored = world.stored(Event, 1)
    expected = {
        "merge": {"name": "new", "ttl": 3600, "old": 1},
        "replace": {"name": "new"},
        "a pipeline": {"name": "o1+", "ttl": 3600, "old": 1},
        "a pipeline that leaves little": {"name": "o1"},
        "a pipeline that puts another in its place": {},
    }
    if how == "keepExisting":
        assert stored == before
        return
    assert stored["_ts"] > before["_ts"]
    assert stored.get("_exp") in (None, stored["_ts"] + timedelta(seconds=3600))
    assert {k: v for k, v in stored.items() if k[0] != "_"} == expected[how]


async def test_out_stamps_what_it_writes(world: World) -> None:
    world.of(Plain).insert_one({"_id": 1, "name": "new", "ttl": 60})

    cursor = collection_of(Plain).aggregate([{"$out": "events"}])
    await (await cursor if hasattr(cursor, "__await__") else cursor).to_list(None)

    stored = world.stored(Event, 1)
    assert stored["_exp"] == stored["_ts"] + timedelta(minutes=1)
    world.of(Event).drop()
    world.of(Event).create_index("name", unique=True)


# Rewriting


class Known:
    """The policies of no collection but one."""

    def policy_named(self, database: str | None, collection: str) -> TTL | None:
        return TTL(60) if (database, collection) in ((None, "t"), ("other", "t")) else None

    judge_named = policy_named

    def stamping_named(self, *_: Any) -> None:
        return None


LIVE = {"$match": {"$expr": live_expr(TTL(60))}}
HIDE = {"$unset": "_exp"}


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ([], [LIVE, HIDE]),
        ([{"$sort": {"a": 1}}], [LIVE, {"$sort": {"a": 1}}, HIDE]),
        ([{"$geoNear": {}}], [{"$geoNear": {}}, LIVE, HIDE]),
        ([{"$collStats": {}}], [{"$collStats": {}}]),
        ([{"$group": {"_id": "$a"}}], [LIVE, {"$group": {"_id": "$a"}}]),
        ([{"$group": {"_id": "$$ROOT"}}], [LIVE, HIDE, {"$group": {"_id": "$$ROOT"}}]),
        ([{"$project": {"_exp": 1}}], [LIVE, {"$project": {"_exp": 1}}]),
        ([{"$out": "p"}], [LIVE, HIDE, {"$out": "p"}]),
        (
            [{"$graphLookup": {"from": "t", "as": "x"}}],
            [
                LIVE,
                {
                    "$graphLookup": {
                        "from": "t",
                        "as": "x",
                        "restrictSearchWithMatch": LIVE["$match"],
                    }
                },
                {"$unset": "x._exp"},
                HIDE,
            ],
        ),
        ([{"$match": {"$text": 1}}], [{"$match": {"$text": 1, **LIVE["$match"]}}, HIDE]),
        (
            [{"$match": {"$expr": "$x"}}],
            [{"$match": {"$expr": {"$and": [LIVE["$match"]["$expr"], "$x"]}}}, HIDE],
        ),
        (
            [{"$unionWith": "t"}],
            [LIVE, HIDE, {"$unionWith": {"coll": "t", "pipeline": [LIVE, HIDE]}}],
        ),
        ([{"$unionWith": "p"}], [LIVE, HIDE, {"$unionWith": "p"}]),
        (
            [{"$lookup": {"from": {"db": "other", "coll": "t"}, "as": "x"}}],
            [
                LIVE,
                {
                    "$lookup": {
                        "from": {"db": "other", "coll": "t"},
                        "as": "x",
                        "pipeline": [LIVE, HIDE],
                    }
                },
                HIDE,
            ],
        ),
        (
            [{"$facet": {"a": [{"$lookup": {"from": "t", "as": "x"}}], "b": []}}],
            [
                LIVE,
                HIDE,
                {
                    "$facet": {
                        "a": [{"$lookup": {"from": "t", "as": "x", "pipeline": [LIVE, HIDE]}}],
                        "b": [],
                    }
                },
            ],
        ),
    ],
    ids=lambda each: str(each)[:40],
)
def test_pipelines_are_rewritten_where_documents_come_in(given: Any, made: Any) -> None:
    before = repr(given)

    assert pipelines.live_pipeline(given, TTL(60), Known()) == made
    assert repr(given) == before


def test_a_literal_instant_takes_the_place_of_now_in_expressions_only() -> None:
    now = datetime(2024, 1, 1, tzinfo=timezone.utc)
    given = {
        "name": "$$NOW",
        "$or": [{"$expr": {"$gt": ["$a", "$$NOW"]}}, {"b": "$$NOW"}],
        "$expr": {"$eq": [{"$literal": "$$NOW"}, "$$NOW"]},
    }

    assert filters.at(given, now) == {
        "name": "$$NOW",
        "$or": [{"$expr": {"$gt": ["$a", now]}}, {"b": "$$NOW"}],
        "$expr": {"$eq": [{"$literal": "$$NOW"}, now]},
    }


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"a": 1, "b": {"$gt": 2}, "c": {"$eq": 3}}, {"a": 1, "c": 3}),
        ({"$and": [{"a": 1}, {"b": {"x": 1}}]}, {"a": 1, "b": {"x": 1}}),
        ({"$or": [{"a": 1}], "b": {"$in": [2]}, "c": {"$all": [3]}}, {"a": 1, "b": 2, "c": 3}),
        ({"$or": [{"a": 1}, {"a": 2}], "b": {"$in": [1, 2]}, "$nor": [{"c": 3}]}, {}),
        ({"a": {"$in": [re.compile("x")]}, "b": {"$all": [{"$elemMatch": {"c": 1}}]}}, {}),
        ({}, {}),
    ],
)
def test_equalities_of_a_filter_are_found(given: Any, found: Any) -> None:
    assert filters.equalities(given) == found


# The clock


class Server:
    """Answers hello, after some time has passed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.time = datetime(2030, 1, 1, tzinfo=timezone.utc)
        self.host = 1000.0
        self.wall = 5_000_000.0
        self.asked = 0
        self.take = lambda: 0.003
        patch.setattr(server_clock, "_monotonic", lambda: self.host)
        patch.setattr(time, "time", lambda: self.wall)

    async def command(self, command: Any, **_: Any) -> Any:
        assert command == {"hello": 1}
        self.asked += 1
        seconds = self.take()
        self.pass_time(seconds / 3)
        answer = {"localTime": self.time.replace(microsecond=self.time.microsecond // 1000 * 1000)}
        self.pass_time(seconds * 2 / 3)
        return answer

    def pass_time(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        self.host += seconds
        self.wall += seconds


@pytest.fixture
def server() -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        yield Server(patch)


async def test_the_servers_clock_is_between_the_bounds(server: Server) -> None:
    clock = ServerClock()
    assert not clock.is_known
    await clock.refresh(server)

    for _ in range(50):
        server.pass_time(1.0007)
        assert clock.reached() <= server.time <= clock.at_most()
        assert clock.at_most() - clock.reached() < timedelta(milliseconds=10)
        assert clock.reached().microsecond % 1000 == 0


def test_a_servers_instant_is_a_date_or_a_number_of_milliseconds() -> None:
    instant = datetime(2030, 1, 1, 0, 0, 0, 7000, tzinfo=timezone.utc)
    milliseconds = int(instant.timestamp() * 1000)
    for told in (instant, instant.replace(tzinfo=None), DatetimeMS(milliseconds), milliseconds):
        assert instant_of({"localTime": told}) == DatetimeMS(milliseconds)


async def test_the_server_is_asked_once_a_minute(server: Server) -> None:
    clock = ServerClock()
    for _ in range(5):
        await clock.refresh(server)
    assert server.asked == 1

    server.pass_time(61)
    await clock.refresh(server)

    assert server.asked == 2


async def test_of_slow_answers_the_sharpest_counts(server: Server) -> None:
    clock = ServerClock()
    slow = [0.3, 0.02, 0.4]
    server.take = lambda: slow.pop(0)

    await clock.refresh(server)

    assert server.asked == 3
    assert clock.at_most() - clock.reached() < timedelta(milliseconds=25)


async def test_a_machine_that_has_slept_asks_again(server: Server) -> None:
    clock = ServerClock()
    await clock.refresh(server)
    server.wall += 3600
    server.time += timedelta(hours=1)

    await clock.refresh(server)

    assert server.asked == 2
    assert clock.reached() <= server.time <= clock.at_most()


async def test_links_lead_to_live_documents_only(world: World) -> None:
    await put(world, 2)
    await Plain(id=1, event=Event.link_from_id(0)).insert()
    world.age(Event, 0)

    (found,) = await Plain.find(fetch_links=True).to_list()
    (expired,) = await Plain.find(fetch_links=True, include_expired=True).to_list()

    assert isinstance(found.event, Link)
    assert expired.event.name == "n0"


async def test_what_mongodb_deletes_by_is_in_no_documents_of_a_pipeline(world: World) -> None:
    class Exact(TTLMixin, Document):
        model_config = ConfigDict(extra="forbid")
        __ttl__ = 3600
        id: int

        class Settings:
            name = "exact"

    class Holder(Document):
        id: int
        exact: Link[Exact]

        class Settings:
            name = "holders"

    await init_beanie(database=world.database, document_models=[Exact, Holder])
    exact = await Exact(id=1, ttl=60).insert()
    await Holder(id=1, exact=exact).insert()

    assert "_exp" in world.stored(Exact, 1)
    (holder,) = await Holder.find(fetch_links=True).to_list()
    assert holder.exact.id == 1
    again = await Holder.get(1, fetch_links=True)
    assert again is not None
    assert again.exact.id == 1
    for options in {}, {"include_expired": True}:
        found = await Exact.aggregate([{"$sort": {"_id": 1}}], **options).to_list()
        assert found[0].keys() == {"_id", "_ts", "ttl"}
    await Exact.aggregate([{"$out": "copied"}]).to_list()
    assert "_exp" not in (world.raw["copied"].find_one({}) or {})
    for name in ("exact", "holders", "copied"):
        world.raw.drop_collection(name)
