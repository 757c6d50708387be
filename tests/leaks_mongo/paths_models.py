"""Views, unions, inheritance, and the other policies that a class can declare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.leaks_mongo.registry import key, keys, path

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World

SEEN = {"$lookup": {"from": "Visit", "localField": "_id", "foreignField": "_id", "as": "seen"}}


@path("a view of documents")
async def _(w: World) -> Any:
    return keys(await w.EventView.find().to_list())


@path("a view of documents, by a filter")
async def _(w: World) -> Any:
    return keys(await w.EventView.find(w.EventView.kind == "b").to_list())


@path("a view of documents: find_one()")
async def _(w: World) -> Any:
    return key(await w.EventView.find_one({"name": "dan"}))


@path("a view of documents, counted")
async def _(w: World) -> Any:
    return await w.EventView.find().count()


@path("a view of documents, aggregated")
async def _(w: World) -> Any:
    found = await w.EventView.aggregate([{"$sortByCount": "$kind"}]).to_list()
    return sorted((each["_id"], each["count"]) for each in found)


@path("a view that groups")
async def _(w: World) -> Any:
    return sorted((each.id, each.number) for each in await w.KindView.find().to_list())


@path("a view of a plain collection with a $lookup")
async def _(w: World) -> Any:
    return sorted((each.id, each.found) for each in await w.JournalView.find().to_list())


@path("a union of classes")
async def _(w: World) -> Any:
    return keys(await w.Feed.find().to_list())


@path("a union of classes: all()")
async def _(w: World) -> Any:
    return keys(await w.Feed.all().to_list())


@path("a union of classes: find_one()")
async def _(w: World) -> Any:
    return key(await w.Feed.find_one({"price": 9}))


@path("a union of classes, counted")
async def _(w: World) -> Any:
    return await w.Feed.find().count()


@path("a union of classes, aggregated")
async def _(w: World) -> Any:
    return keys(await w.Feed.aggregate([{"$project": {"_id": 1}}]).to_list())


@path("a class of a union")
async def _(w: World) -> Any:
    return keys(await w.Post.find().to_list()), keys(await w.Advert.find_all().to_list())


@path("a class of a union: get()")
async def _(w: World) -> Any:
    return key(await w.Advert.get(12))


@path("a union of classes: bulk writer")
async def _(w: World) -> Any:
    async with w.Feed.bulk_writer() as writer:
        await w.Post.find_one({"_id": 2}).update({"$set": {"title": "x"}}, bulk_writer=writer)
        await w.Advert.find({}).update({"$set": {"price": 1}}, bulk_writer=writer)
    return w.after(w.Feed)


@path("inheritance: the root alone")
async def _(w: World) -> Any:
    return keys(await w.Vehicle.find().to_list())


@path("inheritance: the root with its children")
async def _(w: World) -> Any:
    return keys(await w.Vehicle.find(with_children=True).to_list())


@path("inheritance: find_all() of the root with its children")
async def _(w: World) -> Any:
    return keys(await w.Vehicle.find_all(with_children=True).to_list())


@path("inheritance: a child")
async def _(w: World) -> Any:
    return keys(await w.Car.find().to_list())


@path("inheritance: a child with its children")
async def _(w: World) -> Any:
    return keys(await w.Car.find({"seats": {"$gt": 3}}, with_children=True).to_list())


@path("inheritance: a grandchild")
async def _(w: World) -> Any:
    return keys(await w.Bus.find().to_list())


@path("inheritance: get() of a child through the root")
async def _(w: World) -> Any:
    return [key(await w.Vehicle.get(each, with_children=True)) for each in (11, 12, 13, 21, 22)]


@path("inheritance: count() of the root with its children")
async def _(w: World) -> Any:
    return await w.Vehicle.find(with_children=True).count()


@path("inheritance: sum() of a child")
async def _(w: World) -> Any:
    return await w.Car.find().sum(w.Car.seats)


@path("inheritance: links to a class with children")
async def _(w: World) -> Any:
    garages = await w.Garage.find(fetch_links=True).sort("_id").to_list()
    return [keys(each.vehicles) for each in garages]


@path("inheritance: update of a child")
async def _(w: World) -> Any:
    result = await w.Car.find({}).update({"$set": {"seats": 9}})
    return result.matched_count, w.after(w.Vehicle)


@path("inheritance: delete() of the root with its children")
async def _(w: World) -> Any:
    result = await w.Vehicle.find(with_children=True).delete()
    return result.deleted_count, w.after(w.Vehicle)


@path("inheritance: insert() of a child with the key of an expired one")
async def _(w: World) -> Any:
    await w.Bus(id=22, wheels=1, seats=1, line="new").insert()
    return w.after(w.Vehicle)


@path("inheritance: insert() with the key of an expired document of another class")
async def _(w: World) -> Any:
    await w.Bus(id=2, wheels=1, seats=1, line="new").insert()
    return w.after(w.Vehicle)


@path("the default ttl in Settings")
async def _(w: World) -> Any:
    return keys(await w.Logged.find().to_list()), await w.Logged.count()


@path("a default of -1: only documents with a ttl of their own expire")
async def _(w: World) -> Any:
    return keys(await w.Parked.find().to_list())


@path("a default of -1: update_all()")
async def _(w: World) -> Any:
    result = await w.Parked.update_all({"$set": {"name": "x"}})
    return result.matched_count, w.after(w.Parked)


@path("TTL off: every document is there", answer=[1, 2], own=True)
async def _(w: World) -> Any:
    return keys(await w.Paused.find().to_list())


@path("TTL off: writes reach every document", answer=(2, [1, 2]), own=True)
async def _(w: World) -> Any:
    result = await w.Paused.update_all({"$set": {"name": "x"}})
    return result.matched_count, w.changed(w.Paused)


@path("ExpireAfter: find()")
async def _(w: World) -> Any:
    return keys(await w.Visit.find().to_list())


@path("ExpireAfter: an array of dates ends by its earliest")
async def _(w: World) -> Any:
    return key(await w.Visit.get(5)), key(await w.Visit.get(6))


@path("ExpireAfter: count() and distinct()")
async def _(w: World) -> Any:
    return await w.Visit.find().count(), sorted(await w.Visit.distinct("name"))


@path("ExpireAfter: update_all()")
async def _(w: World) -> Any:
    result = await w.Visit.update_all({"$set": {"name": "x"}})
    return result.matched_count, keys(each for each in w.after(w.Visit) if each["name"] == "x")


@path("ExpireAfter: insert() with the key of an expired document")
async def _(w: World) -> Any:
    await w.Visit(id=2, name="new").insert()
    return await w.Visit.find({"name": "new"}).count(), w.other["Visit"].count_documents({"_id": 2})


@path("ExpireAfter: save() does not prolong it", answer=(1, True), own=True)
async def _(w: World) -> Any:
    before = (w.stored(w.Visit, 1) or {})["at"]
    visit = await w.Visit.get(1)
    visit.name = "x"
    await visit.save()
    return visit.id, (w.stored(w.Visit, 1) or {})["at"] == before


@path("ExpireAt: find()")
async def _(w: World) -> Any:
    return keys(await w.Offer.find().to_list())


@path("ExpireAt: delete_all()")
async def _(w: World) -> Any:
    return (await w.Offer.delete_all()).deleted_count


@path("ExpireAt, where none means expired: find()")
async def _(w: World) -> Any:
    return keys(await w.Voucher.find().to_list())


@path("ExpireAt, where none means expired: distinct()")
async def _(w: World) -> Any:
    return sorted(await w.Voucher.distinct("name"))


@path("TTL over fields of the application's: find()")
async def _(w: World) -> Any:
    return keys(await w.Adopted.find().to_list())


@path("TTL over fields of the application's: count()")
async def _(w: World) -> Any:
    return await w.Adopted.find({"name": {"$ne": "x"}}).count()


@path("TTL over fields of the application's: update_all()")
async def _(w: World) -> Any:
    result = await w.Adopted.update_all({"$set": {"name": "x"}})
    return result.matched_count, w.after(w.Adopted)


@path("TTL over fields of the application's: insert() with an expired document's key")
async def _(w: World) -> Any:
    await w.Adopted(id=2, name="new").insert()
    return w.after(w.Adopted), await w.Adopted.find({"name": "new"}).count()


@path("a $lookup to documents that end by an array of dates")
async def _(w: World) -> Any:
    found = await w.Roof.aggregate([SEEN, {"$project": {"n": {"$size": "$seen"}}}]).to_list()
    return sorted((each["_id"], each["n"]) for each in found)
