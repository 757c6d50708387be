"""Celery, APScheduler, Dramatiq and Procrastinate sweep, with the real libraries."""

from __future__ import annotations

import asyncio
import logging
import threading
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import dramatiq
import pytest
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from celery import Celery
from celery.beat import Scheduler
from celery.contrib.testing.worker import start_worker
from celery.schedules import crontab
from dramatiq.brokers.stub import StubBroker
from procrastinate import App
from procrastinate.testing import InMemoryConnector
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from tests.guard import GUARD
from tests.sql.sweeping import HOUR, add, cart, left
from ttl_odm import TTLConfigurationError
from ttl_odm.integrations import apscheduler as for_apscheduler
from ttl_odm.integrations import celery as for_celery
from ttl_odm.integrations import dramatiq as for_dramatiq
from ttl_odm.integrations import procrastinate as for_procrastinate
from ttl_odm.sweeper import AsyncSweeper, Sweeper, SweepError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


class Shop:
    """A table with three expired rows in it, for sweepers of both kinds."""

    def __init__(self, file: Path) -> None:
        self.model = cart()
        self.engine = create_engine(f"sqlite:///{file}")
        self.async_engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
        self.sweeper = Sweeper(self.engine, self.model)
        self.async_sweeper = AsyncSweeper(self.async_engine, self.model)
        self.model.metadata.create_all(self.engine)
        self.fill()

    def fill(self) -> None:
        with self.engine.begin() as connection:
            add(connection, "carts", [(key, None, 2 * HOUR) for key in range(3)])

    def spoil(self) -> None:
        """Let sweeps fail."""
        with self.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE carts RENAME COLUMN _ts TO lost")

    def rows(self) -> int:
        with self.engine.connect() as connection:
            return len(left(connection, self.model))


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    made = Shop(tmp_path / "shop.sqlite3")
    yield made
    made.engine.dispose()
    await made.async_engine.dispose()


# --- Celery


@pytest.fixture
def celery(shop: Shop) -> Iterator[Celery]:
    # Set late, as by config_from_object(): it must not be asked for before.
    app = Celery("shop", set_as_current=False)
    for_celery.add_sweep(app, shop.sweeper, every=60)
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
def test_the_beat_of_celery_sends_a_task_that_sweeps_or_tells_what_failed(
    celery: Celery, shop: Shop
) -> None:
    beat = Scheduler(app=celery)
    entry = beat.schedule["ttl_odm.sweep"]
    assert entry.schedule.run_every.total_seconds() == 60
    assert entry.options["expires"] == 60
    task = celery.tasks[entry.task]
    with start_worker(celery, perform_ping_check=False):
        result = task.AsyncResult(beat.apply_async(entry, advance=False).id)
        report = result.get(timeout=GUARD)
        assert (report["ended"], report["deleted"]) == ("finished", 3)
        assert shop.rows() == 0
        shop.spoil()
        result = task.delay()
        with pytest.raises(Exception, match="no such column"):
            result.get(timeout=GUARD)
    assert result.state == "FAILURE"


def test_a_task_of_celery_has_the_schedule_and_the_options_that_it_was_given(shop: Shop) -> None:
    app = Celery("shop", set_as_current=False)
    nightly = crontab(minute=0, hour=3)
    task = for_celery.add_sweep(
        app, shop.sweeper, every=nightly, name="nightly", ignore_result=True
    )
    for_celery.add_sweep(app, shop.sweeper, every=None, name="by hand")
    assert task.ignore_result is True
    entries = Scheduler(app=app).schedule
    assert entries["nightly"].schedule == nightly
    assert "expires" not in entries["nightly"].options
    assert "by hand" in app.tasks
    assert "by hand" not in entries
    app.close()


# --- APScheduler


def test_a_job_of_apscheduler_sweeps(shop: Shop) -> None:
    scheduler, done = BackgroundScheduler(timezone="UTC"), threading.Event()
    scheduler.add_listener(lambda _: done.set(), EVENT_JOB_EXECUTED)
    job = for_apscheduler.add_sweep(scheduler, shop.sweeper, every=0.05)
    scheduler.start()
    try:
        assert done.wait(GUARD)
    finally:
        scheduler.shutdown()
    assert (job.id, job.max_instances, job.coalesce) == ("ttl_odm.sweep", 1, True)
    assert shop.rows() == 0


async def test_a_job_of_apscheduler_may_be_asynchronous(shop: Shop) -> None:
    scheduler, done = AsyncIOScheduler(timezone="UTC"), asyncio.Event()
    scheduler.add_listener(lambda _: done.set(), EVENT_JOB_EXECUTED)
    now = datetime.now(timezone.utc)
    for_apscheduler.add_sweep(scheduler, shop.async_sweeper, next_run_time=now)
    scheduler.start()
    try:
        await asyncio.wait_for(done.wait(), GUARD)
    finally:
        scheduler.shutdown()
    assert shop.rows() == 0


def test_a_job_of_apscheduler_fails_with_what_failed(shop: Shop) -> None:
    shop.spoil()
    events: list[Any] = []
    scheduler, done = BackgroundScheduler(timezone="UTC"), threading.Event()
    scheduler.add_listener(lambda event: (events.append(event), done.set()), EVENT_JOB_ERROR)
    now = datetime.now(timezone.utc)
    for_apscheduler.add_sweep(scheduler, shop.sweeper, next_run_time=now)
    scheduler.start()
    try:
        assert done.wait(GUARD)
    finally:
        scheduler.shutdown()
    assert "no such column" in str(events[0].exception)


def test_a_persistent_job_store_leaves_the_sweep_to_one_in_memory(
    shop: Shop, tmp_path: Path
) -> None:
    store = SQLAlchemyJobStore(url=f"sqlite:///{tmp_path / 'jobs.sqlite3'}")
    scheduler = BackgroundScheduler(
        timezone="UTC", jobstores={"default": store, "memory": MemoryJobStore()}
    )
    job = for_apscheduler.add_sweep(
        scheduler, shop.sweeper, every=CronTrigger.from_crontab("*/5 * * * *"), jobstore="memory"
    )
    scheduler.start(paused=True)
    try:
        assert isinstance(job.trigger, CronTrigger)
        assert [each.id for each in scheduler.get_jobs()] == ["ttl_odm.sweep"]
        with pytest.raises(ValueError, match="cannot be serialized"):
            for_apscheduler.add_sweep(scheduler, shop.sweeper, name="other")
    finally:
        scheduler.shutdown()
        store.engine.dispose()  # its thread looks for jobs once more, after it has closed the store


# --- Dramatiq


@pytest.fixture
def broker() -> Iterator[StubBroker]:
    made = StubBroker()
    made.add_middleware(dramatiq.middleware.AsyncIO())
    yield made
    made.close()


@pytest.mark.parametrize("kind", ["sweeper", "async_sweeper"])
async def test_an_actor_of_dramatiq_sweeps(shop: Shop, broker: StubBroker, kind: str) -> None:
    sweep = for_dramatiq.add_sweep(broker, getattr(shop, kind), queue_name="maintenance")
    worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=1)
    worker.start()
    try:
        sweep.send()
        await asyncio.to_thread(broker.join, "maintenance", timeout=1_000 * GUARD)
        if kind == "async_sweeper":
            # Its connections belong to the loop of the worker.
            future = asyncio.run_coroutine_threadsafe(
                shop.async_engine.dispose(),
                dramatiq.asyncio.get_event_loop_thread().loop,  # type: ignore[union-attr]
            )
            await asyncio.wrap_future(future)
    finally:
        worker.stop()
    assert shop.rows() == 0


def test_an_actor_of_dramatiq_fails_once_with_what_failed(shop: Shop, broker: StubBroker) -> None:
    shop.spoil()
    sweep = for_dramatiq.add_sweep(broker, shop.sweeper)
    assert sweep.actor_name == "ttl_odm_sweep"
    worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=1)
    worker.start()
    try:
        sweep.send()
        with pytest.raises(SweepError, match="no such column"):
            broker.join(sweep.queue_name, timeout=1_000 * GUARD)
    finally:
        worker.stop()
    assert len(broker.dead_letters) == 1


# --- Procrastinate


@pytest.fixture
def procrastinate() -> App:
    return App(connector=InMemoryConnector())


async def work_off(app: App) -> list[Any]:
    """Let a worker do what waits, and return the jobs."""
    async with app.open_async():
        await app.run_worker_async(
            wait=False, install_signal_handlers=False, listen_notify=False, delete_jobs="never"
        )
        connector: Any = app.connector
        return list(connector.jobs.values())


@pytest.mark.parametrize("kind", ["sweeper", "async_sweeper"])
async def test_a_task_of_procrastinate_sweeps_when_cron_says(
    shop: Shop, procrastinate: App, kind: str
) -> None:
    task = for_procrastinate.add_sweep(procrastinate, getattr(shop, kind), cron="* * * * * *")
    (periodic,) = procrastinate.periodic_registry.periodic_tasks.values()
    assert (periodic.cron, periodic.task) == ("* * * * * *", task)
    jobs = await work_off(procrastinate)
    while not jobs:  # its worker looks at the clock for what is due
        jobs = await work_off(procrastinate)
    assert {(job["task_name"], job["queueing_lock"]) for job in jobs} == {
        ("ttl_odm.sweep", "ttl_odm.sweep")
    }
    assert jobs[0]["status"] == "succeeded"
    assert shop.rows() == 0


async def test_a_task_of_procrastinate_fails_with_what_failed(
    shop: Shop, procrastinate: App, caplog: pytest.LogCaptureFixture
) -> None:
    shop.spoil()
    task = for_procrastinate.add_sweep(procrastinate, shop.async_sweeper, queue="maintenance")
    async with procrastinate.open_async():
        await task.defer_async(timestamp=0)
    (job,) = await work_off(procrastinate)
    assert (job["queue_name"], job["status"]) == ("maintenance", "failed")
    assert "no such column" in caplog.text


# --- slips


@pytest.mark.parametrize("every", [0, -5, timedelta(0), float("nan"), True], ids=str)
def test_an_interval_is_greater_than_0(shop: Shop, every: Any) -> None:
    app, scheduler = Celery("shop", set_as_current=False), BackgroundScheduler(timezone="UTC")
    for add_sweep in (
        lambda: for_celery.add_sweep(app, shop.sweeper, every=every),
        lambda: for_apscheduler.add_sweep(scheduler, shop.sweeper, every=every),
    ):
        with pytest.raises(TTLConfigurationError, match="give a number, more than 0"):
            add_sweep()
    app.close()


def test_an_interval_may_be_a_timedelta(shop: Shop) -> None:
    app, scheduler = Celery("shop", set_as_current=False), BackgroundScheduler(timezone="UTC")
    every = timedelta(minutes=5)
    for_celery.add_sweep(app, shop.sweeper, every=every)
    entry = Scheduler(app=app).schedule["ttl_odm.sweep"]
    assert entry.schedule.run_every == every
    assert entry.options["expires"] == 300
    job = for_apscheduler.add_sweep(scheduler, shop.sweeper, every=every)
    assert job.trigger.interval == every
    app.close()


async def test_what_cannot_run_is_refused_by_name(
    shop: Shop, broker: StubBroker, procrastinate: App
) -> None:
    wrong: Any = shop.engine
    app = Celery("shop", set_as_current=False)
    with pytest.raises(
        TTLConfigurationError, match=r"pass a Sweeper, because .* docs/schedulers.md"
    ):
        for_celery.add_sweep(app, shop.async_sweeper)  # type: ignore[arg-type]
    with pytest.raises(TTLConfigurationError, match="the scheduler is a BackgroundScheduler"):
        for_apscheduler.add_sweep(BackgroundScheduler(timezone="UTC"), shop.async_sweeper)
    with pytest.raises(TTLConfigurationError, match=r"such as Sweeper\(engine, Base\)"):
        for_dramatiq.add_sweep(broker, wrong)
    with pytest.raises(TTLConfigurationError, match=r"such as AsyncSweeper\(engine, Base\)"):
        for_procrastinate.add_sweep(procrastinate, wrong)
    app.close()
