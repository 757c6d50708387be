"""What one does with a document's lifetime."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from beanie import Document, Insert, Replace, UnionDoc, after_event

from tests.mongo.following import transaction
from tests.mongo.models import Adopted, Event, Tracked, Visit, Voucher, World, opened
from ttl_odm import NEVER, TTL, ExpiredError, InvalidTTL, TTLConfigurationError
from ttl_odm.beanie import TTLMixin, expire_at, expire_in, inherit_ttl, persist

HOUR = timedelta(hours=1)


async def fresh(**fields: Any) -> Event:
    event = Event(id=1, name="a", **fields)
    await event.insert()
    return event


async def test_it_knows_when_it_expires(world: World) -> None:
    event = await fresh()
    again = await Event.get(1)

    assert event.last_modified is not None
    assert event.expires_at == event.last_modified + HOUR == again.expires_at
    assert event.expires_at.tzinfo is not None
    assert not event.is_expired
    assert timedelta(minutes=59) < event.time_left <= HOUR


async def test_it_knows_that_it_has_expired(world: World) -> None:
    event = await fresh()
    event.last_modified = world.now() - timedelta(hours=2)

    assert event.is_expired
    assert event.time_left == timedelta()


@pytest.mark.parametrize("lazy", [True, False])
async def test_it_knows_so_when_it_is_parsed_lazily(world: World, *, lazy: bool) -> None:
    await fresh(ttl=6000)

    (event,) = await Event.find(lazy_parse=lazy).to_list()

    assert event.expires_at == event.last_modified + timedelta(seconds=6000)
    assert event.last_modified.tzinfo is not None


async def test_before_it_is_stored_it_has_no_end() -> None:
    event = Event.model_construct(id=1, name="a", last_modified=None, ttl=60)

    assert event.expires_at is None
    assert event.time_left is None
    assert not event.is_expired


@pytest.mark.parametrize(
    "junk", ["2020-01-01", "2020-01-01T00:00:00Z", "2020-01-01T00:00:00", 5, [], True, {"a": 1}]
)
async def test_what_is_no_date_in_the_database_is_no_last_modification(
    world: World, junk: object
) -> None:
    world.of(Event).insert_one({"_id": 1, "name": "a", "_ts": junk})

    event = await Event.get(1)
    (lazy,) = await Event.find(lazy_parse=True).to_list()

    for read in (event, lazy):
        assert read.last_modified is None
        assert (read.expires_at, read.is_expired) == (None, False)
    assert await Event.find_one({"_id": 1}) is not None
    assert await Event.find().count() == 1


async def test_json_keeps_the_lifetime(world: World) -> None:
    event = await fresh(ttl=60)

    again = Event.model_validate_json(event.model_dump_json())
    stored = Event.model_validate_json(event.model_dump_json(by_alias=True))

    assert again.expires_at == stored.expires_at == event.expires_at
    assert Event.model_validate(json.loads(event.model_dump_json())).expires_at is None


async def test_touch_starts_the_life_again_and_changes_nothing_else(world: World) -> None:
    event = await fresh(ttl=6000)
    world.age(Event, 1, 30)
    event.score = 5
    before = world.now()

    await event.touch()

    stored = world.stored(Event, 1)
    assert stored["score"] == 0
    assert event.score == 5
    assert event.last_modified == stored["_ts"]
    assert before <= stored["_ts"] <= world.now()


async def test_persist_and_inherit(world: World) -> None:
    event = await fresh()

    await event.persist()
    assert (event.ttl, world.stored(Event, 1)["ttl"]) == (NEVER, NEVER)
    assert event.expires_at is None
    await event.inherit_ttl()
    assert event.ttl is None
    assert "ttl" not in world.stored(Event, 1)
    assert event.expires_at == event.last_modified + HOUR


@pytest.mark.parametrize("life", [600, 600.0, timedelta(minutes=10)])
async def test_expire_in_starts_a_life_of_its_own(world: World, life: Any) -> None:
    event = await fresh()
    world.age(Event, 1, 3000)

    await event.expire_in(life)

    stored = world.stored(Event, 1)
    assert stored["ttl"] == event.ttl == 600
    assert event.expires_at == stored["_exp"] == stored["_ts"] + timedelta(minutes=10)


@pytest.mark.parametrize("life", [0, -5, timedelta(), timedelta(seconds=-1), -0.5])
async def test_expire_in_nothing_expires_now(world: World, life: Any) -> None:
    event = await fresh()

    await event.expire_in(life)

    assert await Event.get(1) is None
    assert world.stored(Event, 1)["ttl"] == 1
    assert event.is_expired


CONDITIONS = [
    (only_if, ttl, life, is_granted)
    for only_if, ttl, by_60, by_7200 in (
        (None, None, True, True),
        ("longer", None, False, True),
        ("shorter", None, True, False),
        ("has_ttl", None, True, True),
        ("no_ttl", None, False, False),
        ("longer", NEVER, False, False),
        ("shorter", NEVER, True, True),
        ("has_ttl", NEVER, False, False),
        ("no_ttl", NEVER, True, True),
    )
    for life, is_granted in ((60, by_60), (7200, by_7200))
]


@pytest.mark.parametrize(("only_if", "ttl", "life", "is_granted"), CONDITIONS)
async def test_a_life_is_changed_only_if_that_is_wished_for(
    world: World, only_if: Any, ttl: int | None, life: int, *, is_granted: bool
) -> None:
    event = await fresh(ttl=ttl)
    before = world.stored(Event, 1)

    assert await event.expire_in(life, only_if=only_if) is is_granted
    assert (world.stored(Event, 1) == before) is not is_granted
    assert event.ttl == world.stored(Event, 1).get("ttl") == (life if is_granted else ttl)


@pytest.mark.parametrize(("only_if", "ttl", "life", "is_granted"), CONDITIONS)
async def test_an_end_is_set_only_if_that_is_wished_for(
    world: World, only_if: Any, ttl: int | None, life: int, *, is_granted: bool
) -> None:
    event = await fresh(ttl=ttl)
    before = world.stored(Event, 1)
    instant = (world.now() + timedelta(seconds=life)).replace(microsecond=5000)

    assert await event.expire_at(instant, only_if=only_if) is is_granted
    assert (world.stored(Event, 1) == before) is not is_granted
    assert event.expires_at == (instant if is_granted else (await Event.get(1)).expires_at)


async def test_an_end_to_the_millisecond_is_neither_longer_nor_shorter(world: World) -> None:
    event = await fresh()
    instant = (world.now() + HOUR).replace(microsecond=123000)
    millisecond = timedelta(milliseconds=1)
    await event.expire_at(instant)

    assert not await event.expire_at(instant, only_if="longer")
    assert not await event.expire_at(instant, only_if="shorter")
    assert await event.expire_at(instant + millisecond, only_if="longer")
    assert await event.expire_at(instant, only_if="shorter")
    assert event.expires_at == instant == world.stored(Event, 1)["_exp"]


async def test_ending_now_is_shorter_and_never_longer(world: World) -> None:
    event = await fresh()

    assert not await event.expire_in(0, only_if="longer")
    assert not await event.expire_at(world.now() - HOUR, only_if="no_ttl")
    assert await Event.get(1) is not None
    assert await event.expire_in(0, only_if="shorter")
    assert await Event.get(1) is None
    assert event.is_expired


async def test_what_is_stored_decides_and_not_what_memory_has(world: World) -> None:
    event, other = await fresh(), await Event.get(1)
    await other.expire_in(7200)

    assert not await event.expire_in(4000, only_if="longer")
    assert event.ttl == 7200
    await other.expire_in(600)
    assert await event.expire_in(4000, only_if="longer")


async def test_of_many_that_want_a_longer_life_the_longest_wins(world: World) -> None:
    await fresh(ttl=300)
    lives = [6000, 30_000, 600, 12_000, 24_000, 3000] * 4

    async def prolong(life: int) -> bool:
        return await (await Event.get(1)).expire_in(life, only_if="longer")

    assert any(await asyncio.gather(*map(prolong, lives)))
    assert world.stored(Event, 1)["ttl"] == 30_000


async def test_a_condition_on_an_expired_document_is_an_error(world: World) -> None:
    event = await fresh()
    world.age(Event, 1, 7200)

    for only_if in ("longer", "no_ttl"):
        with pytest.raises(ExpiredError):
            await event.expire_in(60, only_if=only_if)
        with pytest.raises(ExpiredError):
            await event.expire_at(world.now() + HOUR, only_if=only_if)


async def test_a_condition_that_there_is_not_is_refused(world: World) -> None:
    event = await fresh()

    with pytest.raises(TTLConfigurationError, match="only_if='later'"):
        await event.expire_in(60, only_if="later")
    with pytest.raises(TTLConfigurationError, match="only_if='later'"):
        await event.expire_at(world.now(), only_if="later")


async def test_the_functions_do_what_the_methods_do(world: World) -> None:
    event = await fresh()

    assert await expire_in(event, 60, only_if="shorter")
    assert await expire_at(event, world.now() + timedelta(minutes=30), only_if="longer")
    await persist(event)
    assert world.stored(Event, 1)["ttl"] == NEVER
    await inherit_ttl(event)
    assert "ttl" not in world.stored(Event, 1)


@pytest.mark.parametrize("life", [1.5, True, 2**31, timedelta(seconds=1.5), float("nan")])
async def test_expire_in_refuses_what_is_no_ttl(world: World, life: Any) -> None:
    event = await fresh()

    with pytest.raises(InvalidTTL):
        await event.expire_in(life)


async def test_expire_at_hits_the_millisecond(world: World) -> None:
    event = await fresh()
    instant = (world.now() + timedelta(seconds=9000.25)).replace(microsecond=123000)

    await event.expire_at(instant)

    stored = world.stored(Event, 1)
    assert event.expires_at == instant == stored["_exp"]
    assert stored["_ts"] + timedelta(seconds=stored["ttl"]) == instant
    await event.expire_at(world.now() - timedelta(days=1))
    assert await Event.get(1) is None


async def test_expire_at_refuses_what_names_no_instant(world: World) -> None:
    event = await fresh()

    with pytest.raises(InvalidTTL, match="naive"):
        await event.expire_at(datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(InvalidTTL):
        await event.expire_at(datetime(2500, 1, 1, tzinfo=timezone.utc))


async def test_a_timedelta_as_ttl_is_stored_in_seconds(world: World) -> None:
    event = await fresh(ttl=timedelta(minutes=1))

    assert world.stored(Event, 1)["ttl"] == 60.0
    assert event.expires_at == event.last_modified + timedelta(minutes=1)


async def test_helpers_keep_state_management_quiet(world: World) -> None:
    tracked = Tracked(id=1)
    await tracked.insert()

    await tracked.expire_in(60)

    assert not tracked.is_changed


async def test_adopted_fields_are_what_the_helpers_set(world: World) -> None:
    adopted = Adopted(id=1)
    await adopted.insert()

    await adopted.expire_in(60)

    assert (adopted.lives, world.stored(Adopted, 1)["lives"]) == (60, 60)
    assert adopted.expires_at == world.stored(Adopted, 1)["changed"] + timedelta(seconds=60)


async def test_documents_without_an_own_ttl_say_so(world: World) -> None:
    visit = Visit(id=1, made=world.now())
    await visit.insert()

    assert visit.expires_at is not None
    with pytest.raises(TTLConfigurationError, match="no ttl of their own"):
        await visit.expire_in(60)


async def test_a_voucher_ends_at_its_date(world: World) -> None:
    ends = world.now() + HOUR
    voucher = Voucher(id=1, ends=ends)
    await voucher.insert()

    assert voucher.expires_at == ends
    assert not (await Voucher.get(1)).is_expired


async def test_a_kind_may_be_the_class(mongodb_url: str) -> None:
    kinds = {"Vehicle": 60, "Vehicle.Car": 3600, "Bike": 60, "Walk": 3600}

    class Vehicle(TTLMixin, Document):
        __ttl__ = TTL(kinds, by="_class_id", other=-1)
        __ttl_purge__ = "sweeper"
        id: int  # type: ignore[assignment]

        class Settings:
            is_root = True

    class Car(Vehicle): ...

    class Bus(Vehicle): ...

    class Movement(UnionDoc):
        class Settings:
            name = "movements"

    class Bike(TTLMixin, Document):
        __ttl__ = TTL(kinds, by="_class_id", other=-1)
        __ttl_purge__ = "sweeper"
        id: int  # type: ignore[assignment]

        class Settings:
            union_doc = Movement

    class Walk(Bike):
        class Settings:
            union_doc = Movement

    models: list[Any] = [Vehicle, Car, Bus, Movement, Bike, Walk]
    lives = {Vehicle: 60, Car: 3600, Bus: None, Bike: 60, Walk: 3600}
    async with opened(mongodb_url, models) as world:
        for key, (model, life) in enumerate(lives.items()):
            made = await model(id=key).insert()
            for document in (made, await model.get(key)):
                end = document.expires_at and document.expires_at - document.last_modified
                assert end == (life and timedelta(seconds=life)), model
        world.raw["Vehicle"].update_many({}, [{"$set": {"_ts": {"$subtract": ["$$NOW", 90_000]}}}])
        assert [type(each) async for each in Vehicle.find(with_children=True)] == [Car, Bus]


async def test_an_action_after_the_insert_changes_the_lifetime(mongodb_url: str) -> None:
    seen: list[Any] = []

    class Hold(TTLMixin, Document):
        __ttl__ = 3600
        id: int  # type: ignore[assignment]
        name: str = ""

        @after_event(Insert)
        async def shorten(self) -> None:
            seen.append(self.expires_at)
            await self.expire_in(60)

    async with opened(mongodb_url, [Hold]) as world:
        hold = await Hold(id=1).insert()
        assert (seen[0] is not None, hold.ttl) == (True, 60)
        assert hold.last_modified == world.stored(Hold, 1)["_ts"]

        hold.name = "Ann"
        await hold.save()
        assert world.stored(Hold, 1)["ttl"] == 60


async def test_an_action_after_a_replace_keeps_what_it_sets(mongodb_url: str) -> None:
    class Hold(TTLMixin, Document):
        __ttl__ = 3600
        id: int  # type: ignore[assignment]

        @after_event(Replace)
        def shorten(self) -> None:
            seen.append(self.last_modified)
            self.ttl = 60

    seen: list[Any] = []
    async with opened(mongodb_url, [Hold]) as world:
        hold = await Hold(id=1).insert()
        await hold.replace()
        written = world.stored(Hold, 1)
        assert (hold.ttl, hold.last_modified, written["ttl"]) == (60, seen[0], None)
        assert seen[0] == written["_ts"]


async def test_a_replace_takes_its_session_by_position(mongodb_url: str) -> None:
    class Hold(TTLMixin, Document):
        __ttl__ = 3600
        id: int  # type: ignore[assignment]

    async with opened(mongodb_url, [Hold]) as world:
        hold = await Hold(id=1).insert()
        async with transaction(world) as session:
            await hold.replace(False, session)  # noqa: FBT003 (Beanie's parameter)
        assert hold.last_modified == world.stored(Hold, 1)["_ts"]
