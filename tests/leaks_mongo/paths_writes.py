"""What an update or a delete reaches: the matched documents, and what is stored afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie import UpdateResponse
from beanie.operators import In, Inc, Max, Min, Mul, Pull, Push, Rename, Set, Unset

from tests.leaks_mongo.registry import failure, key, keys, path, refused

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World


async def matched(w: World, update: Any) -> Any:
    """How many events an update has matched, and what is stored then."""
    result = await update
    return result.matched_count, w.after(w.Event)


@path("find().update()")
async def _(w: World) -> Any:
    return await matched(w, w.Event.find(w.Event.kind == "b").update(Set({w.Event.score: 0})))


@path("find().update() of all")
async def _(w: World) -> Any:
    return await matched(w, w.Event.find().update({"$set": {"score": 0}}))


STAMP = {"$currentDate": {"_ts": True}}
"""What a touch does, where no class has one."""


@path("find().touch(): how many", own=True)
async def _(w: World) -> Any:
    query = w.Event.find(w.Event.kind == "b")
    if hasattr(query, "touch"):
        return await query.touch(), w.after(w.Event)
    return (await query.update(STAMP)).matched_count, w.after(w.Event)


@path("find_one().touch(): what it returns", own=True)
async def _(w: World) -> Any:
    queries = [w.Event.find_one(w.Event.id == number) for number in range(14)]
    found = [
        await (
            query.touch()
            if hasattr(query, "touch")
            else query.update(STAMP, response_type=UpdateResponse.NEW_DOCUMENT)
        )
        for query in queries
    ]
    return [event.id for event in found if event is not None], w.after(w.Event)


@path("find_one().touch() with a condition: what it returns", own=True)
async def _(w: World) -> Any:
    queries = [w.Event.find_one(w.Event.id == number) for number in range(14)]
    found = [
        await (query.touch(at_most_every=10**8) if hasattr(query, "touch") else query)
        for query in queries
    ]
    return [event.id for event in found if event is not None], w.after(w.Event)


@path("find().update_many()")
async def _(w: World) -> Any:
    return await matched(w, w.Event.find({"tags": "x"}).update_many({"$set": {"score": 0}}))


@path("find().set()")
async def _(w: World) -> Any:
    return await matched(w, w.Event.find(In(w.Event.id, [1, 4])).set({w.Event.score: 0}))


@path("find().inc()")
async def _(w: World) -> Any:
    return await matched(w, w.Event.find(w.Event.score < 15).inc({w.Event.score: 1}))


@path("find().current_date()")
async def _(w: World) -> Any:
    result = await w.Node.find({"parent": 1}).current_date({"seen": True})
    return result.matched_count, keys(each for each in w.after(w.Node) if "seen" in each)


@path("find().update() with several operators")
async def _(w: World) -> Any:
    operators = [Inc({w.Event.score: 1}), Push({"tags": "p"}), Unset({"words": ""})]
    return await matched(w, w.Event.find({"kind": {"$in": ["b", "c"]}}).update(*operators))


@path("find().update() with Mul, Min, Max, Pull, Rename")
async def _(w: World) -> Any:
    operators = [Mul({"score": 2}), Pull({"tags": "x"}), Rename({"words": "text"})]
    await w.Event.find(w.Event.kind == "b").update(*operators)
    return await matched(w, w.Event.find().update(Min({"low": 1}), Max({"high": 2})))


@path("find().update() with a pipeline")
async def _(w: World) -> Any:
    pipeline = [{"$set": {"score": {"$add": ["$score", 1]}, "words": "$name"}}]
    return await matched(w, w.Event.find({"kind": "b"}).update(pipeline))


@path("find().update() with array filters")
async def _(w: World) -> Any:
    update = {"$set": {"tags.$[one]": "X"}}
    return await matched(w, w.Event.find().update(update, array_filters=[{"one": "x"}]))


@path("update_all()")
async def _(w: World) -> Any:
    return await matched(w, w.Event.update_all({"$set": {"kind": "z"}}))


@path("find_one().update()")
async def _(w: World) -> Any:
    return await matched(w, w.Event.find_one(w.Event.name == "dan").update({"$set": {"score": 0}}))


@path("find_one().update_one() where the first that fits has expired")
async def _(w: World) -> Any:
    return await matched(
        w, w.Event.find_one({"_id": {"$in": [4, 6]}}).update_one({"$inc": {"score": 3}})
    )


@path("find_one().set()")
async def _(w: World) -> Any:
    return await matched(w, w.Event.find_one({"_id": 5}).set({"score": 0}))


@path("find_one().inc()")
async def _(w: World) -> Any:
    return await matched(w, w.Event.find_one({"_id": 5}).inc({"score": 1}))


@path("find_one().update() that returns the old document")
async def _(w: World) -> Any:
    update = w.Event.find_one({"kind": "c"}).update(
        {"$set": {"score": 0}}, response_type=UpdateResponse.OLD_DOCUMENT
    )
    return key(await update), w.after(w.Event)


@path("find_one().update() that returns the new document")
async def _(w: World) -> Any:
    update = w.Event.find_one({"tags": "w"}).update(
        {"$set": {"score": 0}}, response_type=UpdateResponse.NEW_DOCUMENT
    )
    return key(await update), w.after(w.Event)


@path("find_one().replace_one()")
async def _(w: World) -> Any:
    new = w.Event(id=4, name="new")
    return await refused(w.Event.find_one({"_id": 4}).replace_one(new)), w.after(w.Event)


@path("find().delete()")
async def _(w: World) -> Any:
    result = await w.Event.find({"kind": {"$in": ["b", "c"]}}).delete()
    return result.deleted_count, w.after(w.Event)


@path("find().delete_many()")
async def _(w: World) -> Any:
    return (await w.Event.find({"tags": "x"}).delete_many()).deleted_count, w.after(w.Event)


@path("delete_all()")
async def _(w: World) -> Any:
    return (await w.Event.delete_all()).deleted_count, w.after(w.Event)


@path("find_one().delete()")
async def _(w: World) -> Any:
    return (await w.Event.find_one({"_id": 4}).delete()).deleted_count, w.after(w.Event)


@path("find_one().delete_one() where the first that fits has expired")
async def _(w: World) -> Any:
    result = await w.Event.find_one({"words": {"$regex": "red red"}}).delete_one()
    return result.deleted_count, w.after(w.Event)


@path("find_all().delete() with a projection of nothing")
async def _(w: World) -> Any:
    return (await w.Node.find_all().delete()).deleted_count, w.after(w.Node)


@path("bulk writer: update, replace, delete")
async def _(w: World) -> Any:
    one = await w.Event.get(1)
    async with w.Event.bulk_writer() as writer:
        await w.Event.find({"kind": "b"}).update({"$set": {"score": 0}}, bulk_writer=writer)
        await w.Event.find_one({"_id": 5}).update({"$set": {"score": 0}}, bulk_writer=writer)
        await w.Event.find_one({"_id": 4}).replace_one(
            w.Event(id=4, name="new"), bulk_writer=writer
        )
        await one.replace(bulk_writer=writer)
        await w.Event.find({"tags": "y"}).delete(bulk_writer=writer)
        await w.Event.find_one({"_id": 7}).delete(bulk_writer=writer)
    return w.after(w.Event)


@path("bulk writer: set() and delete() of a document")
async def _(w: World) -> Any:
    one, two = await w.Event.get(1), await w.Event.get(2)
    async with w.Event.bulk_writer(ordered=False) as writer:
        await one.set({"score": 1}, bulk_writer=writer)
        await two.delete(bulk_writer=writer)
        await w.Event.update_all({"$inc": {"score": 1}}, bulk_writer=writer)
    return w.after(w.Event)


@path("bulk writer: delete_all()")
async def _(w: World) -> Any:
    writer = w.Event.bulk_writer()
    await w.Event.delete_all(bulk_writer=writer)
    return (await writer.commit()).deleted_count, w.after(w.Event)


@path("replace_many() with an expired document among them")
async def _(w: World) -> Any:
    both = [w.Event(id=1, name="n1"), w.Event(id=4, name="n4")]
    return await failure(w.Event.replace_many(both)), w.after(w.Event)
