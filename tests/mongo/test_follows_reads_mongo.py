"""Reads of documents that live while their parents do."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from tests.mongo.following import (
    LONG_AGO,
    Cart,
    Item,
    Note,
    Post,
    Shelf,
    Thread,
    expire,
    families,
    ref,
)
from tests.mongo.models import collection_of
from ttl_odm import TTLError
from ttl_odm.beanie import ExpiredError, expires_at

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.models import World


@pytest.fixture
async def world(mongodb_url: str) -> AsyncIterator[World]:
    """Cart 1 has expired with items 10 and 11; cart 2 lives with 20 and 21; 30 has no cart."""
    async with families(mongodb_url) as made:
        for number in (1, 2):
            await Cart(id=number, name=f"cart {number}").insert()
            for item in (number * 10, number * 10 + 1):
                link: Any = ref(number)
                await Item(id=item, cart=link, name=f"item {item}", tags=["a", str(item)]).insert()
                await Note(id=item * 10, item_id=item, text="x").insert()
        await Item(id=30).insert()
        made.raw["notes"].insert_one({"_id": 300, "item": 30})
        made.raw["notes"].insert_one({"_id": 400, "item": 40})
        expire(made, 1)
        yield made


async def rows(cursor: Any) -> Any:
    """Return what a pipeline gives."""
    if inspect.isawaitable(cursor):
        cursor = await cursor
    return await cursor.to_list(None)


async def test_finders_give_what_has_a_live_parent(world: World) -> None:
    assert [one.id for one in await Item.find().sort("_id").to_list()] == [20, 21]
    assert [one.id for one in await Item.find_all().to_list()] == [20, 21]
    assert [one.id async for one in Item.find(Item.id > 10)] == [20, 21]
    assert await Item.get(10) is None
    assert await Item.get(30) is None
    found = await Item.get(20)
    assert found is not None
    assert found.name == "item 20"
    assert set(found.model_dump()) >= {"id", "name", "cart"}
    assert await Item.find_one({"name": "item 11"}) is None
    assert await Item.find(Item.cart.id == 1).to_list() == []  # type: ignore[attr-defined]
    assert len(await Item.find(Item.cart.id == 2).to_list()) == 2  # type: ignore[attr-defined]
    every = await Item.find(include_expired=True).to_list()
    assert [one.id for one in every] == [10, 11, 20, 21, 30]
    assert await Item.find(include_expired=True).count() == 5


@pytest.mark.slow
async def test_any_number_of_levels_count(world: World) -> None:
    assert [one.id for one in await Note.find().sort("_id").to_list()] == [200, 210]
    assert await Note.get(100) is None
    assert await Note.get(300) is None
    assert await Note.find(Note.text == "x").count() == 2
    expire(world, 2)
    assert await Note.find().to_list() == []


async def test_a_limit_and_a_skip_count_live_documents(world: World) -> None:
    found = await Item.find().sort("-_id").limit(1).to_list()
    assert [one.id for one in found] == [21]
    found = await Item.find().sort("_id").skip(1).to_list()
    assert [one.id for one in found] == [21]
    raw = collection_of(Item)
    assert [one["_id"] async for one in raw.find({}, sort=[("_id", 1)], limit=-1)] == [20]
    assert [one["_id"] async for one in raw.find({}, batch_size=1).limit(1)] == [20]
    assert await Item.find().skip(1).count() == 1
    assert await Item.find().limit(1).count() == 1


async def test_projections_show_what_they_show_elsewhere(world: World) -> None:
    items = collection_of(Item)
    assert await items.find_one({}, {"name": 1}) == {"_id": 20, "name": "item 20"}
    assert await items.find_one({}, ["name"]) == {"_id": 20, "name": "item 20"}
    assert await items.find_one({}, {"_id": 0, "name": 1}) == {"name": "item 20"}
    assert await items.find_one({}, {"_id": 1}) == {"_id": 20}
    left = await items.find_one(20, {"cart": 0, "tags": 0, "code": 0})
    assert left == {"_id": 20, "name": "item 20"}
    whole = await items.find_one(21)
    assert whole["cart"] == ref(2)
    assert not [name for name in whole if name.startswith("__ttl")]
    for projection in ({"tags": {"$slice": 1}}, {"tags": {"$elemMatch": {"$eq": "a"}}}):
        with pytest.raises(TTLError, match="selects parts of an array"):
            await items.find_one({}, projection)


async def test_what_no_pipeline_does_is_refused(world: World) -> None:
    items = collection_of(Item)
    with pytest.raises(TTLError, match=r"The filter has \$where"):
        await items.find_one({"$where": "true"})
    with pytest.raises(TTLError, match=r"The filter has \$near"):
        await items.find_one({"$and": [{"place": {"$near": [1, 2]}}]})
    with pytest.raises(TTLError, match="support showRecordId"):
        await items.find({}, show_record_id=True).to_list(None)
    with pytest.raises(TTLError, match="find_raw_batches"):
        items.find_raw_batches({})
    with pytest.raises(TTLError, match=r"distinct\('tags.0'\)"):
        await items.distinct("tags.0")
    ends = {"from": "items", "startWith": "$x", "connectFromField": "x", "connectToField": "_id"}
    graph = {**ends, "as": "y"}
    with pytest.raises(TTLError, match=r"\$graphLookup can't walk 'items'"):
        await rows(collection_of(Shelf).aggregate([{"$graphLookup": graph}]))


async def test_counts_and_distinct_values_are_of_live_documents(world: World) -> None:
    items = collection_of(Item)
    assert await Item.count() == 2
    assert await Item.find_all().count() == 2
    assert await items.count_documents({"name": "item 10"}) == 0
    assert await items.estimated_document_count() == 2
    assert sorted(await items.distinct("tags")) == ["20", "21", "a"]
    assert await items.distinct("name", {"_id": {"$lt": 21}}) == ["item 20"]
    assert sorted(await items.find({"_id": 20}).distinct("tags")) == ["20", "a"]
    assert sorted(await Item.distinct("name", {})) == ["item 20", "item 21"]
    assert await items.distinct("cart.$id") == [2]
    assert await items.distinct("missing") == []
    assert len(await items.find({}, include_expired=True).distinct("name")) == 5


async def test_pipelines_see_live_documents(world: World) -> None:
    items, shelves = collection_of(Item), collection_of(Shelf)
    assert [one["_id"] for one in await rows(items.aggregate([{"$sort": {"_id": 1}}]))] == [20, 21]
    total = [{"$match": {"_id": {"$gt": 10}}}, {"$group": {"_id": None, "n": {"$sum": 1}}}]
    assert await rows(items.aggregate(total)) == [{"_id": None, "n": 2}]
    assert await Item.find().max("_id") == 21
    assert await rows(items.aggregate([], include_expired=True)) != []
    for item in (10, 20):
        await Shelf(id=item, item=ref(item, "items")).insert()
    look = {"from": "items", "localField": "item.$id", "foreignField": "_id", "as": "found"}
    looked = await rows(shelves.aggregate([{"$lookup": look}, {"$sort": {"_id": 1}}]))
    assert [[one["_id"] for one in row["found"]] for row in looked] == [[], [20]]
    assert not [name for name in looked[1]["found"][0] if name.startswith("__ttl")]
    united = await rows(shelves.aggregate([{"$unionWith": "items"}, {"$project": {"name": 1}}]))
    assert sorted(one.get("name", "") for one in united) == ["", "", "item 20", "item 21"]
    facet = [{"$facet": {"all": [{"$count": "n"}]}}]
    assert await rows(items.aggregate(facet)) == [{"all": [{"n": 2}]}]


@pytest.mark.slow
async def test_expressions_are_not_asked_of_expired_documents(world: World) -> None:
    items = collection_of(Item)
    bad = {"$expr": {"$gt": [{"$divide": [1, {"$subtract": ["$_id", 10]}]}, 0]}}
    assert {one["_id"] async for one in items.find(bad)} == {20, 21}
    assert await items.count_documents(bad) == 2
    assert len(await rows(items.aggregate([{"$match": bad}]))) == 2
    later = [{"$match": {"_id": {"$gte": 10}}}, {"$match": bad}]
    assert len(await rows(items.aggregate(later))) == 2


async def test_links_are_fetched_if_they_live(world: World) -> None:
    for item in (10, 20):
        await Shelf(id=item, item=ref(item, "items")).insert()
    shelves = await Shelf.find(fetch_links=True).sort("_id").to_list()
    assert [getattr(shelf.item, "name", None) for shelf in shelves] == [None, "item 20"]
    items = await Item.find(fetch_links=True).sort("_id").to_list()
    assert [getattr(one.cart, "name", None) for one in items] == ["cart 2", "cart 2"]
    assert items[0].expires_at == items[0].cart.expires_at  # type: ignore[union-attr]
    assert not items[0].is_expired


@pytest.mark.slow
async def test_orphans_live_where_that_is_declared(world: World) -> None:
    await Thread(id=1, site="a", number=1, ends=LONG_AGO).insert()
    await Thread(id=2, site="a", number=2).insert()
    places = [("a", 1), ("a", 2), ("b", 1), ("a", None), (None, None)]
    documents = [
        {"_id": number, "site": site, "thread": thread}
        for number, (site, thread) in enumerate(places)
    ]
    world.raw["posts"].insert_many(documents)
    assert [one.id for one in await Post.find().sort("_id").to_list()] == [1, 2, 3, 4]
    assert await Post.count() == 4


@pytest.mark.slow
async def test_the_database_says_when_a_document_expires(world: World) -> None:
    cart, item, note = await Cart.get(2), await Item.get(20), await Note.get(200)
    assert cart is not None
    assert item is not None
    assert note is not None
    assert await expires_at(item) == await expires_at(note) == cart.expires_at
    assert await expires_at(cart) == cart.expires_at
    with pytest.raises(TTLError, match="which only the database can tell"):
        _ = item.expires_at
    await cart.persist()
    assert await expires_at(item) is None
    expire(world, 2)
    world.raw["carts"].update_one({"_id": 2}, {"$unset": {"ttl": ""}})
    with pytest.raises(ExpiredError, match="Item 20 has expired"):
        await expires_at(item)


async def test_what_waits_in_a_cursor_is_judged_once_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import timedelta

    from ttl_odm.beanie.policy.bindings import registry_of

    cursor = collection_of(Item).find({}).sort("_id", 1)
    assert (await cursor.next())["_id"] == 20
    clock = registry_of(world.database.client).clock
    latest = clock.at_most() + timedelta(hours=2)
    monkeypatch.setattr(type(clock), "at_most", lambda _: latest)
    assert [one["_id"] async for one in cursor] == []


async def test_cursors_go_on_by_batches_and_can_be_copied(world: World) -> None:
    cursor = collection_of(Item).find({}, batch_size=1).sort("_id", 1)
    assert [one["_id"] for one in await cursor.to_list(None)] == [20, 21]
    assert [one["_id"] for one in await cursor.clone().to_list(1)] == [20]
    again = cursor.rewind()
    again = await again if inspect.isawaitable(again) else again
    assert [one["_id"] for one in await again.to_list(None)] == [20, 21]
    plan = collection_of(Item).find({"_id": 20}).explain()
    assert "items" in str(await plan if inspect.isawaitable(plan) else plan)


async def test_documents_of_other_classes_show_no_parents(world: World) -> None:
    raw = collection_of(Item).with_options(codec_options=CodecOptions(RawBSONDocument))
    found = await raw.find({}).to_list(None)
    assert [one["_id"] for one in found] == [20, 21]
    one = await raw.find_one({})
    assert not [name for name in (*found[0], *one) if name.startswith("__ttl")]


async def test_the_first_document_is_found_by_all_that_a_find_takes(world: World) -> None:
    items = collection_of(Item)
    assert (await items.find_one(sort=[("_id", -1)]))["_id"] == 21
    assert (await items.find_one({}, sort=[("_id", 1)], skip=1))["_id"] == 21
    assert (await items.find_one(filter={"_id": {"$gt": 10}}))["_id"] == 20
    assert await items.find_one(10, include_expired=False) is None
    assert (await items.find_one(10, include_expired=True))["_id"] == 10
    with pytest.raises(TTLError, match="support showRecordId"):
        await items.find_one({}, show_record_id=True)


async def test_a_changed_default_takes_effect_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cart, "__ttl__", None)
    assert await Item.count() == 4
    assert await Note.get(100) is not None
    monkeypatch.setattr(Cart, "__ttl__", 3600)
    assert await Item.count() == 2
    assert await Note.get(100) is None
