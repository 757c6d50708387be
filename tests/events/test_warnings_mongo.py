"""Documents that are about to expire are warned of once, in time, and at little cost."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from beanie import Document, Link, init_beanie
from bson import ObjectId

from tests.events.mongo_holds import HOUR, keys, outbox, seat_hold
from tests.mongo.sweeping import swept
from ttl_odm import ExpireAt, Follows, Stored
from ttl_odm.beanie import TTLMixin, set_policy
from ttl_odm.beanie.policy import commands
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events import AsyncEventWorker, Delivered, Expiry, on_expiring, record_expiring
from ttl_odm.events.beanie import source_of
from ttl_odm.sweeper import TransientStoreError

if TYPE_CHECKING:
    from tests.mongo.sweeping import Swept
    from ttl_odm.testing import TTLClock

HALF = timedelta(minutes=30)


def warned(model: Any, before: timedelta = HALF, **options: Any) -> list[Expiry]:
    """Register a handler, and return the list of what it gets."""
    got: list[Expiry] = []
    on_expiring(model, before=before, name="warn", **options)(got.append)
    return got


def warnings_of(place: Swept) -> Any:
    return source_of(place.database, place.model).warnings()


@pytest.mark.slow
async def test_most_looks_read_what_has_come_since_the_last_one(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    got = warned(model)
    ttl_clock.freeze()
    async with swept(mongodb_url, model) as place:

        def now() -> datetime:
            assert ttl_clock.frozen_at is not None
            return ttl_clock.frozen_at

        worker = AsyncEventWorker(place.database, model)
        await model.insert_many([model(id=number) for number in range(3)])
        ttl_clock.advance(HOUR - HALF.total_seconds())
        await worker.run_once()
        assert keys(got) == [0, 1, 2]
        got.clear()
        place.raw.insert_many(
            [
                {"_id": "old", "_ts": now() - HALF + timedelta(seconds=5)},
                {"_id": "short", "_ts": now(), "ttl": 60},
            ]
        )
        await model(id="own", ttl=int(HALF.total_seconds()) + 5).insert()
        ttl_clock.advance(5)
        place.commands.sent.clear()
        await worker.run_once()
        assert keys(got) == ["old", "own"]
        finds = [find for find in place.commands.of("find") if "min" in find]
        lows = [find["min"] for find in finds if "$and" in find["filter"].get("$expr", {})]
        assert len(lows) == 2
        ttl_clock.advance(13)  # in all a hundredth of the window
        await worker.run_once()
        assert [event.key for event in got[2:]] == [("short",)]


@pytest.mark.slow
async def test_many_are_warned_of_page_by_page(
    mongodb_url: str, ttl_clock: TTLClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ttl_odm.events.beanie import warnings

    monkeypatch.setattr(warnings, "PAGE", 100)
    monkeypatch.setattr(warnings, "PAGES", 3)
    model = seat_hold()
    record_expiring(model, before=HALF)
    async with swept(mongodb_url, model) as place:
        await model.insert_many([model(id=number) for number in range(750)])
        ttl_clock.advance(HOUR - HALF.total_seconds())
        looks = warnings_of(place)
        assert [await looks.record() for _ in range(4)] == [300, 300, 150, 0]
        assert {event["key"][0] for event in outbox(place)} == {*range(750)}


async def test_a_page_that_fails_is_the_next_one(
    mongodb_url: str, ttl_clock: TTLClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ttl_odm.events.beanie import warnings

    model = seat_hold()
    record_expiring(model, before=HALF)
    async with swept(mongodb_url, model) as place:
        await model.insert_many([model(id=number) for number in range(9)])
        ttl_clock.advance(HOUR - HALF.total_seconds())
        looks = warnings_of(place)
        with monkeypatch.context() as patch:

            async def conflict(*_: Any) -> int:
                raise commands.OperationFailure("a conflict", 112)

            patch.setattr(warnings, "insert_events", conflict)
            with pytest.raises(TransientStoreError, match="a conflict"):
                await looks.record()
        assert outbox(place) == []
        assert await looks.record() == 9


@pytest.mark.slow
async def test_of_two_that_look_at_once_each_warning_is_recorded_once(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    got = warned(model)
    async with swept(mongodb_url, model) as place:
        await model.insert_many([model(id=number) for number in range(700)])
        ttl_clock.advance(HOUR - HALF.total_seconds())
        looks = [warnings_of(place), warnings_of(place)]

        async def record(look: Any) -> None:
            for _ in range(20):
                with suppress(TransientStoreError):  # the other one is at it
                    await look.record()

        await asyncio.gather(*map(record, looks))
        assert len(outbox(place)) == len(outbox(place, "deliveries")) == 700
        while (await AsyncEventWorker(place.database, model).run_once()).total:
            pass
    assert keys(got) == [*range(700)]


@pytest.mark.parametrize("how", ["no index", "scan", "scopes", "stored"])
async def test_where_no_index_leads_to_them_the_window_is_read_as_a_whole(
    mongodb_url: str, ttl_clock: TTLClock, how: str
) -> None:
    default: Any = {
        "scopes": Stored(HOUR, by="person"),
        "stored": Stored(HOUR),
    }.get(how, HOUR)
    model = seat_hold(default)
    if how == "scan":
        model.__ttl_sweep__ = "scan"
    got = warned(model)
    async with swept(mongodb_url, model, indexed=how != "no index") as place:
        worker = AsyncEventWorker(place.database, model)
        if how == "scopes":
            await set_policy(model, 2 * HOUR, scope="bob", by="test")
        await worker.run_once()
        for number in range(3):
            await model(id=number, person="bob" if number == 2 else "ann").insert()
        ttl_clock.advance(HOUR - HALF.total_seconds())
        await worker.run_once()
        assert keys(got) == ([0, 1] if how == "scopes" else [0, 1, 2])
        if how == "stored":
            await set_policy(model, 2 * HOUR, by="test")
            ttl_clock.advance(HOUR)
            await worker.run_once()
            assert keys(got) == [0, 0, 1, 1, 2, 2]


async def test_a_date_of_ones_own_and_a_key_that_json_doesnt_know(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    class Token(TTLMixin, Document):
        __ttl__ = ExpireAt("ends")
        ends: Any

        class Settings:
            name = "documents"

    got = warned(Token, timedelta(days=30))  # MongoDB itself deletes them, and may
    month = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(days=40)
    async with swept(mongodb_url, Token) as place:
        await Token(ends=month).insert()
        token = await Token(ends=[month + timedelta(days=9), month]).insert()
        worker = AsyncEventWorker(place.database, Token)
        await worker.run_once()
        assert got == []
        ttl_clock.advance(11 * 86_400)
        assert await worker.run_once() == Delivered(done=2)
        assert isinstance(token.id, ObjectId)
        assert str(token.id) in keys(got)
        assert {event.expires_at for event in got} == {month}
        assert {event["kept_until"] for event in outbox(place)} == {month}
        ttl_clock.advance(10 * 86_400)
        assert await worker.run_once() == Delivered()


async def test_a_warning_of_which_nobody_knows_the_document_is_told(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model, other = seat_hold(), seat_hold(name="others")
    record_expiring(model, before=HALF)
    got = warned("documents")
    record_expiring(other, before=HALF)
    async with swept(mongodb_url, model) as place:
        await model(id=1).insert()
        ttl_clock.advance(HOUR - HALF.total_seconds())
        await warnings_of(place).record()
        async with swept(mongodb_url, other) as elsewhere:
            plain = elsewhere.database.client[place.database.name]
            await init_beanie(database=plain, document_models=[other])
            worker = AsyncEventWorker(plain, other)
            assert (await worker.run_once()).total == 0  # not its collection
        assert (await AsyncEventWorker(place.database, model).run_once()).done == 1
    assert keys(got) == [1]


async def test_without_transactions_nothing_is_recorded(
    mongodb_url: str, ttl_clock: TTLClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = seat_hold()
    record_expiring(model, before=HALF)
    real = commands.RawCollection.server

    async def alone(self: Any) -> Any:
        return commands.Server((await real(self)).now, has_transactions=False)

    async with swept(mongodb_url, model) as place:
        await model(id=1).insert()
        ttl_clock.advance(HOUR - HALF.total_seconds())
        monkeypatch.setattr(commands.RawCollection, "server", alone)
        with pytest.raises(TTLConfigurationError, match="replica set"):
            await warnings_of(place).record()
        assert outbox(place) == []


class Parent(TTLMixin, Document):
    __ttl__ = HOUR


class Child(TTLMixin, Document):
    __ttl__: ClassVar[Any] = Follows("parent")
    parent: Link[Parent]


def test_what_cant_have_warnings_is_said_when_they_are_declared() -> None:
    with pytest.raises(TTLConfigurationError, match="Child can't have events"):
        record_expiring(Child, before=60)
    with pytest.raises(TTLConfigurationError, match="Parent has no field 'colour'"):
        record_expiring(Parent, before=60, include=["colour"])
