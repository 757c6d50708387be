"""Aggregation pipelines, and stages in them that read other collections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.leaks.registry import rows
from tests.leaks_mongo.models import Name
from tests.leaks_mongo.registry import failure, keys, path

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World


async def rows_of(model: Any, *pipeline: dict[str, Any], **options: Any) -> list[Any]:
    """What a class's pipeline gives, as plain values."""
    return rows(each.items() for each in await model.aggregate(list(pipeline), **options).to_list())


def lookup(collection: str, local: str, foreign: str, *pipeline: Any) -> dict[str, Any]:
    """A `$lookup` by two fields, with a pipeline of its own or without."""
    stage = {"from": collection, "localField": local, "foreignField": foreign, "as": "found"}
    return {"$lookup": {**stage, "pipeline": list(pipeline)} if pipeline else stage}


def lookup_by_let(collection: str, *pipeline: Any) -> dict[str, Any]:
    """A `$lookup` by variables: ``$$key`` is the document's `_id`."""
    return {
        "$lookup": {
            "from": collection,
            "let": {"key": "$_id"},
            "pipeline": list(pipeline),
            "as": "found",
        }
    }


HAS_KEY = {"$match": {"$expr": {"$eq": ["$_id", "$$key"]}}}
NAMES = {"$project": {"names": "$found.name"}}
FOUND_KEYS = {"$project": {"keys": "$found._id"}}
COUNT = {"$count": "number"}


@path("an empty pipeline")
async def _(w: World) -> Any:
    return keys(await w.Event.aggregate([]).to_list())


@path("$match")
async def _(w: World) -> Any:
    return keys(await w.Event.aggregate([{"$match": {"kind": "b"}}]).to_list())


@path("$group")
async def _(w: World) -> Any:
    group = {"$group": {"_id": "$kind", "total": {"$sum": "$score"}}}
    return await rows_of(w.Event, group)


@path("$group of a query")
async def _(w: World) -> Any:
    query = w.Event.find(w.Event.score > 5)
    return rows(
        each.items()
        for each in await query.aggregate([{"$group": {"_id": "$kind"}}, COUNT]).to_list()
    )


@path("a pipeline with a projection model")
async def _(w: World) -> Any:
    found = w.Event.aggregate([{"$match": {"kind": "a"}}], projection_model=Name)
    return sorted(each.name for each in await found.to_list())


@path("a pipeline, iterated")
async def _(w: World) -> Any:
    return keys([each async for each in w.Event.aggregate([{"$match": {"kind": "a"}}])])


@path("$count")
async def _(w: World) -> Any:
    return await rows_of(w.Event, COUNT)


@path("$sortByCount")
async def _(w: World) -> Any:
    return await rows_of(w.Event, {"$sortByCount": "$kind"})


@path("$bucket")
async def _(w: World) -> Any:
    bucket = {"groupBy": "$score", "boundaries": [0, 25, 60, 200]}
    return await rows_of(w.Event, {"$bucket": bucket})


@path("$sort and $limit")
async def _(w: World) -> Any:
    found = w.Event.aggregate([{"$sort": {"score": -1}}, {"$limit": 2}])
    return keys(await found.to_list())


@path("$unwind")
async def _(w: World) -> Any:
    unwound = [{"$unwind": "$tags"}, {"$group": {"_id": "$tags", "n": {"$sum": 1}}}]
    return await rows_of(w.Event, *unwound)


@path("$sample of more than there are")
async def _(w: World) -> Any:
    return keys(await w.Event.aggregate([{"$sample": {"size": 100}}]).to_list())


@path("$setWindowFields")
async def _(w: World) -> Any:
    window = {
        "sortBy": {"_id": 1},
        "output": {"sum": {"$sum": "$score", "window": {"documents": ["unbounded", "current"]}}},
    }
    return await rows_of(w.Event, {"$setWindowFields": window}, {"$project": {"sum": 1}})


@path("$facet, with all its pipelines")
async def _(w: World) -> Any:
    facet = {"all": [COUNT], "a": [{"$match": {"kind": "a"}}, {"$project": {"_id": 1}}]}
    (found,) = await w.Event.aggregate([{"$facet": facet}]).to_list()
    return found["all"], keys(found["a"])


@path("$facet with a $lookup inside")
async def _(w: World) -> Any:
    inside = [lookup("Event", "event", "_id"), {"$match": {"found": []}}, {"$project": {"_id": 1}}]
    (found,) = await w.Journal.aggregate([{"$facet": {"without": inside}}]).to_list()
    return keys(found["without"])


@path("$lookup by fields, from a plain collection")
async def _(w: World) -> Any:
    return await rows_of(w.Journal, lookup("Event", "event", "_id"), NAMES)


@path("$lookup by fields, from a collection with a ttl to itself")
async def _(w: World) -> Any:
    return await rows_of(w.Node, lookup("Node", "parent", "_id"), NAMES)


@path("$lookup by fields, from a collection with a ttl to a plain one")
async def _(w: World) -> Any:
    return await rows_of(w.Event, lookup("Journal", "_id", "event"), FOUND_KEYS)


@path("$lookup by fields with a pipeline")
async def _(w: World) -> Any:
    only_b = {"$match": {"kind": "b"}}
    return await rows_of(w.Journal, lookup("Event", "event", "_id", only_b), NAMES)


@path("$lookup by let")
async def _(w: World) -> Any:
    return await rows_of(w.Journal, lookup_by_let("Event", HAS_KEY), NAMES)


@path("$lookup without a relation")
async def _(w: World) -> Any:
    uncorrelated = {"from": "Event", "pipeline": [{"$sort": {"_id": 1}}], "as": "found"}
    return await rows_of(w.Roof, {"$lookup": uncorrelated}, FOUND_KEYS)


@path("$lookup, then $unwind")
async def _(w: World) -> Any:
    unwind = {"$unwind": "$found"}
    return await rows_of(
        w.Journal, lookup("Event", "event", "_id"), unwind, {"$project": {"found._id": 1}}
    )


@path("$lookup within a $lookup")
async def _(w: World) -> Any:
    inner = lookup("Node", "_id", "parent")
    outer = {
        "$lookup": {
            "from": "Node",
            "localField": "_id",
            "foreignField": "parent",
            "pipeline": [{"$sort": {"_id": 1}}, inner, FOUND_KEYS],
            "as": "children",
        }
    }
    return await rows_of(w.Roof, outer, {"$project": {"children": 1}})


@path("$lookup of documents with a policy of another kind")
async def _(w: World) -> Any:
    return await rows_of(w.Journal, lookup("Visit", "_id", "_id"), NAMES)


@path("$lookup to a view")
async def _(w: World) -> Any:
    return await rows_of(w.Journal, lookup("EventView", "event", "_id"), NAMES)


@path("$unionWith a collection with a ttl, by its name")
async def _(w: World) -> Any:
    return await rows_of(w.Roof, {"$unionWith": "Event"}, COUNT)


@path("$unionWith a collection with a ttl, with a pipeline")
async def _(w: World) -> Any:
    union = {"coll": "Event", "pipeline": [{"$match": {"kind": "b"}}, {"$project": {"name": 1}}]}
    return await rows_of(w.Roof, {"$project": {"_id": 1}}, {"$unionWith": union})


@path("$unionWith between two collections with a ttl")
async def _(w: World) -> Any:
    union = {"coll": "Event", "pipeline": [{"$project": {"name": 1}}]}
    return await rows_of(w.Node, {"$project": {"name": 1}}, {"$unionWith": union})


@path("$unionWith inside $lookup")
async def _(w: World) -> Any:
    inside = [{"$match": {"_id": 1}}, {"$unionWith": "Event"}, {"$sort": {"name": 1}}]
    uncorrelated = {"from": "Roof", "pipeline": inside, "as": "found"}
    return await rows_of(w.Roof, {"$lookup": uncorrelated}, FOUND_KEYS)


GRAPH = {
    "from": "Node",
    "startWith": "$_id",
    "connectFromField": "_id",
    "connectToField": "parent",
    "as": "found",
}
SORTED = {"$project": {"keys": {"$sortArray": {"input": "$found._id", "sortBy": 1}}}}


@path("$graphLookup from a collection with a ttl")
async def _(w: World) -> Any:
    return await rows_of(w.Node, {"$graphLookup": GRAPH}, SORTED)


@path("$graphLookup from a plain collection")
async def _(w: World) -> Any:
    return await rows_of(w.Roof, {"$graphLookup": GRAPH}, SORTED)


@path("$graphLookup with a filter of its own")
async def _(w: World) -> Any:
    limited = {**GRAPH, "restrictSearchWithMatch": {"name": {"$regex": "leaf|right"}}}
    return await rows_of(w.Node, {"$graphLookup": limited}, SORTED)


@path("$graphLookup within $facet")
async def _(w: World) -> Any:
    facet = {"one": [{"$match": {"_id": 1}}, {"$graphLookup": GRAPH}, SORTED]}
    return await rows_of(w.Roof, {"$facet": facet})


@path("$merge into another collection")
async def _(w: World) -> Any:
    into = {"$merge": {"into": "Roof", "whenMatched": "replace"}}
    await w.Event.aggregate([{"$project": {"height": "$score"}}, into]).to_list()
    return w.after(w.Roof)


@path("$out into another collection")
async def _(w: World) -> Any:
    await w.Event.aggregate([{"$project": {"event": "$_id"}}, {"$out": "Journal"}]).to_list()
    return w.after(w.Journal)


async def merged(w: World, **how: Any) -> Any:
    """What `Lock` holds after the roofs were merged into it; its document 2 has expired."""
    into = {"$merge": {"into": "Lock", **how}}
    await w.Roof.aggregate([{"$project": {"code": "$height"}}, into]).to_list()
    return w.after(w.Lock)


@path("$merge into a collection with a ttl")
async def _(w: World) -> Any:
    return await merged(w, whenMatched="merge")


@path("$merge into a collection with a ttl: replace", own=True)
async def _(w: World) -> Any:
    return await merged(w, whenMatched="replace")


@path("$merge into a collection with a ttl: keepExisting")
async def _(w: World) -> Any:
    return await merged(w, whenMatched="keepExisting")


@path("$merge into a collection with a ttl: with a pipeline")
async def _(w: World) -> Any:
    return await merged(w, whenMatched=[{"$set": {"code": {"$add": ["$code", "$$new.code"]}}}])


@path("$merge into a collection with a ttl: discard what is new")
async def _(w: World) -> Any:
    return await merged(w, whenMatched="merge", whenNotMatched="discard")


@path("$merge into a collection with a ttl: fail for what is there")
async def _(w: World) -> Any:
    await w.Lock.find_one({"_id": 1}).delete()
    return await merged(w, whenMatched="fail")


@path("$merge into a collection with a ttl: fail for what lives", own=True)
async def _(w: World) -> Any:
    return await failure(merged(w, whenMatched="fail")), [each["_id"] for each in w.after(w.Lock)]


@path("$merge into a collection with a ttl: with a pipeline that keeps few fields")
async def _(w: World) -> Any:
    steps = [{"$set": {"both": {"$add": ["$code", "$$new.code"]}}}, {"$project": {"both": 1}}]
    return await merged(w, whenMatched=steps)


@path("$merge into a collection with a ttl: with a pipeline that replaces")
async def _(w: World) -> Any:
    replaced = {"$replaceWith": {"_id": "$_id", "code": {"$multiply": ["$code", 2]}}}
    return await merged(w, whenMatched=[replaced], let={"new": "$$ROOT"})


@path("$out into a collection with a ttl", own=True)
async def _(w: World) -> Any:
    await w.Roof.aggregate([{"$project": {"code": "$height"}}, {"$out": "Lock"}]).to_list()
    return w.after(w.Lock), await w.Lock.count()


NEAR_FIRST = {
    "$geoNear": {
        "near": {"type": "Point", "coordinates": [0.0, 0.0]},
        "distanceField": "far",
        "key": "place",
    }
}
TEXT_FIRST = {"$match": {"$text": {"$search": "red"}}}


@path("$geoNear as the first stage in a $lookup")
async def _(w: World) -> Any:
    inside = {"from": "Event", "pipeline": [NEAR_FIRST, {"$limit": 3}], "as": "found"}
    return await rows_of(w.Roof, {"$lookup": inside}, FOUND_KEYS)


@path("$geoNear as the first stage in a $unionWith")
async def _(w: World) -> Any:
    union = {"coll": "Event", "pipeline": [NEAR_FIRST, {"$limit": 3}, {"$project": {"_id": 1}}]}
    return await rows_of(w.Roof, {"$project": {"_id": 1}}, {"$unionWith": union})


@path("$text as the first stage in a $lookup")
async def _(w: World) -> Any:
    inside = [TEXT_FIRST, {"$sort": {"_id": 1}}]
    return await rows_of(
        w.Roof, {"$lookup": {"from": "Event", "pipeline": inside, "as": "found"}}, FOUND_KEYS
    )


@path("$text as the first stage in a $unionWith")
async def _(w: World) -> Any:
    union = {"coll": "Event", "pipeline": [TEXT_FIRST, {"$project": {"_id": 1}}]}
    return await rows_of(w.Roof, {"$project": {"_id": 1}}, {"$unionWith": union})


@path("$lookup within a $unionWith")
async def _(w: World) -> Any:
    union = {"coll": "Journal", "pipeline": [lookup("Event", "event", "_id"), NAMES]}
    return await rows_of(w.Roof, {"$project": {"_id": 1}}, {"$unionWith": union})


@path("$lookup, $unionWith and $graphLookup within each other")
async def _(w: World) -> Any:
    deepest = [
        {"$graphLookup": GRAPH},
        SORTED,
        {"$unionWith": {"coll": "Node", "pipeline": [COUNT]}},
    ]
    inside = {"from": "Roof", "pipeline": deepest, "as": "found"}
    (found,) = await w.Roof.aggregate([{"$match": {"_id": 1}}, {"$lookup": inside}]).to_list()
    return sorted(repr(each) for each in found["found"])


@path("$match that only looks at $lookup's result")
async def _(w: World) -> Any:
    dead = {"$match": {"found.name": {"$in": ["dan", "eve"]}}}
    return await rows_of(w.Journal, lookup("Event", "event", "_id"), dead, NAMES)


@path("a pipeline on a query with sort and limit")
async def _(w: World) -> Any:
    query = w.Event.find({"kind": "a"}).sort("-score").limit(2)
    return keys(await query.aggregate([{"$project": {"score": 1}}]).to_list())


@path("a pipeline with a hint and a collation")
async def _(w: World) -> Any:
    options = {"hint": "_id_", "collation": {"locale": "de"}}
    return await rows_of(w.Event, {"$match": {"kind": "b"}}, COUNT, **options)


@path("a pipeline of a query that fetches links")
async def _(w: World) -> Any:
    by_color = {"$group": {"_id": "$door.color", "n": {"$sum": 1}}}
    found = w.House.find(fetch_links=True).aggregate([by_color])
    return rows(each.items() for each in await found.to_list())


@path("a pipeline does not change the list that was given")
async def _(w: World) -> Any:
    pipeline = [{"$match": {"kind": "a"}}, lookup("Node", "_id", "_id"), COUNT]
    before = repr(pipeline)
    found = await w.Event.aggregate(pipeline).to_list()
    return found, repr(pipeline) == before
