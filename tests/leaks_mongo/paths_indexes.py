"""Unique indexes of every kind, and values in them that only expired documents hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.leaks_mongo.registry import failure, path

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.leaks_mongo.worlds import World

FREE = {
    "id": 50,
    "site": 9,
    "number": 9,
    "nick": "new",
    "rank": 99,
    "email": "new@x",
    "owner": {"name": "new"},
    "codes": [90, 91],
    "seat": "Z9",
}
"""Values that nobody holds."""

HELD = {
    "compound": {"site": 1, "number": 2},
    "sparse": {"nick": "bob"},
    "partial": {"rank": 12},
    "with a collation": {"email": "BOB@x"},
    "on a nested field": {"owner": {"name": "bob"}},
    "on an array": {"codes": [92, 4]},
    "where none is a value": {"seat": None},
}
"""Of each index, a value that an expired document holds."""


async def insert(w: World, values: dict[str, Any]) -> None:
    await w.Badge(**{**FREE, **values}).insert()


async def save(w: World, values: dict[str, Any]) -> None:
    await w.Badge(**{**FREE, **values}).save()


async def insert_many(w: World, values: dict[str, Any]) -> None:
    await w.Badge.insert_many([w.Badge(**{**FREE, **values})])


async def save_live(w: World, values: dict[str, Any]) -> None:
    one = await w.Badge.get(1)
    for name, value in values.items():
        setattr(one, name, value)
    await one.save()


async def update_live(w: World, values: dict[str, Any]) -> None:
    await w.Badge.find({"_id": 1}).update({"$set": values})


async def insert_in_transaction(w: World, values: dict[str, Any]) -> None:
    async with w.transaction() as session:
        await w.Badge(**{**FREE, **values}).insert(session=session)


async def save_live_in_transaction(w: World, values: dict[str, Any]) -> None:
    one = await w.Badge.get(1)
    for name, value in values.items():
        setattr(one, name, value)
    async with w.transaction() as session:
        await one.save(session=session)


async def write_in_bulk(w: World, values: dict[str, Any]) -> None:
    async with w.Badge.bulk_writer() as writer:
        await w.Badge.insert_one(w.Badge(**{**FREE, **values}), bulk_writer=writer)


WAYS: dict[str, Callable[[World, dict[str, Any]], Awaitable[None]]] = {
    "insert()": insert,
    "save()": save,
    "insert_many()": insert_many,
    "save() of a live document": save_live,
    "find().update()": update_live,
    "bulk writer": write_in_bulk,
    "insert() in a transaction": insert_in_transaction,
    "save() of a live document in a transaction": save_live_in_transaction,
}


def take(way: Callable[[World, dict[str, Any]], Awaitable[None]], values: dict[str, Any]) -> Any:
    """A path that takes values from an expired document."""

    async def run(w: World) -> Any:
        await way(w, values)
        return w.after(w.Badge)

    return run


for index, held in HELD.items():
    for name, way in WAYS.items():
        path(f"a unique index {index}: {name}")(take(way, held))


@path("a unique index: a live document keeps its value in each", own=True, answer=[True] * 6)
async def _(w: World) -> Any:
    alive = [
        {"site": 1, "number": 1},
        {"nick": "ann"},
        {"rank": 11},
        {"email": "Ann@X"},
        {"owner": {"name": "ann"}},
        {"codes": [2]},
    ]
    return [await failure(insert(w, values)) == "DuplicateKeyError" for values in alive]


@path("a unique index: three expired documents in the way of one", own=True, answer=[50])
async def _(w: World) -> Any:
    w.pass_time(await w.Badge.get(1))
    await insert(w, {"nick": "bob", "seat": None, "codes": [1]})
    return w.changed(w.Badge)
