"""Fields as Beanie's classes have them (`Event.kind`), in what goes to the driver as it is.

Compared with any name, such a field makes an operator of Beanie's, which is true.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie.operators import In, Or

from tests.leaks_mongo.paths_handles import piped
from tests.leaks_mongo.registry import key, keys, path

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World


@path("fields: $match by an expression, by an operator and by a dict")
async def _(w: World) -> Any:
    filters = w.Event.kind == "b", In(w.Event.kind, ["b", "c"]), {w.Event.kind: "b"}
    pipelines: list[Any] = [[{"$match": each}] for each in filters]
    return [keys(await w.Event.aggregate(pipeline).to_list()) for pipeline in pipelines]


@path("fields: $match in a pipeline of a query, and of the driver's collection")
async def _(w: World) -> Any:
    pipeline = [{"$match": Or({w.Event.kind: "c"}, w.Event.score == 1, {"tags": "z"})}]
    of_query = await w.Event.find(w.Event.score > 0).aggregate(pipeline).to_list()
    return keys(of_query), keys(await piped(w.handle(w.Event), pipeline))


@path("fields: $sort, $set, $unset, $project and $group")
async def _(w: World) -> Any:
    stages = [{"$sort": {w.Event.score: 1}}, {"$limit": 2}, {"$unset": w.Event.words}]
    first = await w.Event.aggregate([*stages, {"$set": {w.Event.kind: "z"}}]).to_list()
    named = await w.Event.aggregate([{"$project": {w.Event.id: 0, w.Event.name: 1}}]).to_list()
    group = {"_id": f"${w.Event.kind}", w.Event.score: {"$sum": 1}}
    groups = await w.Event.aggregate([{"$group": group}]).to_list()
    numbers = sorted((each["_id"], each["score"]) for each in groups)
    return keys(first), sorted(each["name"] for each in named), numbers


@path("fields: $lookup")
async def _(w: World) -> Any:
    lookup = {
        "from": "Event",
        "localField": w.Journal.event,
        "foreignField": w.Event.id,
        "pipeline": [{"$match": {w.Event.kind: {"$in": ["b", "c"]}}}],
        "as": "found",
    }
    found = await w.Journal.aggregate([{"$lookup": lookup}]).to_list()
    return sorted((each["_id"], keys(each["found"])) for each in found)


@path("fields: $graphLookup")
async def _(w: World) -> Any:
    graph = {
        "from": "Node",
        "startWith": "$_id",
        "connectFromField": w.Node.id,
        "connectToField": w.Node.parent,
        "restrictSearchWithMatch": {w.Node.name: {"$in": ["left", "right", "leaf of right"]}},
        "as": "below",
    }
    found = await w.Node.aggregate([{"$graphLookup": graph}]).to_list()
    return sorted((each["_id"], keys(each["below"])) for each in found)


@path("fields: distinct() with an expression, an operator and a dict")
async def _(w: World) -> Any:
    filters = w.Event.kind == "b", In(w.Event.kind, ["b", "c"]), {w.Event.kind: "b"}
    return [sorted(await w.Event.distinct(w.Event.name, each)) for each in filters]


@path("fields: the driver's find(), with a sort, a limit and projections")
async def _(w: World) -> Any:
    events, by = w.handle(w.Event), {w.Event.kind: {"$in": ["a", "b"]}}
    order = [(w.Event.score, 1)]
    found = await events.find(by, {w.Event.id: 0, w.Event.name: 1}, sort=order).to_list(None)
    less = await events.find(by, {w.Event.tags: 0, w.Event.words: 0}).limit(2).to_list(None)
    return found, sorted(each.keys() - {"_ts", "ttl"} for each in less)[:1], keys(less)


@path("fields: the driver's find_one() and count_documents()")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    found = [await events.find_one({w.Event.id: number}) for number in (1, 4)]
    by_name = await events.find_one({w.Event.name: "dan"})
    return [key(each) for each in found], by_name, await events.count_documents({w.Event.kind: "a"})


@path("fields: the driver's update_one() and update_many()")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    results = [
        await events.update_one({w.Event.name: "dan"}, {"$set": {w.Event.score: 0}}),
        await events.update_many({w.Event.kind: "a"}, {"$inc": {w.Event.score: 1}}),
        await events.update_many({"kind": "b"}, {"$set": {w.Event.score: 0}}),
        await events.update_many({"kind": "e"}, {"$unset": {w.Event.words: ""}}),
        await events.update_many({"kind": "d"}, {"$rename": {w.Event.words: "text"}}),
        await events.update_one({"_id": 2}, [{"$set": {w.Event.kind: "p"}}]),
    ]
    return [each.matched_count for each in results], w.after(w.Event)


@path("fields: the driver's update_one() that takes an expired document's unique value")
async def _(w: World) -> Any:
    await w.handle(w.Event).update_one({w.Event.id: 1}, {"$set": {w.Event.name: "dan"}})
    return w.after(w.Event)


@path("fields: the driver's upserts that meet expired documents")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    await events.update_one({w.Event.id: 4}, {"$set": {w.Event.name: "dan"}}, upsert=True)
    await events.replace_one({w.Event.id: 5}, {w.Event.name: "eve"}, upsert=True)
    return w.after(w.Event)


@path("fields: the driver's insert_one() and replace_one() with values of expired documents")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    await events.insert_one({w.Event.id: 4, w.Event.name: "eve"})
    await events.replace_one({w.Event.id: 1}, {w.Event.name: "gus", w.Event.score: 1})
    return w.after(w.Event)


@path("fields: the driver's find_one_and_update() and its like")
async def _(w: World) -> Any:
    events, name = w.handle(w.Event), {w.Event.name: 1}
    found = [
        await events.find_one_and_update({w.Event.id: 4}, {"$set": {w.Event.score: 0}}, name),
        await events.find_one_and_update({w.Event.id: 1}, {"$set": {w.Event.score: 0}}, name),
        await events.find_one_and_replace({w.Event.tags: "w"}, {w.Event.name: "new"}),
        await events.find_one_and_delete({w.Event.name: "eve"}),
    ]
    return found, w.after(w.Event)


@path("fields: the driver's delete_one() and delete_many()")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    one = await events.delete_one({w.Event.id: 4})
    many = await events.delete_many({w.Event.kind: {"$in": ["b", "c"]}})
    return one.deleted_count, many.deleted_count, w.after(w.Event)


@path("fields: where a date decides")
async def _(w: World) -> Any:
    visits = w.handle(w.Visit)
    found = await piped(visits, [{"$match": {w.Visit.at: {"$type": "date"}}}])
    names = await visits.distinct(w.Visit.name, {w.Visit.id: {"$gt": 1}})
    return keys(found), sorted(names), await visits.count_documents({w.Visit.id: {"$gt": 1}})
