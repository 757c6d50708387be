"""A stored default in transactions, handles, caches, links, views, migrations and displacement."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

import asyncio
import inspect
from copy import copy, deepcopy
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from beanie import Document, View, init_beanie
from pymongo import ReadPreference
from pymongo.errors import DuplicateKeyError, OperationFailure

from tests.mongo.models import BEANIE
from tests.mongo.stored import HOUR, Carts, carts, declared
from ttl_odm import Stored, TTLConfigurationError, TTLError
from ttl_odm.beanie import (
    Archive,
    ExpiredError,
    TTLMixin,
    disable,
    enable,
    ensure_indexes,
    find_strays,
    repair_strays,
    set_policy,
    ttl_database,
)
from ttl_odm.beanie.policy.bindings import collection_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Ticket(Document):
    id: int  # type: ignore[assignment]
    cart: Any

    class Settings:
        name = "tickets"


@pytest.fixture
async def place(mongodb_url: str) -> AsyncIterator[Carts]:
    async with carts(mongodb_url) as made:
        yield made


async def awaited(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


async def begun(place: Carts) -> Any:
    """Begin a transaction of the application's."""
    session = await awaited(place.database.client.start_session())
    await awaited(session.start_transaction())
    return session


# Transactions


async def test_a_transaction_follows_a_change_that_was_made_after_its_snapshot(
    place: Carts,
) -> None:
    place.add(1, age=600)
    session = await begun(place)
    assert await place.collection.find_one({"_id": 1}, session=session) is not None

    await set_policy(place.model, 60, by="ann")

    assert await place.collection.find_one({"_id": 1}, session=session) is None
    update = {"$set": {"x": 1}}
    result = await place.collection.update_one({"_id": 1}, update, session=session)
    assert result.matched_count == 0
    await session.abort_transaction()
    await awaited(session.end_session())


async def test_in_a_transaction_the_key_of_what_has_expired_is_free(place: Carts) -> None:
    place.add(1, age=600)
    place.put(60)
    session = await begun(place)

    await place.collection.insert_one({"_id": 1, "name": "new"}, session=session)
    await session.commit_transaction()

    await awaited(session.end_session())
    assert place.stored.count_documents({"_id": 1, "name": "new"}) == 1


async def test_who_displaces_in_a_transaction_and_who_raises_the_default_exclude_each_other(
    place: Carts,
) -> None:
    place.add(1, age=600)
    place.put(60)
    session = await begun(place)
    assert await place.collection.find_one({"_id": 7}, session=session) is None  # the snapshot
    place.put(HOUR)
    place.put(60)

    with pytest.raises(OperationFailure) as caught:
        await place.collection.insert_one({"_id": 1}, session=session)

    assert caught.value.has_error_label("TransientTransactionError")
    await awaited(session.end_session())
    assert place.keys() == {1}


async def test_a_raise_in_the_middle_of_a_displacement_keeps_what_lives(place: Carts) -> None:
    place.add(1, age=600, name="old")
    place.put(60)
    place.commands.before["findAndModify"] = [lambda: place.put(HOUR)]

    with pytest.raises(DuplicateKeyError):
        await place.collection.insert_one({"_id": 1, "name": "new"})

    assert place.stored.count_documents({"name": "old"}) == 1


async def test_an_upsert_meets_what_a_raise_has_brought_back(place: Carts) -> None:
    place.add(1, age=600, name="old")
    place.put(60)
    place.commands.before["update"] = [lambda: place.put(HOUR)]

    update = {"$set": {"x": 1}}
    result = await place.collection.update_one({"_id": 1}, update, upsert=True)

    assert result.upserted_id is None
    assert place.stored.count_documents({"name": "old", "x": 1}) == 1


# Handles, cursors, views


async def test_other_handles_follow_it_as_well(place: Carts) -> None:
    place.add(1, age=600)
    handle = place.collection.with_options(read_preference=ReadPreference.PRIMARY)
    other = place.database.client
    again = ttl_database(other[place.raw.name])["carts"]
    for ttl, found in ((60, None), (HOUR, 1)):
        place.put(ttl)
        for each in (handle, again):
            document = await each.find_one({})
            assert (document and document["_id"]) == found


async def test_a_cursor_asks_when_it_is_read_not_when_it_is_made(place: Carts) -> None:
    place.add(*range(5), age=600, tags=["a", "b"])
    made = [
        place.collection.find({}),
        place.collection.find({}).sort("_id", 1).limit(5),
        place.collection.find({"tags": "a"}, {"tags.$": 1}),
        place.collection.find({}).clone(),
        place.collection.find({}, {"_id": 1}),
    ]
    place.put(60)
    for cursor in made:
        assert await cursor.to_list(None) == []
    place.put(HOUR)
    for cursor in made:
        rewound = cursor.rewind()
        cursor = await rewound if inspect.isawaitable(rewound) else rewound  # noqa: PLW2901
        assert len(await cursor.to_list(None)) == 5


@pytest.mark.slow
@pytest.mark.parametrize("is_begun", [False, True])
async def test_copies_of_a_find_follow_it_whatever_the_find_has_of_it(
    place: Carts, *, is_begun: bool
) -> None:
    place.add(*range(6), age=600)
    finds = [
        place.collection.find({"name": {"$exists": False}}),
        place.collection.find({}).limit(6),
        place.collection.find({}).sort("_id").skip(3),
        place.collection.find({}, {"name": {"$toUpper": "$name"}}),
        place.collection.find({}, limit=2, skip=1),
    ]
    sizes = [6, 6, 3, 6, 2]
    if is_begun:
        assert [len(await find.to_list(None)) for find in finds] == sizes
    for find, size in zip(finds, sizes, strict=True):
        for duplicate in (find.clone(), copy(find), deepcopy(find), find.clone().clone()):
            place.put(60)
            assert await duplicate.clone().to_list(None) == []
            assert await duplicate.distinct("_id") == []
            place.put(HOUR)
            assert len(await duplicate.clone().distinct("_id")) == 6
            assert len(await duplicate.to_list(None)) == size
            rewound = await awaited(duplicate.rewind())
            assert len(await rewound.to_list(None)) == size


@pytest.mark.skipif(BEANIE >= 2, reason="Motor's own ways to read")
@pytest.mark.filterwarnings("ignore:The (fetch_next|next_object):DeprecationWarning")
@pytest.mark.parametrize("read", ["find", "aggregate"])
async def test_what_asks_for_batches_by_itself_follows_it(place: Carts, read: str) -> None:
    for number in range(6):
        place.add(number, age=600)
    for ttl, size in ((60, 0), (HOUR, 6)):
        made = []
        for _ in range(2):
            argument: Any = {} if read == "find" else []
            made.append(getattr(place.collection, read)(argument))
        place.put(ttl)
        told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        found: list[Any] = []

        def tell(document: Any, error: Any, told: Any = told, found: Any = found) -> None:
            assert error is None
            told.set_result(None) if document is None else found.append(document)

        made[0].each(tell)
        await told
        assert len(found) == size
        fetched = 0
        while await made[1].fetch_next:
            assert made[1].next_object() is not None
            fetched += 1
        assert fetched == size


@pytest.mark.skipif(BEANIE >= 2, reason="Motor's own ways to read")
@pytest.mark.filterwarnings("ignore:The (fetch_next|next_object):DeprecationWarning")
@pytest.mark.parametrize("ttl", [None, HOUR], ids=["stored", "in code"])
async def test_what_asks_for_batches_by_itself_may_show_an_element_by_position(
    mongodb_url: str, ttl: int | None
) -> None:
    async with carts(mongodb_url, declared(ttl)) as place:
        place.add(1, 2, age=600, tags=["x", "y"])
        place.add(3, age=2 * HOUR, tags=["x", "y"])
        for options, keys in (({}, [1, 2]), ({"skip": 1}, [2]), ({"limit": 1}, [1])):
            cursor = place.collection.find({"tags": "y"}, {"tags.$": 1}, **options).sort("_id")
            found = []
            while await cursor.fetch_next:
                found.append(cursor.next_object())
            shown = [(document["_id"], document["tags"]) for document in found]
            assert shown == [(key, ["y"]) for key in keys]


async def test_all_that_reads_a_page_follows_it(place: Carts) -> None:
    place.add(*range(6), age=600)
    page: Any = {"skip": 1, "limit": 3}
    for ttl, size in ((60, 0), (HOUR, 3)):
        place.put(ttl)
        assert await place.collection.count_documents({}, **page) == size
        place.put(60 + HOUR - ttl)
        assert await place.model.find(**page).count() == 3 - size
        place.put(ttl)
        assert len(await place.model.find(**page).to_list()) == size
        first = await place.collection.find_one({}, skip=1)
        assert (first is not None) is (size > 0)
        stages = [{"$sort": {"_id": 1}}, {"$skip": 1}, {"$limit": 3}]
        assert len(await place.model.aggregate(stages).to_list()) == size
        assert len([row async for row in place.model.find(**page)]) == size


@pytest.mark.parametrize("is_begun", [False, True])
async def test_the_plan_of_a_find_is_that_of_what_is_sent(place: Carts, *, is_begun: bool) -> None:
    place.add(*range(6), age=600)
    finds = [place.collection.find({}), place.collection.find({}).limit(4)]
    if is_begun:
        assert [len(await find.to_list(None)) for find in finds] == [6, 4]
    for find, size in zip(finds, (6, 4), strict=True):
        place.put(60)
        assert (await find.explain())["executionStats"]["nReturned"] == 0
        place.put(HOUR)
        assert (await find.explain())["executionStats"]["nReturned"] == size


async def test_each_batch_of_a_cursor_follows_it(place: Carts) -> None:
    place.add(*range(6), age=600)
    cursor = place.collection.find({}).batch_size(2)
    assert await anext(aiter(cursor))
    place.put(60)

    assert len([row async for row in cursor]) <= 1  # what had come with the first batch


async def test_what_is_expired_can_still_be_asked_for(place: Carts) -> None:
    place.add(1, age=600)
    place.put(60)
    assert await place.collection.count_documents({}, include_expired=True) == 1
    assert len(await place.collection.find({}, include_expired=True).to_list(None)) == 1
    assert len(await place.model.find(include_expired=True).to_list()) == 1


async def test_reads_that_are_complete_before_anything_can_be_asked_are_refused(
    place: Carts,
) -> None:
    with pytest.raises(
        TTLError, match=rf"find_raw_batches\(\) can't read '{place.stored.full_name}'"
    ):
        place.collection.find_raw_batches({})
    place.collection.find_raw_batches({}, include_expired=True)


async def test_a_view_of_beanies_follows_it(mongodb_url: str) -> None:
    model = declared()

    class Names(View):
        name: str

        class Settings:
            source = model
            pipeline: ClassVar[Any] = [{"$project": {"name": 1}}]

    async with carts(mongodb_url, model) as place:
        await init_beanie(database=place.database, document_models=[model, Names])
        place.add(1, age=600, name="ann")
        for ttl, names in ((60, []), (HOUR, ["ann"]), (None, ["ann"]), (60, [])):
            place.put(ttl)
            assert [row.name for row in await Names.find().to_list()] == names


async def test_links_follow_it(place: Carts) -> None:
    await init_beanie(database=place.database, document_models=[place.model, Ticket])
    place.add(1, age=600)
    place.raw["tickets"].insert_one({"_id": 1, "cart": {"$ref": "carts", "$id": 1}})
    pipeline = [
        {"$lookup": {"from": "carts", "localField": "cart.$id", "foreignField": "_id", "as": "of"}}
    ]
    for ttl, count in ((60, 0), (HOUR, 1)):
        place.put(ttl)
        found = collection_of(Ticket).aggregate(pipeline)
        found = await found if inspect.isawaitable(found) else found
        (row,) = await found.to_list(None)
        assert len(row["of"]) == count


async def test_a_graph_a_union_and_a_facet_follow_it(place: Carts) -> None:
    place.raw["plain"].insert_one({"_id": 0})
    place.add(1, age=600)
    union: list[Any] = [{"$unionWith": "carts"}, {"$match": {"_id": 1}}]
    graph: list[Any] = [
        {
            "$graphLookup": {
                "from": "carts",
                "startWith": 1,
                "connectFromField": "_id",
                "connectToField": "_id",
                "as": "found",
            }
        },
        {"$match": {"found": {"$ne": []}}},
    ]
    facet = [{"$facet": {"found": union}}, {"$match": {"found": {"$ne": []}}}]
    for ttl, count in ((60, 0), (HOUR, 1)):
        place.put(ttl)
        for pipeline in (union, graph, facet):
            cursor = place.database["plain"].aggregate(pipeline)
            cursor = await cursor if inspect.isawaitable(cursor) else cursor
            assert len(await cursor.to_list(None)) == count


async def test_a_merge_follows_it(place: Carts) -> None:
    place.raw["plain"].insert_one({"_id": 1, "name": "new"})
    for ttl, merged in ((60, {"name"}), (HOUR, {"name", "old"})):
        place.stored.delete_many({})
        place.add(1, age=600, old=1)
        place.put(ttl)
        cursor = place.database["plain"].aggregate([{"$merge": "carts"}])
        cursor = await cursor if inspect.isawaitable(cursor) else cursor
        await cursor.to_list(None)
        row = place.stored.find_one({"_id": 1})
        assert row is not None
        assert row.keys() - {"_id", "_ts"} == merged


# Documents


async def test_writes_of_what_has_expired_by_it_are_refused(place: Carts) -> None:
    cart = await place.model(id=1).insert()
    past = place.now() - timedelta(seconds=600)
    place.stored.update_one({"_id": 1}, {"$set": {"_ts": past}})
    place.put(60)
    for write in (cart.replace, cart.delete, cart.touch, cart.persist, cart.sync):
        with pytest.raises(ExpiredError):
            await write()
    with pytest.raises(ExpiredError):
        await cart.set({"name": "x"})
    place.put(HOUR)
    await cart.set({"name": "x"})


async def test_a_cache_goes_by_what_was_noted_last_and_not_for_long(
    mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("ttl_odm.stored.beanie.lookup.monotonic", lambda: clock[0])

    class Kept(TTLMixin, Document):
        __ttl__ = Stored(HOUR)
        __ttl_purge__ = "sweeper"
        id: int  # type: ignore[assignment]

        class Settings:
            name = "carts"
            use_cache = True
            cache_expiration_time = timedelta(hours=2)

    async with carts(mongodb_url, Kept) as place:
        place.add(1, age=600)
        assert len(await Kept.find().to_list()) == 1
        place.put(60)
        assert len(await Kept.find().to_list()) == 1
        clock[0] += 11
        assert len(await Kept.find().to_list()) == 0
        place.put(HOUR)
        clock[0] += 11
        assert len(await Kept.find().to_list()) == 1
        await set_policy(Kept, 60, by="ann")
        assert len(await Kept.find().to_list()) == 0


async def test_an_archive_takes_what_has_expired_by_it(mongodb_url: str) -> None:
    model = declared(__ttl_archive__=Archive("kept"))
    async with carts(mongodb_url, model) as place:
        place.add(1, 2, age=600)
        assert (await place.sweep()).archived == 0
        place.put(60)
        await place.collection.insert_one({"_id": 1, "name": "new"})
        assert place.raw["kept"].count_documents({}) == 1
        assert (await place.sweep()).archived == 1
        assert place.keys() == {1}


async def test_a_capped_collection_cannot_be_swept_by_it(mongodb_url: str) -> None:
    async with carts(mongodb_url, begun=False) as place:
        place.raw.drop_collection("carts")
        place.raw.create_collection("carts", capped=True, size=100_000)
        await ensure_indexes(place.model)
        place.add(1, age=600)
        place.put(60)
        assert await place.shown() == set()
        (target,) = (await place.sweep()).targets
        assert "a capped collection has none" in str(target.error)


async def test_a_class_of_others_may_have_one(mongodb_url: str) -> None:
    class Foreign(Document):
        id: int  # type: ignore[assignment]

        class Settings:
            name = "carts"

    enable(Foreign, Stored(HOUR), purge="sweeper")
    try:
        async with carts(mongodb_url, Foreign) as place:
            place.add(1, age=600)
            assert await place.shown() == {1}
            await set_policy(Foreign, 60, by="ann")
            assert await place.shown() == set()
    finally:
        disable(Foreign)


async def test_strays_are_found_whatever_is_stored(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared(purge="native"), begun=False) as place:
        place.add(1, age=600, ttl=60)
        assert (await find_strays(place.model)).found != ()
        assert await repair_strays(place.model) == 1


async def test_other_services_store_none(mongodb_url: str) -> None:
    async with carts(mongodb_url, begun=False) as place:
        plain = place.database.client[place.raw.name]
        for backend in ("documentdb", "cosmos"):
            with pytest.raises(TTLConfigurationError, match="only in MongoDB"):
                await init_beanie(
                    database=ttl_database(plain, backend=backend), document_models=[declared()]
                )
