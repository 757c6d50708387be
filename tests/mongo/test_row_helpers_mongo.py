"""What one does with a document's lifetime."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from tests.mongo.models import Adopted, Event, Tracked, Visit, Voucher, World
from ttl_odm import NEVER, InvalidTTL, TTLConfigurationError

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
    await fresh(ttl=60)

    (event,) = await Event.find(lazy_parse=lazy).to_list()

    assert event.expires_at == event.last_modified + timedelta(seconds=60)
    assert event.last_modified.tzinfo is not None


async def test_before_it_is_stored_it_has_no_end() -> None:
    event = Event.model_construct(id=1, name="a", last_modified=None, ttl=60)

    assert event.expires_at is None
    assert event.time_left is None
    assert not event.is_expired


@pytest.mark.parametrize("junk", ["2020-01-01", 5, [], True, {"a": 1}])
async def test_what_is_no_date_in_the_database_is_no_last_modification(
    world: World, junk: object
) -> None:
    world.of(Event).insert_one({"_id": 1, "name": "a", "_ts": junk})

    event = await Event.get(1)

    assert event.last_modified is None
    assert event.expires_at is None


async def test_json_keeps_the_lifetime(world: World) -> None:
    event = await fresh(ttl=60)

    again = Event.model_validate_json(event.model_dump_json())

    assert again.expires_at == event.expires_at


async def test_touch_starts_the_life_again_and_changes_nothing_else(world: World) -> None:
    event = await fresh(ttl=60)
    world.age(Event, 1, 30)
    event.score = 5

    await event.touch()

    stored = world.stored(Event, 1)
    assert stored["score"] == 0
    assert event.score == 5
    assert event.last_modified == stored["_ts"] > world.now() - timedelta(seconds=20)


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


@pytest.mark.parametrize("life", [1.5, True, 2**31, timedelta(seconds=1.5), float("nan")])
async def test_expire_in_refuses_what_is_no_ttl(world: World, life: Any) -> None:
    event = await fresh()

    with pytest.raises(InvalidTTL):
        await event.expire_in(life)


async def test_expire_at_hits_the_millisecond(world: World) -> None:
    event = await fresh()
    instant = (world.now() + timedelta(seconds=90.25)).replace(microsecond=123000)

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
