"""A database as applications have it today: tables that expire in every way, without ttl_odm."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    Column,
    Date,
    DateTime,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    func,
    insert,
    select,
)

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Engine

METADATA = MetaData()


def key() -> Column[int]:
    return Column("id", Integer, primary_key=True)


SESSIONS = Table(
    "login_sessions",
    METADATA,
    key(),
    Column("data", String(100)),
    Column("expires_at", DateTime(timezone=True)),
    Index("ix_login_sessions_expires_at", "expires_at"),
)
TOKENS = Table(
    "oauth2_token",
    METADATA,
    key(),
    Column("issued_at", Integer, nullable=False),
    Column("expires_in", Integer, nullable=False),
)
RESULTS = Table("celery_taskmeta", METADATA, key(), Column("date_done", DateTime))
CACHE = Table("cache_entries", METADATA, key(), Column("expiry_ms", BigInteger))
VOUCHERS = Table("vouchers", METADATA, key(), Column("valid_until", Date))
LINKS = Table("magic_links", METADATA, key(), Column("expires", String(40)))
USERS = Table("users", METADATA, key(), Column("password_expires_at", DateTime(timezone=True)))
HOLDS = Table("holds", METADATA, key(), Column("expires", Float))
ORDERS = Table("orders", METADATA, key(), Column("created_at", DateTime), Column("total", Integer))

HOUR = 3600


def fill(engine: Engine, now: datetime) -> None:
    """Make the tables; one row of four has expired in each."""
    METADATA.create_all(engine)
    ends = [now + timedelta(seconds=left) for left in (-HOUR, HOUR, 2 * HOUR, 3 * HOUR)]
    naive = [each.replace(tzinfo=None) for each in ends]
    rows: list[tuple[Table, str, list[Any]]] = [
        (SESSIONS, "expires_at", ends),
        (RESULTS, "date_done", [each - timedelta(days=1) for each in naive]),
        (CACHE, "expiry_ms", [int(each.timestamp() * 1000) for each in ends]),
        (VOUCHERS, "valid_until", [now.date() + timedelta(days=n) for n in (-2, 2, 3, 4)]),
        (LINKS, "expires", [f"{each:%Y-%m-%dT%H:%M:%SZ}" for each in ends]),
        (USERS, "password_expires_at", ends),
        (HOLDS, "expires", [each.timestamp() for each in ends]),
        (ORDERS, "created_at", naive),
    ]
    with engine.begin() as connection:
        for table, column, values in rows:
            connection.execute(insert(table), [{column: value} for value in values])
        connection.execute(
            insert(TOKENS),
            [
                {"id": 1, "issued_at": int(now.timestamp()) - 2 * HOUR, "expires_in": HOUR},
                {"id": 2, "issued_at": int(now.timestamp()) - 2 * HOUR, "expires_in": 0},
                {"id": 3, "issued_at": int(now.timestamp()), "expires_in": HOUR},
                {"id": 4, "issued_at": int(now.timestamp()), "expires_in": HOUR},
            ],
        )


def contents(engine: Engine) -> dict[str, Any]:
    """Read everything that is in the database, names of tables and indexes included."""
    found = MetaData()
    found.reflect(engine)
    with engine.connect() as connection:
        return {
            name: (
                sorted(index.name or "" for index in table.indexes),
                connection.execute(select(func.count()).select_from(table)).scalar_one(),
                connection.execute(select(table).order_by(table.c.id)).all(),
            )
            for name, table in found.tables.items()
        }
