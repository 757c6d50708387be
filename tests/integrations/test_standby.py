"""Sweepers of applications and schedulers at a server that takes no writes.

They have ``standby="exit"``; those that wait are the sweeper's own matter.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from celery import Celery
from dramatiq.brokers.stub import StubBroker
from flask import Flask
from procrastinate import App
from procrastinate.testing import InMemoryConnector
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

from tests.backends import READ_ONLY
from tests.guard import GUARD
from tests.sql.sweeping import HOUR, add, cart
from ttl_odm.integrations import apscheduler as for_apscheduler
from ttl_odm.integrations import celery as for_celery
from ttl_odm.integrations import dramatiq as for_dramatiq
from ttl_odm.integrations import procrastinate as for_procrastinate
from ttl_odm.integrations.fastapi import Sweeping
from ttl_odm.integrations.flask import TTL
from ttl_odm.sweeper import AsyncSweeper, Sweeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from tests.backends import Backend

# SQLite has no standbys.
pytestmark = pytest.mark.databases("postgres", "mariadb", "mysql")

ENDED = "because its server takes no writes"


def fill(connection: Connection, model: Any) -> None:
    model.metadata.create_all(connection)
    add(connection, "carts", [(key, None, 2 * HOUR) for key in range(3)])


def read_only(engine: Engine) -> None:
    """Let each new connection of an engine take no writes."""

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        cursor = connection.cursor()
        cursor.execute(READ_ONLY[engine.dialect.name])
        cursor.close()
        connection.commit()


@pytest.fixture
def model(engine: Engine) -> Any:
    """A model with expired rows; the table for leases is there."""
    made = cart()
    with engine.begin() as connection:
        fill(connection, made)
    assert Sweeper(engine, made, max_rows=1).run_once().deleted == 1
    return made


@pytest.fixture
def standby(backend: Backend) -> Iterator[Engine]:
    """The engine of a server that takes no writes."""
    assert backend.sync_url is not None
    made = create_engine(backend.sync_url)
    read_only(made)
    yield made
    made.dispose()


@pytest.fixture
async def async_sweeper(async_engine: AsyncEngine) -> AsyncIterator[AsyncSweeper]:
    """A sweeper that reaches a standby."""
    model = cart()
    async with async_engine.begin() as connection:
        await connection.run_sync(fill, model)
    made = create_async_engine(async_engine.url)
    read_only(made.sync_engine)
    yield AsyncSweeper(made, model, standby="exit")
    await made.dispose()


async def until_ended(caplog: pytest.LogCaptureFixture) -> None:
    deadline = time.monotonic() + GUARD
    while "has ended" not in caplog.text:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_a_lifespan_says_why_its_sweeper_ended(
    async_sweeper: AsyncSweeper, caplog: pytest.LogCaptureFixture
) -> None:
    async with Sweeping(async_sweeper):
        await until_ended(caplog)
    assert ENDED in caplog.text
    assert "was stopped" not in caplog.text


async def test_a_lifespan_says_why_its_synchronous_sweeper_ended(
    standby: Engine, model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with Sweeping(Sweeper(standby, model, standby="exit")):
        await until_ended(caplog)
    assert ENDED in caplog.text
    assert "was stopped" not in caplog.text


async def test_a_thread_of_flask_says_why_it_ended(
    standby: Engine, model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    app = Flask("shop")
    app.config.update(TTL_STANDBY="exit", TTL_SWEEP_INTERVAL=60)
    TTL(app, standby, model)
    app.extensions["ttl_odm"].start()
    await until_ended(caplog)
    app.extensions["ttl_odm"].stop()
    assert f"The sweeper of shop (default) has ended, {ENDED}" in caplog.text


def test_the_command_of_flask_has_an_exit_status_for_it(standby: Engine, model: Any) -> None:
    app = Flask("shop")
    app.config["TTL_STANDBY"] = "exit"
    TTL(app, standby, model)
    for command in ("run", "sweep"):
        finished = app.test_cli_runner().invoke(args=["ttl", command])
        assert finished.exit_code == 5
        assert "The server is a standby, which takes no writes" in finished.output


def test_a_task_of_celery_returns_how_it_ended(standby: Engine, model: Any) -> None:
    sweeper = Sweeper(standby, model, standby="exit")
    task = for_celery.add_sweep(Celery("shop", set_as_current=False), sweeper, every=None)
    assert task()["ended"] == "standby"


async def test_tasks_of_others_are_no_failures(
    async_sweeper: AsyncSweeper, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "ttl_odm.integrations")
    app = App(connector=InMemoryConnector())
    task: Any = for_procrastinate.add_sweep(app, async_sweeper)
    assert (await task(timestamp=0))["ended"] == "standby"
    await for_apscheduler.add_sweep(AsyncIOScheduler(), async_sweeper).func()
    broker = StubBroker()
    await for_dramatiq.add_sweep(broker, async_sweeper).fn.__wrapped__()
    broker.close()
    said = [one.getMessage() for one in caplog.records if "integrations" in one.name]
    assert ["a standby, which takes no writes" in message for message in said] == [True, True]
