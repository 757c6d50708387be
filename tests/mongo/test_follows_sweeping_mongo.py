"""Sweeps of documents that others follow: followers first, the deepest before all others."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

import pytest
from beanie import Document, Link

from tests.mongo.following import (
    LONG_AGO,
    Cart,
    Item,
    Note,
    Thread,
    expire,
    families,
    ref,
)
from tests.mongo.models import opened
from ttl_odm import TTL, Follows, TTLConfigurationError
from ttl_odm.beanie import TTLMixin, ensure_indexes
from ttl_odm.beanie.policy.commands import RawCollection, Server
from ttl_odm.beanie.sweep.store import open_store
from ttl_odm.follows.sweep import ORPHANS
from ttl_odm.sweeper import AsyncSweeper, BatchRequest, Hooks, Pace, Part

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.models import World


@pytest.fixture
async def world(mongodb_url: str) -> AsyncIterator[World]:
    """Carts 1 and 2 with ten items each, of which each has a note."""
    async with families(mongodb_url) as made:
        for number in (1, 2):
            await Cart(id=number).insert()
        keys = [(cart, cart * 100 + number) for cart in (1, 2) for number in range(10)]
        made.raw["items"].insert_many([{"_id": item, "cart": ref(cart)} for cart, item in keys])
        made.raw["notes"].insert_many([{"_id": item, "item": item} for _, item in keys])
        yield made


def sweeper(world: World, size: int | None = None, **options: Any) -> Any:
    if size is not None:
        options["pace"] = Pace(start=size, lowest=1, highest=size, target=10)
    return AsyncSweeper(world.database, [Cart, Item, Note, Thread], **options)


def counts(world: World) -> list[int]:
    names = ("carts", "items", "notes")
    return [world.raw[name].count_documents({}) for name in names]


async def test_a_dry_run_counts_what_follows_expired_documents(world: World) -> None:
    expire(world, 1)
    report = await sweeper(world, dry_run=True).run_once()
    assert report.error is None
    counted = {target.table: (target.due, dict(target.due_followers)) for target in report.targets}
    assert counted["carts"] == (1, {"items": 10, "notes": 10})
    assert report.due == 21


async def test_followers_go_with_their_parent(world: World) -> None:
    expire(world, 1)
    report = await sweeper(world).run_once()
    assert report.error is None
    carts = next(target for target in report.targets if target.table == "carts")
    assert carts.deleted == 1
    assert dict(carts.referring) == {"items": 10, "notes": 10}
    assert [target.table for target in report.targets] == ["carts", "threads"]
    assert counts(world) == [1, 10, 10]
    again = await sweeper(world).run_once()
    assert sum(target.deleted for target in again.targets) == 0


@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["index", "scan"])
async def test_more_followers_than_a_batch_go_in_several(
    world: World, monkeypatch: pytest.MonkeyPatch, sweep: str
) -> None:
    monkeypatch.setattr(Cart, "__ttl_sweep__", sweep, raising=False)
    expire(world, 1)
    report = await sweeper(world, 3).run_once()
    assert report.error is None
    carts = next(target for target in report.targets if target.table == "carts")
    assert carts.deleted == 1
    assert carts.batches > 6
    assert dict(carts.referring) == {"items": 10, "notes": 10}
    assert counts(world) == [1, 10, 10]


@pytest.mark.slow
async def test_a_sweep_that_is_broken_off_leaves_a_parent_that_stays_expired(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    expire(world, 1)
    store = open_store(world.database, [Cart, Item, Note])
    await store.due("carts")
    request = BatchRequest("carts", Part.INHERITING, 5, None, hooks=Hooks())
    result = await store.purge(request)
    assert (result.deleted, dict(result.referring)) == (0, {"notes": 5})
    assert result.resume is not None
    assert world.raw["carts"].find_one({"_id": 1})["ttl"] == 1  # type: ignore[index]
    monkeypatch.setattr(Cart, "__ttl__", 2**31 - 1)
    assert await Cart.get(1) is None
    assert await Item.count() == 10
    assert counts(world) == [2, 20, 15]
    report = await sweeper(world).run_once()
    assert report.error is None
    assert counts(world) == [1, 10, 10]


class Basket(TTLMixin, Document):
    """One whose documents never expire by a ttl of 1."""

    __ttl__ = TTL(3600, never=(1,))
    __ttl_purge__ = "sweeper"
    id: int

    class Settings:
        name = "baskets"


class Fruit(TTLMixin, Document):
    __ttl__ = Follows(Basket, on={"basket": "id"})
    id: int
    basket: int

    class Settings:
        name = "fruits"


async def test_it_stays_expired_by_a_ttl_that_does_not_mean_never(
    mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(mongodb_url, [Basket, Fruit]) as made:
        await ensure_indexes(Basket)
        await Basket(id=1).insert()
        await Basket(id=2, ttl=1).insert()  # which is one for ever
        await Fruit.insert_many([Fruit(id=number, basket=1) for number in range(10)])
        made.raw["baskets"].update_many({}, {"$set": {"_ts": LONG_AGO}})
        store = open_store(made.database, [Basket])
        await store.due("baskets")
        request = BatchRequest("baskets", Part.INHERITING, 5, None, hooks=Hooks())
        assert dict((await store.purge(request)).referring) == {"fruits": 5}
        assert made.stored(Basket, 1)["ttl"] == 2
        monkeypatch.setattr(Basket, "__ttl__", TTL(2**31 - 1, never=(1,)))
        assert [one.id for one in await Basket.find().to_list()] == [2]
        assert await Fruit.count() == 0
        assert (await AsyncSweeper(made.database, [Basket]).run_once()).error is None
        assert (made.keys(Basket), made.keys(Fruit)) == ([2], [])


class Comment(TTLMixin, Document):
    """An answer to another one, with a lifetime of its own."""

    __ttl__ = 3600
    __ttl_purge__ = "sweeper"
    id: int
    above: Optional[Link[Comment]] = None  # noqa: UP045

    class Settings:
        name = "comments"


Comment.model_rebuild()


async def test_trees_and_rings_of_links_are_swept(mongodb_url: str) -> None:
    async with opened(mongodb_url, [Comment]) as made:
        await ensure_indexes(Comment)
        above = {1: None, 2: 1, 3: 2, 4: 3, 10: 12, 11: 10, 12: 11, 20: 20}
        made.raw["comments"].insert_many(
            [
                {"_id": key, "_ts": LONG_AGO, "above": other and ref(other, "comments")}
                for key, other in above.items()
            ]
        )
        await Comment(id=30).insert()
        report = await AsyncSweeper(made.database, [Comment], batch_size=2).run_once()
        assert report.problems == ()
        assert made.keys(Comment) == [30]


async def test_a_follower_is_swept_with_its_root_and_never_alone(world: World) -> None:
    for models in ([Item, Cart], [Cart, Note, Item]):
        assert open_store(world.database, models).targets() == ["carts"]
    message = "Note can't be swept alone: .* follow those of Cart .* Sweep Cart instead"
    for models in ([Note], [Thread, Note]):
        with pytest.raises(TTLConfigurationError, match=message):
            AsyncSweeper(world.database, models)


@pytest.mark.slow
async def test_orphans_are_swept_unless_they_live(world: World) -> None:
    world.raw["carts"].delete_one({"_id": 1})
    world.raw["items"].insert_one({"_id": 5})
    world.raw["notes"].insert_one({"_id": 5, "item": 4711})
    world.raw["posts"].insert_one({"_id": 5, "site": "x", "thread": 1})
    await Thread(id=1, site="y", number=1, ends=LONG_AGO).insert()
    world.raw["posts"].insert_one({"_id": 6, "site": "y", "thread": 1})
    for _ in range(2):  # what becomes an orphan by the first
        report = await sweeper(world, 4).run_once()
        assert report.error is None
    assert counts(world) == [1, 10, 10]
    assert [row["_id"] for row in world.raw["posts"].find()] == [5]


@pytest.mark.parametrize("has_transactions", [True, False])
async def test_orphans_are_due_until_their_last_batch(
    world: World, monkeypatch: pytest.MonkeyPatch, *, has_transactions: bool
) -> None:
    real = RawCollection.server

    async def server(place: RawCollection) -> Server:
        return Server((await real(place)).now, has_transactions)

    monkeypatch.setattr(RawCollection, "server", server)
    store = open_store(world.database, [Cart, Item, Note])
    for has_orphans in (False, True):
        due = await store.due("carts")
        assert due is not None
        assert (ORPHANS in due.parts) is has_orphans
        world.raw["carts"].delete_one({"_id": 1})
    for size, notes, is_last in ((5, 5, False), (100, 5, True)):
        result = await store.purge(BatchRequest("carts", ORPHANS, size, None, hooks=Hooks()))
        assert (result.referring["notes"], result.resume is None) == (notes, is_last)
    assert counts(world) == [1, 10, 10]


async def test_a_dry_run_deletes_nothing(world: World) -> None:
    expire(world, 1)
    report = await sweeper(world, dry_run=True).run_once()
    carts = next(target for target in report.targets if target.table == "carts")
    assert carts.due == 1
    assert counts(world) == [2, 20, 20]
