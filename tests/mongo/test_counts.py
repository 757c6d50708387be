"""Counts: right for every odd document, and answered by an index alone where one has the fields."""

from __future__ import annotations

from typing import Any

import pytest
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from tests.mongo.sweeping import HOUR, Swept, declared, swept
from tests.mongo.test_predicate import JUNK, MISSING, VALID
from ttl_odm import TTL, ExpireAfter, ExpireAt

POLICIES: list[tuple[Any, tuple[str, ...]]] = [
    (HOUR, ("_ts", "ttl")),
    (-1, ("_ts", "ttl")),
    (TTL(HOUR, override=None), ("_ts",)),
    (ExpireAfter("made", HOUR), ("made",)),
    (ExpireAt("ends"), ("ends",)),
]


@pytest.mark.parametrize(("policy", "fields"), POLICIES, ids=repr)
async def test_an_index_that_ends_in_the_fields_that_decide_answers_a_count(
    mongodb_url: str, policy: Any, fields: tuple[str, ...]
) -> None:
    async with swept(mongodb_url, declared(policy)) as place:
        place.raw.create_index([("group", 1), *((field, 1) for field in fields)])
        documents = [
            {"group": key % 2, fields[0]: place.ago(9000 if key < 10 else -60)} for key in range(40)
        ]
        place.raw.insert_many(documents)
        for ttl in (60, 86_400) if "ttl" in fields else ():
            place.raw.insert_one({"group": 0, "_ts": place.ago(600), "ttl": ttl})

        live = 20 if policy == -1 else 15
        assert await place.model.find({"group": 0}).count() == live + ("ttl" in fields)

        (command,) = place.commands.of("aggregate")
        stats = _stats_of(place, command)
        assert (stats["totalDocsExamined"], stats["totalKeysExamined"] <= 23) == (0, True)


async def test_it_does_for_documents_of_any_class(mongodb_url: str) -> None:
    async with swept(mongodb_url) as place:
        place.raw.create_index([("group", 1), ("_ts", 1), ("ttl", 1)])
        place.raw.insert_many([{"group": 1, "_ts": place.ago(age)} for age in (60, 9000)])
        raw = CodecOptions(document_class=RawBSONDocument)
        collection = place.database["documents"].with_options(codec_options=raw)

        assert await collection.count_documents({"group": 1}) == 1

        (command,) = place.commands.of("aggregate")
        assert _stats_of(place, command)["totalDocsExamined"] == 0
        assert await collection.count_documents({"group": 2}) == 0


async def test_a_count_judges_odd_values_as_a_find_does(mongodb_url: str) -> None:
    async with swept(mongodb_url) as place:
        place.raw.create_index([("group", 1), ("_ts", 1), ("ttl", 1)])
        odd = [value for value in (*VALID, *JUNK) if value is not MISSING]
        for age in (-60, 300, 9000):
            place.raw.insert_many([{"group": 1, "_ts": place.ago(age), "ttl": own} for own in odd])
            place.raw.insert_many([{"group": 1, "_ts": own} for own in odd])
            place.raw.insert_one({"group": 1, "_ts": [place.ago(age)]})
            place.raw.insert_one({"group": 1, "_ts": place.ago(age)})
        place.raw.insert_one({"group": 1})

        for asked in ({"group": 1}, {}, {"group": {"$gt": 0}}, {"group": 2}):
            found = await place.database["documents"].find(asked).to_list(None)
            assert await place.database["documents"].count_documents(asked) == len(found), asked
        limited = {"skip": 3, "limit": 5}
        assert await place.database["documents"].count_documents({"group": 1}, **limited) == 5


async def test_a_count_takes_the_options_of_the_driver(mongodb_url: str) -> None:
    async with swept(mongodb_url) as place:
        place.raw.create_index([("group", 1)], name="by group")
        place.raw.insert_many([{"group": "A", "_ts": place.ago(age)} for age in (60, 9000)])
        collection = place.database["documents"]

        options: dict[str, Any] = {
            "collation": {"locale": "en", "strength": 2},
            "maxTimeMS": 60_000,
            "comment": "how many?",
        }
        for hint, sent in ("by group", "by group"), ([("_id", 1)], {"_id": 1}):
            asked = collection.count_documents({"group": "a"}, **options, hint=hint)
            assert await asked == 1
            command = place.commands.of("aggregate")[-1]
            assert (command["hint"], command["comment"]) == (sent, "how many?")
        # An expression of the user's is asked of live documents only.
        place.raw.update_many({"_ts": {"$lt": place.ago(HOUR)}}, {"$set": {"zero": 0}})
        place.raw.update_many({"_ts": {"$gt": place.ago(HOUR)}}, {"$set": {"zero": 1}})
        fails = {"$expr": {"$gt": [{"$divide": [1, "$zero"]}, 0]}}
        assert await collection.count_documents(fails) == 1
        assert await collection.count_documents({"$or": [fails]}) == 1


def _stats_of(place: Swept, command: dict[str, Any]) -> dict[str, Any]:
    asked = {name: command[name] for name in ("aggregate", "pipeline", "cursor")}
    explained = place.raw.database.command({"explain": asked, "verbosity": "executionStats"})
    stages = explained.get("stages") or [{"$cursor": explained}]
    stats: dict[str, Any] = stages[0]["$cursor"]["executionStats"]
    return stats
