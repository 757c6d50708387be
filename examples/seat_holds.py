"""Seats that are held for ten minutes while somebody pays: a FastAPI application with Beanie.

Run it: ``python examples/seat_holds.py [MONGODB_URL]`` serves http://127.0.0.1:8000/docs, on the
database ``example_seats`` of ``mongodb://127.0.0.1:27017`` unless another is named.

A hold is a document whose ``_id`` is the seat. Nothing here looks at a clock: a hold that has run
out is not found, cannot be bought, and its seat is free for the next one, at that very instant.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from beanie import Document, init_beanie
from fastapi import FastAPI, Header, HTTPException, Response
from pydantic import BaseModel
from pymongo.errors import DuplicateKeyError

from ttl_odm import NEVER
from ttl_odm.beanie import ExpiredError, TTLMixin, ensure_indexes, ttl_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Person = Annotated[str, Header(alias="X-Person", description="Who is asking")]


class Hold(TTLMixin, Document):
    """A seat that somebody has taken: for ten minutes, or for good once it is paid."""

    __ttl__ = 600

    id: str
    person: str
    is_paid: bool = False

    class Settings:
        """Beanie's settings."""

        name = "holds"


class Seat(BaseModel):
    """What the application tells about a seat."""

    seat: str
    person: str
    is_paid: bool
    seconds_left: int | None


def shown(hold: Hold) -> Seat:
    """Return what a client sees of a hold."""
    left = hold.time_left
    seconds = None if left is None else round(left.total_seconds())
    return Seat(seat=hold.id, person=hold.person, is_paid=hold.is_paid, seconds_left=seconds)


async def hold_of(seat: str, person: str) -> Hold:
    """Return a person's hold on a seat.

    Raises:
        HTTPException: 404, there is none (any more).
    """
    hold = await Hold.find_one(Hold.id == seat, Hold.person == person)
    if hold is None:
        raise HTTPException(404, f"{person} doesn't hold {seat}: it was never held, or ran out")
    return hold


def create_app(database: Any) -> FastAPI:
    """Make the application.

    Args:
        database: PyMongo's AsyncDatabase (or Motor's, with Beanie 1).
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await init_beanie(database=ttl_database(database), document_models=[Hold])
        await ensure_indexes(Hold)  # MongoDB deletes what has run out, by itself
        yield

    app = FastAPI(title="Seats", lifespan=lifespan)

    @app.get("/seats")
    async def taken() -> list[Seat]:
        return [shown(hold) async for hold in Hold.find().sort("_id")]

    @app.put("/seats/{seat}", status_code=201)
    async def take(seat: str, person: Person) -> Seat:
        hold = Hold(id=seat, person=person)
        try:
            await hold.insert()
        except DuplicateKeyError:
            raise HTTPException(409, f"{seat} is taken") from None
        return shown(hold)

    @app.post("/seats/{seat}/more-time")
    async def keep(seat: str, person: Person) -> Seat:
        hold = await hold_of(seat, person)
        await hold.touch()
        return shown(hold)

    @app.post("/seats/{seat}/payment")
    async def pay(seat: str, person: Person) -> Seat:
        hold = await hold_of(seat, person)
        hold.is_paid = True
        hold.ttl = NEVER
        try:
            await hold.save()
        except ExpiredError:  # it ran out between the two
            raise HTTPException(404, f"{seat} ran out") from None
        return shown(hold)

    @app.delete("/seats/{seat}", status_code=204)
    async def leave(seat: str, person: Person) -> Response:
        await (await hold_of(seat, person)).delete()
        return Response(status_code=204)

    return app


def main(url: str = "mongodb://127.0.0.1:27017") -> None:
    """Serve it."""
    import uvicorn  # noqa: PLC0415 - only to be served by hand
    from pymongo import AsyncMongoClient  # noqa: PLC0415

    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url)
    uvicorn.run(create_app(client["example_seats"]), port=8000)


if __name__ == "__main__":
    main(*sys.argv[1:])
