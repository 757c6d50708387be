"""The tables that `FamilyContract` fills: the contract's columns, and one for each kind of column.

This module must not know a database.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from sqlalchemy import BigInteger, Date, DateTime, Double, Numeric, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm import ExpireAt
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.types import TypeEngine

HOUR: Final = 3600
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND: Final = timedelta(microseconds=1)


class Base(DeclarativeBase):
    """The tables' own."""


class Cart(TTLMixin, Base):
    """A row with the contract's columns, and with keys to take."""

    __tablename__ = "carts"
    __ttl__: ClassVar[Any] = HOUR
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str | None] = mapped_column(String(40), unique=True)
    views: Mapped[int] = mapped_column(default=0)


class Kind(NamedTuple):
    """A kind of column that an application may have: its type, and how it keeps an instant."""

    type: TypeEngine[Any]
    unit: str | None
    keeps: Callable[[datetime], Any]


def _microseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // _MICROSECOND


def _rounded_to_days(instant: datetime) -> Any:
    return instant.date()


KINDS: Final[dict[str, Kind]] = {
    "naive": Kind(DateTime(), None, lambda instant: instant.replace(tzinfo=None)),
    "zoned": Kind(DateTime(timezone=True), None, lambda instant: instant),
    "days": Kind(Date(), None, _rounded_to_days),
    "seconds": Kind(BigInteger(), "s", lambda instant: _microseconds(instant) // 1_000_000),
    "milliseconds": Kind(BigInteger(), "ms", lambda instant: _microseconds(instant) // 1_000),
    "microseconds": Kind(BigInteger(), "us", _microseconds),
    "doubles": Kind(Double(), "s", lambda instant: _microseconds(instant) / 1e6),
    "decimals": Kind(
        Numeric(20, 6), "s", lambda instant: Decimal(_microseconds(instant)) / 1_000_000
    ),
    "texts": Kind(String(40), "iso", lambda instant: instant.isoformat()),
}


def _model(name: str, kind: Kind) -> Any:
    members = {
        "__tablename__": f"kind_{name}",
        "__ttl__": ExpireAt("ends", unit=kind.unit),  # type: ignore[arg-type]
        "id": mapped_column(BigInteger(), primary_key=True, autoincrement=False),
        "ends": mapped_column(kind.type),
    }
    return type(name.title(), (TTLMixin, Base), members)


MODELS: Final[dict[str, Any]] = {name: _model(name, kind) for name, kind in KINDS.items()}
