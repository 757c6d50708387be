"""Writes: they start a life again, they bring nobody back, and they keep ``_exp`` right."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from beanie import Document, TimeSeriesConfig, init_beanie
from beanie.exceptions import DocumentNotFound, RevisionIdWasChanged
from beanie.odm.fields import ExpressionField
from beanie.odm.queries.update import UpdateResponse
from bson import Int64, Timestamp
from pymongo import (
    DeleteMany,
    DeleteOne,
    InsertOne,
    ReplaceOne,
    UpdateMany,
    UpdateOne,
    WriteConcern,
)
from pymongo.errors import BulkWriteError, WriteConcernError

from tests.mongo.models import LONG_AGO, Event, Strict, Swept, Tracked, World, collection_of, opened
from ttl_odm import ExpireAfter, InvalidTTL
from ttl_odm.beanie import ExpiredError, TTLMixin, keep_last_modified
from ttl_odm.beanie.indexes.validator import too_early
from ttl_odm.beanie.policy.ttl_indexes import own_expiry
from ttl_odm.core.policy import TTL

HALF_HOUR = 1800


async def made(world: World, key: int = 1, **fields: Any) -> Event:
    """Insert an event, and let it be half an hour old."""
    event = Event(id=key, name=f"n{key}", **fields)
    await event.insert()
    world.age(Event, key, HALF_HOUR)
    return event


def is_fresh(world: World, model: Any = Event, key: int = 1) -> bool:
    """Whether it is younger than what `made` gives, and not of the future."""
    age = world.now() - world.stored(model, key)["_ts"]
    return timedelta(seconds=-1) < age < timedelta(seconds=HALF_HOUR)


RESETTING: dict[str, Any] = {
    "save": lambda event: event.save(),
    "set": lambda event: event.set({Event.score: 1}),
    "inc": lambda event: event.inc({Event.score: 1}),
    "replace": lambda event: event.replace(),
    "touch": lambda event: event.touch(),
    "a ttl alone": lambda event: event.set({Event.ttl: 60}),
    "an update without change": lambda event: event.set({Event.score: 0}),
    "a _ts of one's own": lambda event: event.set({"_ts": LONG_AGO, "score": 1}),
    "update one": lambda _: Event.find_one(Event.id == 1).update({"$push": {"tags": "x"}}),
    "update many": lambda _: Event.find().update({"$set": {"tags.0": "x"}}),
    "a pipeline": lambda _: Event.find().update([{"$set": {"score": {"$add": ["$score", 1]}}}]),
    "replace one": lambda event: Event.find_one(Event.id == 1).replace_one(event),
    "find one and update": lambda _: Event.find_one(Event.id == 1).update(
        {"$set": {"score": 1}}, response_type=UpdateResponse.OLD_DOCUMENT
    ),
    "raw replace": lambda _: collection_of(Event).find_one_and_replace({"_id": 1}, {"name": "r"}),
    "bulk": lambda _: collection_of(Event).bulk_write(
        [UpdateOne({"_id": 1}, {"$set": {"score": 2}})]
    ),
    "bulk replace": lambda _: collection_of(Event).bulk_write(
        [ReplaceOne({"_id": 1}, {"name": "r"})]
    ),
    "upsert": lambda _: collection_of(Event).update_one(
        {"_id": 1}, {"$set": {"score": 2}}, upsert=True
    ),
}


@pytest.mark.parametrize("way", RESETTING)
async def test_a_write_starts_the_life_again(world: World, way: str) -> None:
    event = await made(world)

    await RESETTING[way](event)

    assert is_fresh(world)


@pytest.mark.parametrize("way", [way for way in RESETTING if way != "touch"])
async def test_a_write_that_keeps_the_last_modification_changes_the_rest(
    world: World, way: str
) -> None:
    event = await made(world)
    before = world.stored(Event, 1)["_ts"]

    with keep_last_modified():
        await RESETTING[way](event)

    assert world.stored(Event, 1)["_ts"] == before


async def test_keeping_is_a_keyword_where_beanie_hands_keywords_on(world: World) -> None:
    event = await made(world)
    before = world.stored(Event, 1)["_ts"]

    await event.set({Event.score: 1}, keep_last_modified=True)
    event.score = 2
    await event.save(keep_last_modified=True)
    await Event.find().update({"$inc": {"score": 1}}, keep_last_modified=True)

    assert world.stored(Event, 1)["_ts"] == before
    assert world.stored(Event, 1)["score"] == 3


async def test_keeping_ends_with_its_block_and_is_nobody_elses(world: World) -> None:
    await made(world)
    held, go_on = asyncio.Event(), asyncio.Event()

    async def keeper() -> None:
        with keep_last_modified():
            held.set()
            await go_on.wait()

    task = asyncio.create_task(keeper())
    await held.wait()
    await Event.find().update({"$inc": {"score": 1}})
    go_on.set()
    await task

    assert is_fresh(world)


async def test_an_insert_may_bring_its_last_modification_along_if_that_is_kept(
    world: World,
) -> None:
    collection = collection_of(Event)
    recent = world.now() - timedelta(minutes=5)

    with keep_last_modified():
        await collection.insert_one({"_id": 1, "name": "a", "_ts": recent, "ttl": 600})
    await collection.insert_one({"_id": 2, "name": "b", "_ts": recent})

    assert world.stored(Event, 1)["_ts"] == recent.replace(
        microsecond=recent.microsecond // 1000 * 1000
    )
    assert world.stored(Event, 1)["_exp"] == world.stored(Event, 1)["_ts"] + timedelta(minutes=10)
    assert is_fresh(world, Event, 2)


async def test_a_document_in_memory_knows_its_last_modification(world: World) -> None:
    event = Event(id=1, name="a")

    await event.insert()
    assert event.last_modified == world.stored(Event, 1)["_ts"]
    for write in (event.set({"score": 1}), event.replace(), event.touch(), event.save()):
        await write
        assert event.last_modified == world.stored(Event, 1)["_ts"]


async def test_state_management_sees_no_change_in_a_stamp(world: World) -> None:
    tracked = Tracked(id=1)
    for write in (tracked.insert, tracked.touch, tracked.replace, tracked.save):
        await write()
        assert not tracked.is_changed
        assert tracked.get_changes() == {}

    tracked.score = 5
    assert tracked.get_changes() == {"score": 5}
    await tracked.save_changes()
    assert world.stored(Tracked, 1)["score"] == 5
    before = world.stored(Tracked, 1)["_ts"]
    await tracked.save_changes()
    assert world.stored(Tracked, 1)["_ts"] == before


async def test_nor_if_nulls_are_not_stored(mongodb_url: str) -> None:
    class Sparse(TTLMixin, Document):
        __ttl__ = 3600
        id: int  # type: ignore[assignment]
        note: str | None = None

        class Settings:
            use_state_management = True
            keep_nulls = False

    async with opened(mongodb_url, [Sparse]) as world:
        sparse = Sparse(id=1)
        writes = (sparse.insert, lambda: sparse.expire_in(60), sparse.touch, sparse.inherit_ttl)
        for write in (*writes, sparse.replace, sparse.save):
            await write()
            assert not sparse.is_changed
            before = world.stored(Sparse, 1)
            await sparse.save_changes()
            assert world.stored(Sparse, 1) == before

        sparse.ttl = 60
        assert sparse.get_changes() == {"ttl": 60}


async def test_nor_if_dates_are_stored_in_another_form(mongodb_url: str) -> None:
    class Encoded(TTLMixin, Document):
        __ttl__ = 3600
        id: int  # type: ignore[assignment]

        class Settings:
            use_state_management = True
            bson_encoders = {datetime: datetime.isoformat}

    async with opened(mongodb_url, [Encoded]) as world:
        encoded = Encoded(id=1)
        for write in (
            encoded.insert,
            lambda: encoded.expire_in(60),
            encoded.touch,
            encoded.replace,
        ):
            await write()
            assert not encoded.is_changed
            before = world.stored(Encoded, 1)
            await encoded.save_changes()
            assert world.stored(Encoded, 1) == before


async def test_the_users_document_is_left_as_it_was_but_for_its_id(world: World) -> None:
    document: dict[str, Any] = {"name": "a", "ttl": 60}

    result = await collection_of(Event).insert_one(document)

    assert document == {"_id": result.inserted_id, "name": "a", "ttl": 60}


# Expired documents


GONE: dict[str, Any] = {
    "set": lambda event: event.set({"score": 1}),
    "inc": lambda event: event.inc({"score": 1}),
    "update": lambda event: event.update({"$push": {"tags": "x"}}),
    "replace": lambda event: event.replace(),
    "delete": lambda event: event.delete(),
    "sync": lambda event: event.sync(),
    "touch": lambda event: event.touch(),
    "persist": lambda event: event.persist(),
    "expire_in": lambda event: event.expire_in(60),
}


@pytest.mark.parametrize("is_there", [True, False], ids=["stored", "deleted by MongoDB"])
@pytest.mark.parametrize("model", [Event, Tracked])
@pytest.mark.parametrize("way", GONE)
async def test_a_write_of_an_expired_document_says_so(
    world: World, way: str, model: Any, *, is_there: bool
) -> None:
    document = model(id=1, name="a")
    await document.insert()
    world.age(model, 1)
    stored = world.stored(model, 1)
    document.last_modified = stored["_ts"]
    if not is_there:
        world.of(model).delete_one({"_id": 1})

    with pytest.raises(ExpiredError, match=f"{model.__name__} 1 has expired") as caught:
        await GONE[way](document)

    assert isinstance(caught.value, DocumentNotFound)
    assert (caught.value.model, caught.value.key) == (model.__name__, 1)
    if is_there:
        assert world.stored(model, 1) == stored


@pytest.mark.parametrize("way", [way for way in GONE if way != "delete"])
async def test_a_write_of_a_document_that_was_deleted_does_not_speak_of_expiry(
    world: World, way: str
) -> None:
    event = await made(world)
    world.of(Event).delete_one({"_id": 1})

    with pytest.raises(DocumentNotFound) as caught:
        await GONE[way](event)

    assert not isinstance(caught.value, ExpiredError)


async def test_deleting_a_document_that_was_deleted_is_what_it_is_in_beanie(world: World) -> None:
    event = await made(world)
    world.of(Event).delete_one({"_id": 1})

    assert (await event.delete()).deleted_count == 0


async def test_a_changed_revision_of_a_live_document_is_no_expiry(world: World) -> None:
    await Tracked(id=1).insert()
    one, other = await Tracked.get(1), await Tracked.get(1)
    await one.set({"score": 1})

    with pytest.raises(RevisionIdWasChanged):
        await other.set({"score": 2})
    with pytest.raises(RevisionIdWasChanged):
        await other.replace()


async def test_insert_of_an_expired_document_makes_a_new_one(world: World) -> None:
    event = await made(world, tags=["a"])
    world.of(Event).update_one({"_id": 1}, {"$set": {"leftover": 1}})
    world.age(Event, 1)

    with pytest.raises(ExpiredError):
        await event.save()
    await event.insert()

    assert is_fresh(world)
    assert "leftover" not in world.stored(Event, 1)


async def test_an_upsert_that_meets_an_expired_document_inserts(world: World) -> None:
    collection = collection_of(Event)
    for key, write in enumerate(
        [
            lambda given: collection.update_one(
                given, {"$inc": {"score": 1}, "$setOnInsert": {"name": "x0"}}, upsert=True
            ),
            lambda given: collection.update_many(
                given, {"$inc": {"score": 1}, "$set": {"name": "x1"}}, upsert=True
            ),
            lambda given: collection.replace_one(given, {"name": "x2", "score": 1}, upsert=True),
            lambda given: collection.find_one_and_update(
                given, [{"$set": {"score": 1, "name": "x3"}}], upsert=True
            ),
            lambda given: collection.find_one_and_replace(
                given, {"name": "x4", "score": 1}, upsert=True
            ),
            lambda given: collection.bulk_write(
                [UpdateOne(given, {"$inc": {"score": 1}, "$set": {"name": "x5"}}, upsert=True)]
            ),
        ]
    ):
        await made(world, key, score=10, tags=["old"])
        world.age(Event, key)

        await write({"_id": key})

        stored = world.stored(Event, key)
        assert (stored["score"], stored["name"]) == (1, f"x{key}"), key
        assert "tags" not in stored
        assert is_fresh(world, Event, key)


REPLACING: dict[str, Any] = {
    "replace_one": lambda gated, row: gated.replace_one({"_id": 1}, row),
    "an upsert": lambda gated, row: gated.replace_one({"_id": 2}, row, upsert=True),
    "find_one_and_replace": lambda gated, row: gated.find_one_and_replace({"_id": 1}, row),
    "a bulk write": lambda gated, row: gated.bulk_write([ReplaceOne({"_id": 1}, row)]),
    "an upsert in bulk": lambda gated, row: gated.bulk_write(
        [ReplaceOne({"_id": 2}, row, upsert=True)]
    ),
}


@pytest.mark.parametrize("way", REPLACING)
async def test_a_replacement_fills_in_empty_timestamps_where_mongodb_does(
    world: World, way: str
) -> None:
    empty = Timestamp(0, 0)
    row = {"a": empty, "b": 1, "inside": {"a": empty}, "several": [empty]}
    await made(world)
    plain = world.raw["plain_timestamps"]
    plain.replace_one({"_id": 1}, row, upsert=True)
    reached = plain.find_one_and_delete({"_id": 1})
    assert reached is not None

    await REPLACING[way](collection_of(Event), row)

    stored = world.stored(Event, 2 if "upsert" in way else 1)
    assert stored["a"].time > 0
    assert {**stored, "a": reached["a"]} == {
        **reached,
        **{key: stored[key] for key in ("_id", "_ts")},
    }
    assert list(stored)[1:-1] == list(row)


async def test_a_replacement_keeps_fields_that_look_like_expressions(world: World) -> None:
    await made(world)

    await collection_of(Event).replace_one({"_id": 1}, {"name": "$score", "sub": {"$x": "$$NOW"}})

    stored = world.stored(Event, 1)
    assert (stored["name"], stored["sub"]) == ("$score", {"$x": "$$NOW"})


async def test_a_bulk_write_counts_as_the_driver_does(world: World) -> None:
    for key in (1, 2, 3):
        await made(world, key)
    world.age(Event, 2)

    result = await collection_of(Event).bulk_write(
        [
            InsertOne({"_id": 4, "name": "n4"}),
            UpdateOne({"_id": 5}, {"$set": {"name": "n5"}}, upsert=True),
            UpdateMany({}, {"$inc": {"score": 1}}),
            ReplaceOne({"_id": 2}, {"name": "back?"}),
            DeleteOne({"_id": 2}),
            DeleteOne({"_id": 3}),
            UpdateOne({"_id": 1}, {"$set": {"score": 9}}, upsert=True),
        ]
    )

    assert (result.inserted_count, result.deleted_count) == (1, 1)
    assert (result.matched_count, result.modified_count) == (5, 5)
    assert result.upserted_ids == {1: 5}
    assert world.stored(Event, 2)["score"] == 0


async def test_writes_that_nobody_waits_for_are_reported_all_the_same(world: World) -> None:
    await made(world, 1)
    world.age(Event, 1)
    careless = collection_of(Event).with_options(write_concern=WriteConcern(w=0))

    await careless.insert_one({"_id": 1, "name": "new"})
    upserted = await careless.update_one({"_id": 2}, {"$set": {"name": "b"}}, upsert=True)
    await careless.insert_many([{"_id": 3, "name": "c"}])
    await careless.delete_one({"_id": 3})

    assert world.stored(Event, 1)["name"] == "new"
    assert upserted.upserted_id == 2


UNACKNOWLEDGED: dict[str, Any] = {
    "insert": lambda events: events.insert_one({"_id": 1, "name": "n1"}),
    "insert many": lambda events: events.insert_many([{"_id": 1, "name": "n1"}]),
    "update": lambda events: events.update_one({"_id": 1}, {"$set": {"name": "n1"}}, upsert=True),
    "replace": lambda events: events.replace_one({"_id": 1}, {"name": "n1"}, upsert=True),
    "find and update": lambda events: events.find_one_and_update(
        {"_id": 1}, {"$set": {"name": "n1"}}, upsert=True
    ),
    "bulk": lambda events: events.bulk_write(
        [
            UpdateOne({"_id": 1}, {"$set": {"name": "n1"}}, upsert=True),
            UpdateOne({"_id": 2}, {"$inc": {"score": 1}}, upsert=True),
            UpdateOne({"_id": 2}, {"$inc": {"score": 1}}, upsert=True),
        ]
    ),
}


@pytest.mark.parametrize("way", UNACKNOWLEDGED)
async def test_too_few_members_that_acknowledge_stop_no_write(world: World, way: str) -> None:
    await made(world, 1, tags=["old"])
    world.age(Event, 1)
    careful = collection_of(Event).with_options(write_concern=WriteConcern(w=7, wtimeout=100))

    with pytest.raises((WriteConcernError, BulkWriteError)) as failed:
        await UNACKNOWLEDGED[way](careful)

    assert world.stored(Event, 1)["name"] == "n1"
    assert "tags" not in world.stored(Event, 1)
    if way == "bulk":
        details = failed.value.details
        assert (details["nUpserted"], details["nModified"]) == (2, 1)
        assert [error["code"] for error in details["writeConcernErrors"]] == [100]
        assert world.stored(Event, 2)["score"] == 2


@pytest.mark.parametrize(
    "nonsense", [None, {}, {"name": 1}, 5, [], "x", {"$set": 5}, {"$unset": "a"}], ids=repr
)
async def test_an_update_that_is_none_is_the_drivers_to_refuse(world: World, nonsense: Any) -> None:
    plain, ours = collection_of(Swept)._gate.plain, collection_of(Swept)
    errors = []
    for collection in (plain, ours):
        with pytest.raises(Exception) as caught:  # noqa: PT011 - whichever it is
            await collection.update_one({"_id": 1}, nonsense)
        errors.append((type(caught.value), str(caught.value).partition(", full error")[0]))

    assert errors[0] == errors[1]


# Native deletion's own field


def too_early_keys(world: World) -> list[object]:
    found = world.of(Event).find({"$expr": too_early(TTL(3600))}, {"_id": 1})
    return [each["_id"] for each in found]


def wrong_keys(world: World) -> list[object]:
    wrong = {"$expr": {"$ne": ["$_exp", own_expiry(TTL(3600))]}}
    return [each["_id"] for each in world.of(Event).find(wrong, {"_id": 1})]


@pytest.mark.parametrize("own", [60, 60.0, Int64(60), -1, None, 60.5, "60", True, 0, 2**31, []])
async def test_what_knows_the_whole_document_sets_the_expiry_exactly(
    world: World, own: Any
) -> None:
    collection = collection_of(Event)
    await collection.insert_one({"_id": 1, "name": "a", "ttl": own})
    await collection.insert_many([{"_id": 2, "name": "b", "ttl": own}])
    await collection.replace_one({"_id": 3}, {"name": "c", "ttl": own}, upsert=True)
    await collection.update_one({"_id": 4}, {"$set": {"name": "d", "ttl": own}}, upsert=True)
    await collection.bulk_write([InsertOne({"_id": 5, "name": "e", "ttl": own})])
    assert wrong_keys(world) == []

    await collection.update_many({}, {"$set": {"score": 1}})
    assert wrong_keys(world) == []
    await collection.replace_one({"_id": 3}, {"name": "cc", "ttl": own})
    await collection.update_many({}, [{"$set": {"score": 2}}])
    await collection.update_many({}, {"$set": {"score": 3}}, keep_last_modified=True)
    assert wrong_keys(world) == []
    await collection.update_many({}, {"$unset": {"ttl": ""}})
    assert wrong_keys(world) == []


OPERATORS: list[Any] = [
    {"$inc": {"score": 1}},
    {"$inc": {"ttl": 3600}},
    {"$mul": {"ttl": 100}},
    {"$rename": {"ttl": "gone"}},
    {"$rename": {"longer": "ttl"}},
    {"$max": {"ttl": 7200}, "$push": {"tags": "x"}},
    {"$set": {"tags.0": "x", "ttl": 7200}},
    {"$set": {"_exp": LONG_AGO}, "$push": {"tags": "x"}},
    {"$currentDate": {"_exp": True, "_ts": {"$type": "timestamp"}}},
    {"$unset": {"ttl": ""}, "$push": {"tags": "x"}},
]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("update", OPERATORS, ids=str)
async def test_what_cannot_know_the_expiry_never_leaves_one_that_is_too_early(
    world: World, update: Any, *, keep: bool
) -> None:
    await made(world, ttl=3600, tags=["a"])
    world.of(Event).update_one({"_id": 1}, [{"$set": {"longer": 9000, "_exp": own_expiry(TTL(1))}}])

    await collection_of(Event).update_one({"_id": 1}, update, keep_last_modified=keep)

    assert too_early_keys(world) == []
    stored = world.stored(Event, 1)
    assert stored.get("_exp") in (None, stored["_ts"] + timedelta(seconds=stored.get("ttl", 0)))


async def test_a_swept_class_has_the_expiry_field_too(world: World) -> None:
    swept = Swept(id=1, ttl=6000)
    await swept.insert()
    await swept.set({"score": 1, "ttl": 60})

    stored = world.stored(Swept, 1)
    assert stored["_exp"] == stored["_ts"] + timedelta(seconds=60)


async def test_the_expiry_field_is_shown_to_nobody(world: World) -> None:
    await Event(id=1, name="a", ttl=6000).insert()
    collection = collection_of(Event)

    assert "_exp" in world.stored(Event, 1)
    assert "_exp" not in await collection.find_one()
    assert all("_exp" not in each for each in await collection.find().to_list(None))
    assert "_exp" not in await collection.find_one_and_update({"_id": 1}, {"$set": {"score": 1}})
    assert (await collection.find_one({}, {"_exp": 1})).keys() == {"_id", "_exp"}


# Values


@pytest.mark.parametrize("junk", [0, -2, 1.5, "60", True, 2**31, float("nan")])
async def test_lenient_values_are_stored_as_given_and_mean_nothing(world: World, junk: Any) -> None:
    event = Event(id=1, name="a", ttl=junk)
    await event.insert()

    stored = world.stored(Event, 1)
    assert repr(stored["ttl"]) == repr(junk)
    assert event.expires_at == stored["_ts"] + timedelta(hours=1)
    assert repr((await Event.get(1)).ttl) == repr(junk)


@pytest.mark.parametrize("junk", [0, -2, 1.5, "60", True, 2**31])
async def test_strict_values_are_refused_before_anything_is_stored(world: World, junk: Any) -> None:
    collection = collection_of(Strict)
    await Strict(id=1, ttl=6000).insert()
    writes: list[Any] = [
        Strict(id=2, ttl=junk).insert(),
        Strict.insert_many([Strict(id=3), Strict(id=4, ttl=junk)]),
        Strict(id=1, ttl=junk).save(),
        Strict.find().update({"$set": {"ttl": junk}}),
        collection.update_one({"_id": 9}, {"$setOnInsert": {"ttl": junk}}, upsert=True),
        collection.update_one({"_id": 1}, [{"$set": {"ttl": junk}}]),
        collection.replace_one({"_id": 1}, {"ttl": junk}),
        collection.bulk_write([InsertOne({"_id": 5}), UpdateOne({}, {"$set": {"ttl": junk}})]),
    ]

    for write in writes:
        with pytest.raises(InvalidTTL):
            await write

    assert world.keys(Strict) == [1]
    assert world.stored(Strict, 1)["ttl"] == 6000


async def test_a_timedelta_of_minus_1_second_is_never_taken_for_never(world: World) -> None:
    gone_wrong = timedelta(seconds=-1)
    for model in (Tracked, Strict):
        event = await model(id=1, ttl=timedelta(minutes=1)).insert()
        event.ttl = gone_wrong
        writes: list[Any] = [
            model(id=2, ttl=gone_wrong).insert(),
            model.insert_many([model(id=3), model(id=4, ttl=gone_wrong)]),
            event.save(),
            event.replace(),
            model.find().update({"$set": {"ttl": gone_wrong}}),
            model.find_one(model.id == 1).set({model.ttl: gone_wrong}),
        ]
        for write in writes:
            with pytest.raises(InvalidTTL, match=r"timedelta\(days=-1, seconds=86399\)"):
                await write

        assert world.keys(model) == [1]
        assert world.stored(model, 1)["ttl"] == 60


@pytest.mark.parametrize(
    "update", [{"$inc": {"ttl": 1}}, {"$rename": {"x": "ttl"}}, [{"$set": {"ttl": "$x"}}]], ids=str
)
async def test_strict_values_cannot_be_computed_by_the_server(world: World, update: Any) -> None:
    with pytest.raises(InvalidTTL, match=r"can't be checked"):
        await collection_of(Strict).update_many({}, update)


async def test_strict_values_know_a_field_of_beanies_from_the_ttl(world: World) -> None:
    await Strict(id=1).insert()

    # Compared with a name, it makes an operator of Beanie's, which is true.
    await collection_of(Strict).update_many({}, {"$inc": {ExpressionField("views"): 1}})

    assert world.stored(Strict, 1)["views"] == 1


@pytest.mark.filterwarnings("ignore:This field is deprecated")  # Beanie 1.30's own
async def test_a_time_series_is_changed_and_deleted_by_what_measurements_share(
    world: World,
) -> None:
    class Measured(TTLMixin, Document):
        __ttl__ = ExpireAfter("at", 3600)
        at: datetime
        place: str

        class Settings:
            name = "measured"
            timeseries = TimeSeriesConfig(time_field="at", meta_field="place")

    await init_beanie(database=world.database, document_models=[Measured])
    now = world.now()
    for place, at in (("a", now), ("b", now), ("b", now - timedelta(hours=2))):
        await Measured(at=at, place=place).insert()

    await Measured.find(Measured.place == "a").update({"$set": {"place": "c"}})
    await Measured.find(Measured.place == "b").delete()
    await collection_of(Measured).bulk_write([DeleteMany({"place": "nowhere"})])

    assert [each.place for each in await Measured.find().to_list()] == ["c"]
    world.raw.drop_collection("measured")
