"""What becomes of purged documents on MongoDB: archives, hooks, and accidents to both."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import pytest
from beanie import Document, PydanticObjectId, init_beanie
from bson import Binary, DatetimeMS, Decimal128, Int64, ObjectId, Regex
from bson.codec_options import CodecOptions
from bson.errors import InvalidDocument
from bson.raw_bson import RawBSONDocument
from pymongo import InsertOne
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    DuplicateKeyError,
    ExecutionTimeout,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
    WriteConcernError,
    WriteError,
)

from tests.mongo.models import collection_of
from tests.mongo.scratch import scratch
from tests.mongo.sweeping import DAY, HOUR, Swept, declared, fixed, swept
from ttl_odm import TTLConfigurationError
from ttl_odm.beanie import Archive, TTLMixin
from ttl_odm.beanie.policy.commands import command_in, run
from ttl_odm.beanie.purge.errors import in_short, store_errors
from ttl_odm.sweeper import (
    Hook,
    HookError,
    Purged,
    Skip,
    StoreError,
    TransientStoreError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    Raw = dict[str, Any]

ANY_CASE = {"locale": "en", "strength": 2}


@pytest.fixture
async def carts(mongodb_url: str) -> AsyncIterator[Swept]:
    """Give a collection with a default of an hour, which the sweeper deletes from."""
    async with swept(mongodb_url) as made:
        yield made


def expired(place: Swept, number: int = 10) -> None:
    """Write so many documents that have expired, at different times, and one that lives."""
    for key in range(number):
        place.add([key], age=DAY + key, text=f"text {key}")
    place.add([99], age=60)


def told_keys(told: list[Purged]) -> list[Any]:
    return sorted(key for each in told for (key,) in each.keys)


# Archives


async def test_documents_are_archived_to_the_byte(mongodb_url: str) -> None:
    async with swept(mongodb_url, declared(archive=Archive("old"))) as place:
        odd = {
            "_id": {"z": 1, "a": Int64(2)},
            "_ts": place.ago(DAY),
            "ttl": 20.0,
            "far": DatetimeMS(2**62),
            "amount": Decimal128("1.10"),
            "number": Int64(1),
            "uuid": Binary(uuid4().bytes, 3),
            "nested": {"b": [{"y": 1, "x": None}], "a": Regex("a+", "i")},
        }
        place.raw.insert_one(odd)
        expired(place)
        options: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
        before = {each.raw for each in place.raw.with_options(options).find({"_id": {"$ne": 99}})}

        report = await place.sweep(pace=fixed(3))

        assert not report.problems
        assert (report.deleted, report.archived) == (11, 11)
        assert place.keys() == {99}
        old = place.raw.database["old"].with_options(options)
        assert {each.raw for each in old.find()} == before


async def test_an_archive_may_be_a_class_with_a_ttl_of_its_own_and_say_when(
    mongodb_url: str,
) -> None:
    class Old(TTLMixin, Document):
        __ttl__: ClassVar[Any] = 10 * DAY
        id: Any  # type: ignore[assignment]
        text: str
        at: datetime

        class Settings:
            name = "old"

    async with swept(mongodb_url, declared(archive=Archive(Old, archived_at="at"))) as place:
        await init_beanie(database=place.database, document_models=[Old])
        place.add([1, 2], age=DAY, text="kept", ttl=60)
        began = place.ago(0)
        assert (await place.sweep()).archived == 2
        found = await Old.find().to_list()
        assert sorted(each.id for each in found) == [1, 2]
        for each in place.raw.database["old"].find():
            assert each["text"] == "kept"
            assert began <= each["at"] <= place.now()
            assert began <= each["_ts"] <= place.now()
            assert each.keys() == {"_id", "_ts", "text", "at"}


async def test_a_document_that_the_archive_refuses_keeps_no_other_one(mongodb_url: str) -> None:
    async with swept(mongodb_url, declared(archive=Archive("old"))) as place:
        expired(place)
        refused = {"$nor": [{"text": "text 3"}, {"text": "text 7"}]}
        place.raw.database.create_collection("old", validator=refused)
        report = await place.sweep(pace=fixed(4))
        (target,) = report.targets
        assert isinstance(target.error, HookError)
        assert "old" in str(target.error)
        assert (target.deleted, target.archived) == (8, 8)
        assert target.skips == {Skip.HOOK: 2}
        assert place.keys() == {3, 7, 99}
        assert place.keys("old") == {*range(10)} - {3, 7}


def lives(place: Swept, key: Any) -> list[str]:
    """Return what the archive has of a key, the first life first."""
    old = place.raw.database["old"]
    first, later = old.find({"_id": key}), old.find({"_original_id": key}).sort("_id")
    return [each["text"] for each in (*first, *later)]


@pytest.mark.slow
@pytest.mark.parametrize("size", [1000, 7])
async def test_an_archive_keeps_every_life_of_a_key(mongodb_url: str, size: int) -> None:
    async with swept(mongodb_url, declared(archive=Archive("old", archived_at="at"))) as place:
        for life in ("first", "second", "third"):
            place.add(range(150), age=DAY, text=life, n={"deep": [1, Int64(2)]})
            place.add([f"of the {life}"], age=DAY, text=life)
            report = await place.sweep(pace=fixed(size))
            assert not report.problems
            assert (report.deleted, report.archived) == (151, 151)
        assert {tuple(lives(place, key)) for key in range(150)} == {("first", "second", "third")}
        assert lives(place, "of the second") == ["second"]
        assert place.raw.database["old"].count_documents({}) == 3 * 151
        (third,) = place.raw.database["old"].find({"_original_id": 7, "text": "third"})
        assert third.keys() == {"_id", "_original_id", "_ts", "text", "n", "at"}
        assert isinstance(third["_id"], ObjectId)


async def test_keys_that_mongodb_takes_for_the_same_are_the_same_for_an_archive(
    mongodb_url: str,
) -> None:
    async with swept(mongodb_url, declared(archive=Archive("old"))) as place:
        place.raw.database.create_collection("old", collation=ANY_CASE)
        for life in ([1, 2, "a", {"x": 1}], [1.0, Int64(2), "A", {"x": 1.0}], [1, 3, "b"]):
            place.add(life, age=DAY, text="x")
            assert not (await place.sweep()).problems
        old = place.raw.database["old"]
        assert old.count_documents({}) == 11
        assert old.count_documents({"_original_id": {"$exists": True}}) == 5


async def test_an_archive_of_a_class_keeps_later_lives_for_its_own_ttl(mongodb_url: str) -> None:
    class Old(TTLMixin, Document):
        __ttl__: ClassVar[Any] = 10 * DAY
        id: int | PydanticObjectId  # type: ignore[assignment]
        text: str

        class Settings:
            name = "old"

    async with swept(mongodb_url, declared(archive=Archive(Old))) as place:
        await init_beanie(database=place.database, document_models=[Old])
        for life in ("first", "second"):
            place.add([1], age=DAY, text=life)
            assert (await place.sweep()).archived == 1
        assert sorted([each.text for each in await Old.find().to_list()]) == ["first", "second"]
        assert [each.text for each in await Old.find({"_original_id": 1}).to_list()] == ["second"]
        place.raw.database["old"].update_many({}, {"$set": {"_ts": place.ago(20 * DAY)}})
        place.add([1], age=DAY, text="third")
        assert (await place.sweep()).archived == 1
        assert [each.text for each in await Old.find().to_list()] == ["third"]


@pytest.mark.slow
async def test_documents_larger_than_a_reply_are_archived_in_the_end(mongodb_url: str) -> None:
    async with swept(mongodb_url, declared(archive=Archive("old"))) as place:
        text = "x" * 6_000_000
        for key in range(7):
            place.add([key], age=DAY, text=text)
        told: list[Any] = []
        hook = Hook(lambda purged: told.extend(len(row["text"]) for row in purged.rows), rows=True)
        report = await place.sweep(on_purged=hook)
        assert not report.problems
        assert (report.deleted, report.archived) == (7, 7)
        assert told == [len(text)] * 7
        assert place.keys("old") == set(range(7))


# Hooks


async def test_hooks_read_documents_as_the_application_does(mongodb_url: str) -> None:
    key = uuid4()
    async with swept(mongodb_url, uuidRepresentation="standard", tz_aware=True) as place:
        born = place.ago(DAY)
        place.raw.insert_one(
            {"_id": Binary.from_uuid(key), "_ts": born, "a": {"b": 1}, "far": DatetimeMS(2**62)}
        )
        told: list[Purged] = []
        report = await place.sweep(on_purged=Hook(told.append, rows=True))
        assert not report.problems
        (purged,) = told
        assert purged.keys == [(key,)]
        assert purged.as_of.utcoffset() == timedelta(0)
        assert purged.rows is not None
        (row,) = purged.rows
        assert row == {"_id": key, "_ts": born, "a": {"b": 1}, "far": DatetimeMS(2**62)}
        assert type(row["a"]) is dict


async def test_a_hook_whose_write_meets_another_transaction_is_told_again(carts: Swept) -> None:
    expired(carts)
    counters = carts.raw.database["counters"]
    counters.insert_one({"_id": "purged", "number": 0})
    calls: list[int] = []

    async def count(purged: Purged) -> None:
        calls.append(purged.count)
        theirs = carts.database["counters"]
        step = {"$inc": {"number": purged.count}}
        if len(calls) == 1:
            # Somebody else counts, after this transaction has begun.
            counters.update_one({"_id": "purged"}, {"$inc": {"number": 1000}})
        await theirs.update_one({"_id": "purged"}, step, session=purged.transaction)

    report = await carts.sweep(on_purged=count)
    assert not report.problems
    assert report.deleted == 10
    assert sum(calls) > 10
    found = counters.find_one()
    assert found is not None
    assert found["number"] == 1010


async def test_a_hook_that_fails_on_documents_of_one_moment_is_not_told_for_ever(
    carts: Swept,
) -> None:
    carts.add(range(40), age=DAY)
    carts.add(range(40, 50), age=HOUR + 60)

    def fails(_: Purged) -> None:
        raise ValueError("never")

    report = await carts.sweep(on_purged=fails, pace=fixed(10))
    (target,) = report.targets
    assert isinstance(target.error, HookError)
    assert target.deleted == 0
    assert target.batches <= 15
    assert len(carts.keys()) == 50


async def test_only_targets_that_are_told_pay_for_it(carts: Swept) -> None:
    expired(carts)
    told: list[Purged] = []
    await carts.sweep(on_purged={"others": told.append})
    assert told == []
    (delete,) = carts.commands.of("delete")
    assert {each["hint"] for each in delete["deletes"]} == {"__ttl_sweep_default"}


# Documents in the way of a write


@asynccontextmanager
async def in_transaction(place: Swept) -> AsyncIterator[Any]:
    """Give a session in a transaction, as an application does."""
    started = place.database.client.start_session()
    async with await started if isawaitable(started) else started as session:
        opened = session.start_transaction()
        async with await opened if isawaitable(opened) else opened:
            yield session


DISPLACING = {
    "insert": lambda model, options: model(id=3).insert(**options),
    "save": lambda model, options: model(id=3).save(**options),
    "insert_many": lambda model, options: model.insert_many(
        [model(id=3), model(id=100)], **options
    ),
    "upsert": lambda model, options: collection_of(model).update_one(
        {"_id": 3}, {"$set": {"new": 1}}, upsert=True, **options
    ),
    "bulk": lambda model, options: collection_of(model).bulk_write(
        [InsertOne({"_id": 3}), InsertOne({"_id": 101})], **options
    ),
    "update": lambda model, options: collection_of(model).update_one(
        {"_id": 99}, {"$set": {"text": "TEXT 3"}}, **options
    ),
}


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("write", DISPLACING.values(), ids=DISPLACING)
async def test_documents_in_the_way_are_archived_and_told_as_displaced(
    mongodb_url: str,
    write: Any,
    is_inside: bool,  # noqa: FBT001
) -> None:
    told: list[Purged] = []
    hooks = [told.append, Hook(told.append, when="commit")]
    async with swept(mongodb_url, declared(archive=Archive("old"), on_purged=hooks)) as place:
        place.raw.create_index("text", unique=True, collation=ANY_CASE, sparse=True)
        expired(place)
        if is_inside:
            async with in_transaction(place) as session:
                await write(place.model, {"session": session})
                assert place.keys("old") == set()
        else:
            await write(place.model, {})
        (old,) = place.raw.database["old"].find()
        assert (old["_id"], old["text"]) == (3, "text 3")
        (purged,) = told
        assert (purged.table, purged.reason, purged.keys) == ("documents", "displaced", [(3,)])
        assert purged.transaction is not None
        assert place.raw.count_documents({"text": "text 3"}) == 0
        assert {0, 1, 2, 4, 99} <= place.keys()


async def test_an_archive_or_hook_that_fails_keeps_the_document_and_the_key(
    mongodb_url: str,
) -> None:
    def fails(_: Purged) -> None:
        raise ValueError("never")

    async with swept(mongodb_url, declared(archive=Archive("old"), on_purged=fails)) as place:
        expired(place)
        with pytest.raises(HookError, match="never"):
            await place.model(id=3).insert()
        place.raw.database.create_collection("old", validator={"text": {"$ne": "text 4"}})
        with pytest.raises(HookError, match="old"):
            await place.model(id=4).insert()
        assert place.keys() == {*range(10), 99}
        assert place.keys("old") == set()


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("write", DISPLACING.values(), ids=DISPLACING)
async def test_a_document_in_the_way_is_archived_whatever_the_archive_has_of_its_key(
    mongodb_url: str,
    write: Any,
    is_inside: bool,  # noqa: FBT001
) -> None:
    async with swept(mongodb_url, declared(archive=Archive("old"))) as place:
        place.raw.create_index("text", unique=True, collation=ANY_CASE, sparse=True)
        expired(place)
        place.raw.database["old"].insert_one({"_id": 3, "text": "an earlier life"})
        if is_inside:
            async with in_transaction(place) as session:
                await write(place.model, {"session": session})
        else:
            await write(place.model, {})
        assert lives(place, 3) == ["an earlier life", "text 3"]


async def test_a_transaction_in_which_a_hook_has_failed_cannot_be_committed(
    mongodb_url: str,
) -> None:
    def fails(_: Purged) -> None:
        raise ValueError("never")

    async with swept(mongodb_url, declared(archive=Archive("old"), on_purged=fails)) as place:
        expired(place)

        async def work() -> None:
            async with in_transaction(place) as session:
                await place.model(id=50).insert(session=session)
                with pytest.raises(HookError, match="never"):
                    await place.model(id=3).insert(session=session)

        with pytest.raises(OperationFailure) as raised:
            await work()
        assert raised.value.has_error_label("TransientTransactionError")
        assert place.keys() == {*range(10), 99}
        assert place.keys("old") == set()


@pytest.mark.slow
async def test_a_race_for_keys_archives_each_document_once(mongodb_url: str) -> None:
    told: list[Purged] = []
    async with swept(mongodb_url, declared(archive=Archive("old"), on_purged=told.append)) as place:
        expired(place)
        tries = [place.model(id=key % 10).insert() for key in range(40)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        lost = [type(each) for each in results if isinstance(each, Exception)]
        assert lost == [DuplicateKeyError] * 30
        assert place.keys("old") == set(range(10))
        assert place.raw.count_documents({"text": {"$exists": True}}) == 0
        assert set(told_keys(told)) == set(range(10))  # perhaps twice, if a try was undone


async def test_a_write_waits_for_whoever_holds_the_document_in_its_way(mongodb_url: str) -> None:
    async with swept(mongodb_url, declared(archive=Archive("old"))) as place:
        expired(place)
        with place.raw.database.client.start_session() as session:
            session.start_transaction()
            place.raw.update_one({"_id": 3}, {"$set": {"text": "held"}}, session=session)
            writing = asyncio.ensure_future(place.model(id=3).insert())
            done, _ = await asyncio.wait([writing], timeout=0.2)
            assert not done
            await asyncio.to_thread(session.commit_transaction)
            await writing
        (old,) = place.raw.database["old"].find()
        assert old["text"] == "held"


async def test_an_archive_that_mongodb_would_pass_by_is_refused_by_init_beanie(
    mongodb_url: str,
) -> None:
    with pytest.raises(TTLConfigurationError, match="__ttl_purge__ = 'sweeper'"):
        async with swept(mongodb_url, declared(purge="native", archive=Archive("old"))):
            pass


@pytest.mark.parametrize("hooks", [None, Hook(print, when="commit")])
async def test_where_nobody_is_to_know_a_displaced_document_is_just_deleted(
    mongodb_url: str, hooks: Hook | None
) -> None:
    async with swept(mongodb_url, declared(on_purged=hooks)) as place:
        expired(place)
        await place.model(id=0).insert()
        place.commands.sent.clear()
        await place.model(id=3).insert()
        names = [next(iter(each)) for each in place.commands.sent]
        expected = ["insert", "delete", "insert"]
        assert [each for each in names if each != "hello"] == expected
        assert hooks is not None or names == expected


# Others at work


@pytest.mark.slow
async def test_a_renewal_that_is_not_yet_committed_is_never_deleted(carts: Swept) -> None:
    rows = 600
    chance = random.Random(1)  # noqa: S311
    waiting = chance.sample(range(rows), rows)
    for key in range(0, rows, 10):
        carts.add(range(key, key + 10), age=DAY - key, ttl=None if chance.random() < 0.5 else 60)
    client = carts.raw.database.client
    renewed: set[int] = set()
    told: list[Purged] = []

    def renew(_: object) -> None:
        """Renew some that are still there, in a transaction that ends two batches later."""
        for session in sessions[:-2]:
            session.commit_transaction()
            session.end_session()
            sessions.remove(session)
        session = client.start_session()
        session.start_transaction()
        sessions.append(session)
        renewal = {"$currentDate": {"_ts": True}, "$unset": {"ttl": 1}}
        for key in [waiting.pop() for _ in range(5) if waiting]:
            if carts.raw.update_one({"_id": key}, renewal, session=session).matched_count:
                renewed.add(key)

    sessions: list[Any] = []
    renew(None)
    while True:
        report = await carts.sweep(
            pace=fixed(17), on_progress=renew, on_purged=Hook(told.append, when="commit")
        )
        assert not report.problems
        for session in sessions:
            session.commit_transaction()
            session.end_session()
        sessions.clear()
        if not report.skipped:
            break
    assert renewed
    assert carts.keys() == renewed
    keys = told_keys(told)
    assert len(keys) == len(set(keys))
    assert set(keys) == set(range(rows)) - renewed


def test_what_passes_by_itself_is_told_from_what_does_not() -> None:
    label = {"errorLabels": ["TransientTransactionError"]}
    for error in (
        AutoReconnect("gone"),
        NotPrimaryError("no more"),
        NetworkTimeout("slow"),
        ServerSelectionTimeoutError("nobody"),
        WaitQueueTimeoutError("busy"),
        ExecutionTimeout("50", 50),
        OperationFailure("conflict", 112),
        OperationFailure("lock", 24),
        OperationFailure("anything", 1, label),
    ):
        with pytest.raises(TransientStoreError), store_errors():
            raise error
    for error in (
        OperationFailure("unauthorized", 13),
        DuplicateKeyError("E11000", 11000),
        InvalidDocument("no BSON"),
    ):
        with pytest.raises(StoreError) as raised, store_errors():
            raise error
        assert not isinstance(raised.value, TransientStoreError)


def test_nothing_of_a_document_is_in_the_message_of_an_error() -> None:
    said = 'E11000 duplicate key error collection: a.b index: c dup key: { c: "secret" }'
    assert "secret" not in in_short(DuplicateKeyError(said, 11000, {"errmsg": said}))
    many = {"writeErrors": [{"errmsg": said, "op": {"c": "secret"}}]}
    assert in_short(BulkWriteError(many)) == said.partition(" dup key")[0]
    lost = "127.0.0.1:1: refused, Timeout: 30s, Topology Description: <long>"
    assert in_short(ServerSelectionTimeoutError(lost)) == "127.0.0.1:1: refused, Timeout: 30s"


async def test_what_mongodb_says_of_a_single_write_is_raised(mongodb_url: str) -> None:
    async with scratch(mongodb_url) as place:
        insert = {"insert": "documents", "documents": [{"_id": 1}, {"_id": 1}]}
        with pytest.raises(WriteError, match="duplicate key") as caught:
            await command_in(place.ours.database, insert)
        assert caught.value.code == 11000


async def test_a_write_that_is_not_acknowledged_as_asked_is_an_error(mongodb_url: str) -> None:
    async with scratch(mongodb_url) as place:
        insert = {"insert": "documents", "documents": [{}], "writeConcern": {"w": 7}}
        with pytest.raises(WriteConcernError):
            await command_in(place.ours.database, insert)
        with pytest.raises(WriteConcernError):
            await run(place.ours, insert)
