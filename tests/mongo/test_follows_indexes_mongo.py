"""The index by which the documents that follow one are found: `ensure_indexes` of their class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from beanie import init_beanie

from tests.mongo.following import FAMILY, Cart, Item, Note, Post, families
from tests.mongo.scratch import connect
from ttl_odm import TTLConfigurationError
from ttl_odm.beanie import ensure_indexes, ttl_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.models import World

NAME = "__ttl_follows"


@pytest.fixture
async def world(mongodb_url: str) -> AsyncIterator[World]:
    """Give empty collections."""
    async with families(mongodb_url) as made:
        yield made


def keys(world: World, collection: str) -> dict[str, Any]:
    """Return what the indexes of ours are on, by their names."""
    indexes = world.raw[collection].index_information()
    return {name: made["key"] for name, made in indexes.items() if name.startswith("__ttl")}


async def test_each_class_that_follows_gets_an_index_on_what_leads_to_the_parent(
    world: World,
) -> None:
    reports = await ensure_indexes(Item, Note, Post)
    assert [report.created for report in reports] == [(NAME,), (NAME,), (NAME,)]
    assert keys(world, "items") == {NAME: [("cart.$id", 1)]}
    assert keys(world, "notes") == {NAME: [("item", 1)]}
    assert keys(world, "posts") == {NAME: [("site", 1), ("thread", 1)]}
    (again,) = await ensure_indexes(Item)
    assert (again.created, again.removed, again.unchanged) == ((), (), (NAME,))


async def test_sweeps_and_finds_read_by_it(world: World) -> None:
    await ensure_indexes(Item)
    for condition in ({"cart.$id": {"$in": [1, 2]}}, {"cart.$id": 1}):
        plan = world.raw["items"].find(condition).explain()["queryPlanner"]["winningPlan"]
        assert NAME in str(plan)


@pytest.mark.parametrize(
    ("own", "options"),
    [
        ([("cart.$id", 1)], {}),
        ([("cart.$id", -1), ("name", 1)], {}),
        ([("cart.$id", "hashed")], {}),
        ([("cart.$id", 1)], {"sparse": True}),
    ],
)
async def test_an_index_of_the_applications_own_is_enough(
    world: World, own: Any, options: Any
) -> None:
    await ensure_indexes(Item)
    world.raw["items"].drop_index(NAME)
    theirs = world.raw["items"].create_index(own, **options)
    (report,) = await ensure_indexes(Item)
    assert (report.created, report.relied_on) == ((), (theirs,))
    assert keys(world, "items") == {}


async def test_ours_goes_when_the_application_has_its_own(world: World) -> None:
    await ensure_indexes(Item)
    theirs = world.raw["items"].create_index("cart.$id")  # as Beanie would, from Settings.indexes
    (report,) = await ensure_indexes(Item)
    assert (report.removed, report.relied_on) == ((NAME,), (theirs,))
    assert keys(world, "items") == {}


@pytest.mark.parametrize(
    ("own", "options"),
    [
        ([("name", 1), ("cart.$id", 1)], {}),
        ([("cart.$id", 1)], {"partialFilterExpression": {"name": "x"}}),
        ([("cart.$id", 1)], {"collation": {"locale": "en"}}),
        ([("cart.$id", 1)], {"hidden": True}),
    ],
)
async def test_an_index_that_does_not_find_all_of_them_is_not_enough(
    world: World, own: Any, options: Any
) -> None:
    theirs = world.raw["items"].create_index(own, **options)
    (report,) = await ensure_indexes(Item)
    assert (report.created, report.relied_on) == ((NAME,), ())
    assert theirs in world.raw["items"].index_information()


async def test_another_link_needs_a_rebuild(world: World) -> None:
    world.raw["items"].create_index("basket.$id", name=NAME, sparse=True)
    with pytest.raises(TTLConfigurationError, match=f"'{NAME}' of 'items' must be rebuilt"):
        await ensure_indexes(Item)
    (report,) = await ensure_indexes(Item, rebuild=True)
    assert (report.removed, report.created) == ((NAME,), (NAME,))
    assert keys(world, "items") == {NAME: [("cart.$id", 1)]}


async def test_indexes_of_an_earlier_lifetime_go(world: World) -> None:
    world.raw["items"].create_index("_ts", name="__ttl_default", expireAfterSeconds=60)
    (report,) = await ensure_indexes(Item)
    assert (report.removed, report.created) == (("__ttl_default",), (NAME,))


async def test_it_goes_when_the_class_follows_nothing_any_more(world: World) -> None:
    world.raw["carts"].create_index("shop.$id", name=NAME, sparse=True)
    (report,) = await ensure_indexes(Cart)
    assert report.removed == (NAME,)


async def test_beanie_neither_sees_nor_drops_it(mongodb_url: str, world: World) -> None:
    await ensure_indexes(Item)
    client = connect(mongodb_url)
    database = ttl_database(client[world.raw.name])
    await init_beanie(database=database, document_models=FAMILY, allow_index_dropping=True)
    assert keys(world, "items") == {NAME: [("cart.$id", 1)]}
    closing = client.close()
    if closing is not None:
        await closing
