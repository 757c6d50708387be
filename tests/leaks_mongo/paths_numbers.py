"""Counts, distinct values, sums: answers in which an expired document is a wrong number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.leaks_mongo.registry import path

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World

NO_DISTINCT = {"1.30": "a query has no distinct()"}
NO_SUMS = {"1.30": "a class has no sum(), avg(), max() or min()"}


@path("count() of a class")
async def _(w: World) -> Any:
    return await w.Event.count()


@path("count() of find()")
async def _(w: World) -> Any:
    return await w.Event.find().count()


@path("count() of find() by a filter")
async def _(w: World) -> Any:
    return await w.Event.find(w.Event.kind == "a").count()


@path("count() of find() with a limit")
async def _(w: World) -> Any:
    return await w.Event.find({"kind": {"$in": ["b", "c"]}}).limit(3).count()


@path("count() of find() with a skip")
async def _(w: World) -> Any:
    return await w.Event.find().skip(5).count()


@path("count() of find_one()")
async def _(w: World) -> Any:
    return await w.Event.find_one({"kind": "c"}).count()


@path("count() of find_all()")
async def _(w: World) -> Any:
    return await w.Event.find_all().count()


@path("exists()")
async def _(w: World) -> Any:
    return await w.Event.find({"kind": "c"}).exists()


@path("exists() of find_one()")
async def _(w: World) -> Any:
    return await w.Event.find_one(w.Event.name == "dan").exists()


@path("distinct() of a class")
async def _(w: World) -> Any:
    return sorted(await w.Event.distinct("kind"))


@path("distinct() of a class, with a filter")
async def _(w: World) -> Any:
    return sorted(await w.Event.distinct("name", {"kind": "a"}))


@path("distinct() over the elements of arrays")
async def _(w: World) -> Any:
    return sorted(await w.Event.distinct("tags"))


@path("distinct() of a query", without=NO_DISTINCT)
async def _(w: World) -> Any:
    return sorted(await w.Event.find(w.Event.score > 0).distinct("kind"))


@path("distinct() of a query that fetches links", without=NO_DISTINCT)
async def _(w: World) -> Any:
    found = await w.House.find(fetch_links=True).distinct("door.color")
    return sorted(found, key=str)


@path("sum() of a class", without=NO_SUMS)
async def _(w: World) -> Any:
    return await w.Event.sum(w.Event.score)


@path("avg() of a class", without=NO_SUMS)
async def _(w: World) -> Any:
    return await w.Event.avg(w.Event.score)


@path("max() of a class", without=NO_SUMS)
async def _(w: World) -> Any:
    return await w.Event.max(w.Event.score)


@path("min() of a class", without=NO_SUMS)
async def _(w: World) -> Any:
    return await w.Event.min(w.Event.score)


@path("sum() of a query")
async def _(w: World) -> Any:
    return await w.Event.find(w.Event.kind == "a").sum("score")


@path("avg() of a query")
async def _(w: World) -> Any:
    return await w.Event.find(w.Event.kind == "a").avg(w.Event.score)


@path("max() of a query")
async def _(w: World) -> Any:
    return await w.Event.find(w.Event.kind == "a").max(w.Event.score)


@path("min() of a query")
async def _(w: World) -> Any:
    return await w.Event.find(w.Event.kind == "b").min(w.Event.score)


@path("sum() where all that fit have expired")
async def _(w: World) -> Any:
    return await w.Event.find(w.Event.kind == "c").sum(w.Event.score)


@path("max() by a chained find()")
async def _(w: World) -> Any:
    return await w.Event.find_all().find({"tags": "x"}).max("score")
