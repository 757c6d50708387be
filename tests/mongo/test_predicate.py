"""The server's verdict on every document is that of `ttl_odm.core`.

Nothing here depends on how fast it runs: ages keep a minute's distance from every deadline and
are set by the server's own clock, and the tests at the very deadline pass ``now`` as a literal.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from bson.datetime_ms import DatetimeMS
from pymongo import MongoClient

from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLConfigurationError
from ttl_odm.beanie.gate.cursors import end_of
from ttl_odm.beanie.policy.predicate import deciding_fields, expired_expr, live_expr
from ttl_odm.beanie.rewrite.lookups import of_variable
from ttl_odm.core import MAX_TTL, Policy, is_expired

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pymongo.collection import Collection
    from pymongo.database import Database

    Document = dict[str, Any]

NOW = datetime(2024, 1, 15, 12, tzinfo=timezone.utc)
MILLISECOND = timedelta(milliseconds=1)
MISSING = object()


@contextmanager
def scratch_collection(url: str) -> Iterator[Collection[Document]]:
    """Give a collection in a database of its own, and drop it afterwards."""
    client: MongoClient[Document]
    with MongoClient(url, tz_aware=True) as client:
        database: Database[Document] = client.get_database(f"ttl_odm_{uuid4().hex}")
        try:
            yield database.get_collection("documents")
        finally:
            client.drop_database(database)


def document(key: object, **fields: object) -> Document:
    return {"_id": key, **{name: each for name, each in fields.items() if each is not MISSING}}


def expired_keys(
    collection: Collection[Document], policy: Policy, now: str | datetime = "$$NOW"
) -> list[object]:
    """Return the keys that the server takes to be expired, having asked it in every way."""
    expired = expired_expr(policy, now)
    live = live_expr(policy, now)
    verdicts = list(collection.aggregate([{"$project": {"expired": expired, "live": live}}]))
    keys = [each["_id"] for each in verdicts if each["expired"] is True]
    assert [each["_id"] for each in verdicts if each["live"] is False] == keys
    by_find = [each["_id"] for each in collection.find({"$expr": expired}, {"_id": 1})]
    assert sorted(by_find, key=repr) == sorted(keys, key=repr)
    assert collection.count_documents({"$expr": live}) == len(verdicts) - len(keys)
    # As of a parent that was found, of which no more is there than what decides.
    each_lives = {"input": ["$$ROOT"], "as": "parent", "in": of_variable("$$parent", live)}
    as_parents = [
        {"$project": dict.fromkeys(deciding_fields(policy), 1)},
        {"$project": {"live": {"$anyElementTrue": [{"$map": each_lives}]}}},
    ]
    assert [row["_id"] for row in collection.aggregate(as_parents) if not row["live"]] == keys
    return keys


def expired_keys_by_core(
    documents: Sequence[Document], policy: Policy, now: datetime
) -> list[object]:
    ends = {each["_id"]: end_of(each, policy) for each in documents}
    return [key for key, end in ends.items() if is_expired(end, now)]


VALID = [-1, Int64(-1), -1.0, 20, Int64(20), 20.0, 600, 600.0, MAX_TTL, Int64(MAX_TTL)]
JUNK = [
    *(0, -0.0, -5, -2, Int64(0), Int64(-20), -(2**31), Int64(2**63 - 1), Int64(-(2**63))),
    *(20.5, -1.5, 0.5, math.nan, math.inf, -math.inf, 1e300),
    *(Int64(MAX_TTL + 1), Int64(2147483649), float(MAX_TTL + 1), MAX_TTL + 0.5),
    *("20", "", "-1", True, False, None, MISSING),
    *(Decimal128("20"), Decimal128("-1"), Decimal128("NaN"), Decimal128("0")),
    *([], [20], [-1], {}, {"ttl": 20}, NOW, ObjectId(), Binary(b"20"), re.compile("20")),
    *(Timestamp(20, 0), MinKey(), MaxKey(), Code("20")),
]
POLICIES: list[Policy] = [
    TTL(None),
    TTL(-1),
    TTL(3600),
    TTL(3600, override=None),
    TTL(-1, override=None),
    TTL(3600, never=(0, 600, 2**40, 2**63 - 1, -(2**63))),
    TTL(-1, never=(20,)),
    TTL(3600, values="strict"),
    TTL(3600, values="lenient"),
]
# A minute before and after 20, 600 and 3600 seconds, in the future, and longer ago than any ttl.
AGES = [-60, 80, 540, 660, 3540, 3660, 3_000_000_000]


def named(value: object) -> str:
    return "missing" if value is MISSING else f"{type(value).__name__}-{value!r}"[:40]


@pytest.mark.parametrize("stored", [*VALID, *JUNK], ids=named)
def test_the_server_agrees_with_the_core_on_its_own_clock(mongodb_url: str, stored: object) -> None:
    with scratch_collection(mongodb_url) as collection:
        collection.insert_many([document(age, ttl=stored) for age in AGES])
        born = {"$subtract": ["$$NOW", {"$multiply": [{"$toLong": "$_id"}, 1000]}]}
        collection.update_many({}, [{"$set": {"_ts": born}}])
        documents = list(collection.aggregate([{"$set": {"now": "$$NOW"}}]))

        for policy in POLICIES:
            answer = expired_keys_by_core(documents, policy, documents[0]["now"])
            assert expired_keys(collection, policy) == answer, policy


@pytest.mark.parametrize(
    ("default", "stored", "seconds"),
    [
        (1, MISSING, 1),
        (3600, "junk", 3600),
        (MAX_TTL, MISSING, MAX_TTL),
        (-1, 1, 1),
        (-1, Int64(600), 600),
        (3600, 600.0, 600),
        (1, MAX_TTL, MAX_TTL),
        (1, float(MAX_TTL), MAX_TTL),
    ],
    ids=named,
)
def test_a_document_is_expired_from_the_very_millisecond_on(
    mongodb_url: str, default: int, stored: object, seconds: int
) -> None:
    born = NOW - timedelta(seconds=seconds)
    with scratch_collection(mongodb_url) as collection:
        collection.insert_many(
            [
                document("after", _ts=born - MILLISECOND, ttl=stored),
                document("at", _ts=born, ttl=stored),
                document("before", _ts=born + MILLISECOND, ttl=stored),
            ]
        )

        assert expired_keys(collection, TTL(default), NOW) == ["after", "at"]


LONG_AGO = NOW - timedelta(days=36_500)
NOT_DATES: dict[str, object] = {
    "missing": MISSING,
    "null": None,
    "string": "2000-01-01",
    "number": 0,
    "long": Int64(0),
    "double": math.nan,
    "bool": True,
    "timestamp": Timestamp(1, 1),
    "object": {"$date": 0, "at": LONG_AGO},
    "id": ObjectId("000000000000000000000000"),
    "min": MinKey(),
    "empty": [],
    "strings": ["2000-01-01", None, 0],
    "nested": [[LONG_AGO]],
}


def test_a_document_without_a_date_of_last_modification_never_expires(mongodb_url: str) -> None:
    values = {**NOT_DATES, "array": [LONG_AGO]}
    with scratch_collection(mongodb_url) as collection:
        for own in (MISSING, 1, "junk"):
            collection.delete_many({})
            collection.insert_many(
                [document(key, _ts=value, ttl=own) for key, value in values.items()]
            )

            assert expired_keys(collection, TTL(1)) == []


DATES: dict[str, object] = {
    "after": NOW - timedelta(minutes=10) - MILLISECOND,
    "at": NOW - timedelta(minutes=10),
    "before": NOW - timedelta(minutes=10) + MILLISECOND,
    "both before": [NOW - timedelta(minutes=10) + MILLISECOND, NOW],
    "now": NOW,
    "later": NOW + MILLISECOND,
    "earliest counts": [NOW + timedelta(days=1), LONG_AGO, NOW],
    "all later": [NOW + timedelta(days=1), NOW + timedelta(days=2)],
    "odd ones are ignored": ["x", None, MinKey(), {}, NOW - timedelta(minutes=10), 5],
    "odd ones and later": ["x", None, MinKey(), NOW + timedelta(days=1)],
}


@pytest.mark.parametrize(
    ("policy", "answer"),
    [
        (
            ExpireAfter("at", 600),
            ["after", "at", "earliest counts", "odd ones are ignored"],
        ),
        (ExpireAfter("at", MAX_TTL), ["earliest counts"]),
        (
            ExpireAt("at"),
            [
                *("after", "at", "before", "both before", "now", "earliest counts"),
                "odd ones are ignored",
            ],
        ),
        (
            ExpireAt("at", null="expired"),
            [
                *("after", "at", "before", "both before", "now", "earliest counts"),
                *("odd ones are ignored", "missing", "null"),
            ],
        ),
    ],
    ids=repr,
)
def test_date_fields_expire_as_in_the_core_and_by_their_earliest_date(
    mongodb_url: str, policy: Policy, answer: list[str]
) -> None:
    with scratch_collection(mongodb_url) as collection:
        values = {**DATES, **NOT_DATES}
        collection.insert_many([document(key, at=value) for key, value in values.items()])

        assert expired_keys(collection, policy, NOW) == answer
        assert expired_keys_by_core(list(collection.find()), policy, NOW) == answer


EVERY_KIND: list[Policy] = [
    TTL(3600, last_modified="at"),
    TTL(MAX_TTL, last_modified="at", override=None),
    ExpireAfter("at", MAX_TTL),
    ExpireAt("at"),
]


@pytest.mark.parametrize("policy", EVERY_KIND, ids=repr)
def test_dates_that_python_cannot_hold_fail_no_query(mongodb_url: str, policy: Policy) -> None:
    with scratch_collection(mongodb_url) as collection:
        collection.insert_many(
            [
                {"_id": "last", "at": DatetimeMS(2**63 - 1), "ttl": MAX_TTL},
                {"_id": "first", "at": DatetimeMS(-(2**63)), "ttl": MAX_TTL},
            ]
        )

        assert expired_keys(collection, policy) == ["first"]


def test_other_field_names_and_paths_are_respected(mongodb_url: str) -> None:
    old = NOW - timedelta(hours=1)
    with scratch_collection(mongodb_url) as collection:
        collection.insert_many(
            [
                {"_id": 1, "meta": {"at": old}, "life": 60, "_ts": NOW, "ttl": -1},
                {"_id": 2, "meta": {"at": old}, "life": 0, "_ts": old, "ttl": 1},
                {"_id": 3, "meta": {"at": NOW}, "life": 60, "_ts": old, "ttl": 1},
                {"_id": 4, "meta": [{"at": NOW}, {"at": old}, {}], "Life": 60},
            ]
        )

        policy = TTL(60, last_modified="meta.at", override="life", never=(0,))
        assert expired_keys(collection, policy, NOW) == [1]
        assert expired_keys(collection, ExpireAfter("meta.at", 60), NOW) == [1, 2, 4]


SECONDS = int(NOW.timestamp())
EPOCHS: dict[str, list[object]] = {
    unit: [
        *(SECONDS * factor + step for step in (-factor * 61, -factor * 60 - 1, -factor * 60)),
        *(SECONDS * factor + step for step in (-factor * 60 + 1, -1, 0, 1, factor)),
        *(float(SECONDS * factor), float((SECONDS - 61) * factor), SECONDS * factor + 0.5),
        *(
            0,
            1,
            -1,
            Int64(2**63 - 1),
            Int64(-(2**63)),
            math.nan,
            math.inf,
            -math.inf,
            1e300,
            -1e300,
        ),
    ]
    for unit, factor in (("s", 1), ("ms", 1000), ("us", 1_000_000))
}
STRINGS: list[object] = [
    *("2024-01-15T12:00:00Z", "2024-01-15 12:00:00", "2024-01-15T12:00:00+00:00"),
    *("2024-01-15T11:59:59.999Z", "2024-01-15T12:00:00.000000001Z", "2024-01-15T12:00:00.000Z"),
    *("2024-01-15T11:58:59.999999Z", "2024-01-15T11:59:00Z", "2024-01-15T11:59:00.0009Z"),
    *(
        "2024-01-15T12:00:01Z",
        "2023-02-29T00:00:00Z",
        "2020-02-29T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ),
    *("0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "2020-13-01T00:00:00Z"),
    *("2020-01-01T24:00:00Z", "2020-01-01T00:00:60Z", "2020-01-01T00:00:00+01:00", "2020-01-01"),
    *("2020-01-01T00:00:00z", "2020-01-01T00:00:00Z\n", " 2020-01-01T00:00:00Z", "then", ""),
    *("2020-01-01T00:00:00.Z", "2020-01-01T00:00:00.1234567890Z", "2020-1-1T0:0:0Z"),
]
"""Whatever else may be in a field, in a policy with a unit as well."""


@pytest.mark.parametrize("unit", ["s", "ms", "us", "iso"])
@pytest.mark.parametrize(
    "build",
    [
        lambda unit: ExpireAt("at", unit=unit),
        lambda unit: ExpireAt("at", unit=unit, null="expired"),
        lambda unit: ExpireAfter("at", 60, unit=unit),
        lambda unit: TTL(60, last_modified="at", unit=unit),
    ],
)
def test_numbers_and_strings_are_read_as_the_core_reads_them(
    mongodb_url: str, unit: str, build: Any
) -> None:
    policy: Policy = build(unit)
    values = [*STRINGS, *JUNK, *VALID, *(each for some in EPOCHS.values() for each in some)]
    values += [NOW, NOW - timedelta(minutes=1), NOW + MILLISECOND, [NOW, "x"], [SECONDS, None]]
    documents = [document(number, at=value) for number, value in enumerate(values)]
    documents += [
        document(f"own {number}", at=each["at"], ttl=7200)
        for number, each in enumerate(documents)
        if "at" in each
    ]
    with scratch_collection(mongodb_url) as collection:
        collection.insert_many(documents)

        stored = list(collection.find())
        by_core = expired_keys_by_core(stored, policy, NOW)
        assert expired_keys(collection, policy, NOW) == by_core
        assert len(by_core) > 5


@pytest.mark.parametrize("others", [0, 30], ids=["few", "many"])
def test_each_kind_of_document_has_its_own_default(mongodb_url: str, others: int) -> None:
    kinds: list[Any] = ["cart", "order", "draft", 7, 7.0, True, 1, None, MISSING, ["cart"], "Cart"]
    policy = TTL(
        {
            "cart": 60,
            "order": None,
            "draft": -1,
            7: lambda: 60,
            1: 60,
            "$x": 60,
            **{f"other {number}": 60 + number for number in range(others)},
        },
        by="kind",
        other=600,
    )
    documents = [
        document(f"{kind!r} {age} {own}", kind=kind, ttl=own, _ts=NOW - timedelta(seconds=age))
        for kind in [*kinds, "$x"]
        for age in (59, 60, 599, 600, 7200)
        for own in (MISSING, 3600, -1, "junk")
    ]
    with scratch_collection(mongodb_url) as collection:
        collection.insert_many(documents)

        by_core = expired_keys_by_core(list(collection.find()), policy, NOW)
        assert expired_keys(collection, policy.settled, NOW) == by_core
        assert "'cart' 60 " in str(by_core)
        assert "'order'" not in str(by_core)


@pytest.mark.parametrize("build", [live_expr, expired_expr])
@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (TTL(60, timezone="Europe/Paris"), r"TTL\.timezone = 'Europe/Paris'"),
        (ExpireAt("at", timezone="local"), r"ExpireAt\.timezone = 'local'"),
        (TTL({True: 60}, by="kind"), r"True"),
        (ExpireAt("$at"), r"'\$at'"),
        (TTL(60, last_modified="$at"), r"'\$at'"),
        (TTL(60, override="$ttl"), r"'\$ttl'"),
    ],
    ids=repr,
)
def test_a_policy_that_bson_dates_cannot_follow_is_refused(
    build: Any, policy: Policy, message: str
) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        build(policy)
