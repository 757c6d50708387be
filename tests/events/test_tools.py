"""What tools ask of an outbox: the state of consumers, events, and another try for dead ones."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert

from tests.events.holds import HOUR, handled, seat_hold
from tests.events.outboxes import Refuses, died, expire
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events import AsyncEventWorker, EventWorker, events, on_expired
from ttl_odm.events.outbox import ConsumerState, Subscription
from ttl_odm.events.sqlalchemy import read_from

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.events.outbox import AsyncOutbox, OpenDelivery, Outbox
    from ttl_odm.testing import TTLClock

HOLDS = (Subscription("seat_holds"),)


def outbox_of(engine: Any) -> Any:
    """The outbox, as a tool finds it: by the engine alone."""
    return read_from(engine, None).outbox()


def seats_of(opened: list[OpenDelivery]) -> list[tuple[str, str]]:
    return sorted((one.consumer, one.event.key[0]) for one in opened)


def test_states_count_what_each_consumer_hasnt_dealt_with(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    on_expired(model, name="release")(Refuses("A1"))
    on_expired(model, name="charge", attempts=1)(Refuses("A1", "A2"))
    handled(model, "tell")
    expire(engine, ttl_clock, model, "A1", "A2", "A3")
    worker = EventWorker(engine, model)
    outbox: Outbox = outbox_of(engine)
    assert outbox.states() == []
    worker.run_once()
    outbox.subscribe("mailer", [Subscription("*", "expiring", timedelta(days=7))])
    ttl_clock.advance(90)
    charge, mailer, release, tell = outbox.states()
    assert charge == ConsumerState("charge", HOLDS, 0, 0, 2, 0.0)
    every = (Subscription("*", "expiring", timedelta(days=7)),)
    assert mailer == ConsumerState("mailer", every, 0, 0, 0, 0.0)
    assert tell == ConsumerState("tell", HOLDS, 0, 0, 0, 0.0)
    assert (release.pending, release.retried, release.dead) == (1, 1, 0)
    assert 90 <= release.lag < 90 + HOUR


def test_a_consumer_that_never_subscribed_has_a_state_if_it_has_events(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    handled(model)
    expire(engine, ttl_clock, model, "A1")
    EventWorker(engine, model)._sweeping.run_once()
    (state,) = outbox_of(engine).states()
    assert (state.consumer, state.subscriptions, state.pending) == ("release", (), 1)


@pytest.mark.slow
def test_recorded_returns_the_latest_the_oldest_first(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    handled(model)
    worker = EventWorker(engine, model)
    for seat in ("A1", "A2", "A3"):
        expire(engine, ttl_clock, model, seat)
        worker.run_once()
    outbox: Outbox = outbox_of(engine)
    first, second, third = outbox.recorded(10)
    assert [one.event.key[0] for one in (first, second, third)] == ["A1", "A2", "A3"]
    assert first.at + timedelta(seconds=HOUR) <= second.at
    assert second.at.tzinfo is not None
    assert outbox.recorded(2) == [second, third]
    assert outbox.recorded(10, since=second.at) == [second, third]
    assert outbox.recorded(1, since=second.at) == [third]
    assert outbox.recorded(10, since=third.at + timedelta(seconds=1)) == []
    assert outbox.recorded(10, since=datetime(2000, 1, 1, tzinfo=timezone.utc))[0] == first


def test_opened_shows_what_is_left(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    on_expired(model, name="release")(Refuses("A1"))
    on_expired(model, name="charge", attempts=1)(Refuses("A1", "A2"))
    expire(engine, ttl_clock, model, "A1", "A2")
    EventWorker(engine, model).run_once()
    outbox: Outbox = outbox_of(engine)
    every = list(outbox.opened(10))
    assert seats_of(every) == [("charge", "A1"), ("charge", "A2"), ("release", "A1")]
    assert seats_of(list(outbox.opened(10, consumer="charge"))) == seats_of(every)[:2]
    assert seats_of(list(outbox.opened(10, dead=True))) == seats_of(every)[:2]
    (resting,) = outbox.opened(10, dead=False)
    assert (resting.consumer, resting.event.delivery) == ("release", 1)
    assert resting.error == "RuntimeError: not A1"
    assert resting.due_at is not None
    assert outbox.opened(10, consumer="release", dead=True) == []
    assert outbox.opened(2) == every[:2]
    assert outbox.opened(10, consumer="charge", dead=True)[0].due_at is None


def test_retry_lets_the_dead_be_delivered_again(engine: Engine, ttl_clock: TTLClock) -> None:
    worker, handler = died(engine, ttl_clock, "A1", "A2")
    outbox: Outbox = outbox_of(engine)
    handler.seats = ()
    assert worker.run_once().total == 0
    assert outbox.retry() == 2
    assert outbox.retry() == 0
    assert worker.run_once().done == 2
    again = [event.delivery for event in handler.got if event.key[0] in ("A1", "A2")]
    assert sorted(again) == [1, 1, 2, 2]
    assert outbox.opened(10) == []


@pytest.mark.slow
def test_retry_and_skip_may_name_events_and_a_consumer(engine: Engine, ttl_clock: TTLClock) -> None:
    worker, handler = died(engine, ttl_clock, "A1", "A2")
    outbox: Outbox = outbox_of(engine)
    first, second = (one.event.id for one in outbox.opened(10))
    assert outbox.retry(events=[]) == 0
    assert outbox.retry(events=["unknown"]) == 0
    assert outbox.skip("nobody", [first]) == 0
    assert outbox.retry("nobody") == 0
    assert outbox.skip("release", [first, "unknown", first]) == 1
    assert outbox.retry("release", [first, second]) == 1
    handler.seats = ()
    assert worker.run_once().done == 1
    assert handler.got[-1].id == second
    assert outbox.opened(10) == []
    assert len(outbox.recorded(10)) == 3


def test_skip_without_ids_is_for_the_dead_alone(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    on_expired(model, name="release")(Refuses("A1"))
    on_expired(model, name="charge", attempts=1)(Refuses("A1", "A2"))
    on_expired(model, name="tell", attempts=1)(Refuses("A1"))
    expire(engine, ttl_clock, model, "A1", "A2")
    EventWorker(engine, model).run_once()
    outbox: Outbox = outbox_of(engine)
    assert outbox.skip("charge") == 2
    assert seats_of(list(outbox.opened(10))) == [("release", "A1"), ("tell", "A1")]
    assert outbox.skip() == 1
    assert seats_of(list(outbox.opened(10))) == [("release", "A1")]


def test_a_consumer_that_is_forgotten_gets_nothing_until_it_comes_back(
    engine: Engine, ttl_clock: TTLClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttl_odm.events.sqlalchemy.outbox.CHUNK", 2)  # less than there is
    model = seat_hold()
    handled(model)
    outbox: Outbox = outbox_of(engine)
    expire(engine, ttl_clock, model, "A1", "A2", "A3")
    worker = EventWorker(engine, model)
    outbox.subscribe("mailer", HOLDS)
    outbox.subscribe("audit", HOLDS)
    assert worker.run_once().done == 3
    assert outbox.forget("nobody") == 0
    assert outbox.forget("mailer") == 3
    assert [state.consumer for state in outbox.states()] == ["audit", "release"]
    expire(engine, ttl_clock, model, "B1")
    worker.run_once()
    assert {one.consumer for one in outbox.opened(10)} == {"audit"}
    assert outbox.forget("audit") == 4
    outbox.subscribe("mailer", HOLDS)
    assert [state.pending for state in outbox.states()] == [4, 0]


def test_events_that_are_named_neednt_rest_any_longer(engine: Engine, ttl_clock: TTLClock) -> None:
    model, handler = seat_hold(), Refuses("A1")
    on_expired(model, name="release")(handler)
    expire(engine, ttl_clock, model, "A1")
    ttl_clock.freeze()
    worker = EventWorker(engine, model)
    assert worker.run_once().failed == 1
    assert worker.run_once().total == 0
    outbox: Outbox = outbox_of(engine)
    (resting,) = outbox.opened(10)
    assert outbox.retry() == 0  # it isn't dead
    assert outbox.retry(events=[resting.event.id]) == 1
    assert worker.run_once().failed == 1
    assert [event.delivery for event in handler.got] == [1, 2]


def test_retry_doesnt_put_an_event_that_is_due_behind_others(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    handled(model)
    expire(engine, ttl_clock, model, "A1")
    EventWorker(engine, model)._sweeping.run_once()
    outbox: Outbox = outbox_of(engine)
    (before,) = outbox.opened(10)
    ttl_clock.advance(10)
    assert outbox.retry(events=[before.event.id]) == 1
    assert outbox.opened(10) == [before]


def test_more_ids_than_a_statement_takes(engine: Engine, ttl_clock: TTLClock) -> None:
    _, handler = died(engine, ttl_clock, "A1", "A2", "A3")
    outbox: Outbox = outbox_of(engine)
    unknown = [f"{number:032}" for number in range(1200)]
    ids = [*unknown, *(event.id for event in handler.got)]
    assert outbox.retry(events=ids) == 3
    assert outbox.skip(events=ids) == 3


def test_expired_events_are_no_longer_there(engine: Engine, ttl_clock: TTLClock) -> None:
    died(engine, ttl_clock, "A1")
    ttl_clock.advance(7 * 24 * HOUR)
    outbox: Outbox = outbox_of(engine)
    assert outbox.recorded(10) == []
    assert outbox.opened(10) == []
    assert outbox.states() == [ConsumerState("release", HOLDS, 0, 0, 0, 0.0)]
    assert outbox.retry() == 0
    assert outbox.skip() == 0


def test_missing_tables_are_named(engine: Engine) -> None:
    for ask in ("states", "retry", "skip"):
        with pytest.raises(TTLConfigurationError, match="lacks one of the tables ttl_odm_events"):
            getattr(outbox_of(engine), ask)()
    with pytest.raises(TTLConfigurationError, match="lacks one of the tables ttl_odm_events"):
        outbox_of(engine).forget("mailer")
    for ask in ("recorded", "opened"):
        with pytest.raises(TTLConfigurationError, match="lacks one of the tables ttl_odm_events"):
            getattr(outbox_of(engine), ask)(1)


@pytest.mark.slow
async def test_an_asynchronous_outbox(async_engine: AsyncEngine, ttl_clock: TTLClock) -> None:
    model, handler = seat_hold(), Refuses("A1", "A2")
    on_expired(model, name="release", attempts=1)(handler)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        rows = [{"seat": seat, "person": "ann"} for seat in ("A1", "A2", "A3")]
        await connection.execute(insert(model), rows)
    ttl_clock.advance(HOUR)
    worker = AsyncEventWorker(async_engine, model)
    assert (await worker.run_once()).dead == 2
    outbox: AsyncOutbox = outbox_of(async_engine)
    assert await outbox.states() == [ConsumerState("release", HOLDS, 0, 0, 2, 0.0)]
    assert len(await outbox.recorded(10)) == 3
    assert await outbox.recorded(10, since=datetime(2000, 1, 1, tzinfo=timezone.utc))
    first, second = await outbox.opened(10, consumer="release", dead=True)
    assert await outbox.skip("release", [first.event.id]) == 1
    assert await outbox.retry() == 1
    handler.seats = ()
    assert (await worker.run_once()).done == 1
    assert handler.got[-1].id == second.event.id
    assert [event async for event in events(async_engine, consumer="mailer")]
    await outbox.subscribe("audit", HOLDS)
    assert await outbox.forget("audit") == 3
    assert [state.consumer for state in await outbox.states()] == ["mailer", "release"]
