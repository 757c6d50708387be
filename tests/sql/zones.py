"""A time zone of the server's whose clocks were changed by an hour not long ago."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from sqlalchemy import event, text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

HOUR = 3_600


@contextmanager
def changed_clocks(engine: Engine, ago: int = 2 * HOUR, *, back: bool = True) -> Iterator[datetime]:
    """Let all sessions of an engine of MariaDB's or MySQL's be in such a zone.

    Yields the instant of the change, so many seconds ago. The servers' own tables of zones are
    empty, so the zone is one that is made for this.
    """
    with engine.begin() as connection:
        now: Any = connection.execute(text("SELECT UNIX_TIMESTAMP()")).scalar()
        number = connection.exec_driver_sql("INSERT INTO mysql.time_zone () VALUES ()").lastrowid
        name, change = f"Ttl/Odm{number}", int(now) - ago
        _insert(connection, "time_zone_name", f"('{name}', {number})")
        kinds = f"({number}, 0, 7200, 1, 'SUM'), ({number}, 1, 3600, 0, 'WIN')"
        _insert(connection, "time_zone_transition_type", kinds)
        kind = int(back)
        changes = f"({number}, {change - 8_640_000}, {1 - kind}), ({number}, {change}, {kind})"
        _insert(connection, "time_zone_transition", changes)

    def set_zone(connection: Any, *_: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"SET time_zone = '{name}'")
        cursor.close()

    engine.dispose()
    event.listen(engine, "connect", set_zone)
    try:
        yield datetime.fromtimestamp(change, timezone.utc)
    finally:
        event.remove(engine, "connect", set_zone)
        engine.dispose()
        with engine.begin() as connection:
            for table in ("name", "transition", "transition_type", ""):
                where = f"mysql.time_zone{table and '_' + table}"
                statement = f"DELETE FROM {where} WHERE Time_zone_id = {number}"  # noqa: S608
                connection.exec_driver_sql(statement)


def _insert(connection: Any, table: str, values: str) -> None:
    connection.exec_driver_sql(f"INSERT INTO mysql.{table} VALUES {values}")  # noqa: S608


def shown(instant: datetime) -> str:
    """An instant as a session in UTC writes it."""
    return instant.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.%f")


def around(change: datetime, rows: int, spread: int = HOUR) -> list[datetime]:
    """Instants in both hours that show the same, in order."""
    step = timedelta(seconds=2 * spread / rows)
    return [change - timedelta(seconds=spread) + n * step for n in range(rows)]
