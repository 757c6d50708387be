"""fastapi-users' access tokens in SQLAlchemy live and die under ttl_odm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy

if sqlalchemy.__version__.startswith("2.1"):
    pytest.skip(
        "fastapi-users-db-sqlalchemy has no release for SQLAlchemy 2.1; .venv-lowest has 2.0",
        allow_module_level=True,
    )

from fastapi_users_db_sqlalchemy.access_token import SQLAlchemyAccessTokenDatabase
from httpx import ASGITransport, AsyncClient
from sqlalchemy.ext.asyncio import AsyncSession

from tests.adoption.conftest import ROWS, example, in_batches, moved, stored
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncEngine

    from tests.backends import Backend

PERSON = {"email": "ada@example.org", "password": "difference engine"}


@pytest.fixture
async def async_database(async_backend: Backend) -> AsyncIterator[AsyncEngine]:
    engine = example("fastapi_users_tokens").make_engine(async_backend.async_url)
    yield engine
    await engine.dispose()


@pytest.fixture
async def client(async_database: AsyncEngine) -> AsyncIterator[AsyncClient]:
    app = example("fastapi_users_tokens").make_app(async_database)
    made = AsyncClient(transport=ASGITransport(app), base_url="http://shop")
    async with app.router.lifespan_context(app), made:
        assert (await made.post("/register", json=PERSON)).status_code == 201
        yield made


async def end_all(database: AsyncEngine) -> None:
    async with database.begin() as connection:
        await connection.execute(moved("accesstoken", "created_at", 3601, aware=True))


async def login(client: AsyncClient) -> dict[str, str]:
    form = {"username": PERSON["email"], "password": PERSON["password"]}
    token = (await client.post("/login", data=form)).json()["access_token"]
    return {"Authorization": f"Bearer {token}"}


async def test_a_token_that_is_over_is_refused_and_cannot_log_out(
    client: AsyncClient, async_database: AsyncEngine
) -> None:
    bearer = await login(client)
    assert (await client.get("/me", headers=bearer)).json() == PERSON["email"]
    await end_all(async_database)
    assert (await client.get("/me", headers=bearer)).status_code == 401
    assert (await client.post("/logout", headers=bearer)).status_code == 401
    bearer = await login(client)
    assert (await client.post("/logout", headers=bearer)).status_code == 204
    async with async_database.connect() as connection:
        assert await connection.run_sync(stored, "accesstoken") == 1


async def test_a_token_may_come_again_and_the_sweeper_deletes_in_batches(
    client: AsyncClient, async_database: AsyncEngine
) -> None:
    del client  # it has made the tables
    models: Any = example("fastapi_users_tokens")
    async with AsyncSession(async_database, expire_on_commit=False) as session:
        (user,) = await session.scalars(sqlalchemy.select(models.User))
        database = SQLAlchemyAccessTokenDatabase(session, models.AccessToken)
        for number in range(ROWS):
            await database.create({"token": f"token {number}", "user_id": user.id})
        await end_all(async_database)
        again = await database.create({"token": "token 0", "user_id": user.id})
        assert await database.get_by_token("token 0") is again
        assert await database.get_by_token("token 1") is None
    report = await AsyncSweeper(async_database, models.AccessToken, batch_size=2).run_once()
    assert in_batches(report, "accesstoken", ROWS - 1, async_database)
