"""What the state machine writes: models whose keys are made in every way, and what they hold.

`World` is the plain Python model. It knows the contract and nothing of SQL: which rows are stored,
which of them are live, and what a row may not have in common with a live one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import Computed, ForeignKey, String, UniqueConstraint, func
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column

from ttl_odm import Stored
from ttl_odm.core import effective_ttl
from ttl_odm.sqlalchemy import TTLMixin

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
DEFAULT = 10

Key = tuple[Any, ...]


class Base(DeclarativeBase):
    """All models of the machine."""


class WebSession(TTLMixin, Base):
    """A key that the application makes, and a unique value."""

    __tablename__ = "state_sessions"
    __ttl__ = DEFAULT
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "user"}

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    kind: Mapped[str] = mapped_column(String(10))
    email: Mapped[str | None] = mapped_column(String(80), unique=True)
    views: Mapped[int] = mapped_column(default=0)


class AdminSession(WebSession):
    """The lifetime, and one key, are in the base's table; another key is in its own."""

    __tablename__ = "state_admin_sessions"
    __mapper_args__ = {"polymorphic_identity": "admin"}

    id: Mapped[str] = mapped_column(
        ForeignKey("state_sessions.id", ondelete="CASCADE"), primary_key=True
    )
    badge: Mapped[str | None] = mapped_column(String(10), unique=True)
    level: Mapped[int] = mapped_column(default=0)


class SeatColumns:
    """Composite keys, parts of which the server or SQLAlchemy makes, and a generated one."""

    @declared_attr.directive
    def __table_args__(cls) -> tuple[UniqueConstraint, ...]:  # noqa: N805 (a class's)
        """A constraint is one table's."""
        return (UniqueConstraint("ns", "code"), UniqueConstraint("day", "slot"))

    hall: Mapped[str] = mapped_column(String(10), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    ns: Mapped[str] = mapped_column(String(10), server_default="main")
    code: Mapped[str | None] = mapped_column(String(10))
    day: Mapped[str] = mapped_column(String(10), default=func.lower("MON"))
    slot: Mapped[int | None]
    guest: Mapped[str | None] = mapped_column(String(10))
    guest_key: Mapped[str | None] = mapped_column(
        String(10), Computed("lower(guest)", persisted=True), unique=True
    )


class Seat(SeatColumns, TTLMixin, Base):
    """With a default that the model declares."""

    __tablename__ = "state_seats"
    __ttl__ = DEFAULT


class StoredSeat(SeatColumns, TTLMixin, Base):
    """With one that the database stores."""

    __tablename__ = "state_stored_seats"
    __ttl__ = Stored(DEFAULT)


@dataclass
class Row:
    """One row.

    Attributes:
        ts: its ``_ts``.
        ttl: its own ttl.
        values: its other columns.
        life: the same as long as the row is, however it changes.
    """

    ts: datetime
    ttl: int | None
    values: dict[str, Any]
    life: object = field(default_factory=object, compare=False)


class World:
    """The moment, and the rows of a model and of the classes below it.

    Args:
        uniques: what no two rows may have in common, the primary key first.

    Attributes:
        default: the default ttl.
        rows: what is stored, live or not, by primary key.
        displaced: expired rows that may be gone, since a write that matched no row made room.
    """

    def __init__(self, *uniques: tuple[str, ...]) -> None:
        self.uniques = uniques
        self.now = START
        self.default: int | None = DEFAULT
        self.rows: dict[Key, Row] = {}
        self.displaced: set[Key] = set()

    def is_live(self, row: Row) -> bool:
        """Whether a row exists."""
        seconds = effective_ttl(self.default, row.ttl)
        return seconds is None or row.ts + timedelta(seconds=seconds) > self.now

    def having(self, **values: Any) -> dict[Key, Row]:
        """The rows that have these values, live or not."""
        return {k: row for k, row in self.rows.items() if values.items() <= row.values.items()}

    def live(self, **values: Any) -> dict[Key, Row]:
        """The rows that exist and have these values."""
        return {key: row for key, row in self.having(**values).items() if self.is_live(row)}

    def key_of(self, values: dict[str, Any]) -> Key:
        """The primary key."""
        return tuple(values[name] for name in self.uniques[0])

    def holders(self, values: dict[str, Any]) -> set[Key]:
        """The rows that have a unique value in common with these values."""
        taken = {(names, part) for names in self.uniques if (part := _part(values, names))}
        return {
            key
            for key, row in self.rows.items()
            if any((names, _part(row.values, names)) in taken for names in self.uniques)
        }

    def insert(self, ttl: int | None, values: dict[str, Any]) -> bool:
        """Store a row in place of expired ones; False where a live one is in its way."""
        return self._put(Row(self.now, ttl, values), set())

    def change(self, key: Key, values: dict[str, Any]) -> bool:
        """Give a live row other values; False where another live one has one of them."""
        row = self.rows[key]
        return self._put(replace(row, ts=self.now, values={**row.values, **values}), {key})

    def _put(self, row: Row, own: set[Key]) -> bool:
        holders = self.holders(row.values)
        if (holders - own) & self.live().keys():
            return False
        for key in holders | own:
            del self.rows[key]
        self.rows[self.key_of(row.values)] = row
        return True


def _part(values: dict[str, Any], names: tuple[str, ...]) -> Key | None:
    part = tuple(values.get(name) for name in names)
    return None if None in part else part
