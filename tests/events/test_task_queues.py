"""Handlers that enqueue a task: an event comes out of Celery and Procrastinate as it went in."""

from __future__ import annotations

import logging
import queue
from typing import TYPE_CHECKING, Any

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from procrastinate import App
from procrastinate.testing import InMemoryConnector
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from tests.events.holds import HOUR, handled, seat_hold
from tests.guard import GUARD
from ttl_odm.events import AsyncEventWorker, Delivered, EventWorker, Expiry, on_expired

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from ttl_odm.testing import TTLClock


@pytest.fixture
def celery() -> Iterator[Celery]:
    app = Celery("shop", set_as_current=False)
    app.conf.update(
        broker_url="memory://",
        broker_transport_options={"polling_interval": 0.05},
        result_backend="cache+memory://",
        broker_connection_retry_on_startup=True,
        worker_hijack_root_logger=False,
    )
    level = logging.getLogger().level
    yield app
    logging.getLogger().setLevel(level)  # a worker raises it, for all tests that come after
    app.close()


@pytest.mark.slow
def test_a_task_of_celery_gets_the_event(
    engine: Engine, ttl_clock: TTLClock, celery: Celery
) -> None:
    model, freed = seat_hold(), queue.Queue[Expiry]()
    got = handled(model, "in process")

    @celery.task(shared=False)  # type: ignore[untyped-decorator]
    def free_seat(values: dict[str, Any]) -> None:
        freed.put(Expiry.from_dict(values))

    @on_expired(model, name="enqueue")
    def enqueue(event: Expiry) -> None:
        free_seat.delay(event.to_dict())

    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(model(seat="A1", person="ann"))
    ttl_clock.advance(HOUR)
    with start_worker(celery, perform_ping_check=False):
        assert EventWorker(engine, model).run_once() == Delivered(done=2)
        assert freed.get(timeout=GUARD) == got[0]


async def test_a_task_of_procrastinate_gets_the_event(ttl_clock: TTLClock) -> None:
    app = App(connector=InMemoryConnector())
    model = seat_hold()
    got, freed = handled(model, "in process"), list[Expiry]()

    @app.task
    async def free_seat(values: dict[str, Any]) -> None:
        freed.append(Expiry.from_dict(values))

    @on_expired(model, name="enqueue")
    async def enqueue(event: Expiry) -> None:
        await free_seat.defer_async(values=event.to_dict())

    engine = create_async_engine("sqlite+aiosqlite://", poolclass=StaticPool)
    async with engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
    async with AsyncSession(engine) as session:
        session.add(model(seat="A1", person="ann"))
        await session.commit()
    ttl_clock.advance(HOUR)
    async with app.open_async():
        assert await AsyncEventWorker(engine, model).run_once() == Delivered(done=2)
        await app.run_worker_async(wait=False, install_signal_handlers=False, listen_notify=False)
    assert freed == got
    await engine.dispose()


def test_an_event_whose_task_cannot_be_enqueued_comes_again(
    engine: Engine, ttl_clock: TTLClock, celery: Celery
) -> None:
    model = seat_hold()
    celery.conf.update(broker_url="no-such-transport://", task_publish_retry=False)
    task = celery.task(print, name="free seat", shared=False)
    on_expired(model, name="enqueue")(lambda event: task.delay(event.to_dict()))
    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add(model(seat="A1", person="ann"))
    ttl_clock.advance(HOUR)
    assert EventWorker(engine, model).run_once() == Delivered(failed=1)
