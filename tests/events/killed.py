"""What processes do that tests kill: hold seats, let them expire, and handle their events."""

from __future__ import annotations

import time
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING
from uuid import uuid4

from sqlalchemy import String, create_engine, insert
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm.events import EventWorker, Expiry, on_expired
from ttl_odm.events import worker as workers
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sweeper import TransientStoreError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

REST = 0.02
"""Seconds, or the other processes would wait for a core."""


class Base(DeclarativeBase):
    """The base of the models."""


class SeatHold(TTLMixin, Base):
    """A seat that is held for a second."""

    __tablename__ = "seat_holds"
    __ttl__ = 1
    seat: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    life: Mapped[str] = mapped_column(String(32))


class Life(Base):
    """That a seat was held."""

    __tablename__ = "lives"
    life: Mapped[str] = mapped_column(String(32), primary_key=True)


class Handled(Base):
    """That an event was handled."""

    __tablename__ = "handled"
    id: Mapped[int] = mapped_column(primary_key=True)
    event: Mapped[str] = mapped_column(String(32))
    life: Mapped[str] = mapped_column(String(32))


def run(url: str, what: str, ready: Connection) -> None:
    """Write or work, for ever."""
    engine = create_engine(url)

    @on_expired(SeatHold, include=["life"], name="release")
    def release(event: Expiry) -> None:
        with engine.begin() as connection:
            row = {"event": event.id, "life": event.row["life"]}
            connection.execute(insert(Handled), [row])

    ready.send(None)
    if what == "work":
        workers.LEASE_DURATION = 1.0  # or nobody would sweep for ten seconds after most kills
        worker = EventWorker(engine, Base, poll=0.01, hidden=0.5)
        while True:
            time.sleep(REST)
            with suppress(TransientStoreError):  # of SQLite: another process writes
                worker.run_once()
    random = Random()  # noqa: S311 (any seat will do)
    while True:
        time.sleep(REST)
        life = uuid4().hex
        # Somebody holds it, or another process writes.
        with (
            suppress(IntegrityError, OperationalError),
            Session(engine) as session,
            session.begin(),
        ):
            session.add(SeatHold(seat=random.randrange(50), life=life))
            session.add(Life(life=life))
