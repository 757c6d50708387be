"""Unions: one collection with documents of several classes, read through one class or through all.

There are more paths through them in `models`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie import UpdateResponse
from beanie.operators import In, Set

from tests.leaks_mongo.paths_numbers import NO_DISTINCT, NO_SUMS
from tests.leaks_mongo.registry import key, keys, path, refused

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World

TITLED = {"title": {"$exists": True}}
BY_KIND = {"$group": {"_id": "$_class_id", "n": {"$sum": 1}}}
IN_FEED = {"from": "Feed", "localField": "_id", "foreignField": "_id", "as": "found"}


def kinds(groups: list[Any]) -> list[Any]:
    """How many documents there are of each class."""
    return sorted((each["_id"], each["n"]) for each in groups)


def ends(digests: list[Any]) -> list[Any]:
    """The keys of what digests link to."""
    return sorted((each.id, keys(each.posts), keys(each.adverts)) for each in digests)


@path("unions: find() by a field of one class")
async def _(w: World) -> Any:
    return keys(await w.Feed.find({"price": {"$gt": 1}}).to_list())


@path("unions: find() gives documents of their classes")
async def _(w: World) -> Any:
    return sorted((each.id, type(each).__name__) for each in await w.Feed.find().to_list())


@path("unions: find_many(), find_all() and async for")
async def _(w: World) -> Any:
    some = await w.Feed.find_many(TITLED).to_list()
    every = await w.Feed.find_all().to_list()
    return keys(some), keys(every), [key(each) async for each in w.Feed.find().sort("_id")]


@path("unions: find() with a sort, a skip and a limit")
async def _(w: World) -> Any:
    return keys(await w.Feed.find().sort("_id").skip(1).limit(2).to_list())


@path("unions: find() with its children")
async def _(w: World) -> Any:
    return keys(await w.Feed.find(with_children=True).to_list())


@path("unions: find_one() where the first that fits has expired")
async def _(w: World) -> Any:
    return key(await w.Feed.find_one({}, sort=[("_id", -1)]))


@path("unions: first_or_none() and exists()")
async def _(w: World) -> Any:
    first = await w.Feed.find(TITLED).sort("-_id").first_or_none()
    return key(first), await w.Feed.find({"price": 9}).exists()


@path("unions: count()")
async def _(w: World) -> Any:
    return await w.Feed.count(), await w.Feed.find(TITLED).count()


@path("unions: aggregate() by the classes")
async def _(w: World) -> Any:
    found = await w.Feed.aggregate([BY_KIND]).to_list()
    of_query = await w.Feed.find(TITLED).aggregate([BY_KIND]).to_list()
    return kinds(found), kinds(of_query)


@path("unions: sum() and max() of a query")
async def _(w: World) -> Any:
    return await w.Feed.find().sum("price"), await w.Feed.find({"price": {"$gt": 1}}).max("price")


@path("unions: sum() and max() of the union", without=NO_SUMS)
async def _(w: World) -> Any:
    return await w.Feed.sum("price"), await w.Feed.max("price")


@path("unions: distinct() of a query", without=NO_DISTINCT)
async def _(w: World) -> Any:
    return sorted(await w.Feed.find(TITLED).distinct("title"))


@path("unions: find().update()")
async def _(w: World) -> Any:
    result = await w.Feed.find(TITLED).update({"$set": {"title": "x"}})
    return result.matched_count, w.after(w.Feed)


@path("unions: find().set() of all")
async def _(w: World) -> Any:
    return (await w.Feed.find().set({"seen": True})).matched_count, w.after(w.Feed)


@path("unions: find_one().update() where the first that fits has expired")
async def _(w: World) -> Any:
    update = w.Feed.find_one({"_id": {"$in": [2, 11]}}).update({"$set": {"seen": True}})
    return (await update).matched_count, w.after(w.Feed)


@path("unions: find_one().update() that returns the document")
async def _(w: World) -> Any:
    answers = [
        await w.Feed.find_one({"_id": number}).update(
            {"$set": {"price": 0}}, response_type=response
        )
        for number in (11, 12)
        for response in (UpdateResponse.OLD_DOCUMENT, UpdateResponse.NEW_DOCUMENT)
    ]
    return [each and key(each) for each in answers], w.after(w.Feed)


@path("unions: find().delete() and find_one().delete()")
async def _(w: World) -> Any:
    one = await w.Feed.find_one({"_id": {"$in": [2, 12]}}).delete()
    many = await w.Feed.find(TITLED).delete()
    return one.deleted_count, many.deleted_count, w.after(w.Feed)


@path("unions: bulk writer with deletions and with the keys of other classes")
async def _(w: World) -> Any:
    writer = w.Feed.bulk_writer()
    await w.Advert.find_one({"_id": 12}).delete(bulk_writer=writer)
    await w.Post.find({}).delete(bulk_writer=writer)
    await w.Advert.insert_one(w.Advert(id=22, price=1), bulk_writer=writer)
    return (await writer.commit()).deleted_count, w.after(w.Feed)


@path("unions: the driver's collection")
async def _(w: World) -> Any:
    feed = w.handle(w.Feed)
    found = await feed.find().to_list(None)
    return keys(found), await feed.count_documents({}), sorted(await feed.distinct("title"))


@path("unions: a class, by filters and by keys of another")
async def _(w: World) -> Any:
    found = await w.Post.find(In(w.Post.id, [1, 2, 11, 12, 21, 22])).to_list()
    return keys(found), keys(await w.Advert.find(w.Advert.price > 1).to_list())


@path("unions: a class: find_one() and get()")
async def _(w: World) -> Any:
    one = await w.Post.find_one({}, sort=[("_id", -1)])
    return key(one), [key(await w.Advert.get(number)) for number in (1, 2, 11, 12)]


@path("unions: a class: count(), exists() and first_or_none()")
async def _(w: World) -> Any:
    first = await w.Advert.find().sort("-price").first_or_none()
    return await w.Post.count(), await w.Post.find({"title": "dead post"}).exists(), key(first)


@path("unions: a class: aggregate(), sum() and distinct()")
async def _(w: World) -> Any:
    found = await w.Post.aggregate([BY_KIND]).to_list()
    titles = await w.Post.distinct("title", {"_id": {"$lt": 10}})
    return kinds(found), await w.Advert.find().sum(w.Advert.price), titles


@path("unions: a class that inherits from another")
async def _(w: World) -> Any:
    found = keys(await w.Serial.find().to_list())
    return found, await w.Serial.count(), key(await w.Serial.get(22))


@path("unions: a class with its children")
async def _(w: World) -> Any:
    found = w.Post.find(with_children=True)
    return keys(await found.to_list()), await found.count()


@path("unions: a class: update_all()")
async def _(w: World) -> Any:
    result = await w.Post.update_all({"$set": {"title": "x"}})
    return result.matched_count, w.after(w.Feed)


@path("unions: a class: find().update() and find_one().update()")
async def _(w: World) -> Any:
    many = await w.Serial.find({"part": {"$gt": 0}}).update(Set({w.Serial.part: 0}))
    one = await w.Advert.find_one(w.Advert.price == 9).update(Set({w.Advert.price: 0}))
    return many.matched_count, one.matched_count, w.after(w.Feed)


@path("unions: a class: find().delete()")
async def _(w: World) -> Any:
    return (await w.Advert.find({"price": {"$gt": 1}}).delete()).deleted_count, w.after(w.Feed)


@path("unions: a class: delete_all()")
async def _(w: World) -> Any:
    return (await w.Post.delete_all()).deleted_count, w.after(w.Feed)


@path("unions: a class: upsert() that meets an expired document")
async def _(w: World) -> Any:
    new = w.Post(id=2, title="new")
    await w.Post.find_one({"_id": 2}).upsert({"$set": {"title": "x"}}, on_insert=new)
    return w.after(w.Feed)


@path("unions: insert() with the key of an expired document")
async def _(w: World) -> Any:
    await w.Advert(id=12, price=1).insert()
    return w.after(w.Feed)


@path("unions: insert_many() with the keys of expired documents of other classes")
async def _(w: World) -> Any:
    await w.Advert.insert_many([w.Advert(id=2, price=1), w.Advert(id=22, price=2)])
    return w.after(w.Feed), keys(await w.Advert.find().to_list())


@path("unions: save() with the key of an expired document of another class")
async def _(w: World) -> Any:
    await w.Serial(id=12, title="new", part=1).save()
    return w.after(w.Feed)


@path("unions: a document that has expired: set() and replace()")
async def _(w: World) -> Any:
    post, serial = await w.Post.get(1), await w.Serial.get(21)
    w.pass_time(post, serial)
    writes = post.set({"title": "x"}), serial.replace()
    return [await refused(write) for write in writes], w.after(w.Feed)


@path("unions: links to documents of a class")
async def _(w: World) -> Any:
    return ends(await w.Digest.find(fetch_links=True).to_list())


@path("unions: fetch_all_links() to documents of a class")
async def _(w: World) -> Any:
    digest = await w.Digest.get(2)
    await digest.fetch_all_links()
    return sorted(type(each).__name__ for each in digest.posts + digest.adverts)


@path("unions: $lookup from the collection")
async def _(w: World) -> Any:
    pipeline = [{"$lookup": IN_FEED}, {"$project": {"n": {"$size": "$found"}}}]
    return sorted(
        (each["_id"], each["n"]) for each in await w.Journal.aggregate(pipeline).to_list()
    )


@path("unions: $unionWith the collection")
async def _(w: World) -> Any:
    pipeline = [{"$unionWith": "Feed"}, {"$match": {"_class_id": {"$exists": True}}}]
    return keys(await w.Roof.aggregate(pipeline).to_list())


@path("unions: $unionWith within the collection")
async def _(w: World) -> Any:
    pipeline = [{"$match": TITLED}, {"$unionWith": {"coll": "Feed", "pipeline": [BY_KIND]}}]
    found = await w.Post.aggregate(pipeline).to_list()
    return sorted((str(each["_id"]), each.get("n", 0)) for each in found)
