"""Writes of documents that live while their parents do."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from beanie import BulkWriter, Link
from beanie.exceptions import DocumentNotFound
from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from tests.mongo.following import (
    LONG_AGO,
    Cart,
    Item,
    Note,
    Post,
    Thread,
    expire,
    families,
    ref,
    transaction,
)
from tests.mongo.models import collection_of, opened
from ttl_odm import ExpiredError as AnyExpiredError
from ttl_odm.beanie import ExpiredError
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.follows.beanie.parents import Parents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.mongo.models import World


@pytest.fixture
async def world(mongodb_url: str) -> AsyncIterator[World]:
    """Cart 1 has expired with items 10 and 11, cart 2 lives with 20 and 21, and cart 3 alone."""
    async with families(mongodb_url) as made:
        for number in (1, 2, 3):
            await Cart(id=number).insert()
        for item in (10, 11, 20, 21):
            link: Any = ref(item // 10)
            await Item(id=item, cart=link, name=f"item {item}").insert()
        expire(made, 1)
        yield made


def stored(world: World, **condition: Any) -> list[int]:
    return [row["_id"] for row in world.raw["items"].find(condition).sort("_id")]


async def test_nothing_is_inserted_under_an_expired_parent(world: World) -> None:
    items = collection_of(Item)
    link: Any = ref(1)
    message = "A document of Item can't be put under carts 1, which has expired"
    with pytest.raises(ExpiredError, match=message):
        await Item(id=12, cart=link).insert()
    with pytest.raises(AnyExpiredError, match=message):
        await items.insert_one({"_id": 12, "cart": ref(1)})
    with pytest.raises(ExpiredError, match=message):
        await Item.insert_many([Item(id=22, cart=ref(2)), Item(id=12, cart=link)])  # type: ignore[arg-type]
    with pytest.raises(ExpiredError, match=message):
        await items.bulk_write([InsertOne({"_id": 22}), InsertOne({"_id": 12, "cart": ref(1)})])
    with pytest.raises(ExpiredError, match=message):
        await items.update_one({"_id": 12}, {"$set": {"cart": ref(1)}}, upsert=True)
    with pytest.raises(ExpiredError, match="under items 10, which has expired"):
        await Note(id=100, item_id=10).insert()
    with pytest.raises(ExpiredError, match=message):
        async with transaction(world) as session:
            await Item(id=12, cart=link).insert(session=session)
    assert stored(world) == [10, 11, 20, 21]


async def test_a_parent_that_is_not_there_may_have_expired(world: World) -> None:
    message = "can't be put under carts 4, which doesn't exist, or was deleted"
    with pytest.raises(ExpiredError, match=message):
        await Item(id=40, cart=ref(4)).insert()  # type: ignore[arg-type]
    with pytest.raises(ExpiredError, match=message):
        await collection_of(Item).update_many({}, {"$set": {"cart": ref(4)}})
    await Post(id=2, site="a", thread=1).insert()
    assert await Post.get(2) is not None


async def test_a_live_parent_and_none_are_no_obstacle(world: World) -> None:
    await Item(id=22, cart=ref(2)).insert()  # type: ignore[arg-type]
    await Item(id=50).insert()
    async with transaction(world) as session:
        await Item(id=23, cart=ref(2)).insert(session=session)  # type: ignore[arg-type]
    assert [one.id for one in await Item.find().sort("_id").to_list()] == [20, 21, 22, 23]
    await Post(id=1, site="a", thread=None).insert()
    assert await Post.get(1) is not None


async def test_a_transaction_sees_the_parents_that_it_has_put_itself(world: World) -> None:
    async with transaction(world) as session:
        await Cart(id=5).insert(session=session)
        await Item(id=50, cart=ref(5)).insert(session=session)  # type: ignore[arg-type]
        await collection_of(Item).update_one(
            {"_id": 20}, {"$set": {"cart": ref(5)}}, session=session
        )
    assert stored(world, **{"cart.$id": 5}) == [20, 50]


async def test_nothing_is_moved_to_an_expired_parent(world: World) -> None:
    items = collection_of(Item)
    item = await Item.get(20)
    assert item is not None
    item.cart = Link(ref(1), document_class=Cart)
    for write in (item.save, item.replace):
        with pytest.raises(ExpiredError, match="under carts 1, which has expired"):
            await write()
    moves: list[Any] = [
        items.update_one({"_id": 20}, {"$set": {"cart": ref(1)}}),
        items.update_one({"_id": 20}, {"$set": {"cart.$id": 1}}),
        items.update_many({}, {"$set": {"cart": ref(1)}}),
        items.replace_one({"_id": 20}, {"cart": ref(1)}),
        items.find_one_and_update({"_id": 20}, {"$set": {"cart": ref(1)}}),
        items.find_one_and_replace({"_id": 20}, {"cart": ref(1)}),
        items.bulk_write([UpdateOne({"_id": 20}, {"$set": {"cart": ref(1)}})]),
    ]
    for move in moves:
        with pytest.raises(ExpiredError, match="under carts 1, which has expired"):
            await move
    assert stored(world, **{"cart.$id": 2}) == [20, 21]
    result = await items.update_many({}, {"$set": {"cart": ref(3)}})
    assert (result.matched_count, result.modified_count) == (2, 2)
    assert stored(world, **{"cart.$id": 3}) == [20, 21]
    expire(world, 2)
    assert await Item.count() == 2


async def test_writes_meet_live_documents_only(world: World) -> None:
    items = collection_of(Item)
    change = {"$set": {"name": "changed"}}
    assert (await items.update_one({"_id": 10}, change)).matched_count == 0
    assert (await items.update_many({}, change)).matched_count == 2
    assert (await items.update_many({"_id": 10}, change)).matched_count == 0
    assert (await items.replace_one({"_id": 10}, {"name": "x"})).matched_count == 0
    assert await items.find_one_and_update({"_id": 10}, change) is None
    assert await items.find_one_and_delete({"_id": 10}) is None
    assert await items.find_one_and_replace({"_id": 10}, {"name": "x"}) is None
    assert (await items.delete_one({"_id": 10})).deleted_count == 0
    assert (await items.delete_many({"_id": {"$lt": 20}})).deleted_count == 0
    assert stored(world, name="changed") == [20, 21]
    assert stored(world) == [10, 11, 20, 21]
    last = await items.find_one_and_update({}, {"$set": {"name": "last"}}, sort=[("_id", -1)])
    assert last["_id"] == 21
    assert not [name for name in last if name.startswith("__ttl")]
    shown = await items.find_one_and_delete({"_id": 21}, projection={"name": 1})
    assert shown == {"_id": 21, "name": "last"}
    assert (await items.delete_many({})).deleted_count == 1
    assert stored(world) == [10, 11]


async def test_queries_of_beanie_write_live_documents(world: World) -> None:
    await Item.find().update({"$set": {"name": "all"}})
    await Item.find_one(Item.id == 10).update({"$set": {"name": "one"}})
    assert stored(world, name="all") == [20, 21]
    await Item.find(Item.id == 10).delete()
    await Item.find_one(Item.id == 20).delete()
    assert stored(world) == [10, 11, 21]
    await Item.delete_all()
    assert stored(world) == [10, 11]


async def test_documents_in_memory_hear_that_they_have_expired(world: World) -> None:
    item = await Item.get(20)
    other = await Item.get(21)
    assert item is not None
    assert other is not None
    item.name = "saved"
    await item.save()
    await item.set({"name": "set"})
    assert item.name == "set"
    await item.replace()
    await item.sync()
    expire(world, 2)
    with pytest.raises(ExpiredError, match="Item 20 has expired"):
        await item.set({"name": "late"})
    for write in (item.replace, item.delete, item.sync):
        with pytest.raises(ExpiredError):
            await write()
    with pytest.raises(ExpiredError):
        await item.save()
    world.raw["items"].delete_one({"_id": 21})
    world.raw["carts"].delete_one({"_id": 2})
    with pytest.raises(ExpiredError):
        await other.replace()
    await Cart(id=2).insert()
    with pytest.raises(DocumentNotFound) as missing:
        await other.replace()
    assert not isinstance(missing.value, ExpiredError)


@pytest.mark.parametrize("name", ["touch", "persist", "inherit_ttl"])
async def test_a_lifetime_that_is_not_theirs_cannot_be_changed(world: World, name: str) -> None:
    item = await Item.get(20)
    with pytest.raises(TTLConfigurationError, match="Item documents have no lifetime of their own"):
        await getattr(item, name)()


async def test_an_upsert_updates_what_lives_or_inserts(world: World) -> None:
    items = collection_of(Item)
    update = {"$set": {"name": "up"}, "$setOnInsert": {"cart": ref(3)}}
    assert (await items.update_one({"_id": 20}, update, upsert=True)).matched_count == 1
    made = await items.update_one({"_id": 30}, update, upsert=True)
    assert (made.matched_count, made.upserted_id) == (0, 30)
    # The key of an expired one is free.
    again = await items.update_one({"_id": 10}, update, upsert=True)
    assert again.upserted_id == 10
    assert stored(world, **{"cart.$id": 3}) == [10, 30]
    assert await items.find_one_and_update({"_id": 31}, update, upsert=True) is None
    assert (await items.replace_one({"_id": 32}, {"cart": ref(2)}, upsert=True)).upserted_id == 32
    await Item(id=33, cart=ref(2)).save()  # type: ignore[arg-type]
    assert await Item.count() == 7


async def test_keys_of_expired_documents_are_free(world: World) -> None:
    world.raw["items"].update_one({"_id": 11}, {"$set": {"code": 5}})
    await Item(id=22, cart=ref(2), code=5).insert()  # type: ignore[arg-type]
    assert stored(world) == [10, 20, 21, 22]
    world.raw["notes"].insert_one({"_id": 1, "item": 10})
    await Item(id=10, cart=ref(2)).insert()  # type: ignore[arg-type]
    assert world.raw["notes"].count_documents({}) == 0
    with pytest.raises(DuplicateKeyError):
        await Item(id=20, cart=ref(2)).insert()  # type: ignore[arg-type]
    with pytest.raises(DuplicateKeyError):
        await Item(id=23, cart=ref(2), code=5).insert()  # type: ignore[arg-type]


async def test_keys_are_free_in_transactions_and_bulks(world: World) -> None:
    async with transaction(world) as session:
        await Item(id=10, cart=ref(2)).insert(session=session)  # type: ignore[arg-type]
    await Item.insert_many([Item(id=11, cart=ref(2)), Item(id=12, cart=ref(2))])  # type: ignore[arg-type]
    assert [one.id for one in await Item.find().sort("_id").to_list()] == [10, 11, 12, 20, 21]


async def test_a_new_parent_takes_the_key_of_an_expired_one(world: World) -> None:
    world.raw["notes"].insert_many([{"_id": 1, "item": 10}, {"_id": 2, "item": 20}])
    await Cart(id=1, name="new").insert()
    assert stored(world) == [20, 21]
    assert [row["_id"] for row in world.raw["notes"].find()] == [2]
    expire(world, 2)
    async with transaction(world) as session:
        await Cart(id=2, name="new").insert(session=session)
    assert stored(world) == []
    expire(world, 3)
    await Item(id=30, cart=ref(1)).insert()  # type: ignore[arg-type]
    await collection_of(Cart).update_one({"_id": 3}, {"$set": {"name": "x"}}, upsert=True)
    assert stored(world) == [30]


@pytest.mark.slow
async def test_a_key_with_many_followers_is_freed_by_few_commands(mongodb_url: str) -> None:
    """Those that nothing follows go by one; the others, and what follows them, by thousands."""
    heard = Heard()
    async with opened(mongodb_url, [Cart, Item, Note], listeners=[heard]) as world:
        for cart, items in ((1, 3), (2, 2_100)):
            await Cart(id=cart).insert()
            keys = range(10_000 * cart, 10_000 * cart + items)
            world.raw["items"].insert_many([{"_id": key, "cart": ref(cart)} for key in keys])
            world.raw["notes"].insert_many([{"_id": key, "item": key} for key in keys])
            expire(world, cart)
            heard.commands.clear()
            await Cart(id=cart).insert()
            chunks = -(-items // 1_000)
            assert heard.commands["delete", "items"] == heard.commands["delete", "notes"] == chunks
            assert heard.commands["find", "notes"] == 0
        assert world.raw["items"].count_documents({}) == 0
        assert world.raw["notes"].count_documents({}) == 0


class Heard(CommandListener):
    """Which commands were sent to which collections."""

    def __init__(self) -> None:
        self.commands: Counter[tuple[str, object]] = Counter()

    def started(self, event: CommandStartedEvent) -> None:
        self.commands[event.command_name, event.command[event.command_name]] += 1

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


async def test_bulk_writes_do_what_their_requests_do(world: World) -> None:
    items = collection_of(Item)
    result = await items.bulk_write(
        [
            InsertOne({"_id": 22, "cart": ref(2)}),
            UpdateOne({"_id": 10}, {"$set": {"name": "b"}}),
            UpdateMany({}, {"$set": {"name": "b"}}),
            ReplaceOne({"_id": 20}, {"cart": ref(2), "name": "r"}),
            UpdateOne({"_id": 23}, {"$set": {"cart": ref(2)}}, upsert=True),
            DeleteOne({"_id": 21}),
            DeleteMany({"_id": {"$lt": 20}}),
        ]
    )
    assert result.inserted_count == 1
    assert result.matched_count == 4
    assert result.deleted_count == 1
    assert result.upserted_ids == {4: 23}
    assert stored(world) == [10, 11, 20, 22, 23]
    with pytest.raises(BulkWriteError) as failed:
        await items.bulk_write(
            [
                InsertOne({"_id": 24, "cart": ref(2)}),
                InsertOne({"_id": 20, "cart": ref(2)}),
                DeleteOne({"_id": 22}),
            ],
            ordered=False,
        )
    assert [error["index"] for error in failed.value.details["writeErrors"]] == [1]
    assert failed.value.details["nRemoved"] == 1
    async with BulkWriter() as writer:
        await Item.find(Item.id > 0).update({"$set": {"name": "w"}}, bulk_writer=writer)
    assert stored(world, name="w") == [20, 23, 24]


async def test_what_loses_its_parent_during_an_insert_is_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Parents.check

    async def check_and_wait(self: Any, documents: Any) -> Any:
        live = await check(self, documents)
        expire(world, 2)
        return live

    monkeypatch.setattr(Parents, "check", check_and_wait)
    with pytest.raises(ExpiredError, match="under carts 2, which has expired"):
        await Item(id=22, cart=ref(2)).insert()  # type: ignore[arg-type]
    world.raw["carts"].update_one({"_id": 2}, {"$currentDate": {"_ts": True}})
    with pytest.raises(ExpiredError):
        await Item.insert_many([Item(id=23, cart=ref(2)), Item(id=31, cart=ref(3))])  # type: ignore[arg-type]
    assert stored(world) == [10, 11, 20, 21, 31]


@pytest.mark.parametrize(
    "move",
    [
        lambda items, change: items.update_one({"_id": 30}, change),
        lambda items, change: items.update_many({"_id": 30}, change),
        lambda items, change: items.find_one_and_update({"_id": 30}, change),
        lambda items, change: items.replace_one({"_id": 30}, change["$set"]),
        lambda items, change: items.bulk_write([UpdateOne({"_id": 30}, change)]),
    ],
)
async def test_what_is_moved_to_a_parent_that_expires_meanwhile_goes_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch, move: Callable[..., Any]
) -> None:
    check = Parents.check
    await Item(id=30, cart=ref(3)).insert()  # type: ignore[arg-type]

    async def check_and_sweep(self: Any, documents: Any) -> Any:
        live = await check(self, documents)
        if documents:  # a bulk write asks for the parents of what it inserts, too
            world.raw["items"].delete_many({"cart.$id": 2})
            world.raw["carts"].delete_one({"_id": 2})
        return live

    monkeypatch.setattr(Parents, "check", check_and_sweep)
    with pytest.raises(ExpiredError, match="A document of Item can't be put under carts 2"):
        await move(collection_of(Item), {"$set": {"cart": ref(2)}})
    # The next parent of that key doesn't get it.
    await Cart(id=2).insert()
    assert stored(world) == [10, 11]


@pytest.mark.parametrize(("is_swept", "left"), [(True, [1]), (False, [])])
async def test_what_lives_as_an_orphan_survives_such_a_move(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_swept: bool, left: list[int]
) -> None:
    check, threads = Parents.check, world.raw["threads"]
    await Thread(id=1, site="a", number=1).insert()
    await Post(id=1, site="b", thread=1).insert()

    async def check_and_wait(self: Any, documents: Any) -> Any:
        live = await check(self, documents)
        threads.update_one({"_id": 1}, {"$set": {"ends": LONG_AGO}})
        if is_swept:
            threads.delete_one({"_id": 1})
        return live

    monkeypatch.setattr(Parents, "check", check_and_wait)
    move = collection_of(Post).update_one({"_id": 1}, {"$set": {"site": "a"}})
    if is_swept:
        assert (await move).matched_count == 1
    else:
        with pytest.raises(ExpiredError, match=r"under threads \('a', 1\), which has expired"):
            await move
    assert [row["_id"] for row in world.raw["posts"].find()] == left
