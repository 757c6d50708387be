"""An application whose rows expire by columns that it had before."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.sql.sweeping import HOUR
from ttl_odm import ExpireAfter


class Base(DeclarativeBase):
    pass


class Booking(Base):
    __tablename__ = "bookings"
    __ttl__ = ExpireAfter("made_at", HOUR)

    id: Mapped[int] = mapped_column(primary_key=True)
    made_at: Mapped[datetime | None]
