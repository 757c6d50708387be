"""mongod's own monitor deletes what has expired, and never what still lives.

The tests have a mongod of their own, whose monitor runs every second instead of every minute.
They wait for whole passes of it, as the server counts them, never for a time. A pass that is
counted may have begun before the change under test, the one after it has not.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document as BeanieDocument
from bson.datetime_ms import DatetimeMS
from pymongo import MongoClient

from tests.mongo.models import opened
from tests.mongo.scratch import Scratch, scratch
from tests.mongo.test_changed_policies import Ledger, begin, ensure_repaired, fill, shown
from tests.mongo.test_changed_policies import living as living_rows
from tests.mongo.test_predicate import (
    DATES,
    JUNK,
    MISSING,
    NOT_DATES,
    NOW,
    VALID,
    document,
    named,
)
from ttl_odm import TTL, ExpireAfter, ExpireAt
from ttl_odm.beanie import TTLMixin, ensure_indexes
from ttl_odm.beanie.indexes.ensure import ensure_collection
from ttl_odm.beanie.indexes.strays import repair_in
from ttl_odm.beanie.policy.ttl_indexes import own_expiry
from ttl_odm.core import MAX_TTL, expires_at, is_expired
from ttl_odm.core.policy import as_policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pymongo.collection import Collection

    Document = dict[str, Any]

TOOLS = Path(__file__).resolve().parents[2] / "tools"
MONITOR = "ttlMonitorSleepSecs"
# The future, and before and after 20, 600 and 3600 seconds: minutes before, for they pass.
AGES = [-600, 80, 240, 660, 3000, 3660]


@contextmanager
def private_server(folder: Path) -> Iterator[str | None]:
    """Start a mongod whose monitor hardly sleeps; None where this machine has no mongod."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        from local_servers import mongodb
        from local_servers.children import Children

        settings = (*mongodb._SETTINGS, "--setParameter", f"{MONITOR}=1")
        patch.setattr(mongodb, "_SETTINGS", settings)
        programs, children = mongodb.find(), Children()
        try:
            yield mongodb.start(programs, folder, children) if programs else None
        finally:
            children.stop_all()


@pytest.fixture(scope="module")
def busy_monitor(mongodb_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give a server of our own; else the given one, whose present sleep takes up to a minute."""
    with private_server(tmp_path_factory.mktemp("mongod")) as own:
        if own:
            yield own
            return
    client: MongoClient[Document]
    with MongoClient(mongodb_url) as client:
        slept = client.admin.command("getParameter", 1, **{MONITOR: 1})[MONITOR]
        client.admin.command("setParameter", 1, ttlMonitorEnabled=True, **{MONITOR: 1})
        yield mongodb_url
        client.admin.command("setParameter", 1, ttlMonitorEnabled=False, **{MONITOR: slept})


@pytest.fixture
async def place(busy_monitor: str) -> AsyncIterator[Scratch]:
    """Give an empty collection on the server with the busy monitor."""
    async with scratch(busy_monitor) as made:
        yield made


async def passes(place: Scratch, count: int = 2) -> None:
    """Wait until the monitor has gone through everything, from now on."""

    def counted() -> int:
        status = place.database.client.admin.command("serverStatus")
        number: int = status["metrics"]["ttl"]["passes"]
        return number

    until = counted() + count
    while counted() < until:  # noqa: ASYNC110 (what happens, happens in the server)
        await asyncio.sleep(0.05)


def write(collection: Collection[Document], policy: TTL, documents: list[Document]) -> None:
    """Write documents of some ``age`` in seconds as the gate would, with their ``_exp``."""
    collection.insert_many([dict(each) for each in documents])
    these = {"_id": {"$in": [each["_id"] for each in documents]}}
    age = {"$multiply": [{"$toLong": "$age"}, 1000]}
    stamp = {"$set": {policy.last_modified: {"$subtract": ["$$NOW", age]}}}
    collection.update_many(these, [stamp, {"$set": {"_exp": own_expiry(policy)}}])


def ids(collection: Collection[Document]) -> set[object]:
    return set(collection.distinct("_id"))


def living(documents: list[Document], policy: TTL) -> set[object]:
    """Return the keys of the documents that are not expired, by the contract."""
    now = datetime.now(timezone.utc)  # any clock: ages are minutes before every end of life
    ends = {
        each["_id"]: expires_at(
            policy, instant=now - timedelta(seconds=each["age"]), own=each.get("ttl")
        )
        for each in documents
    }
    return {key for key, end in ends.items() if not is_expired(end, now)}


def waits_for_the_sweeper(value: object) -> bool:
    """No partial filter can tell a fraction from a whole number."""
    return isinstance(value, float) and 1 < value < MAX_TTL and value % 1 > 0


EVERY_VALUE = [
    document(f"{number} {named(value)} aged {age}", age=age, ttl=value)
    for number, value in enumerate([*VALID, *JUNK])
    for age in AGES
]


POLICIES = [
    TTL(3600),
    TTL(-1),
    TTL(None),
    TTL(3600, override=None),
    TTL(3600, never=(0, 600)),
    TTL(-1, never=(20, MAX_TTL)),
    TTL(3600, last_modified="issued"),
]


@pytest.mark.in_turns
@pytest.mark.slow
async def test_every_value_of_a_ttl_is_deleted_when_expired_and_only_then(place: Scratch) -> None:
    for number, policy in enumerate(POLICIES):
        write(place.database[f"policy {number}"], policy, EVERY_VALUE)
        await ensure_collection(place.at(f"policy {number}"), policy)

    await passes(place, 3)

    for number, policy in enumerate(POLICIES):
        alive = living(EVERY_VALUE, policy)
        left = {
            each["_id"]
            for each in EVERY_VALUE
            if policy.override and waits_for_the_sweeper(each.get("ttl"))
        }
        assert alive <= ids(place.database[f"policy {number}"]), policy
        assert ids(place.database[f"policy {number}"]) == alive | left, policy


def test_only_a_fraction_above_one_waits_for_the_sweeper() -> None:
    waiting = [repr(each) for each in (*VALID, *JUNK) if waits_for_the_sweeper(each)]

    assert waiting == ["20.5"]


@pytest.mark.in_turns
async def test_a_document_is_deleted_once_it_is_past_its_limit(place: Scratch) -> None:
    rows = [
        document(f"{own} {age} {created}", age=age, ttl=own, created=created)
        for own in (MISSING, -1, 600, 100_000)
        for age in AGES
        for created in (None, 60, 6600, 7260)
    ]
    policies = {
        str(default): TTL(default, max_lifetime=7200, created="created_at")
        for default in (None, -1, 3600)
    }
    now = datetime.now(timezone.utc)
    for name, policy in policies.items():
        write(place.database[name], policy, rows)
        born = {"$subtract": ["$$NOW", {"$multiply": [{"$toLong": "$created"}, 1000]}]}
        is_known = {"created": {"$ne": None}}
        place.database[name].update_many(is_known, [{"$set": {"created_at": born}}])
        await ensure_collection(place.at(name), policy)

    await passes(place, 3)

    for name, policy in policies.items():
        ends = {
            each["_id"]: expires_at(
                policy,
                instant=now - timedelta(seconds=each["age"]),
                own=each.get("ttl"),
                created=each["created"] and now - timedelta(seconds=each["created"]),
            )
            for each in rows
        }
        alive = {key for key, end in ends.items() if not is_expired(end, now)}
        assert ids(place.database[name]) == alive, name
    await ensure_collection(place.at("3600"), policies["None"])
    assert set(place.database["3600"].index_information()) == {"_id_"}


CHANGES = [(600, 3600), (3600, 600), (3600, -1), (-1, 600), (3600, None), (None, 600), (-1, None)]


@pytest.mark.in_turns
async def test_a_changed_default_acts_at_once_on_old_and_new_documents(place: Scratch) -> None:
    old = [
        *(document(f"inherits {age}", age=age) for age in AGES),
        *(document(f"600 {age}", age=age, ttl=600) for age in AGES),
        document("never", age=3660, ttl=-1),
        document("junk", age=3660, ttl="junk"),
    ]
    new = [{**each, "_id": f"new {each['_id']}"} for each in old]
    for before, after in CHANGES:
        await ensure_collection(place.at(f"{before} to {after}"), TTL(before))
        write(place.database[f"{before} to {after}"], TTL(before), old)
    await passes(place)

    for before, after in CHANGES:
        await ensure_collection(place.at(f"{before} to {after}"), TTL(after))
        write(place.database[f"{before} to {after}"], TTL(after), new)
    await passes(place, 3)

    for before, after in CHANGES:
        alive = living(old, TTL(before)) & living(old, TTL(after)) | living(new, TTL(after))
        assert ids(place.database[f"{before} to {after}"]) == alive, (before, after)


@pytest.mark.in_turns
@pytest.mark.parametrize("longer", [10800, -1, None])
async def test_what_a_class_shows_is_not_deleted_while_its_default_gets_longer(
    busy_monitor: str, monkeypatch: pytest.MonkeyPatch, longer: int | None
) -> None:
    class Shelf(TTLMixin, BeanieDocument):
        __ttl__ = 3600
        id: int

    async def shown_and_stored(key: int, age: int) -> tuple[bool, bool]:
        await Shelf(id=key).insert()
        world.age(Shelf, key, age)
        shown = await Shelf.get(key) is not None
        await passes(place)
        return shown, key in ids(world.of(Shelf))

    async with opened(busy_monitor, [Shelf]) as world, scratch(busy_monitor) as place:
        await ensure_indexes(Shelf)
        monkeypatch.setattr(Shelf, "__ttl__", longer)

        assert await shown_and_stored(1, 600) == (True, True)
        assert await shown_and_stored(2, 7200) == (False, False)

        await ensure_indexes(Shelf)

        assert await shown_and_stored(3, 7200) == (True, True)
        assert ids(world.of(Shelf)) == {1, 3}


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (600, 3600),
        (3600, None),
        (TTL(3600), TTL(3600, last_modified="made")),
        (
            TTL(600, max_lifetime=7200, created="made"),
            TTL(3600, max_lifetime=3600, created="made"),
        ),
        (ExpireAfter("made", 600), ExpireAfter("made", 3600)),
        (ExpireAt("made"), 3600),
    ],
)
async def test_what_a_class_shows_is_not_deleted_whichever_policy_follows(
    busy_monitor: str, monkeypatch: pytest.MonkeyPatch, before: Any, after: Any
) -> None:
    async with opened(busy_monitor, [Ledger]) as world, scratch(busy_monitor) as place:

        async def assert_stays() -> None:
            seen = await shown()
            await passes(place)
            assert seen <= ids(world.of(Ledger))

        await begin(world, monkeypatch, before)
        await assert_stays()
        monkeypatch.setattr(Ledger, "__ttl__", after)
        fill(world, as_policy(before))
        await assert_stays()
        await ensure_repaired()
        await passes(place)  # one that goes by the earlier index may be under way
        fill(world, as_policy(after))
        await assert_stays()
        assert await shown() == living_rows(world, as_policy(after))


@pytest.mark.in_turns
async def test_dates_of_every_age_outlive_a_default_of_never(place: Scratch) -> None:
    ancient = [datetime(1, 1, 1, tzinfo=timezone.utc), DatetimeMS(-(2**63)), DatetimeMS(0)]
    policies = {"own": TTL(-1), "plain": TTL(-1, override=None)}
    for name, policy in policies.items():
        place.database[name].insert_many(
            [{"_id": n, "_ts": each} for n, each in enumerate(ancient)]
        )
        await ensure_collection(place.at(name), policy)

    await passes(place, 3)

    assert [place.database[name].count_documents({}) for name in policies] == [3, 3]


DATE_POLICIES = {
    "after 600 s": ExpireAfter("at", 600),
    "at": ExpireAt("at"),
    "at, or without": ExpireAt("at", null="expired"),
}


def moved(value: object) -> object:
    """Move a date from about NOW to about this minute, and what is later an hour away from it."""
    if isinstance(value, list):
        return [moved(each) for each in value]
    if not isinstance(value, datetime):
        return value
    since = datetime.now(timezone.utc) - NOW - timedelta(minutes=1)
    return value + since + (timedelta(hours=1) if value > NOW else timedelta(0))


@pytest.mark.in_turns
async def test_dates_and_arrays_of_dates_are_deleted_by_the_earliest(place: Scratch) -> None:
    documents = [document(key, at=moved(value)) for key, value in {**DATES, **NOT_DATES}.items()]
    for name, policy in DATE_POLICIES.items():
        place.database[name].insert_many(documents)
        await ensure_collection(place.at(name), policy)

    await passes(place, 3)

    now = datetime.now(timezone.utc)
    for name, policy in DATE_POLICIES.items():
        # By dates only: what null="expired" means is left to the sweeper.
        by_date = ExpireAt("at") if isinstance(policy, ExpireAt) else policy
        ends = {each["_id"]: expires_at(by_date, instant=each.get("at")) for each in documents}
        alive = {key for key, end in ends.items() if not is_expired(end, now)}
        assert ids(place.database[name]) == alive, policy


@pytest.mark.in_turns
async def test_a_sweepers_indexes_delete_nothing(place: Scratch) -> None:
    write(place.theirs, TTL(600), EVERY_VALUE)
    await ensure_collection(place.ours, TTL(600))
    await passes(place)
    left = ids(place.theirs)

    await ensure_collection(place.ours, TTL(600), purge="sweeper")
    again = [{**each, "_id": f"again {each['_id']}"} for each in EVERY_VALUE]
    write(place.theirs, TTL(600), again)
    await passes(place)

    assert ids(place.theirs) == left | {each["_id"] for each in again}


@pytest.mark.in_turns
@pytest.mark.slow
async def test_what_other_programs_leave_behind_is_deleted_as_the_documentation_says(
    place: Scratch,
) -> None:
    """docs/mongodb-deletion.md has this as a table."""
    policy = TTL(3600)
    await ensure_collection(place.ours, policy)
    expired_at_600 = [
        "raised to 7200, old _exp",
        "raised to 7200, no _exp",
        "set to -1, old _exp",
        "ttl removed, old _exp",
        "set to junk, old _exp",
        "renewed, old _exp",
    ]
    documents = [
        *(document(key, age=60, ttl=600) for key in expired_at_600),
        document("own ttl without _exp", age=660),
        document("shortened, old _exp", age=660, ttl=7200),
        document("without _ts", age=0),
        document("without _ts, own ttl", age=0, ttl=600),
    ]
    everything = {each["_id"] for each in documents}
    write(place.theirs, policy, documents)
    raw = place.theirs.update_one
    # As if ten minutes had passed: these are the dates that a stale _exp would hold.
    stale = {"_exp": datetime.now(timezone.utc) - timedelta(seconds=1)}
    raw({"_id": "raised to 7200, old _exp"}, {"$set": {"ttl": 7200, **stale}})
    raw({"_id": "raised to 7200, no _exp"}, {"$set": {"ttl": 7200}, "$unset": {"_exp": ""}})
    raw({"_id": "set to -1, old _exp"}, {"$set": {"ttl": -1, **stale}})
    raw({"_id": "ttl removed, old _exp"}, {"$set": stale, "$unset": {"ttl": ""}})
    raw({"_id": "set to junk, old _exp"}, {"$set": {"ttl": "7200", **stale}})
    raw({"_id": "renewed, old _exp"}, {"$currentDate": {"_ts": True}, "$set": stale})
    raw({"_id": "own ttl without _exp"}, {"$set": {"ttl": 600}})
    raw({"_id": "shortened, old _exp"}, {"$set": {"ttl": 600}})
    for key in ("without _ts", "without _ts, own ttl"):
        raw({"_id": key}, {"$unset": {"_ts": "", "_exp": ""}})

    await passes(place, 3)

    # The danger, and what ensure_indexes(guard=True) and find_strays() are for.
    assert everything - ids(place.theirs) == {"raised to 7200, old _exp", "renewed, old _exp"}

    assert await repair_in(place.ours, policy) == 6
    await passes(place)

    gone = {"own ttl without _exp", "shortened, old _exp"}
    assert (
        everything - ids(place.theirs) == {"raised to 7200, old _exp", "renewed, old _exp"} | gone
    )
