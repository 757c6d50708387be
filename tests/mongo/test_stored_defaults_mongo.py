"""A default that the database stores, in Beanie's documents: every operation follows it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pymongo import DeleteOne, InsertOne, UpdateOne
from pymongo.errors import DuplicateKeyError

from tests.mongo.stored import HOUR, Carts, carts, declared
from ttl_odm import TTL, InvalidTTL, Stored, TTLConfigurationError, TTLError
from ttl_odm.beanie import ensure_indexes, policy_changes, set_policy, stored_policies

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


@pytest.fixture
async def place(mongodb_url: str) -> AsyncIterator[Carts]:
    async with carts(mongodb_url) as made:
        yield made


async def of_cursor(cursor: Any) -> Any:
    """Read a cursor of either driver."""
    return [
        row["_id"]
        for row in await (await cursor if hasattr(cursor, "__await__") else cursor).to_list(None)
    ]


LOOKUP = [
    {"$limit": 1},
    {"$lookup": {"from": "carts", "pipeline": [], "as": "carts"}},
    {"$unwind": "$carts"},
    {"$replaceWith": "$carts"},
]

READS: dict[str, Callable[[Carts], Awaitable[Any]]] = {
    "find": lambda place: of_cursor(place.collection.find()),
    "find by key": lambda place: of_cursor(place.collection.find({"_id": 1})),
    "find with a limit": lambda place: of_cursor(place.collection.find().limit(5)),
    "find_one": lambda place: place.collection.find_one({"name": "ann"}),
    "find_one by key": lambda place: place.collection.find_one({"_id": 1}),
    "count_documents": lambda place: place.collection.count_documents({}),
    "estimated_document_count": lambda place: place.collection.estimated_document_count(),
    "distinct": lambda place: place.collection.distinct("name"),
    "distinct of a cursor": lambda place: place.collection.find().distinct("name"),
    "aggregate": lambda place: of_cursor(place.collection.aggregate([])),
    "lookup": lambda place: of_cursor(place.database["plain"].aggregate(LOOKUP)),
    "class find": lambda place: place.model.find().to_list(),
    "class get": lambda place: place.model.get(1),
    "class count": lambda place: place.model.find().count(),
    "class aggregate": lambda place: place.model.find().aggregate([]).to_list(),
    "update_one": lambda place: count(
        place.collection.update_one({}, {"$set": {"x": 1}}, keep_last_modified=True)
    ),
    "update_many": lambda place: count(
        place.collection.update_many({}, {"$set": {"x": 1}}, keep_last_modified=True)
    ),
    "find_one_and_update": lambda place: place.collection.find_one_and_update(
        {"_id": 1}, {"$set": {"x": 1}}, keep_last_modified=True
    ),
    "replace_one": lambda place: count(
        place.collection.replace_one({"_id": 1}, {"name": "ann"}, keep_last_modified=True)
    ),
    "bulk_write": lambda place: count(
        place.collection.bulk_write(
            [UpdateOne({"_id": 1}, {"$set": {"x": 1}})], keep_last_modified=True
        )
    ),
}


async def count(work: Any) -> int:
    return int((await work).matched_count)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_each_operation_follows_what_is_stored_at_that_moment(
    place: Carts, read: Callable[[Carts], Awaitable[Any]]
) -> None:
    place.raw["plain"].insert_one({"_id": 0})
    place.add(1, age=600, name="ann")

    for ttl, is_there in [
        (HOUR, True),
        (60, False),
        (HOUR, True),
        (None, True),
        (-1, True),
        (60, False),
    ]:
        place.put(ttl)
        assert bool(await read(place)) is is_there, ttl


async def test_deletes_follow_it_too(place: Carts) -> None:
    for delete in (
        lambda: place.collection.delete_one({"_id": 1}),
        lambda: place.collection.delete_many({}),
        lambda: place.collection.bulk_write([DeleteOne({"_id": 1})]),
    ):
        place.stored.delete_many({})
        place.add(1, age=600)
        place.put(60)
        assert (await delete()).deleted_count == 0
        place.put(HOUR)
        assert (await delete()).deleted_count == 1

    place.add(1, age=600)
    place.put(60)
    assert await place.collection.find_one_and_delete({"_id": 1}) is None
    place.put(HOUR)
    assert await place.collection.find_one_and_delete({"_id": 1}) is not None


async def test_the_key_of_what_has_expired_by_it_is_free(place: Carts) -> None:
    async def insert_one() -> None:
        await place.collection.insert_one({"_id": 1, "name": "new"})

    async def insert_many() -> None:
        await place.collection.insert_many([{"_id": 1, "name": "new"}, {"_id": 2}])

    async def bulk_write() -> None:
        await place.collection.bulk_write([InsertOne({"_id": 1, "name": "new"})])

    async def upsert() -> None:
        await place.collection.update_one({"_id": 1}, {"$set": {"name": "new"}}, upsert=True)

    async def insert_of_class() -> None:
        await place.model(id=1, name="new").insert()

    for write in (insert_one, insert_many, bulk_write, upsert, insert_of_class):
        place.stored.delete_many({})
        place.add(1, age=600, name="old", extra=1)
        place.put(60)
        await write()
        row = place.stored.find_one({"_id": 1})
        assert row is not None
        assert row["name"] == "new"
        assert "extra" not in row


async def test_the_key_of_what_lives_by_it_is_taken(place: Carts) -> None:
    place.add(1, age=600)
    place.put(60)
    assert await place.shown() == set()

    place.put(HOUR)

    with pytest.raises(DuplicateKeyError):
        await place.collection.insert_one({"_id": 1})


async def test_a_document_of_its_own_ttl_or_none_follows_as_in_the_contract(place: Carts) -> None:
    place.add(1, age=600, ttl=60)
    place.add(2, age=600, ttl=HOUR)
    place.add(3, age=600, ttl=-1)
    place.add(4, age=600)

    for ttl, shown in ((60, {2, 3}), (HOUR, {2, 3, 4}), (-1, {2, 3, 4}), (None, {1, 2, 3, 4})):
        place.put(ttl)
        assert await place.shown() == shown


async def test_what_is_no_ttl_expires_nothing(place: Carts) -> None:
    place.add(1, age=600)

    for junk in ("60", 0, -2, 1.5, [60]):
        place.put(junk)
        assert await place.shown() == {1}
        assert (await place.sweep()).deleted == 0


async def test_before_it_is_begun_nothing_expires(mongodb_url: str) -> None:
    async with carts(mongodb_url, begun=False) as place:
        place.add(1, age=2 * HOUR)

        assert await place.shown() == {1}
        assert (await place.sweep()).deleted == 0
        await place.model(id=2).insert()

        await ensure_indexes(place.model)
        assert await place.shown() == {2}


async def test_it_begins_once(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared(Stored(60))) as place:
        (policy,) = await stored_policies(place.model)
        assert (policy.name, policy.scope, policy.ttl) == ("carts", None, 60)
        assert (policy.changed_by, policy.reason) == (None, None)
        assert abs((policy.changed_at - place.now()).total_seconds()) < HOUR
        await set_policy(place.model, 90, by="ann")

        place.model.__ttl__ = Stored(7)  # another release
        place.commands.sent.clear()
        await ensure_indexes(place.model)

        (policy,) = await stored_policies(place.model)
        assert policy.ttl == 90
        assert place.commands.of("findAndModify") == []


async def test_a_change_says_who_when_and_why(place: Carts) -> None:
    assert await set_policy(place.model, 60, by="ann", reason="the audit") == HOUR
    assert await set_policy(place.model, None, by="bob") == 60
    assert await set_policy(place.model, -1, by="bob") is None

    (policy,) = await stored_policies(place.model)
    assert (policy.ttl, policy.changed_by, policy.reason) == (-1, "bob", None)
    changes = await policy_changes(place.model)
    assert [(change.ttl_before, change.ttl_after, change.changed_by) for change in changes] == [
        (None, -1, "bob"),
        (60, None, "bob"),
        (HOUR, 60, "ann"),
    ]
    assert changes[-1].reason == "the audit"
    assert changes[0].changed_at == policy.changed_at
    row = place.row()
    assert row is not None
    assert "changing" not in row


async def test_it_acts_at_once(place: Carts) -> None:
    place.add(1, age=600)
    await set_policy(place.model, 60, by="ann")
    assert await place.shown() == set()
    await set_policy(place.model, HOUR, by="ann")
    assert await place.shown() == {1}


async def test_what_the_class_does_not_allow_is_refused(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared(Stored(120, least=60, most=HOUR))) as place:
        for ttl in (59, HOUR + 1, -1, None, 0, "60"):
            with pytest.raises(InvalidTTL, match=r"Cart\.__ttl__"):
                await set_policy(place.model, ttl, by="ann")  # type: ignore[arg-type]
        with pytest.raises(TTLConfigurationError, match="scope='acme'"):
            await set_policy(place.model, 60, scope="acme", by="ann")
        assert await policy_changes(place.model) == []


async def test_a_default_in_the_code_is_none_to_change(mongodb_url: str) -> None:
    async with carts(mongodb_url, declared(60)) as place:
        for work in (
            set_policy(place.model, 60, by="ann"),
            stored_policies(place.model),
            policy_changes(place.model),
        ):
            with pytest.raises(TTLConfigurationError, match="isn't stored"):
                await work
        assert place.raw["ttl_odm_policies"].count_documents({}) == 0


async def test_whether_it_is_stored_cannot_change(place: Carts) -> None:
    place.model.__ttl__ = 60
    with pytest.raises(TTLConfigurationError, match="can't change"):
        await place.shown()


async def test_one_with_fields_of_its_own_may_be_stored(mongodb_url: str) -> None:
    policy = TTL(Stored(HOUR), last_modified="changed", override=None)
    async with carts(mongodb_url, declared(policy, changed=None)) as place:
        place.stored.insert_one({"_id": 1, "changed": place.now()})
        assert await place.shown() == {1}


# Objects in memory


async def test_of_a_default_that_nobody_has_asked_for_no_object_can_tell(mongodb_url: str) -> None:
    async with carts(mongodb_url, begun=False) as place:
        with pytest.raises(TTLError, match="isn't known"):
            _ = place.model(id=1).expires_at


async def test_an_object_goes_by_what_was_noted_last(place: Carts) -> None:
    cart = await place.model(id=1).insert()
    assert not cart.is_expired
    assert (cart.expires_at - cart.last_modified).total_seconds() == HOUR

    await set_policy(place.model, 60, by="ann")
    assert (cart.expires_at - cart.last_modified).total_seconds() == 60

    place.put(None)
    await place.shown()
    assert cart.expires_at is None


async def test_a_touch_asks_for_it(place: Carts) -> None:
    cart = await place.model(id=1).insert()
    place.put(None)
    assert await cart.touch(only_if="no_ttl")
    place.put(60)
    assert await cart.touch(only_if="has_ttl")
    assert not await cart.expire_in(120, only_if="shorter")
    place.put(HOUR)
    assert await cart.expire_in(120, only_if="shorter")


# The sweeper


@pytest.mark.parametrize("expired", [False, True])
async def test_a_cursor_may_get_a_condition_in_javascript(place: Carts, *, expired: bool) -> None:
    place.add(1, 2, age=2 * HOUR)
    place.add(3, 4, age=0)

    cursor = place.collection.find({}, {"_id": 1}, include_expired=expired).where("this._id % 2")

    odd = [1, 3] if expired else [3]
    assert [row["_id"] async for row in cursor.clone()] == odd
    assert [row["_id"] async for row in cursor.limit(5)] == odd
    assert await cursor.distinct("_id") == odd


async def test_the_sweeper_deletes_by_it(place: Carts) -> None:
    place.add(1, 2, age=600)
    place.add(3, age=2 * HOUR)
    place.add(4, age=2 * HOUR, ttl=-1)

    assert (await place.sweep()).deleted == 1
    place.put(60)
    assert (await place.sweep()).deleted == 2
    place.put(None)
    place.add(5, age=2 * HOUR)
    assert (await place.sweep()).deleted == 0
    assert place.keys() == {4, 5}


@pytest.mark.slow
async def test_a_batch_waits_while_another_client_changes_it(place: Carts) -> None:
    place.add(1, 2, age=600)
    place.put(60)
    with place.raw.client.start_session() as other:
        other.start_transaction()
        policies = place.raw["ttl_odm_policies"]
        policies.update_one({}, {"$inc": {"version": 1}}, session=other)
        asked = [other.abort_transaction, int, int, int]  # from the last: the fourth finds it free
        place.commands.before["findAndModify"] = asked
        report = await place.sweep()
    assert (report.deleted, report.skipped, asked) == (2, 0, [])


@pytest.mark.slow
@pytest.mark.parametrize("before", ["delete", "findAndModify"])
async def test_what_is_raised_while_a_batch_is_deleted_deletes_nothing_that_lives(
    place: Carts, before: str
) -> None:
    place.add(*range(10), age=600)
    place.put(60)

    def raised() -> None:
        # Waits where the batch has the document, as the server has other writers do.
        try:
            place.raw.client[place.raw.name].command(
                {
                    "update": "ttl_odm_policies",
                    "updates": [{"q": {}, "u": {"$set": {"ttl": HOUR}}}],
                    "maxTimeMS": 300,
                }
            )
        except Exception as error:  # noqa: BLE001 (of any class)
            refused.append(error)

    refused: list[Exception] = []
    place.commands.before[before] = [raised]
    report = await place.sweep()

    if before == "delete":  # it came too late: the batch was first
        assert refused
        assert report.deleted == 10
    else:
        assert not refused
        assert report.deleted == 0
        assert await place.shown() == set(range(10))


async def test_stored_policies_are_read_for_document_classes_only(place: Carts) -> None:
    for model in ([place.model], "Cart", int):
        with pytest.raises(
            TTLConfigurationError, match="is not a document class: pass classes, not"
        ):
            await stored_policies(model)  # type: ignore[arg-type]
