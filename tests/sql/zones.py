"""Sessions of MariaDB and MySQL in a time zone whose clocks are changed."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from sqlalchemy import event, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine

SPRING: Final = datetime(2020, 3, 29, 1, tzinfo=timezone.utc)
AUTUMN: Final = datetime(2020, 10, 25, 1, tzinfo=timezone.utc)
"""When the clocks of Berlin were put ahead, and back, by an hour."""

HOUR: Final = timedelta(hours=1)


def around(change: datetime, rows: int) -> list[datetime]:
    """Instants in the hour before a change and in the hour after it, in order."""
    return [change + HOUR * (2 * number + 1 - rows) / rows for number in range(rows)]


def in_sql(instant: datetime) -> str:
    """An instant as a literal of a session in UTC."""
    return f"'{instant.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S.%f}'"


@contextmanager
def berlin(engine: Engine) -> Iterator[str]:
    """Put all sessions of an engine into the time zone of Berlin; yields its name.

    Args:
        engine: Of an asynchronous one its `sync_engine`, whose pool has to be empty.
    """
    with engine.begin() as connection:
        name = make_zone(connection)

    def set_zone(connection: Any, *_: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET time_zone = '{name}'")
        cursor.close()

    engine.dispose()
    event.listen(engine, "connect", set_zone)
    try:
        yield name
    finally:
        event.remove(engine, "connect", set_zone)
        engine.dispose()
        with engine.begin() as connection:
            drop_zone(connection, name)


def make_zone(connection: Connection) -> str:
    """The name that a server has for the zone; if it has none, the zone is added under a new one.

    A server never forgets a zone that it has used, so nobody may get this name for another one.
    """
    known = connection.execute(text("SELECT CONVERT_TZ('2020-07-01', 'UTC', 'Europe/Berlin')"))
    if known.scalar() is not None:
        return "Europe/Berlin"
    name = f"Ttl/Odm{uuid4().hex}"
    zone = connection.exec_driver_sql("INSERT INTO mysql.time_zone () VALUES ()").lastrowid
    kinds = f"({zone}, 0, 3600, 0, 'CET'), ({zone}, 1, 7200, 1, 'CEST')"
    changes = [(SPRING - 200 * 24 * HOUR, 0), (SPRING, 1), (AUTUMN, 0)]
    rows = ", ".join(f"({zone}, {at.timestamp():.0f}, {kind})" for at, kind in changes)
    for table, values in (
        ("transition_type", kinds),
        ("transition", rows),
        ("name", f"('{name}', {zone})"),
    ):
        connection.exec_driver_sql(f"INSERT INTO mysql.time_zone_{table} VALUES {values}")  # noqa: S608
    return name


def drop_zone(connection: Connection, name: str) -> None:
    """Remove a zone that `make_zone` has added."""
    if name == "Europe/Berlin":
        return
    zones = text("SELECT Time_zone_id FROM mysql.time_zone_name WHERE Name = :name")
    zone = connection.execute(zones, {"name": name}).scalar_one()
    for table in ("_name", "_transition", "_transition_type", ""):
        statement = f"DELETE FROM mysql.time_zone{table} WHERE Time_zone_id = {zone}"  # noqa: S608
        connection.exec_driver_sql(statement)
