"""Collections whose documents expire, but whose class `init_beanie` was not given."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from beanie import Document, UnionDoc, View, init_beanie

from tests.mongo.models import World, collection_of, opened
from ttl_odm import TTLConfigurationError
from ttl_odm.beanie import TTLMixin, ensure_indexes
from ttl_odm.beanie.policy.bindings import registry_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

OWN = f"forgotten_{uuid4().hex}"
FOREIGN = "foreign_events"
LOOKUP = {"localField": "_id", "foreignField": "_id", "as": "joined"}


class Order(TTLMixin, Document):
    __ttl__ = 3600
    id: int

    class Settings:
        name = "guarded_orders"


class Note(Document):
    id: int

    class Settings:
        name = "guarded_notes"


class Forgotten(TTLMixin, Document):
    """What no `init_beanie` is given."""

    __ttl__ = 3600

    class Settings:
        name = OWN


class Shared(UnionDoc):
    class Settings:
        name = "guarded_union"


class Lasting(Document):
    class Settings:
        union_doc = Shared


class Passing(TTLMixin, Document):
    __ttl__ = 3600

    class Settings:
        union_doc = Shared


class ForgottenUnion(UnionDoc):
    class Settings:
        name = "forgotten_union"


class ForgottenMember(TTLMixin, Document):
    __ttl__ = 3600

    class Settings:
        union_doc = ForgottenUnion


class ForeignEvents(View):
    class Settings:
        source = FOREIGN
        name = "foreign_events_seen"
        pipeline: list[Any] = []


@pytest.fixture
async def guarded(mongodb_url: str) -> AsyncIterator[World]:
    """Give a guarded database that has collections of another application's, with and without."""
    async with opened(mongodb_url, [Order, Note], guard=True) as world:
        await ensure_indexes(Order)
        world.raw[FOREIGN].insert_one({"_id": 1})
        world.raw[FOREIGN].create_index("_ts", name="__ttl_default", expireAfterSeconds=3600)
        world.raw["unlimited"].insert_one({"_id": 1})
        yield world


@pytest.mark.parametrize("name", [OWN, FOREIGN])
async def test_a_guarded_database_refuses_every_way_to_what_expires_ungated(
    guarded: World, name: str
) -> None:
    collection = guarded.database[name]
    joined = {"$lookup": {"from": name, **LOOKUP}}
    inner = {"$lookup": {"from": "unlimited", "as": "x", "pipeline": [{"$unionWith": name}]}}
    graph = {"startWith": "$_id", "connectFromField": "_id", "connectToField": "_id", "as": "x"}
    ways = [
        lambda: collection.find_one({}),
        lambda: collection.find({}).to_list(None),
        lambda: collection.count_documents({}),
        lambda: collection.insert_one({"_id": 2}),
        lambda: collection.update_one({"_id": 1}, {"$set": {"a": 1}}),
        lambda: collection.delete_many({}),
        lambda: Order.aggregate([joined]).to_list(),
        lambda: Note.aggregate([joined]).to_list(),
        lambda: Note.aggregate([{"$unionWith": {"coll": name}}]).to_list(),
        lambda: Note.aggregate([{"$facet": {"all": [joined]}}]).to_list(),
        lambda: Note.aggregate([inner]).to_list(),
        lambda: Note.aggregate([{"$graphLookup": {"from": name, **graph}}]).to_list(),
        lambda: Note.aggregate([{"$merge": {"into": name}}]).to_list(),
    ]

    for way in ways:
        with pytest.raises(TTLConfigurationError, match=rf"{name}' .*init_beanie\(document_models"):
            await way()


@pytest.mark.slow
async def test_it_says_how_it_knows(guarded: World) -> None:
    with pytest.raises(TTLConfigurationError, match=r"forgotten_collections\.Forgotten was not"):
        await guarded.database[OWN].find_one({})
    with pytest.raises(TTLConfigurationError, match="but it has __ttl_default"):
        await guarded.database[FOREIGN].find_one({})
    guarded.raw["others"].create_index("ttl", name="__ttl_own")
    guarded.raw["others"].create_index("_ts", name="__ttl_default")
    with pytest.raises(TTLConfigurationError, match=r"but it has __ttl_default, __ttl_own\."):
        await guarded.database["others"].find_one({})


@pytest.mark.slow
async def test_a_view_over_such_a_collection_is_refused_too(guarded: World) -> None:
    await init_beanie(
        database=guarded.database, document_models=[Order, Note, ForeignEvents], recreate_views=True
    )

    with pytest.raises(TTLConfigurationError, match="foreign_events' is read"):
        await ForeignEvents.find().to_list()


@pytest.mark.slow
async def test_a_guarded_database_lets_everything_else_through(guarded: World) -> None:
    await Order(id=1).insert()
    await Note(id=1).insert()
    guarded.raw.command({"create": "orders_seen", "viewOn": "guarded_orders", "pipeline": []})
    joins = [{"$lookup": {"from": name, **LOOKUP}} for name in ("guarded_orders", "unlimited")]

    found = await Note.aggregate(joins).to_list()

    assert [each["_id"] for each in found[0]["joined"]] == [1]
    assert await Order.find().to_list() == [await Order.get(1)]
    assert await guarded.database["unlimited"].find_one({}) == {"_id": 1}
    assert await guarded.database["no_collection"].find_one({}) is None
    assert (await guarded.database["orders_seen"].find_one({}))["_id"] == 1
    assert (await collection_of(Note).with_options().find_one({}))["_id"] == 1


async def test_classes_that_share_a_collection_start_in_any_order(mongodb_url: str) -> None:
    async with opened(mongodb_url, [Shared, Lasting, Passing], guard=True) as world:
        await ensure_indexes(Passing)
        registry_of(world.database.client).unbind(world.database.name, "guarded_union")

        await init_beanie(database=world.database, document_models=[Lasting, Shared, Passing])

        await Lasting().insert()
        assert len(await Shared.all().to_list()) == 1


async def test_a_class_of_a_union_that_was_forgotten_is_found(guarded: World) -> None:
    with pytest.raises(TTLConfigurationError, match="ForgottenMember was not"):
        await guarded.database["forgotten_union"].find_one({})


async def test_handles_that_are_derived_from_a_guarded_one_are_guarded(guarded: World) -> None:
    for collection in (
        guarded.database.get_collection(FOREIGN),
        guarded.database.with_options()[FOREIGN],
        guarded.database[FOREIGN].with_options(),
    ):
        with pytest.raises(TTLConfigurationError):
            await collection.find_one({})


async def test_without_a_guard_nothing_is_asked_and_nothing_refused(mongodb_url: str) -> None:
    async with opened(mongodb_url, [Note]) as world:
        await world.database[OWN].insert_one({"_id": 1})

        assert await world.database[OWN].find_one({}) == {"_id": 1}
