"""advanced-alchemy's store for Litestar keeps its values under ttl_odm."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
from httpx import ASGITransport, AsyncClient

from tests.adoption.conftest import ROWS, example, in_batches, moved, stored
from ttl_odm.sweeper import Sweeper

with warnings.catch_warnings():
    # Litestar imports advanced-alchemy, whose mixins still use what SQLAlchemy 2.1 deprecates.
    warnings.filterwarnings("ignore", "The declarative_mixin decorator", DeprecationWarning)
    from advanced_alchemy.extensions.litestar import SQLAlchemyAsyncConfig, SQLAlchemySyncConfig
    from litestar import Litestar, Request, get
    from litestar.middleware.session.server_side import ServerSideSessionConfig

    example("litestar_store")

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

HOUR = 3_600


@pytest.fixture
def store(database: Engine) -> Any:
    litestar_store = example("litestar_store")
    litestar_store.StoredItem.__table__.create(database)
    return litestar_store.make_store(SQLAlchemySyncConfig(engine_instance=database))


def end_all(database: Engine) -> None:
    with database.begin() as connection:
        connection.execute(moved("stored_items", "expires_at", 5, aware=True))


async def test_a_value_that_is_over_is_not_there_and_its_key_is_free(
    store: Any, database: Engine
) -> None:
    await store.set("ada", b"1", expires_in=HOUR)
    assert await store.get("ada") == b"1"
    assert HOUR - 60 < await store.expires_in("ada") <= HOUR
    end_all(database)
    assert await store.get("ada") is None
    assert await store.get("ada", renew_for=HOUR) is None
    assert not await store.exists("ada")
    assert await store.expires_in("ada") is None
    await store.set("ada", b"2", expires_in=HOUR)
    assert await store.get("ada", renew_for=2 * HOUR) == b"2"
    await store.set("ada", b"3", expires_in=HOUR)
    assert await store.get("ada") == b"3"
    await store.delete("ada")
    with database.connect() as connection:
        assert stored(connection, "stored_items") == 0


async def test_the_sweeper_deletes_them_in_batches(store: Any, database: Engine) -> None:
    for number in range(ROWS):
        await store.set(f"key {number}", b"", expires_in=HOUR)
    end_all(database)
    await store.set("ada", b"1", expires_in=HOUR)
    item = example("litestar_store").StoredItem
    report = Sweeper(database, item, batch_size=2).run_once()
    assert in_batches(report, "stored_items", ROWS, database)
    assert await store.get("ada") == b"1"


# aiomysql 0.3 can't send bytes with PyMySQL 1.2, so on MariaDB the store is synchronous.
@pytest.mark.databases("sqlite", "postgres")
async def test_sessions_of_a_litestar_application_start_anew(async_engine: AsyncEngine) -> None:
    litestar_store = example("litestar_store")
    async with async_engine.begin() as connection:
        await connection.run_sync(litestar_store.StoredItem.__table__.create)

    @get("/")
    async def visits(request: Request[Any, Any, Any]) -> int:
        count = int(request.session.get("visits", 0)) + 1
        request.session["visits"] = count
        return count

    store = litestar_store.make_store(SQLAlchemyAsyncConfig(engine_instance=async_engine))
    middleware = ServerSideSessionConfig(store="sessions", max_age=HOUR).middleware
    app = Litestar([visits], middleware=[middleware], stores={"sessions": store})
    async with AsyncClient(transport=ASGITransport(app), base_url="http://shop") as browser:
        assert [(await browser.get("/")).json() for _ in range(2)] == [1, 2]
        async with async_engine.begin() as connection:
            await connection.execute(moved("stored_items", "expires_at", 5, aware=True))
        assert (await browser.get("/")).json() == 1
