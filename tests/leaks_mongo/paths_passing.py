"""Documents that expire between two looks: cached answers, cursors that are read slowly."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from tests.leaks_mongo.registry import key, keys, path
from tests.leaks_mongo.worlds import A_MOMENT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.leaks_mongo.worlds import World

FIRST, LAST = 1, 3
"""The live documents of `Cached`."""


async def twice(w: World, ask: Any, model: Any = None, last: int = LAST) -> Any:
    """Ask, let a document expire (the last of `Cached`, if not another), and ask again."""
    before, model = None, model or w.Cached
    for after in (A_MOMENT, 10 * A_MOMENT):
        w.forget()
        w.let_end_soon(model, last, after)
        before = await ask()
        if not w.is_over():  # else this machine is slow today
            break
    w.let_moment_pass(model, last)
    return before, await ask()


async def drained(w: World, cursor: Any) -> list[Any]:
    """The keys that a cursor over `Cached` gives if the last expires while it is read."""
    w.let_end_soon(w.Cached, LAST)
    found = []
    async for each in cursor:
        found.append(key(each))
        if key(each) == FIRST:
            w.let_moment_pass(w.Cached, LAST)
    return found


async def opened(cursor: Any) -> AsyncIterator[Any]:
    """A cursor of the driver's (Motor's aggregate() is synchronous)."""
    async for each in (await cursor) if inspect.isawaitable(cursor) else cursor:
        yield each


@path("use_cache: find() where an expired document could be in the answer")
async def _(w: World) -> Any:
    return [keys(await w.Cached.find().to_list()) for _ in range(2)]


@path("use_cache: find_one() of an expired document")
async def _(w: World) -> Any:
    return [key(await w.Cached.find_one({"name": "two"})) for _ in range(2)]


@path("use_cache: find(), whose answer has expired since", answer=([1, 3], [1]))
async def _(w: World) -> Any:
    async def ask() -> Any:
        return keys(await w.Cached.find(w.Cached.id > 0).to_list())

    return await twice(w, ask)


@path("use_cache: find_one(), whose answer has expired since", answer=(3, None))
async def _(w: World) -> Any:
    async def ask() -> Any:
        return key(await w.Cached.find_one({"name": "three"}))

    return await twice(w, ask)


@path("use_cache: get(), whose answer has expired since", answer=(3, None))
async def _(w: World) -> Any:
    async def ask() -> Any:
        return key(await w.Cached.get(LAST))

    return await twice(w, ask)


@path("use_cache: aggregate(), whose answer has expired since", answer=([1, 3], [1]))
async def _(w: World) -> Any:
    async def ask() -> Any:
        return keys(await w.Cached.aggregate([{"$sort": {"_id": 1}}]).to_list())

    return await twice(w, ask)


@path("use_cache: a $group, whose answer has expired since", answer=(2, 1))
async def _(w: World) -> Any:
    async def ask() -> Any:
        found = await w.Cached.aggregate([{"$group": {"_id": None, "n": {"$sum": 1}}}]).to_list()
        return found[0]["n"]

    return await twice(w, ask)


@path("use_cache: sum(), whose answer has expired since", answer=(4, 1))
async def _(w: World) -> Any:
    async def ask() -> Any:
        return await w.Cached.find().sum("_id")

    return await twice(w, ask)


@path("use_cache: with a projection, whose answer has expired since", answer=(2, 1))
async def _(w: World) -> Any:
    from tests.leaks_mongo.models import Name

    async def ask() -> Any:
        return len(await w.Cached.find(projection_model=Name).to_list())

    return await twice(w, ask)


@path("a cursor of find(), read while a document expires", answer=[1])
async def _(w: World) -> Any:
    return await drained(w, w.Cached.find(ignore_cache=True).sort("_id"))


@path("a cursor of find() with batches of one, read while a document expires", answer=[1])
async def _(w: World) -> Any:
    return await drained(w, w.Cached.find(batch_size=1, ignore_cache=True).sort("_id"))


@path("a cursor of aggregate(), read while a document expires", answer=[1])
async def _(w: World) -> Any:
    return await drained(w, w.Cached.aggregate([{"$sort": {"_id": 1}}], ignore_cache=True))


@path("a cursor of collection.find(), read while a document expires", answer=[1])
async def _(w: World) -> Any:
    return await drained(w, w.handle(w.Cached).find(sort=[("_id", 1)]))


@path("a cursor of collection.aggregate(), read while a document expires", answer=[1])
async def _(w: World) -> Any:
    cursor = w.handle(w.Cached).aggregate([{"$sort": {"_id": 1}}])
    return await drained(w, opened(cursor))


@path("find().to_list() after the query was made", answer=[1])
async def _(w: World) -> Any:
    w.let_end_soon(w.Cached, LAST)
    query = w.Cached.find(ignore_cache=True)
    w.let_moment_pass(w.Cached, LAST)
    return keys(await query.to_list())
