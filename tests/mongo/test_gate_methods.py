"""Every public method of the drivers is known to the gate, and derived handles keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from beanie import Delete, Document, after_event, init_beanie
from bson import DBRef
from bson.raw_bson import RawBSONDocument
from pymongo import ReadPreference
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import InvalidOperation, WriteError

from tests.mongo.models import Event, Plain, World, collection_of
from tests.mongo.scratch import connect
from ttl_odm import TTLConfigurationError, TTLError
from ttl_odm.beanie import ExpiredError, TTLMixin, ttl_database
from ttl_odm.beanie.gate.database import gated
from ttl_odm.beanie.gate.gate import GATED, PASSED
from ttl_odm.beanie.gate.pymongo import TTLCollection, TTLDatabase

if TYPE_CHECKING:
    from collections.abc import Callable

DATABASE = {
    *("aggregate", "client", "codec_options", "command", "create_collection", "cursor_command"),
    *("dereference", "drop_collection", "get_collection", "list_collection_names"),
    *("list_collections", "name", "next", "read_concern", "read_preference"),
    *("validate_collection", "watch", "with_options", "write_concern"),
}
MOTOR_ONLY = {"get_io_loop", "wrap", "delegate"}
"""Motor's own machinery."""


def public(kind: Any) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_gate_knows_every_method_of_a_collection() -> None:
    assert public(AsyncCollection) == GATED | PASSED
    assert {name for name in GATED if name in vars(TTLCollection)} == GATED


def test_the_gate_knows_every_method_of_a_database() -> None:
    assert public(AsyncDatabase) == DATABASE
    assert {"aggregate", "command", "create_collection", "get_collection", "with_options"} <= vars(
        TTLDatabase
    ).keys()


def test_the_gate_knows_every_method_of_motor() -> None:
    from motor.motor_asyncio import AsyncIOMotorCollection, AsyncIOMotorDatabase

    from ttl_odm.beanie.gate.motor import TTLMotorCollection, TTLMotorDatabase

    assert public(AsyncIOMotorCollection) - MOTOR_ONLY <= GATED | PASSED
    # with_options comes back through wrap().
    missing = {name for name in GATED if name not in vars(TTLMotorCollection)}
    assert missing == {"with_options"}
    assert public(AsyncIOMotorDatabase) - MOTOR_ONLY <= DATABASE
    assert {"aggregate", "command", "create_collection", "dereference", "wrap"} <= vars(
        TTLMotorDatabase
    ).keys()


async def put(world: World) -> Any:
    world.of(Event).insert_many([{"_id": 1, "name": "dead"}, {"_id": 2, "name": "live"}])
    world.age(Event, 1)
    world.age(Event, 2, 0)
    return collection_of(Event)


HANDLES: dict[str, Callable[[Any, Any], Any]] = {
    "database[name]": lambda database, _: database["events"],
    "database.name": lambda database, _: database.events,
    "get_collection": lambda database, _: database.get_collection("events"),
    "collection.database": lambda _, events: events.database["events"],
    "with_options": lambda _, events: events.with_options(
        read_preference=ReadPreference.PRIMARY_PREFERRED
    ),
    "database.with_options": lambda database, _: database.with_options(
        read_preference=ReadPreference.PRIMARY_PREFERRED
    )["events"],
    "gated": lambda _, events: gated(events),
}


@pytest.mark.parametrize("way", HANDLES)
async def test_a_derived_handle_is_gated(world: World, way: str) -> None:
    events = await put(world)

    handle = HANDLES[way](world.database, events)

    assert [each["_id"] async for each in handle.find()] == [2]
    assert type(handle) is type(events)


async def test_a_sub_collection_has_a_policy_of_its_own_only(world: World) -> None:
    world.raw["events.old"].insert_one({"_id": 1, "_ts": world.now().replace(year=2020)})
    events = await put(world)

    found = await events["old"].find_one()
    world.raw["events.old"].drop()

    assert found["_id"] == 1
    assert type(events.old) is type(events)


async def test_a_reference_to_an_expired_document_leads_nowhere(world: World) -> None:
    await put(world)

    assert await world.database.dereference(DBRef("events", 1)) is None
    assert (await world.database.dereference(DBRef("events", 2)))["_id"] == 2


async def test_positional_arguments_are_understood(world: World) -> None:
    events = await put(world)

    updated = await events.update_one({"_id": 3}, {"$set": {"name": "new"}}, True)  # noqa: FBT003 - so it is
    inserted = await events.insert_many([{"_id": 4, "name": "d"}], False)  # noqa: FBT003 - the same

    assert updated.upserted_id == 3
    assert inserted.inserted_ids == [4]
    assert await events.find_one(1) is None
    assert (await events.find_one(2, {"name": 1})) == {"_id": 2, "name": "live"}


async def test_raw_batches_hold_live_documents_only(world: World) -> None:
    events = await put(world)

    found = events.find_raw_batches({})
    batches = [batch async for batch in found]

    assert [each["_id"] for batch in batches for each in _documents(batch)] == [2]

    named = events.find_raw_batches({}, projection={"name": 1})
    (batch,) = [batch async for batch in named]
    assert [dict(each) for each in _documents(batch)] == [{"_id": 2, "name": "live"}]


def _documents(batch: bytes) -> list[RawBSONDocument]:
    documents, start = [], 0
    while start < len(batch):
        size = int.from_bytes(batch[start : start + 4], "little")
        documents.append(RawBSONDocument(batch[start : start + size]))
        start += size
    return documents


async def test_the_indexes_of_ttl_odm_are_hidden_from_beanie(world: World) -> None:
    world.of(Event).create_index("_ts", name="__ttl_default", expireAfterSeconds=3600)
    events = collection_of(Event)
    try:
        assert not [name for name in await events.index_information() if name[:2] == "__"]
    finally:
        world.of(Event).drop_index("__ttl_default")


async def test_a_pipeline_without_any_policy_is_passed_on_as_it_is(world: World) -> None:
    gate = collection_of(Plain)._gate
    pipeline = [{"$lookup": {"from": "plain", "localField": "a", "foreignField": "b", "as": "c"}}]

    assert gate.pipeline_for(pipeline, expired=False) == pipeline


@pytest.mark.parametrize("given", [None, "app", object()])
def test_only_a_database_of_the_drivers_can_be_gated(given: Any) -> None:
    with pytest.raises(TTLConfigurationError, match="pass an AsyncDatabase"):
        ttl_database(given)
    with pytest.raises(TTLConfigurationError, match="is neither a collection"):
        gated(given)


async def test_a_backend_must_be_one_of_two(mongodb_url: str) -> None:
    client = connect(mongodb_url)
    with pytest.raises(TTLConfigurationError, match="give 'mongodb', 'documentdb' or 'cosmos'"):
        ttl_database(client["app"], backend="azure")  # type: ignore[arg-type]
    closing = client.close()
    if closing is not None:
        await closing


async def test_a_class_is_gated_without_ttl_database(mongodb_url: str, world: World) -> None:
    class Forgotten(TTLMixin, Document):
        __ttl__ = 3600
        id: int

    client = connect(mongodb_url)
    await init_beanie(database=client[world.raw.name], document_models=[Forgotten])
    world.of(Forgotten).insert_many([{"_id": 1}, {"_id": 2}])
    world.age(Forgotten, 1)

    assert [each.id for each in await Forgotten.find().to_list()] == [2]
    world.of(Forgotten).drop()
    closing = client.close()
    if closing is not None:
        await closing


async def test_a_write_by_a_query_that_includes_expired_documents_is_refused(world: World) -> None:
    query = Event.find(Event.score == 0, include_expired=True)
    one = Event.find_one(Event.id == 1, include_expired=True)
    event = Event(id=1, name="a")

    for write in (
        query.delete,
        query.delete_many,
        lambda: query.set({"score": 1}),
        lambda: query.upsert({"$set": {"score": 1}}, on_insert=event),
        one.delete_one,
        lambda: one.update_one({"$set": {"score": 1}}),
    ):
        with pytest.raises(TTLError, match="for reads"):
            write()
    with pytest.raises(TTLError, match="for reads"):
        await one.replace_one(event)


async def test_the_distinct_of_a_cursor_knows_what_the_cursor_asks_for(world: World) -> None:
    events = collection_of(Event)
    world.of(Event).insert_many([{"_id": 1, "name": "old"}, {"_id": 2, "name": "new"}])
    world.age(Event, 1)

    assert await events.find().distinct("name") == ["new"]
    assert await events.find({}, include_expired=True).distinct("name") == ["new", "old"]
    german = {"locale": "de", "strength": 2}
    assert await events.find({"name": "NEW"}).collation(german).distinct("name") == ["new"]


async def test_what_the_server_or_the_driver_refuses_is_refused(world: World) -> None:
    events = collection_of(Event)
    await Event(id=1, name="a").insert()

    with pytest.raises(WriteError, match="conflict"):
        await events.update_one({"_id": 1}, {"$set": {"score": 1}, "$unset": {"score": ""}})
    with pytest.raises(InvalidOperation):
        await events.bulk_write([])


async def test_nobody_is_told_of_a_deletion_that_finds_an_expired_document(world: World) -> None:
    told: list[int] = []

    class Watched(TTLMixin, Document):
        __ttl__ = 3600
        id: int

        @after_event(Delete)
        def tell(self) -> None:
            told.append(self.id)

    await init_beanie(database=world.database, document_models=[Watched])
    old, young = await Watched(id=1).insert(), await Watched(id=2).insert()
    world.age(Watched, 1)

    with pytest.raises(ExpiredError):
        await old.delete()
    await young.delete()
    await young.delete()  # missing, but not expired: as in plain Beanie

    assert told == [2, 2]
    world.of(Watched).drop()
