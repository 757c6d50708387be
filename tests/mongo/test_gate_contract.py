"""The truth table of the contract, through every kind of operation that Beanie has.

The very instant of expiry is tested where a literal instant can be passed (`test_predicate`);
here documents keep a minute's distance from it, by the server's clock.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.mongo.models import LONG_AGO, Adopted, Event, Visit, Voucher, World, collection_of
from ttl_odm.beanie.server_clock import ServerClock

if TYPE_CHECKING:
    from datetime import datetime

MISSING = "missing"
AGES = {1: 540, 2: 660, 3: 3540, 4: 3660}
"""By key: a minute around 600 and 3600 seconds."""

TABLE = [
    (None, MISSING, {1, 2, 3, 4}),
    (None, -1, {1, 2, 3, 4}),
    (None, 600, {1, 2, 3, 4}),
    (-1, MISSING, {1, 2, 3, 4}),
    (-1, -1, {1, 2, 3, 4}),
    (-1, 600, {1}),
    (3600, MISSING, {1, 2, 3}),
    (3600, None, {1, 2, 3}),
    (3600, -1, {1, 2, 3, 4}),
    (3600, 600, {1}),
    (3600, 600.0, {1}),
    (3600, 600.5, {1, 2, 3}),
    (3600, "600", {1, 2, 3}),
    (3600, True, {1, 2, 3}),
    (3600, 0, {1, 2, 3}),
    (3600, [600], {1, 2, 3}),
    (600, 3600, {1, 2, 3}),
]


def put(world: World, own: object) -> None:
    """Store a document of each age."""
    documents: list[dict[str, Any]] = [{"_id": key, "name": f"n{key}"} for key in AGES]
    if own != MISSING:
        documents = [{**each, "ttl": own} for each in documents]
    world.of(Event).insert_many(documents)
    for key, seconds in AGES.items():
        world.age(Event, key, seconds)


@pytest.mark.parametrize(("default", "own", "living"), TABLE)
async def test_every_read_sees_what_the_truth_table_says(
    world: World, monkeypatch: pytest.MonkeyPatch, default: Any, own: object, living: set[int]
) -> None:
    put(world, own)
    monkeypatch.setattr(Event, "__ttl__", default)
    collection = collection_of(Event)

    assert {each.id for each in await Event.find().to_list()} == living
    assert {each.id async for each in Event.find_all()} == living
    assert {each for each in AGES if await Event.get(each) is not None} == living
    assert await Event.count() == len(living)
    assert await collection.estimated_document_count() == len(living)
    assert set(await Event.distinct("_id")) == living
    assert {each["_id"] for each in await Event.aggregate([]).to_list()} == living
    assert {each.id for each in await Event.find(include_expired=True).to_list()} == set(AGES)


@pytest.mark.parametrize(("default", "own", "living"), TABLE)
async def test_every_write_changes_what_the_truth_table_says(
    world: World, monkeypatch: pytest.MonkeyPatch, default: Any, own: object, living: set[int]
) -> None:
    put(world, own)
    monkeypatch.setattr(Event, "__ttl__", default)
    collection = collection_of(Event)

    found = {
        key
        for key in AGES
        if (await collection.update_one({"_id": key}, {"$set": {"score": 1}})).matched_count
    }
    assert found == living

    for key, seconds in AGES.items():
        world.age(Event, key, seconds)
    assert (await Event.find().update({"$inc": {"score": 1}})).matched_count == len(living)

    for key, seconds in AGES.items():
        world.age(Event, key, seconds)
    assert (await Event.delete_all()).deleted_count == len(living)
    assert set(world.keys(Event)) == set(AGES) - living


async def test_a_changed_default_acts_at_once_in_both_directions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(world, MISSING)

    counts = []
    for default in (3600, 600, 10_000, -1, None, 600, timedelta(hours=1)):
        monkeypatch.setattr(Event, "__ttl__", default)
        counts.append(await Event.count())

    assert counts == [3, 1, 4, 4, 4, 1, 3]


async def test_at_the_very_millisecond_a_document_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = world.now().replace(microsecond=0)
    instants: dict[int, datetime] = {
        each: now - timedelta(seconds=3600, milliseconds=each - 2) for each in (1, 2, 3)
    }
    world.of(Event).insert_many(
        [{"_id": each, "name": str(each), "_ts": born} for each, born in instants.items()]
    )
    monkeypatch.setattr(ServerClock, "at_most", lambda _: now)

    # `distinct` is the one read to which the instant is passed.
    assert await Event.distinct("_id") == [1]


async def test_dates_and_arrays_of_dates_end_documents(world: World) -> None:
    now = world.now()
    young, old = now - timedelta(minutes=59), now - timedelta(minutes=61)
    made = {1: young, 2: old, 3: [young, old], 4: [young, "x"], 5: None, 6: "2020-01-01", 7: []}
    world.of(Visit).insert_many([{"_id": key, "made": date} for key, date in made.items()])

    assert {each.id for each in await Visit.find().to_list()} == {1, 4, 5, 6, 7}


async def test_a_write_does_not_prolong_the_life_that_a_date_gives(world: World) -> None:
    made = world.now() - timedelta(minutes=59)
    await Visit(id=1, made=made).insert()
    await Visit.find().update({"$set": {"other": 1}})

    stored = world.stored(Visit, 1)

    assert abs(stored["made"] - made) < timedelta(milliseconds=1)
    assert stored.keys() <= {"_id", "made", "other", "revision_id"}


async def test_the_instant_itself_ends_documents_and_null_may_mean_that_too(world: World) -> None:
    now = world.now()
    ends = {1: now + timedelta(minutes=1), 2: now - timedelta(minutes=1), 3: None}
    world.of(Voucher).insert_many([{"_id": key, "ends": date} for key, date in ends.items()])

    assert [each.id for each in await Voucher.find().to_list()] == [1]


async def test_fields_that_exist_can_be_adopted(world: World) -> None:
    world.of(Adopted).insert_many(
        [
            {"_id": 1, "changed": LONG_AGO},
            {"_id": 2, "changed": LONG_AGO, "lives": 0},
            {"_id": 3, "changed": world.now(), "lives": 60},
            {"_id": 4, "changed": world.now() - timedelta(minutes=2), "lives": 60},
        ]
    )

    found = await Adopted.find().sort("_id").to_list()

    assert [each.id for each in found] == [2, 3]
    assert "ttl" not in Adopted.model_fields
    await found[0].set({"lives": 5})
    assert world.stored(Adopted, 2)["changed"] > LONG_AGO
    changed = world.stored(Adopted, 2)["changed"]
    assert found[0].expires_at == changed + timedelta(seconds=5)
