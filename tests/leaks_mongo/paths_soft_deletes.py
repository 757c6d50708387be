"""Soft deletes: documents that Beanie's `DocumentWithSoftDelete` keeps, and that expire as others.

Of the documents of `Memo`, 1 and 5 live, 3 is deleted softly, 2 has expired, and 4 was deleted
softly before it expired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie import DeleteRules
from beanie.exceptions import DocumentNotFound
from beanie.operators import In

from tests.leaks_mongo.models import Name
from tests.leaks_mongo.registry import failure, key, keys, path, refused

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World

DELETED = {"deleted_at": {"$ne": None}}


async def shown(w: World) -> Any:
    """What there is to see: by a find, of all, and as a number."""
    found, in_all = w.Memo.find(), w.Memo.find_many_in_all()
    return keys(await found.to_list()), keys(await in_all.to_list()), await w.Memo.count()


async def deleted(deletion: Any) -> int:
    """How many documents a deletion took away."""
    try:
        return int((await deletion).deleted_count)
    except DocumentNotFound:  # as ttl_odm says it
        return 0


def marked(w: World, key: Any) -> bool:
    """Whether a document is deleted softly."""
    return bool((w.stored(w.Memo, key) or {}).get("deleted_at"))


@path("soft deletes: find()")
async def _(w: World) -> Any:
    return keys(await w.Memo.find().to_list())


@path("soft deletes: find() by the keys of what is deleted and of what has expired")
async def _(w: World) -> Any:
    return keys(await w.Memo.find(In(w.Memo.id, [2, 3, 4, 5])).to_list())


@path("soft deletes: find_many() with a projection model, a sort and a limit")
async def _(w: World) -> Any:
    found = w.Memo.find_many({"size": {"$gt": 1}}, projection_model=Name, sort="size", limit=1)
    return [each.name for each in await found.to_list()]


@path("soft deletes: find_all() and all()")
async def _(w: World) -> Any:
    return keys(await w.Memo.find_all().to_list()), keys(await w.Memo.all().to_list())


@path("soft deletes: find() by the field that marks what is deleted")
async def _(w: World) -> Any:
    return keys(await w.Memo.find(w.Memo.deleted_at == None).to_list())  # noqa: E711


@path("soft deletes: find_one()")
async def _(w: World) -> Any:
    return [key(await w.Memo.find_one({"name": name})) for name in ("two", "three", "four")]


@path("soft deletes: find_one() where the first that fits has expired")
async def _(w: World) -> Any:
    return key(await w.Memo.find_one({"size": {"$gt": 1}}, sort=[("size", 1)]))


@path("soft deletes: get()")
async def _(w: World) -> Any:
    return [key(await w.Memo.get(number)) for number in range(1, 6)]


@path("soft deletes: first_or_none(), exists() and async for")
async def _(w: World) -> Any:
    first = await w.Memo.find({"size": {"$gt": 1}}).sort("size").first_or_none()
    there = await w.Memo.find({"name": "two"}).exists()
    return key(first), there, [key(each) async for each in w.Memo.find().sort("_id")]


@path("soft deletes: count()")
async def _(w: World) -> Any:
    return await w.Memo.count(), await w.Memo.find({"size": {"$lt": 9}}).count()


@path("soft deletes: sum(), and an aggregation")
async def _(w: World) -> Any:
    found = await w.Memo.aggregate([{"$match": {"size": {"$lt": 9}}}]).to_list()
    return await w.Memo.find().sum(w.Memo.size), keys(found)


@path("soft deletes: distinct()")
async def _(w: World) -> Any:
    return sorted(await w.Memo.distinct("name"))


@path("soft deletes: find_many_in_all()")
async def _(w: World) -> Any:
    found = await w.Memo.find_many_in_all().to_list()
    return sorted((each.id, each.is_deleted()) for each in found)


@path("soft deletes: find_many_in_all() of what is deleted")
async def _(w: World) -> Any:
    return keys(await w.Memo.find_many_in_all(DELETED).to_list())


@path("soft deletes: find_many_in_all() with a projection model, a sort, a skip and a limit")
async def _(w: World) -> Any:
    found = w.Memo.find_many_in_all(projection_model=Name, sort="-size", skip=1, limit=2)
    return [each.name for each in await found.to_list()]


@path("soft deletes: find_many_in_all(), counted, summed up and aggregated")
async def _(w: World) -> Any:
    query = w.Memo.find_many_in_all
    groups = await query().aggregate([{"$group": {"_id": None, "n": {"$sum": 1}}}]).to_list()
    return await query().count(), await query(DELETED).count(), await query().sum("size"), groups


@path("soft deletes: find_many_in_all().first_or_none()")
async def _(w: World) -> Any:
    return key(await w.Memo.find_many_in_all(DELETED).sort("-size").first_or_none())


@path("soft deletes: links to what is deleted and to what has expired")
async def _(w: World) -> Any:
    folders = await w.Folder.find(fetch_links=True).sort("_id").to_list()
    return [keys(each.memos) for each in folders]


@path("soft deletes: fetch_link() to what is deleted and to what has expired")
async def _(w: World) -> Any:
    folder = await w.Folder.get(1)
    await folder.fetch_link("memos")
    return sorted((type(each).__name__, getattr(each, "id", 0)) for each in folder.memos)


@path("soft deletes: delete() of a live document")
async def _(w: World) -> Any:
    await (await w.Memo.get(1)).delete()
    return marked(w, 1), await shown(w)


@path("soft deletes: hard_delete() of a live document")
async def _(w: World) -> Any:
    count = await deleted((await w.Memo.get(1)).hard_delete())
    return count, w.after(w.Memo), await shown(w)


@path("soft deletes: hard_delete() of a document that was deleted softly")
async def _(w: World) -> Any:
    memo = await w.Memo.find_many_in_all({"_id": 3}).first_or_none()
    return await deleted(memo.hard_delete()), w.after(w.Memo), await shown(w)


@path("soft deletes: hard_delete() in a bulk writer")
async def _(w: World) -> Any:
    memos = [await w.Memo.get(number) for number in (1, 5)]
    w.pass_time(memos[0])
    writer = w.Memo.bulk_writer()
    for memo in memos:
        await memo.hard_delete(bulk_writer=writer)
    return (await writer.commit()).deleted_count, w.after(w.Memo)


@path("soft deletes: delete() of an expired document", answer=(True, False, []))
async def _(w: World) -> Any:
    memo = await w.Memo.get(1)
    w.pass_time(memo)
    is_refused = await refused(memo.delete())
    return is_refused, marked(w, 1), [each for each in w.after(w.Memo) if each["_id"] == 1]


@path("soft deletes: hard_delete() of an expired document")
async def _(w: World) -> Any:
    memo = await w.Memo.get(1)
    w.pass_time(memo)
    return await deleted(memo.hard_delete())


@path("soft deletes: hard_delete() of a document that was deleted softly and has expired")
async def _(w: World) -> Any:
    memo = await w.Memo.get(1)
    await memo.delete()
    w.pass_time(memo)
    return await deleted(memo.hard_delete()), await shown(w)


@path("soft deletes: delete() with DeleteRules.DELETE_LINKS of one that links to them")
async def _(w: World) -> Any:
    folder = await w.Folder.get(1, fetch_links=True)
    await folder.delete(link_rule=DeleteRules.DELETE_LINKS)
    return w.after(w.Folder), w.after(w.Memo)


@path("soft deletes: set() of a document that was deleted softly and has expired")
async def _(w: World) -> Any:
    memo = await w.Memo.find_many_in_all({"_id": 3}).first_or_none()
    w.pass_time(memo)
    return await refused(memo.set({"deleted_at": None})), await shown(w)


@path("soft deletes: what is deleted is taken back")
async def _(w: World) -> Any:
    result = await w.Memo.find_many_in_all(DELETED).set({"deleted_at": None})
    return result.matched_count, await shown(w)


@path("soft deletes: update_all()")
async def _(w: World) -> Any:
    result = await w.Memo.update_all({"$set": {"size": 0}})
    return result.matched_count, w.after(w.Memo)


@path("soft deletes: find().update() and find_one().update()")
async def _(w: World) -> Any:
    many = await w.Memo.find({"size": {"$lt": 9}}).update({"$set": {"size": 0}})
    one = await w.Memo.find_one({"name": "two"}).update({"$set": {"size": 0}})
    return many.matched_count, one.matched_count, w.after(w.Memo)


@path("soft deletes: find_many_in_all().update()")
async def _(w: World) -> Any:
    result = await w.Memo.find_many_in_all({"size": {"$gt": 1}}).update({"$set": {"size": 0}})
    return result.matched_count, w.after(w.Memo)


@path("soft deletes: find().delete() and delete_all()")
async def _(w: World) -> Any:
    some = await w.Memo.find({"size": {"$lt": 9}}).delete()
    rest = await w.Memo.delete_all()
    return some.deleted_count, rest.deleted_count, w.after(w.Memo)


@path("soft deletes: find_many_in_all().delete()")
async def _(w: World) -> Any:
    return (await w.Memo.find_many_in_all(DELETED).delete()).deleted_count, w.after(w.Memo)


@path("soft deletes: insert() with the key of what was deleted softly and has expired")
async def _(w: World) -> Any:
    await w.Memo(id=4, name="new").insert()
    return w.after(w.Memo), await shown(w)


@path("soft deletes: insert() with the key of what is deleted softly", own=True)
async def _(w: World) -> Any:
    return await failure(w.Memo(id=3, name="new").insert()), w.after(w.Memo)


@path("soft deletes: upsert() that meets what was deleted softly and has expired")
async def _(w: World) -> Any:
    update = {"$set": {"size": 0}}
    await w.Memo.find_one({"_id": 4}).upsert(update, on_insert=w.Memo(id=4, name="new"))
    return w.after(w.Memo), await shown(w)
