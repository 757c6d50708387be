"""Documents in memory that have expired since: no write brings them back."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from beanie import DeleteRules, MergeStrategy, WriteRules
from beanie.exceptions import DocumentNotFound

from tests.leaks_mongo.registry import failure, key, path, refused

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World


async def expired(w: World, model: Any, number: int = 1) -> Any:
    """A document that was loaded, and has expired then."""
    document = await model.get(number)
    w.pass_time(document)
    return document


async def read_long_ago(w: World, model: Any, number: int = 1) -> Any:
    """A document that was loaded so long ago that it has expired by what memory has."""
    document = await model.get(number)
    w.pass_time(document)
    stored = await model.get(number, **w.everything)
    return document if stored is None else stored


def is_there(w: World, model: Any, number: int = 1) -> Any:
    """The document with this key, if one lives, without asking Beanie."""
    return [each for each in w.after(model) if each["_id"] == number]


@path("a document that has expired: set()")
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    return await refused(document.set({"score": 0})), is_there(w, w.Event)


@path("a document that has expired: inc()")
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    return await refused(document.inc({"score": 1})), is_there(w, w.Event)


@path("a document that has expired: update()")
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    return await refused(document.update({"$push": {"tags": "p"}})), is_there(w, w.Event)


@path("a document that has expired: update() with a pipeline")
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    return await refused(document.update([{"$set": {"score": 1}}])), is_there(w, w.Event)


@path("a document that has expired: current_date()")
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    return await refused(document.current_date({"seen": True})), is_there(w, w.Event)


@path("a document that has expired: replace()")
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    document.score = 0
    return await refused(document.replace()), is_there(w, w.Event)


@path("a document that has expired: save_changes()")
async def _(w: World) -> Any:
    document = await expired(w, w.Tracked)
    document.size = 0
    return await refused(document.save_changes()), is_there(w, w.Tracked)


@path("a document that has expired: save_changes() without a change")
async def _(w: World) -> Any:
    document = await expired(w, w.Tracked)
    return await document.save_changes() is None, is_there(w, w.Tracked)


@path("a document that has expired: delete()")
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    try:
        return (await document.delete()).deleted_count
    except DocumentNotFound:  # as ttl_odm says it, and SQLAlchemy
        return 0


@path("a document that has expired: sync()")
async def _(w: World) -> Any:
    return await refused((await expired(w, w.Event)).sync())


@path("a document that has expired: sync() with local changes")
async def _(w: World) -> Any:
    document = await expired(w, w.Tracked)
    document.size = 0
    return await refused(document.sync(MergeStrategy.local))


@path("a document that has expired: replace() with a revision")
async def _(w: World) -> Any:
    document = await expired(w, w.Revised)
    return await refused(document.replace()), is_there(w, w.Revised)


@path("a document that has expired: replace_many()")
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    return await failure(w.Event.replace_many([document])), is_there(w, w.Event)


@path("a document that has expired: set() in a bulk writer")
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    async with w.Event.bulk_writer() as writer:
        await document.set({"score": 0}, bulk_writer=writer)
    return is_there(w, w.Event)


@path("a document that has expired: fetch_link() of it")
async def _(w: World) -> Any:
    house = await w.House.get(1)
    w.pass_time(await w.Door.get(1))
    await house.fetch_link("door")
    return type(house.door).__name__


@path("a document that has expired: found by find() again")
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    return key(await w.Event.get(document.id)), await w.Event.find(w.Event.kind == "a").count()


@path("a document that has expired: its key is inserted anew")
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    await w.Event(id=document.id, name=document.name).insert()
    return is_there(w, w.Event)


@path("a document that has expired: save()", answer=(True, []))
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    document.score = 0
    return await refused(document.save()), is_there(w, w.Event)


@path("a document that has expired: save() after its life was prolonged", answer=(True, []))
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    document.ttl = -1
    return await refused(document.save()), is_there(w, w.Event)


@path("a document that has expired, and was deleted since: save()", answer=(True, []))
async def _(w: World) -> Any:
    document = await read_long_ago(w, w.Event)
    w.other[w.Event.get_collection_name()].delete_one({"_id": document.id})
    document.ttl = -1
    return await refused(document.save()), is_there(w, w.Event)


@path("a document that has expired: save() with a revision", answer=(True, []))
async def _(w: World) -> Any:
    document = await expired(w, w.Revised)
    return await refused(document.save()), is_there(w, w.Revised)


@path("a document that has expired: save() in a transaction", answer=(True, []))
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    async with w.transaction() as session:
        is_refused = await refused(document.save(session=session))
    return is_refused, is_there(w, w.Event)


@path("a document that has expired: save() in a bulk writer", answer=[])
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    async with w.Event.bulk_writer() as writer:
        await document.save(bulk_writer=writer)
    return is_there(w, w.Event)


@path("a document that has expired: save() of a copy of it", answer=(True, []))
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    return await refused(deepcopy(document).save()), is_there(w, w.Event)


@path("a document that has expired: save() of what insert_many() has stored", answer=(True, []))
async def _(w: World) -> Any:
    document = w.Event(id=50, name="new")
    await w.Event.insert_many([document])
    w.pass_time(document)
    return await refused(document.save()), is_there(w, w.Event, 50)


@path("a document that has expired: save() of one that links to it", answer=(True, True, []))
async def _(w: World) -> Any:
    house = await w.House.get(1, fetch_links=True)
    w.pass_time(house.door)
    is_refused = await refused(house.save(link_rule=WriteRules.WRITE))
    return is_refused, bool(is_there(w, w.House)), is_there(w, w.Door)


@path("a document that has expired: replace() of one that links to it")
async def _(w: World) -> Any:
    house = await w.House.get(1, fetch_links=True)
    w.pass_time(house.door)
    return await refused(house.replace(link_rule=WriteRules.WRITE)), is_there(w, w.Door)


@path("a document that has expired: insert() of the same")
async def _(w: World) -> Any:
    document = await expired(w, w.Event)
    await document.insert()
    return is_there(w, w.Event)


@path("delete() with DeleteRules.DELETE_LINKS where fetched links have expired since", own=True)
async def _(w: World) -> Any:
    house = await w.House.get(2, fetch_links=True)
    w.pass_time(house.door, house.porches[0])
    await house.delete(link_rule=DeleteRules.DELETE_LINKS)
    return [w.after(model) for model in (w.House, w.Door, w.Window, w.Lock)]


@path("delete() of a plain document with DELETE_LINKS where a fetched link has expired", own=True)
async def _(w: World) -> Any:
    street = await w.Street.get(1, fetch_links=True)
    w.pass_time(street.houses[0])
    await street.delete(link_rule=DeleteRules.DELETE_LINKS)
    return [w.after(model) for model in (w.Street, w.House, w.Door, w.Window, w.Lamp)]
