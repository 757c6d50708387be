"""Reads about the date by which documents expire: an index on it walks past no expired ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.mongo.sweeping import HOUR, declared, swept
from tests.mongo.test_predicate import JUNK, MISSING, VALID
from ttl_odm import TTL, ExpireAfter, ExpireAt

if TYPE_CHECKING:
    from tests.mongo.sweeping import Swept

FIELD = "date"
POLICIES: list[Any] = [ExpireAt(FIELD), ExpireAt(FIELD, null="expired"), ExpireAfter(FIELD, HOUR)]
READS: dict[str, Any] = {
    "sorted": lambda docs, _: docs.find().sort(FIELD).limit(5),
    "by the date": lambda docs, place: docs.find({FIELD: {"$gt": place.ago(90_000)}}).limit(5),
    "a pipeline": lambda docs, _: docs.aggregate([{"$sort": {FIELD: 1}}, {"$limit": 5}]),
    "a matching pipeline": lambda docs, place: docs.aggregate(
        [{"$match": {FIELD: {"$gt": place.ago(90_000)}}}, {"$limit": 5}]
    ),
}


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("read", READS.values(), ids=READS)
async def test_an_index_on_the_date_walks_past_no_expired_document(
    mongodb_url: str, policy: Any, read: Any
) -> None:
    async with swept(mongodb_url, declared(policy)) as place:
        place.raw.create_index(FIELD)
        place.raw.insert_many([{FIELD: place.ago(80_000 - key)} for key in range(400)])
        place.raw.insert_many([{"n": key, FIELD: place.ago(-60 - key)} for key in range(20)])
        documents = place.database["documents"]
        await documents.find_one({})  # the server's clock is known

        found = read(documents, place)
        rows = await (found if hasattr(found, "to_list") else await found).to_list(None)
        assert [row["n"] for row in rows] == [0, 1, 2, 3, 4]
        assert _keys_examined(place) <= 10


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
async def test_a_range_leaves_out_no_odd_value_that_lives(mongodb_url: str, policy: Any) -> None:
    async with swept(mongodb_url, declared(policy)) as place:
        odd = [value for value in (*VALID, *JUNK) if value is not MISSING]
        odd += [place.ago(9_000), place.ago(400), place.ago(60), place.ago(-60)]
        odd += [[place.ago(9_000), place.ago(-60)], [place.ago(-60)], [], ["x", place.ago(9_000)]]
        place.raw.insert_many([{FIELD: value} for value in odd])
        place.raw.insert_one({})
        documents = place.database["documents"]

        live = {row["_id"] for row in await documents.find({}).to_list(None)}
        assert 0 < len(live) < len(odd)
        assert {row["_id"] for row in await documents.find().sort(FIELD).to_list(None)} == live
        cursor: Any = documents.aggregate([{"$sort": {FIELD: 1}}])
        rows = await (cursor if hasattr(cursor, "to_list") else await cursor).to_list(None)
        assert {row["_id"] for row in rows} == live


async def test_a_read_about_something_else_is_sent_without_a_range(mongodb_url: str) -> None:
    async with swept(mongodb_url, declared(ExpireAt(FIELD))) as place:
        await place.database["documents"].find({"n": 1}).sort("n").to_list(None)
        assert "$and" not in place.commands.of("find")[-1]["filter"]
        await place.database["documents"].find({"n": 1}).sort(FIELD).limit(1).to_list(None)
        assert FIELD in str(place.commands.of("find")[-1]["filter"]["$and"])


async def test_documents_with_a_ttl_of_their_own_know_no_range(mongodb_url: str) -> None:
    async with swept(mongodb_url, declared(TTL(HOUR))) as place:
        place.raw.insert_one({"_ts": place.ago(9_000), "ttl": 86_400})
        assert len(await place.database["documents"].find().sort("_ts").to_list(None)) == 1


def _keys_examined(place: Swept) -> int:
    """Return how many keys of an index the last read has looked at."""
    command = place.commands.sent[-1]
    names = ("find", "filter", "sort", "limit", "aggregate", "pipeline", "cursor")
    asked = {name: command[name] for name in names if name in command}
    explained = place.raw.database.command({"explain": asked, "verbosity": "executionStats"})
    stages = explained.get("stages") or [{"$cursor": explained}]
    keys: int = stages[0]["$cursor"]["executionStats"]["totalKeysExamined"]
    return keys
