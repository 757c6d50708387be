"""Events of documents are recorded in the transaction that deletes them, one for each life."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta, timezone
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

import pytest
from beanie import Document, Link, UnionDoc
from bson import DBRef, Decimal128, ObjectId
from bson.binary import Binary
from pymongo.errors import DuplicateKeyError, OperationFailure

from tests.events.mongo_holds import HOUR, expire, handled, keys, outbox, seat_hold
from tests.mongo.sweeping import swept
from ttl_odm import ExpireAfter, ExpireAt, Follows, Stored
from ttl_odm.beanie import TTLMixin, set_policy
from ttl_odm.beanie.policy import commands
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events import AsyncEventWorker, events, on_expired, record_expired
from ttl_odm.sweeper import Hook, HookError, Purged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.sweeping import Swept
    from ttl_odm.testing import TTLClock


@asynccontextmanager
async def session_of(place: Swept) -> AsyncIterator[Any]:
    """Give a session in a transaction, as an application has it; it is committed in the end."""
    started = place.database.client.start_session()
    async with await started if isawaitable(started) else started as session:
        opened = session.start_transaction()
        async with await opened if isawaitable(opened) else opened:
            yield session


async def all_of(place: Swept) -> list[Any]:
    """Every event that the outbox has, for a consumer that is new."""
    return [event async for event in events(place.database, consumer="test")]


async def test_a_sweep_records_what_it_deletes(mongodb_url: str, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got = handled(model, include=["person"])
    async with swept(mongodb_url, model) as place:
        await model(id="A1").insert()
        await model(id="A2", ttl=-1).insert()
        began = place.raw.find_one({"_id": "A1"})["_ts"]
        ttl_clock.advance(HOUR)
        assert (await AsyncEventWorker(place.database, model).run_once()).done == 1
        (event,) = got
        assert (event.table, event.key, event.kind) == ("documents", ("A1",), "expired")
        assert event.row == {"_id": "A1", "_ts": began.isoformat(), "ttl": None, "person": "ann"}
        assert event.last_modified == began
        assert event.expires_at == began + timedelta(seconds=HOUR)
        assert event.delivery == 1
        assert place.keys() == {"A2"}
        (kept,) = outbox(place)
        assert (kept["_id"], kept["key"], kept["row"]) == (event.id, ["A1"], event.row)


@pytest.mark.slow
async def test_any_sweeper_records_them(mongodb_url: str, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    record_expired(model)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, *range(1200))
        assert (await place.sweep(batch_size=700)).deleted == 1200
        assert {event["key"][0] for event in outbox(place)} == {*range(1200)}


WRITES = {
    "insert": lambda model, options: model(id=1, ticket=5).insert(**options),
    "save": lambda model, options: model(id=1, ticket=5).save(**options),
    "insert_many": lambda model, options: model.insert_many([model(id=1, ticket=5)], **options),
    "unique": lambda model, options: model(id=7, ticket=1).insert(**options),
    "update": lambda model, options: model.find_one(model.id == 2, **options).set(
        {"ticket": 1}, **options
    ),
}


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_a_write_that_takes_a_key_records_it_in_its_own_transaction(
    mongodb_url: str,
    ttl_clock: TTLClock,
    write: Any,
    is_inside: bool,  # noqa: FBT001
) -> None:
    class TakenBackError(Exception):
        pass

    model = seat_hold()
    record_expired(model)
    async with swept(mongodb_url, model) as place:
        place.raw.create_index("ticket", unique=True)
        await expire(place, ttl_clock, 1, ticket=1)
        await model(id=2, ticket=2).insert()
        if is_inside:
            with suppress(TakenBackError):
                async with session_of(place) as session:
                    await write(model, {"session": session})
                    raise TakenBackError
            assert outbox(place) == []
            assert place.raw.count_documents({"_id": 1, "ticket": 1}) == 1
            async with session_of(place) as session:
                await write(model, {"session": session})
                assert outbox(place) == []
        else:
            await write(model, {})
        (event,) = await all_of(place)
        assert event.key == (1,)
        assert (await place.sweep()).deleted == 0
        assert len(outbox(place)) == 1


@pytest.mark.slow
async def test_a_document_is_displaced_where_nothing_was_ever_recorded(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    got = handled(model)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, 1)
        await model(id=1, person="bob").insert()
        assert place.raw.count_documents({"person": "bob"}) == 1
        await AsyncEventWorker(place.database, model).run_once()
        assert keys(got) == [1]


@pytest.mark.slow
async def test_of_many_writes_that_take_a_key_one_records_it(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    record_expired(model)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, *range(10))

        async def take(seat: int) -> None:
            with suppress(DuplicateKeyError):
                await model(id=seat).insert()

        await asyncio.gather(
            place.sweep(), *(take(seat) for seat in range(10)), *(take(seat) for seat in range(10))
        )
        await place.sweep()
        assert keys(await all_of(place)) == [*range(10)]


async def test_each_life_of_a_key_has_an_event_of_its_own(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    got = handled(model)
    async with swept(mongodb_url, model) as place:
        worker = AsyncEventWorker(place.database, model)
        for _ in range(3):
            await expire(place, ttl_clock, "A1")
            await worker.run_once()
            await worker.run_once()
    assert [event.key for event in got] == [("A1",)] * 3
    assert len({event.id for event in got}) == 3


async def test_a_document_that_is_put_back_as_it_was_has_no_second_event(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    got = handled(model)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, "A1")
        document = place.raw.find_one()
        assert document is not None
        worker = AsyncEventWorker(place.database, model)
        await worker.run_once()
        place.raw.insert_one(document)
        await worker.run_once()
        assert place.keys() == set()
    assert len(got) == 1


async def test_nothing_is_recorded_of_documents_that_are_renewed_or_deleted(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    got = handled(model)
    async with swept(mongodb_url, model) as place:
        await model.insert_many([model(id=seat) for seat in range(3)])
        ttl_clock.advance(HOUR - 60)
        renewed = await model.get(0)
        await renewed.touch()
        await (await model.get(1)).delete()
        await model.find(model.id == 2).delete()
        ttl_clock.advance(60)
        await AsyncEventWorker(place.database, model).run_once()
        assert outbox(place) == []
        assert place.keys() == {0}
    assert got == []


async def test_a_stored_default_decides_and_says_when_a_document_expired(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model = seat_hold(Stored(HOUR))
    got = handled(model)
    async with swept(mongodb_url, model) as place:
        await model(id="A1").insert()
        worker = AsyncEventWorker(place.database, model)
        ttl_clock.advance(HOUR + 5)
        await set_policy(model, 3 * HOUR, by="test")
        await worker.run_once()
        assert got == []
        await set_policy(model, HOUR, by="test")
        await worker.run_once()
    (event,) = got
    assert event.last_modified is not None
    assert event.expires_at == event.last_modified + timedelta(seconds=HOUR)


@pytest.mark.parametrize("is_list", [True, False])
async def test_a_document_of_a_date_field_of_ones_own(
    mongodb_url: str,
    ttl_clock: TTLClock,
    is_list: bool,  # noqa: FBT001
) -> None:
    class Token(TTLMixin, Document):
        __ttl__ = ExpireAfter("made", HOUR)
        __ttl_purge__ = "sweeper"
        made: Any

        class Settings:
            name = "documents"

    got = handled(Token)
    made = datetime.now(timezone.utc).replace(microsecond=0)
    async with swept(mongodb_url, Token) as place:
        await Token(made=[made + timedelta(days=9), made] if is_list else made).insert()
        ttl_clock.advance(HOUR + 1)
        await AsyncEventWorker(place.database, Token).run_once()
    (event,) = got
    assert event.last_modified == made
    assert event.expires_at == made + timedelta(seconds=HOUR)
    assert set(event.row) == {"_id", "made"}


async def test_documents_below_one_root_share_its_events(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    root = seat_hold(is_root=True)

    class BoxSeat(root):  # type: ignore[misc, valid-type]
        snacks: list[str] = []

    got = handled(BoxSeat, include=["snacks", "person"])
    async with swept(mongodb_url, root) as place:
        await place.database.client.admin.command("ping")
        await expire(place, ttl_clock, 1)
        await AsyncEventWorker(place.database, root).run_once()
    (event,) = got
    assert (event.row["snacks"], event.row["person"]) == (None, "ann")


async def test_a_class_that_inherits_has_no_events_but_its_own(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    base = seat_hold()
    record_expired(base)

    class Other(base):  # type: ignore[misc, valid-type]
        class Settings:
            name = "others"

    async with swept(mongodb_url, Other) as place:
        with pytest.raises(TTLConfigurationError, match="No document class here has events"):
            AsyncEventWorker(place.database, Other)
        await expire(place, ttl_clock, 1)
        assert (await place.sweep()).deleted == 1
        assert outbox(place) == []
        got = handled(Other)
        await expire(place, ttl_clock, 2)
        await AsyncEventWorker(place.database, Other).run_once()
        assert [(event.table, event.key) for event in got] == [("others", (2,))]


async def test_values_are_as_json_has_them(mongodb_url: str, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got = handled(model, include=["ticket"])
    key = ObjectId()
    uuid = UUID("00000000-0000-4000-8000-000000000001")
    async with swept(mongodb_url, model) as place:
        await model(id=1).insert()
        values = {
            "link": DBRef("people", key),
            "uuid": Binary.from_uuid(uuid),
            "bytes": b"a",
            "price": Decimal128("1.50"),
            "when": datetime(2026, 1, 31, 12),  # noqa: DTZ001 (as the driver takes it)
            "list": [key, {"$odd.name": float("nan")}],
        }
        place.raw.update_one({"_id": 1}, {"$set": {"ticket": values}})
        ttl_clock.advance(HOUR)
        await AsyncEventWorker(place.database, model).run_once()
    (event,) = got
    assert event.row["ticket"] == {
        "link": str(key),
        "uuid": str(uuid),
        "bytes": "YQ==",
        "price": "1.50",
        "when": "2026-01-31T12:00:00+00:00",
        "list": [str(key), {"$odd.name": "NaN"}],
    }


async def test_other_hooks_are_called_as_before(mongodb_url: str, ttl_clock: TTLClock) -> None:
    told: list[Purged] = []
    model = seat_hold()
    model.__ttl_on_purged__ = [told.append, Hook(told.append, when="commit")]
    record_expired(model)
    record_expired(model, include=["person"])
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, 1)
        await place.sweep()
        assert [purged.transaction is None for purged in told] == [False, True]
        (event,) = outbox(place)
        assert event["row"]["person"] == "ann"


async def test_if_another_hook_fails_nothing_is_recorded(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    class BrokenError(Exception):
        pass

    def fail(_: Purged) -> None:
        raise BrokenError

    model = seat_hold()
    record_expired(model)
    model.__ttl_on_purged__ = [*model.__ttl_on_purged__, fail]
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, 1)
        report = await place.sweep()
        assert isinstance(report.targets[0].error, HookError)
        assert outbox(place) == []
        assert outbox(place, "deliveries") == []
        assert place.keys() == {1}


async def test_without_transactions_nothing_is_deleted_and_nothing_recorded(
    mongodb_url: str,
    ttl_clock: TTLClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = seat_hold()
    got = handled(model)
    real = commands.RawCollection.server

    async def alone(self: Any) -> Any:
        return commands.Server((await real(self)).now, has_transactions=False)

    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, 1)
        with monkeypatch.context() as patch:
            patch.setattr(commands.RawCollection, "server", alone)
            with caplog.at_level(logging.WARNING, "ttl_odm.events"):
                await AsyncEventWorker(place.database, model).run_once()
            assert "Events weren't recorded: documents: 'documents' has hooks" in caplog.text
            with pytest.raises(TTLConfigurationError, match="replica set"):
                await model(id=1).insert()
        assert place.keys() == {1}
        assert outbox(place) == []
        await AsyncEventWorker(place.database, model).run_once()
    assert keys(got) == [1]


@pytest.mark.parametrize("is_swept", [True, False])
async def test_events_and_deliveries_have_ttl_indexes(
    mongodb_url: str,
    ttl_clock: TTLClock,
    is_swept: bool,  # noqa: FBT001
) -> None:
    model = seat_hold()
    handled(model)
    async with swept(mongodb_url, model) as place:
        if is_swept:
            await expire(place, ttl_clock, 1)
            await place.sweep()
        else:
            await AsyncEventWorker(place.database, model).run_once()
        for what in ("events", "deliveries"):
            indexes = place.raw.database[f"ttl_odm_{what}"].index_information()
            assert indexes["kept_until_1"]["expireAfterSeconds"] == 0
        for event in outbox(place):
            assert event["kept_until"] == event["recorded_at"] + timedelta(days=7)


class Unexpiring(Document):
    pass


class Parent(TTLMixin, Document):
    __ttl__ = HOUR
    __ttl_purge__ = "sweeper"


class Child(TTLMixin, Document):
    __ttl__: ClassVar[Any] = Follows("parent")
    parent: Link[Parent]


class Native(TTLMixin, Document):
    __ttl__ = HOUR


class Everything(UnionDoc):
    class Settings:
        name = "everything"


class Member(TTLMixin, Document):
    __ttl__ = HOUR
    __ttl_purge__ = "sweeper"

    class Settings:
        union_doc = Everything


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: on_expired(Unexpiring), "Unexpiring has no TTL, so its documents never expire"),
        (lambda: on_expired(Native), "MongoDB itself deletes its documents, and calls no hook"),
        (lambda: on_expired(Child), "Child can't have events: its documents follow their parent"),
        (lambda: on_expired(Member), "it shares the collection of a UnionDoc"),
        (lambda: on_expired(Everything), "give a Beanie document class"),
        (
            lambda: on_expired(Parent, include=["colour"]),
            r"include = \['colour'\]: Parent has no field 'colour'; it has id, .*ttl",
        ),
    ],
)
def test_what_cant_have_events_is_said_when_they_are_declared(declare: Any, message: str) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        declare()


async def test_a_worker_needs_a_class_that_beanie_knows(mongodb_url: str) -> None:
    model, other = seat_hold(), seat_hold(name="others")
    record_expired(other)
    async with swept(mongodb_url, model) as place:
        with pytest.raises(TTLConfigurationError, match=r"and await init_beanie\(\), before"):
            AsyncEventWorker(place.database)
        with pytest.raises(TTLConfigurationError, match="No document class here has events"):
            AsyncEventWorker(place.database, model)
        with pytest.raises(TTLConfigurationError, match=r"call init_beanie\(\) first"):
            AsyncEventWorker(place.database, other)
        with pytest.raises(TTLConfigurationError, match="needs an AsyncDatabase of PyMongo"):
            AsyncEventWorker(place.raw.database)


def test_an_end_of_ones_own_may_have_events() -> None:
    record_expired(seat_hold(ExpireAt("ticket")))


async def test_an_error_of_the_server_is_tried_again(
    mongodb_url: str, ttl_clock: TTLClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ttl_odm.events.beanie import recorder

    model = seat_hold()
    record_expired(model)
    insert_events, looks = recorder.insert_events, []

    async def away_at_first(*events: Any) -> int:
        looks.append(events)
        if len(looks) == 1:
            raise OperationFailure("a conflict", 112)
        return await insert_events(*events)

    monkeypatch.setattr(recorder, "insert_events", away_at_first)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, 1, 2)
        assert (await place.sweep()).deleted == 2
        assert keys(await all_of(place)) == [1, 2]
