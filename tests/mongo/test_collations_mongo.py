"""Strings that only a collation treats as equal: they are other kinds, scopes and keys."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.errors import DuplicateKeyError

from tests.mongo.models import Event, World, collection_of
from tests.mongo.stored import HOUR, carts
from tests.mongo.stored import declared as stored_cart
from tests.mongo.sweeping import DAY, Swept, declared, swept
from ttl_odm import TTL
from ttl_odm.beanie import ensure_indexes, set_policy
from ttl_odm.stored import Stored

ANY_CASE = {"locale": "en", "strength": 2}
KINDS: dict[str, dict[Any, Any]] = {
    "few kinds": {"cart": HOUR, "order": HOUR, "Order": None, 7: HOUR},
    "many kinds": {
        "cart": HOUR,
        "order": HOUR,
        "Order": None,
        **{f"k{n}": HOUR for n in range(20)},
    },
}
EXPIRED = {1: "cart", 3: "order"}
LIVE = {2: "CART", 4: "Order", 5: "oRDER", 6: None, 8: ["cart"], 9: {"cart": 1}, 10: "cart\0"}


@pytest.fixture(params=KINDS)
def kinds(request: pytest.FixtureRequest) -> dict[Any, Any]:
    return KINDS[request.param]


def fill(place: Swept) -> None:
    for key, kind in (EXPIRED | LIVE).items():
        place.add([key], age=DAY, kind=kind, text=f"text {key}")


async def test_a_collation_of_an_operation_changes_no_kind(
    mongodb_url: str, kinds: dict[Any, Any]
) -> None:
    async with swept(mongodb_url, declared(TTL(kinds, by="kind", other=-1))) as place:
        fill(place)
        collection, options = collection_of(place.model), {"collation": ANY_CASE}

        found = await collection.find({}, **options).sort("_id").limit(20).to_list(None)

        assert [row["_id"] for row in found] == sorted(LIVE)
        assert await collection.count_documents({}, **options) == len(LIVE)
        change = {"$set": {"text": "new"}}
        result = await collection.update_many({}, change, keep_last_modified=True, **options)
        assert result.matched_count == len(LIVE)
        assert (await collection.delete_many({}, **options)).deleted_count == len(LIVE)
        assert place.keys() == set(EXPIRED)


async def test_a_collation_of_an_index_displaces_no_other_kind(
    mongodb_url: str, kinds: dict[Any, Any]
) -> None:
    async with swept(mongodb_url, declared(TTL(kinds, by="kind", other=-1))) as place:
        place.raw.create_index("text", unique=True, collation=ANY_CASE)
        fill(place)
        collection = collection_of(place.model)

        for key in LIVE:
            with pytest.raises(DuplicateKeyError):
                await collection.insert_one({"_id": 100, "text": f"TEXT {key}"})
        await collection.insert_one({"_id": 100, "text": "TEXT 1"})

        assert place.keys() == {*LIVE, 3, 100}


async def test_a_collation_of_a_collection_lets_nothing_else_be_swept(
    mongodb_url: str, kinds: dict[Any, Any]
) -> None:
    model = declared(TTL(kinds, by="kind", other=-1))
    async with swept(mongodb_url, model, indexed=False) as place:
        place.raw.database.create_collection("documents", collation=ANY_CASE)
        fill(place)

        report = await place.sweep()

        assert report.deleted == len(EXPIRED)
        assert place.keys() == set(LIVE)


@pytest.mark.parametrize(
    ("default", "own", "stay"),
    [(-1, HOUR, {2, 3}), (HOUR, 30 * DAY, {1}), (30 * DAY, HOUR, {2, 3})],
    ids=["never", "longer", "shorter"],
)
async def test_nor_another_scope(mongodb_url: str, default: int, own: int, stay: set[int]) -> None:
    model = stored_cart(Stored(default, by="tenant"))
    async with carts(mongodb_url, model, begun=False) as place:
        place.raw.create_collection("carts", collation=ANY_CASE)
        await ensure_indexes(model)
        await set_policy(model, own, scope="acme", by="ann")
        for key, tenant in enumerate(("acme", "ACME", "bolt"), start=1):
            place.add(key, age=DAY, tenant=tenant)

        assert await place.shown() == stay
        assert await place.collection.count_documents({}) == len(stay)
        (await place.sweep()).raise_for_failures()
        assert place.keys() == stay


async def test_an_expired_document_with_an_equal_key_stays_hidden(world: World) -> None:
    rows = [{"_id": key, "name": f"n-{key}", "tags": ["a", key]} for key in ("Key", "key")]
    world.of(Event).insert_many(rows)
    world.age(Event, "Key")
    world.age(Event, "key", 0)
    collection, options = collection_of(Event), {"collation": ANY_CASE, "sort": [("name", -1)]}
    asked, positional = {"tags": "KEY"}, {"tags.$": 1}

    for limit in (0, 5):
        cursor = collection.find(asked, positional, limit=limit, **options)
        assert await cursor.to_list(None) == [{"_id": "key", "tags": ["key"]}]
    one = await collection.find_one(asked, positional, **options)
    assert one == {"_id": "key", "tags": ["key"]}
