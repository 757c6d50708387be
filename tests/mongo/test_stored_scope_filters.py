"""Reads and writes whose filter names a scope: its default alone goes to the server.

What they find is compared with the same filter inside an ``$or``, of which nothing is concluded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document
from bson import DBRef, Decimal128, Int64, ObjectId, Regex

from tests.mongo.stored import HOUR, KEY, Carts, carts
from ttl_odm import Stored
from ttl_odm.beanie import TTLMixin, set_policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY_OF_ONE = ObjectId("65f000000000000000000001")
OWN = {"acme": 60, "ACME": 2 * HOUR, "bolt": -1, "off": None, "same": HOUR, 7: 60, KEY_OF_ONE: 60}
TENANTS: tuple[Any, ...] = (
    *("acme", "ACME", "bolt", "off", "same", "none", ""),
    *(7, 7.0, Int64(7), Decimal128("7"), True, 8, KEY_OF_ONE, ObjectId()),
    *(None, [], ["acme"], ["acme", "bolt"], [["acme"]], [7, "none"], {"0": "acme"}),
    *(Regex("acme"), DBRef("tenants", "acme")),
)
COMMANDS = {"find", "aggregate", "distinct", "update", "delete", "findAndModify"}


def declared(**options: Any) -> Any:
    class Message(TTLMixin, Document):
        __ttl__ = Stored(HOUR, by="tenant", **options)
        __ttl_purge__ = "sweeper"
        id: int  # type: ignore[assignment]
        tenant: Any = None
        name: str = ""

        class Settings:
            name = "carts"

    return Message


def store(place: Carts, own: dict[Any, int | None]) -> None:
    """Give scopes defaults of their own, as another process does."""
    policies = place.raw["ttl_odm_policies"]
    policies.insert_many([{"_id": {**KEY, "scope": it}, "ttl": ttl} for it, ttl in own.items()])
    policies.update_one({"_id": KEY}, {"$inc": {"version": 1}})


@pytest.fixture
async def place(mongodb_url: str) -> AsyncIterator[Carts]:
    async with carts(mongodb_url, declared()) as made:
        store(made, {**OWN, **{f"other {number}": 60 for number in range(30)}})
        key = 0
        for age in (10, 600, 5000, 9000):
            for own in ({}, {"ttl": -1}, {"ttl": 300}, {"ttl": "junk"}):
                for tenant in TENANTS:
                    key += 1
                    made.add(key, age=age, tenant=tenant, **own)
                key += 1
                made.add(key, age=age, **own)
        for age in (10, 9000):
            key += 1
            made.add(key, age=age, tenant="acme")
            born = made.stored.find_one({"_id": key})
            assert born is not None
            made.stored.update_one({"_id": key}, {"$set": {"_ts": [born["_ts"]]}})
        yield made


FILTERS: tuple[dict[str, Any], ...] = (
    *({"tenant": tenant} for tenant in TENANTS),
    *({"tenant": {"$eq": tenant}} for tenant in TENANTS if not isinstance(tenant, Regex)),
    {"tenant": re.compile("^acme$", re.IGNORECASE)},
    {"tenant": {"$in": ["acme", "bolt"]}},
    {"tenant": {"$in": ["acme", 7]}},
    {"tenant": {"$in": ["acme", None]}},
    {"tenant": {"$in": ["acme", re.compile("bolt")]}},
    {"tenant": {"$in": []}},
    {"tenant": {"$in": [f"other {number}" for number in range(20)]}},
    {"tenant": {"$ne": "acme"}},
    {"tenant": {"$not": {"$eq": "acme"}}},
    {"tenant": {"$in": ["acme", "none"], "$ne": "none"}},
    {"tenant": {"$elemMatch": {"$eq": "acme"}}},
    {"tenant": {"$all": ["acme"]}},
    {"$and": [{"tenant": "acme"}, {"ttl": None}]},
    {"$and": [{"_id": {"$gt": 0}}, {"$and": [{"tenant": "acme"}]}]},
    {"$nor": [{"tenant": "acme"}]},
    {"tenant.0": "acme"},
    {"tenant.$id": "acme"},
    {"$expr": {"$eq": ["$tenant", "acme"]}},
)


@pytest.mark.slow
async def test_reads_find_what_they_find_without_it(place: Carts) -> None:
    collection = place.collection

    async def read(asked: dict[str, Any]) -> list[Any]:
        found = [row["_id"] async for row in collection.find(asked)]
        paged = [row["_id"] async for row in collection.find(asked).sort("_id", -1).limit(9)]
        alone = [row["_id"] async for row in collection.find(asked, {"_id": 1}).batch_size(5)]
        cursor: Any = collection.aggregate([{"$match": asked}, {"$project": {"_id": 1}}])
        cursor = cursor if hasattr(cursor, "to_list") else await cursor
        piped = [row["_id"] for row in await cursor.to_list(None)]
        one = await collection.find_one(asked)
        assert (one is None) == (not found), asked
        assert one is None or one["_id"] in found
        assert sorted(alone) == sorted(piped) == sorted(found), asked
        assert await collection.count_documents(asked) == len(found), asked
        assert sorted(await collection.distinct("_id", asked)) == sorted(found), asked
        assert paged == sorted(found, reverse=True)[:9], asked
        return sorted(found)

    for asked in FILTERS:
        assert await read(asked) == await read({"$or": [asked]}), asked


@pytest.mark.slow
async def test_single_documents_go_by_their_own_scope(place: Carts) -> None:
    live = await place.shown()
    assert 0 < len(live) < len(place.keys())
    for key in place.keys():  # noqa: SIM118 (a method)
        assert (await place.collection.find_one({"_id": key}) is not None) == (key in live), key


@pytest.mark.slow
async def test_writes_change_what_reads_find(place: Carts) -> None:
    collection = place.collection
    for number, asked in enumerate(FILTERS):
        live = {row["_id"] async for row in collection.find({"$or": [asked]}, {"_id": 1})}
        mark: dict[str, Any] = {"$set": {"mark": number}}
        result = await collection.update_many(asked, mark, keep_last_modified=True)
        marked = {row["_id"] for row in place.stored.find({"mark": number}, {"_id": 1})}
        assert (result.matched_count, marked) == (len(live), live), asked

    live = {row["_id"] async for row in collection.find({"tenant": "acme"}, {"_id": 1})}
    gone = {row["_id"] for row in place.stored.find({"tenant": "acme"}, {"_id": 1})} - live
    document = await collection.find_one_and_delete({"tenant": "acme"})
    assert document is not None
    assert (await collection.delete_many({"tenant": "acme"})).deleted_count == len(live) - 1
    assert gone <= place.keys()
    assert not live & place.keys()


@pytest.mark.slow
async def test_an_upsert_inserts_where_the_one_of_the_scope_has_expired(place: Carts) -> None:
    place.add(9001, age=600, tenant="acme", name="new")
    asked = {"_id": 9001, "tenant": "acme"}
    result = await place.collection.update_one(asked, {"$set": {"name": "b"}}, upsert=True)
    assert (result.matched_count, result.upserted_id) == (0, 9001)
    result = await place.collection.update_one(asked, {"$set": {"name": "c"}}, upsert=True)
    assert (result.matched_count, result.upserted_id) == (1, None)


@pytest.mark.slow
async def test_the_server_gets_no_default_of_another_scope(place: Carts) -> None:
    collection = place.collection
    await collection.find_one({})
    place.commands.sent.clear()
    asked: dict[str, Any] = {"tenant": "acme", "name": {"$exists": False}}
    await collection.find(asked).to_list(None)
    await collection.find(asked).limit(5).to_list(None)
    await collection.find_one(asked)
    await collection.count_documents(asked)
    await collection.distinct("_id", asked)
    await place.model.find({"tenant": "acme"}).aggregate([{"$match": {}}]).to_list()
    await collection.update_one(asked, {"$set": {"name": "a"}})
    await collection.find_one_and_update(asked, {"$set": {"name": "b"}})
    await collection.delete_one(asked)
    await collection.find({"tenant": {"$in": ["acme", 7]}}).limit(5).to_list(None)

    sent = [
        command
        for command in place.commands.sent
        if "carts" in command.values() and COMMANDS & command.keys()
    ]
    assert len(sent) == 10
    assert not any("other" in repr(command) for command in sent)
    # What looks the defaults up reads one document.
    others = [command for command in place.commands.sent if command not in sent]
    assert {repr(command.get("filter")) for command in others} == {repr({"_id": KEY})}


@pytest.mark.slow
async def test_a_list_of_one_scope_is_judged_here(place: Carts) -> None:
    place.commands.sent.clear()
    for asked in ("acme", "none"):
        await place.collection.find({"tenant": asked}).to_list(None)
    finds = [command for command in place.commands.of("find") if command["find"] == "carts"]
    assert ["$expr" in find["filter"] for find in finds] == [False, False]


@pytest.mark.slow
async def test_under_a_collation_nothing_is_concluded(place: Carts) -> None:
    collection, options = place.collection, {"collation": {"locale": "en", "strength": 2}}
    for asked in ({"tenant": "acme"}, {"tenant": "Acme"}, {"tenant": {"$in": ["aCME"]}}):
        whole: dict[str, Any] = {"$or": [asked]}
        found = await collection.find(whole, **options).to_list(None)
        keys = sorted(row["_id"] for row in found)
        for read in (
            collection.find(asked, **options).to_list(None),
            collection.find(asked).collation(options["collation"]).to_list(None),
        ):
            assert sorted(row["_id"] for row in await read) == keys
        assert await collection.count_documents(asked, **options) == len(keys)
        assert sorted(await collection.distinct("_id", asked, **options)) == keys
        one = await collection.find_one(asked, **options)
        assert (one is None) == (not keys)
        result = await collection.update_many(
            asked, {"$set": {"mark": 1}}, keep_last_modified=True, **options
        )
        assert result.matched_count == len(keys)


async def test_neither_in_a_collection_with_a_collation(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared(), begun=False) as place:
        place.stored.drop()
        place.raw.create_collection("carts", collation={"locale": "en", "strength": 2})
        await place.collection.find_one({})
        place.raw["ttl_odm_policies"].insert_one({"_id": KEY, "ttl": HOUR})
        store(place, {"acme": 60})
        for key, tenant in enumerate(("acme", "ACME", "bolt")):
            place.add(key, age=600, tenant=tenant)
        for asked in ("acme", "Acme", "ACME"):  # the second document has the collection's default
            assert await place.collection.count_documents({"tenant": asked}) == 1
            (row,) = await place.collection.find({"tenant": asked}).limit(5).to_list(None)
            assert row["_id"] == 1
        assert await place.collection.count_documents({"tenant": "bolt"}) == 1


@pytest.mark.slow
async def test_the_collation_is_asked_for_once(place: Carts) -> None:
    for _ in range(3):
        await place.collection.count_documents({"tenant": "acme"})
    assert len(place.commands.of("listCollections")) == 1


async def test_without_defaults_of_scopes_nobody_asks(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared()) as place:
        place.add(1, age=600, tenant="acme")
        assert await place.collection.count_documents({"tenant": "acme"}) == 1
        assert place.commands.of("listCollections") == []


@pytest.mark.slow
async def test_a_change_acts_on_the_next_operation(place: Carts) -> None:
    asked = {"tenant": "acme", "ttl": None, "tenant.0": {"$exists": False}}
    before = await place.collection.count_documents(asked)
    await set_policy(place.model, -1, scope="acme", by="ann")
    everything = place.stored.count_documents(asked)
    assert await place.collection.count_documents(asked) == everything > before
    assert len(await place.collection.find(asked).to_list(None)) == everything
    await set_policy(place.model, "default", scope="acme", by="ann")
    assert before < await place.collection.count_documents(asked) < everything
