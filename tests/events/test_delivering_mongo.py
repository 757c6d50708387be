"""Events of documents are delivered to each consumer until it has dealt with them."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded  # type: ignore[import-untyped]

from tests.events.mongo_holds import HOUR, expire, handled, keys, outbox, seat_hold, waiting
from tests.mongo.sweeping import swept
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events import (
    AsyncEventWorker,
    Delivered,
    EventWorker,
    Expiry,
    events,
    on_expired,
    record_expired,
)
from ttl_odm.events.beanie.outbox import CollectionOutbox
from ttl_odm.events.outbox import EVERY_TABLE, Subscription
from ttl_odm.sweeper import UnreachableStoreError

if TYPE_CHECKING:
    from tests.mongo.sweeping import Swept
    from ttl_odm.testing import ExpiredEvents, TTLClock

WEEK = 7 * 86_400


class Stubborn:
    """A handler that raises so many times before it does its work."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.got: list[Expiry] = []

    async def __call__(self, event: Expiry) -> None:
        await asyncio.sleep(0)
        self.got.append(event)
        if len(self.got) <= self.failures:
            raise RuntimeError(f"$no {len(self.got)}")


async def read(place: Swept, consumer: str = "mailer", targets: Any = None) -> list[Any]:
    """Return the keys of what a consumer reads."""
    return [event.key[0] async for event in events(place.database, targets, consumer=consumer)]


async def test_an_event_on_which_a_handler_raises_comes_again(
    mongodb_url: str, ttl_clock: TTLClock, caplog: pytest.LogCaptureFixture
) -> None:
    model, handler = seat_hold(), Stubborn(2)
    on_expired(model, name="release")(handler)
    others = handled(model, "tell")
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, "A1")
        worker = AsyncEventWorker(place.database, model)
        with caplog.at_level(logging.WARNING, "ttl_odm.events"):
            assert await worker.run_once() == Delivered(done=1, failed=1)
        assert "RuntimeError: $no 1; it will be delivered again" in caplog.text
        assert await worker.run_once() == Delivered()
        ttl_clock.advance(1)
        assert await worker.run_once() == Delivered(failed=1)
        ttl_clock.advance(1)
        assert await worker.run_once() == Delivered()
        ttl_clock.advance(1)
        assert await worker.run_once() == Delivered(done=1)
        assert waiting(place) == []
    assert [event.delivery for event in handler.got] == [1, 2, 3]
    assert len({event.id for event in handler.got}) == 1
    assert len(others) == 1


async def test_an_event_that_failed_too_often_is_dead(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model, handler = seat_hold(), Stubborn(9)
    on_expired(model, name="release", attempts=2)(handler)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, "A1")
        worker = AsyncEventWorker(place.database, model)
        assert await worker.run_once() == Delivered(failed=1)
        ttl_clock.advance(1)
        assert await worker.run_once() == Delivered(dead=1)
        ttl_clock.advance(HOUR)
        assert await worker.run_once() == Delivered()
        (row,) = outbox(place, "deliveries")
    assert (row["deliveries"], row["next_at"], row["error"]) == (2, None, "RuntimeError: $no 2")


async def test_the_time_limit_of_a_queue_ends_the_worker_and_the_event_comes_again(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model, got = seat_hold(), list[Expiry]()

    async def release(event: Expiry) -> None:
        got.append(event)
        if len(got) == 1:
            raise SoftTimeLimitExceeded

    on_expired(model, name="release", attempts=1)(release)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, "A1", "A2")
        worker = AsyncEventWorker(place.database, model)
        with pytest.raises(SoftTimeLimitExceeded):
            await worker.run_once()
        assert len(got) == 1
        ttl_clock.advance(60)
        assert await worker.run_once() == Delivered(done=2)


async def test_an_event_whose_worker_died_comes_again(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    class PowerCutError(BaseException):
        pass

    model = seat_hold()
    got: list[Expiry] = []

    def release(event: Expiry) -> None:
        got.append(event)
        if len(got) == 1:
            raise PowerCutError

    on_expired(model, name="release")(release)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, "A1")
        with pytest.raises(PowerCutError):
            await AsyncEventWorker(place.database, model).run_once()
        other = AsyncEventWorker(place.database, model)
        ttl_clock.advance(30)
        assert await other.run_once() == Delivered()
        ttl_clock.advance(30)
        assert await other.run_once() == Delivered(done=1)
    assert [event.delivery for event in got] == [1, 2]


async def test_of_two_who_take_an_event_one_gets_it(mongodb_url: str, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    record_expired(model)
    minute = timedelta(minutes=1)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, *range(10))
        await place.sweep()
        one, other = CollectionOutbox(place.database), CollectionOutbox(place.database)
        await one.subscribe("release", [Subscription("documents")])
        taken = await asyncio.gather(
            *(outbox.take("release", limit, minute) for outbox in (one, other) for limit in (2, 9))
        )
        every = [delivery.event for deliveries in taken for delivery in deliveries]
        every += [delivery.event for delivery in await one.take("release", 9, minute)]
        assert keys(every) == [*range(10)]
        assert {event.delivery for event in every} == {1}
        assert await one.take("release", 9, minute) == []


async def test_a_worker_that_comes_back_late_doesnt_end_the_next_delivery(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    record_expired(model)
    minute = timedelta(minutes=1)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, "A1")
        await place.sweep()
        one, other = CollectionOutbox(place.database), CollectionOutbox(place.database)
        await one.subscribe("release", [Subscription("documents")])
        (mine,) = await one.take("release", 9, minute)
        ttl_clock.advance(60)
        (again,) = await other.take("release", 9, minute)
        assert (mine.event.delivery, again.event.delivery) == (1, 2)
        await one.done([mine])
        await one.failed(mine, "late", None)
        (row,) = outbox(place, "deliveries")
        assert (row["deliveries"], row["error"]) == (2, None)
        await other.done([again])
        assert waiting(place) == []


@pytest.mark.slow
async def test_of_many_workers_one_gets_an_event(mongodb_url: str, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got = handled(model)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, *range(30))
        workers = [AsyncEventWorker(place.database, model) for _ in range(3)]
        await workers[0]._sweeping.run_once()  # so that all have something to do at once
        await asyncio.gather(*(worker.run_once() for worker in workers))
    assert keys(got) == [*range(30)]
    assert {event.delivery for event in got} == {1}


@pytest.mark.slow
async def test_a_reader_deals_with_an_event_when_it_asks_for_the_next(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    record_expired(model)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, 1, 2, 3)
        await place.sweep()
        first = []
        async for event in events(place.database, model, consumer="mailer"):
            first.append(event.key[0])
            if len(first) == 2:
                break  # in the middle of the second
        assert sorted([*first, *await read(place, targets=model)]) == [1, 2, 3]
        assert await read(place, targets=model) == []
        ttl_clock.advance(60)
        assert await read(place, targets=model) == [first[1]]
        ttl_clock.advance(60)
        assert await read(place, targets=model) == []
        with pytest.raises(TTLConfigurationError, match="write 'async for'"):
            list(events(place.database, consumer="mailer"))


@pytest.mark.slow
async def test_consumers_dont_share_their_events(mongodb_url: str, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got = handled(model)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, 1)
        worker = AsyncEventWorker(place.database)
        await worker.run_once()
        assert await read(place) == [1]
        await expire(place, ttl_clock, 2)
        await worker.run_once()
        assert await read(place) == [2]
        assert await read(place, "late") == [1, 2]
    assert keys(got) == [1, 2]


@pytest.mark.slow
async def test_a_handler_by_the_name_of_a_collection_gets_what_others_record(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    record_expired(model)
    got = handled("documents")
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, "A1")
        await place.sweep()
        assert (await AsyncEventWorker(place.database, model).run_once()).done == 1
    assert keys(got) == ["A1"]


async def test_a_consumer_whose_process_died_when_it_came_gets_what_is_kept(
    mongodb_url: str, ttl_clock: TTLClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class PowerCutError(BaseException):
        pass

    async def die(*_: Any) -> None:
        raise PowerCutError

    model = seat_hold()
    record_expired(model)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, 1, 2)
        await place.sweep()
        with monkeypatch.context() as patch:
            patch.setattr(CollectionOutbox, "_hand_over", die)
            with pytest.raises(PowerCutError):
                await read(place)
        assert await read(place) == []
        ttl_clock.advance(60)
        assert sorted(await read(place)) == [1, 2]
        ttl_clock.advance(60)
        assert await read(place) == []


async def test_events_expire_delivered_or_not(mongodb_url: str, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    record_expired(model)
    async with swept(mongodb_url, model) as place:
        outbox_of = CollectionOutbox(place.database)
        await outbox_of.subscribe("slow", [Subscription(EVERY_TABLE)])
        await expire(place, ttl_clock, 1)
        await place.sweep()
        ttl_clock.advance(WEEK - HOUR)
        assert len(await outbox_of.take("slow", 9, timedelta(minutes=1))) == 1
        ttl_clock.advance(HOUR)
        assert await outbox_of.take("slow", 9, timedelta(minutes=1)) == []
        assert await outbox_of.recorded(9) == []
        assert await outbox_of.opened(9) == []
        assert [state.pending for state in await outbox_of.states()] == [0]
        assert await read(place, "late") == []


@pytest.mark.slow
async def test_what_tools_ask(mongodb_url: str, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    handler = Stubborn(1)
    on_expired(model, name="release", attempts=1)(handler)
    async with swept(mongodb_url, model) as place:
        worker = AsyncEventWorker(place.database, model)
        outbox_of = CollectionOutbox(place.database)
        warnings = Subscription("documents", "expiring", timedelta(days=1))
        await outbox_of.subscribe("mailer", [Subscription(EVERY_TABLE), warnings])
        await outbox_of.subscribe("mailer", [Subscription("documents", "expiring")])
        await expire(place, ttl_clock, 1)
        await worker.run_once()
        (first,) = await outbox_of.recorded(9)
        ttl_clock.advance(1)
        await expire(place, ttl_clock, 2)
        assert await worker.run_once() == Delivered(done=1)
        assert [one.event.key for one in await outbox_of.recorded(9)] == [(1,), (2,)]
        (second,) = await outbox_of.recorded(1)
        assert second.event.key == (2,)
        assert await outbox_of.recorded(9, since=second.at) == [second]
        assert await outbox_of.recorded(9, since=first.at) == [first, second]

        (mailer, release) = await outbox_of.states()
        assert (mailer.consumer, mailer.pending, mailer.retried, mailer.dead) == ("mailer", 2, 0, 0)
        assert set(mailer.subscriptions) == {
            Subscription(EVERY_TABLE),
            Subscription("documents", "expiring"),
        }
        assert mailer.lag >= HOUR + 1
        assert (release.consumer, release.pending, release.dead, release.lag) == (
            *("release", 0, 1),
            0.0,
        )
        (dead,) = await outbox_of.opened(9, dead=True)
        assert (dead.event.key, dead.event.delivery, dead.due_at) == ((1,), 1, None)
        assert dead.error == "RuntimeError: $no 1"
        assert [one.event.key for one in await outbox_of.opened(9, dead=False)] == [(1,), (2,)]
        assert len(await outbox_of.opened(9)) == 3
        assert len(await outbox_of.opened(1)) == 1
        assert await outbox_of.opened(9, consumer="release") == [dead]

        assert await outbox_of.retry("mailer") == 0
        assert await outbox_of.retry() == 1
        assert await worker.run_once() == Delivered(done=1)
        assert [event.delivery for event in handler.got] == [1, 1, 2]
        assert await outbox_of.skip() == 0
        assert await outbox_of.skip("mailer", [first.event.id, "unknown"]) == 1
        assert await read(place) == [2]
        await outbox_of.subscribe("audit", [Subscription(EVERY_TABLE)])
        assert await outbox_of.forget("audit") == 2
        assert [state.consumer for state in await outbox_of.states()] == ["mailer", "release"]


async def test_an_event_is_retried_before_it_is_due(mongodb_url: str, ttl_clock: TTLClock) -> None:
    model, handler = seat_hold(), Stubborn(1)
    on_expired(model, name="release")(handler)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, 1)
        worker = AsyncEventWorker(place.database, model)
        assert await worker.run_once() == Delivered(failed=1)
        outbox_of = CollectionOutbox(place.database)
        (state,) = await outbox_of.states()
        assert (state.pending, state.retried, state.dead) == (1, 1, 0)
        assert await outbox_of.retry(events=[handler.got[0].id]) == 1
        assert await worker.run_once() == Delivered(done=1)


async def test_a_worker_runs_until_it_is_stopped(
    mongodb_url: str, ttl_clock: TTLClock, caplog: pytest.LogCaptureFixture
) -> None:
    model = seat_hold()
    on_expired(model, name="release")(lambda _: worker.stop())
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, 1)
        worker = AsyncEventWorker(place.database, model, poll=0.01)
        outbox_of: Any = worker._outbox
        take, looks = outbox_of.take, []

        async def away_at_first(*asked: Any) -> Any:
            looks.append(asked)
            if len(looks) == 1:
                raise UnreachableStoreError("it restarts")
            return await take(*asked)

        outbox_of.take = away_at_first
        with caplog.at_level(logging.WARNING, "ttl_odm.events"):
            await worker.run_forever()
        assert "Events weren't delivered: it restarts" in caplog.text
        assert place.keys() == set()
        with pytest.raises(TTLConfigurationError, match="use AsyncEventWorker"):
            EventWorker(place.database, model)


async def test_a_database_that_isnt_gated_will_do(mongodb_url: str, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got = handled(model)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, 1)
        plain = place.database.client[place.database.name]
        assert (await AsyncEventWorker(plain).run_once()).done == 1
        assert [event.key async for event in events(plain, consumer="mailer")] == [(1,)]
    assert keys(got) == [1]


async def test_a_test_has_the_events_when_its_clock_moves(
    mongodb_url: str, ttl_clock: TTLClock, expired_events: ExpiredEvents
) -> None:
    model = seat_hold()
    got = handled(model)
    async with swept(mongodb_url, model) as place:
        expired_events.watch(place.database, model)
        await expire(place, ttl_clock, "A1", "A2")
        await expired_events.async_deliver()
        assert keys(expired_events) == ["A1", "A2"]
        assert sorted(event.id for event in expired_events) == sorted(event.id for event in got)
