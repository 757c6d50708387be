"""Readers, writers and sweepers of a family at once.

One task owns each cart's key: it makes a cart, puts items under it, and says when it is done. Any
moment the cart may expire. So an item's cart is always the one it was made for, whatever has become
of its predecessors of the same key.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from pymongo.errors import DuplicateKeyError, OperationFailure

from tests.mongo.following import Cart, Item, Note, expire, families, ref
from tests.mongo.models import collection_of
from ttl_odm.beanie import ExpiredError
from ttl_odm.sweeper import AsyncSweeper, Pace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.models import World

_KEYS = (1, 2, 3)
_CARTS = 25
_ITEMS = 4


@pytest.fixture
async def world(mongodb_url: str) -> AsyncIterator[World]:
    """Give empty collections."""
    async with families(mongodb_url) as made:
        for name in ("carts", "items", "notes"):  # they exist in each snapshot
            made.raw[name].insert_one({"_id": 0})
            made.raw[name].delete_one({"_id": 0})
        yield made


async def own(key: int, chance: random.Random) -> None:
    """Make one cart after the other, each with items that bear its name."""
    for number in range(_CARTS):
        name = f"{key}.{number}"
        with suppress(DuplicateKeyError):  # the last one lives
            await Cart(id=key, name=name).insert()
            items = [
                put(key, name, key * 10_000 + number * 10 + place, chance)
                for place in range(_ITEMS)
            ]
            if all(await asyncio.gather(*items)):
                await collection_of(Cart).update_one({"_id": key}, {"$set": {"name": f"{name}!"}})
        await asyncio.sleep(chance.uniform(0, 0.02))


async def put(key: int, name: str, item: int, chance: random.Random) -> bool:
    """Put an item, and a note on it, under a cart."""
    await asyncio.sleep(chance.uniform(0, 0.01))
    link: Any = ref(key)
    try:
        await Item(id=item, cart=link, name=name).insert()
        await Note(id=item, item_id=item, text=name).insert()
    except ExpiredError:
        return False
    return True


async def rows(collection: Any, pipeline: Any, session: Any) -> Any:
    cursor = collection.aggregate(pipeline, session=session)
    if inspect.isawaitable(cursor):
        cursor = await cursor
    return await cursor.to_list(None)


def look(name: str, local: str, foreign: str) -> Any:
    return {"$lookup": {"from": name, "localField": local, "foreignField": foreign, "as": "found"}}


async def read(world: World) -> int:
    """Look at all of it at one instant; return how many items and carts that were."""
    session = world.database.client.start_session(snapshot=True)
    session = await session if inspect.isawaitable(session) else session
    async with session:
        items = await rows(collection_of(Item), [look("carts", "cart.$id", "_id")], session)
        carts = await rows(collection_of(Cart), [look("items", "_id", "cart.$id")], session)
        notes = await rows(collection_of(Note), [look("items", "item", "_id")], session)
    for item in items:
        assert [cart["name"].strip("!") for cart in item["found"]] == [item["name"]]
    for note in notes:
        assert [item["name"] for item in note["found"]] == [note["text"]]
    for cart in carts:
        names = [item["name"] for item in cart["found"]]
        assert set(names) <= {cart["name"].strip("!")}
        if cart["name"].endswith("!"):
            assert len(names) == _ITEMS
    return len(items) + len(carts)


async def test_no_reader_sees_part_of_a_family(world: World) -> None:
    chance = random.Random(23)  # noqa: S311 (no secret)
    is_over = asyncio.Event()
    seen = 0

    async def go_on(step: Any) -> None:
        while not is_over.is_set():
            try:
                await step()
            except OperationFailure as error:
                if error.code not in (246, 239, 286):  # a snapshot is too old, or not there yet
                    raise
            await asyncio.sleep(chance.uniform(0, 0.01))

    async def count() -> None:
        nonlocal seen
        seen += await read(world)

    async def pass_time() -> None:
        expire(world, chance.choice(_KEYS))
        await asyncio.sleep(0.02)

    async def sweep() -> None:
        pace = Pace(start=3, lowest=1, highest=3, target=10)
        report = await AsyncSweeper(world.database, [Cart, Item, Note], pace=pace).run_once()
        assert report.error is None

    others = [asyncio.ensure_future(go_on(step)) for step in (count, count, pass_time, sweep)]
    try:
        owners = asyncio.gather(*(own(key, chance) for key in _KEYS))
        done, _ = await asyncio.wait([owners, *others], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
        await owners
    finally:
        is_over.set()
        results = await asyncio.gather(*others, return_exceptions=True)
    assert [result for result in results if result is not None] == []
    assert seen
    expire(world, *_KEYS)
    for _ in range(2):
        assert (await AsyncSweeper(world.database, [Cart, Item, Note]).run_once()).error is None
    left = [world.raw[name].count_documents({}) for name in ("carts", "items", "notes")]
    assert left == [0, 0, 0]
