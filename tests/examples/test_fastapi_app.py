"""Login codes and who is online, through HTTP, on SQLite and a real mongod."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from asgi_lifespan import LifespanManager
from sqlalchemy import text

from tests.examples.test_seat_holds import fresh_database
from tests.guard import GUARD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi_app.py"
ANN = "ann@example.org"


def example() -> Any:
    """Import the example anew: Beanie keeps what it knows of a database on the class."""
    spec = importlib.util.spec_from_file_location("fastapi_app", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # SQLAlchemy looks its annotations up there
    spec.loader.exec_module(module)
    return module


class World:
    """The application, its databases, and the codes that it has sent."""

    def __init__(self, module: Any, app: Any, mongodb: Any, client: httpx.AsyncClient) -> None:
        self.module, self.app, self.mongodb, self.http = module, app, mongodb, client
        self.sent: list[tuple[str, str]] = []
        module.send = lambda email, digits: self.sent.append((email, digits))

    async def sql(self, statement: str) -> Any:
        async with self.app.state.engine.begin() as connection:
            result = await connection.execute(text(statement))
            return list(result) if result.returns_rows else None

    async def log_in(self) -> None:
        assert (await self.http.post(f"/codes/{ANN}")).status_code == 202
        given = {"digits": self.sent[-1][1]}
        assert (await self.http.post(f"/codes/{ANN}/attempt", json=given)).status_code == 204

    async def online(self) -> list[Any]:
        found: list[Any] = (await self.http.get("/online")).json()
        return found

    async def pass_by(self, seconds: float) -> None:
        """Let time pass for everything that is stored."""
        await self.sql(f"UPDATE codes SET _ts = _ts - {seconds * 1000}")  # noqa: S608
        earlier = {"$subtract": ["$_ts", int(seconds * 1000)]}
        await self.mongodb["presences"].update_many({}, [{"$set": {"_ts": earlier}}])


@pytest.fixture
async def world(mongodb_url: str, tmp_path: Path) -> AsyncIterator[World]:
    module = example()
    async with fresh_database(mongodb_url) as mongodb:
        url = f"sqlite+aiosqlite:///{tmp_path / 'codes.sqlite3'}"
        app = module.create_app(url, mongodb, interval=0.1)
        async with LifespanManager(app) as running:
            transport = httpx.ASGITransport(app=running.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
                yield World(module, app, mongodb, client)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + GUARD
    while not await holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_code_is_good_once(world: World) -> None:
    await world.log_in()
    (online,) = await world.online()
    assert online["person"] == ANN
    assert 25 <= online["seconds_left"] <= 30
    given = {"digits": world.sent[-1][1]}
    assert (await world.http.post(f"/codes/{ANN}/attempt", json=given)).status_code == 404


async def test_nobody_gets_a_second_code_before_the_first_has_expired(world: World) -> None:
    assert (await world.http.post(f"/codes/{ANN}")).status_code == 202
    assert (await world.http.post(f"/codes/{ANN}")).status_code == 429
    given = {"digits": world.sent[-1][1]}
    await world.pass_by(300)
    assert (await world.http.post(f"/codes/{ANN}/attempt", json=given)).status_code == 404
    assert (await world.http.post(f"/codes/{ANN}")).status_code == 202
    assert len(world.sent) == 2


async def test_a_code_ends_with_the_third_wrong_attempt(world: World) -> None:
    assert (await world.http.post(f"/codes/{ANN}")).status_code == 202
    for status in (403, 403, 403, 404):
        answer = await world.http.post(f"/codes/{ANN}/attempt", json={"digits": "none"})
        assert answer.status_code == status
    given = {"digits": world.sent[-1][1]}
    assert (await world.http.post(f"/codes/{ANN}/attempt", json=given)).status_code == 404


async def test_a_wrong_attempt_wins_no_time(world: World) -> None:
    assert (await world.http.post(f"/codes/{ANN}")).status_code == 202
    for status in (403, 404):
        await world.pass_by(150)
        answer = await world.http.post(f"/codes/{ANN}/attempt", json={"digits": "none"})
        assert answer.status_code == status


async def test_who_shows_no_sign_of_life_is_offline_at_once(world: World) -> None:
    await world.log_in()
    await world.pass_by(20)
    assert (await world.http.put(f"/online/{ANN}")).status_code == 204
    await world.pass_by(20)
    assert len(await world.online()) == 1
    await world.pass_by(10)
    assert await world.online() == []
    assert (await world.http.put(f"/online/{ANN}")).status_code == 404


@pytest.mark.slow
async def test_both_databases_are_swept_while_the_application_runs(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "uvicorn.error")
    await world.log_in()
    assert (await world.http.post("/codes/bob@example.org")).status_code == 202
    await world.pass_by(300)

    async def is_swept() -> bool:
        codes = await world.sql("SELECT * FROM codes")
        return not codes and not await world.mongodb["presences"].count_documents({})

    await until(is_swept)

    async def is_told() -> bool:
        return f"{ANN} went offline" in caplog.text

    await until(is_told)
