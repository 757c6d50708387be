"""Beanie's finders: every way to ask for documents of one class."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from beanie import SortDirection
from beanie.operators import All, And, ElemMatch, In, Nor, Not, Or, RegEx
from bson import Regex

from tests.leaks_mongo.models import IGNORING_CASE, Doubled, FirstTag, Name
from tests.leaks_mongo.registry import key, keys, path

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World


@path("find() without a filter")
async def _(w: World) -> Any:
    return keys(await w.Event.find().to_list())


@path("find() with an empty filter")
async def _(w: World) -> Any:
    return keys(await w.Event.find({}).to_list())


@path("find() by an expression")
async def _(w: World) -> Any:
    return keys(await w.Event.find(w.Event.kind == "a").to_list())


@path("find() by a dict")
async def _(w: World) -> Any:
    return keys(await w.Event.find({"kind": "b"}).to_list())


@path("find() by several filters")
async def _(w: World) -> Any:
    return keys(await w.Event.find(w.Event.kind == "a", {"score": {"$gt": 15}}).to_list())


@path("find() chained")
async def _(w: World) -> Any:
    return keys(await w.Event.find(w.Event.kind == "a").find(w.Event.score > 15).to_list())


@path("find() by the keys of expired documents")
async def _(w: World) -> Any:
    return keys(await w.Event.find(In(w.Event.id, [4, 5, 6])).to_list())


@path("find_one() by a regular expression for the key")
async def _(w: World) -> Any:
    patterns = re.compile("^ann", re.IGNORECASE), Regex("^bob")
    return [key(await w.Token.find_one({"_id": pattern})) for pattern in patterns]


@path("find_one() by a key under a collation")
async def _(w: World) -> Any:
    return key(await w.Token.find_one({"_id": "ANN-1"}, collation=IGNORING_CASE))


@path("the handle's find_one() by a regular expression, and by a key under a collation")
async def _(w: World) -> Any:
    found = await w.handle(w.Token).find_one(re.compile("^bob"))
    same = await w.handle(w.Token).find_one("ANN-1", collation=IGNORING_CASE)
    return key(found), key(same)


@path("find() with an $or of the user's at the top")
async def _(w: World) -> Any:
    return keys(await w.Event.find({"$or": [{"kind": "c"}, {"score": 1}, {"_id": 1}]}).to_list())


@path("find() with Or()")
async def _(w: World) -> Any:
    return keys(await w.Event.find(Or(w.Event.kind == "c", w.Event.kind == "b")).to_list())


@path("find() with And()")
async def _(w: World) -> Any:
    return keys(await w.Event.find(And(w.Event.kind == "a", w.Event.score > 5)).to_list())


@path("find() with Nor()")
async def _(w: World) -> Any:
    return keys(await w.Event.find(Nor(w.Event.kind == "a", w.Event.kind == "d")).to_list())


@path("find() with Not()")
async def _(w: World) -> Any:
    return keys(await w.Event.find(Not({"score": {"$lt": 30}})).to_list())


@path("find() with a regular expression")
async def _(w: World) -> Any:
    return keys(await w.Event.find(RegEx(w.Event.name, "^[d-f]")).to_list())


@path("find() in an array, with All()")
async def _(w: World) -> Any:
    return keys(await w.Event.find(All(w.Event.tags, ["x"])).to_list())


@path("find() in an array, with ElemMatch()")
async def _(w: World) -> Any:
    return keys(await w.Event.find(ElemMatch(w.Event.tags, {"$in": ["v", "w", "z"]})).to_list())


@path("find() with an $expr of the user's")
async def _(w: World) -> Any:
    return keys(await w.Event.find({"$expr": {"$gt": ["$score", 45]}}).to_list())


@path("find() with $where")
async def _(w: World) -> Any:
    return keys(await w.Event.find({"$where": "this.score > 45"}).to_list())


@path("find() with $jsonSchema")
async def _(w: World) -> Any:
    schema = {"properties": {"kind": {"enum": ["b", "c"]}}}
    return keys(await w.Event.find({"$jsonSchema": schema}).to_list())


@path("find_many()")
async def _(w: World) -> Any:
    return keys(await w.Event.find_many(w.Event.kind == "a").to_list())


@path("find_all()")
async def _(w: World) -> Any:
    return keys(await w.Event.find_all().to_list())


@path("all()")
async def _(w: World) -> Any:
    return keys(await w.Event.all().to_list())


@path("find_one() of an expired document, by an expression")
async def _(w: World) -> Any:
    return key(await w.Event.find_one(w.Event.name == "dan"))


@path("find_one() of an expired document, by a dict")
async def _(w: World) -> Any:
    return key(await w.Event.find_one({"kind": "c"}))


@path("find_one() where the first that fits has expired")
async def _(w: World) -> Any:
    return key(await w.Event.find_one({}, sort=[("score", 1)]))


@path("find_one() with a projection model")
async def _(w: World) -> Any:
    return await w.Event.find_one({"kind": "c"}, projection_model=Name)


@path("find_one() projected afterwards")
async def _(w: World) -> Any:
    return await w.Event.find_one({"kind": "c"}).project(Name)


@path("get() of an expired document")
async def _(w: World) -> Any:
    return [key(await w.Event.get(number)) for number in range(1, 13)]


@path("get() of an expired document, by a key that has to be parsed")
async def _(w: World) -> Any:
    return key(await w.Event.get("4"))


@path("first_or_none()")
async def _(w: World) -> Any:
    return key(await w.Event.find().sort("-score").first_or_none())


@path("first_or_none() where all that fit have expired")
async def _(w: World) -> Any:
    return key(await w.Event.find(w.Event.kind == "c").first_or_none())


@path("async for")
async def _(w: World) -> Any:
    return [key(each) async for each in w.Event.find(w.Event.kind == "a").sort("_id")]


@path("async for over find_all()")
async def _(w: World) -> Any:
    return [key(each) async for each in w.Event.find_all().sort("_id")]


@path("to_list() with a length")
async def _(w: World) -> Any:
    return keys(await w.Event.find().sort("_id").to_list(4))


@path("limit()")
async def _(w: World) -> Any:
    return keys(await w.Event.find().sort("_id").limit(4).to_list())


@path("skip() and limit()")
async def _(w: World) -> Any:
    return keys(await w.Event.find().sort("_id").skip(3).limit(3).to_list())


@path("sort, skip and limit as arguments")
async def _(w: World) -> Any:
    return keys(await w.Event.find(sort="-score", skip=1, limit=3).to_list())


@path("sort() by several keys")
async def _(w: World) -> Any:
    order = [("kind", SortDirection.DESCENDING), ("score", SortDirection.ASCENDING)]
    return [key(each) for each in await w.Event.find().sort(order).to_list()]


@path("find() with a projection model")
async def _(w: World) -> Any:
    return sorted(each.name for each in await w.Event.find(projection_model=Name).to_list())


@path("find() projected afterwards")
async def _(w: World) -> Any:
    return sorted(each.name for each in await w.Event.find().project(Name).to_list())


@path("find() with a projection that computes")
async def _(w: World) -> Any:
    found = await w.Event.find().project(Doubled).to_list()
    return sorted((each.name, each.double) for each in found)


@path("find() with a hint")
async def _(w: World) -> Any:
    return keys(await w.Event.find({"_id": {"$lt": 8}}, hint="_id_").to_list())


@path("find() with a batch size")
async def _(w: World) -> Any:
    return keys(await w.Event.find(batch_size=2).to_list())


@path("find() with a collation")
async def _(w: World) -> Any:
    german = {"locale": "de", "strength": 2}
    return keys(await w.Event.find({"name": {"$in": ["DAN", "ANN"]}}, collation=german).to_list())


@path("find() with lazy_parse")
async def _(w: World) -> Any:
    found = await w.Event.find(lazy_parse=True).to_list()
    return sorted(each.name for each in found)


@path("find_all() with lazy_parse")
async def _(w: World) -> Any:
    return sorted([each.name async for each in w.Event.find_all(lazy_parse=True)])


@path("find() without the cache")
async def _(w: World) -> Any:
    return keys(await w.Cached.find(ignore_cache=True).to_list())


@path("a query that is run twice")
async def _(w: World) -> Any:
    query = w.Event.find(w.Event.kind == "b")
    return [keys(await query.to_list()), keys(await query.to_list()), await query.count()]


@path("a query that was cloned")
async def _(w: World) -> Any:
    query = w.Event.find(w.Event.kind == "a")
    return keys(await query.clone().find(w.Event.score > 15).to_list())


@path("inspect_collection() looks at live documents")
async def _(w: World) -> Any:
    expired = {"$set": {"score": "no number"}}
    w.other["Event"].update_one({"_id": 5}, expired)
    return (await w.Event.inspect_collection()).status.value


@path("a text search")
async def _(w: World) -> Any:
    return keys(await w.Event.find({"$text": {"$search": "red"}}).to_list())


@path("a text search with another filter")
async def _(w: World) -> Any:
    return keys(await w.Event.find({"$text": {"$search": "apple"}}, w.Event.kind == "b").to_list())


@path("a text search inside $and")
async def _(w: World) -> Any:
    both = {"$and": [{"$text": {"$search": "apple"}}, {"score": {"$gt": 15}}]}
    return keys(await w.Event.find(both).to_list())


@path("a text search, counted")
async def _(w: World) -> Any:
    return await w.Event.find({"$text": {"$search": "apple"}}).count()


@path("a text search in an aggregation")
async def _(w: World) -> Any:
    found = w.Event.find({"$text": {"$search": "apple"}}).aggregate([{"$project": {"_id": 1}}])
    return keys(await found.to_list())


@path("$text in the first $match, by its score")
async def _(w: World) -> Any:
    pipeline = [
        {"$match": {"$text": {"$search": "red"}}},
        {"$sort": {"score": {"$meta": "textScore"}}},
        {"$limit": 1},
    ]
    return keys(await w.Event.aggregate(pipeline).to_list())


NEAR = {"$geometry": {"type": "Point", "coordinates": [0.0, 0.0]}, "$maxDistance": 450_000}


@path("$near")
async def _(w: World) -> Any:
    found = await w.Event.find({"place": {"$near": NEAR}}).limit(3).to_list()
    return [key(each) for each in found]


@path("$nearSphere with another filter")
async def _(w: World) -> Any:
    found = w.Event.find({"place": {"$nearSphere": NEAR}}, w.Event.score > 15)
    return [key(each) for each in await found.to_list()]


@path("$geoWithin")
async def _(w: World) -> Any:
    box = {"$geoWithin": {"$centerSphere": [[0.0, 0.0], 0.05]}}
    return keys(await w.Event.find({"place": box}).to_list())


@path("$geoWithin, counted")
async def _(w: World) -> Any:
    box = {"$geoWithin": {"$centerSphere": [[0.0, 0.0], 0.05]}}
    return await w.Event.find({"place": box}).count()


@path("$geoNear, which has to be the first stage")
async def _(w: World) -> Any:
    near = {"near": NEAR["$geometry"], "distanceField": "far", "key": "place"}
    return keys(await w.Event.aggregate([{"$geoNear": near}, {"$limit": 3}]).to_list())


@path("$geoNear with a query of its own")
async def _(w: World) -> Any:
    near = {
        "near": NEAR["$geometry"],
        "distanceField": "far",
        "key": "place",
        "query": {"kind": "a"},
        "spherical": True,
    }
    return keys(await w.Event.aggregate([{"$geoNear": near}, {"$limit": 2}]).to_list())


POSITIONAL = {"tags.$": 1}


@path("a positional projection")
async def _(w: World) -> Any:
    found = w.handle(w.Event).find({"tags": "x"}, POSITIONAL)
    return sorted((each["_id"], each["tags"]) for each in await found.to_list(None))


@path("a positional projection, with a sort, a skip and a limit")
async def _(w: World) -> Any:
    found = w.handle(w.Event).find({"tags": "x"}, POSITIONAL).sort("score", -1).skip(1).limit(2)
    return await found.to_list(None)


@path("a positional projection, in find_one()")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    found = await events.find_one({"tags": "x"}, POSITIONAL, sort=[("score", 1)])
    return found, await events.find_one({"_id": 4, "tags": "x"}, POSITIONAL)


@path("a positional projection of a model, in first_or_none()")
async def _(w: World) -> Any:
    query = w.Event.find({"tags": {"$in": ["u", "y"]}}, projection_model=FirstTag)
    return await query.sort("-score").first_or_none()


@path("a positional projection where a date decides")
async def _(w: World) -> Any:
    visits, dates = w.handle(w.Visit), {"at.0": {"$exists": True}, "at": {"$type": "date"}}
    found = [await visits.find(dates, {"at.$": 1}).limit(size).to_list(None) for size in (0, 1)]
    return [keys(each) for each in found]


@path("a projection that leaves out a part")
async def _(w: World) -> Any:
    found = await w.handle(w.Event).find({}, {"place": {"coordinates": 0}}).to_list(None)
    return sorted((each["_id"], each["name"], each["place"]) for each in found)


# Document 4, which has expired, is the only one that these can't be computed for.
SHARE = {"$divide": [100, {"$subtract": ["$score", 1]}]}
MANY = {"$expr": {"$gt": [SHARE, 2]}}


@path("a projection that fails on an expired document")
async def _(w: World) -> Any:
    events, shown = w.handle(w.Event), {"share": SHARE}
    found = [each["share"] for each in await events.find({}, shown).sort("_id").to_list(None)]
    return found, await events.find_one({"_id": 4}, shown)


@path("an expression that fails on an expired document")
async def _(w: World) -> Any:
    return keys(await w.Event.find(MANY).to_list())


@path("an expression that fails on an expired document, by its key")
async def _(w: World) -> Any:
    return await w.Event.find_one({"_id": 4, **MANY})


@path("an expression that fails on an expired document, in an $or")
async def _(w: World) -> Any:
    return keys(await w.Event.find({"$or": [MANY, {"kind": "b"}]}).to_list())


@path("an expression that fails on an expired document, counted")
async def _(w: World) -> Any:
    either = {"$or": [MANY, {"kind": "b"}]}
    return await w.Event.find(either).count(), sorted(await w.Event.distinct("name", either))


@path("an expression that fails on an expired document, in a second $match")
async def _(w: World) -> Any:
    either = {"$match": {"$or": [MANY, {"kind": "b"}]}}
    found = w.Event.aggregate([{"$match": {"score": {"$gt": 0}}}, {"$sort": {"name": 1}}, either])
    return keys(await found.to_list())


@path("an expression that fails on an expired document, in a $geoNear")
async def _(w: World) -> Any:
    near = {"near": NEAR["$geometry"], "distanceField": "far", "key": "place", "query": MANY}
    return keys(await w.Event.aggregate([{"$geoNear": near}, {"$limit": 2}]).to_list())


@path("an expression that fails on an expired document, in an update and a deletion")
async def _(w: World) -> Any:
    either = {"$or": [MANY, {"kind": "b"}]}
    await w.Event.find(either).update({"$set": {"words": "many"}})
    await w.Event.find(either, {"kind": "b"}).delete()
    return w.after(w.Event)
