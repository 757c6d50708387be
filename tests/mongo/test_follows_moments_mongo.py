"""What others do to a family at the worst moment of a write or a sweep, and what must come of it.

`test_follows_races_mongo` meets such moments by chance; here each comes at its place, between two
commands of the library.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest

from tests.mongo.following import Cart, Item, Note, Visit, expire, families, ref
from tests.mongo.models import collection_of
from ttl_odm.beanie.purge.removal import Remover
from ttl_odm.beanie.sweep.store import open_store
from ttl_odm.follows.beanie import removal
from ttl_odm.follows.beanie.methods import FollowersMethods
from ttl_odm.follows.beanie.parents import Parents
from ttl_odm.follows.beanie.removal import FollowersRemoval
from ttl_odm.follows.sweep import ORPHANS
from ttl_odm.sweeper import BatchRequest, Hooks, Part

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.mongo.models import World
    from ttl_odm.beanie.sweep.store import MongoStore

CARTS = Part.INHERITING
"""What finds carts that have no ttl of their own."""


class BrokenOffError(Exception):
    """The process ended here."""


@pytest.fixture
async def world(mongodb_url: str) -> AsyncIterator[World]:
    """Cart 1 has expired with items 10 to 13, of which each has a note; cart 2 lives with 20."""
    async with families(mongodb_url) as made:
        for number in (1, 2):
            await Cart(id=number).insert()
        items = [*range(10, 14), 20]
        made.raw["items"].insert_many([{"_id": item, "cart": ref(item // 10)} for item in items])
        made.raw["notes"].insert_many([{"_id": item, "item": item} for item in items])
        expire(made, 1)
        yield made


def keys(world: World, collection: str) -> list[int]:
    return [row["_id"] for row in world.raw[collection].find().sort("_id")]


async def swept(world: World) -> MongoStore:
    """Return a store that has looked at the carts."""
    store = open_store(world.database, [Cart, Item, Note])
    await store.due("carts")
    return store


def request(part: Part, size: int = 100, resume: Any = None) -> BatchRequest:
    return BatchRequest("carts", part, size, resume, hooks=Hooks())


def do_before(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], object]
) -> None:
    """Have something done before the first call of a method."""
    method, acts = getattr(owner, name), [act]

    async def act_and_call(*arguments: Any, **options: Any) -> Any:
        if acts:
            acts.pop()()
        return await method(*arguments, **options)

    monkeypatch.setattr(owner, name, act_and_call)


def break_off() -> None:
    raise BrokenOffError


def put_a_family(world: World) -> None:
    """Put a cart 3 with item 31, which come when item 30 is an orphan."""
    now = datetime.now(timezone.utc)
    world.raw["carts"].insert_one({"_id": 3, "_ts": now})
    world.raw["items"].insert_one({"_id": 31, "cart": ref(3)})


@pytest.mark.parametrize("size", [1, 3, 5])
async def test_no_batch_leaves_anything_without_its_parent(world: World, size: int) -> None:
    store, batches = await swept(world), 0
    for part in (CARTS, Part.OWN):  # where it gets a ttl with which it stays expired
        result = await store.purge(request(part, size))
        while True:
            batches += 1
            items = {row["_id"]: row["cart"].id for row in world.raw["items"].find()}
            assert {*keys(world, "notes")} <= items.keys()
            assert {*items.values()} <= {*keys(world, "carts")}
            if result.resume is None:
                break
            result = await store.purge(request(part, size, result.resume))
    assert batches > 2
    assert (keys(world, "carts"), keys(world, "items"), keys(world, "notes")) == ([2], [20], [20])


async def test_a_batch_that_is_broken_off_has_deleted_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await swept(world)
    do_before(monkeypatch, Remover, "_remove", break_off)
    with pytest.raises(BrokenOffError):
        await store.purge(request(CARTS))
    assert (keys(world, "carts"), len(keys(world, "items"))) == ([1, 2], 5)


async def test_a_parent_that_lives_again_keeps_its_followers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await swept(world)
    again = {"$set": {"_ts": datetime.now(timezone.utc)}}
    do_before(
        monkeypatch,
        *(FollowersRemoval, "of_expired"),
        lambda: world.raw["carts"].update_one({"_id": 1}, again),
    )
    await store.purge(request(CARTS))
    assert (keys(world, "carts"), len(keys(world, "items"))) == ([1, 2], 5)
    assert len(keys(world, "notes")) == 5


@pytest.mark.parametrize(
    ("owner", "name"), [(removal, "_remove_orphans"), (FollowersRemoval, "of_matching")]
)
async def test_orphans_that_get_a_parent_take_nothing_of_it_along(
    world: World, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    store = await swept(world)
    world.raw["items"].insert_one({"_id": 30, "cart": ref(3)})
    do_before(monkeypatch, owner, name, lambda: put_a_family(world))
    await store.purge(request(ORPHANS))
    assert 31 in keys(world, "items")
    assert 3 in keys(world, "carts")


async def test_a_key_that_is_not_freed_after_all_keeps_its_family(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_before(monkeypatch, Remover, "_remove", break_off)
    with pytest.raises(BrokenOffError):
        await Cart(id=1).insert()
    assert (keys(world, "carts"), len(keys(world, "items"))) == ([1, 2], 5)
    assert await Item.count() == 1
    await Cart(id=1).insert()
    assert (keys(world, "items"), keys(world, "notes")) == ([20], [20])


async def test_a_write_does_not_bring_back_a_parent_that_expires_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    do_before(monkeypatch, Parents, "renew", lambda: expire(world, 2))
    await Visit(id=1, cart=ref(2)).insert()
    assert await Cart.count() == 0
    assert await Visit.count() == 0


async def test_a_document_that_changes_before_its_write_is_judged_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = collection_of(Item)
    choose = FollowersMethods._choose
    world.raw["items"].update_one({"_id": 20}, {"$set": {"name": "old"}})

    async def choose_and_change(*arguments: Any, **options: Any) -> Any:
        rows = await choose(*arguments, **options)
        world.raw["items"].update_one({"_id": 20}, {"$set": {"name": "new"}})
        return rows

    monkeypatch.setattr(FollowersMethods, "_choose", choose_and_change)
    assert (await items.update_one({"name": "old"}, {"$set": {"code": 1}})).matched_count == 0
    assert (await items.delete_one({"name": "old"})).deleted_count == 0
    assert (await items.update_many({"name": "old"}, {"$set": {"code": 1}})).matched_count == 0
    assert "code" not in (world.raw["items"].find_one({"_id": 20}) or {})
