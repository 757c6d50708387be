"""Consumers that are new: which events come late for them, and what is kept of those done."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event, func, insert, select, text
from sqlalchemy.orm import Session

from tests.events.holds import HOUR, handled, seat_hold, waiting
from ttl_odm.events import EventWorker, events, record_expired
from ttl_odm.events import intervals as module
from ttl_odm.events.intervals import SETTLING, Resubscription
from ttl_odm.events.outbox import Subscription
from ttl_odm.events.sqlalchemy import event_tables, read_from
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine

    from ttl_odm.events.outbox import Outbox
    from ttl_odm.testing import TTLClock

HOLDS = [Subscription("seat_holds")]
MINUTE = timedelta(minutes=1)


def expired(engine: Engine, ttl_clock: TTLClock, model: Any, *seats: str) -> None:
    """Write rows, let their time pass, and have their events recorded."""
    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all(model(seat=seat, person="ann") for seat in seats)
    ttl_clock.advance(HOUR)
    assert Sweeper(engine, model).run_once().deleted == len(seats)


def outbox_of(engine: Engine) -> Outbox:
    outbox: Outbox = read_from(engine, None).outbox()
    return outbox


def kept(engine: Engine, model: Any) -> int:
    """How many deliveries there are, done or not."""
    deliveries = event_tables(model.metadata).deliveries
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(deliveries)) or 0


def test_consumers_subscribe_again_until_all_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    subscribing = Resubscription()
    assert subscribing.is_due
    subscribing.begin()
    now[0] += 1
    subscribing.end(is_unsettled=True)
    now[0] += 9
    assert not subscribing.is_due
    now[0] += 1
    assert subscribing.is_due
    subscribing.begin()
    subscribing.end(is_unsettled=True)
    assert not subscribing.is_due
    now[0] += 1
    assert subscribing.is_due
    subscribing.begin()
    subscribing.end(is_unsettled=False)
    now[0] += 10**9
    assert not subscribing.is_due


def test_a_worker_subscribes_again_while_a_consumer_is_unsettled(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    handled(model)
    model.metadata.create_all(engine)
    worker = EventWorker(engine, model)
    worker.run_once()
    assert worker._resubscription.due_at < float("inf")
    ttl_clock.advance(2 * SETTLING)
    worker._resubscription.due_at = 0.0
    worker._delivered()
    assert worker._resubscription.due_at == float("inf")


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_write_with_an_older_snapshot_has_an_event_for_a_consumer_that_is_new(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    record_expired(model)
    expired(engine, ttl_clock, model, "A1")
    with Session(engine) as session, session.begin():
        session.add(model(seat="A2", person="ann"))
    ttl_clock.advance(HOUR)
    consumers = event_tables(model.metadata).consumers
    repeatable = engine.execution_options(isolation_level="REPEATABLE READ")
    with Session(repeatable) as session, session.begin():
        assert session.scalars(select(consumers.c.consumer)).all() == []  # the snapshot
        assert [event.key for event in events(engine, consumer="audit")] == [("A1",)]
        session.add(model(seat="A2", person="bob"))
    assert [event.key for event in events(engine, consumer="audit")] == [("A2",)]
    ttl_clock.advance(2 * SETTLING)
    assert list(events(engine, consumer="audit")) == []


@pytest.mark.slow
def test_what_is_done_is_kept_while_the_consumer_is_unsettled_and_shown_to_nobody(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    record_expired(model)
    expired(engine, ttl_clock, model, "A1", "A2")
    outbox = outbox_of(engine)
    assert outbox.subscribe("audit", HOLDS)
    outbox_of(engine).done(outbox_of(engine).take("audit", 9, MINUTE))  # any process
    assert kept(engine, model) == 2
    assert waiting(engine, model) == 0
    assert outbox.opened(9) == []
    (state,) = outbox.states()
    assert (state.pending, state.dead) == (0, 0)
    ids = [one.event.id for one in outbox.recorded(9)]
    assert outbox.retry(events=ids) == outbox.retry() == outbox.skip(events=ids) == 0
    assert outbox.subscribe("audit", HOLDS)
    assert outbox.take("audit", 9, MINUTE) == []


@pytest.mark.slow
def test_what_is_done_is_deleted_once_it_is_settled(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    record_expired(model)
    model.metadata.create_all(engine)
    outbox = outbox_of(engine)
    assert outbox.subscribe("audit", HOLDS)
    assert outbox.subscribe("audit", HOLDS)
    ttl_clock.advance(2 * SETTLING)
    assert not outbox.subscribe("audit", HOLDS)
    assert not outbox.subscribe("audit", HOLDS)
    expired(engine, ttl_clock, model, "A1")
    outbox.done(outbox.take("audit", 9, MINUTE))
    assert kept(engine, model) == 0


@pytest.fixture
def explained(engine: Engine) -> Iterator[list[str]]:
    """The plans by which PostgreSQL looks for events that a consumer doesn't have."""
    plans: list[str] = []

    def explain(connection: Connection, _: Any, statement: str, values: Any, *__: Any) -> None:
        if "NOT (EXISTS" in statement and "EXPLAIN" not in statement:
            lines = connection.exec_driver_sql(f"EXPLAIN {statement}", values).scalars()
            plans.append("\n".join(lines))

    event.listen(engine, "before_cursor_execute", explain)
    yield plans
    event.remove(engine, "before_cursor_execute", explain)


@pytest.mark.databases("postgres")
def test_postgresql_finds_late_events_before_it_knows_how_many_there_are(
    engine: Engine, explained: list[str]
) -> None:
    """Each by its key, rather than by all deliveries of the consumer, of which it expects one."""
    model = seat_hold()
    record_expired(model)
    model.metadata.create_all(engine)
    outbox, tables = outbox_of(engine), event_tables(model.metadata)
    outbox.subscribe("audit", HOLDS)
    now = datetime.now(timezone.utc)
    common = {"recorded_at": now, "kept_until": now + timedelta(hours=1)}
    texts = {"table_name": "seat_holds", "kind": "expired", "row_key": "[]", "row_values": "{}"}
    ids = [f"{number:032}" for number in range(1_000)]
    with engine.begin() as connection:
        rows = [{**common, **texts, "id": one, "expires_at": now} for one in ids]
        connection.execute(insert(tables.events), rows)
        deliveries = [{**common, "event": one, "consumer": "audit", "deliveries": 1} for one in ids]
        connection.execute(insert(tables.deliveries), deliveries)
    outbox.subscribe("audit", HOLDS)
    assert explained
    assert [plan for plan in explained if "ix_ttl_odm_deliveries_next_at" in plan] == []


@pytest.mark.databases("postgres")
def test_no_plan_is_kept_from_when_there_were_few_events(engine: Engine) -> None:
    """Drivers prepare a statement that they have sent some times, and PostgreSQL then its plan."""
    engine = create_engine(engine.url, pool_size=1)
    model = seat_hold()
    record_expired(model)
    model.metadata.create_all(engine)
    outbox = outbox_of(engine)
    for _ in range(15):
        outbox.subscribe("audit", HOLDS)
    prepared = "FROM pg_prepared_statements WHERE statement LIKE '%NOT (EXISTS%'"
    with engine.connect() as connection:
        plans = connection.execute(text(f"SELECT custom_plans > 5, generic_plans {prepared}"))
        assert [*plans] in ([], [(True, 0)])
        assert connection.scalar(text("SHOW plan_cache_mode")) == "auto"
    engine.dispose()


@pytest.mark.slow
def test_of_an_old_event_nothing_is_kept(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    record_expired(model)
    expired(engine, ttl_clock, model, "A1")
    ttl_clock.advance(2 * SETTLING)
    outbox = outbox_of(engine)
    outbox.subscribe("audit", HOLDS)
    outbox.done(outbox.take("audit", 9, MINUTE))
    assert kept(engine, model) == 0
    outbox.subscribe("audit", HOLDS)
    assert outbox.take("audit", 9, MINUTE) == []


@pytest.mark.slow
def test_an_event_that_is_skipped_doesnt_come_back(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    record_expired(model)
    expired(engine, ttl_clock, model, "A1", "A2")
    outbox = outbox_of(engine)
    outbox.subscribe("audit", HOLDS)
    first, second = outbox.take("audit", 9, MINUTE)
    assert outbox.skip("audit", [first.event.id, second.event.id]) == 2
    outbox.failed(first, "too late", MINUTE)
    outbox.failed(second, "too late", None)
    outbox.subscribe("audit", HOLDS)
    ttl_clock.advance(HOUR)
    assert outbox.take("audit", 9, MINUTE) == []
    assert waiting(engine, model) == 0
