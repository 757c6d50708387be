"""Beanie's BulkWriter does with every kind of class what it does with one that has no policy.

Each operation is sent with each argument that MongoDB takes for it, to live documents of each kind,
and to those of a class without a policy: results and documents are the same.
"""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from beanie import BulkWriter, Document
from pymongo import ASCENDING, DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.collation import Collation
from pymongo.errors import BulkWriteError

from tests.mongo.following import transaction
from tests.mongo.models import collection_of, opened
from ttl_odm import ExpireAt, Follows, Stored
from ttl_odm.beanie import TTLMixin, ensure_indexes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.models import World


class Plain(Document):
    id: int
    name: str = ""
    tags: list[int] = []
    basket: int | None = None
    ends: datetime | None = None

    class Settings:
        name = "plain"


class Aging(TTLMixin, Plain):
    __ttl__ = 3600

    class Settings:
        name = "aging"


class Changing(TTLMixin, Plain):
    __ttl__ = Stored(3600)

    class Settings:
        name = "changing"


class Dated(TTLMixin, Plain):
    __ttl__ = ExpireAt("ends")

    class Settings:
        name = "dated"


class Basket(TTLMixin, Document):
    __ttl__ = 3600
    __ttl_purge__ = "sweeper"
    id: int

    class Settings:
        name = "baskets"


class Following(TTLMixin, Plain):
    __ttl__ = Follows(Basket, on={"basket": "id"})

    class Settings:
        name = "following"


class Living(TTLMixin, Plain):
    """An orphan lives."""

    __ttl__ = Follows(Basket, on={"basket": "id"}, orphan="live")

    class Settings:
        name = "living"


KINDS: list[Any] = [Aging, Changing, Dated, Following, Living]
ENDS = datetime(2100, 1, 1, tzinfo=timezone.utc)
ROOT = Collation("en", strength=2)
NAMED_A: dict[str, Any] = {"name": "A"}


@pytest.fixture
async def world(mongodb_url: str) -> AsyncIterator[World]:
    async with opened(mongodb_url, [Plain, Basket, *KINDS]) as made:
        await ensure_indexes(Changing)
        await Basket(id=1).insert()
        yield made


def row(number: int, name: str = "new") -> dict[str, Any]:
    return {"_id": number, "name": name, "tags": [], "basket": 1, "ends": ENDS}


OPERATIONS: dict[str, Any] = {
    "insert": lambda: InsertOne(row(9)),
    "update one": lambda: UpdateOne({"name": "b"}, {"$set": {"name": "x"}}),
    "update many": lambda: UpdateMany({"name": "b"}, {"$set": {"name": "x"}}),
    "replace": lambda: ReplaceOne({"_id": 2}, row(2)),
    "delete one": lambda: DeleteOne({"name": "b"}),
    "delete many": lambda: DeleteMany({"name": "b"}),
    "update what is not there": lambda: UpdateOne({"_id": 9}, {"$set": {"name": "x"}}),
    "delete what is not there": lambda: DeleteOne({"_id": 9}),
    "upsert that updates": lambda: UpdateOne({"_id": 2}, {"$set": {"name": "x"}}, upsert=True),
    "upsert that inserts": lambda: UpdateOne(
        {"_id": 9}, {"$set": {"name": "x", "basket": 1}}, upsert=True
    ),
    "upsert of many": lambda: UpdateMany(
        {"_id": 9}, {"$set": {"name": "x", "basket": 1}}, upsert=True
    ),
    "replace that inserts": lambda: ReplaceOne({"_id": 9}, row(9), upsert=True),
    "update by a pipeline": lambda: UpdateMany(
        {}, [{"$set": {"name": "$$NOW"}}, {"$unset": "name"}]
    ),
    "array filters": lambda: UpdateMany(
        {}, {"$set": {"tags.$[low]": 0}}, array_filters=[{"low": {"$lt": 3}}]
    ),
    "update with a collation": lambda: UpdateMany(NAMED_A, {"$set": {"name": "x"}}, collation=ROOT),
    "replace with a collation": lambda: ReplaceOne(NAMED_A, row(1), collation=ROOT),
    "delete one with a collation": lambda: DeleteOne(NAMED_A, collation=ROOT),
    "delete many with a collation": lambda: DeleteMany(NAMED_A, collation=ROOT),
    "update with a hint": lambda: UpdateOne(
        {"name": "b"}, {"$set": {"name": "x"}}, hint=[("name", ASCENDING)]
    ),
    "replace with a hint": lambda: ReplaceOne({"name": "c"}, row(4), hint="by_name"),
    "upsert with a hint": lambda: UpdateOne(
        {"name": "c"}, {"$set": {"name": "x"}}, hint=[("name", ASCENDING)], upsert=True
    ),
    "delete one with a hint": lambda: DeleteOne({"name": "b"}, hint=[("name", ASCENDING)]),
    "delete many with a hint": lambda: DeleteMany({"name": "b"}, hint="by_name"),
}
APART: list[Any] = [  # in whatever order
    lambda: InsertOne(row(9)),
    lambda: UpdateOne({"_id": 1}, {"$set": {"name": "x"}}),
    lambda: DeleteOne({"_id": 2}),
    lambda: DeleteMany({"_id": 3}),
    lambda: ReplaceOne({"_id": 4}, row(4)),
    lambda: UpdateOne({"_id": 10}, {"$set": {"basket": 1, "ends": ENDS}}, upsert=True),
    lambda: InsertOne(row(11, "refused")),
]
ARGUMENTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "in any order": {"ordered": False},
    "past the validator": {"bypass_document_validation": True},
    "a comment": {"comment": "why"},
}


async def written(world: World, model: Any, *operations: Any, **arguments: Any) -> Any:
    """Return what a bulk writer reports, and the documents that it leaves of four."""
    collection = world.of(model)
    collection.drop()
    world.raw.create_collection(collection.name, validator={"name": {"$ne": "refused"}})
    collection.create_index("name", name="by_name")
    await model.insert_many(
        [
            model(id=number, name=name, tags=[number], basket=1, ends=ENDS)
            for number, name in enumerate(("a", "b", "b", "c"), 1)
        ]
    )
    writer = model.bulk_writer(**arguments)
    for operation in operations:
        writer.add_operation(model, operation())
    try:
        result = (await writer.commit()).bulk_api_result
    except BulkWriteError as error:
        result = error.details
    # Not nModified: every write sets `_ts`.
    counts = [result[name] for name in ("nInserted", "nMatched", "nRemoved", "nUpserted")]
    upserted = [(entry["index"], entry["_id"]) for entry in result["upserted"]]
    errors = [(entry["index"], entry["code"]) for entry in result["writeErrors"]]
    rows = collection.find({}, {"_ts": 0, "_exp": 0, "ttl": 0}).sort("_id")
    return counts, upserted, errors, list(rows)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_a_bulk_writer_does_what_it_does_without_a_policy(world: World, kind: Any) -> None:
    for name, operation in OPERATIONS.items():
        assert await written(world, kind, operation) == await written(world, Plain, operation), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_a_bulk_writer_takes_all_of_its_arguments(world: World, kind: Any) -> None:
    for name, arguments in ARGUMENTS.items():
        expected = await written(world, Plain, *APART, **arguments)
        assert await written(world, kind, *APART, **arguments) == expected, name
        assert bool(expected[2]) != ("bypass_document_validation" in arguments)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_bulk_write_takes_variables(world: World, kind: Any) -> None:
    await kind.insert_many([kind(**row(number)) for number in (1, 2, 3)])
    is_it = {"$expr": {"$eq": ["$_id", "$$it"]}}
    requests: list[Any] = [UpdateOne(is_it, {"$set": {"name": "x"}}), DeleteMany(is_it)]
    for request in requests:
        result = await collection_of(kind).bulk_write([request], let={"it": 2})
        assert result.matched_count + result.deleted_count == 1
    assert [each["_id"] for each in world.of(kind).find().sort("_id")] == [1, 3]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_bulk_writer_writes_in_a_transaction(world: World, kind: Any) -> None:
    await kind.insert_many([kind(**row(number)) for number in (1, 2, 3)])
    async with transaction(world) as session, BulkWriter(session=session) as writer:
        await kind.find_one({"_id": 1}).delete(bulk_writer=writer)
        await kind.find({"_id": 2}).update({"$set": {"name": "x"}}, bulk_writer=writer)
        await kind.insert_one(kind(**row(4)), bulk_writer=writer)
        await kind.find({"_id": {"$gt": 3}}).delete(bulk_writer=writer)
    assert [(each["_id"], each["name"]) for each in world.of(kind).find().sort("_id")] == [
        (2, "x"),
        (3, "new"),
    ]
