"""Keys and unique values: free where their holder has expired, taken where it lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie import UpdateResponse
from beanie.operators import Set

from tests.leaks_mongo.registry import failure, key, path

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World

NEW = {"$set": {"score": 33}}


@path("insert() with an expired document's key")
async def _(w: World) -> Any:
    made = await w.Event(id=4, name="new").insert()
    return made.id, w.after(w.Event), key(await w.Event.get(4))


@path("insert() with an expired document's unique value")
async def _(w: World) -> Any:
    return key(await w.Event(id=40, name="eve").insert()), w.after(w.Event)


@path("insert() with the key of one expired document and the unique value of another")
async def _(w: World) -> Any:
    return key(await w.Event(id=4, name="eve").insert()), w.after(w.Event)


@path("insert() with a live document's key", own=True)
async def _(w: World) -> Any:
    return await failure(w.Event(id=1, name="eve").insert()), w.after(w.Event)


@path("insert() with an expired document's key and a live one's unique value", own=True)
async def _(w: World) -> Any:
    return await failure(w.Event(id=4, name="ann").insert())


@path("create() with an expired document's key")
async def _(w: World) -> Any:
    return key(await w.Event(id=5, name="eve").create()), w.after(w.Event)


@path("insert_one() with an expired document's key")
async def _(w: World) -> Any:
    return key(await w.Event.insert_one(w.Event(id=5, name="eve"))), w.after(w.Event)


@path("insert_many() with expired documents' keys")
async def _(w: World) -> Any:
    new = [w.Event(id=20, name="dan"), w.Event(id=5, name="x"), w.Event(id=7, name="gus")]
    return (await w.Event.insert_many(new)).inserted_ids, w.after(w.Event)


@path("insert_many(ordered=False) with expired documents' keys")
async def _(w: World) -> Any:
    new = [w.Event(id=20, name="dan"), w.Event(id=5, name="x"), w.Event(id=7, name="gus")]
    return (await w.Event.insert_many(new, ordered=False)).inserted_ids, w.after(w.Event)


@path("insert_many() with a live document's key in the middle")
async def _(w: World) -> Any:
    new = [w.Event(id=5, name="x"), w.Event(id=1, name="y"), w.Event(id=7, name="z")]
    return await failure(w.Event.insert_many(new)), w.after(w.Event)


@path("insert_many(ordered=False) with a live document's key in the middle")
async def _(w: World) -> Any:
    new = [w.Event(id=5, name="x"), w.Event(id=1, name="y"), w.Event(id=7, name="z")]
    return await failure(w.Event.insert_many(new, ordered=False)), w.after(w.Event)


@path("insert_many() with the same key twice")
async def _(w: World) -> Any:
    new = [w.Event(id=5, name="x"), w.Event(id=5, name="y")]
    return await failure(w.Event.insert_many(new)), w.after(w.Event)


@path("save() of a new document with an expired one's key")
async def _(w: World) -> Any:
    return key(await w.Event(id=4, name="new").save()), w.after(w.Event)


@path("save() of a new document with an expired one's unique value")
async def _(w: World) -> Any:
    return key(await w.Event(id=40, name="dan").save()), w.after(w.Event)


@path("save() of a new document with a live one's unique value", own=True)
async def _(w: World) -> Any:
    from beanie.exceptions import RevisionIdWasChanged
    from pymongo.errors import DuplicateKeyError

    try:
        await w.Event(id=4, name="ann").save()
    except (DuplicateKeyError, RevisionIdWasChanged):  # Beanie 1.30 takes all for the latter
        return "refused", [each for each in w.after(w.Event) if each["name"] == "ann"]
    return "saved"


@path("save() that gives a live document an expired one's unique value")
async def _(w: World) -> Any:
    one = await w.Event.get(1)
    one.name = "dan"
    await one.save()
    return w.after(w.Event)


@path("set() that gives a live document an expired one's unique value")
async def _(w: World) -> Any:
    await (await w.Event.get(1)).set({"name": "eve"})
    return w.after(w.Event)


@path("replace() that gives a live document an expired one's unique value")
async def _(w: World) -> Any:
    one = await w.Event.get(1)
    one.name = "dan"
    await one.replace()
    return w.after(w.Event)


@path("save_changes() of a document whose key was freed")
async def _(w: World) -> Any:
    made = await w.Tracked(id=2, name="new", size=1).insert()
    made.size = 2
    await made.save_changes()
    return w.after(w.Tracked)


@path("find().update() that takes an expired document's unique value")
async def _(w: World) -> Any:
    result = await w.Event.find({"_id": 1}).update({"$set": {"name": "dan"}})
    return result.matched_count, w.after(w.Event)


@path("find().update() with a pipeline that takes an expired document's unique value")
async def _(w: World) -> Any:
    renamed = [{"$set": {"name": {"$concat": ["d", "an"]}}}]
    result = await w.Event.find({"name": "ann"}).update(renamed)
    return result.matched_count, w.after(w.Event)


@path("find_one().update() with a pipeline that takes an expired document's unique value")
async def _(w: World) -> Any:
    renamed = [{"$set": {"name": {"$concat": ["d", "an"]}}}]
    result = await w.Event.find_one({"_id": 1}).update(renamed)
    return result.matched_count, w.after(w.Event)


@path("find_one().update() that takes an expired document's unique value")
async def _(w: World) -> Any:
    update = w.Event.find_one({"_id": 1}).update(
        {"$set": {"name": "dan"}}, response_type=UpdateResponse.NEW_DOCUMENT
    )
    return (await update).name, w.after(w.Event)


@path("find_one().replace_one() that takes an expired document's unique value")
async def _(w: World) -> Any:
    await w.Event.find_one({"_id": 1}).replace_one(w.Event(id=1, name="eve"))
    return w.after(w.Event)


@path("find_one().update() that takes a live document's unique value", own=True)
async def _(w: World) -> Any:
    update = w.Event.find_one({"_id": 1}).update({"$set": {"name": "bob"}})
    return await failure(update), w.after(w.Event)


@path("find_one().upsert() that meets an expired document")
async def _(w: World) -> Any:
    new = w.Event(id=4, name="new")
    return key(await w.Event.find_one({"_id": 4}).upsert(NEW, on_insert=new)), w.after(w.Event)


@path("find_one().upsert() that meets an expired document by another field")
async def _(w: World) -> Any:
    new = w.Event(id=40, name="dan")
    upsert = w.Event.find_one(w.Event.name == "dan").upsert(Set({"score": 1}), on_insert=new)
    return key(await upsert), w.after(w.Event)


@path("find_one().upsert() that meets a live document", own=True)
async def _(w: World) -> Any:
    new = w.Event(id=40, name="new")
    result = await w.Event.find_one({"_id": 1}).upsert(NEW, on_insert=new)
    return result.matched_count, w.after(w.Event)


@path("find_one().upsert() that returns the new document")
async def _(w: World) -> Any:
    upsert = w.Event.find_one({"_id": 4}).upsert(
        NEW, on_insert=w.Event(id=4, name="new"), response_type=UpdateResponse.NEW_DOCUMENT
    )
    return (await upsert).name, w.after(w.Event)


@path("find().upsert() that meets expired documents")
async def _(w: World) -> Any:
    new = w.Event(id=5, name="eve", kind="c")
    return key(await w.Event.find({"kind": "c"}).upsert(NEW, on_insert=new)), w.after(w.Event)


@path("find().upsert() that meets live and expired documents")
async def _(w: World) -> Any:
    new = w.Event(id=40, name="new")
    result = await w.Event.find({"kind": "b"}).upsert(NEW, on_insert=new)
    return result.matched_count, w.after(w.Event)


@path("find_one().update(upsert=True) that meets an expired document")
async def _(w: World) -> Any:
    result = await w.Event.find_one({"_id": 4}).update(
        {"$set": {"name": "new"}, "$inc": {"score": 1}}, upsert=True
    )
    return result.upserted_id, w.after(w.Event)


@path("find().update(upsert=True) that meets an expired document")
async def _(w: World) -> Any:
    update = {"$set": {"name": "new"}, "$setOnInsert": {"_id": 50}}
    result = await w.Event.find({"kind": "c"}).update(update, upsert=True)
    return result.upserted_id, w.after(w.Event)


@path("update(upsert=True) with a pipeline that meets an expired document")
async def _(w: World) -> Any:
    pipeline = [{"$set": {"name": "new", "score": {"$ifNull": ["$score", 0]}}}]
    result = await w.Event.find_one({"_id": 4}).update(pipeline, upsert=True)
    return result.upserted_id, w.after(w.Event)


@path("bulk writer: inserts with expired documents' keys")
async def _(w: World) -> Any:
    async with w.Event.bulk_writer() as writer:
        await w.Event.insert_one(w.Event(id=4, name="new"), bulk_writer=writer)
        await w.Event.insert_one(w.Event(id=41, name="eve"), bulk_writer=writer)
    return w.after(w.Event)


@path("bulk writer, unordered: inserts with expired documents' keys")
async def _(w: World) -> Any:
    async with w.Event.bulk_writer(ordered=False) as writer:
        await w.Event.insert_one(w.Event(id=4, name="new"), bulk_writer=writer)
        await w.Event.insert_one(w.Event(id=41, name="eve"), bulk_writer=writer)
        await w.Event.find_one({"_id": 7}).update(NEW, upsert=True, bulk_writer=writer)
    return w.after(w.Event)


@path("bulk writer: an update that takes an expired document's unique value")
async def _(w: World) -> Any:
    async with w.Event.bulk_writer() as writer:
        await w.Event.find_one({"_id": 1}).update({"$set": {"name": "dan"}}, bulk_writer=writer)
    return w.after(w.Event)


@path("bulk writer: an insert with a live document's key")
async def _(w: World) -> Any:
    writer = w.Event.bulk_writer()
    await w.Event.insert_one(w.Event(id=4, name="new"), bulk_writer=writer)
    await w.Event.insert_one(w.Event(id=1, name="new 1"), bulk_writer=writer)
    await w.Event.insert_one(w.Event(id=5, name="new 5"), bulk_writer=writer)
    return await failure(writer.commit()), w.after(w.Event)


async def reported(doing: Any) -> Any:
    """What a BulkWriteError says: how many were inserted, and what failed for what reason."""
    from pymongo.errors import BulkWriteError

    try:
        await doing
    except BulkWriteError as error:
        details = error.details
        failed = [(each["index"], each["code"]) for each in details["writeErrors"]]
        return details["nInserted"], details["nUpserted"], details["nMatched"], failed
    return "no error"


@path("insert_many(): what the error says of a live document in the middle")
async def _(w: World) -> Any:
    new = [w.Event(id=number, name=f"n{number}") for number in (5, 20, 4, 1, 7, 21)]
    return await reported(w.Event.insert_many(new))


@path("insert_many(ordered=False): what the error says of live documents in the middle")
async def _(w: World) -> Any:
    new = [w.Event(id=number, name=f"n{number}") for number in (5, 1, 20, 4, 2, 7, 5, 21)]
    return await reported(w.Event.insert_many(new, ordered=False)), w.after(w.Event)


def mixed(w: World, writer: Any) -> list[Any]:
    """Inserts and upserts, some of them for keys of live and of expired documents."""
    return [
        w.Event.insert_one(w.Event(id=5, name="n5"), bulk_writer=writer),
        w.Event.find_one({"_id": 2}).update({"$inc": {"score": 1}}, bulk_writer=writer),
        w.Event.find_one({"_id": 4}).update(
            {"$set": {"name": "n4"}}, upsert=True, bulk_writer=writer
        ),
        w.Event.insert_one(w.Event(id=1, name="n1"), bulk_writer=writer),
        w.Event.insert_one(w.Event(id=20, name="gus"), bulk_writer=writer),
        w.Event.find_one({"_id": 2}).update({"$inc": {"score": 1}}, bulk_writer=writer),
    ]


@path("bulk writer: what the error says of a live document in the middle")
async def _(w: World) -> Any:
    writer = w.Event.bulk_writer()
    for each in mixed(w, writer):
        await each
    return await reported(writer.commit()), w.after(w.Event)


@path("bulk writer, unordered: what the error says of a live document in the middle")
async def _(w: World) -> Any:
    writer = w.Event.bulk_writer(ordered=False)
    for each in mixed(w, writer):
        await each
    return await reported(writer.commit()), w.after(w.Event)


@path("bulk writer: what the result counts and which keys were upserted")
async def _(w: World) -> Any:
    writer = w.Event.bulk_writer()
    for number, each in enumerate(mixed(w, writer)):
        if number != 3:
            await each
        else:
            each.close()
    result = await writer.commit()
    return result.inserted_count, result.matched_count, result.upserted_ids, w.after(w.Event)
