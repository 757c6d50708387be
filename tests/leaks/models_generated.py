"""Keys of which the database, or SQLAlchemy, makes a part: defaults, generated columns, onupdate.

None hangs on a clock: rows that were written before midnight would have other keys after it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Computed, String, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from tests.leaks.data import DAY


def office(mixin: type, base: Any) -> dict[str, Any]:
    """Declare classes with such keys."""

    class Setting(mixin, base, ttl=DAY):
        """Defaults of the server's: two literals, and SQL."""

        __tablename__ = "settings"
        __table_args__ = (
            UniqueConstraint("space", "name"),
            UniqueConstraint("level", "code"),
            UniqueConstraint("area", "item"),
        )

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        space: Mapped[str] = mapped_column(String(40), server_default="ma'in %")
        name: Mapped[str | None] = mapped_column(String(40))
        level: Mapped[int] = mapped_column(server_default="1")
        code: Mapped[str | None] = mapped_column(String(40))
        area: Mapped[str] = mapped_column(String(40), server_default=text("(lower('MAIN'))"))
        item: Mapped[str | None] = mapped_column(String(40))

    class Arrival(mixin, base, ttl=DAY):
        """Defaults of Python's: SQL, a value, and a function."""

        __tablename__ = "arrivals"
        __table_args__ = (UniqueConstraint("hall", "seat"), UniqueConstraint("gate", "day", "pass"))

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        hall: Mapped[str] = mapped_column(String(40), default=func.lower("MAIN"))
        seat: Mapped[str | None] = mapped_column(String(40))
        gate: Mapped[str] = mapped_column(String(40), default="north")
        day: Mapped[int] = mapped_column(default=lambda: 7)
        number: Mapped[str | None] = mapped_column("pass", String(40))

    class Mailbox(mixin, base, ttl=DAY):
        """Generated columns, of one and of a default, and columns that every UPDATE sets."""

        __tablename__ = "mailboxes"
        __table_args__ = (UniqueConstraint("host", "nick"),)

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        email: Mapped[str | None] = mapped_column(String(40))
        lowered: Mapped[str | None] = mapped_column(
            String(40), Computed("lower(email)", persisted=True), unique=True
        )
        domain: Mapped[str] = mapped_column(String(40), server_default="HOME")
        host: Mapped[str | None] = mapped_column(
            String(40), Computed(func.lower(domain.column), persisted=True)
        )
        nick: Mapped[str | None] = mapped_column(String(40))
        mark: Mapped[str | None] = mapped_column(String(40), onupdate="touched", unique=True)
        sign: Mapped[str | None] = mapped_column(
            String(40), onupdate=func.lower("SIGNED"), unique=True
        )

    return {"Setting": Setting, "Arrival": Arrival, "Mailbox": Mailbox}
