"""Processes that tests kill: they hold seats in MongoDB and handle the events of their ends."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from beanie import Document, init_beanie
from pymongo.errors import PyMongoError

from tests.events.kills import HIDDEN, LEASE_DURATION, LIFETIME, REST, SEATS, new_life
from tests.mongo.scratch import connect
from ttl_odm.beanie import TTLMixin, ttl_database
from ttl_odm.events import AsyncEventWorker, Expiry, on_expired
from ttl_odm.events import worker as workers
from ttl_odm.sweeper import TransientStoreError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class SeatHold(TTLMixin, Document):
    """A seat that is held for a second."""

    __ttl__ = LIFETIME
    __ttl_purge__ = "sweeper"
    id: int  # type: ignore[assignment]
    life: str

    class Settings:
        """Beanie's."""

        name = "seat_holds"


def run(url: str, name: str, what: str, ready: Connection) -> None:
    """Write or work, for ever; say when it works, or has written for the first time."""
    asyncio.run(_run(url, name, what, ready))


async def _run(url: str, name: str, what: str, ready: Connection) -> None:
    database = ttl_database(connect(url)[name])
    await init_beanie(database=database, document_models=[SeatHold])

    @on_expired(SeatHold, include=["life"], name="release")
    async def release(event: Expiry) -> None:
        await database["handled"].insert_one({"event": event.id, "life": event.row["life"]})

    await (_work if what == "work" else _write)(database, ready)


async def _work(database: Any, ready: Connection) -> None:
    ready.send(None)
    workers.LEASE_DURATION = LEASE_DURATION
    worker = AsyncEventWorker(database, SeatHold, poll=0.01, hidden=HIDDEN)
    while True:
        await asyncio.sleep(REST)
        with suppress(TransientStoreError):
            await worker.run_once()


async def _write(database: Any, ready: Connection) -> None:
    random = Random()  # noqa: S311 (any seat will do)
    has_written = False
    while True:
        await asyncio.sleep(REST)
        life = new_life()
        started = database.client.start_session()
        session = await started if inspect.isawaitable(started) else started
        with suppress(PyMongoError):  # somebody holds the seat
            async with session:
                opened = session.start_transaction()
                async with await opened if inspect.isawaitable(opened) else opened:
                    await SeatHold(id=random.randrange(SEATS), life=life).insert(session=session)
                    await database["lives"].insert_one({"_id": life}, session=session)
            if not has_written:
                ready.send(None)
                has_written = True
