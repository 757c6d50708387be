"""Sweepers in the lifespan of FastAPI, Starlette and Litestar."""

from __future__ import annotations

import asyncio
import logging
import time
import warnings
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from asgi_lifespan import LifespanManager
from fastapi import FastAPI, Request, Response
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from starlette.applications import Starlette

from tests.guard import GUARD
from tests.sql.sweeping import HOUR, add, cart, left
from ttl_odm import ExpiredError, TTLConfigurationError
from ttl_odm.integrations.fastapi import Sweeping
from ttl_odm.sweeper import AsyncSweeper, Sweeper

with warnings.catch_warnings():
    # advanced-alchemy 1.12, which Litestar imports, uses what SQLAlchemy 2.1 has deprecated.
    warnings.filterwarnings("ignore", "The declarative_mixin decorator", DeprecationWarning)
    from litestar import Litestar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

pytestmark = pytest.mark.databases("sqlite")

FRAMEWORKS: dict[str, Callable[[Sweeping], Any]] = {
    "fastapi": lambda sweeping: FastAPI(lifespan=sweeping),
    "starlette": lambda sweeping: Starlette(lifespan=sweeping),
    "litestar": lambda sweeping: Litestar(lifespan=[sweeping]),
}


class Shop:
    """A table with expired rows in it."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self.model = cart()

    def sweeper(self, **options: Any) -> AsyncSweeper:
        return AsyncSweeper(self.engine, self.model, **options)

    async def fill(self) -> None:
        def work(connection: Any) -> None:
            self.model.metadata.create_all(connection)
            add(connection, "carts", [(key, None, 2 * HOUR) for key in range(5)])

        async with self.engine.begin() as connection:
            await connection.run_sync(work)

    async def rows(self) -> int:
        async with self.engine.connect() as connection:
            return len(await connection.run_sync(left, self.model))

    async def is_empty(self) -> bool:
        return not await self.rows()


@pytest.fixture
async def shop(async_engine: AsyncEngine) -> Shop:
    made = Shop(async_engine)
    await made.fill()
    return made


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + GUARD
    while not await holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_an_application_sweeps_while_it_runs(framework: str, shop: Shop) -> None:
    app = FRAMEWORKS[framework](Sweeping(shop.sweeper(), interval=0.05))
    for _ in range(2):  # tests start one application again and again
        async with LifespanManager(app):
            await until(shop.is_empty)
            state = await shop.sweeper().status()
            assert state.holder is not None
        assert (await shop.sweeper().status()).holder is None
        await shop.fill()
        assert await shop.rows() == 5


async def test_it_composes_with_a_lifespan_of_ones_own(shop: Shop) -> None:
    happened: list[str] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, str]]:
        happened.append("opened")
        async with Sweeping(shop.sweeper(), interval=0.05):
            yield {"greeting": "hello"}
        # What the sweeper worked with is closed here, and only now.
        happened.append(f"lease: {(await shop.sweeper().status()).holder}")

    app = FastAPI(lifespan=lifespan)
    async with LifespanManager(app) as running:
        assert running._state == {"greeting": "hello"}
        await until(shop.is_empty)
    assert happened == ["opened", "lease: None"]


async def test_several_sweepers_run_side_by_side(shop: Shop, tmp_path: Path) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'other.sqlite3'}")
    other = Shop(engine)
    await other.fill()
    async with Sweeping(shop.sweeper(), other.sweeper(), interval=0.05):
        await until(shop.is_empty)
        await until(other.is_empty)
    await engine.dispose()


async def test_the_batch_at_hand_is_finished_and_the_lease_given_back(shop: Shop) -> None:
    begun = asyncio.Event()
    sweeper = shop.sweeper(batch_size=1, on_progress=lambda _: begun.set(), nice=1000.0)
    async with Sweeping(sweeper):
        await begun.wait()
    assert 0 < await shop.rows() < 5
    assert (await shop.sweeper().status()).holder is None


async def test_an_application_starts_without_its_database(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'nowhere' / 'x.sqlite3'}")
    app = FastAPI(lifespan=Sweeping(Shop(engine).sweeper(), interval=0.01))
    caplog.set_level(logging.INFO, "ttl_odm")

    async def is_told() -> bool:
        return "unable to open database file" in caplog.text

    async with LifespanManager(app):
        await until(is_told)
    await engine.dispose()


async def test_a_sweeper_that_ends_by_an_error_is_logged_and_the_application_goes_on(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    async def is_told() -> bool:
        return "A sweeper has ended with an error" in caplog.text

    async with LifespanManager(FastAPI(lifespan=Sweeping(shop.sweeper(on_report=broken)))):
        await until(is_told)
        assert "ZeroDivisionError" in caplog.text


async def test_a_row_that_expires_during_a_request_is_answered_once_for_all(shop: Shop) -> None:
    app = FastAPI()

    @app.exception_handler(ExpiredError)
    async def gone(_: Request, error: ExpiredError) -> Response:
        return Response(str(error), status_code=404)

    @app.post("/")
    async def slow() -> None:
        async with AsyncSession(shop.engine) as session:
            row = shop.model(id=7)
            session.add(row)
            await session.commit()
            row.ttl = 60
            async with shop.engine.begin() as connection:
                await connection.execute(text("UPDATE carts SET _ts = _ts - 3600000"))
            await session.commit()

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        answer = await client.post("/")
    assert answer.status_code == 404
    assert "Cart" in answer.text


# --- with an engine that is not asynchronous


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = create_engine(f"sqlite:///{tmp_path / 'sync.sqlite3'}")
    yield made
    made.dispose()


@pytest.fixture
def sync_model(engine: Engine) -> Any:
    model = cart()
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        add(connection, "carts", [(key, None, 2 * HOUR) for key in range(5)])
    return model


async def test_a_synchronous_sweeper_runs_in_a_thread(engine: Engine, sync_model: Any) -> None:
    async def is_empty() -> bool:
        with engine.connect() as connection:
            return not left(connection, sync_model)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with Sweeping(Sweeper(engine, sync_model), interval=0.05):
            yield

    app = FastAPI(lifespan=lifespan)
    for _ in range(2):
        async with LifespanManager(app):
            await until(is_empty)
        assert Sweeper(engine, sync_model).status().holder is None
        with engine.begin() as connection:
            add(connection, "carts", [(1, None, 2 * HOUR)])


async def test_a_thread_finishes_the_batch_at_hand(engine: Engine, sync_model: Any) -> None:
    loop, begun = asyncio.get_running_loop(), asyncio.Event()

    @event.listens_for(engine, "after_cursor_execute")
    def noted(*args: Any) -> None:
        if args[2].startswith("DELETE FROM carts"):
            loop.call_soon_threadsafe(begun.set)
            time.sleep(0.05)

    async with Sweeping(Sweeper(engine, sync_model, batch_size=1, nice=1000.0)):
        await begun.wait()
    with engine.connect() as connection:
        assert 0 < len(left(connection, sync_model)) < 5
    assert Sweeper(engine, sync_model).status().holder is None
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]


async def test_a_sweeper_that_was_stopped_before_is_no_silent_one(
    engine: Engine, sync_model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sweeper = Sweeper(engine, sync_model)
    sweeper.stop()

    async def is_told() -> bool:
        return "because it was stopped" in caplog.text

    async with Sweeping(sweeper):
        await until(is_told)


# --- slips


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"interval": "60"}, "interval = '60': give a number"),
        ({"interval": -1}, "interval = -1: give a number"),
        ({"jitter": 2}, "jitter = 2: give a share"),
    ],
)
async def test_a_wrong_value_is_named(shop: Shop, arguments: Any, words: str) -> None:
    with pytest.raises(TTLConfigurationError, match=f"^{words}"):
        Sweeping(shop.sweeper(), **arguments)


async def test_an_engine_is_no_sweeper(shop: Shop) -> None:
    given: Any = shop.engine
    with pytest.raises(TTLConfigurationError, match=r"such as AsyncSweeper\(engine, Base\)"):
        Sweeping(given)
