"""Writes of documents that restart the life of their parent: `Follows(renews=True)`."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from pymongo.errors import BulkWriteError

from tests.mongo.following import Cart, Item, Step, Visit, families, ref
from tests.mongo.models import collection_of
from ttl_odm.beanie import keep_last_modified

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.models import World


@pytest.fixture
async def world(mongodb_url: str) -> AsyncIterator[World]:
    """Cart 1 with a visit and an item, and cart 2; both were written half an hour ago."""
    async with families(mongodb_url) as made:
        for number in (1, 2):
            await Cart(id=number).insert()
        await Visit(id=1, cart=ref(1)).insert()  # type: ignore[arg-type]
        await Item(id=1, cart=ref(1)).insert()  # type: ignore[arg-type]
        age(made, 1800)
        yield made


def age(world: World, seconds: int) -> None:
    """Let the last write of all carts be so long ago."""
    then = datetime.now(timezone.utc) - timedelta(seconds=seconds)
    world.raw["carts"].update_many({}, {"$set": {"_ts": then}})


def renewed(world: World) -> list[int]:
    """The carts that were written in the last five minutes; then none of them."""
    since = datetime.now(timezone.utc) - timedelta(minutes=5)
    found = [row["_id"] for row in world.raw["carts"].find({"_ts": {"$gt": since}}).sort("_id")]
    age(world, 1800)
    return found


@pytest.mark.slow
async def test_each_write_restarts_the_life_of_the_parent(world: World) -> None:
    visits = collection_of(Visit)
    await Visit(id=2, cart=ref(1)).insert()  # type: ignore[arg-type]
    assert renewed(world) == [1]
    writes: list[Any] = [
        lambda: visits.update_one({"_id": 1}, {"$set": {"page": "a"}}),
        lambda: visits.update_many({}, {"$set": {"page": "b"}}),
        lambda: visits.replace_one({"_id": 1}, {"cart": ref(1), "page": "c"}),
        lambda: visits.find_one_and_update({"_id": 1}, {"$set": {"page": "d"}}),
        lambda: visits.insert_many([{"_id": 3, "cart": ref(1)}]),
        lambda: visits.delete_one({"_id": 3}),
        lambda: visits.find_one_and_delete({"_id": 2}),
        lambda: visits.update_one({"_id": 4}, {"$set": {"cart": ref(1)}}, upsert=True),
        lambda: visits.delete_many({"_id": 4}),
    ]
    for number, write in enumerate(writes):
        await write()
        assert (number, renewed(world)) == (number, [1])
    await visits.update_one({"_id": 1}, {"$set": {"cart": ref(2)}})
    assert renewed(world) == [1, 2]
    await visits.update_one({"_id": 99}, {"$set": {"page": "x"}})
    assert renewed(world) == []


async def test_who_does_not_renew_leaves_the_parent_as_it_is(world: World) -> None:
    await collection_of(Item).update_one({"_id": 1}, {"$set": {"name": "x"}})
    assert renewed(world) == []
    with keep_last_modified():
        await collection_of(Visit).update_one({"_id": 1}, {"$set": {"page": "x"}})
    kept = {"$set": {"page": "y"}}
    await collection_of(Visit).update_one({"_id": 1}, kept, keep_last_modified=True)
    assert renewed(world) == []


async def test_the_last_parent_in_the_row_is_renewed_but_not_too_often(world: World) -> None:
    await Step(id=1, visit=ref(1, "visits")).insert()  # type: ignore[arg-type]
    assert renewed(world) == [1]
    age(world, 30)
    before = world.raw["carts"].find_one({"_id": 1})
    await Step(id=2, visit=ref(1, "visits")).insert()  # type: ignore[arg-type]
    assert world.raw["carts"].find_one({"_id": 1}) == before
    age(world, 90)
    await Step(id=3, visit=ref(1, "visits")).insert()  # type: ignore[arg-type]
    assert world.raw["carts"].find_one({"_id": 1}) != before


async def test_what_has_expired_is_not_renewed(world: World) -> None:
    age(world, 7200)
    assert (await collection_of(Visit).update_many({}, {"$set": {"page": "x"}})).matched_count == 0
    assert await Cart.find().to_list() == []


@pytest.mark.parametrize(("ordered", "carts"), [(True, []), (False, [2])])
async def test_documents_that_a_bulk_insert_leaves_out_renew_nothing(
    world: World, *, ordered: bool, carts: list[int]
) -> None:
    documents: list[Any] = [{"_id": 1, "cart": ref(1)}, {"_id": 9, "cart": ref(2)}]
    with pytest.raises(BulkWriteError):
        await collection_of(Visit).insert_many(documents, ordered=ordered)
    assert renewed(world) == carts
