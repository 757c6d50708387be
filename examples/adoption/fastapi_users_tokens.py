"""fastapi-users' access tokens in SQLAlchemy under ttl_odm: they end an hour after ``created_at``.

Run it: ``python examples/adoption/fastapi_users_tokens.py``.

Its package for SQLAlchemy (7.0) asks for SQLAlchemy 2.0; no release takes 2.1 yet.

fastapi-users compares ``created_at`` with the clock of the web server, but deletes a token only
when its user logs out. With the policy the database decides, and the sweeper deletes the rest.
"""

# Without "from __future__ import annotations": FastAPI could not look up what is local to make_app.
import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, FastAPI
from fastapi_users import BaseUserManager, FastAPIUsers, UUIDIDMixin, schemas
from fastapi_users.authentication import AuthenticationBackend, BearerTransport
from fastapi_users.authentication.strategy.db import DatabaseStrategy
from fastapi_users_db_sqlalchemy import SQLAlchemyBaseUserTableUUID, SQLAlchemyUserDatabase
from fastapi_users_db_sqlalchemy.access_token import (
    SQLAlchemyAccessTokenDatabase,
    SQLAlchemyBaseAccessTokenTableUUID,
)
from httpx import ASGITransport, AsyncClient
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase

from ttl_odm import ExpireAfter
from ttl_odm.sqlalchemy import enable
from ttl_odm.sweeper import AsyncSweeper

LIFETIME = 3600  # seconds


class Base(DeclarativeBase):
    """The application's models."""


class User(SQLAlchemyBaseUserTableUUID, Base):
    """A user, as fastapi-users' documentation says to declare it."""


class AccessToken(SQLAlchemyBaseAccessTokenTableUUID, Base):
    """A token, as fastapi-users' documentation says to declare it."""


# The adoption.
enable(AccessToken, ExpireAfter("created_at", LIFETIME))


class UserManager(UUIDIDMixin, BaseUserManager[User, UUID]):
    """What fastapi-users asks for."""


def make_engine(url: str) -> AsyncEngine:
    """Make an engine whose connections are in UTC, as the dates are that fastapi-users writes.

    They go into a TIMESTAMP column, which MySQL and MariaDB read in the connection's time zone.
    """
    is_mysql = url.startswith("mysql")
    options = {"init_command": "SET time_zone = '+00:00'"} if is_mysql else {}
    return create_async_engine(url, connect_args=options)


def make_app(engine: AsyncEngine) -> FastAPI:
    """Make an application with /register, /login, /logout and /me."""

    async def session() -> AsyncIterator[AsyncSession]:
        async with AsyncSession(engine, expire_on_commit=False) as made:
            yield made

    async def manager(session: Annotated[AsyncSession, Depends(session)]) -> UserManager:
        return UserManager(SQLAlchemyUserDatabase(session, User))

    def strategy(
        session: Annotated[AsyncSession, Depends(session)],
    ) -> DatabaseStrategy[Any, Any, Any]:
        # Its own check, lifetime_seconds=LIFETIME, would do no harm, but there is no need of it.
        return DatabaseStrategy(SQLAlchemyAccessTokenDatabase(session, AccessToken))

    backend = AuthenticationBackend(
        name="database", transport=BearerTransport("login"), get_strategy=strategy
    )
    users = FastAPIUsers[User, UUID](manager, [backend])

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        yield

    app = FastAPI(lifespan=lifespan)
    app.include_router(users.get_auth_router(backend))
    app.include_router(users.get_register_router(schemas.BaseUser[UUID], schemas.BaseUserCreate))

    @app.get("/me")
    async def me(user: Annotated[User, Depends(users.current_user())]) -> str:
        return user.email

    return app


async def main() -> None:
    """Log in, let the token expire, log in again, and sweep."""
    person = {"email": "ada@example.org", "password": "difference engine"}
    form = {"username": person["email"], "password": person["password"]}
    with tempfile.TemporaryDirectory() as folder:
        engine = make_engine(f"sqlite+aiosqlite:///{Path(folder, 'users.sqlite3')}")
        app = make_app(engine)
        client = AsyncClient(transport=ASGITransport(app), base_url="http://shop")
        async with app.router.lifespan_context(app), client:
            await client.post("/register", json=person)
            token = (await client.post("/login", data=form)).json()["access_token"]
            bearer = {"Authorization": f"Bearer {token}"}
            print("me:", (await client.get("/me", headers=bearer)).text)
            async with engine.begin() as connection:
                await connection.execute(
                    text("UPDATE accesstoken SET created_at = '2020-01-01 00:00:00.000000'")
                )
            print("after its end:", (await client.get("/me", headers=bearer)).text)
            print("logged in again:", (await client.post("/login", data=form)).status_code)
            print(await AsyncSweeper(engine, AccessToken).run_once())
        await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
