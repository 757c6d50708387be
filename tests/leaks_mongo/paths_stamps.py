"""What a live document gets from a write: its values, and a new last modification.

`World.after` and `World.changed` of the world with ttl_odm check the latter of every document that
a path has written. These paths are about documents that live, so nothing can leak.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie import UpdateResponse, WriteRules
from pymongo import InsertOne, ReplaceOne, UpdateMany, UpdateOne

from tests.leaks_mongo.registry import failure, path

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World

TWO = {"_id": 2}
"""A live document, two hours old."""

SET = {"$set": {"score": 0}}
LIVE = [1, 2, 3, 6, 9, 10, 12]


def stamps(name: str, answer: Any) -> Any:
    """Register a path that returns the keys of the documents with a new last modification."""
    return path(f"stamped by {name}", answer=answer, own=True)


@path("inheritance: save() of a child", own=True)
async def _(w: World) -> Any:
    car = await w.Car.get(11)
    car.seats = 1
    await car.save()
    return w.after(w.Vehicle)


@path("a live document: save()", own=True)
async def _(w: World) -> Any:
    one = await w.Event.get(2)
    one.score = 0
    await one.save()
    return one.score, w.after(w.Event)


@path("a live document: replace()", own=True)
async def _(w: World) -> Any:
    one = await w.Event.get(3)
    one.score = 0
    await one.replace()
    return w.after(w.Event)


@path("a live document: set(), inc(), update(), current_date()", own=True)
async def _(w: World) -> Any:
    one = await w.Event.get(1)
    await one.set({w.Event.score: 5})
    await one.inc({w.Event.score: 2})
    await one.update({"$push": {"tags": "p"}})
    await one.update([{"$set": {"words": {"$concat": ["$name", "!"]}}}])
    return one.score, one.tags, one.words, w.after(w.Event)


@path("a live document: delete()", own=True)
async def _(w: World) -> Any:
    return (await (await w.Event.get(1)).delete()).deleted_count, w.after(w.Event)


@path("a live document: sync()", own=True)
async def _(w: World) -> Any:
    one = await w.Event.get(1)
    await w.Event.find_one({"_id": 1}).update({"$set": {"score": 77}})
    await one.sync()
    return one.score


@path("save_changes()", own=True)
async def _(w: World) -> Any:
    one = await w.Tracked.get(1)
    one.size = 9
    changes = one.get_changes()
    await one.save_changes()
    return changes, one.is_changed, w.after(w.Tracked)


@path("save_changes() without a change", own=True)
async def _(w: World) -> Any:
    one = await w.Tracked.get(1)
    return one.is_changed, await one.save_changes() is None, w.after(w.Tracked)


@path("rollback() of changes", own=True)
async def _(w: World) -> Any:
    one = await w.Tracked.get(1)
    one.size = 9
    one.rollback()
    return one.size, one.is_changed


@path("revisions: save() and replace()", own=True)
async def _(w: World) -> Any:
    one = await w.Revised.get(1)
    one.name = "x"
    await one.save(ignore_revision=True)
    one.name = "y"
    await one.replace()
    return w.after(w.Revised)


@path("revisions: a document that somebody else has changed", own=True)
async def _(w: World) -> Any:
    one, same = await w.Revised.get(1), await w.Revised.get(1)
    await one.save(ignore_revision=True)
    same.name = "y"
    return await failure(same.replace()), w.after(w.Revised)


@path("keep_nulls=False: save() takes fields away", own=True)
async def _(w: World) -> Any:
    one = await w.Sparse.get(1)
    one.note = None
    await one.save()
    return w.after(w.Sparse)


@path("replace_many()", own=True)
async def _(w: World) -> Any:
    await w.Event.replace_many([w.Event(id=1, name="n1"), w.Event(id=2, name="n2")])
    return w.after(w.Event)


@stamps("save()", [2])
async def _(w: World) -> Any:
    await (await w.Event.get(2)).save()
    return w.changed(w.Event)


@stamps("replace()", [2])
async def _(w: World) -> Any:
    await (await w.Event.get(2)).replace()
    return w.changed(w.Event)


@stamps("set() to what it was", [2])
async def _(w: World) -> Any:
    await (await w.Event.get(2)).set({"score": 20})
    return w.changed(w.Event)


@stamps("update() with a pipeline", [2])
async def _(w: World) -> Any:
    await (await w.Event.get(2)).update([{"$set": {"score": 20}}])
    return w.changed(w.Event)


@stamps("find().update()", [1, 2, 6])
async def _(w: World) -> Any:
    await w.Event.find({"kind": "a"}).update(SET)
    return w.changed(w.Event)


@stamps("find().update() with a pipeline", [1, 2, 6])
async def _(w: World) -> Any:
    await w.Event.find({"kind": "a"}).update([SET])
    return w.changed(w.Event)


@stamps("update_all()", LIVE)
async def _(w: World) -> Any:
    await w.Event.update_all(SET)
    return w.changed(w.Event)


@stamps("find_one().update()", [2])
async def _(w: World) -> Any:
    await w.Event.find_one(TWO).update(SET)
    return w.changed(w.Event)


@stamps("find_one().update() that returns the old document", [2])
async def _(w: World) -> Any:
    await w.Event.find_one(TWO).update(SET, response_type=UpdateResponse.OLD_DOCUMENT)
    return w.changed(w.Event)


@stamps("find_one().replace_one()", [2])
async def _(w: World) -> Any:
    await w.Event.find_one(TWO).replace_one(w.Event(id=2, name="bob"))
    return w.changed(w.Event)


@stamps("find_one().upsert() that matches", [2])
async def _(w: World) -> Any:
    await w.Event.find_one(TWO).upsert(SET, on_insert=w.Event(id=2, name="bob"))
    return w.changed(w.Event)


@stamps("find_one().update(upsert=True) that matches nothing", [50])
async def _(w: World) -> Any:
    await w.Event.find_one({"_id": 50}).update({"$set": {"name": "new"}}, upsert=True)
    return w.changed(w.Event)


@stamps("insert(), insert_many(), create() and save() of new documents", [50, 51, 52, 53, 54])
async def _(w: World) -> Any:
    await w.Event(id=50, name="n50").insert()
    await w.Event.insert_many([w.Event(id=51, name="n51"), w.Event(id=52, name="n52")])
    await w.Event(id=53, name="n53").create()
    await w.Event(id=54, name="n54").save()
    return w.changed(w.Event)


@stamps("a bulk writer", [1, 2, 3, 50])
async def _(w: World) -> Any:
    one = await w.Event.get(1)
    async with w.Event.bulk_writer() as writer:
        await one.replace(bulk_writer=writer)
        await w.Event.find_one(TWO).update(SET, bulk_writer=writer)
        await w.Event.find({"kind": "b"}).update(SET, bulk_writer=writer)
        await w.Event.insert_one(w.Event(id=50, name="n50"), bulk_writer=writer)
    return w.changed(w.Event)


@stamps("the driver's own methods", [1, 2, 3, 6, 9, 10, 50, 51])
async def _(w: World) -> Any:
    handle = w.handle(w.Event)
    await handle.update_one({"_id": 1}, SET)
    await handle.update_many({"_id": 2}, [SET])
    await handle.replace_one({"_id": 3}, {"name": "cid"})
    await handle.find_one_and_update({"_id": 6}, SET)
    await handle.find_one_and_replace({"_id": 9}, {"name": "ivy"})
    await handle.update_one({"_id": 10}, {"$unset": {"words": ""}})
    await handle.insert_one({"_id": 50, "name": "n50"})
    await handle.insert_many([{"_id": 51, "name": "n51"}])
    return w.changed(w.Event)


@stamps("the driver's bulk_write()", [1, 2, 3, 50, 51])
async def _(w: World) -> Any:
    await w.handle(w.Event).bulk_write(
        [
            UpdateOne({"_id": 1}, SET),
            UpdateMany({"_id": 2}, [SET]),
            ReplaceOne({"_id": 3}, {"name": "cid"}),
            InsertOne({"_id": 50, "name": "n50"}),
            UpdateOne({"_id": 51}, {"$set": {"name": "n51"}}, upsert=True),
        ]
    )
    return w.changed(w.Event)


@stamps("save() with WriteRules.WRITE, with all that is linked", ([1], [1], [1], [1]))
async def _(w: World) -> Any:
    house = await w.House.get(1, fetch_links=True)
    await house.fetch_link("door")
    await house.save(link_rule=WriteRules.WRITE)
    return tuple(w.changed(model) for model in (w.House, w.Door, w.Window, w.Lock))


@stamps("a write in a transaction", [1, 2, 6])
async def _(w: World) -> Any:
    async with w.transaction() as session:
        await w.Event.find({"kind": "a"}).update(SET, session=session)
    return w.changed(w.Event)


@stamps("nothing that changes nothing: save_changes()", [])
async def _(w: World) -> Any:
    await (await w.Tracked.get(1)).save_changes()
    return w.changed(w.Tracked)


@stamps("nothing that is rolled back", [])
async def _(w: World) -> Any:
    async def write() -> None:
        async with w.transaction() as session:
            await w.Event.update_all(SET, session=session)
            raise LookupError

    await failure(write())
    return w.changed(w.Event)


@stamps("no read", [])
async def _(w: World) -> Any:
    await w.Event.find().to_list()
    await w.House.find(fetch_links=True).to_list()
    await w.Event.aggregate([{"$sort": {"score": 1}}]).to_list()
    return w.changed(w.Event) + w.changed(w.House)
