"""Distinct values, through the driver's collections and cursors that Beanie hands out.

The server knows no `$$NOW` there. Those of classes and queries are in `counts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie.operators import In
from bson import Regex

from tests.leaks_mongo.models import IGNORING_CASE
from tests.leaks_mongo.paths_conditions import failing
from tests.leaks_mongo.paths_numbers import NO_DISTINCT
from tests.leaks_mongo.registry import path

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import World

HIGH = {"score": {"$gt": 45}}


@path("distinct: keys")
async def _(w: World) -> Any:
    return sorted(await w.Event.distinct("_id")), sorted(await w.Token.distinct("_id"))


@path("distinct: parts of documents, and elements of arrays")
async def _(w: World) -> Any:
    lengths = await w.Event.distinct("place.coordinates", HIGH)
    return (
        sorted(lengths),
        sorted(await w.Badge.distinct("owner.name")),
        await w.Badge.distinct("codes"),
    )


@path("distinct: by operators of Beanie's, and by an $or")
async def _(w: World) -> Any:
    found = await w.Event.distinct("name", In(w.Event.kind, ["b", "c"]))
    return sorted(found), sorted(await w.Event.distinct("name", {"$or": [HIGH, {"kind": "c"}]}))


@path("distinct: by a regular expression for the key")
async def _(w: World) -> Any:
    return sorted(await w.Token.distinct("_id", {"_id": Regex("^(Ann|bob)")}))


@path("distinct: under a collation")
async def _(w: World) -> Any:
    asked = {"_id": {"$in": ["ANN-1", "BOB-1"]}}
    return sorted(await w.Token.distinct("_id", asked, collation=IGNORING_CASE))


@path("distinct: a query with a sort and a limit", without=NO_DISTINCT)
async def _(w: World) -> Any:
    return sorted(await w.Event.find(HIGH).sort("-score").limit(2).distinct("name"))


@path("distinct: a class of a union, and one with children")
async def _(w: World) -> Any:
    return sorted(await w.Post.distinct("title")), sorted(await w.Car.distinct("seats"))


@path("distinct: where a date decides")
async def _(w: World) -> Any:
    models = w.Visit, w.Offer, w.Voucher, w.Adopted
    return [sorted(await w.handle(model).distinct("name")) for model in models]


@path("distinct: where the default is -1")
async def _(w: World) -> Any:
    return sorted(await w.Parked.distinct("name"))


@path("distinct: collection.distinct() with a filter by keyword, and with nothing that fits")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    found = await events.distinct("name", filter=HIGH)
    return sorted(found), await events.distinct("name", {"kind": "c"})


@path("distinct: collection.distinct() in a session and in a transaction")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    async with w.session() as session:
        alone = await events.distinct("kind", session=session)
    async with w.transaction() as session:
        await w.Event.find_one({"_id": 12}).delete(session=session)
        inside = await events.distinct("kind", HIGH, session=session)
    return sorted(alone), sorted(inside)


@path("distinct: collection.distinct() of a collection with other options")
async def _(w: World) -> Any:
    events = w.handle(w.Event).with_options()
    return sorted(await events.distinct("kind")), sorted(await w.database["Event"].distinct("kind"))


@path("distinct: collection.distinct() of a view")
async def _(w: World) -> Any:
    return sorted(await w.handle(w.EventView).distinct("kind"))


@path("distinct: collection.distinct() by what fails on an expired document")
async def _(w: World) -> Any:
    return sorted(await w.handle(w.Event).distinct("kind", failing(4)))


@path("distinct: cursor.distinct() of all, and of elements of arrays")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    return sorted(await events.find().distinct("kind")), sorted(
        await events.find().distinct("tags")
    )


@path("distinct: cursor.distinct() of one key")
async def _(w: World) -> Any:
    events = w.handle(w.Event)
    return [await events.find({"_id": number}).distinct("name") for number in (1, 4, 5)]


@path("distinct: cursor.distinct() with a sort, a skip and a limit, which don't count")
async def _(w: World) -> Any:
    cursor = w.handle(w.Event).find(HIGH).sort("score", -1).skip(1).limit(1)
    return sorted(await cursor.distinct("name"))


@path("distinct: cursor.distinct() with a projection")
async def _(w: World) -> Any:
    return sorted(await w.handle(w.Event).find(HIGH, {"name": 1}).distinct("kind"))


@path("distinct: cursor.distinct() under a collation")
async def _(w: World) -> Any:
    cursor = w.handle(w.Token).find({"user": "BOB"}).collation(IGNORING_CASE)
    return sorted(await cursor.distinct("_id"))


@path("distinct: cursor.distinct() in a session, with a comment and a time limit")
async def _(w: World) -> Any:
    async with w.session() as session:
        cursor = w.handle(w.Event).find(HIGH, session=session).comment("why").max_time_ms(60_000)
        return sorted(await cursor.distinct("name"))


@path("distinct: cursor.distinct() of a cursor that was read")
async def _(w: World) -> Any:
    cursor = w.handle(w.Event).find(HIGH, sort=[("score", 1)])
    first = await cursor.next()
    return first["_id"], sorted(await cursor.distinct("name"))


@path("distinct: cursor.distinct() of a cursor with a limit that was read, and of its clone")
async def _(w: World) -> Any:
    cursor = w.handle(w.Event).find(HIGH, sort=[("score", -1)], limit=2)
    read = [each["_id"] for each in await cursor.to_list(None)]
    return (
        read,
        sorted(await cursor.distinct("name")),
        sorted(await cursor.clone().distinct("name")),
    )


@path("distinct: cursor.distinct() by what fails on an expired document")
async def _(w: World) -> Any:
    return sorted(await w.handle(w.Event).find(failing(4)).distinct("kind"))


@path("distinct: cursor.distinct() where a date decides")
async def _(w: World) -> Any:
    models = w.Visit, w.Offer, w.Reading
    return [
        sorted(await w.handle(model).find({"_id": {"$gt": 0}}).distinct("_id")) for model in models
    ]
