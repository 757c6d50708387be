"""Seats whose holds end, through HTTP, with the worker that the application runs."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from asgi_lifespan import LifespanManager

from tests.guard import GUARD
from ttl_odm.events.handlers import handlers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from ttl_odm.testing import TTLClock

EXAMPLE = Path(__file__).parents[2] / "examples" / "seat_events.py"
ANN = {"X-Person": "ann"}
BOB = {"X-Person": "bob"}


@pytest.fixture
def example() -> Iterator[Any]:
    """Import the example anew, since a handler has the engine of its application."""
    known = [*handlers]
    handlers.clear()
    spec = importlib.util.spec_from_file_location("seat_events", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # SQLAlchemy looks its annotations up there
    spec.loader.exec_module(module)
    yield module
    handlers[:] = known


@pytest.fixture
async def http(example: Any, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = example.create_app(f"sqlite+aiosqlite:///{tmp_path / 'seats.sqlite3'}", poll=0.05)
    async with LifespanManager(app) as running:
        transport = httpx.ASGITransport(app=running.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://seats") as client:
            yield client


async def released(http: httpx.AsyncClient, number: int, after: int = 0) -> list[str]:
    """Wait until so many holds were released; return the seats."""
    deadline = time.monotonic() + GUARD
    while True:
        answer = await http.get("/releases", params={"after": after, "follow": False})
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
        if len(lines) >= number:
            return [json.loads(line.removeprefix("data: "))["seat"] for line in lines]
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


async def test_a_hold_that_runs_out_is_released(
    http: httpx.AsyncClient, ttl_clock: TTLClock
) -> None:
    assert (await http.put("/seats/A1", headers=ANN)).status_code == 201
    assert (await http.put("/seats/A1", headers=BOB)).status_code == 409
    ttl_clock.advance(30)
    assert (await http.get("/seats")).json() == []
    assert (await http.post("/seats/A1/payment", headers=ANN)).status_code == 404
    assert await released(http, 1) == ["A1"]
    assert await released(http, 0, after=1) == []


async def test_a_seat_that_is_paid_stays(http: httpx.AsyncClient, ttl_clock: TTLClock) -> None:
    assert (await http.put("/seats/A1", headers=ANN)).status_code == 201
    assert (await http.put("/seats/A2", headers=ANN)).status_code == 201
    assert (await http.post("/seats/A1/payment", headers=BOB)).status_code == 404
    assert (await http.post("/seats/A1/payment", headers=ANN)).status_code == 204
    ttl_clock.advance(30)
    assert await released(http, 1) == ["A2"]
    assert [seat["seat"] for seat in (await http.get("/seats")).json()] == ["A1"]


async def test_a_seat_that_the_next_one_takes_at_once_is_released_too(
    http: httpx.AsyncClient, ttl_clock: TTLClock
) -> None:
    assert (await http.put("/seats/A1", headers=ANN)).status_code == 201
    ttl_clock.advance(30)
    assert (await http.put("/seats/A1", headers=BOB)).status_code == 201
    assert await released(http, 1) == ["A1"]
    assert [seat["person"] for seat in (await http.get("/seats")).json()] == ["bob"]
