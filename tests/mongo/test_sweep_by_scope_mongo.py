"""What a sweep says of the scopes of a stored default, for Beanie's documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document

from tests.mongo.stored import HOUR, KEY, Carts, carts
from ttl_odm import Stored
from ttl_odm.beanie import TTLMixin, set_policy
from ttl_odm.beanie.policy.sources import MOST_SCOPES
from ttl_odm.sweeper import FuseError, Hook, Progress, Purged
from ttl_odm.sweeper.hooks import Archive

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ttl_odm.sweeper import TargetReport

DAY = 86_400
EXPECTED = {"acme": 2, "7": 1, "": 2}
"""How many have expired, where acme has a minute, 7 a day, and all others an hour."""


def declared(**attributes: Any) -> Any:
    class Message(TTLMixin, Document):
        __ttl__ = Stored(HOUR, by="tenant")
        __ttl_purge__ = "sweeper"
        id: int  # type: ignore[assignment]
        tenant: Any = None

        class Settings:
            name = "carts"

    for name, value in attributes.items():
        setattr(Message, name, value)
    return Message


async def fill(place: Carts) -> None:
    place.add(1, age=100, tenant="acme")
    place.add(2, age=100, tenant="acme", ttl=30)
    place.add(3, age=100, tenant="acme", ttl=-1)
    place.add(4, age=10, tenant="acme")
    place.add(5, age=2 * HOUR, tenant=7)
    place.add(6, age=100, tenant=7.0, ttl=30)
    place.add(7, age=2 * HOUR, tenant=["acme", 7])
    place.add(8, age=2 * HOUR)
    place.add(9, age=100, tenant="7")
    await set_policy(place.model, 60, scope="acme", by="ann")
    await set_policy(place.model, DAY, scope=7, by="ann")


@pytest.fixture
async def place(mongodb_url: str) -> AsyncIterator[Carts]:
    async with carts(mongodb_url, declared()) as made:
        await fill(made)
        yield made


async def swept(place: Carts, **options: Any) -> TargetReport:
    (target,) = (await place.sweep(**options)).targets
    return target


@pytest.mark.every_driver
@pytest.mark.parametrize("by", ["index", "scan"])
async def test_a_dry_run_and_a_sweep_name_the_scopes(mongodb_url: str, by: str) -> None:
    async with carts(mongodb_url, declared(__ttl_sweep__=by)) as place:
        await fill(place)
        target = await swept(place, dry_run=True)
        assert (target.due, target.due_by_scope, target.deleted_by_scope) == (5, EXPECTED, {})
        batches: list[Progress] = []
        target = await swept(place, on_progress=batches.append, batch_size=2)
        assert (target.deleted, target.deleted_by_scope) == (5, EXPECTED)
        assert sum(batch.by_scope.get("acme", 0) for batch in batches) == 2
        assert place.keys() == {3, 4, 5, 9}
        assert (await swept(place)).deleted_by_scope == {}


@pytest.mark.parametrize("way", ["hook", "archive"])
async def test_each_way_to_delete_counts_them(mongodb_url: str, way: str) -> None:
    more = {"__ttl_archive__": Archive("old_carts")} if way == "archive" else {}
    told: list[Purged] = []
    async with carts(mongodb_url, declared(**more)) as place:
        await fill(place)
        target = await swept(place, on_purged=Hook(told.append) if way == "hook" else None)
        assert (target.error, target.deleted_by_scope) == (None, EXPECTED)
    assert sum(purged.count for purged in told) == (5 if way == "hook" else 0)


async def test_the_fuse_says_whose_documents_they_are(place: Carts) -> None:
    place.add(*range(100, 1_200), age=100, tenant="acme")
    target = await swept(place, max_fraction=0.5)
    assert isinstance(target.error, FuseError)
    assert target.error.by_scope == {"acme": 1_102, "7": 1, "": 2}


@pytest.mark.slow
async def test_as_many_scopes_as_there_may_be_are_counted(place: Carts) -> None:
    scopes = range(MOST_SCOPES - 2)
    place.raw["ttl_odm_policies"].insert_many(
        [{"_id": {**KEY, "scope": f"t{number}"}, "ttl": 60} for number in scopes]
    )
    place.raw["ttl_odm_policies"].update_one({"_id": KEY}, {"$inc": {"version": 1}})
    for number in scopes:
        place.add(1_000 + number, age=100, tenant=f"t{number}")
    place.add(100, age=100, tenant="t9")
    target = await swept(place, dry_run=True)
    expected = (len(scopes) + 1 + 5, ["acme", "t9"])
    assert (target.due, list(target.due_by_scope)[:2]) == expected
    target = await swept(place)
    assert (target.deleted, list(target.deleted_by_scope)[:2]) == expected


async def test_documents_that_are_changed_meanwhile_are_not_counted(place: Carts) -> None:
    def touch() -> None:
        place.stored.update_one({"_id": 1}, {"$set": {"_ts": place.now()}})

    place.commands.before["findAndModify"] = [touch]
    target = await swept(place)
    assert (target.deleted, target.deleted_by_scope) == (4, {"7": 1, "acme": 1, "": 2})


async def test_where_no_scope_has_a_default_of_its_own_none_is_looked_up(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared()) as place:
        place.add(1, age=2 * HOUR, tenant="acme")
        target = await swept(place)
        assert (target.deleted, target.deleted_by_scope) == (1, {})
        assert not place.commands.of("aggregate")
