"""`TTL.max_lifetime` on MongoDB: an end of life, counted from a document's creation."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from beanie import Document
from bson.datetime_ms import DatetimeMS

from tests.mongo.models import opened
from tests.mongo.sweeping import declared, swept
from tests.mongo.test_predicate import (
    MILLISECOND,
    MISSING,
    NOW,
    document,
    expired_keys,
    expired_keys_by_core,
    scratch_collection,
)
from ttl_odm import NEVER, TTL, ExpiredError, TTLConfigurationError
from ttl_odm.beanie import TTLMixin, ensure_indexes
from ttl_odm.beanie.policy.predicate import change_is, expired_expr
from ttl_odm.beanie.policy.ttl_indexes import azure_indexes, mongodb_indexes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.models import World

LIMIT = 150
HOUR = 3600


def limited(default: Any, **fields: Any) -> TTL:
    return TTL(default, max_lifetime=LIMIT, created="created_at", **fields)


def around_ages(*seconds: int) -> list[datetime]:
    ticks = (-MILLISECOND, timedelta(0), MILLISECOND)
    return [NOW - timedelta(seconds=each) - tick for each in seconds for tick in ticks]


CREATED: list[object] = [
    *(MISSING, None, "yesterday", 5, []),
    NOW - timedelta(seconds=75),
    *around_ages(LIMIT),
    NOW - timedelta(days=9),
    [NOW, NOW - timedelta(seconds=LIMIT)],
    [NOW, "yesterday", None],
]
DOCUMENTS = [
    document(f"{number}", _ts=written, ttl=own, created_at=created, kind=kind)
    for number, (own, written, created, kind) in enumerate(
        product((MISSING, -1, 50, 200, "junk"), around_ages(50, 100), CREATED, ("cart", "order"))
    )
]
POLICIES = [
    limited(None),
    limited(NEVER),
    limited(100),
    limited(100, override=None),
    limited({"cart": 100, "order": None}, by="kind"),
    limited({"cart": None}, by="kind", other=-1),
]


def test_the_server_agrees_with_the_core_to_the_millisecond(mongodb_url: str) -> None:
    with scratch_collection(mongodb_url) as collection:
        collection.insert_many(DOCUMENTS)
        for policy in POLICIES:
            answer = expired_keys_by_core(DOCUMENTS, policy, NOW)
            assert expired_keys(collection, policy, NOW) == answer, policy


def test_dates_of_creation_that_python_cannot_hold_fail_no_query(mongodb_url: str) -> None:
    dates = [DatetimeMS(each) for each in (-(2**63), 2**63 - 1, 253_402_300_800_000)]
    with scratch_collection(mongodb_url) as collection:
        collection.insert_many(
            [{"_id": n, "_ts": NOW, "created_at": d} for n, d in enumerate(dates)]
        )
        assert collection.count_documents({"$expr": expired_expr(limited(NEVER), NOW)}) == 1
        for what in ("longer", "shorter", "has_ttl", "no_ttl"):
            condition = {"$expr": change_is(what, limited(HOUR))}  # type: ignore[arg-type]
            expected = {"longer": 2, "shorter": 0, "has_ttl": 3, "no_ttl": 0}[what]
            assert collection.count_documents(condition) == expected, what


class Idle(TTLMixin, Document):
    """A session that ends after an hour without use, and after `LIMIT` days at the latest."""

    __ttl__: ClassVar[Any] = TTL(HOUR, max_lifetime=timedelta(days=LIMIT), created="created_at")
    id: str
    views: int = 0
    created_at: datetime | None = None

    class Settings:  # noqa: D106 (Beanie's)
        name = "idle"


@pytest.fixture
async def place(mongodb_url: str) -> AsyncIterator[World]:
    async with opened(mongodb_url, [Idle]) as made:
        yield made


async def test_what_is_past_its_limit_is_gone_and_its_key_is_free(place: World) -> None:
    now = place.now()
    old, new = now - timedelta(days=LIMIT + 1), now
    for key, ttl in (("a", None), ("b", -1), ("c", 10**9)):
        await Idle(id=key, created_at=old, ttl=ttl, views=7).insert()
    await Idle(id="live", created_at=new).insert()
    await Idle(id="unknown").insert()
    assert {each.id async for each in Idle.find()} == {"live", "unknown"}
    assert await Idle.get("a") is None
    assert await Idle.find().count() == 2
    assert await Idle.find({"_id": "b"}).project(Idle).to_list() == []
    held = (await Idle.find({"_id": "c"}, include_expired=True).to_list())[0]
    assert held.is_expired
    held.views = 8
    with pytest.raises(ExpiredError):
        await held.replace()
    await Idle.find({}).update({"$inc": {"views": 1}})
    assert place.stored(Idle, "a")["views"] == 7
    for key in ("a", "b", "c"):
        await Idle(id=key, created_at=new).insert()
    assert await Idle.find({"views": 0}).count() == 3


async def test_a_life_is_longer_only_up_to_the_limit(place: World) -> None:
    row = Idle(id="a", created_at=place.now() - timedelta(days=LIMIT) + timedelta(seconds=1800))
    await row.insert()
    stored = place.stored(Idle, "a")

    for life in (60, 7200):  # less than 1,800 s are left, by the limit
        assert not await row.expire_in(life, only_if="longer")
    assert not await row.expire_in(7200, only_if="shorter")
    assert place.stored(Idle, "a") == stored
    assert await row.expire_in(600, only_if="shorter")
    assert await row.expire_in(1200, only_if="longer")
    assert await row.expire_at(place.now() + timedelta(seconds=7200), only_if="longer")
    assert row.expires_at == row.created_at + timedelta(days=LIMIT)
    assert not await row.expire_in(9000, only_if="longer")


async def test_touching_moves_no_end_past_the_limit(place: World) -> None:
    limit = (place.now() + timedelta(minutes=30)).replace(microsecond=0)
    born = limit - timedelta(days=LIMIT)
    row = Idle(id="a", created_at=born)
    await row.insert()
    assert row.expires_at == limit
    assert not await row.touch(only_if="longer")
    assert not await row.touch(only_if="no_ttl")
    assert await row.touch(only_if="has_ttl")
    assert row.expires_at == limit
    await row.persist()
    assert row.expires_at == limit
    await row.expire_in(3 * HOUR)
    assert row.expires_at == limit
    await row.expire_in(600)
    assert row.expires_at is not None
    assert row.expires_at < limit
    assert await row.touch(only_if="longer")
    found = await Idle.get("a")
    assert found is not None
    assert found.expires_at == row.expires_at


async def test_a_projection_without_the_creation_is_judged_by_it(place: World) -> None:
    now = place.now()
    await Idle(id="old", created_at=now - timedelta(days=LIMIT)).insert()
    await Idle(id="new", created_at=now).insert()
    collection: Any = place.database["idle"]
    assert await collection.find({}, {"views": 1}).to_list(None) == [{"_id": "new", "views": 0}]
    assert await collection.find_one({"_id": "old"}) is None
    assert await collection.count_documents({}) == 1


@pytest.mark.parametrize("purge", ["sweeper", "native"])
@pytest.mark.parametrize("indexed", [True, False])
async def test_what_is_past_its_limit_is_swept(
    mongodb_url: str, purge: str, *, indexed: bool
) -> None:
    policy = TTL(HOUR, max_lifetime=10 * HOUR, created="created_at")
    async with swept(mongodb_url, declared(policy, purge), indexed=indexed) as place:
        old, new = place.ago(11 * HOUR), place.ago(60)
        place.add([f"old {n}" for n in range(30)], age=60, created_at=old)
        place.add([f"old {n} never" for n in range(30)], age=60, ttl=-1, created_at=old)
        place.add([f"old {n} own" for n in range(30)], age=60, ttl=10**6, created_at=old)
        place.add(["several"], age=60, created_at=[new, old, "x"])
        place.add(["idle"], age=2 * HOUR, created_at=new)
        place.add(["both"], age=2 * HOUR, created_at=old)
        place.add(["live"], age=60, created_at=new)
        place.add(["live never"], age=60, ttl=-1, created_at=new)
        place.add(["live unknown"], age=60, created_at=None)
        counted = await place.sweep(dry_run=True)
        assert [each.due for each in counted.targets] == [93]
        report = await place.sweep()
        assert report.deleted == 93
        assert place.keys() == {"live", "live never", "live unknown"}


def test_the_limit_has_an_index_of_its_own() -> None:
    names = {
        default: [
            (each.name, each.field, each.seconds) for each in mongodb_indexes(policy, "native")
        ]
        for default in (None, -1, 100)
        for policy in [limited(default)]
    }
    assert names[None] == []
    assert ("__ttl_created", "created_at", LIMIT) in names[-1]
    assert names[100] == [
        ("__ttl_default", "_ts", 100),
        ("__ttl_own", "_exp", 0),
        ("__ttl_created", "created_at", LIMIT),
    ]
    (swept_by,) = (each for each in mongodb_indexes(limited(100), "sweeper") if "cre" in each.name)
    assert (swept_by.name, swept_by.seconds) == ("__ttl_sweep_created", None)


async def test_an_index_that_deletes_sooner_by_the_creation_is_refused(place: World) -> None:
    place.of(Idle).create_index("created_at", expireAfterSeconds=60)
    with pytest.raises(TTLConfigurationError, match="delete documents 60 s after 'created_at'"):
        await ensure_indexes(Idle)


def test_what_mongodb_cannot_follow_is_refused() -> None:
    with pytest.raises(TTLConfigurationError, match="leave unit out, or max_lifetime"):
        mongodb_indexes(limited(100, unit="ms"), "sweeper")
    with pytest.raises(TTLConfigurationError, match="Azure Cosmos DB has one default"):
        azure_indexes(limited(100), "native")
    with pytest.raises(TTLConfigurationError, match="'_id' can't have a TTL index"):
        mongodb_indexes(TTL(100, max_lifetime=5, created="_id"), "native")


def test_a_creation_without_an_hour_is_refused() -> None:
    with pytest.raises(TTLConfigurationError, match="'created_at' is a date without a time"):

        class Daily(TTLMixin, Document):
            __ttl__: ClassVar[Any] = limited(100)
            created_at: date | None = None
