"""Options of ttl_odm's own: what they refuse, keeping `_ts`, changing the default."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from tests.leaks_mongo.data import HOUR
from tests.leaks_mongo.registry import failure, key, keys, path
from ttl_odm.beanie import keep_last_modified

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.leaks_mongo.worlds import World

ALL = list(range(1, 13))
LIVE = [1, 2, 3, 6, 9, 10, 12]
YEARS_AGO = datetime(2020, 1, 1, tzinfo=timezone.utc)
SET = {"$set": {"score": 0}}


def ours(name: str, answer: Any) -> Any:
    """Register a path whose answer no other world can know."""
    return path(name, answer=answer, own=True)


@contextmanager
def declared(model: Any, ttl: Any) -> Iterator[None]:
    """Change a class's default for a while."""
    before = model.__ttl__
    model.__ttl__ = ttl
    try:
        yield
    finally:
        model.__ttl__ = before


async def seen(w: World) -> list[int]:
    """The keys of the events that are there."""
    return keys(await w.Event.find().to_list())


@ours("include_expired on find() before update()", ("TTLError", []))
async def _(w: World) -> Any:
    async def update() -> Any:
        return await w.Event.find({"kind": "c"}, **w.everything).update(SET)

    return await failure(update()), w.changed(w.Event)


@ours("include_expired on find() before delete()", ("TTLError", []))
async def _(w: World) -> Any:
    async def delete() -> Any:
        return await w.Event.find({"kind": {"$in": ["b", "c"]}}, **w.everything).delete()

    return await failure(delete()), w.changed(w.Event)


@ours("a document that was read with include_expired: set()", "ExpiredError")
async def _(w: World) -> Any:
    document = await w.Event.get(4, **w.everything)
    return await failure(document.set({"score": 0}))


async def error(w: World, write: Any) -> str | None:
    """The error of a write on a document that has expired since it was read."""
    document = await w.Tracked.get(1)
    document.size = 9
    w.pass_time(document)
    return await failure(write(document))


@ours("the error of set()", "ExpiredError")
async def _(w: World) -> Any:
    return await error(w, lambda document: document.set({"size": 0}))


@ours("the error of inc()", "ExpiredError")
async def _(w: World) -> Any:
    return await error(w, lambda document: document.inc({"size": 1}))


@ours("the error of update()", "ExpiredError")
async def _(w: World) -> Any:
    return await error(w, lambda document: document.update([{"$set": {"size": 1}}]))


@ours("the error of replace()", "ExpiredError")
async def _(w: World) -> Any:
    return await error(w, lambda document: document.replace())


@ours("the error of save_changes()", "ExpiredError")
async def _(w: World) -> Any:
    return await error(w, lambda document: document.save_changes())


@ours("the error of sync()", "ExpiredError")
async def _(w: World) -> Any:
    return await error(w, lambda document: document.sync())


@ours("keep_last_modified: find().update()", ([2], True))
async def _(w: World) -> Any:
    before = (w.stored(w.Event, 2) or {})["_ts"]
    await w.Event.find({"_id": 2}).update(SET, keep_last_modified=True)
    after = w.stored(w.Event, 2) or {}
    return keys([after] if after["score"] == 0 else []), after["_ts"] == before


@ours("keep_last_modified: set() of a document", (0, True))
async def _(w: World) -> Any:
    before = (w.stored(w.Event, 2) or {})["_ts"]
    await (await w.Event.get(2)).set({"score": 0}, keep_last_modified=True)
    after = w.stored(w.Event, 2) or {}
    return after["score"], after["_ts"] == before


@ours("keep_last_modified: everything inside the context", (0, True, True, True))
async def _(w: World) -> Any:
    before = {number: (w.stored(w.Event, number) or {})["_ts"] for number in (2, 3, 10)}
    two, three = await w.Event.get(2), await w.Event.get(3)
    two.score = 0
    with keep_last_modified():
        await two.replace()
        await three.save()
        async with w.Event.bulk_writer() as writer:
            await w.Event.find_one({"_id": 10}).update(SET, bulk_writer=writer)
    kept = [(w.stored(w.Event, each) or {})["_ts"] == stamp for each, stamp in before.items()]
    return (w.stored(w.Event, 2) or {})["score"], *kept


@ours("keep_last_modified does not reach expired documents", (0, None))
async def _(w: World) -> Any:
    result = await w.Event.find({"kind": "c"}).update(SET, keep_last_modified=True)
    return result.matched_count, next(
        (each for each in w.after(w.Event) if each["_id"] == 5),
        None,
    )


@ours("a `_ts` of the application's is not taken over: insert()", [50])
async def _(w: World) -> Any:
    await w.Event(id=50, name="new", last_modified=YEARS_AGO).insert()
    return w.changed(w.Event)


@ours("a `_ts` of the application's is not taken over: update()", [2])
async def _(w: World) -> Any:
    await w.Event.find_one({"_id": 2}).update({"$set": {"_ts": YEARS_AGO, "score": 1}})
    return w.changed(w.Event)


@ours("a `_ts` of the application's is not taken over: save()", [2])
async def _(w: World) -> Any:
    two = await w.Event.get(2)
    two.last_modified = YEARS_AGO
    await two.save()
    return w.changed(w.Event)


@ours("a `_ts` of the application's is not taken over: update() with a pipeline", [2])
async def _(w: World) -> Any:
    await w.Event.find_one({"_id": 2}).update([{"$set": {"_ts": YEARS_AGO}}])
    return w.changed(w.Event)


def spoiling(name: str, update: Any) -> None:
    """A path whose update does something of its own to `_ts`."""

    @ours(f"a `_ts` of the application's is not taken over: {name}", ([2], True))
    async def _(w: World) -> Any:
        await w.handle(w.Event).update_one({"_id": 2}, update)
        return w.changed(w.Event), await w.Event.find({"_id": 2}).exists()


spoiling("$max", {"$max": {"_ts": datetime(2100, 1, 1, tzinfo=timezone.utc)}})
spoiling("$min", {"$min": {"_ts": YEARS_AGO}})
spoiling("$rename from it", {"$rename": {"_ts": "old"}})
spoiling("$rename to it", {"$rename": {"words": "_ts"}})
spoiling("$currentDate as a timestamp", {"$currentDate": {"_ts": {"$type": "timestamp"}}})
spoiling("$unset in a pipeline", [{"$unset": "_ts"}])
spoiling("$replaceWith in a pipeline", [{"$replaceWith": {"_id": "$_id", "name": "new"}}])
spoiling("$project in a pipeline", [{"$project": {"name": 1}}])
spoiling("$setOnInsert", {"$setOnInsert": {"_ts": YEARS_AGO}, "$set": {"score": 1}})


@ours("a `_ts` of the application's is not taken over: replace_one()", [2])
async def _(w: World) -> Any:
    await w.handle(w.Event).replace_one({"_id": 2}, {"name": "bob", "_ts": YEARS_AGO})
    return w.changed(w.Event)


@ours("a `_ts` of the application's is not taken over: an upsert that inserts", [50])
async def _(w: World) -> Any:
    update = {"$set": {"name": "new"}, "$setOnInsert": {"_ts": YEARS_AGO}}
    await w.handle(w.Event).update_one({"_id": 50}, update, upsert=True)
    return w.changed(w.Event)


@ours("a document knows its end after insert(), save() and set()", [True] * 3)
async def _(w: World) -> Any:
    made = await w.Event(id=50, name="new").insert()
    ends = [made.expires_at is not None]
    await made.save()
    ends.append(made.expires_at is not None)
    await made.set({"score": 1})
    return [*ends, made.expires_at is not None]


@ours("a `_ts` that was taken away comes back", [2])
async def _(w: World) -> Any:
    await w.Event.find_one({"_id": 2}).update({"$unset": {"_ts": ""}})
    return w.changed(w.Event)


@ours("a document without `_ts` gets one with its first write", [9])
async def _(w: World) -> Any:
    await w.Event.find_one({"_id": 9}).update(SET)
    return w.changed(w.Event)


@ours("a changed default: lower", [2, 3, 9, 10])
async def _(w: World) -> Any:
    for number in (1, 6, 12):
        w.other["Event"].update_one({"_id": number}, {"$set": {"_ts": w.now() - timedelta(0, 300)}})
    with declared(w.Event, 60):
        return await seen(w)


@ours("a changed default: higher", sorted([*LIVE, 4, 7, 11]))
async def _(w: World) -> Any:
    with declared(w.Event, 240 * HOUR):
        return await seen(w)


@ours("a changed default: never", sorted([*LIVE, 4, 7, 11]))
async def _(w: World) -> Any:
    with declared(w.Event, -1):
        return await seen(w)


@ours("a changed default: off", ALL)
async def _(w: World) -> Any:
    with declared(w.Event, None):
        return await seen(w)


@ours("a changed default: off, for links and a $lookup", (True, 12))
async def _(w: World) -> Any:
    stage = {"from": "Event", "localField": "event", "foreignField": "_id", "as": "found"}
    with declared(w.Event, None), declared(w.Door, None):
        house = await w.House.find_one({"name": "four"}, fetch_links=True)
        found = await w.Journal.aggregate([{"$lookup": stage}, {"$unwind": "$found"}]).to_list()
    return isinstance(house.door, w.Door), len(found)


@ours(
    "a changed default: higher or off, before MongoDB, which deletes, knows of it", [[1, 2, 5]] * 3
)
async def _(w: World) -> Any:
    seen_by_default = []
    for default in (240 * HOUR, -1, None):
        with declared(w.Window, default):
            seen_by_default.append(keys(await w.Window.find().to_list()))
    return seen_by_default


@ours("a changed default: writes follow it", (10, None))
async def _(w: World) -> Any:
    with declared(w.Event, 240 * HOUR):
        result = await w.Event.update_all(SET)
        return result.matched_count, await failure(w.Event.find_one({"_id": 4}).set({"score": 1}))


@ours("a ttl of one's own: -1 lets a document stay", [1])
async def _(w: World) -> Any:
    one = await w.Event.get(1)
    one.ttl = -1
    await one.save()
    w.other["Event"].update_one({"_id": 1}, {"$set": {"_ts": YEARS_AGO}})
    return keys(await w.Event.find({"_id": 1}).to_list())


@ours("a ttl of one's own: None inherits again", ([10], None))
async def _(w: World) -> Any:
    document = await w.Event.get(10)
    document.ttl = None
    await document.save()
    changed = w.changed(w.Event)
    w.pass_time(document)
    return changed, key(await w.Event.get(10))


@ours("a ttl of one's own: a write that changes nothing else counts", [1])
async def _(w: World) -> Any:
    await w.Event.find_one({"_id": 1}).update({"$set": {"ttl": 60}})
    return w.changed(w.Event)


@ours("a ttl of one's own, on insert()", ([50], 6000, 1))
async def _(w: World) -> Any:
    await w.Event(id=50, name="new", ttl=6000).insert()
    return (
        w.changed(w.Event),
        (w.stored(w.Event, 50) or {})["ttl"],
        await w.Event.find({"_id": 50}).count(),
    )


@ours("a ttl that is none has no effect, and is stored as it is", (["60", 20.5, 0], 3))
async def _(w: World) -> Any:
    new = [{"_id": 50 + n, "name": str(n), "ttl": ttl} for n, ttl in enumerate(("60", 20.5, 0))]
    await w.handle(w.Event).insert_many(new)
    stored = [(w.stored(w.Event, 50 + n) or {})["ttl"] for n in range(3)]
    return stored, await w.Event.find({"_id": {"$gte": 50}}).count()


@ours("documents with a ttl that is none are read", ["60", 0, None])
async def _(w: World) -> Any:
    return [(await w.Event.get(number)).ttl for number in (6, 12, 1)]


@ours("upsert() that meets an expired document leaves none of its ttl", (["new"], None))
async def _(w: World) -> Any:
    await w.Event.find_one({"_id": 5}).upsert(SET, on_insert=w.Event(id=5, name="new"))
    found = await w.Event.find({"_id": 5}).to_list()
    return [each.name for each in found], (w.stored(w.Event, 5) or {}).get("ttl")


@ours("update(upsert=True) that meets an expired document leaves none of its ttl", (["new"], None))
async def _(w: World) -> Any:
    await w.Event.find_one({"_id": 5}).update({"$set": {"name": "new"}}, upsert=True)
    found = await w.Event.find({"_id": 5}).to_list()
    return [each.name for each in found], (w.stored(w.Event, 5) or {}).get("ttl")


@ours("insert() displaces an expired document, one and no more", ([4], 12))
async def _(w: World) -> Any:
    await w.Event(id=4, name="new").insert()
    return w.changed(w.Event), w.other["Event"].count_documents({})


@ours("insert() that fails for a live document displaces no other", ("DuplicateKeyError", []))
async def _(w: World) -> Any:
    return await failure(w.Event(id=1, name="bob").insert()), w.changed(w.Event)
