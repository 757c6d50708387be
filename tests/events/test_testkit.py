"""The fixture `expired_events`: a move of the test's clock records and delivers events."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from tests.events.holds import HOUR, handled, kept, seat_hold
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.events import Expiry, on_expired, record_expired
from ttl_odm.events.sqlalchemy import event_tables
from ttl_odm.testing import empty

if TYPE_CHECKING:
    from typing import Any

    from sqlalchemy import Engine

    from ttl_odm.testing import ExpiredEvents, TTLClock


def hold(engine: Engine, model: Any, *seats: str, ttl: int | None = None) -> None:
    """Write rows."""
    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all(model(seat=seat, person="ann", ttl=ttl) for seat in seats)


def keys(events: ExpiredEvents) -> list[tuple[Any, ...]]:
    """The keys of the rows of events."""
    return [event.key for event in events]


def test_a_move_of_the_clock_sweeps_and_delivers(
    engine: Engine, ttl_clock: TTLClock, expired_events: ExpiredEvents
) -> None:
    model = seat_hold()
    got = handled(model)
    expired_events.watch(engine, model)
    hold(engine, model, "A1")
    ttl_clock.advance(HOUR - 60)
    assert expired_events == []
    assert kept(engine, model) == 1
    ttl_clock.advance(60)
    assert keys(expired_events) == [("A1",)]
    assert kept(engine, model) == 0
    assert expired_events == got
    assert expired_events[0].delivery == 1
    assert len(expired_events) == 1


def test_a_model_needs_no_handler(
    engine: Engine, ttl_clock: TTLClock, expired_events: ExpiredEvents
) -> None:
    model = seat_hold()
    record_expired(model, include=["person"])
    expired_events.watch(engine, model)
    hold(engine, model, "A1")
    ttl_clock.advance(HOUR)
    (event,) = expired_events
    assert event.row["person"] == "ann"


def test_freezing_the_clock_delivers_too(
    engine: Engine, ttl_clock: TTLClock, expired_events: ExpiredEvents
) -> None:
    model = seat_hold()
    handled(model)
    expired_events.watch(engine, model)
    model.metadata.create_all(engine)
    ttl_clock.freeze()
    hold(engine, model, "A1")
    assert ttl_clock.frozen_at is not None
    end = ttl_clock.frozen_at + timedelta(hours=1)
    ttl_clock.freeze(end - timedelta(milliseconds=1))
    assert expired_events == []
    ttl_clock.freeze(end)
    assert [event.expires_at for event in expired_events] == [end]


def test_events_are_in_the_order_in_which_their_rows_expired(
    engine: Engine, ttl_clock: TTLClock, expired_events: ExpiredEvents
) -> None:
    model = seat_hold()
    handled(model)
    expired_events.watch(engine, model)
    for number in (3, 1, 2):
        hold(engine, model, f"A{number}", ttl=number)
    ttl_clock.advance(HOUR)
    assert keys(expired_events) == [("A1",), ("A2",), ("A3",)]


@pytest.mark.slow
def test_all_that_is_due_is_delivered_however_much_it_is(
    engine: Engine, ttl_clock: TTLClock, expired_events: ExpiredEvents
) -> None:
    model = seat_hold()
    got = handled(model)
    expired_events.watch(engine, model)
    hold(engine, model, *(f"A{number}" for number in range(250)))
    ttl_clock.advance(HOUR)
    assert len(expired_events) == len(got) == 250
    assert len({event.id for event in expired_events}) == 250


def test_rows_that_are_written_in_the_past_have_events_when_they_are_asked_for(
    engine: Engine, ttl_clock: TTLClock, expired_events: ExpiredEvents
) -> None:
    model = seat_hold()
    handled(model)
    expired_events.watch(engine, model)
    with ttl_clock.expiring(model, -300):
        hold(engine, model, "A1")
    with ttl_clock.expiring(model, 2 * HOUR):
        hold(engine, model, "A2")
    assert expired_events == []
    expired_events.deliver()
    assert keys(expired_events) == [("A1",)]


def test_a_row_whose_key_is_taken_has_its_event_with_the_next_move(
    engine: Engine, ttl_clock: TTLClock, expired_events: ExpiredEvents
) -> None:
    model = seat_hold()
    handled(model)
    hold(engine, model, "A1")
    ttl_clock.advance(HOUR)
    hold(engine, model, "A1")
    expired_events.watch(engine, model)
    ttl_clock.advance(1)
    assert keys(expired_events) == [("A1",)]
    ttl_clock.advance(HOUR)
    assert keys(expired_events) == [("A1",), ("A1",)]


def test_the_move_raises_what_a_handler_raises_and_the_event_comes_again(
    engine: Engine, ttl_clock: TTLClock, expired_events: ExpiredEvents
) -> None:
    model = seat_hold()
    calls: list[Expiry] = []

    @on_expired(model, name="release")
    def release(event: Expiry) -> None:
        calls.append(event)
        if len(calls) == 1:
            raise RuntimeError("the till is closed")

    others = handled(model, "tell")
    expired_events.watch(engine, model)
    hold(engine, model, "A1")
    with pytest.raises(RuntimeError, match="the till is closed"):
        ttl_clock.advance(HOUR)
    assert keys(expired_events) == [("A1",)]
    assert len(others) == 1
    ttl_clock.advance(2)
    assert [event.delivery for event in calls] == [1, 2]
    assert keys(expired_events) == [("A1",)]


def test_events_can_be_forgotten(
    engine: Engine, ttl_clock: TTLClock, expired_events: ExpiredEvents
) -> None:
    model = seat_hold()
    handled(model)
    expired_events.watch(engine, model)
    hold(engine, model, "A1", ttl=1)
    hold(engine, model, "A2")
    ttl_clock.advance(1)
    expired_events.clear()
    ttl_clock.advance(HOUR)
    assert keys(expired_events) == [("A2",)]


def test_a_database_that_was_emptied_has_nothing_left_for_the_next_test(
    engine: Engine, ttl_clock: TTLClock, expired_events: ExpiredEvents
) -> None:
    model = seat_hold()
    handled(model)
    hold(engine, model, "A1")
    expired_events.watch(engine, model)
    ttl_clock.advance(HOUR)
    empty(model.metadata, session=engine)
    for table in event_tables(model.metadata):
        with engine.connect() as connection:
            assert connection.scalar(select(func.count()).select_from(table)) == 0
    expired_events.clear()
    ttl_clock.advance(HOUR)
    assert expired_events == []


def test_an_engine_whose_models_have_no_events_is_rejected(
    engine: Engine, expired_events: ExpiredEvents
) -> None:
    with pytest.raises(TTLConfigurationError, match="No model here has events"):
        expired_events.watch(engine, seat_hold())


async def test_with_an_asynchronous_engine_delivering_is_awaited(
    ttl_clock: TTLClock, expired_events: ExpiredEvents
) -> None:
    model = seat_hold()
    got: list[Expiry] = []

    @on_expired(model, name="release")
    async def release(event: Expiry) -> None:
        got.append(event)

    engine = create_async_engine("sqlite+aiosqlite://", poolclass=StaticPool)
    expired_events.watch(engine, model)
    async with engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
    async with AsyncSession(engine) as session:
        session.add(model(seat="A1", person="ann"))
        await session.commit()
    ttl_clock.advance(HOUR)
    with pytest.raises(TTLError, match=r"await expired_events\.async_deliver"):
        len(expired_events)
    await expired_events.async_deliver()
    assert keys(expired_events) == [("A1",)]
    assert expired_events == got
    await engine.dispose()
