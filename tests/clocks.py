"""Standing the database's clock still, and ageing rows, without sleeping and without the gate.

Both go below SQLAlchemy's compiler, by raw SQL and the driver's own means, so that what they
set up can't be wrong in the way that the code under test is.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from sqlalchemy import inspect, text
from sqlalchemy.orm.attributes import set_committed_value

from ttl_odm.dialects import EPOCH, family_named

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Connection
    from sqlalchemy.engine import Dialect

_ON_PURPOSE = {"include_expired": True}
"""For engines that look at raw SQL, too."""


def family_of(dialect: Dialect) -> str:
    """Return the name of a dialect, of which MariaDB has two."""
    family = family_named(dialect.name)
    assert family is not None
    return family.family


def stop_clock(connection: Connection, instant: datetime) -> None:
    """Let a connection's database tell this instant as its now, whenever it is asked.

    Args:
        connection: the connection; others go on as before.
        instant: an aware datetime of whole milliseconds.
    """
    microseconds = (instant - EPOCH).total_seconds()
    if connection.dialect.name == "sqlite":
        julian = microseconds / 86400 + 2440587.5
        connection.connection.create_function("julianday", 1, lambda _: julian)  # type: ignore[attr-defined]
    elif connection.dialect.name == "postgresql":
        # Functions in a schema that is named before pg_catalog win over the built-in ones.
        connection.execute(text("CREATE SCHEMA IF NOT EXISTS stopped_clock"))
        for function in ("statement_timestamp", "clock_timestamp"):
            connection.execute(
                text(
                    f"CREATE OR REPLACE FUNCTION stopped_clock.{function}() RETURNS timestamptz "
                    f"LANGUAGE sql STABLE AS $$ SELECT '{instant.isoformat()}'::timestamptz $$"
                )
            )
        connection.execute(text("SET LOCAL search_path = stopped_clock, pg_catalog, public"))
    else:
        connection.execute(text(f"SET timestamp = {microseconds:.6f}"))


def set_last_modified(connection: Connection, table: str, key: object, instant: datetime) -> None:
    """Write a row's ``_ts``, raw."""
    since = instant - EPOCH
    values: dict[str, object] = {
        "sqlite": round(since.total_seconds() * 1000),
        "mysql": round(since.total_seconds() * 1_000_000),
        "postgresql": instant,
    }
    connection.execute(
        text(f"UPDATE {table} SET _ts = :ts WHERE id = :id"),  # noqa: S608 - a test's own table
        {"ts": values[family_of(connection.dialect)], "id": key},
        execution_options=_ON_PURPOSE,
    )


def age(connection: Connection, table: str, key: object, seconds: float) -> None:
    """Move a row's ``_ts`` into the past, raw."""
    second = {
        "sqlite": "1000",
        "mysql": "1000000",
        "postgresql": "interval '1 second'",
    }[family_of(connection.dialect)]
    connection.execute(
        text(f"UPDATE {table} SET _ts = _ts - {seconds} * {second} WHERE id = :id"),  # noqa: S608
        {"id": key},
        execution_options=_ON_PURPOSE,
    )


def let_pass(connection: Connection, row: object, seconds: float) -> None:
    """Let time pass for an object in memory and for its row, both by ageing them.

    The object's class has `TTLMixin`, and one column for a primary key.
    """
    state = inspect(row)
    assert state is not None
    table = state.mapper.base_mapper.local_table
    (key,) = state.identity
    age(connection, table.name, key, seconds)
    if "last_modified" in state.dict:
        earlier = state.dict["last_modified"] - timedelta(seconds=seconds)
        set_committed_value(row, "last_modified", earlier)
