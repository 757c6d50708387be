"""Conditions of the user's that fail on an expired document, which must not be asked of it.

Each divides by what is zero in one document only, which has expired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie.operators import And, Nor

from tests.leaks_mongo.paths_finders import MANY, NEAR, SHARE
from tests.leaks_mongo.registry import key, keys, path, refused

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World

OTHERS = {"kind": {"$in": ["a", "b"]}}
ROOT = {"$sqrt": {"$subtract": ["$score", 3]}}
"""It fails on document 4, too, which has less than 3."""
SET = {"$set": {"words": "many"}}


def failing(number: int) -> dict[str, Any]:
    """A condition that is true, but fails on the document with this key."""
    return {"$expr": {"$lt": [{"$divide": [1, {"$subtract": ["$_id", number]}]}, 9]}}


def shares(documents: list[Any]) -> list[Any]:
    """What was computed."""
    return sorted((each["_id"], each["share"]) for each in documents)


@path("conditions: find() beside other filters")
async def _(w: World) -> Any:
    return keys(await w.Event.find({"score": {"$gt": 0}}, MANY, OTHERS).to_list())


@path("conditions: find() with And(), Nor() and a chained find()")
async def _(w: World) -> Any:
    both = await w.Event.find(And(MANY, OTHERS)).to_list()
    neither = await w.Event.find(Nor(MANY, {"kind": "e"})).to_list()
    return keys(both), keys(neither), keys(await w.Event.find(OTHERS).find(MANY).to_list())


@path("conditions: find() with a root")
async def _(w: World) -> Any:
    return keys(await w.Event.find({"$expr": {"$lt": [ROOT, 6]}}).to_list())


@path("conditions: find() with a sort, a skip and a limit")
async def _(w: World) -> Any:
    found = await w.Event.find(MANY, sort="score", skip=1, limit=2).to_list()
    return [key(each) for each in found]


@path("conditions: find() with a hint, a collation and small batches")
async def _(w: World) -> Any:
    german = {"locale": "de", "strength": 2}
    found = w.Event.find(failing(4), hint="_id_", collation=german, batch_size=2)
    return keys(await found.to_list())


@path("conditions: find_one() by another field")
async def _(w: World) -> Any:
    return key(await w.Event.find_one({"name": "dan", **MANY}))


@path("conditions: find_one() by a sort")
async def _(w: World) -> Any:
    return key(await w.Event.find_one(MANY, sort=[("score", 1)]))


@path("conditions: first_or_none(), exists() and async for")
async def _(w: World) -> Any:
    first = await w.Event.find(MANY).sort("score").first_or_none()
    there = await w.Event.find(MANY, {"tags": "w"}).exists()
    return key(first), there, sorted([key(each) async for each in w.Event.find(MANY)])


@path("conditions: count() with a limit and a skip")
async def _(w: World) -> Any:
    limited, skipped = w.Event.find(failing(4)).limit(9), w.Event.find(failing(4)).skip(2)
    return await w.Event.find(MANY).count(), await limited.count(), await skipped.count()


@path("conditions: sum() and avg() of a query")
async def _(w: World) -> Any:
    return await w.Event.find(failing(4)).sum("score"), await w.Event.find(MANY).avg("score")


@path("conditions: distinct()")
async def _(w: World) -> Any:
    return sorted(await w.Event.distinct("kind", failing(4)))


@path("conditions: the driver's count_documents(), distinct() and find()")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    number, kinds = await events.count_documents(MANY), await events.distinct("kind", MANY)
    return number, sorted(kinds), keys(await events.find(MANY).to_list(None))


@path("conditions: the driver's find() between two keys of an index")
async def _(w: World) -> Any:
    cursor = w.handle(w.Event).find(failing(4)).hint([("_id", 1)])
    return keys(await cursor.min([("_id", 2)]).max([("_id", 7)]).to_list(None))


@path("conditions: the driver's find_one(), and find_one() with a projection that computes")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    by_name = await events.find_one({"name": "dan", **MANY})
    return by_name, await events.find_one({"name": "dan"}, {"share": SHARE})


@path("conditions: $match in the first place")
async def _(w: World) -> Any:
    return keys(await w.Event.aggregate([{"$match": MANY}]).to_list())


@path("conditions: $match by a key")
async def _(w: World) -> Any:
    return keys(await w.Event.aggregate([{"$match": {"_id": 4, **MANY}}]).to_list())


@path("conditions: $match after a $sort and a $limit")
async def _(w: World) -> Any:
    pipeline = [{"$sort": {"score": 1}}, {"$limit": 4}, {"$match": MANY}]
    return keys(await w.Event.aggregate(pipeline).to_list())


@path("conditions: $match in a pipeline of a query")
async def _(w: World) -> Any:
    found = w.Event.find(MANY).aggregate([{"$match": {"$expr": {"$lt": [ROOT, 6]}}}])
    return keys(await found.to_list())


@path("conditions: $project, $addFields and $set that compute")
async def _(w: World) -> Any:
    stages = [{name: {"share": SHARE}} for name in ("$project", "$addFields", "$set")]
    return [shares(await w.Event.aggregate([stage]).to_list()) for stage in stages]


@path("conditions: $replaceWith and $unwind of what is computed")
async def _(w: World) -> Any:
    pipeline = [{"$replaceWith": {"_id": "$_id", "share": [SHARE]}}, {"$unwind": "$share"}]
    return shares(await w.Event.aggregate(pipeline).to_list())


@path("conditions: $group and $sortByCount by what is computed")
async def _(w: World) -> Any:
    group = {"$group": {"_id": {"$round": ROOT}, "most": {"$max": SHARE}}}
    groups = await w.Event.aggregate([group]).to_list()
    counts = await w.Event.aggregate([{"$sortByCount": {"$round": ROOT}}]).to_list()
    return sorted((each["_id"], each["most"]) for each in groups), len(counts)


@path("conditions: $bucket by what is computed")
async def _(w: World) -> Any:
    bucket = {"groupBy": ROOT, "boundaries": [0, 5, 10], "default": "more"}
    found = await w.Event.aggregate([{"$bucket": bucket}]).to_list()
    return sorted((str(each["_id"]), each["count"]) for each in found)


@path("conditions: $setWindowFields over what is computed")
async def _(w: World) -> Any:
    output = {"share": {"$sum": SHARE, "window": {"documents": ["unbounded", "current"]}}}
    window = {"partitionBy": "$kind", "sortBy": {"name": 1}, "output": output}
    return shares(await w.Event.aggregate([{"$setWindowFields": window}]).to_list())


@path("conditions: $redact")
async def _(w: World) -> Any:
    redact = {"$cond": [{"$gt": [SHARE, 2]}, "$$KEEP", "$$PRUNE"]}
    return keys(await w.Event.aggregate([{"$redact": redact}]).to_list())


@path("conditions: $facet")
async def _(w: World) -> Any:
    facets = {"many": [{"$match": MANY}], "shares": [{"$project": {"share": SHARE}}]}
    (found,) = await w.Event.aggregate([{"$facet": facets}]).to_list()
    return keys(found["many"]), shares(found["shares"])


@path("conditions: $lookup with a pipeline")
async def _(w: World) -> Any:
    lookup = {
        "from": "Event",
        "localField": "event",
        "foreignField": "_id",
        "pipeline": [{"$match": MANY}, {"$project": {"share": SHARE}}],
        "as": "found",
    }
    found = await w.Journal.aggregate([{"$lookup": lookup}]).to_list()
    return sorted((each["_id"], shares(each["found"])) for each in found)


@path("conditions: $lookup by let")
async def _(w: World) -> Any:
    same = {"$expr": {"$and": [{"$lt": [SHARE, 50]}, {"$eq": ["$_id", "$$key"]}]}}
    lookup = {
        "from": "Event",
        "let": {"key": "$event"},
        "pipeline": [{"$match": same}],
        "as": "found",
    }
    found = await w.Journal.aggregate([{"$lookup": lookup}]).to_list()
    return sorted((each["_id"], keys(each["found"])) for each in found)


@path("conditions: $unionWith")
async def _(w: World) -> Any:
    union = {"coll": "Event", "pipeline": [{"$match": MANY}, {"$project": {"share": SHARE}}]}
    found = await w.Roof.aggregate([{"$match": {"_id": 9}}, {"$unionWith": union}]).to_list()
    return shares(found)


@path("conditions: $graphLookup")
async def _(w: World) -> Any:
    graph = {
        "from": "Node",
        "startWith": "$_id",
        "connectFromField": "_id",
        "connectToField": "parent",
        "restrictSearchWithMatch": failing(3),
        "as": "below",
    }
    found = await w.Node.aggregate([{"$graphLookup": graph}]).to_list()
    return sorted((each["_id"], keys(each["below"])) for each in found)


@path("conditions: $merge and $out")
async def _(w: World) -> Any:
    await w.Event.aggregate([{"$match": MANY}, {"$merge": {"into": "Merged"}}]).to_list()
    await w.Event.aggregate([{"$project": {"share": SHARE}}, {"$out": "Copies"}]).to_list()
    return keys(w.other["Merged"].find()), shares(list(w.other["Copies"].find()))


@path("conditions: find().update() and update_many()")
async def _(w: World) -> Any:
    some = await w.Event.find(MANY, OTHERS).update(SET)
    most = await w.Event.find(failing(4)).update_many({"$inc": {"score": 1}})
    return some.matched_count, most.matched_count, w.after(w.Event)


@path("conditions: an update with a pipeline that computes")
async def _(w: World) -> Any:
    result = await w.Event.update_all([{"$set": {"share": SHARE}}])
    return result.matched_count, w.after(w.Event)


@path("conditions: an update of one with a pipeline that computes")
async def _(w: World) -> Any:
    one = await w.Event.find_one({"_id": 4}).update([{"$set": {"share": SHARE}}])
    other = await w.Event.find_one({"tags": "w"}).update([{"$set": {"share": SHARE}}])
    return one.matched_count, other.matched_count, w.after(w.Event)


@path("conditions: find_one().update(), by a key and by another field")
async def _(w: World) -> Any:
    filters = {"_id": 4, **MANY}, {"name": "dan", **MANY}, {"_id": {"$gt": 3}, **failing(4)}
    counts = [(await w.Event.find_one(each).update(SET)).matched_count for each in filters]
    return counts, w.after(w.Event)


@path("conditions: find().delete()")
async def _(w: World) -> Any:
    return (await w.Event.find(MANY, OTHERS).delete()).deleted_count, w.after(w.Event)


@path("conditions: find_one().delete(), by a key and by another field")
async def _(w: World) -> Any:
    filters = {"_id": 4, **MANY}, {"name": "dan", **MANY}, {"_id": {"$gt": 3}, **failing(4)}
    counts = [(await w.Event.find_one(each).delete()).deleted_count for each in filters]
    return counts, w.after(w.Event)


@path("conditions: find_one().replace_one()")
async def _(w: World) -> Any:
    new = w.Event(id=4, name="new")
    return await refused(w.Event.find_one({"_id": 4, **MANY}).replace_one(new)), w.after(w.Event)


@path("conditions: bulk writer")
async def _(w: World) -> Any:
    async with w.Event.bulk_writer() as writer:
        await w.Event.find(MANY).update(SET, bulk_writer=writer)
        await w.Event.find_one({"_id": 4, **MANY}).update(SET, bulk_writer=writer)
        await w.Event.find(failing(4), {"kind": "b"}).delete(bulk_writer=writer)
        await w.Event.find_one({"name": "dan", **MANY}).delete(bulk_writer=writer)
    return w.after(w.Event)


@path("conditions: the driver's update_one(), update_many() and replace_one()")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    results = [
        await events.update_one({"name": "dan", **MANY}, SET),
        await events.update_many(MANY, SET),
        await events.replace_one({"_id": 4, **MANY}, {"name": "new"}),
    ]
    return [each.matched_count for each in results], w.after(w.Event)


@path("conditions: the driver's delete_one() and delete_many()")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    one = await events.delete_one({"_id": {"$in": [4, 6]}, **failing(4)})
    many = await events.delete_many(MANY)
    return one.deleted_count, many.deleted_count, w.after(w.Event)


@path("conditions: the driver's find_one_and_update()")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    found = [
        await events.find_one_and_update({"_id": 4, **MANY}, SET),
        await events.find_one_and_update(MANY, SET, sort=[("score", 1)]),
        await events.find_one_and_update({"name": "dan"}, [{"$set": {"share": SHARE}}]),
    ]
    return [key(each) for each in found], w.after(w.Event)


@path("conditions: the driver's find_one_and_update() with a projection that computes")
async def _(w: World) -> Any:
    events, shown = w.handle(w.Event), {"share": SHARE}
    first = await events.find_one_and_update({}, SET, shown, sort=[("score", 1)])
    return first, await events.find_one_and_update({"_id": 4}, SET, shown), w.after(w.Event)


@path("conditions: the driver's find_one_and_replace()")
async def _(w: World) -> Any:
    events, new = w.handle(w.Event), {"name": "new"}
    by_key = await events.find_one_and_replace({"_id": 4, **MANY}, new)
    first = await events.find_one_and_replace(failing(4), new, sort=[("score", 1)])
    return by_key, key(first), w.after(w.Event)


@path("conditions: the driver's find_one_and_delete()")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    by_key = await events.find_one_and_delete({"_id": 4, **MANY})
    first = await events.find_one_and_delete(failing(4), sort=[("score", 1)])
    return by_key, key(first), w.after(w.Event)


@path("conditions: a text search, and two by place")
async def _(w: World) -> Any:
    words = await w.Event.find({"$text": {"$search": "red"}}, MANY).to_list()
    near = await w.Event.find({"place": {"$near": NEAR}}, failing(4)).limit(3).to_list()
    box = {"$geoWithin": {"$centerSphere": [[0.0, 0.0], 0.05]}}
    within = await w.Event.find({"place": box}, failing(4)).to_list()
    return keys(words), [key(each) for each in near], keys(within)


@path("conditions: find(fetch_links=True)")
async def _(w: World) -> Any:
    found = w.Window.find(failing(3), fetch_links=True)
    return sorted((each.id, key(each.lock)) for each in await found.to_list() if each.id != 2)


@path("conditions: find(fetch_links=True), counted, and its first")
async def _(w: World) -> Any:
    found = w.House.find(failing(3), fetch_links=True)
    return await found.count(), key(await found.sort("-_id").first_or_none())


@path("conditions: in a transaction")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        found = keys(await w.Event.find(MANY, session=session).to_list())
        by_key = key(await w.Event.find_one({"_id": 4, **MANY}, session=session))
        await w.Event.find(MANY, session=session).update(SET, session=session)
        await w.Event.find({"_id": 4, **MANY}, session=session).delete(session=session)
    return found, by_key, w.after(w.Event)


@path("conditions: where a date decides")
async def _(w: World) -> Any:
    models = w.Visit, w.Offer, w.Voucher, w.Adopted
    found = [keys(await model.find(failing(2)).to_list()) for model in models]
    return found, [await model.find(failing(2)).count() for model in models]


@path("conditions: where a date decides, by a key")
async def _(w: World) -> Any:
    models = w.Visit, w.Offer, w.Voucher, w.Adopted
    return [key(await model.find_one({"_id": 2, **failing(2)})) for model in models]


@path("conditions: where a date decides, in an update and a deletion")
async def _(w: World) -> Any:
    updated = await w.Visit.find(failing(2)).update({"$set": {"name": "x"}})
    deleted = await w.Adopted.find(failing(2)).delete()
    seen = keys(each for each in w.after(w.Visit) if each["name"] == "x")
    return updated.matched_count, seen, deleted.deleted_count, w.after(w.Adopted)


@path("conditions: a view")
async def _(w: World) -> Any:
    found = await w.EventView.find(failing(4)).to_list()
    return keys(found), await w.EventView.find(failing(4)).count()


@path("conditions: a union, and a class of it")
async def _(w: World) -> Any:
    posts = w.Post.find(failing(2))
    return keys(await w.Feed.find(failing(2)).to_list()), keys(await posts.to_list())


@path("conditions: a class with its children")
async def _(w: World) -> Any:
    return keys(await w.Vehicle.find(failing(2), with_children=True).to_list())


@path("conditions: soft deletes")
async def _(w: World) -> Any:
    found, in_all = w.Memo.find(failing(2)), w.Memo.find_many_in_all(failing(2))
    return keys(await found.to_list()), keys(await in_all.to_list()), await found.count()


@path("conditions: a time series")
async def _(w: World) -> Any:
    found, counted = w.Reading.find(failing(2)), w.Reading.find({"place": "attic"}, failing(2))
    return keys(await found.to_list()), await counted.count()


@path("conditions: use_cache")
async def _(w: World) -> Any:
    return [keys(await w.Cached.find(failing(2)).to_list()) for _ in range(2)]
