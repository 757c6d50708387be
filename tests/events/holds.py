"""What the tests of events share: a model with events, and those that were handled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import String, UniqueConstraint, func, or_, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm.events import Expiry, on_expired
from ttl_odm.events.sqlalchemy import event_tables
from ttl_odm.sqlalchemy import TTLMixin, include_expired

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

HOUR = 3600


def seat_hold(ttl: Any = HOUR, table: str = "seat_holds") -> Any:
    """Declare a model on a base of its own."""

    class Base(DeclarativeBase):
        pass

    class SeatHold(TTLMixin, Base):
        __tablename__ = table
        __table_args__ = (UniqueConstraint("ticket"),)
        __ttl__ = ttl

        seat: Mapped[str] = mapped_column(String(20), primary_key=True)
        person: Mapped[str] = mapped_column(String(20))
        ticket: Mapped[int | None]

    return SeatHold


def handled(model: Any, name: str = "release", **options: Any) -> list[Expiry]:
    """Register a handler, and return the list of what it gets."""
    got: list[Expiry] = []
    on_expired(model, name=name, **options)(got.append)
    return got


def recorded(connection: Connection, model: Any) -> int:
    """How many events the outbox has."""
    events = event_tables(model.metadata).events
    return connection.scalar(select(func.count()).select_from(events)) or 0


def waiting(engine: Engine, model: Any) -> int:
    """How many deliveries nobody has dealt with; others may be kept for a consumer that is new."""
    deliveries = event_tables(model.metadata).deliveries
    is_open = or_(deliveries.c.next_at.is_not(None), deliveries.c.error.is_not(None))
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(deliveries).where(is_open)) or 0


def writes(engine: Engine, sent: list[str], model: Any, row: str) -> list[str]:
    """Write some rows, and return the first words of what is sent; `sent` is the fixture."""
    for turn in range(2):  # the first of an engine asks for its clock
        sent.clear()
        with Session(engine) as session, session.begin():
            session.add(model(seat=f"{row}{turn}", person="ann"))
            session.flush()
            session.execute(update(model).values(person="bob"))
    return [statement.split(maxsplit=1)[0] for statement in sent]


def kept(engine: Engine, model: Any) -> int:
    """How many rows there are, expired ones too."""
    with engine.connect() as connection:
        rows = select(func.count()).select_from(model).options(include_expired())
        return connection.scalar(rows) or 0
