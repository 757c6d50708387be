"""The option of ttl_odm's own by which reads see expired documents, too: `include_expired`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.leaks.registry import Sees
from tests.leaks_mongo.paths_numbers import NO_DISTINCT
from tests.leaks_mongo.registry import key, keys, path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.leaks_mongo.worlds import World


def all_of_it(name: str, without: Mapping[str, str] | tuple[()] = ()) -> Any:
    """Register a path that includes expired documents."""
    return path(f"include_expired: {name}", answer=Sees.EVERYTHING, without=without)


@all_of_it("find()")
async def _(w: World) -> Any:
    return keys(await w.Event.find(**w.everything).to_list())


@all_of_it("find() by a filter")
async def _(w: World) -> Any:
    return keys(await w.Event.find(w.Event.kind == "b", **w.everything).to_list())


@all_of_it("find_many(), find_all() and all()")
async def _(w: World) -> Any:
    return [
        keys(await w.Event.find_many({}, **w.everything).to_list()),
        keys(await w.Event.find_all(**w.everything).to_list()),
        keys(await w.Event.all(**w.everything).to_list()),
    ]


@all_of_it("find_one()")
async def _(w: World) -> Any:
    return key(await w.Event.find_one(w.Event.name == "dan", **w.everything))


@all_of_it("get()")
async def _(w: World) -> Any:
    return key(await w.Event.get(4, **w.everything))


@all_of_it("async for")
async def _(w: World) -> Any:
    return sorted([key(each) async for each in w.Event.find(**w.everything)])


@all_of_it("first_or_none()")
async def _(w: World) -> Any:
    return key(await w.Event.find({"kind": "c"}, **w.everything).first_or_none())


@all_of_it("a chained find()")
async def _(w: World) -> Any:
    return keys(await w.Event.find(**w.everything).find({"kind": "b"}).to_list())


@all_of_it("count() and exists()")
async def _(w: World) -> Any:
    query = w.Event.find({"kind": "c"}, **w.everything)
    return await query.count(), await query.exists()


@all_of_it("aggregate()")
async def _(w: World) -> Any:
    return keys(await w.Event.aggregate([{"$match": {"kind": "b"}}], **w.everything).to_list())


@all_of_it("distinct()")
async def _(w: World) -> Any:
    return sorted(await w.Event.distinct("kind", **w.everything))


@all_of_it("find(fetch_links=True), at both ends")
async def _(w: World) -> Any:
    houses = await w.House.find(fetch_links=True, **w.everything).to_list()
    return sorted((each.id, type(each.door).__name__, keys(each.windows)) for each in houses)


@all_of_it("a union of classes")
async def _(w: World) -> Any:
    return keys(await w.Feed.find(**w.everything).to_list())


@all_of_it("ExpireAfter")
async def _(w: World) -> Any:
    return keys(await w.Visit.find(**w.everything).to_list())


@all_of_it("collection.find()")
async def _(w: World) -> Any:
    return keys(await w.handle(w.Event).find({"kind": "b"}, **w.everything).to_list(None))


@all_of_it("collection.find_one() and count_documents()")
async def _(w: World) -> Any:
    handle = w.handle(w.Event)
    found = await handle.find_one({"_id": 4}, **w.everything)
    return key(found), await handle.count_documents({}, **w.everything)


@all_of_it("a cached class does not mix up its answers")
async def _(w: World) -> Any:
    await w.Cached.find({"_id": {"$gt": 0}}).to_list()
    return keys(await w.Cached.find({"_id": {"$gt": 0}}, **w.everything).to_list())


@path("a cached class does not mix up its answers, the other way round")
async def _(w: World) -> Any:
    await w.Cached.find({"_id": {"$gt": 0}}, **w.everything).to_list()
    return keys(await w.Cached.find({"_id": {"$gt": 0}}).to_list())


@all_of_it("distinct() of a class, with a filter")
async def _(w: World) -> Any:
    by_kind = await w.Event.distinct("name", {"kind": "b"}, **w.everything)
    return sorted(by_kind), sorted(await w.Visit.distinct("name", **w.everything))


@all_of_it("distinct() of a query", without=NO_DISTINCT)
async def _(w: World) -> Any:
    return sorted(await w.Event.find({"score": {"$gt": 0}}, **w.everything).distinct("kind"))


@all_of_it("collection.distinct()")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    found = await events.distinct("name", {"kind": "b"}, **w.everything)
    return sorted(await events.distinct("kind", **w.everything)), sorted(found)


@all_of_it("collection.distinct() in a session")
async def _(w: World) -> Any:
    async with w.session() as session:
        found = await w.handle(w.Event).distinct("kind", session=session, **w.everything)
    return sorted(found)


@all_of_it("cursor.distinct()")
async def _(w: World) -> Any:
    return sorted(await w.handle(w.Event).find({"kind": "b"}, **w.everything).distinct("name"))


@all_of_it("cursor.distinct() of a clone, and of a cursor that was read")
async def _(w: World) -> Any:
    cursor = w.handle(w.Event).find({"kind": "b"}, sort=[("score", 1)], **w.everything)
    of_clone = await cursor.clone().distinct("name")
    return sorted(of_clone), key(await cursor.next()), sorted(await cursor.distinct("name"))


@all_of_it("a class of a union, counted and aggregated")
async def _(w: World) -> Any:
    found = await w.Post.aggregate([{"$sort": {"_id": 1}}], **w.everything).to_list()
    return keys(found), await w.Advert.find(**w.everything).count()


@all_of_it("soft deletes")
async def _(w: World) -> Any:
    in_all = await w.Memo.find_many_in_all(**w.everything).to_list()
    return keys(in_all), keys(await w.Memo.find(**w.everything).to_list())


@all_of_it("a time series")
async def _(w: World) -> Any:
    places = await w.Reading.distinct("place", **w.everything)
    return keys(await w.Reading.find(**w.everything).to_list()), sorted(places)


@all_of_it("a class that forbids extra fields")
async def _(w: World) -> Any:
    found = await w.Parcel.aggregate([], projection_model=w.Parcel, **w.everything).to_list()
    return keys(found), keys(await w.Parcel.find(**w.everything).to_list())
