"""The driver's own collections and databases, as Beanie and the application hand them out."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import bson
from bson import DBRef
from pymongo import DeleteMany, InsertOne, ReplaceOne, ReturnDocument, UpdateMany, UpdateOne

from tests.leaks.registry import Sees
from tests.leaks_mongo.registry import key, keys, path

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World


async def piped(source: Any, pipeline: list[Any], **options: Any) -> list[dict[str, Any]]:
    """What a collection or database gives for a pipeline (Motor's aggregate() is synchronous)."""
    cursor = source.aggregate(pipeline, **options)
    found: list[dict[str, Any]] = await (
        (await cursor) if inspect.isawaitable(cursor) else cursor
    ).to_list(None)
    return found


@path("collection.find()")
async def _(w: World) -> Any:
    return keys(await w.handle(w.Event).find().to_list(None))


@path("collection.find() by a filter, with everything else")
async def _(w: World) -> Any:
    cursor = w.handle(w.Event).find({"kind": {"$ne": "d"}}, {"name": 1}).sort("score", -1)
    return [each["name"] for each in await cursor.skip(1).limit(3).to_list(None)]


@path("collection.find() by keyword")
async def _(w: World) -> Any:
    cursor = w.handle(w.Event).find(filter={"kind": "b"}, projection=["name"], sort=[("_id", 1)])
    return [each["name"] async for each in cursor]


@path("collection.find_one()")
async def _(w: World) -> Any:
    return key(await w.handle(w.Event).find_one({"name": "dan"}))


@path("collection.find_one() by a bare key")
async def _(w: World) -> Any:
    return key(await w.handle(w.Event).find_one(4))


@path("collection.find_one() with sort")
async def _(w: World) -> Any:
    return key(await w.handle(w.Event).find_one(sort=[("score", -1)]))


@path("collection.find_one_and_update()")
async def _(w: World) -> Any:
    found = await w.handle(w.Event).find_one_and_update({"kind": "c"}, {"$set": {"score": 0}})
    return key(found), w.after(w.Event)


@path("collection.find_one_and_update() of the first by sort")
async def _(w: World) -> Any:
    found = await w.handle(w.Event).find_one_and_update(
        {}, {"$inc": {"score": 7}}, sort=[("score", 1)], return_document=ReturnDocument.AFTER
    )
    return key(found), found["score"], w.after(w.Event)


@path("collection.find_one_and_update() with a pipeline")
async def _(w: World) -> Any:
    found = await w.handle(w.Event).find_one_and_update(
        {"_id": {"$in": [4, 6]}}, [{"$set": {"score": {"$add": ["$score", 1]}}}]
    )
    return key(found), w.after(w.Event)


@path("collection.find_one_and_update() as an upsert")
async def _(w: World) -> Any:
    found = await w.handle(w.Event).find_one_and_update(
        {"_id": 5}, {"$set": {"name": "new"}}, upsert=True, return_document=ReturnDocument.AFTER
    )
    return sorted(found.keys() & {"kind", "name", "score"}), w.after(w.Event)


@path("collection.find_one_and_replace()")
async def _(w: World) -> Any:
    found = await w.handle(w.Event).find_one_and_replace({"name": "eve"}, {"name": "new"})
    return key(found), w.after(w.Event)


@path("collection.find_one_and_delete()")
async def _(w: World) -> Any:
    found = await w.handle(w.Event).find_one_and_delete({"kind": "c"})
    return key(found), w.after(w.Event)


@path("collection.count_documents()")
async def _(w: World) -> Any:
    collection = w.handle(w.Event)
    return await collection.count_documents({}), await collection.count_documents({"kind": "c"})


@path("collection.estimated_document_count()")
async def _(w: World) -> Any:
    return await w.handle(w.Event).estimated_document_count()


@path("collection.distinct()")
async def _(w: World) -> Any:
    collection = w.handle(w.Event)
    return sorted(await collection.distinct("kind")), await collection.distinct("name", {"_id": 5})


@path("collection.aggregate()")
async def _(w: World) -> Any:
    return keys(await piped(w.handle(w.Event), [{"$match": {"kind": "b"}}]))


@path("collection.aggregate() of a plain collection with a $lookup")
async def _(w: World) -> Any:
    stage = {"from": "Event", "localField": "event", "foreignField": "_id", "as": "found"}
    empty = {"$match": {"found": []}}
    return keys(await piped(w.handle(w.Journal), [{"$lookup": stage}, empty]))


@path("collection.update_one()")
async def _(w: World) -> Any:
    result = await w.handle(w.Event).update_one({"_id": 4}, {"$set": {"score": 0}})
    return result.matched_count, w.after(w.Event)


@path("collection.update_many()")
async def _(w: World) -> Any:
    result = await w.handle(w.Event).update_many({}, {"$inc": {"score": 1}})
    return result.matched_count, w.after(w.Event)


@path("collection.update_many() with a pipeline")
async def _(w: World) -> Any:
    result = await w.handle(w.Event).update_many({}, [{"$set": {"words": "$name"}}])
    return result.matched_count, w.after(w.Event)


@path("collection.update_one() as an upsert")
async def _(w: World) -> Any:
    result = await w.handle(w.Event).update_one(
        {"_id": 4}, {"$set": {"name": "new"}, "$setOnInsert": {"kind": "n"}}, upsert=True
    )
    return result.matched_count, result.upserted_id, w.after(w.Event)


@path("collection.update_many() as an upsert")
async def _(w: World) -> Any:
    result = await w.handle(w.Event).update_many(
        {"_id": 5, "kind": "c"}, {"$inc": {"score": 1}, "$set": {"name": "new"}}, upsert=True
    )
    return result.matched_count, result.upserted_id, w.after(w.Event)


@path("collection.replace_one()")
async def _(w: World) -> Any:
    result = await w.handle(w.Event).replace_one({"_id": 4}, {"name": "new"})
    return result.matched_count, w.after(w.Event)


@path("collection.replace_one() as an upsert")
async def _(w: World) -> Any:
    result = await w.handle(w.Event).replace_one({"_id": 4}, {"name": "new"}, upsert=True)
    return result.matched_count, result.upserted_id, w.after(w.Event)


@path("collection.delete_one()")
async def _(w: World) -> Any:
    return (await w.handle(w.Event).delete_one({"_id": 4})).deleted_count, w.after(w.Event)


@path("collection.delete_many()")
async def _(w: World) -> Any:
    return (await w.handle(w.Event).delete_many({})).deleted_count, w.after(w.Event)


@path("collection.insert_one() with the key of an expired document")
async def _(w: World) -> Any:
    result = await w.handle(w.Event).insert_one({"_id": 4, "name": "new"})
    return result.inserted_id, w.after(w.Event)


@path("collection.insert_one() with a unique value of an expired document")
async def _(w: World) -> Any:
    result = await w.handle(w.Event).insert_one({"_id": 40, "name": "dan"})
    return result.inserted_id, w.after(w.Event)


@path("collection.insert_many() with keys of expired documents")
async def _(w: World) -> Any:
    new = [{"_id": 20, "name": "n"}, {"_id": 4, "name": "eve"}, {"_id": 21, "name": "dan"}]
    result = await w.handle(w.Event).insert_many(new)
    return result.inserted_ids, w.after(w.Event)


@path("collection.bulk_write()")
async def _(w: World) -> Any:
    result = await w.handle(w.Event).bulk_write(
        [
            UpdateOne({"_id": 4}, {"$set": {"score": 0}}),
            UpdateMany({"kind": "a"}, {"$inc": {"score": 1}}),
            ReplaceOne({"_id": 5}, {"name": "new"}),
            DeleteMany({"kind": {"$in": ["b", "c"]}}),
        ]
    )
    return result.matched_count, result.deleted_count, w.after(w.Event)


@path("collection.bulk_write() with keys of expired documents")
async def _(w: World) -> Any:
    result = await w.handle(w.Event).bulk_write(
        [
            InsertOne({"_id": 20, "name": "dan"}),
            InsertOne({"_id": 4, "name": "eve"}),
            UpdateOne({"_id": 7}, {"$set": {"name": "seven"}}, upsert=True),
            ReplaceOne({"_id": 8}, {"name": "eight"}, upsert=True),
        ]
    )
    return result.inserted_count, result.upserted_count, w.after(w.Event)


@path("collection.with_options()")
async def _(w: World) -> Any:
    options = bson.CodecOptions(tz_aware=True)
    return keys(await w.handle(w.Event).with_options(options).find().to_list(None))


@path("collection.database")
async def _(w: World) -> Any:
    return keys(await w.handle(w.Event).database["Event"].find().to_list(None))


@path("database[name]")
async def _(w: World) -> Any:
    return keys(await w.database["Event"].find({"kind": "b"}).to_list(None))


@path("database.name")
async def _(w: World) -> Any:
    return keys(await w.database.Event.find({"kind": "b"}).to_list(None))


@path("database.get_collection()")
async def _(w: World) -> Any:
    return await w.database.get_collection("Event").count_documents({})


@path("database.with_options()")
async def _(w: World) -> Any:
    return await w.database.with_options()["Event"].count_documents({})


@path("database.aggregate() with a $lookup")
async def _(w: World) -> Any:
    stage = {"from": "Event", "localField": "n", "foreignField": "_id", "as": "found"}
    numbers = {"$documents": [{"n": number} for number in range(1, 8)]}
    found = await piped(w.database, [numbers, {"$lookup": stage}])
    return [keys(each["found"]) for each in found]


@path("cursor.distinct()")
async def _(w: World) -> Any:
    return sorted(await w.handle(w.Event).find({"score": {"$gt": 5}}).distinct("kind"))


@path("cursor.clone()")
async def _(w: World) -> Any:
    return keys(await w.handle(w.Event).find({"kind": "b"}).clone().to_list(None))


@path("cursor.rewind()")
async def _(w: World) -> Any:
    cursor = w.handle(w.Event).find({"kind": {"$in": ["b", "c"]}})
    before = keys(await cursor.to_list(None))
    rewound = cursor.rewind()
    again = (await rewound) if inspect.isawaitable(rewound) else rewound
    return before, keys(await again.to_list(None))


@path("cursor.next()")
async def _(w: World) -> Any:
    cursor = w.handle(w.Event).find({}, sort=[("score", 1)], batch_size=2)
    return [key(await cursor.next()) for _ in range(4)]


@path("cursor.to_list() in parts")
async def _(w: World) -> Any:
    cursor = w.handle(w.Event).find(sort=[("_id", 1)], batch_size=2)
    return [keys(await cursor.to_list(length)) for length in (3, 3, 3)]


@path("cursor.where() and cursor.hint()")
async def _(w: World) -> Any:
    cursor = w.handle(w.Event).find().where("this.score > 45").hint("_id_")
    return keys(await cursor.to_list(None))


@path("collection.find() between two keys of an index")
async def _(w: World) -> Any:
    cursor = w.handle(w.Event).find().hint([("_id", 1)])
    return keys(await cursor.min([("_id", 3)]).max([("_id", 8)]).to_list(None))


@path("collection.find() gives the fields that were asked for, and no others")
async def _(w: World) -> Any:
    found = await w.handle(w.Event).find({"score": {"$gt": 45}}, {"name": 1}).to_list(None)
    return sorted(sorted(each.items()) for each in found)


@path("collection.find_one_and_update() gives the fields that were asked for, and no others")
async def _(w: World) -> Any:
    found = await w.handle(w.Event).find_one_and_update(
        {"_id": {"$in": [4, 6]}}, {"$inc": {"score": 1}}, projection={"name": 1}
    )
    return sorted(found.items())


@path("a cached class asks for the fields that were asked for, and no others")
async def _(w: World) -> Any:
    found = await w.handle(w.Cached).find({}, {"_id": 0, "name": 1}).to_list(None)
    return sorted(sorted(each.items()) for each in found)


@path("collection.aggregate() gives the fields that were asked for, and no others")
async def _(w: World) -> Any:
    pipeline = [{"$match": {"score": {"$gt": 45}}}, {"$project": {"_id": 0, "name": 1}}]
    return sorted(sorted(each.items()) for each in await piped(w.handle(w.Event), pipeline))


@path("$collStats counts what is stored", answer=Sees.EVERYTHING)
async def _(w: World) -> Any:
    (found,) = await piped(w.handle(w.Event), [{"$collStats": {"count": {}}}])
    return found["count"]


@path("database.dereference()")
async def _(w: World) -> Any:
    return key(await w.database.dereference(DBRef("Event", 4)))


@path("the collection in a class's settings")
async def _(w: World) -> Any:
    settings = w.Event.get_settings()
    collection = getattr(settings, "pymongo_collection", None)
    if collection is None:
        collection = settings.motor_collection
    return await collection.count_documents({})


@path("a collection that was made anew from the gate's database")
async def _(w: World) -> Any:
    handle = w.handle(w.Event)
    return keys(await handle.database.get_collection(handle.name).find().to_list(None))


@path("collection.find_raw_batches(), whose bytes the driver hands on")
async def _(w: World) -> Any:
    batches = [each async for each in w.handle(w.Event).find_raw_batches({})]
    return keys(each for batch in batches for each in bson.decode_all(batch))


@path("collection.aggregate_raw_batches()")
async def _(w: World) -> Any:
    cursor = w.handle(w.Event).aggregate_raw_batches([{"$match": {"kind": "b"}}])
    cursor = (await cursor) if inspect.isawaitable(cursor) else cursor
    return keys(each for batch in [b async for b in cursor] for each in bson.decode_all(batch))


@path("database.command(), which no gate reads", answer=Sees.EVERYTHING)
async def _(w: World) -> Any:
    answer = await w.database.command({"find": "Event", "filter": {"kind": "b"}})
    return keys(answer["cursor"]["firstBatch"])


@path("database.cursor_command(), which no gate reads", answer=Sees.EVERYTHING)
async def _(w: World) -> Any:
    cursor = await w.database.cursor_command({"find": "Event", "filter": {"kind": "b"}})
    return keys([each async for each in cursor])


@path("the client's own database, which is not gated", answer=Sees.EVERYTHING)
async def _(w: World) -> Any:
    return keys(await w.client[w.other.name]["Event"].find().to_list(None))
