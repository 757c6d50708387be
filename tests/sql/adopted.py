"""Tables that exist, with every kind of column that may hold instants."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

from sqlalchemy import (
    DECIMAL,
    BigInteger,
    Date,
    DateTime,
    Double,
    Float,
    Integer,
    MetaData,
    Numeric,
    String,
    Text,
    TypeDecorator,
)
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.orm import DeclarativeBase, mapped_column

from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
MILLISECOND = timedelta(milliseconds=1)
DAY = timedelta(days=1)


class UtcDateTime(TypeDecorator[datetime]):
    """As sqlalchemy-utc and advanced-alchemy have one: aware in Python, in UTC below."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        if value is None:
            return None
        assert value.tzinfo is not None
        value = value.astimezone(timezone.utc)
        return value if dialect.name == "postgresql" else value.replace(tzinfo=None)

    def process_result_value(self, value: Any, dialect: Any) -> Any:  # noqa: ARG002
        if value is None or value.tzinfo is not None:
            return value
        return value.replace(tzinfo=timezone.utc)


class EpochDateTime(TypeDecorator[datetime]):
    """A datetime for Python that is kept as seconds since 1970."""

    impl = Integer
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> Any:  # noqa: ARG002
        return None if value is None else (value - EPOCH) // SECOND

    def process_result_value(self, value: Any, dialect: Any) -> Any:  # noqa: ARG002
        return None if value is None else EPOCH + value * SECOND


class Kind(NamedTuple):
    """A kind of column.

    Attributes:
        type: its type.
        options: what the policy says of it.
        value: what Python writes for an instant.
        tick: the steps in which it keeps time.
        length: how much later than its value a row's instant is.
        databases: where it is.
    """

    type: Any
    options: dict[str, Any]
    value: Callable[[datetime], Any]
    tick: timedelta
    length: timedelta = timedelta(0)
    databases: tuple[str, ...] = ("sqlite", "postgresql", "mysql")


def naive(instant: datetime) -> datetime:
    return instant.replace(tzinfo=None)


def in_paris(instant: datetime) -> datetime:
    return instant.astimezone(ZoneInfo("Europe/Paris")).replace(tzinfo=None)


def iso(instant: datetime) -> str:
    return instant.isoformat()


PARIS = {"timezone": "Europe/Paris"}
NO_MYSQL = ("sqlite", "postgresql")

KINDS: dict[str, Kind] = {
    "aware": Kind(DateTime(timezone=True), {}, lambda i: i, MILLISECOND, databases=NO_MYSQL),
    "naive": Kind(DateTime(), {}, naive, MILLISECOND, databases=NO_MYSQL),
    "aware_s": Kind(DateTime(timezone=True), {}, lambda i: i, SECOND, databases=("mysql",)),
    "naive_s": Kind(DateTime(), {}, naive, SECOND, databases=("mysql",)),
    "datetime6": Kind(mysql.DATETIME(fsp=6), {}, naive, MILLISECOND, databases=("mysql",)),
    "timestamp": Kind(mysql.TIMESTAMP(), {}, naive, SECOND, databases=("mysql",)),
    "timestamp6": Kind(mysql.TIMESTAMP(fsp=6), {}, naive, MILLISECOND, databases=("mysql",)),
    "variant": Kind(
        DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb"), {}, naive, MILLISECOND
    ),
    "utc_decorated": Kind(
        UtcDateTime().with_variant(UtcDateTime(), "oracle"), {}, lambda i: i, SECOND
    ),
    "epoch_decorated": Kind(EpochDateTime(), {"unit": "s"}, lambda i: i, SECOND),
    "paris": Kind(DateTime(), PARIS, in_paris, SECOND),
    "kolkata": Kind(
        DateTime(),
        {"timezone": "Asia/Kolkata"},
        lambda i: naive(i + timedelta(hours=5, minutes=30)),
        SECOND,
    ),
    "day": Kind(Date(), {}, lambda i: i.date(), DAY, DAY),
    "paris_day": Kind(Date(), PARIS, lambda i: in_paris(i).date(), DAY, DAY),
    "seconds": Kind(Integer(), {"unit": "s"}, lambda i: (i - EPOCH) // SECOND, SECOND),
    "milliseconds": Kind(
        BigInteger(), {"unit": "ms"}, lambda i: (i - EPOCH) // MILLISECOND, MILLISECOND
    ),
    "microseconds": Kind(
        BigInteger(),
        {"unit": "us"},
        lambda i: (i - EPOCH) // timedelta(microseconds=1),
        MILLISECOND,
    ),
    "double": Kind(Double(), {"unit": "s"}, lambda i: i.timestamp(), MILLISECOND),
    "double_ms": Kind(Double(), {"unit": "ms"}, lambda i: i.timestamp() * 1000, MILLISECOND),
    "double_us": Kind(Double(), {"unit": "us"}, lambda i: i.timestamp() * 1e6, MILLISECOND),
    # As Home Assistant's last_updated_ts.
    "recorded": Kind(
        Float()
        .with_variant(mysql.DOUBLE(asdecimal=False), "mysql", "mariadb")
        .with_variant(postgresql.DOUBLE_PRECISION(), "postgresql"),
        {"unit": "s"},
        lambda i: i.timestamp(),
        MILLISECOND,
    ),
    "numeric": Kind(
        Numeric(20, 6, asdecimal=False), {"unit": "s"}, lambda i: i.timestamp(), MILLISECOND
    ),
    "decimal": Kind(
        DECIMAL(20, 3),
        {"unit": "ms"},
        lambda i: Decimal((i - EPOCH) // MILLISECOND),
        MILLISECOND,
        databases=("postgresql", "mysql"),
    ),
    "decimal_s": Kind(
        DECIMAL(12, 0),
        {"unit": "s"},
        lambda i: Decimal((i - EPOCH) // SECOND),
        SECOND,
        databases=("postgresql", "mysql"),
    ),
    "iso": Kind(String(40), {"unit": "iso"}, iso, MILLISECOND),
    "iso_text": Kind(Text(), {"unit": "iso"}, lambda i: naive(i).isoformat(" ") + "Z", MILLISECOND),
}


def kinds_of(database: str) -> dict[str, Kind]:
    """Those that a database has."""
    return {name: kind for name, kind in KINDS.items() if database in kind.databases}


def table(name: str, policy: Any, base: Any, type_: Any, **namespace: Any) -> Any:
    """Declare a model whose column ``at`` is of some type."""
    return type(
        name.title().replace("_", ""),
        (TTLMixin, base),
        {
            "__tablename__": f"t_{name}",
            "__ttl__": policy,
            "id": mapped_column(String(40), primary_key=True),
            "at": mapped_column(type_, nullable=True),
            "views": mapped_column(Integer, default=0),
            **namespace,
        },
    )


def new_base() -> Any:
    class Base(DeclarativeBase):
        metadata = MetaData()

    return Base


def midnight_in_paris(day: date) -> datetime:
    """The instant at which a day begins."""
    begin = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo("Europe/Paris"))
    return begin.astimezone(timezone.utc)
