"""Time series: measurements that expire by their time, and can be changed by what they share only.

An update or a deletion reaches expired measurements, too, for it takes no condition of ours: what
counts is what there is to see then.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from beanie.operators import In

from tests.leaks_mongo.data import HOUR
from tests.leaks_mongo.models import IGNORING_CASE
from tests.leaks_mongo.models_kinds import Value
from tests.leaks_mongo.paths_numbers import NO_DISTINCT
from tests.leaks_mongo.registry import failure, key, keys, path

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World

BY_PLACE = {"$group": {"_id": "$place", "n": {"$sum": 1}, "least": {"$min": "$value"}}}
OF_A_PLACE = {"from": "Reading", "localField": "place", "foreignField": "place", "as": "found"}


async def shown(w: World) -> Any:
    """What there is to see: the keys and the places."""
    return sorted((each.id, each.place) for each in await w.Reading.find().to_list())


@path("time series: find()")
async def _(w: World) -> Any:
    return keys(await w.Reading.find().to_list())


@path("time series: find() by what measurements share")
async def _(w: World) -> Any:
    return keys(await w.Reading.find(w.Reading.place == "attic").to_list())


@path("time series: find() by what was measured, and by keys")
async def _(w: World) -> Any:
    measured = await w.Reading.find(w.Reading.value < 25).to_list()
    return keys(measured), keys(await w.Reading.find(In(w.Reading.id, [2, 3, 4])).to_list())


@path("time series: find() by time")
async def _(w: World) -> Any:
    long_ago = w.now() - timedelta(seconds=10 * HOUR)
    return keys(await w.Reading.find(w.Reading.at > long_ago).to_list())


@path("time series: find() by an expression, or under a collation")
async def _(w: World) -> Any:
    computed = await w.Reading.find({"$expr": {"$gt": ["$value", 15]}}).to_list()
    found = w.Reading.find({"place": {"$in": ["GARDEN", "ATTIC"]}}, collation=IGNORING_CASE)
    return keys(computed), keys(await found.to_list())


@path("time series: find() with a sort, a skip and a limit")
async def _(w: World) -> Any:
    return [key(each) for each in await w.Reading.find().sort("value").skip(1).limit(2).to_list()]


@path("time series: find() with a projection model")
async def _(w: World) -> Any:
    found = await w.Reading.find(projection_model=Value).to_list()
    return sorted(each.value for each in found)


@path("time series: find_all() and async for")
async def _(w: World) -> Any:
    every = await w.Reading.find_all().to_list()
    return keys(every), [key(each) async for each in w.Reading.find().sort("_id")]


@path("time series: find_one()")
async def _(w: World) -> Any:
    return [key(await w.Reading.find_one({"place": place})) for place in ("garden", "cellar")]


@path("time series: find_one() where the first that fits has expired")
async def _(w: World) -> Any:
    return key(await w.Reading.find_one({}, sort=[("value", 1)]))


@path("time series: get()")
async def _(w: World) -> Any:
    return [key(await w.Reading.get(number)) for number in range(1, 7)]


@path("time series: first_or_none() and exists()")
async def _(w: World) -> Any:
    first = await w.Reading.find().sort("-value").first_or_none()
    return key(first), await w.Reading.find(w.Reading.place == "garden").exists()


@path("time series: count()")
async def _(w: World) -> Any:
    return await w.Reading.count(), await w.Reading.find({"place": "attic"}).count()


@path("time series: count() with a limit and a skip")
async def _(w: World) -> Any:
    limited, skipped = w.Reading.find().limit(4), w.Reading.find().skip(1)
    return await limited.count(), await skipped.count()


@path("time series: distinct()")
async def _(w: World) -> Any:
    values = await w.Reading.distinct("value", {"place": "attic"})
    return sorted(await w.Reading.distinct("place")), sorted(values)


@path("time series: distinct() of a query", without=NO_DISTINCT)
async def _(w: World) -> Any:
    return sorted(await w.Reading.find({"value": {"$gt": 10}}).distinct("place"))


@path("time series: sum(), avg(), max() and min() of a query")
async def _(w: World) -> Any:
    query = w.Reading.find
    return [
        await query().sum("value"),
        await query().avg("value"),
        await query().max("value"),
        await query().min("value"),
    ]


@path("time series: $group")
async def _(w: World) -> Any:
    groups = await w.Reading.aggregate([BY_PLACE]).to_list()
    return sorted((each["_id"], each["n"], each["least"]) for each in groups)


@path("time series: $match by what measurements share, and $group")
async def _(w: World) -> Any:
    pipeline = [{"$match": {"place": {"$in": ["attic", "garden"]}}}, BY_PLACE]
    groups = await w.Reading.aggregate(pipeline).to_list()
    return sorted((each["_id"], each["n"], each["least"]) for each in groups)


@path("time series: $sort and $limit")
async def _(w: World) -> Any:
    return keys(await w.Reading.aggregate([{"$sort": {"at": 1}}, {"$limit": 1}]).to_list())


@path("time series: $setWindowFields")
async def _(w: World) -> Any:
    so_far = {"$sum": "$value", "window": {"documents": ["unbounded", "current"]}}
    window = {"partitionBy": "$place", "sortBy": {"at": 1}, "output": {"total": so_far}}
    found = await w.Reading.aggregate([{"$setWindowFields": window}]).to_list()
    return sorted((each["_id"], each["total"]) for each in found)


@path("time series: $facet")
async def _(w: World) -> Any:
    facets = {"places": [BY_PLACE], "number": [{"$count": "n"}]}
    (found,) = await w.Reading.aggregate([{"$facet": facets}]).to_list()
    return keys(found["places"]), found["number"]


@path("time series: $lookup of measurements")
async def _(w: World) -> Any:
    found = await w.Sensor.aggregate([{"$lookup": OF_A_PLACE}]).to_list()
    return sorted((each["_id"], keys(each["found"])) for each in found)


@path("time series: $lookup from measurements")
async def _(w: World) -> Any:
    found = await w.Reading.aggregate([{"$lookup": {**OF_A_PLACE, "from": "Sensor"}}]).to_list()
    return sorted((each["_id"], keys(each["found"])) for each in found)


@path("time series: $unionWith")
async def _(w: World) -> Any:
    pipeline = [{"$unionWith": {"coll": "Reading", "pipeline": [{"$match": {"value": 90}}]}}]
    return sorted(str(key(each)) for each in await w.Roof.aggregate(pipeline).to_list())


@path("time series: $merge and $out into another collection")
async def _(w: World) -> Any:
    await w.Reading.aggregate([{"$merge": {"into": "Merged"}}]).to_list()
    await w.Reading.aggregate([{"$match": {"value": {"$gt": 10}}}, {"$out": "Copies"}]).to_list()
    return [keys(w.other[name].find()) for name in ("Merged", "Copies")]


@path("time series: a view")
async def _(w: World) -> Any:
    return keys(await w.ReadingView.find().to_list()), await w.ReadingView.find().count()


@path("time series: links to measurements")
async def _(w: World) -> Any:
    sensors = await w.Sensor.find(fetch_links=True).to_list()
    return sorted((each.id, keys(each.readings)) for each in sensors)


@path("time series: fetch_link() of a list")
async def _(w: World) -> Any:
    sensor = await w.Sensor.get(1)
    await sensor.fetch_link("readings")
    return sorted(type(each).__name__ for each in sensor.readings)


@path("time series: the driver's collection")
async def _(w: World) -> Any:
    readings = w.handle(w.Reading)
    found = await readings.find({"value": {"$lt": 60}}).to_list(None)
    one = await readings.find_one({"place": "garden"})
    places = sorted(await readings.distinct("place"))
    return keys(found), key(one), await readings.count_documents({}), places


@path("time series: insert() and insert_many()")
async def _(w: World) -> Any:
    now = w.now()
    await w.Reading(id=7, at=now, place="attic", value=1).insert()
    new = [w.Reading(id=number, at=now, place="garden", value=1) for number in (8, 9)]
    await w.Reading.insert_many(new)
    return await shown(w)


@path("time series: insert() with the key of an expired measurement")
async def _(w: World) -> Any:
    await w.Reading(id=2, at=w.now(), place="attic", value=1).insert()
    return await shown(w), await w.Reading.find({"_id": 2}).count()


@path("time series: update() by what measurements share")
async def _(w: World) -> Any:
    await w.Reading.find(w.Reading.place == "attic").update({"$set": {"place": "roof"}})
    return await shown(w)


@path("time series: update_all()")
async def _(w: World) -> Any:
    await w.Reading.update_all({"$set": {"place": "roof"}})
    return await shown(w)


@path("time series: delete() by what measurements share")
async def _(w: World) -> Any:
    await w.Reading.find(w.Reading.place == "attic").delete()
    return await shown(w)


@path("time series: update() and delete() in a bulk writer")
async def _(w: World) -> Any:
    async with w.Reading.bulk_writer() as writer:
        await w.Reading.find({"place": "cellar"}).update(
            {"$set": {"place": "garden"}}, bulk_writer=writer
        )
        await w.Reading.find({"place": "attic"}).delete(bulk_writer=writer)
    return await shown(w)


@path("time series: update_many() and delete_many() of the driver's collection")
async def _(w: World) -> Any:
    readings = w.handle(w.Reading)
    await readings.update_many({"place": "cellar"}, {"$set": {"place": "garden"}})
    await readings.delete_many({"place": "attic"})
    return await shown(w)


@path("time series: what MongoDB refuses to change")
async def _(w: World) -> Any:
    one = await w.Reading.get(1)
    writes = (
        one.set({"value": 0}),
        w.Reading.find({"value": 20}).delete(),
        w.Reading.find_one({"place": "garden"}).delete(),
        w.Reading.find({"place": "attic"}).update({"$set": {"value": 0}}),
    )

    async def sent(write: Any) -> Any:
        return await write

    return [await failure(sent(write)) for write in writes], await shown(w)
