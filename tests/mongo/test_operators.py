"""An update that is sent as a pipeline does what its operators do, and keeps ``_exp``."""

from __future__ import annotations

import asyncio
import math
import re
from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import Decimal128, Int64
from pymongo import UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, OperationFailure

from tests.mongo.models import Event, World, collection_of
from tests.mongo.scratch import scratch
from ttl_odm.beanie import keep_last_modified
from ttl_odm.beanie.indexes.validator import too_early
from ttl_odm.beanie.policy.ttl_indexes import own_expiry
from ttl_odm.beanie.rewrite.operators import as_stages, operator_error
from ttl_odm.beanie.rewrite.stamps import stamping_of
from ttl_odm.core.policy import TTL

if TYPE_CHECKING:
    from pymongo.collection import Collection

VALUES: list[Any] = [
    ...,  # no such field
    *(
        0,
        1,
        -7,
        2**31 - 1,
        -(2**31),
        Int64(5),
        Int64(2**63 - 1),
        Int64(-(2**63)),
        2**53 + 1,
        2**62 + 3,
    ),
    *(0.1, 1e300, math.inf, math.nan, Decimal128("1.10"), Decimal128("NaN"), Decimal128("1E6144")),
    *("", "x", None, True, [], ["x"], ["y", "x"], [1, 2.0], [[]], [None], [{"b": 1}]),
    *({}, {"b": 1}, {"b": {}}, {"b": {"c": 1}}, {"b": [1]}, {"b": [{"c": 1}]}, {"b": None}),
    *({"c": 1, "b": "x"}, [{"b": {"c": 1}}, {"b": 2}], {"b": {"d": 1, "c": [0]}}),
]
OPERATORS: list[Any] = [
    *({"$inc": {"a": by}} for by in (1, 0, -1, 2**31, Int64(1), -(2**62), 2**63 - 1)),
    *({"$inc": {"a": by}} for by in (0.1, 1.5, 2.0, -0.0, 1e-9, 123456789.123456789, math.inf)),
    *({"$inc": {"a.b": 1}}, {"$inc": {"a.b.c": 1, "n": 2}}),
    *({"$push": {"a": value}} for value in ("x", None, 1, [1], {"b": 1}, {"$each": ["x", "z"]})),
    *({"$push": {"a": {"$each": []}}}, {"$push": {"a.b": 1}}, {"$push": {"a.b.c": {"d": 1}}}),
    *({"$addToSet": {"a": value}} for value in ("x", 2, 1.0, None, [], {"b": 1}, {"$each": [1]})),
    {"$addToSet": {"a.b": 1}},
    *({op: {"a": value}} for op in ("$max", "$min") for value in (1, "x", None, [1], {"b": 1})),
    *({op: {"a.b": 1}} for op in ("$max", "$min")),
    *({"$pull": {"a": value}} for value in ("x", 1, 2.0, True, math.nan)),
    {"$pull": {"a": 0}, "$max": {"n": 5}},
    *({"$set": {"a.b": value}} for value in (1, {"c": 1}, "$n", None, [])),
    {"$set": {"a.b.c": 1, "a.b.d": {"$x": 1}, "z": "$$NOW"}},
    {"$set": {"a.b.c": 1}, "$unset": {"n": ""}, "$inc": {"a.e": 1}, "$push": {"t": 1}},
    {"$setOnInsert": {"a.b": 1}, "$inc": {"n": 1}},
]
GUARD = "_exp"


@pytest.fixture
def raw(world: World) -> Collection[dict[str, Any]]:
    return world.raw["operators"]


@pytest.mark.parametrize("update", OPERATORS, ids=repr)
@pytest.mark.parametrize("inserts", [False, True])
async def test_stages_do_what_the_operators_do(
    raw: Collection[dict[str, Any]], update: Any, *, inserts: bool
) -> None:
    stages = as_stages(update, guard=GUARD, inserts=inserts)
    assert stages is not None

    by_operators = _outcomes(raw, update, inserts=inserts)
    by_stages = _outcomes(raw, [*stages, {"$unset": GUARD}], inserts=inserts)

    for value, *outcomes in zip(VALUES, by_operators, by_stages, strict=True):
        assert outcomes[0] == outcomes[1], value


def _outcomes(raw: Collection[dict[str, Any]], update: Any, *, inserts: bool) -> list[str]:
    """Return what becomes of documents, with types and the order of fields, or the error's code."""
    raw.delete_many({})
    befores = [{"n": 1, **({} if value is ... else {"a": value})} for value in VALUES]
    if not inserts:
        raw.insert_many([{"_id": key, **before} for key, before in enumerate(befores)])
    requests = [
        UpdateOne({"_id": key, **(before if inserts else {})}, update, upsert=inserts)
        for key, before in enumerate(befores)
    ]
    errors: dict[int, Any] = {}
    try:
        raw.bulk_write(requests, ordered=False)
    except BulkWriteError as error:
        errors = {
            each["index"]: operator_error(each)["code"] for each in error.details["writeErrors"]
        }
    stored = {document["_id"]: document for document in raw.find()}
    return [f"{errors.get(key)} {stored.get(key)!r}" for key in range(len(VALUES))]


LEFT: list[Any] = [
    {"$inc": {"score": True}},
    {"$inc": {"score": Decimal128("1")}},
    {"$inc": {"_id": 1}},
    {"$mul": {"score": 2}},
    {"$set": {"a": 1, "a.b": 2}},
    {"$set": {"a": 1}, "$inc": {"a": 1}},
    {"$set": {"tags.0": "x"}},
    {"$set": {"tags.$[].x": "x"}},
    {"$inc": {"tags.$.x": 1}},
    {"$push": {"tags": {"$each": ["x"], "$slice": 1}}},
    {"$push": {"tags": {"$each": ["x"], "$position": 0}}},
    {"$addToSet": {"tags": {"$each": ["x", "y"]}}},
    {"$unset": {"a.b": ""}},
    {"$pull": {"tags": {"$in": ["x"]}}},
    {"$pull": {"tags": re.compile("x")}},
    {"$pull": {"tags": None}},
    {"$pull": {"a.b": 1}},
    {"$set": {"a..b": 1}},
]


@pytest.mark.parametrize("update", LEFT, ids=repr)
def test_operators_that_stages_might_not_match_stay_operators(update: Any) -> None:
    assert as_stages(update, guard=GUARD, inserts=False) is None


KEEPING: list[Any] = [
    {"$inc": {"score": 1}},
    {"$push": {"tags": "x"}},
    {"$addToSet": {"tags": "y"}},
    {"$set": {"inner.part": 1}},
    {"$set": {"inner.part": 1}, "$inc": {"score": 1}, "$push": {"tags": {"$each": ["x"]}}},
    {"$max": {"score": 5}, "$pull": {"tags": "a"}},
    {"$inc": {"ttl": 100}},
    {"$min": {"ttl": 60}},
]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("update", KEEPING, ids=repr)
@pytest.mark.parametrize("way", ["update_one", "update_many", "find_one_and_update", "bulk"])
async def test_an_update_keeps_the_expiry_in_the_same_command(
    world: World, update: Any, way: str, *, keep: bool
) -> None:
    collection = collection_of(Event)
    await collection.insert_one({"_id": 1, "name": "own", "ttl": 600, "tags": ["a"]})
    await collection.insert_one({"_id": 2, "name": "inherits"})
    world.of(Event).update_one({}, [{"$set": {"_ts": {"$subtract": ["$$NOW", 60_000]}}}])
    world.of(Event).update_one({}, [{"$set": {"_exp": own_expiry(TTL(3600))}}])
    before = world.stored(Event, 1)

    if way == "bulk":
        with keep_last_modified() if keep else nullcontext():
            await collection.bulk_write([UpdateMany({"_id": 1}, update)])
    else:
        await getattr(collection, way)({"_id": 1}, update, keep_last_modified=keep)

    after = world.stored(Event, 1)
    assert (after["_ts"] == before["_ts"]) is keep
    assert after["_exp"] == after["_ts"] + timedelta(seconds=after["ttl"])
    assert after != before


async def test_an_upsert_with_operators_has_the_expiry_too(world: World) -> None:
    collection = collection_of(Event)
    update = {"$inc": {"score": 2}, "$push": {"tags": "x"}, "$setOnInsert": {"ttl": 60}}
    await collection.update_one({"_id": 1, "name": "a"}, update, upsert=True)

    stored = world.stored(Event, 1)
    assert stored["_exp"] == stored["_ts"] + timedelta(minutes=1)
    assert (stored["score"], stored["tags"], stored["name"]) == (2, ["x"], "a")


async def test_twenty_clients_that_count_lose_no_step_and_leave_the_right_expiry(
    world: World,
) -> None:
    collection = collection_of(Event)
    await collection.insert_one({"_id": 1, "name": "a", "ttl": 600})

    async def work(number: int) -> None:
        await collection.update_one({"_id": 1}, {"$inc": {"score": 1}})
        await collection.update_one({"_id": 1}, {"$set": {"ttl": 600 + number}})
        await collection.update_one({"_id": 1}, {"$push": {"tags": str(number)}})

    await asyncio.gather(*(work(number) for number in range(20)))

    stored = world.stored(Event, 1)
    assert (stored["score"], len(stored["tags"])) == (20, 20)
    assert stored["_exp"] == stored["_ts"] + timedelta(seconds=stored["ttl"])


FAILING: list[Any] = [
    ({"$inc": {"name": 1}}, 14, "non-numeric"),
    ({"$inc": {"score": 2**62}}, 2, "Failed to apply"),
    ({"$push": {"score": 1}}, 2, "must be an array"),
    ({"$pull": {"score": 1}}, 2, "Cannot apply $pull"),
    ({"$set": {"tags.x": 1}}, 28, "Cannot create field 'x'"),
]


@pytest.mark.parametrize(("update", "code", "text"), FAILING, ids=repr)
@pytest.mark.parametrize("way", ["update_one", "update_many", "find_one_and_update", "bulk"])
async def test_an_operator_that_does_not_fit_a_document_fails_as_without_ttl(
    world: World, update: Any, code: int, text: str, way: str
) -> None:
    collection = collection_of(Event)
    await collection.insert_one({"_id": 1, "name": "a", "score": Int64(2**62), "tags": []})
    before = world.stored(Event, 1)

    async def run(target: Any) -> tuple[str, int, str]:
        method = target.bulk_write if way == "bulk" else getattr(target, way)
        arguments = [[UpdateOne({"_id": 1}, update)]] if way == "bulk" else [{"_id": 1}, update]
        with pytest.raises(OperationFailure) as caught:
            await method(*arguments)
        error: Any = caught.value
        details = error.details["writeErrors"][0] if way == "bulk" else error.details
        assert text in details["errmsg"]
        return type(error).__name__, error.code, details["code"]

    outcome = await run(collection)

    assert outcome == await run(collection._gate.plain)
    assert outcome[2] == code
    assert world.stored(Event, 1) == before


async def test_an_expired_document_is_not_asked_whether_an_operator_fits(world: World) -> None:
    collection = collection_of(Event)
    await collection.insert_one({"_id": 1, "name": "a"})
    world.age(Event, 1)

    result = await collection.update_one({"_id": 1}, {"$inc": {"name": 1}})

    assert result.matched_count == 0


async def test_the_end_follows_a_field_inside_another_also_where_the_last_modification_stays(
    mongodb_url: str,
) -> None:
    policy = TTL(3600, override="life.ttl")
    stamping = stamping_of(policy, "mongodb")
    assert stamping is not None
    for update in (
        {"$set": {"life": {"ttl": 9000}}},
        {"$set": {"life.ttl": 9000}},
        {"$rename": {"other": "life"}},
    ):
        async with scratch(mongodb_url) as place:
            end = {"$set": {"_exp": own_expiry(policy)}}
            place.theirs.insert_one({"_id": 1, "life": {"ttl": 60}, "other": {"ttl": 9000}})
            place.theirs.update_one({}, [{"$set": {"_ts": "$$NOW"}}, end])

            place.theirs.update_one({}, stamping.update(update, keep=True))

            assert place.theirs.count_documents({"$expr": too_early(policy)}) == 0
