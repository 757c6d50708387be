"""Followers where others look: views, guarded databases, `ttl-odm check`, what is sent."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from beanie import View, init_beanie

from tests.mongo.following import FAMILY, Cart, Item, Note, Step, Thread, expire, ref
from tests.mongo.models import collection_of, opened
from tests.mongo.scratch import connect
from tests.mongo.sweeping import Commands
from ttl_odm import TTLConfigurationError
from ttl_odm.beanie import ensure_indexes, ttl_database
from ttl_odm.cli.application import Target
from ttl_odm.cli.checks_mongodb import check

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.models import World


class ItemNames(View):
    name: str

    class Settings:
        source = Item
        pipeline: Any = [{"$project": {"name": 1}}]


@asynccontextmanager
async def filled(url: str, models: list[Any], **options: Any) -> AsyncIterator[World]:
    """Cart 1 has expired with item 10; cart 2 lives with item 20."""
    async with opened(url, models, **options) as world:
        for number in (1, 2):
            await Cart(id=number).insert()
            link: Any = ref(number)
            await Item(id=number * 10, cart=link, name=f"item {number}").insert()
        expire(world, 1)
        yield world


async def test_a_view_shows_live_documents(mongodb_url: str) -> None:
    async with filled(mongodb_url, [*FAMILY, ItemNames]) as world:
        assert [one.name for one in await ItemNames.find().to_list()] == ["item 2"]
        shown = list(world.raw[ItemNames.get_settings().name].find())
        assert shown == [{"_id": 20, "name": "item 2"}]
        expire(world, 2)
        assert list(world.raw[ItemNames.get_settings().name].find()) == []


async def test_a_guarded_database_knows_followers(mongodb_url: str) -> None:
    async with filled(mongodb_url, FAMILY, guard=True) as world:
        assert await Item.count() == 1
        assert await world.database["items"].count_documents({}) == 1


async def test_a_handle_of_the_same_collection_is_gated(mongodb_url: str) -> None:
    async with filled(mongodb_url, FAMILY) as world:
        assert [one["_id"] async for one in world.database["items"].find({})] == [20]
        assert await world.database["items"].find_one({"_id": 10}) is None


@pytest.mark.slow
async def test_check_names_the_index_that_is_missing(mongodb_url: str) -> None:
    async with filled(mongodb_url, FAMILY) as world:
        await ensure_indexes(Cart, Thread)
        targets = [Target("carts", "Cart", Cart), Target("threads", "Thread", Thread)]
        found = await check(world.database, targets, deep=False)
        missing = [(one.target, one.fix) for one in found if one.code == "missing-follows-index"]
        assert missing == [
            ("carts", "await ensure_indexes(Item)"),
            ("carts", "await ensure_indexes(Visit)"),
            ("carts", "await ensure_indexes(Note)"),
            ("carts", "await ensure_indexes(Step)"),
            ("threads", "await ensure_indexes(Post)"),
        ]
        assert {one.code for one in found} == {"missing-follows-index"}
        for name, keys in (("items", "cart.$id"), ("visits", "cart.$id"), ("notes", "item")):
            world.raw[name].create_index(keys)
        world.raw["posts"].create_index([("thread", 1), ("site", 1), ("x", 1)])
        await ensure_indexes(Step)
        assert await check(world.database, targets, deep=False) == []


async def test_one_command_reads_and_none_is_added_elsewhere(mongodb_url: str) -> None:
    commands = Commands()
    client = connect(mongodb_url, event_listeners=[commands])
    async with filled(mongodb_url, FAMILY) as world:
        name = world.raw.name
        database = ttl_database(client[name])
        await init_beanie(database=database, document_models=FAMILY)
        await Item.find().to_list()  # the clock is known
        commands.sent.clear()
        assert len(await Item.find(Item.id == 20).to_list()) == 1
        assert [next(iter(command)) for command in commands.sent] == ["aggregate"]
        stages = commands.sent[0]["pipeline"]
        assert [next(iter(stage)) for stage in stages[:3]] == ["$match", "$lookup", "$match"]
        assert stages[0] == {"$match": {"_id": 20}}
        commands.sent.clear()
        assert await Cart.get(2) is not None
        assert [next(iter(command)) for command in commands.sent] == ["find"]
        await collection_of(Note).find_one({"_id": 1})
        assert [next(iter(command)) for command in commands.sent] == ["find", "aggregate"]
    closing = client.close()
    if closing is not None:
        await closing


async def test_a_parent_that_beanie_has_not_seen_is_named(mongodb_url: str) -> None:
    class Late(Item):
        class Settings:
            name = "late"

    async with opened(mongodb_url, [Late]):
        if Cart._document_settings is None:
            with pytest.raises(TTLConfigurationError, match="Cart has no collection yet"):
                await Late.find().to_list()
        else:
            with pytest.raises(TTLConfigurationError, match="Cart has no lifetime in the same"):
                await Late.find().to_list()
