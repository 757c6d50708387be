"""Events are delivered to each consumer at least once, until it has dealt with them."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from billiard.exceptions import SoftTimeLimitExceeded  # type: ignore[import-untyped]
from sqlalchemy import event as sqlalchemy_event
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.events.holds import HOUR, handled, kept, seat_hold, waiting
from tests.events.stubborn import Stubborn
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
from ttl_odm.events.handlers import rest_after
from ttl_odm.events.outbox import Subscription
from ttl_odm.events.sqlalchemy import event_tables
from ttl_odm.sweeper import Sweeper, TransientStoreError, UnreachableStoreError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.events.outbox import Delivery
    from ttl_odm.testing import TTLClock


def expire(engine: Engine, ttl_clock: TTLClock, model: Any, *seats: str) -> None:
    """Write rows, and let their time pass; the clock stops, or a rest could end too early."""
    ttl_clock.freeze()
    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all(model(seat=seat, person="ann") for seat in seats)
    ttl_clock.advance(HOUR)


def test_an_event_on_which_a_handler_raises_comes_again(
    engine: Engine, ttl_clock: TTLClock, caplog: pytest.LogCaptureFixture
) -> None:
    model, handler = seat_hold(), Stubborn(2)
    on_expired(model, name="release")(handler)
    others = handled(model, "tell")
    expire(engine, ttl_clock, model, "A1")
    worker = EventWorker(engine, model)
    with caplog.at_level(logging.WARNING, "ttl_odm.events"):
        assert worker.run_once() == Delivered(done=1, failed=1)
    assert "The handler release failed on the event" in caplog.text
    assert "RuntimeError: no 1; it will be delivered again" in caplog.text
    assert worker.run_once() == Delivered()
    ttl_clock.advance(1)
    assert worker.run_once() == Delivered(failed=1)
    ttl_clock.advance(1)
    assert worker.run_once() == Delivered()
    ttl_clock.advance(1)
    assert worker.run_once() == Delivered(done=1)
    assert [event.delivery for event in handler.got] == [1, 2, 3]
    assert len({event.id for event in handler.got}) == 1
    assert len(others) == 1
    assert waiting(engine, model) == 0


def test_a_worker_goes_on_where_others_took_some_of_what_it_found(
    engine: Engine, ttl_clock: TTLClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = seat_hold()
    got = handled(model)
    expire(engine, ttl_clock, model, *(f"A{number}" for number in range(9)))
    worker = EventWorker(engine, model)
    take = worker._outbox.take

    def take_one(consumer: str, _limit: int, hidden: timedelta) -> Sequence[Delivery]:
        return take(consumer, 1, hidden)

    monkeypatch.setattr(worker._outbox, "take", take_one)
    worker.run_once()
    assert len(got) == 9


def test_an_event_that_failed_too_often_is_dead(engine: Engine, ttl_clock: TTLClock) -> None:
    model, handler = seat_hold(), Stubborn(9)
    on_expired(model, name="release", attempts=2)(handler)
    expire(engine, ttl_clock, model, "A1")
    worker = EventWorker(engine, model)
    assert worker.run_once() == Delivered(failed=1)
    ttl_clock.advance(1)
    assert worker.run_once() == Delivered(dead=1)
    ttl_clock.advance(HOUR)
    assert worker.run_once() == Delivered()
    deliveries = event_tables(model.metadata).deliveries
    with engine.connect() as connection:
        row = connection.execute(select(deliveries)).one()
    assert (row.deliveries, row.next_at, row.error) == (2, None, "RuntimeError: no 2")


def test_the_time_limit_of_a_queue_ends_the_worker_and_the_event_comes_again(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    limit, got = SoftTimeLimitExceeded(), list[Expiry]()

    def release(event: Expiry) -> None:
        got.append(event)
        if len(got) == 2:
            raise RuntimeError from limit

    on_expired(model, name="release", attempts=1)(release)
    expire(engine, ttl_clock, model, "A1", "A2", "A3")
    with pytest.raises(SoftTimeLimitExceeded) as raised:
        EventWorker(engine, model).run_once()
    assert raised.value is limit
    assert len(got) == 2
    ttl_clock.advance(60)
    assert EventWorker(engine, model).run_once() == Delivered(done=2)
    assert len({event.id for event in got}) == 3


def test_rests_grow_to_an_hour() -> None:
    seconds = [rest_after(number).total_seconds() for number in (1, 2, 3, 12, 13, 10**9)]
    assert seconds == [1, 2, 4, 2048, HOUR, HOUR]


def test_an_event_whose_worker_died_comes_again(engine: Engine, ttl_clock: TTLClock) -> None:
    class PowerCutError(BaseException):
        pass

    model = seat_hold()
    got: list[Expiry] = []

    def release(event: Expiry) -> None:
        got.append(event)
        if len(got) == 1:
            raise PowerCutError

    on_expired(model, name="release")(release)
    expire(engine, ttl_clock, model, "A1")
    with pytest.raises(PowerCutError):
        EventWorker(engine, model).run_once()
    other = EventWorker(engine, model)
    ttl_clock.advance(30)
    assert other.run_once() == Delivered()
    ttl_clock.advance(30)
    assert other.run_once() == Delivered(done=1)
    assert [event.delivery for event in got] == [1, 2]


def test_a_worker_that_comes_back_late_doesnt_end_the_next_delivery(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    got: list[Expiry] = []
    expire(engine, ttl_clock, model)
    other: list[Delivery] = []

    def release(event: Expiry) -> None:
        got.append(event)
        if len(got) == 1:  # it takes longer than it may
            ttl_clock.advance(60)
            other.extend(outbox.take("release", 10, timedelta(seconds=60)))

    on_expired(model, name="release")(release)
    worker = EventWorker(engine, model)
    outbox = worker._outbox
    expire(engine, ttl_clock, model, "A1")
    assert worker.run_once() == Delivered(done=1)
    assert waiting(engine, model) == 1
    outbox.done(other)
    assert waiting(engine, model) == 0


def test_of_events_that_another_worker_has_just_taken_the_others_are_taken(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model, minute = seat_hold(), timedelta(seconds=60)
    handled(model)
    expire(engine, ttl_clock, model, *(f"A{number}" for number in range(5)))
    Sweeper(engine, model).run_once()
    outbox = EventWorker(engine, model)._outbox
    outbox.subscribe("release", [Subscription("seat_holds")])
    theirs: list[Delivery] = []
    interfered = threading.Event()

    def interfere(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE") and not interfered.is_set():
            interfered.set()
            theirs.extend(outbox.take("release", 3, minute))

    sqlalchemy_event.listen(engine, "before_cursor_execute", interfere)
    ours = outbox.take("release", 5, minute)
    sqlalchemy_event.remove(engine, "before_cursor_execute", interfere)
    assert (len(ours), len(theirs)) == (2, 3)
    assert {one.event.delivery for one in [*ours, *theirs]} == {1}
    assert len({one.event.id for one in [*ours, *theirs]}) == 5
    assert outbox.take("release", 5, minute) == []
    outbox.done([*ours, *theirs])
    assert waiting(engine, model) == 0


@pytest.mark.slow
def test_of_many_workers_one_gets_an_event(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got = handled(model)
    seats = [f"A{number}" for number in range(30)]
    expire(engine, ttl_clock, model, *seats)
    workers = [EventWorker(engine, model) for _ in range(3)]
    workers[0]._sweeping.run_once()  # so that all have something to do at once

    def work(worker: EventWorker) -> None:
        with suppress(TransientStoreError):  # SQLite has one writer at a time
            worker.run_once()

    threads = [threading.Thread(target=work, args=[worker]) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    EventWorker(engine, model).run_once()
    assert sorted(event.key for event in got) == sorted((seat,) for seat in seats)
    assert {event.delivery for event in got} == {1}


@pytest.mark.parametrize("poll", [0.01, HOUR])  # what a sweep has recorded waits for no look
def test_run_forever_records_and_delivers_until_it_is_stopped(
    engine: Engine, ttl_clock: TTLClock, poll: float
) -> None:
    model = seat_hold()
    seen = threading.Event()
    on_expired(model, name="release")(lambda _: seen.set())
    expire(engine, ttl_clock, model, "A1")
    worker = EventWorker(engine, model, poll=poll)
    thread = threading.Thread(target=worker.run_forever)
    thread.start()
    try:
        assert seen.wait(60)
    finally:
        worker.stop()
        thread.join()
    assert kept(engine, model) == 0


def test_a_worker_tries_again_when_the_database_was_away(
    engine: Engine,
    ttl_clock: TTLClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = seat_hold()
    on_expired(model, name="release")(lambda _: worker.stop())
    expire(engine, ttl_clock, model, "A1")
    worker = EventWorker(engine, model, poll=0.01)
    outbox: Any = worker._outbox
    take, looks = outbox.take, []

    def away_at_first(consumer: str, *more: Any) -> Any:
        looks.append(consumer)
        if len(looks) == 1:
            raise UnreachableStoreError("it restarts")
        return take(consumer, *more)

    monkeypatch.setattr(outbox, "take", away_at_first)
    with caplog.at_level(logging.WARNING, "ttl_odm.events"):
        worker.run_forever()
    assert "Events weren't delivered: it restarts" in caplog.text
    assert kept(engine, model) == 0


@pytest.mark.slow
def test_a_handler_gets_more_events_at_once_while_it_is_fast(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    got = handled(model)
    expire(engine, ttl_clock, model, *(f"A{number}" for number in range(150)))
    worker = EventWorker(engine, model)
    done = worker.run_once().done
    while more := worker.run_once().done:
        done += more
    assert done == len({event.id for event in got}) == len(got) == 150


def test_what_is_taken_but_not_begun_in_time_comes_again(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    got = handled(model)
    expire(engine, ttl_clock, model, "A1", "A2")
    worker = EventWorker(engine, model, hidden=1e-9)
    assert worker.run_once() == Delivered()  # its half is over before the first
    assert EventWorker(engine, model).run_once() == Delivered(done=2)
    assert all(event.delivery > 1 for event in got)


def test_a_handler_by_the_name_of_a_table_gets_what_others_record(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model, unrelated = seat_hold(), seat_hold()
    record_expired(model)
    got = handled("seat_holds")
    expire(engine, ttl_clock, model, "A1")
    assert EventWorker(engine, model).run_once().done == 1
    assert [event.key for event in got] == [("A1",)]
    assert unrelated is not model


def test_a_reader_deals_with_an_event_when_it_asks_for_the_next(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    record_expired(model)
    expire(engine, ttl_clock, model, "A1", "A2", "A3")
    EventWorker(engine, model).run_once()
    read = []
    for event in events(engine, model, consumer="mailer"):
        read.append(event)
        if len(read) == 2:
            break  # in the middle of the second
    rest = events(engine, model, consumer="mailer")
    read += rest
    assert len({event.id for event in read}) == 3
    assert len(read) == 3
    assert list(rest) == []
    ttl_clock.advance(60)
    assert [event.id for event in rest] == [read[1].id]
    ttl_clock.advance(60)
    assert list(rest) == []


@pytest.mark.slow
def test_consumers_dont_share_their_events(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got = handled(model)
    expire(engine, ttl_clock, model, "A1")
    worker = EventWorker(engine, model)
    worker.run_once()
    assert [event.key for event in events(engine, consumer="mailer")] == [("A1",)]
    expire(engine, ttl_clock, model, "A2")
    worker.run_once()
    assert [event.key for event in events(engine, consumer="mailer")] == [("A2",)]
    assert [event.key for event in events(engine, consumer="late")] == [("A1",), ("A2",)]
    assert len(got) == 2


@pytest.mark.slow
def test_models_of_several_metadatas_share_the_outbox_of_a_schema(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model, other, elsewhere = seat_hold(), seat_hold(table="other_holds"), seat_hold()
    event_tables(elsewhere.metadata, schema="ops")
    got = handled(model)
    for one in (other, elsewhere):
        record_expired(one)
    for one in (other, model):
        expire(engine, ttl_clock, one, "A1")
    assert EventWorker(engine, [model, other]).run_once().done == 1
    assert [event.table for event in got] == ["seat_holds"]
    tables = [event.table for event in events(engine, [model, other], consumer="mailer")]
    assert sorted(tables) == ["other_holds", "seat_holds"]
    with pytest.raises(TTLConfigurationError, match=r"several schemas \(None, ops\)"):
        EventWorker(engine, [model, elsewhere])


@pytest.mark.slow
def test_a_reader_may_wait_for_what_comes(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    record_expired(model)
    expire(engine, ttl_clock, model, "A1")
    worker = EventWorker(engine, model)
    worker.run_once()
    reader = iter(events(engine, consumer="mailer", follow=True, poll=0.01))
    assert next(reader).key == ("A1",)
    expire(engine, ttl_clock, model, "A2")
    worker.run_once()
    assert next(reader).key == ("A2",)


def test_a_coroutine_needs_an_asynchronous_worker(engine: Engine) -> None:
    async def release(event: Expiry) -> None:
        pass

    model = seat_hold()
    on_expired(model, name="release")(release)
    with pytest.raises(TTLConfigurationError, match="needs an AsyncEventWorker"):
        EventWorker(engine, model)
    with pytest.raises(TTLConfigurationError, match="use EventWorker"):
        AsyncEventWorker(engine, model)


@pytest.mark.slow
async def test_an_asynchronous_worker(async_engine: AsyncEngine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    got: list[Expiry] = []

    async def release(event: Expiry) -> None:
        async with async_engine.connect() as connection:
            await connection.scalar(select(1))
        got.append(event)
        if len(got) == 1:
            raise RuntimeError

    on_expired(model, name="release")(release)
    plain = handled(model, "tell")
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.execute(
            model.__table__.insert(), [{"seat": seat, "person": "ann"} for seat in ("A1", "A2")]
        )
    ttl_clock.advance(HOUR)
    worker = AsyncEventWorker(async_engine, model)
    with pytest.raises(TTLConfigurationError, match="use AsyncEventWorker"):
        EventWorker(async_engine, model)
    assert await worker.run_once() == Delivered(done=3, failed=1)
    ttl_clock.advance(1)
    assert await worker.run_once() == Delivered(done=1)
    assert len(plain) == 2
    read = [event.key async for event in events(async_engine, consumer="mailer")]
    assert sorted(read) == [("A1",), ("A2",)]
    with pytest.raises(TTLConfigurationError, match="write 'async for'"):
        list(events(async_engine, consumer="mailer"))


@pytest.mark.slow
@pytest.mark.parametrize("poll", [0.01, HOUR])
async def test_an_asynchronous_worker_runs_until_it_is_stopped(
    async_engine: AsyncEngine, ttl_clock: TTLClock, poll: float
) -> None:
    model = seat_hold()
    async with async_engine.begin() as connection:
        record_expired(model)
        await connection.run_sync(model.metadata.create_all)
        await connection.execute(model.__table__.insert(), [{"seat": "A1", "person": "ann"}])
    ttl_clock.advance(HOUR)
    on_expired(model, name="release")(lambda _: worker.stop())
    worker = AsyncEventWorker(async_engine, model, poll=poll)
    await worker.run_forever()
    assert [event.key async for event in events(async_engine, consumer="x")] == [("A1",)]
