"""`TTLClock` on MongoDB, through whichever driver Beanie speaks to here."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, Any

import pytest
import pytest_asyncio
from beanie import BulkWriter, Document, Indexed, Link, UpdateResponse, View
from pymongo import ReturnDocument
from pymongo.errors import BulkWriteError, DuplicateKeyError

from tests.mongo.models import World, collection_of, opened
from ttl_odm import TTL, ExpireAfter, ExpireAt, ExpiredError, TTLError
from ttl_odm.beanie import TTLMixin, ensure_indexes
from ttl_odm.beanie.gate.cursors import Lifetime
from ttl_odm.beanie.gate.handle import Handle
from ttl_odm.beanie.policy import predicate
from ttl_odm.beanie.policy.bindings import registry_of
from ttl_odm.beanie.policy.commands import RawCollection
from ttl_odm.beanie.rewrite import filters
from ttl_odm.beanie.rewrite.stamps import Stamping
from ttl_odm.beanie.time import formats
from ttl_odm.beanie.time.clock import ServerClock
from ttl_odm.sweeper import AsyncSweeper
from ttl_odm.testing import TTLClock
from ttl_odm.testing.clock import on_beanie

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

THEN = datetime(2031, 5, 4, 3, 2, 1, 123000, tzinfo=timezone.utc)
SECONDS = 86_400
"""A day: what a test writes with the default ttl outlives the test, on the slowest machine."""
LIFE = timedelta(seconds=SECONDS)
MILLISECOND = timedelta(milliseconds=1)


class Event(TTLMixin, Document):
    __ttl__ = SECONDS
    id: int
    name: Annotated[str, Indexed(unique=True)]
    score: int = 0

    class Settings:
        name = "events"


class Fixed(TTLMixin, Document):
    __ttl__ = TTL(SECONDS, override=None)
    id: int
    score: int = 0

    class Settings:
        name = "fixed"


class Legacy(TTLMixin, Document):
    __ttl__ = TTL(SECONDS, last_modified="changed", override=None, unit="s")
    __ttl_purge__ = "sweeper"
    id: int
    changed: int | None = None
    score: int = 0

    class Settings:
        name = "legacy"


class Visit(TTLMixin, Document):
    __ttl__ = ExpireAfter("made", SECONDS)
    id: int
    made: datetime

    class Settings:
        name = "visits"


class Voucher(TTLMixin, Document):
    __ttl__ = ExpireAt("ends")
    id: int
    ends: datetime

    class Settings:
        name = "vouchers"


class Cached(TTLMixin, Document):
    __ttl__ = SECONDS
    id: int

    class Settings:
        name = "cached"
        use_cache = True
        cache_expiration_time = timedelta(hours=2)


class Told(TTLMixin, Document):
    __ttl__ = SECONDS
    __ttl_purge__ = "sweeper"
    id: int
    score: int = 0

    class Settings:
        name = "told"


class Eternal(TTLMixin, Document):
    __ttl__ = -1
    id: int

    class Settings:
        name = "eternal"


class Plain(Document):
    id: int
    event: Link[Event] | None = None

    class Settings:
        name = "plain"


class Names(View):
    name: str

    class Settings:
        source = Event
        pipeline = [{"$project": {"name": 1}}]


class Measured(TTLMixin, Document):
    __ttl__ = ExpireAfter("made", SECONDS)
    made: datetime

    class Settings:
        name = "measured"


MODELS = [Measured, Event, Fixed, Legacy, Visit, Voucher, Cached, Told, Eternal, Plain, Names]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(mongodb_url: str) -> AsyncIterator[World]:
    async with opened(mongodb_url, MODELS) as made:
        yield made


@pytest.fixture
def world(shared: World) -> World:
    for model in MODELS:
        if model is not Names:
            shared.of(model).delete_many({})
    Cached._cache.cache.clear()
    return shared


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def one(**fields: Any) -> Event:
    event = Event(**{"id": 1, "name": "a", **fields})
    await event.insert()
    return event


# Stamps


async def _insert(events: Any) -> None:
    await Event(id=2, name="b").insert()


async def _insert_many(events: Any) -> None:
    await Event.insert_many([Event(id=2, name="b")])


async def _set(events: Any) -> None:
    await Event.find(Event.id == 2).update({"$set": {"score": 1}})


async def _inc(events: Any) -> None:
    await Event.find(Event.id == 2).update({"$inc": {"score": 1}})


async def _pipeline(events: Any) -> None:
    await events.update_one({"_id": 2}, [{"$set": {"score": 1}}])


async def _own_update(events: Any) -> None:
    found = await Event.get(2)
    await found.inc({"score": 1})


async def _replace(events: Any) -> None:
    found = await Event.get(2)
    await found.replace()


async def _save(events: Any) -> None:
    found = await Event.get(2)
    found.score = 5
    await found.save()


async def _touch(events: Any) -> None:
    found = await Event.get(2)
    await found.touch()


async def _upsert(events: Any) -> None:
    await Event.find_one(Event.id == 2).upsert(
        {"$set": {"score": 1}},
        on_insert=Event(id=2, name="b"),
        response_type=UpdateResponse.UPDATE_RESULT,
    )


async def _inserting_upsert(events: Any) -> None:
    await events.update_one({"_id": 2}, {"$set": {"name": "b"}}, upsert=True)


async def _find_and_update(events: Any) -> None:
    found = await events.find_one_and_update(
        {"_id": 2}, {"$inc": {"score": 1}}, return_document=ReturnDocument.AFTER
    )
    assert found["_ts"].replace(tzinfo=timezone.utc) == THEN


async def _bulk(events: Any) -> None:
    async with BulkWriter() as writer:
        await Event.find_one(Event.id == 2).update({"$inc": {"score": 1}}, bulk_writer=writer)


NEW = [_insert, _insert_many, _inserting_upsert]


async def _merge(events: Any) -> None:
    await Plain(id=2).insert()
    pipeline = [{"$project": {"score": {"$literal": 5}}}, {"$merge": "events"}]
    await Plain.aggregate(pipeline).to_list()


AGAIN = [
    *(_set, _inc, _pipeline, _own_update, _replace, _save, _touch, _upsert, _find_and_update),
    *(_bulk, _merge),
]


@pytest.mark.parametrize("write", [*NEW, *AGAIN])
async def test_every_write_is_stamped_with_the_instant_at_which_the_clock_stands(
    world: World, ttl_clock: TTLClock, write: Callable[[Any], Awaitable[None]]
) -> None:
    ttl_clock.freeze(at=THEN - timedelta(seconds=30))
    if write in AGAIN:
        await Event(id=2, name="b", ttl=45).insert()
    ttl_clock.freeze(at=THEN)
    await write(collection_of(Event))

    found = world.stored(Event, 2)
    assert found["_ts"] == THEN
    assert found.get("_exp") in (None, THEN + timedelta(seconds=45))


@pytest.mark.parametrize("model", [Fixed, Legacy])
async def test_so_are_updates_that_the_server_would_stamp_by_currentdate(
    world: World, ttl_clock: TTLClock, model: Any
) -> None:
    ttl_clock.freeze(at=THEN)
    await model(id=1).insert()
    ttl_clock.freeze(at=THEN + timedelta(seconds=30))
    await model.find_one({"_id": 1}).update({"$inc": {"score": 1}})
    await model.find_all().update({"$inc": {"score": 1}})

    found = world.stored(model, 1)
    assert found["score"] == 2
    expected = THEN + timedelta(seconds=30)
    seconds = -(-expected.timestamp() // 1)
    assert found["_ts" if model is Fixed else "changed"] in (expected, seconds)


async def test_a_clock_that_runs_stamps_with_the_servers_time_and_the_offset(
    world: World, ttl_clock: TTLClock
) -> None:
    ttl_clock.advance(timedelta(days=3))
    before = world.now() + timedelta(days=3)
    await one(ttl=4500)
    inserted = world.stored(Event, 1)["_ts"]
    await Event.find_one(Event.id == 1).update({"$set": {"score": 1}})
    updated = world.stored(Event, 1)
    await Fixed(id=1).insert()
    await Fixed.find_one().update({"$inc": {"score": 1}})
    counted = world.stored(Fixed, 1)["_ts"]
    after = world.now() + timedelta(days=3)

    # Inserts carry what the driver knows of the server's clock, and how exactly it does.
    server = registry_of(world.database.client).clock
    slack = server.at_most() - server.reached()
    assert before - slack <= inserted <= updated["_ts"] + slack <= after + slack
    assert updated["_exp"] == updated["_ts"] + timedelta(seconds=4500)
    assert before - slack <= counted <= after


async def test_parts_of_a_millisecond_are_cut_off(world: World, ttl_clock: TTLClock) -> None:
    ttl_clock.freeze(at=THEN + timedelta(microseconds=999))
    event = await one()
    assert world.stored(Event, 1)["_ts"] == THEN
    assert event.last_modified == THEN
    ttl_clock.advance(LIFE - timedelta(milliseconds=1))
    assert await Event.get(1) is not None
    ttl_clock.advance(0.001)
    assert await Event.get(1) is None


# Reads


async def _by_get() -> Any:
    return await Event.get(1)


async def _by_find() -> Any:
    return await Event.find(Event.name == "a").to_list()


async def _by_limited_find() -> Any:
    return await Event.find(Event.name == "a").limit(5).to_list()


async def _by_count() -> Any:
    return await Event.find_all().count()


async def _by_estimate() -> Any:
    return await collection_of(Event).estimated_document_count()


async def _by_exists() -> Any:
    return await Event.find(Event.id == 1).exists()


async def _by_distinct() -> Any:
    return await Event.distinct("name")


async def _by_aggregate() -> Any:
    return await Event.find_all().aggregate([{"$project": {"name": 1}}]).to_list()


async def _by_sum() -> Any:
    return await Event.find_all().sum(Event.id)


async def _by_link() -> Any:
    found = await Plain.find_one(Plain.id == 1, fetch_links=True)
    return isinstance(found.event, Event)


async def _by_view() -> Any:
    return await Names.find_all().to_list()


async def _by_cursor() -> Any:
    return [each async for each in Event.find_all()]


async def _by_facet() -> Any:
    pipeline = [
        {"$facet": {"all": [{"$lookup": {"from": "events", "pipeline": [], "as": "found"}}]}}
    ]
    (found,) = await Plain.aggregate(pipeline).to_list()
    return found["all"][0]["found"]


READS = [
    *(_by_get, _by_find, _by_limited_find, _by_count, _by_estimate, _by_exists, _by_distinct),
    *(_by_aggregate, _by_sum, _by_link, _by_view, _by_cursor, _by_facet),
]


@pytest.mark.parametrize("read", READS)
async def test_a_document_is_there_until_its_end_to_the_millisecond(
    world: World, ttl_clock: TTLClock, read: Callable[[], Awaitable[Any]]
) -> None:
    ttl_clock.freeze(at=THEN)
    event = await one()
    await Plain(id=1, event=event).insert()
    ttl_clock.advance(LIFE - MILLISECOND)
    assert await read()
    ttl_clock.advance(MILLISECOND)
    assert not await read()
    ttl_clock.advance(-MILLISECOND)
    assert await read()


@pytest.mark.parametrize("read", READS)
async def test_so_it_is_by_a_clock_that_runs(
    world: World, ttl_clock: TTLClock, read: Callable[[], Awaitable[Any]]
) -> None:
    await Plain(id=1, event=await one(ttl=3600)).insert()
    ttl_clock.advance(3000)
    assert await read()
    ttl_clock.advance(600)
    assert not await read()


async def test_dates_of_the_applications_own_are_judged_by_the_clock_too(
    world: World, ttl_clock: TTLClock
) -> None:
    await Visit(id=1, made=THEN).insert()
    await Voucher(id=1, ends=THEN + LIFE).insert()
    ttl_clock.freeze(at=THEN + LIFE - MILLISECOND)
    assert [await Visit.count(), await Voucher.count()] == [1, 1]
    assert await Visit.get(1) is not None
    ttl_clock.advance(MILLISECOND)
    assert [await Visit.count(), await Voucher.count()] == [0, 0]
    assert await Voucher.get(1) is None


async def test_epoch_seconds_are_judged_by_the_clock_too(world: World, ttl_clock: TTLClock) -> None:
    ttl_clock.freeze(at=THEN)
    await Legacy(id=1).insert()
    assert world.stored(Legacy, 1)["changed"] == int(THEN.timestamp()) + 1  # rounded up
    ttl_clock.freeze(at=datetime.fromtimestamp(int(THEN.timestamp()) + SECONDS + 1, timezone.utc))
    assert await Legacy.find_all().to_list() == []
    ttl_clock.advance(-MILLISECOND)
    assert await Legacy.count() == 1


async def test_expired_documents_can_be_read_on_request(world: World, ttl_clock: TTLClock) -> None:
    await one()
    ttl_clock.advance(LIFE)
    assert await Event.get(1) is None
    assert await Event.find_one(Event.id == 1, include_expired=True) is not None


async def test_a_cursor_that_is_open_follows_the_clock(world: World, ttl_clock: TTLClock) -> None:
    await Event.insert_many([Event(id=n, name=str(n)) for n in range(5)])
    began = collection_of(Event).find({}, batch_size=2)
    waiting = collection_of(Event).find({}, limit=4)
    assert await began.next() is not None
    ttl_clock.advance(LIFE)
    assert [each async for each in began] == []
    assert await waiting.to_list(None) == []


async def test_results_from_beanies_cache_follow_the_clock(
    world: World, ttl_clock: TTLClock
) -> None:
    await Cached(id=1).insert()
    assert len(await Cached.find_all().to_list()) == 1
    world.of(Cached).delete_many({})
    assert len(await Cached.find_all().to_list()) == 1  # out of the cache
    ttl_clock.advance(LIFE)
    assert await Cached.find_all().to_list() == []


# Writes


async def test_nothing_that_has_expired_is_written(world: World, ttl_clock: TTLClock) -> None:
    event = await one()
    ttl_clock.advance(LIFE)
    assert (await Event.find_all().update({"$set": {"score": 1}})).matched_count == 0
    assert (await Event.find_all().delete()).deleted_count == 0
    for write in (event.save, event.replace, event.delete, event.touch, event.persist, event.sync):
        if write != event.save:  # which is an upsert
            with pytest.raises(ExpiredError):
                await write()
    assert world.stored(Event, 1)["score"] == 0


async def test_the_keys_of_what_has_expired_are_free(world: World, ttl_clock: TTLClock) -> None:
    await one()
    with pytest.raises(DuplicateKeyError):
        await Event(id=2, name="a").insert()
    ttl_clock.advance(LIFE * 2)
    await Event(id=2, name="a").insert()
    assert world.keys(Event) == [2]
    with pytest.raises(BulkWriteError):
        await Event.insert_many([Event(id=3, name="a")])
    ttl_clock.advance(LIFE * 2)
    await Event.insert_many([Event(id=2, name="c"), Event(id=3, name="a")])
    assert world.keys(Event) == [2, 3]


@pytest.mark.parametrize("passing", ["by the clock", "in the database"])
async def test_a_document_whose_key_was_taken_again_writes_what_it_does_in_real_time(
    world: World, ttl_clock: TTLClock, passing: str
) -> None:
    old = await one()
    await old.sync()
    if passing == "by the clock":
        ttl_clock.advance(LIFE)
    else:
        world.age(Event, 1, SECONDS)
    with pytest.raises(ExpiredError):
        await old.set({Event.score: 1})
    await one(score=2)
    same = Event.find({"_id": 1, "_ts": old.last_modified})
    assert (await same.update({"$set": {"score": 1}})).matched_count == 0
    assert (await same.delete()).deleted_count == 0
    await old.set({Event.score: 3})  # by its key, as Beanie writes
    assert world.stored(Event, 1)["score"] == 3


async def test_they_are_free_in_a_transaction_too(world: World, ttl_clock: TTLClock) -> None:
    await one()
    ttl_clock.advance(LIFE * 2)
    session = world.database.client.start_session()
    session = await session if hasattr(session, "__await__") else session
    started = session.start_transaction()
    if hasattr(started, "__await__"):
        await started
    await Event(id=1, name="a", score=7).insert(session=session)
    await session.commit_transaction()
    await session.end_session()
    assert world.stored(Event, 1)["score"] == 7


# Row helpers


async def test_a_document_tells_the_time_by_the_clock(world: World, ttl_clock: TTLClock) -> None:
    ttl_clock.freeze(at=THEN)
    event = await one()
    assert (event.expires_at, event.time_left, event.is_expired) == (THEN + LIFE, LIFE, False)
    ttl_clock.advance(LIFE - MILLISECOND)
    assert (event.time_left, event.is_expired) == (MILLISECOND, False)
    await event.touch()
    assert event.expires_at == THEN + 2 * LIFE - MILLISECOND
    ttl_clock.advance(LIFE)
    assert (event.time_left, event.is_expired) == (timedelta(), True)


async def test_a_lifetime_is_set_by_the_clock(world: World, ttl_clock: TTLClock) -> None:
    ttl_clock.freeze(at=THEN)
    event = await one()
    await event.expire_in(5)
    assert event.expires_at == THEN + timedelta(seconds=5)
    await event.expire_at(THEN + timedelta(days=9))
    assert event.expires_at == THEN + timedelta(days=9)
    ttl_clock.advance(timedelta(days=9) - MILLISECOND)
    assert await Event.get(1) is not None
    await event.expire_in(0)
    assert await Event.get(1) is None


async def test_touching_now_and_then_goes_by_the_clock(world: World, ttl_clock: TTLClock) -> None:
    ttl_clock.freeze(at=THEN)
    event = await one()
    assert not await event.touch(at_most_every=20)
    ttl_clock.advance(20)
    assert await event.touch(at_most_every=20)
    assert world.stored(Event, 1)["_ts"] == THEN + timedelta(seconds=20)


# Sweeping


async def test_a_sweeper_deletes_what_has_expired_by_the_clock(
    world: World, ttl_clock: TTLClock
) -> None:
    await ensure_indexes(Told)
    purged: list[Any] = []
    await Told.insert_many([Told(id=1), Told(id=2, ttl=2 * SECONDS), Told(id=3, ttl=SECONDS // 2)])
    sweeper = AsyncSweeper(world.database, [Told], on_purged=purged.append)
    assert (await sweeper.run_once()).deleted == 0
    ttl_clock.freeze(at=THEN)
    report = await sweeper.run_once()
    assert (report.deleted, report.problems) == (3, ())
    assert world.keys(Told) == []
    assert {each.as_of for each in purged} == {THEN}


async def test_its_lease_stays_with_the_real_time(world: World, ttl_clock: TTLClock) -> None:
    ttl_clock.advance(timedelta(days=365))
    await AsyncSweeper(world.database, [Told]).run_once()
    (lease,) = world.raw["ttl_odm_lease"].find()
    assert lease["recorded_at"] < world.now() + timedelta(minutes=1)


# MongoDB's own deletion


async def test_a_clock_ahead_is_no_danger_with_ttl_indexes(
    world: World, ttl_clock: TTLClock
) -> None:
    await ensure_indexes(Event)
    ttl_clock.advance(timedelta(days=1))
    event = await one(ttl=3600)
    assert world.stored(Event, 1)["_exp"] > world.now() + timedelta(hours=23)
    assert await Event.get(1) is not None
    ttl_clock.advance(3600)
    assert event.is_expired
    assert world.keys(Event) == [1]  # it stays until its real end


async def test_where_mongodb_would_delete_what_lives_the_test_is_told(
    world: World, ttl_clock: TTLClock
) -> None:
    await ensure_indexes(Event)
    ttl_clock.freeze(at=datetime(2024, 1, 1, tzinfo=timezone.utc))
    await one()
    for read in (_by_get, _by_find, _by_count, _by_distinct, _by_aggregate):
        with pytest.raises(TTLError, match=r"Event 1 is live by the TTLClock.*ensure_indexes"):
            await read()
    ttl_clock.freeze(at=world.now())
    assert await Event.get(1) is None


async def test_so_it_is_where_mongodb_would_delete_measurements(
    world: World, ttl_clock: TTLClock
) -> None:
    world.of(Measured).drop()
    world.raw.create_collection("measured", timeseries={"timeField": "made"})
    past = datetime(2024, 1, 1, tzinfo=timezone.utc)
    ttl_clock.freeze(at=past)
    await Measured(made=past).insert()
    assert await Measured.count() == 1
    await ensure_indexes(Measured)
    with pytest.raises(TTLError, match=r"Measured .* is live by the TTLClock"):
        await Measured.count()


async def test_a_clock_behind_is_no_danger_without_ttl_indexes(
    world: World, ttl_clock: TTLClock
) -> None:
    ttl_clock.freeze(at=datetime(1999, 1, 1, tzinfo=timezone.utc))
    await Told(id=1).insert()
    assert await Told.get(1) is not None
    await Cached(id=1).insert()
    assert await Cached.find_all().count() == 1


async def test_a_clock_that_stands_still_is_no_danger_while_lifetimes_are_longer(
    world: World, ttl_clock: TTLClock
) -> None:
    await ensure_indexes(Event)
    await one()
    ttl_clock.freeze()
    assert await Event.get(1) is not None


# Factories


@pytest.mark.parametrize("own", [None, 600])
@pytest.mark.parametrize("seconds", [-300, 20, 0])
async def test_documents_are_made_that_expire_when_a_test_wants(
    world: World, ttl_clock: TTLClock, own: int | None, seconds: int
) -> None:
    await ensure_indexes(Event)
    event = Event(id=1, name="a", ttl=own)
    ttl_clock.freeze(at=THEN)
    with ttl_clock.expiring(event, seconds):
        await event.insert()
    assert event.expires_at == THEN + timedelta(seconds=seconds)
    assert (await Event.get(1) is None) is (seconds <= 0)


async def test_they_can_be_made_for_the_real_time(world: World, ttl_clock: TTLClock) -> None:
    await ensure_indexes(Event)
    with ttl_clock.expiring(Event, -LIFE):
        await one()
    assert await Event.get(1) is None
    assert await Event.get(1, include_expired=True) is not None
    with ttl_clock.expiring(Event, 10 * LIFE):
        await one(id=2)
    found = await Event.get(2)
    assert 9 * LIFE < found.time_left <= 10 * LIFE


@pytest.mark.parametrize("model", [Eternal, Visit, Voucher, Plain])
async def test_what_has_no_end_counted_from_its_writing_cant_be_made_so(
    world: World, ttl_clock: TTLClock, model: Any
) -> None:
    with pytest.raises(TTLError, match=f"{model.__name__}"):
        ttl_clock.expiring(model, 5)


# Before and after


PIECES = [
    (formats, "server_now"),
    (filters, "live"),
    (ServerClock, "reached"),
    (ServerClock, "at_most"),
    (Stamping, "needs_now"),
    (RawCollection, "server"),
    (Handle, "ready"),
    (Lifetime, "listed"),
]


def _pieces() -> list[Any]:
    return [vars(owner)[name] for owner, name in PIECES]


async def test_after_a_failure_everything_is_as_it_was(world: World) -> None:
    before = _pieces()
    event = await one()
    with suppress(RuntimeError), TTLClock() as clock:
        clock.freeze(at=THEN)
        assert all(now is not then for now, then in zip(_pieces(), before, strict=True))
        assert event.is_expired
        await Fixed(id=1).insert()
        raise RuntimeError("the test failed")
    assert all(now is then for now, then in zip(_pieces(), before, strict=True))
    assert not event.is_expired
    assert await Event.get(1) is not None
    before = world.now()
    await Fixed.find_one(Fixed.id == 1).update({"$inc": {"score": 1}})
    assert before <= world.stored(Fixed, 1)["_ts"] <= world.now()
    assert filters.live(TTL(60)) == predicate.live_expr(TTL(60))
    assert "$$NOW" in str(filters.live(TTL(60)))


async def test_clocks_nest(world: World) -> None:
    await one()
    with TTLClock() as outer:
        outer.advance(LIFE / 2)
        with TTLClock() as inner:
            inner.advance(LIFE / 2)
            assert await Event.get(1) is None
        assert await Event.get(1) is not None
        with outer.freeze(at=THEN):
            assert await Event.get(1) is None
        assert await Event.get(1) is not None


async def test_a_view_that_was_read_under_the_clock_is_mended_by_its_next_reader(
    world: World,
) -> None:
    await one()
    assert len(await Names.find_all().to_list()) == 1
    definition = world.raw["Names"].options()["pipeline"]
    with TTLClock() as clock:
        clock.advance(LIFE)
        assert await Names.find_all().to_list() == []
        assert world.raw["Names"].options()["pipeline"] != definition
    assert len(await Names.find_all().to_list()) == 1
    assert world.raw["Names"].options()["pipeline"] == definition


async def test_the_clock_knows_the_servers_time_as_it_was_last_asked(world: World) -> None:
    await Event.count()
    before = world.now()
    server = registry_of(world.database.client).clock
    with TTLClock() as clock:
        clock.advance(3600)
        known = on_beanie.real_now()
    assert known is not None
    vague = server.at_most() - server.reached()
    # The server tells whole milliseconds: it may be nearly one further than it says.
    assert before <= known <= world.now() + vague + timedelta(milliseconds=1)
