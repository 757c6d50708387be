"""The seat example, through its own HTTP interface on a real mongod, with PyMongo or Motor."""

from __future__ import annotations

import importlib.util
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import beanie
import httpx
import pytest
from asgi_lifespan import LifespanManager

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

EXAMPLE = Path(__file__).parents[2] / "examples" / "seat_holds.py"


def example() -> Any:
    """Import the example anew: Beanie keeps what it knows of a database on the class."""
    spec = importlib.util.spec_from_file_location("seat_holds", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@asynccontextmanager
async def fresh_database(url: str) -> AsyncIterator[Any]:
    """Give a database of the driver that this Beanie works with, and drop it afterwards."""
    name = f"ttl_odm_{uuid4().hex[:16]}"
    if beanie.__version__.startswith("1."):
        from motor.motor_asyncio import AsyncIOMotorClient

        motor: Any = AsyncIOMotorClient(url)
        try:
            yield motor[name]
            await motor.drop_database(name)
        finally:
            motor.close()
    else:
        from pymongo import AsyncMongoClient

        async with AsyncMongoClient[dict[str, Any]](url) as client:
            yield client[name]
            await client.drop_database(name)


@pytest.fixture
async def database(mongodb_url: str) -> AsyncIterator[Any]:
    async with fresh_database(mongodb_url) as made:
        yield made


@pytest.fixture
async def http(database: Any) -> AsyncIterator[httpx.AsyncClient]:
    app = example().create_app(database)
    async with LifespanManager(app) as running:
        transport = httpx.ASGITransport(app=running.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://seats") as client:
            yield client


def person(name: str) -> dict[str, str]:
    return {"X-Person": name}


async def run_out(database: Any, seat: str) -> None:
    """Let ten minutes pass for one hold."""
    earlier = {"$subtract": ["$_ts", int(timedelta(minutes=10).total_seconds() * 1000)]}
    result = await database["holds"].update_one({"_id": seat}, [{"$set": {"_ts": earlier}}])
    assert result.matched_count == 1


async def test_a_seat_is_held_by_one_person(http: httpx.AsyncClient) -> None:
    held = await http.put("/seats/A1", headers=person("ann"))
    assert held.status_code == 201
    assert 590 <= held.json()["seconds_left"] <= 600
    assert (await http.put("/seats/A1", headers=person("bob"))).status_code == 409
    assert [seat["person"] for seat in (await http.get("/seats")).json()] == ["ann"]


async def test_a_hold_that_ran_out_is_gone_and_its_seat_is_free(
    http: httpx.AsyncClient, database: Any
) -> None:
    await http.put("/seats/A1", headers=person("ann"))
    await run_out(database, "A1")
    assert (await http.get("/seats")).json() == []
    assert (await http.post("/seats/A1/payment", headers=person("ann"))).status_code == 404
    assert (await http.post("/seats/A1/more-time", headers=person("ann"))).status_code == 404
    assert (await http.delete("/seats/A1", headers=person("ann"))).status_code == 404
    assert (await http.put("/seats/A1", headers=person("bob"))).status_code == 201
    assert [seat["person"] for seat in (await http.get("/seats")).json()] == ["bob"]


async def test_more_time_starts_the_ten_minutes_again(
    http: httpx.AsyncClient, database: Any
) -> None:
    await http.put("/seats/A1", headers=person("ann"))
    await database["holds"].update_one(
        {"_id": "A1"}, [{"$set": {"_ts": {"$subtract": ["$_ts", 300_000]}}}]
    )
    (seat,) = (await http.get("/seats")).json()
    assert 290 <= seat["seconds_left"] <= 300
    assert (await http.post("/seats/A1/more-time", headers=person("ann"))).status_code == 200
    (seat,) = (await http.get("/seats")).json()
    assert 590 <= seat["seconds_left"] <= 600


async def test_a_seat_that_is_paid_stays(http: httpx.AsyncClient, database: Any) -> None:
    await http.put("/seats/A1", headers=person("ann"))
    paid = (await http.post("/seats/A1/payment", headers=person("ann"))).json()
    assert paid == {"seat": "A1", "person": "ann", "is_paid": True, "seconds_left": None}
    await run_out(database, "A1")
    assert [seat["is_paid"] for seat in (await http.get("/seats")).json()] == [True]
    assert (await http.put("/seats/A1", headers=person("bob"))).status_code == 409


async def test_mongodb_is_told_to_delete_holds_by_itself(
    http: httpx.AsyncClient, database: Any
) -> None:
    await http.put("/seats/A1", headers=person("ann"))
    indexes = await database["holds"].index_information()
    assert {indexes[name].get("expireAfterSeconds") for name in indexes} == {None, 600, 0}
