"""Extras: classes that forbid fields they don't declare, and the fields that documents show.

Some documents of `Parcel` have a ttl of their own. What ttl_odm keeps beside that for MongoDB to
delete by, `_exp`, is in no answer, and in nothing that a pipeline writes elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie import UpdateResponse
from beanie.operators import In

from tests.leaks_mongo.models import Name
from tests.leaks_mongo.paths_handles import piped
from tests.leaks_mongo.paths_links import before_mongodb_5
from tests.leaks_mongo.registry import key, path

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World

DECLARED = {"_ts", "ttl", "deleted_at", "expires_at"}
"""What documents have in one world or other, and may show."""
LOOKUP = {"from": "Parcel", "localField": "parcels.$id", "foreignField": "_id", "as": "found"}
WHOLE = {"$group": {"_id": None, "whole": {"$push": "$$ROOT"}}}


def fields(documents: Any) -> Any:
    """What documents show: the key, and the names of the fields."""
    return sorted((each["_id"], sorted(each.keys() - DECLARED)) for each in documents)


def parcel(document: Any) -> Any:
    """The key, the weight and the class of a parcel; None of none."""
    return document and (document.id, document.weight, type(document).__name__)


def parcels(documents: Any) -> Any:
    """The same of several."""
    return sorted(parcel(each) for each in documents)


@path("extras: find()")
async def _(w: World) -> Any:
    return parcels(await w.Parcel.find().to_list())


@path("extras: find() by a filter, find_all() and async for")
async def _(w: World) -> Any:
    found = await w.Parcel.find(In(w.Parcel.id, [2, 3, 5, 6])).to_list()
    every = await w.Parcel.find_all().to_list()
    return parcels(found), parcels(every), parcels([each async for each in w.Parcel.find()])


@path("extras: find() with a sort, a skip and a limit")
async def _(w: World) -> Any:
    return parcels(await w.Parcel.find(sort="-weight", skip=1, limit=1).to_list())


@path("extras: find() with lazy_parse, and with projections")
async def _(w: World) -> Any:
    lazy = await w.Parcel.find(lazy_parse=True).to_list()
    names = await w.Parcel.find(projection_model=Name).to_list()
    return sorted(each.name for each in lazy), sorted(each.name for each in names)


@path("extras: find_one() and get()")
async def _(w: World) -> Any:
    first = await w.Parcel.find_one({"weight": {"$gt": 1}}, sort=[("weight", -1)])
    return parcel(first), [parcel(await w.Parcel.get(number)) for number in range(1, 7)]


@path("extras: first_or_none()")
async def _(w: World) -> Any:
    return parcel(await w.Parcel.find({"weight": {"$gt": 1}}).sort("-weight").first_or_none())


@path("extras: inspect_collection()")
async def _(w: World) -> Any:
    w.other["Parcel"].update_one({"_id": 3}, {"$set": {"unknown": 1}})
    return (await w.Parcel.inspect_collection()).status.value


@path("extras: aggregate()")
async def _(w: World) -> Any:
    return fields(await w.Parcel.aggregate([]).to_list())


@path("extras: aggregate() into the class")
async def _(w: World) -> Any:
    pipeline = [{"$match": {"weight": {"$gt": 1}}}, {"$sort": {"weight": 1}}]
    return parcels(await w.Parcel.aggregate(pipeline, projection_model=w.Parcel).to_list())


@path("extras: aggregate() of a query into the class")
async def _(w: World) -> Any:
    query = w.Parcel.find(w.Parcel.weight > 1)
    return parcels(await query.aggregate([{"$limit": 9}], projection_model=w.Parcel).to_list())


@path("extras: $addFields, $unset and $set")
async def _(w: World) -> Any:
    pipeline = [{"$addFields": {"more": 1}}, {"$unset": "weight"}, {"$set": {"most": "$more"}}]
    return fields(await w.Parcel.aggregate(pipeline).to_list())


@path("extras: $project that leaves out a field")
async def _(w: World) -> Any:
    return fields(await w.Parcel.aggregate([{"$project": {"weight": 0}}]).to_list())


@path("extras: $group with whole documents")
async def _(w: World) -> Any:
    first = {"$group": {"_id": "$name", "one": {"$first": "$$ROOT"}}}
    (group,) = await w.Parcel.aggregate([WHOLE]).to_list()
    groups = await w.Parcel.aggregate([first]).to_list()
    return fields(group["whole"]), fields(each["one"] for each in groups)


@path("extras: $replaceRoot with whole documents")
async def _(w: World) -> Any:
    back: list[Any] = [WHOLE, {"$unwind": "$whole"}, {"$replaceRoot": {"newRoot": "$whole"}}]
    merged = [{"$replaceWith": {"$mergeObjects": ["$$ROOT", {"more": 1}]}}]
    return [fields(await w.Parcel.aggregate(stages).to_list()) for stages in (back, merged)]


@path("extras: $facet with whole documents")
async def _(w: World) -> Any:
    facets = {"all": [{"$sort": {"_id": 1}}], "group": [WHOLE]}
    (found,) = await w.Parcel.aggregate([{"$facet": facets}]).to_list()
    return fields(found["all"]), fields(found["group"][0]["whole"])


@path("extras: names and values of fields, as an array")
async def _(w: World) -> Any:
    pipeline = [{"$project": {"pairs": {"$objectToArray": "$$ROOT"}}}]
    found = await w.Parcel.aggregate(pipeline).to_list()
    return sorted((each["_id"], {pair["k"] for pair in each["pairs"]} - DECLARED) for each in found)


@path("extras: $lookup by fields, from a plain collection")
async def _(w: World) -> Any:
    found = await w.Crate.aggregate([{"$lookup": LOOKUP}]).to_list()
    return sorted((each["_id"], fields(each["found"])) for each in found)


@path("extras: $lookup with a pipeline, and by let")
async def _(w: World) -> Any:
    heavy = {"$match": {"weight": {"$gt": 1}}}
    same = {"$match": {"$expr": {"$eq": ["$_id", "$$first"]}}}
    by_let = {"from": "Parcel", "let": {"first": "$first.$id"}, "pipeline": [same], "as": "found"}
    stages = {**LOOKUP, "pipeline": [heavy]}, by_let
    answers = [await w.Crate.aggregate([{"$lookup": stage}]).to_list() for stage in stages]
    return [sorted((each["_id"], fields(each["found"])) for each in found) for found in answers]


@path("extras: $lookup from the collection to itself")
async def _(w: World) -> Any:
    lookup = {**LOOKUP, "localField": "inside.$id"}
    found = await w.Parcel.aggregate([{"$lookup": lookup}]).to_list()
    return fields(found), sorted((each["_id"], fields(each["found"])) for each in found)


@path("extras: $lookup, then $unwind and $replaceWith")
async def _(w: World) -> Any:
    pipeline = [{"$lookup": LOOKUP}, {"$unwind": "$found"}, {"$replaceWith": "$found"}]
    return parcels(await w.Crate.aggregate(pipeline, projection_model=w.Parcel).to_list())


@path("extras: $unionWith")
async def _(w: World) -> Any:
    pipelines: list[Any] = [
        [{"$match": {"_id": 9}}, {"$unionWith": "Parcel"}],
        [{"$match": {"_id": 9}}, {"$unionWith": {"coll": "Parcel", "pipeline": [WHOLE]}}],
    ]
    plain, whole = [await w.Crate.aggregate(pipeline).to_list() for pipeline in pipelines]
    return fields(plain), fields(whole[0]["whole"])


@path("extras: $graphLookup")
async def _(w: World) -> Any:
    graph = {
        "from": "Parcel",
        "startWith": "$first.$id",
        "connectFromField": "inside.$id",
        "connectToField": "_id",
        "as": "found",
    }
    found = await w.Crate.aggregate([{"$graphLookup": graph}]).to_list()
    return sorted((each["_id"], fields(each["found"])) for each in found)


@path("extras: fetched links")
async def _(w: World) -> Any:
    crates = await w.Crate.find(fetch_links=True).to_list()
    firsts = sorted((each.id, getattr(each.first, "weight", "->")) for each in crates)
    return firsts, sorted((each.id, parcels(each.parcels)) for each in crates)


@path("extras: fetched links, by let")
async def _(w: World) -> Any:
    with before_mongodb_5(w.Crate):
        crates = await w.Crate.find(fetch_links=True, nesting_depth=1).to_list()
    return sorted((each.id, parcels(each.parcels)) for each in crates)


@path("extras: fetched links of one, and of documents of the class")
async def _(w: World) -> Any:
    crate = await w.Crate.get(1, fetch_links=True)
    found = await w.Parcel.find(fetch_links=True).to_list()
    inside = sorted((each.id, getattr(each.inside, "weight", None)) for each in found)
    return parcel(crate.first), parcels(crate.parcels), inside


@path("extras: fetch_all_links() and Link.fetch()")
async def _(w: World) -> Any:
    crates = [await w.Crate.get(number) for number in (1, 2)]
    fetched = [type(await each.first.fetch()).__name__ for each in crates]
    await crates[0].fetch_all_links()
    return fetched, sorted(type(each).__name__ for each in crates[0].parcels)


@path("extras: find_one().update() that returns the document")
async def _(w: World) -> Any:
    answers = [
        await w.Parcel.find_one({"_id": number}).update(
            {"$inc": {"weight": 1}}, response_type=response
        )
        for number in (2, 3)
        for response in (UpdateResponse.OLD_DOCUMENT, UpdateResponse.NEW_DOCUMENT)
    ]
    return [parcel(each) for each in answers], w.after(w.Parcel)


@path("extras: find_one().upsert() that meets an expired document")
async def _(w: World) -> Any:
    upsert = w.Parcel.find_one({"_id": 3}).upsert(
        {"$set": {"weight": 1}}, on_insert=w.Parcel(id=3, name="new")
    )
    return parcel(await upsert), w.after(w.Parcel), parcel(await w.Parcel.get(3))


@path("extras: set(), replace(), save() and sync() of live documents", own=True)
async def _(w: World) -> Any:
    two, five = await w.Parcel.get(2), await w.Parcel.get(5)
    await two.set({"weight": 3})
    await two.replace()
    await five.inc({"weight": 1})
    await five.save()
    await two.sync()
    return parcels([two, five]), w.after(w.Parcel), parcels(await w.Parcel.find().to_list())


@path("extras: insert() with the key of an expired document")
async def _(w: World) -> Any:
    await w.Parcel(id=3, name="new", weight=5).insert()
    await w.Parcel.insert_many([w.Parcel(id=6, name="newer"), w.Parcel(id=7, name="newest")])
    return w.after(w.Parcel), parcels(await w.Parcel.find().to_list())


@path("extras: the driver's find() and find_one()")
async def _(w: World) -> Any:
    handle = w.handle(w.Parcel)
    some = await handle.find({"weight": {"$gt": 1}}).sort("weight").limit(2).to_list(None)
    less = await handle.find({}, {"weight": 0}).to_list(None)
    return fields(some), fields(less), [key(await handle.find_one({"_id": n})) for n in (2, 3)]


@path("extras: the driver's find_one_and_update(), ..._replace() and ..._delete()")
async def _(w: World) -> Any:
    handle, heavy = w.handle(w.Parcel), {"weight": {"$gt": 1}}
    order = [("weight", -1)]
    found = [
        await handle.find_one_and_update(heavy, {"$inc": {"weight": 1}}, sort=order),
        await handle.find_one_and_update(heavy, [{"$set": {"weight": 9}}], sort=order),
        await handle.find_one_and_replace({"_id": 2}, {"name": "new"}),
        await handle.find_one_and_delete(heavy, sort=order),
    ]
    return [fields([each]) for each in found], w.after(w.Parcel)


@path("extras: in a transaction")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        found = await w.Parcel.find(session=session).to_list()
        documents = await w.Parcel.aggregate([{"$sort": {"_id": 1}}], session=session).to_list()
    return parcels(found), fields(documents)


@path("extras: $out")
async def _(w: World) -> Any:
    await w.Parcel.aggregate([{"$out": "Copies"}]).to_list()
    return fields(w.other["Copies"].find())


@path("extras: $out of some, by the driver's collection")
async def _(w: World) -> Any:
    pipeline = [{"$match": {"weight": {"$gt": 1}}}, {"$sort": {"_id": 1}}, {"$out": "Copies"}]
    written = await piped(w.handle(w.Parcel), pipeline)
    return written, fields(w.other["Copies"].find())


@path("extras: $out of what a $lookup found")
async def _(w: World) -> Any:
    pipeline: list[Any] = [{"$lookup": LOOKUP}, {"$out": "Copies"}]
    await w.Crate.aggregate(pipeline).to_list()
    return [(each["_id"], fields(each["found"])) for each in w.other["Copies"].find()]


@path("extras: $out of a $unionWith")
async def _(w: World) -> Any:
    pipeline: list[Any] = [{"$match": {"_id": 9}}, {"$unionWith": "Parcel"}, {"$out": "Copies"}]
    await w.Crate.aggregate(pipeline).to_list()
    return fields(w.other["Copies"].find())


@path("extras: $merge")
async def _(w: World) -> Any:
    w.other["Merged"].insert_one({"_id": 2, "name": "old", "note": "n"})
    await w.Parcel.aggregate([{"$merge": {"into": "Merged"}}]).to_list()
    return fields(w.other["Merged"].find())


@path("extras: $merge that replaces")
async def _(w: World) -> Any:
    w.other["Merged"].insert_one({"_id": 2, "name": "old", "note": "n"})
    await w.Parcel.aggregate([{"$merge": {"into": "Merged", "whenMatched": "replace"}}]).to_list()
    return fields(w.other["Merged"].find())


@path("extras: $merge with a pipeline")
async def _(w: World) -> Any:
    w.other["Merged"].insert_one({"_id": 2, "name": "old"})
    update = [{"$set": {"new": "$$new"}}]
    await w.Parcel.aggregate([{"$merge": {"into": "Merged", "whenMatched": update}}]).to_list()
    merged = list(w.other["Merged"].find())
    return fields(merged), fields(each["new"] for each in merged if "new" in each)


@path("extras: $merge into a collection with a ttl, read again")
async def _(w: World) -> Any:
    heavier = {"$set": {"weight": {"$add": ["$weight", 1]}}}
    into = {"into": "Parcel", "whenMatched": "replace"}
    await w.Parcel.aggregate([heavier, {"$merge": into}]).to_list()
    return w.after(w.Parcel), parcels(await w.Parcel.find().to_list())
