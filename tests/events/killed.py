"""What processes do that tests kill: hold seats, let them expire, and handle their events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import String, create_engine, insert
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.events.kills import LIFE, LIFETIME, hold_seats, work
from ttl_odm.events import Expiry, on_expired
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class Base(DeclarativeBase):
    """The base of the models."""


class SeatHold(TTLMixin, Base):
    """A seat that is held for a second."""

    __tablename__ = "seat_holds"
    __ttl__ = LIFETIME
    seat: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    life: Mapped[str] = mapped_column(String(LIFE))


class Life(Base):
    """That a seat was held."""

    __tablename__ = "lives"
    life: Mapped[str] = mapped_column(String(LIFE), primary_key=True)


class Handled(Base):
    """That an event was handled."""

    __tablename__ = "handled"
    id: Mapped[int] = mapped_column(primary_key=True)
    event: Mapped[str] = mapped_column(String(32))
    life: Mapped[str] = mapped_column(String(LIFE))


def run(url: str, what: str, ready: Connection) -> None:
    """Write or work, for ever."""
    engine = create_engine(url)

    @on_expired(SeatHold, include=["life"], name="release")
    def release(event: Expiry) -> None:
        with engine.begin() as connection:
            row = {"event": event.id, "life": event.row["life"]}
            connection.execute(insert(Handled), [row])

    def hold(seat: int, life: str) -> None:
        with Session(engine) as session, session.begin():
            session.add(SeatHold(seat=seat, life=life))
            session.add(Life(life=life))

    if what == "work":
        work(engine, Base, ready)
    hold_seats(hold, (IntegrityError, OperationalError), ready)
