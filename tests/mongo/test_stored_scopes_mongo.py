"""Defaults that the database stores for single values of a field, in Beanie's documents."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document
from bson import ObjectId
from pymongo.errors import DuplicateKeyError

from tests.mongo.stored import HOUR, KEY, Carts, carts
from ttl_odm import InvalidTTL, Stored, TTLConfigurationError
from ttl_odm.beanie import TTLMixin, ensure_indexes, policy_changes, set_policy, stored_policies
from ttl_odm.beanie.policy.sources import MOST_SCOPES
from ttl_odm.forecast.change_mongodb import NotApprovedError, approve_policy, preview_policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def declared(**options: Any) -> Any:
    class Message(TTLMixin, Document):
        __ttl__ = Stored(HOUR, by="tenant", **options)
        __ttl_purge__ = "sweeper"
        id: int  # type: ignore[assignment]
        tenant: Any = None
        name: str = ""

        class Settings:
            name = "carts"

    return Message


@pytest.fixture
async def place(mongodb_url: str) -> AsyncIterator[Carts]:
    async with carts(mongodb_url, declared()) as made:
        made.add(1, age=600, tenant="acme")
        made.add(2, age=600, tenant="bolt")
        made.add(3, age=600, tenant=7)
        made.add(4, age=600)
        made.add(5, age=600, tenant="acme", ttl=-1)
        made.add(6, age=600, tenant="acme", ttl=HOUR)
        yield made


ALL = {1, 2, 3, 4, 5, 6}


async def test_each_value_may_have_a_default_of_its_own(place: Carts) -> None:
    assert await place.shown() == ALL
    assert await set_policy(place.model, 60, scope="acme", by="ann") == 0
    assert await place.shown() == ALL - {1}
    assert await set_policy(place.model, 60, scope=7, by="ann") == 0
    assert await place.shown() == ALL - {1, 3}
    assert await set_policy(place.model, None, scope="acme", by="ann") == 60
    assert await place.shown() == ALL - {3}
    assert await set_policy(place.model, 60, by="ann") == HOUR
    assert await place.shown() == {1, 5, 6}
    assert await set_policy(place.model, -1, scope="bolt", by="bob") == 0
    assert await place.shown() == {1, 2, 5, 6}

    stored = {policy.scope: policy.ttl for policy in await stored_policies(place.model)}
    assert stored == {None: 60, "acme": None, "7": 60, "bolt": -1}
    changes = [(change.scope, change.ttl_after) for change in await policy_changes(place.model)]
    assert changes == [("bolt", -1), (None, 60), ("acme", None), ("7", 60), ("acme", 60)]


async def test_a_default_of_ones_own_can_be_removed(place: Carts) -> None:
    await set_policy(place.model, 60, scope="acme", by="ann")
    assert await place.shown() == ALL - {1}
    assert await set_policy(place.model, "default", scope="acme", by="bob") == 60
    assert await place.shown() == ALL
    assert [policy.scope for policy in await stored_policies(place.model)] == [None]
    changes = await policy_changes(place.model)
    assert [(change.ttl_before, change.ttl_after) for change in changes] == [(60, 0), (0, 60)]
    # There is nothing to remove, and nothing to write down.
    assert await set_policy(place.model, "default", scope="acme", by="bob") == 0
    assert await policy_changes(place.model) == changes
    with pytest.raises(InvalidTTL, match="is only for a single value"):
        await set_policy(place.model, "default", by="ann")


async def test_every_operation_follows_one_of_another_process(place: Carts) -> None:
    policies = place.raw["ttl_odm_policies"]
    policies.insert_one({"_id": {**KEY, "scope": "acme"}, "ttl": HOUR})
    for ttl, is_there in ((60, False), (HOUR, True), (-1, True), (60, False)):
        policies.update_one({"_id": {**KEY, "scope": "acme"}}, {"$set": {"ttl": ttl}})
        policies.update_one({"_id": KEY}, {"$inc": {"version": 1}})
        for read in (
            place.collection.find_one({"_id": 1}),
            place.collection.find_one({"name": {"$exists": False}, "tenant": "acme", "ttl": None}),
            place.collection.count_documents({"_id": 1}),
            place.collection.distinct("tenant", {"_id": 1}),
            place.model.get(1),
            place.model.find({"_id": 1}).to_list(),
            place.collection.find({"_id": 1}, {"_id": 1}).to_list(None),
        ):
            assert bool(await read) is is_there


async def test_as_long_as_none_has_changed_one_document_is_read(place: Carts) -> None:
    await set_policy(place.model, 60, scope="acme", by="ann")
    await place.shown()
    place.commands.sent.clear()
    for _ in range(3):
        assert await place.shown() == ALL - {1}
    finds = place.commands.of("find")
    assert [find["find"] for find in finds] == ["ttl_odm_policies", "carts"] * 3


async def test_the_sweeper_deletes_by_them(place: Carts) -> None:
    await set_policy(place.model, 60, scope="acme", by="ann")
    assert (await place.sweep()).deleted == 1
    await set_policy(place.model, 60, by="ann")
    await set_policy(place.model, None, scope="bolt", by="ann")
    assert (await place.sweep()).deleted == 2
    assert place.keys() == {2, 5, 6}


async def test_what_is_raised_for_one_while_a_batch_is_deleted_deletes_nothing_that_lives(
    place: Carts,
) -> None:
    await set_policy(place.model, 60, scope="acme", by="ann")
    policies = place.raw["ttl_odm_policies"]

    def raised() -> None:
        policies.update_one({"_id": {**KEY, "scope": "acme"}}, {"$set": {"ttl": HOUR}})
        policies.update_one({"_id": KEY}, {"$inc": {"version": 1}})

    place.commands.before["findAndModify"] = [raised]
    assert (await place.sweep()).deleted == 0
    assert await place.shown() == ALL


async def test_keys_are_free_by_them(place: Carts) -> None:
    await set_policy(place.model, 60, scope="acme", by="ann")
    await place.collection.insert_one({"_id": 1, "tenant": "new"})
    with pytest.raises(DuplicateKeyError):
        await place.collection.insert_one({"_id": 2})


async def test_objects_go_by_them(place: Carts) -> None:
    message = await place.model.get(1)
    assert (message.expires_at - message.last_modified).total_seconds() == HOUR
    await set_policy(place.model, 2 * HOUR, scope="acme", by="ann")
    assert (message.expires_at - message.last_modified).total_seconds() == 2 * HOUR
    message.tenant = "bolt"
    assert (message.expires_at - message.last_modified).total_seconds() == HOUR


async def test_pipelines_go_by_them(place: Carts) -> None:
    await set_policy(place.model, 60, scope="acme", by="ann")
    found = await place.model.find().aggregate([{"$match": {}}, {"$project": {"_id": 1}}]).to_list()
    assert {row["_id"] for row in found} == ALL - {1}


async def test_a_value_is_read_as_its_field_is(mongodb_url: str) -> None:
    class Note(TTLMixin, Document):
        __ttl__ = Stored(HOUR, by="org")
        __ttl_purge__ = "sweeper"
        id: int  # type: ignore[assignment]
        org: int

        class Settings:
            name = "carts"

    async with carts(mongodb_url, Note) as place:
        place.add(1, age=600, org=7)
        await set_policy(Note, 60, scope="7", by="ann")
        assert await place.shown() == set()
        await set_policy(Note, 70, scope="007", by="ann")
        await set_policy(Note, 80, scope=7.0, by="ann")
        assert {row.scope: row.ttl for row in await stored_policies(Note)} == {None: HOUR, "7": 80}
        for scope in (1.5, "abc", True, 2**63, [7]):
            with pytest.raises(TTLConfigurationError, match=r"Note\.org = "):
                await set_policy(Note, 60, scope=scope, by="ann")


async def test_a_value_that_no_document_can_have_is_rejected(place: Carts) -> None:
    for scope in ("", True, 1.5, 2**63, "\ud800", [1]):
        with pytest.raises(TTLConfigurationError, match=r"Message\.tenant = "):
            await set_policy(place.model, 60, scope=scope, by="ann")
    assert [row.scope for row in await stored_policies(place.model)] == [None]


async def test_an_object_id_may_have_one(place: Carts) -> None:
    key = ObjectId()
    place.add(7, age=600, tenant=key)
    await set_policy(place.model, 60, scope=key, by="ann")
    assert await place.shown() == ALL


async def test_more_than_a_filter_can_bear_are_refused(place: Carts) -> None:
    place.raw["ttl_odm_policies"].insert_many(
        [{"_id": {**KEY, "scope": f"t{n}"}, "ttl": 60} for n in range(MOST_SCOPES)]
    )
    place.raw["ttl_odm_policies"].update_one({"_id": KEY}, {"$inc": {"version": 1}})
    with pytest.raises(TTLConfigurationError, match="1,000 stored defaults"):
        await set_policy(place.model, 60, scope="one more", by="ann")
    assert await set_policy(place.model, HOUR, scope="t7", by="ann") == 60
    assert await place.shown() == ALL
    assert (await place.sweep()).deleted == 0


async def test_junk_in_a_scope_is_no_default(place: Carts) -> None:
    place.raw["ttl_odm_policies"].insert_many(
        [{"_id": {**KEY, "scope": scope}, "ttl": 60} for scope in (None, 1.5, True, [1])]
    )
    place.raw["ttl_odm_policies"].update_one({"_id": KEY}, {"$inc": {"version": 1}})
    assert await place.shown() == ALL


def test_mongodb_itself_cannot_delete_by_them() -> None:
    with pytest.raises(TTLConfigurationError, match="it depends on 'tenant'"):

        class Message(TTLMixin, Document):
            __ttl__ = Stored(HOUR, by="tenant")
            id: int  # type: ignore[assignment]


async def test_ensuring_again_keeps_them(place: Carts) -> None:
    await set_policy(place.model, 60, scope="acme", by="ann")
    await ensure_indexes(place.model)
    assert await place.shown() == ALL - {1}


@pytest.mark.parametrize("scope", [None, "acme"])
async def test_a_token_is_used_once_and_may_be_signed(place: Carts, scope: str | None) -> None:
    about: dict[str, Any] = {"target": place.model, "ttl": 60, "scope": scope}
    plain = (await preview_policy(**about)).token
    signed = (await preview_policy(**about, secret="ours")).token
    for token, secret in ((plain, "ours"), (signed, None), (signed, "others")):
        with pytest.raises(NotApprovedError, match="is not for this change"):
            await approve_policy(**about, token=token, by="eve", secret=secret)
    await approve_policy(**about, token=signed, by="ann", secret="ours")
    back: Any = HOUR if scope is None else "default"
    await set_policy(place.model, back, scope=scope, by="bob")
    with pytest.raises(NotApprovedError, match="by this token or otherwise"):
        await approve_policy(**about, token=signed, by="ann", secret="ours")


@pytest.mark.slow
@pytest.mark.parametrize("scope", [None, "acme"])
async def test_of_many_approvals_at_once_one_wins(place: Carts, scope: str | None) -> None:
    tokens = {
        ttl: (await preview_policy(place.model, ttl, scope=scope)).token for ttl in range(60, 68)
    }
    made = [
        approve_policy(place.model, ttl, token=token, scope=scope, by="ann")
        for ttl, token in tokens.items()
    ]
    outcomes = await asyncio.gather(*made, return_exceptions=True)
    losers = {type(error) for error in outcomes if error is not None}
    assert (outcomes.count(None), losers) == (1, {NotApprovedError}), outcomes
    assert len(await policy_changes(place.model)) == 1
