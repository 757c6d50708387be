"""The models that the SQL benchmarks compare, and their rows.

Reads are compared on one and the same table: a model with the policy and a model without one are
mapped to it, so that pages, indexes, statistics and data can't differ. New rows are compared with
two models that have no TTL: one without the two columns, on a table of its own, and one that has
them and is stamped by hand, on the same table again.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    ColumnElement,
    DateTime,
    MetaData,
    String,
    and_,
    insert,
    literal_column,
    or_,
    text,
    true,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column

from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sqlalchemy.rewrite.writes import Stamp
from ttl_odm.sqlalchemy.time.clock import LastModified, Seconds

if TYPE_CHECKING:
    from sqlalchemy import Engine

DAY = 86400
"""The default ttl, in seconds. Nothing that is live expires while a benchmark runs."""

ROWS = 10_000
EXPIRES_EVERY = 71
"""Of so many rows one is expired: 98.6 % are live."""

_OWN_TTL_EVERY = 7
_NEVER_EVERY = 20


class Gated(DeclarativeBase):
    """Models with a TTL."""


class ByHand(DeclarativeBase):
    """Models of the same tables without a policy."""

    metadata = MetaData(info={"ttl_odm": None})


class Plain(DeclarativeBase):
    """Models of tables that have never heard of TTL."""


class ContractColumns:
    """The two columns of `TTLMixin`, without the mixin: what somebody writes by hand."""

    @declared_attr
    def last_modified(cls) -> Mapped[datetime]:  # noqa: N805 - what declared_attr passes
        """When the row was last written."""
        return mapped_column("_ts", LastModified(), default=Stamp(), onupdate=Stamp())

    ttl: Mapped[int | None] = mapped_column(Seconds())


class ItemColumns:
    """What an item has, whoever maps it."""

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    name: Mapped[str] = mapped_column(String(40))
    payload: Mapped[str] = mapped_column(String(200))
    amount: Mapped[int]


class Item(TTLMixin, ItemColumns, Gated):
    """Rows to be read."""

    __tablename__ = "items"
    __ttl__ = DAY


class ItemByHand(ContractColumns, ItemColumns, ByHand):
    """The same rows."""

    __tablename__ = "items"


class Seen(ItemColumns, Plain):
    """Like rows with the date by which somebody without ttl_odm would delete them."""

    __tablename__ = "seen"

    last_seen: Mapped[datetime] = mapped_column(DateTime(timezone=True), index=True)


SEE: Final = text("UPDATE seen SET last_seen = CURRENT_TIMESTAMP WHERE id = :key")
"""How he keeps a row."""


class KeyedColumns:
    """A key that the application makes."""

    key: Mapped[str] = mapped_column(String(40), primary_key=True)
    payload: Mapped[str] = mapped_column(String(200))


class Keyed(TTLMixin, KeyedColumns, Gated):
    """New rows that could meet an expired one under their key."""

    __tablename__ = "keyed"
    __ttl__ = DAY


class KeyedByHand(ContractColumns, KeyedColumns, ByHand):
    """The same table without a policy."""

    __tablename__ = "keyed"


class KeyedPlain(KeyedColumns, Plain):
    """The same model without TTL."""

    __tablename__ = "keyed_plain"


class NumberedColumns:
    """A key that the database makes."""

    id: Mapped[int] = mapped_column(primary_key=True)
    payload: Mapped[str] = mapped_column(String(200))


class Numbered(TTLMixin, NumberedColumns, Gated):
    """New rows that can't meet an expired one."""

    __tablename__ = "numbered"
    __ttl__ = DAY


class NumberedByHand(ContractColumns, NumberedColumns, ByHand):
    """The same table without a policy."""

    __tablename__ = "numbered"


class NumberedPlain(NumberedColumns, Plain):
    """The same model without TTL."""

    __tablename__ = "numbered_plain"


class Named(TTLMixin, NumberedColumns, Gated):
    """A key that the database makes, and a value that must be unique; only counted, not timed."""

    __tablename__ = "named"
    __ttl__ = DAY

    name: Mapped[str] = mapped_column(String(40), unique=True)


class NamedByHand(ContractColumns, NumberedColumns, ByHand):
    """The same table without a policy."""

    __tablename__ = "named"

    name: Mapped[str] = mapped_column(String(40), unique=True)


class NamedPlain(NumberedColumns, Plain):
    """The same model without TTL."""

    __tablename__ = "named_plain"

    name: Mapped[str] = mapped_column(String(40), unique=True)


def is_live(key: int) -> bool:
    """Whether the item with this key is one of those that live."""
    return key % EXPIRES_EVERY != 0


def create_tables(engine: Engine) -> None:
    """Create all tables, fill ``items`` and ``seen``, and tell the planner about these.

    Args:
        engine: one without a policy's traces; it is used for nothing else.
    """
    for base in (Gated, Plain):
        base.metadata.create_all(engine)
    now = datetime.now(timezone.utc)
    with engine.begin() as connection:
        connection.execute(insert(ItemByHand), [item(key, now) for key in range(1, ROWS + 1)])
        connection.execute(insert(Seen), [_seen(key, now) for key in range(1, ROWS + 1)])
    for table in ("items", "seen"):
        analyze(engine, table)


def analyze(engine: Engine, table: str) -> None:
    """Tell the planner about a table.

    Args:
        engine: where.
        table: its name.
    """
    words = {"postgresql": "VACUUM ANALYZE", "mysql": "ANALYZE TABLE"}
    statement = words.get(engine.dialect.name)  # applications hardly ever ANALYZE SQLite
    if statement is not None:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"{statement} {table}"))


def item(key: int, now: datetime) -> dict[str, Any]:
    """The values of a row.

    Args:
        key: its key, which decides whether it lives.
        now: the moment.
    """
    if key % _NEVER_EVERY == 0:
        ttl = -1 if is_live(key) else None
    else:
        ttl = DAY // 2 if key % _OWN_TTL_EVERY == 0 else None
    age = timedelta(seconds=key % 3600) if is_live(key) else timedelta(days=2)
    return {
        "id": key,
        "name": f"item {key}",
        "payload": f"{key:0>100}",
        "amount": key,
        "_ts": now - age,
        "ttl": ttl,
    }


def _seen(key: int, now: datetime) -> dict[str, Any]:
    """The same row in the other table."""
    values = item(key, now)
    values["last_seen"] = values.pop("_ts")
    del values["ttl"]
    return values


def live_by_hand(
    dialect: str, model: Any = ItemByHand, default: object = DAY
) -> ColumnElement[bool]:
    """The condition that somebody who knows the contract writes into his WHERE.

    In SQL of his one database. The default ttl is a number in it, or is looked up.

    Args:
        dialect: the dialect's name.
        model: one with the contract's columns.
        default: SQL for the default ttl, in seconds.
    """
    if dialect == "postgresql":
        now, second = "statement_timestamp()", "interval '1 second'"
    elif dialect == "sqlite":
        now = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
        second = "1000"
    else:
        now, second = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))", "1000000"
    table = model.__tablename__
    return or_(
        and_(model.ttl.is_(None), literal_column(f"{table}._ts > {now} - {default} * {second}")),
        and_(model.ttl > 0, literal_column(f"{table}._ts + {table}.ttl * {second} > {now}")),
        model.ttl == -1,
    )


def expired_by_hand(dialect: str, model: Any) -> ColumnElement[bool]:
    """The condition for the other rows.

    Args:
        dialect: the dialect's name.
        model: one with the contract's columns.
    """
    return live_by_hand(dialect, model).is_not(true())


def empty_tables(engine: Engine) -> None:
    """Give back the room of rolled-back inserts, which PostgreSQL and MariaDB otherwise keep.

    Args:
        engine: one without a policy's traces.
    """
    if engine.dialect.name == "sqlite":
        return
    with engine.begin() as connection:
        for model in (Keyed, KeyedPlain, Numbered, NumberedPlain):
            connection.execute(text(f"TRUNCATE TABLE {model.__tablename__}"))
