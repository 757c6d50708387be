"""Seats whose holds end: a FastAPI application with SQLAlchemy that tells its clients at once.

Run it: ``python examples/seat_events.py`` serves http://127.0.0.1:8000/docs, with an SQLite file
that is removed at the end.

A hold lasts thirty seconds, until it is paid. When it has run out, the seat is free at that very
instant, for any query. An event releases it: a handler writes that into a log, in a transaction of
its own, and into the event streams of all clients who listen to ``GET /releases``. The worker of
the events runs for as long as the application does. Of many processes one sweeps, and each event
goes to one of them, so the streams follow the log, which all of them share.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, FastAPI, Header, HTTPException, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from sqlalchemy import String, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm import NEVER
from ttl_odm.events import AsyncEventWorker, Expiry, on_expired
from ttl_odm.sqlalchemy import ExpiredError, TTLMixin

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sqlalchemy.ext.asyncio import AsyncEngine

Person = Annotated[str, Header(alias="X-Person", description="Who is asking")]


class Base(DeclarativeBase):
    """The example's declarative base."""


class SeatHold(TTLMixin, Base):
    """A seat that somebody has taken: for half a minute, or for good once it is paid."""

    __tablename__ = "seat_holds"
    __ttl__ = 30

    seat: Mapped[str] = mapped_column(String(20), primary_key=True)
    person: Mapped[str] = mapped_column(String(100))


class Release(Base):
    """A hold that has ended without being paid."""

    __tablename__ = "releases"

    id: Mapped[int] = mapped_column(primary_key=True)
    event: Mapped[str] = mapped_column(String(32), unique=True)
    seat: Mapped[str] = mapped_column(String(20))
    person: Mapped[str] = mapped_column(String(100))


class Seat(BaseModel):
    """What the application says of a seat."""

    seat: str
    person: str
    seconds_left: int | None


class Released(BaseModel):
    """What the application says of a hold that has ended."""

    id: int
    seat: str
    person: str


async def session_of(request: Request) -> AsyncIterator[AsyncSession]:
    """Give a request a session."""
    async with AsyncSession(request.app.state.engine, expire_on_commit=False) as session:
        yield session


SQL = Annotated[AsyncSession, Depends(session_of)]


def shown(hold: SeatHold) -> Seat:
    """Return what a client sees of a hold."""
    left = hold.time_left
    seconds = None if left is None else round(left.total_seconds())
    return Seat(seat=hold.seat, person=hold.person, seconds_left=seconds)


async def releases_after(engine: AsyncEngine, last: int) -> list[Released]:
    """Return what has been released since."""
    async with AsyncSession(engine) as session:
        later = select(Release).where(Release.id > last).order_by(Release.id)
        return [
            Released(id=one.id, seat=one.seat, person=one.person)
            for one in await session.scalars(later)
        ]


async def release_stream(engine: AsyncEngine, last: int, poll: float | None) -> AsyncIterator[str]:
    """Yield what has been released since, as server-sent events; without `poll` only once."""
    while True:
        for released in await releases_after(engine, last):
            last = released.id
            yield f"id: {last}\nevent: released\ndata: {released.model_dump_json()}\n\n"
        if poll is None:
            return
        await asyncio.sleep(poll)


def handle_releases(engine: AsyncEngine) -> None:
    """Let each hold that has run out be written into the log."""

    @on_expired(SeatHold, include=["person"], name="release")
    async def release(event: Expiry) -> None:
        row = Release(event=event.id, seat=event.row["seat"], person=event.row["person"])
        async with AsyncSession(engine) as session:
            session.add(row)
            with suppress(IntegrityError):  # delivered twice: an event's id is unique in the log
                await session.commit()


def create_app(url: str, *, poll: float = 0.5) -> FastAPI:
    """Make the application.

    Args:
        url: SQLAlchemy's URL, with an asynchronous driver.
        poll: Seconds between two looks for holds that have run out, and for what was released.
    """
    engine = create_async_engine(url)
    handle_releases(engine)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.engine = engine
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)  # also the tables of the events
        worker = AsyncEventWorker(engine, Base, poll=poll)
        task = asyncio.create_task(worker.run_forever())
        yield
        worker.stop()
        await task
        await engine.dispose()

    app = FastAPI(title="Seats", lifespan=lifespan)

    @app.get("/seats")
    async def taken(sql: SQL) -> list[Seat]:
        holds = await sql.scalars(select(SeatHold).order_by(SeatHold.seat))
        return [shown(hold) for hold in holds]

    @app.put("/seats/{seat}", status_code=201)
    async def take(seat: str, person: Person, sql: SQL) -> Seat:
        hold = SeatHold(seat=seat, person=person)
        sql.add(hold)
        try:
            await sql.commit()  # takes the place of a hold that has run out, which has its event
        except IntegrityError:
            raise HTTPException(409, f"{seat} is taken") from None
        return shown(hold)

    @app.post("/seats/{seat}/payment", status_code=204)
    async def pay(seat: str, person: Person, sql: SQL) -> Response:
        hold = await sql.get(SeatHold, seat)
        if hold is None or hold.person != person:
            raise HTTPException(404, f"{person} doesn't hold {seat}")
        hold.ttl = NEVER
        try:
            await sql.commit()
        except ExpiredError:  # it ran out between the two
            raise HTTPException(404, f"{seat} ran out") from None
        return Response(status_code=204)

    @app.get("/releases")
    async def releases(after: int = 0, *, follow: bool = True) -> StreamingResponse:
        stream = release_stream(engine, after, poll if follow else None)
        return StreamingResponse(stream, media_type="text/event-stream")

    return app


def main() -> None:
    """Serve it."""
    import uvicorn  # noqa: PLC0415 - only to be served by hand

    with tempfile.TemporaryDirectory() as folder:
        app = create_app(f"sqlite+aiosqlite:///{folder}/seats.sqlite3")
        uvicorn.run(app, port=8000, timeout_graceful_shutdown=1)  # event streams don't end


if __name__ == "__main__":
    main()
