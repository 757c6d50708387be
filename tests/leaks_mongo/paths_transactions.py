"""Sessions and transactions: the same answers, and no aborted transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.leaks_mongo.registry import failure, key, keys, path, refused

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World


@path("transaction: find(), get() and count()")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        return (
            keys(await w.Event.find(session=session).to_list()),
            key(await w.Event.get(4, session=session)),
            await w.Event.find(session=session).count(),
        )


@path("transaction: aggregate()")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        return await w.Event.find().sum(w.Event.score, session=session)


@path("transaction: distinct()")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        return sorted(await w.Event.distinct("kind", session=session))


@path("transaction: find(fetch_links=True)")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        houses = await w.House.find(fetch_links=True, session=session).to_list()
        return sorted((each.id, keys(each.windows)) for each in houses)


@path("transaction: update() and delete()")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        updated = await w.Event.find({"kind": "b"}).update({"$set": {"score": 0}}, session=session)
        deleted = await w.Event.find({"kind": "c"}).delete(session=session)
    return updated.matched_count, deleted.deleted_count, w.after(w.Event)


@path("transaction: insert() with an expired document's key")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        await w.Event(id=4, name="new").insert(session=session)
        await w.Event(id=21, name="other").insert(session=session)
    return w.after(w.Event)


@path("transaction: insert() with an expired document's unique value")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        await w.Event(id=20, name="dan").insert(session=session)
    return w.after(w.Event)


@path("transaction: insert_many() with expired documents' keys")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        new = [w.Event(id=20, name="dan"), w.Event(id=5, name="x")]
        await w.Event.insert_many(new, session=session)
    return w.after(w.Event)


@path("transaction: save() of a new document with an expired one's key")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        await w.Event(id=4, name="new").save(session=session)
    return w.after(w.Event)


@path("transaction: save() that takes an expired document's unique value")
async def _(w: World) -> Any:
    one = await w.Event.get(1)
    one.name = "dan"
    async with w.transaction() as session:
        await one.save(session=session)
    return w.after(w.Event)


@path("transaction: find_one().upsert() that meets an expired document")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        await w.Event.find_one({"_id": 4}, session=session).upsert(
            {"$set": {"score": 1}}, on_insert=w.Event(id=4, name="new"), session=session
        )
    return w.after(w.Event)


@path("transaction: bulk writer with expired documents' keys")
async def _(w: World) -> Any:
    async with w.transaction() as session, w.Event.bulk_writer(session=session) as writer:
        await w.Event.insert_one(w.Event(id=4, name="new"), bulk_writer=writer)
        await w.Event.find({"kind": "c"}).update({"$set": {"score": 0}}, bulk_writer=writer)
    return w.after(w.Event)


@path("transaction: replace() of a document that has expired")
async def _(w: World) -> Any:
    one = await w.Event.get(1)
    w.pass_time(one)
    async with w.transaction() as session:
        return await refused(one.replace(session=session))


@path("transaction: collection.find_one_and_update()")
async def _(w: World) -> Any:
    async with w.transaction() as session:
        found = await w.handle(w.Event).find_one_and_update(
            {"kind": "c"}, {"$set": {"score": 0}}, session=session
        )
    return key(found), w.after(w.Event)


@path(
    "transaction: an insert that fails for a live document takes the others back",
    answer=("DuplicateKeyError", []),
    own=True,
)
async def _(w: World) -> Any:
    async def both() -> None:
        async with w.transaction() as session:
            await w.Event(id=4, name="new").insert(session=session)
            await w.Event(id=1, name="other").insert(session=session)

    return await failure(both()), [each for each in w.after(w.Event) if each["_id"] == 4]


@path("session without a transaction: find() and update()")
async def _(w: World) -> Any:
    async with w.session() as session:
        result = await w.Event.find({"kind": "b"}).update({"$set": {"score": 0}}, session=session)
        found = await w.Event.find(session=session).to_list()
    return result.matched_count, keys(found), w.after(w.Event)


@path("session without a transaction: insert() with an expired document's key")
async def _(w: World) -> Any:
    async with w.session() as session:
        await w.Event(id=4, name="new").insert(session=session)
    return w.after(w.Event)
