"""The sweeper on MongoDB: what it deletes, by which indexes, and what it leaves."""

from __future__ import annotations

import asyncio
import math
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from beanie import Document, TimeSeriesConfig, View, init_beanie
from bson import DatetimeMS, Decimal128, Int64, ObjectId
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import MongoClient

from tests.mongo.scratch import scratch
from tests.mongo.sweeping import DAY, HOUR, Swept, declared, fixed, swept
from tests.mongo.test_predicate import AGES, JUNK, MISSING, VALID, document
from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLConfigurationError
from ttl_odm.beanie import Archive, TTLMixin, ensure_indexes, ttl_database
from ttl_odm.beanie.sweep.store import open_store
from ttl_odm.core import expires_at, is_expired
from ttl_odm.sweeper import AsyncSweeper, Counted, Skip, StoreError, Sweeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ttl_odm.core import Policy
    from ttl_odm.sweeper import Progress

    Raw = dict[str, Any]

purges = pytest.mark.parametrize("purge", ["sweeper", "native"])


@pytest.fixture
async def carts(mongodb_url: str) -> AsyncIterator[Swept]:
    """Give a collection with a default of an hour, which the sweeper deletes from."""
    async with swept(mongodb_url) as made:
        yield made


def lives(policy: Policy, row: Raw, now: datetime) -> bool:
    """Say whether a document lives, by the contract."""
    field = policy.last_modified if isinstance(policy, TTL) else policy.field
    own = row.get(policy.override or "") if isinstance(policy, TTL) else None
    return not is_expired(expires_at(policy, instant=row.get(field), own=own), now)


# What is counted


async def test_what_comes_or_goes_while_it_counts_makes_the_number_of_all_an_estimate(
    carts: Swept,
) -> None:
    carts.add(range(5), age=2 * HOUR)
    carts.add(range(5, 8), age=0)
    store = open_store(carts.database, [carts.model])
    store.targets()
    assert await store.count("documents") == Counted(5, 8)
    carts.commands.before["aggregate"] = [lambda: carts.add([8], age=0)]
    found = await store.count("documents")
    assert (found.due, found.rows, found.is_estimated) == (5, 9, True)


# What is deleted


@pytest.mark.parametrize(
    "policy",
    [
        TTL(-1),
        TTL(HOUR),
        TTL(HOUR, override=None),
        TTL(HOUR, never=(0, 600, 2**40)),
        TTL(HOUR, last_modified="written", override="keep"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("sweep", ["index", "scan"])
@purges
async def test_exactly_what_has_expired_is_deleted_whatever_its_ttl(
    mongodb_url: str, policy: TTL, sweep: str, purge: str
) -> None:
    async with swept(mongodb_url, declared(policy, purge, sweep)) as place:
        now = place.now()
        rows = [
            document(
                f"{number} {age}",
                **{policy.last_modified: now - timedelta(seconds=age), policy.override or "x": own},
            )
            for number, own in enumerate([*VALID, *JUNK])
            for age in AGES
            if age < 10**9 or purge == "sweeper"
        ]
        rows += [
            document(f"undated {number}", **{policy.last_modified: each, policy.override or "x": 5})
            for number, each in enumerate([MISSING, None, "", 7, [], [now - timedelta(days=9)]])
        ]
        place.raw.insert_many(rows)
        kept = {row["_id"] for row in rows if lives(policy, row, now)}

        assert (await place.sweep(dry_run=True)).due == len(rows) - len(kept)
        report = await place.sweep(batch_size=50)

        assert not report.problems
        assert place.keys() == kept
        assert report.deleted == len(rows) - len(kept)
        (target,) = report.targets
        assert target.oldest_after == 0.0


@pytest.mark.parametrize("sweep", ["index", "scan"])
@purges
async def test_fractions_nan_and_dates_before_2000_are_found(
    mongodb_url: str, purge: str, sweep: str
) -> None:
    async with swept(mongodb_url, declared(HOUR, purge, sweep)) as place:
        ages = {
            "live": place.now(),
            "expired": place.ago(DAY),
            "of 1999": datetime(1999, 12, 31, 23, 59, tzinfo=timezone.utc),
        }
        owns = {"none": None, "20.5": 20.5, "NaN": math.nan, "decimal": Decimal128("NaN"), "60": 60}
        place.raw.insert_many(
            [
                {"_id": f"{own} {age}", "_ts": ages[age], "ttl": owns[own]}
                for age in ages
                for own in owns
            ]
        )
        inheriting = {"none of 1999", "NaN of 1999", "decimal of 1999"}
        left = inheriting if (purge, sweep) == ("native", "index") else set()

        await place.sweep()

        assert place.keys() == {*(f"{own} live" for own in owns), *left}
        walks = [find for find in place.commands.of("find") if find.get("hint") == {"_id": 1}]
        assert bool(walks) == (sweep == "scan")


@pytest.mark.parametrize(
    "policy",
    [ExpireAfter("made", 600), ExpireAt("made"), ExpireAt("made", null="expired")],
    ids=repr,
)
@pytest.mark.parametrize("sweep", ["index", "scan"])
@purges
async def test_documents_expire_by_a_date_of_theirs_or_the_earliest_of_several(
    mongodb_url: str, policy: Any, sweep: str, purge: str
) -> None:
    async with swept(mongodb_url, declared(policy, purge, sweep)) as place:
        now = place.now()
        old, new = now - timedelta(days=2), now + timedelta(days=2)
        far = DatetimeMS(2**62)
        values = [
            *(old, new, [old], [new], [new, old], [old, new], ["x", old], [], [None], [None, old]),
            *(MISSING, None, "x", 7, {}, {"a": old}, far, [far, old]),
        ]
        rows = [document(number, made=value) for number, value in enumerate(values)]
        place.raw.insert_many(rows)
        kept = {
            row["_id"]
            for row in rows
            if row.get("made") == far
            or lives(policy, {**row, "made": old} if row["_id"] == 17 else row, now)
        }

        assert (await place.sweep(dry_run=True)).due == len(rows) - len(kept)
        report = await place.sweep(batch_size=2)

        assert not report.problems
        assert place.keys() == kept


async def test_a_ttl_that_mongodb_cannot_index_does_not_keep_a_document(mongodb_url: str) -> None:
    async with swept(mongodb_url, declared(HOUR, "native")) as place:
        place.add(range(5), age=DAY, ttl=20.5)
        place.add(range(5, 10), age=60, ttl=20.5)
        report = await place.sweep(batch_size=2)
        assert report.deleted == 5
        assert report.targets[0].oldest_before == pytest.approx(DAY - HOUR, abs=300)
        assert place.keys() == set(range(5, 10))
        assert (await place.sweep()).targets[0].batches == 0


@purges
async def test_keys_may_be_of_any_kind(mongodb_url: str, purge: str) -> None:
    keys = [1, 2.5, Int64(3), "a", ObjectId(), {"b": 1, "a": [2]}, True, datetime(2020, 1, 1)]  # noqa: DTZ001
    keys += [DatetimeMS(2**62), None, b"x"]
    for sweep in ("index", "scan"):
        async with swept(mongodb_url, declared(HOUR, purge, sweep)) as place:
            place.add(keys, age=DAY)
            assert (await place.sweep(batch_size=3)).deleted == len(keys)
            assert place.raw.estimated_document_count() == 0


async def test_another_default_acts_without_new_indexes(
    mongodb_url: str,
) -> None:
    async with swept(mongodb_url, declared(DAY)) as place:
        place.add(range(3), age=HOUR)
        assert (await place.sweep()).deleted == 0
        place.model.__ttl__ = 60
        assert (await place.sweep()).deleted == 3


# _exp


@purges
async def test_an_expiry_that_is_missing_or_wrong_is_mended_and_deletes_nothing(
    mongodb_url: str, purge: str
) -> None:
    async with swept(mongodb_url, declared(HOUR, purge)) as place:
        born = place.ago(60)
        place.add(["missing", "string"], age=60, ttl=DAY)
        place.add(["early"], age=60, ttl=DAY, _exp=born)
        place.add(["fraction"], age=60, ttl=20.5)
        place.raw.update_one({"_id": "string"}, {"$set": {"_exp": "soon"}})
        place.add(["gone", "too early and gone"], age=DAY, ttl=60)
        place.raw.update_one({"_id": "too early and gone"}, {"$set": {"_exp": place.ago(2 * DAY)}})

        report = await place.sweep(batch_size=1)

        assert not report.problems
        assert report.deleted == 2
        rows = {row["_id"]: row for row in place.raw.find()}
        assert rows.keys() == {"missing", "string", "early", "fraction"}
        for key in ("missing", "string", "early"):
            row = rows[key]
            assert row["_exp"] == row["_ts"] + timedelta(seconds=DAY)
            assert born <= row["_ts"] <= place.ago(60)
        assert "_exp" not in rows["fraction"]
        assert (await place.sweep()).targets[0].batches == 0


# How it is found


def examined(place: Swept, command: Raw) -> tuple[int, int]:
    """Return the index entries and the documents that the server looks at for a command."""
    keep = ("find", "filter", "hint", "min", "max", "limit", "skip", "projection", "deletes")
    plain = {name: command[name] for name in (*command,) if name in (*keep, "delete")}
    explained = place.raw.database.command(
        {"explain": plain, "verbosity": "executionStats"},
        codec_options=CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS),
    )
    stats = explained["executionStats"]
    return stats["totalKeysExamined"], stats["totalDocsExamined"]


@pytest.mark.parametrize(
    "policy", [TTL(HOUR), TTL(-1), TTL(HOUR, override=None), ExpireAt("_ts")], ids=repr
)
@purges
async def test_an_idle_sweep_looks_at_no_document(
    mongodb_url: str, policy: Policy, purge: str
) -> None:
    async with swept(mongodb_url, declared(policy, purge)) as place:
        age = -DAY if isinstance(policy, ExpireAt) else 60
        place.add(range(500), age=age)
        place.raw.insert_many(
            [
                {"_id": 500 + n, "_ts": place.ago(age), "ttl": DAY, "_exp": place.ago(-DAY)}
                for n in range(50)
            ]
        )
        assert (await place.sweep()).targets[0].batches == 0
        finds = place.commands.of("find")
        assert 1 <= len(finds) <= 3
        for find in finds:
            keys, documents = examined(place, find)
            assert keys <= 1
            assert documents == 0


@purges
@pytest.mark.parametrize("ttl", [None, 60])
async def test_each_window_looks_at_its_own_documents_only(
    mongodb_url: str, purge: str, ttl: int | None
) -> None:
    async with swept(mongodb_url, declared(HOUR, purge)) as place:
        own = {} if ttl is None else {"ttl": ttl}
        for number in range(100):
            born = place.ago(DAY + number)
            ends = {} if ttl is None else {"_exp": born + timedelta(seconds=ttl)}
            place.raw.insert_one({"_id": number, "_ts": born, **own, **ends})
        place.add(range(100, 400), age=60)
        rows = list(place.raw.find())
        assert (await place.sweep(pace=fixed(10))).deleted == 100
        place.raw.delete_many({})
        place.raw.insert_many(rows)
        deletes = place.commands.of("delete")
        assert len(deletes) == 10
        for delete in deletes:
            for single in delete["deletes"]:
                assert examined(place, {"delete": "documents", "deletes": [single]})[0] <= 11


async def test_an_array_of_dates_in_the_way_does_not_make_batches_read_what_lives(
    carts: Swept,
) -> None:
    carts.raw.insert_one({"_id": "array", "_ts": [carts.ago(2 * DAY), carts.ago(-DAY)]})
    carts.add(range(30), age=DAY)
    carts.add(range(30, 330), age=60)
    rows = list(carts.raw.find())
    assert (await carts.sweep(pace=fixed(10))).deleted == 30
    assert len(carts.keys()) == 301
    carts.raw.delete_many({})
    carts.raw.insert_many(rows)
    for delete in carts.commands.of("delete"):
        assert examined(carts, delete)[1] <= 10


async def test_many_documents_of_one_moment_are_purged_in_batches(carts: Swept) -> None:
    carts.add(range(100), age=DAY)
    carts.add(range(100, 130), age=DAY, ttl=60)
    carts.add(range(130, 150), age=60)
    report = await carts.sweep(max_rows=90, batch_size=15)
    assert report.deleted == 90
    assert (await carts.sweep(batch_size=15)).deleted == 40
    assert carts.keys() == set(range(130, 150))


@pytest.mark.parametrize("policy", [TTL(HOUR), ExpireAfter("_ts", HOUR)], ids=repr)
async def test_without_the_indexes_the_collection_is_walked_in_slices(
    mongodb_url: str, policy: Policy
) -> None:
    async with swept(mongodb_url, declared(policy), indexed=False) as place:
        place.add(range(0, 300, 3), age=DAY)
        place.add(range(1, 300, 3), age=60)
        place.add(range(2, 300, 3), age=60)
        report = await place.sweep(pace=fixed(5))
        assert report.deleted == 100
        assert report.targets[0].oldest_before == pytest.approx(DAY - HOUR, abs=60)
        assert report.targets[0].oldest_after == 0.0
        for find in place.commands.of("find"):
            assert examined(place, find)[0] <= 51


async def test_an_index_that_is_dropped_under_a_sweep_fails_its_target_once(carts: Swept) -> None:
    carts.add(range(10), age=DAY)

    def drop(progress: Progress) -> None:
        if progress.error is None:
            carts.raw.drop_index("__ttl_sweep_default")

    for number in range(10):
        carts.raw.update_one({"_id": number}, {"$set": {"_ts": carts.ago(DAY + number)}})
    report = await carts.sweep(batch_size=3, on_progress=drop)
    assert isinstance(report.targets[0].error, StoreError)
    assert (await carts.sweep()).deleted == 10 - report.deleted


async def test_an_index_of_the_applications_own_will_do(mongodb_url: str) -> None:
    async with swept(mongodb_url, declared(ExpireAfter("_ts", HOUR)), indexed=False) as place:
        place.raw.create_index("_ts")
        place.add(range(3), age=DAY)
        report = await place.sweep()
        assert (report.deleted, report.targets[0].oldest_before) == (
            3,
            pytest.approx(DAY - HOUR, abs=60),
        )


# Kinds of collections


async def test_a_capped_collection_is_swept_without_transactions(mongodb_url: str) -> None:
    async with swept(mongodb_url, indexed=False) as place:
        place.raw.database.create_collection("documents", capped=True, size=100_000)
        await ensure_indexes(place.model)
        place.add(range(5), age=DAY)
        place.add(range(5, 8), age=60)
        assert (await place.sweep()).deleted == 5
        place.add(range(5), age=DAY)
        (target,) = (await place.sweep(on_purged=print)).targets
        assert isinstance(target.error, TTLConfigurationError)
        assert "capped" in str(target.error)


async def test_a_collection_with_a_collation_is_swept(mongodb_url: str) -> None:
    for sweep in ("index", "scan"):
        async with swept(mongodb_url, declared(sweep=sweep), indexed=False) as place:
            place.raw.database.create_collection("documents", collation={"locale": "de"})
            await ensure_indexes(place.model)
            place.add([*"aäbAÄB", *range(10)], age=DAY)
            place.add(["ö"], age=DAY, ttl=60)
            report = await place.sweep(batch_size=2)
            assert report.deleted == 17
            assert report.targets[0].oldest_after == 0.0


async def test_a_clustered_collection_is_swept(mongodb_url: str) -> None:
    for sweep in ("index", "scan"):
        async with swept(mongodb_url, declared(sweep=sweep), indexed=False) as place:
            clustered = {"key": {"_id": 1}, "unique": True}
            place.raw.database.create_collection("documents", clusteredIndex=clustered)
            await ensure_indexes(place.model)
            place.add(range(25), age=DAY)
            told: list[Any] = []
            assert (await place.sweep(batch_size=2, on_purged=told.append)).deleted == 25


@pytest.mark.filterwarnings("ignore:This field is deprecated")  # Beanie 1.30, of its own field
async def test_a_time_series_is_left_to_mongodb(mongodb_url: str) -> None:
    class Measured(TTLMixin, Document):
        __ttl__: ClassVar[Any] = ExpireAfter("at", 60)
        at: datetime

        class Settings:
            timeseries = TimeSeriesConfig(time_field="at")

    async with scratch(mongodb_url) as place:
        database = ttl_database(place.ours.database)
        await init_beanie(database=database, document_models=[Measured])
        place.database["Measured"].insert_one({"at": datetime(2020, 1, 1, tzinfo=timezone.utc)})
        report = await AsyncSweeper(database, Measured, lease=False).run_once()
        assert report.targets == ()
        assert not report.problems


async def test_where_there_are_no_transactions_rows_are_deleted_and_hooks_refused(
    carts: Swept, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ttl_odm.beanie.policy import commands

    real = commands.RawCollection.server

    async def alone(self: Any) -> Any:
        return commands.Server((await real(self)).now, has_transactions=False)

    monkeypatch.setattr(commands.RawCollection, "server", alone)
    for number in range(20):
        carts.add([number], age=DAY + number, ttl=None if number % 2 else 60)
    assert not any("autocommit" in each for each in carts.commands.sent)
    (target,) = (await carts.sweep(on_purged=print)).targets
    assert isinstance(target.error, TTLConfigurationError)
    assert "replica set" in str(target.error)
    assert len(carts.keys()) == 20
    assert (await carts.sweep(batch_size=3)).deleted == 20


async def test_a_limit_for_statements_is_a_limit_for_commands(carts: Swept) -> None:
    carts.add(range(5), age=DAY)
    carts.add(range(5, 9), age=DAY, ttl=20.5)
    assert (await carts.sweep(statement_timeout=12.5, on_purged=lambda _: None)).deleted == 9
    commands = [*carts.commands.of("delete"), *carts.commands.of("commitTransaction")]
    assert commands
    assert {each["maxTimeMS"] for each in commands} == {12_500}


# What is given to the sweeper


async def test_a_sweeper_is_made_of_a_database_and_document_classes(carts: Swept) -> None:
    carts.add(range(3), age=DAY)
    plain = carts.database.client[carts.database.name]
    assert (await AsyncSweeper(plain, carts.model, lease=False).run_once()).deleted == 3

    class Derived(carts.model):  # type: ignore[misc, name-defined]
        pass

    await init_beanie(database=carts.database, document_models=[carts.model, Derived])
    report = await AsyncSweeper(carts.database, [carts.model, (Derived,)]).run_once()
    assert [each.table for each in report.targets] == ["documents"]


async def test_what_cannot_be_swept_is_refused_with_what_to_give_instead(
    carts: Swept, mongodb_url: str
) -> None:
    class Plain(Document):
        pass

    class Unready(TTLMixin, Document):
        __ttl__ = 60

    class Elsewhere(TTLMixin, Document):
        __ttl__ = 60

    class Cosmic(TTLMixin, Document):
        __ttl__ = 60

    class Names(View):
        name: str = ""

        class Settings:
            source = Plain
            pipeline: ClassVar[list[Any]] = []

    database = carts.database
    other = ttl_database(database.client["ttl_odm_never_made"])
    azure = ttl_database(database.client[database.name], backend="cosmos")
    await init_beanie(database=database, document_models=[Plain])
    await init_beanie(database=other, document_models=[Elsewhere])
    await init_beanie(database=azure, document_models=[Cosmic])
    for given, expected in (
        (Plain, "Plain has no TTL"),
        (Unready, r"call init_beanie\(\) first"),
        (Elsewhere, "'ttl_odm_never_made'"),
        (Cosmic, "Azure Cosmos DB"),
        (Names, "Names is not a Beanie document class"),
        (int, "not a Beanie document class"),
        ("documents", "pass a document class"),
        (None, "pass a document class"),
    ):
        with pytest.raises(TTLConfigurationError, match=expected):
            AsyncSweeper(database, given)
    with pytest.raises(TTLConfigurationError, match="use AsyncSweeper"):
        Sweeper(database, carts.model)
    with (
        MongoClient(mongodb_url) as synchronous,
        pytest.raises(TTLConfigurationError, match="AsyncDatabase"),
    ):
        AsyncSweeper(synchronous["x"], carts.model)


async def test_a_store_names_its_database_system(carts: Swept) -> None:
    assert open_store(carts.database, carts.model).backend == "mongodb"


async def test_a_declaration_that_cannot_work_is_refused_when_the_sweeper_is_made(
    carts: Swept,
) -> None:
    for attributes, expected in (
        ({"__ttl_sweep__": "now and then"}, "'index' or 'scan'"),
        ({"__ttl_archive__": Archive("documents")}, "the collection itself"),
        ({"__ttl_archive__": Archive(7)}, "the name of a collection"),
        ({"__ttl_archive__": "old"}, r"write Archive\(\.\.\.\)"),
        (
            {"__ttl_archive__": Archive("old"), "__ttl_purge__": "native"},
            r"\.__ttl_archive__: .*'sweeper'",
        ),
        (
            {"__ttl_on_purged__": print, "__ttl_purge__": "native"},
            r"\.__ttl_on_purged__: .*'sweeper'",
        ),
        ({"__ttl_on_purged__": 7}, "on_purged"),
    ):
        with pytest.MonkeyPatch.context() as patched:
            for name, value in attributes.items():
                patched.setattr(carts.model, name, value, raising=False)
            with pytest.raises(TTLConfigurationError, match=expected):
                AsyncSweeper(carts.database, carts.model)


async def test_hooks_are_refused_where_mongodb_deletes_by_itself(mongodb_url: str) -> None:
    async with swept(mongodb_url, declared(HOUR, "native")) as place:
        place.add(range(3), age=DAY)
        (target,) = (await place.sweep(on_purged=print)).targets
        assert isinstance(target.error, TTLConfigurationError)
        assert "itself" in str(target.error)


async def test_a_class_without_ttl_at_the_moment_is_left_alone(carts: Swept) -> None:
    carts.add(range(3), age=DAY)
    carts.model.__ttl__ = None
    assert (await carts.sweep()).targets == ()
    carts.model.__ttl__ = HOUR
    assert (await carts.sweep()).deleted == 3


async def test_a_cancelled_sweep_finishes_its_batch(carts: Swept) -> None:
    for number in range(30):
        carts.add([number], age=DAY + number)
    tasks: list[asyncio.Task[Any]] = []
    carts.commands.before["delete"] = [lambda: loop.call_soon_threadsafe(tasks[0].cancel)]
    loop = asyncio.get_running_loop()
    tasks.append(asyncio.ensure_future(carts.sweep(batch_size=10)))
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert len(carts.keys()) in (10, 20)
    assert (await carts.sweep()).skipped == 0
    assert carts.keys() == set()


# Others at work


@pytest.mark.parametrize("ttl", [None, 60])
@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("batch_size", [4, 100])
async def test_documents_that_somebody_holds_are_skipped_and_the_others_go(
    carts: Swept,
    ttl: int | None,
    tells: bool,  # noqa: FBT001
    batch_size: int,
) -> None:
    own = {} if ttl is None else {"ttl": ttl}
    carts.add(range(20), age=DAY, **own)
    carts.add(range(20, 40), age=2 * DAY, **own)
    told: list[Any] = []
    options: Raw = {"on_purged": told.append} if tells else {}
    with carts.raw.database.client.start_session() as session:
        session.start_transaction()
        held = {"_id": {"$in": [3, 7, 30]}}
        carts.raw.update_many(held, {"$currentDate": {"_ts": True}}, session=session)
        report = await carts.sweep(batch_size=batch_size, **options)
        assert not report.problems
        assert report.deleted == 37
        assert report.targets[0].skips == {Skip.LOCKED: 3}
        assert carts.keys() == {3, 7, 30}
        session.commit_transaction()
    report = await carts.sweep(batch_size=batch_size, **options)
    assert report.deleted == report.skipped == 0
    assert carts.keys() == {3, 7, 30}
    if tells:
        assert sorted(key for each in told for (key,) in each.keys) == sorted(
            set(range(40)) - {3, 7, 30}
        )


# What it asks


async def test_an_idle_sweep_sends_seven_commands(carts: Swept) -> None:
    """Two for its lease, three about the collection and the server, one for each index."""
    await carts.sweep(lease=True)
    carts.commands.sent.clear()
    report = await carts.sweep(lease=True)
    report.raise_for_failures()
    assert [next(iter(command)) for command in carts.commands.sent] == [
        "findAndModify",
        "listCollections",
        "listIndexes",
        "hello",
        "find",
        "find",
        "update",
    ]


async def test_a_document_without_an_end_does_not_hide_how_long_others_have_been_expired(
    carts: Swept,
) -> None:
    """The first in the index of ends is due, but the one behind it has been due for longer."""
    carts.add([1], age=2 * HOUR, ttl=HOUR, _exp=None)
    carts.add([2], age=5 * HOUR, ttl=HOUR, _exp=carts.ago(4 * HOUR))
    store = open_store(carts.database, [carts.model])
    store.targets()
    due = await store.due("documents")
    assert due is not None
    assert due.oldest is not None
    assert 4 * HOUR <= due.oldest < 5 * HOUR
    assert (await carts.sweep()).deleted == 2
