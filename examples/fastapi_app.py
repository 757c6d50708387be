"""Login codes in SQL and who is online in MongoDB: SQLAlchemy and Beanie in one FastAPI app.

Run it: ``python examples/fastapi_app.py [MONGODB_URL]`` serves http://127.0.0.1:8000/docs, with an
SQLite file that is removed at the end and the database ``example_online`` of
``mongodb://127.0.0.1:27017`` unless another is named.

A code is good for five minutes, and nobody gets a second one before that. Who has sent no sign of
life for half a minute is offline. Nothing here looks at a clock for either. Both are swept for as
long as the application runs; of many processes one does it.
"""

from __future__ import annotations

import logging
import secrets
import sys
import tempfile
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from beanie import Document, init_beanie
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from pydantic import BaseModel
from sqlalchemy import String, delete, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm.beanie import TTLMixin as TTLDocument
from ttl_odm.beanie import ensure_indexes, ttl_database
from ttl_odm.integrations.fastapi import Sweeping
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import AsyncSweeper, Hook, Purged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

logger = logging.getLogger("uvicorn.error")

TRIES = 3


class Base(DeclarativeBase):
    """The example's declarative base."""


class Code(TTLMixin, Base):
    """A login code that was sent to somebody: one at a time, for five minutes."""

    __tablename__ = "codes"
    __ttl__ = 300

    email: Mapped[str] = mapped_column(String(200), primary_key=True)
    digits: Mapped[str] = mapped_column(String(6))
    tries: Mapped[int] = mapped_column(default=0)


class Presence(TTLDocument, Document):
    """Somebody who has shown a sign of life within half a minute."""

    __ttl__ = 30
    __ttl_purge__ = "sweeper"  # not MongoDB itself, which would tell nobody

    id: str

    class Settings:
        """Beanie's settings."""

        name = "presences"


class Attempt(BaseModel):
    """What somebody says the code is."""

    digits: str


class Online(BaseModel):
    """Somebody who is online."""

    person: str
    seconds_left: int


async def sql_session(request: Request) -> AsyncIterator[AsyncSession]:
    """Give a request a session of SQLAlchemy's."""
    async with AsyncSession(request.app.state.engine, expire_on_commit=False) as session:
        yield session


SQL = Annotated[AsyncSession, Depends(sql_session)]


async def live_code(email: str, sql: SQL) -> Code:
    """Give a request the code that was sent to an address.

    Raises:
        HTTPException: 404, there is none (any more).
    """
    code = await sql.get(Code, email)
    if code is None:
        raise HTTPException(404, f"No code was sent to {email} within five minutes")
    return code


LiveCode = Annotated[Code, Depends(live_code)]


def tell(purged: Purged) -> None:
    """Say who went offline; called after their documents were deleted."""
    for (person,) in purged.keys:
        logger.info("%s went offline", person)


def send(email: str, digits: str) -> None:
    """Send a code; here, to the console."""
    logger.info("To %s: your code is %s", email, digits)


def create_app(sql_url: str, mongodb: Any, *, interval: float = 10) -> FastAPI:
    """Make the application.

    Args:
        sql_url: SQLAlchemy's URL, with an asynchronous driver.
        mongodb: PyMongo's AsyncDatabase (or Motor's, with Beanie 1).
        interval: Seconds between two sweeps.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine = app.state.engine = create_async_engine(sql_url)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        database = ttl_database(mongodb)
        await init_beanie(database=database, document_models=[Presence])
        await ensure_indexes(Presence)
        sweepers = (
            AsyncSweeper(engine, Base),
            AsyncSweeper(database, [Presence], on_purged=Hook(tell, when="commit")),
        )
        async with Sweeping(*sweepers, interval=interval):
            yield
        await engine.dispose()

    app = FastAPI(title="Who is online", lifespan=lifespan)

    @app.post("/codes/{email}", status_code=202)
    async def send_code(email: str, sql: SQL) -> Response:
        code = Code(email=email, digits=f"{secrets.randbelow(1_000_000):06}")
        sql.add(code)
        try:
            await sql.commit()  # takes the place of one that has expired, never of one that lives
        except IntegrityError:
            raise HTTPException(429, "A code was sent within the last five minutes") from None
        send(email, code.digits)
        return Response(status_code=202)

    @app.post("/codes/{email}/attempt", status_code=204)  # noqa: FAST003 - live_code() takes it
    async def attempt(given: Attempt, code: LiveCode, sql: SQL) -> Response:
        if not secrets.compare_digest(given.digits.encode(), code.digits.encode()):
            mine = Code.email == code.email
            count = update(Code).where(mine).values(tries=Code.tries + 1).returning(Code.tries)
            # A wrong attempt wins no time: this write alone doesn't start the five minutes again.
            tries = await sql.scalar(count, execution_options={"keep_last_modified": True})
            if tries == TRIES:
                await sql.execute(delete(Code).where(mine))
            await sql.commit()
            raise HTTPException(403, "That is not the code")
        await sql.delete(code)
        await sql.commit()
        await Presence(id=code.email).save()
        return Response(status_code=204)

    @app.put("/online/{person}", status_code=204)
    async def sign_of_life(person: str) -> Response:
        if not await Presence.find(Presence.id == person).touch():
            raise HTTPException(404, f"{person} is offline: log in again")
        return Response(status_code=204)

    @app.get("/online")
    async def online() -> list[Online]:
        return [
            Online(person=each.id, seconds_left=round(each.time_left.total_seconds()))
            async for each in Presence.find().sort("_id")
            if each.time_left is not None
        ]

    return app


def main(url: str = "mongodb://127.0.0.1:27017") -> None:
    """Serve it."""
    import uvicorn  # noqa: PLC0415 - only to be served by hand
    from pymongo import AsyncMongoClient  # noqa: PLC0415

    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url)
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(f"sqlite+aiosqlite:///{folder}/codes.sqlite3", client["example_online"])
        uvicorn.run(app, port=8000)


if __name__ == "__main__":
    main(*sys.argv[1:])
