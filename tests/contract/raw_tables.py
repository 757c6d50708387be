"""What is past the gate of an SQL database: a second engine, with tables that it has reflected.

Both adapters for SQL databases set up and look at rows by it.
"""

from __future__ import annotations

import warnings
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from sqlalchemy import Integer, MetaData, Table, create_engine, delete, event, func, select, text
from sqlalchemy.exc import SAWarning
from sqlalchemy.pool import QueuePool

from tests.backends import synchronous
from tests.contract.subject import CONTAINERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.backends import Backend

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NOW = {
    "sqlite": "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')",
    "postgresql": "SELECT clock_timestamp()",
    "mysql": "SELECT UTC_TIMESTAMP(6)",
}
STAMP_UNITS = {"sqlite": timedelta(milliseconds=1), "mysql": timedelta(microseconds=1)}
TICKS = {
    "sqlite": timedelta(milliseconds=1),
    "postgresql": timedelta(microseconds=1),
    "mysql": timedelta(microseconds=1),
}
NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "mariadb": "MariaDB", "mysql": "MySQL"}


def in_haste(connection: Any, _: Any) -> None:
    """Let SQLite not wait for the disk, and enforce foreign keys, as the servers do."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = OFF")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


class RawTables:
    """The tables of a database by their plain names, whatever an adapter has called them."""

    def __init__(self, backend: Backend, prefix: str = "") -> None:
        url = backend.sync_url or backend.async_url
        assert url is not None
        self.engine = create_engine(synchronous(url), poolclass=QueuePool)
        self.dialect = self.engine.dialect.name
        if self.dialect == "sqlite":
            event.listen(self.engine, "connect", in_haste)
        self._prefix = prefix
        self._known: dict[str, Table] = {}
        self._used: dict[str, None] = {}

    @property
    def tick(self) -> timedelta:
        return TICKS[self.dialect]

    def server(self) -> str:
        """The database's version, without what its packager adds."""
        with self.engine.connect() as connection:
            told = connection.dialect.server_version_info or ()
        return ".".join(str(each) for each in told[:3] if isinstance(each, int))

    def now(self) -> datetime:
        with self.engine.connect() as connection:
            told = connection.scalar(text(NOW[self.dialect]))
        return _in_utc(datetime.fromisoformat(told) if isinstance(told, str) else told)

    def table(self, name: str) -> Table:
        if name not in self._known:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SAWarning)  # it can't reflect our indexes
                self._known[name] = Table(
                    self._prefix + name,
                    MetaData(info={"ttl_odm": None}),  # what is stored, live or not
                    autoload_with=self.engine,
                )
        self._used[name] = None
        return self._known[name]

    def insert(self, name: str, /, **values: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(self.table(name).insert(), values)

    def put(self, container: str, key: int, at: Any, **values: Any) -> None:
        declared = CONTAINERS[container]
        columns = {
            "name": f"n{key}",
            "views": 0,
            declared.at: self.encoded(container, at),
            **values,
        }
        if "ttl" in columns and declared.own not in (None, "ttl"):
            columns[declared.own] = columns.pop("ttl")
        self.insert(container, id=key, **columns)

    def move(self, container: str, key: int, at: datetime) -> None:
        table = self.table(container)
        moved = {CONTAINERS[container].at: self.encoded(container, at)}
        with self.engine.begin() as connection:
            connection.execute(table.update().where(table.c.id == key).values(moved))

    def stored(self, container: str, key: int) -> Mapping[str, Any] | None:
        table, declared = self.table(container), CONTAINERS[container]
        with self.engine.connect() as connection:
            row = connection.execute(select(table).where(table.c.id == key)).mappings().first()
        if row is None:
            return None
        found = dict(row)
        found["at"] = self._decoded(container, found[declared.at])
        found["ttl"] = found.get(declared.own or "")
        return found

    def keys(self, container: str) -> set[int]:
        table = self.table(container)
        with self.engine.connect() as connection:
            return set(connection.scalars(select(table.c.id)))

    def count(self, name: str, key: int) -> int:
        """How many rows have an id, in a table that has another primary key."""
        table = self.table(name)
        counted = select(func.count()).select_from(table).where(table.c.id == key)
        with self.engine.connect() as connection:
            return connection.scalar(counted) or 0

    def clear(self) -> None:
        """Empty every table that was used since the last time, the last ones first."""
        with self.engine.begin() as connection:
            for name in reversed(self._used):
                connection.execute(delete(self._known[name]))
        self._used.clear()

    def uses(self, *names: str) -> None:
        """Remember that somebody else writes these."""
        for name in names:
            self.table(name)

    def encoded(self, container: str, at: Any) -> Any:
        """An instant as the column that counts keeps it."""
        if at is None:
            return None
        kind = self.table(container).c[CONTAINERS[container].at].type
        if isinstance(kind, Integer):
            return (at - EPOCH) // self._unit(container)
        return at if self.dialect == "postgresql" else at.replace(tzinfo=None)

    def _decoded(self, container: str, value: Any) -> datetime | None:
        if isinstance(value, int):
            return EPOCH + value * self._unit(container)
        return None if value is None else _in_utc(value)

    def _unit(self, container: str) -> timedelta:
        unit = getattr(CONTAINERS[container].policy, "unit", None)
        return timedelta(seconds=1) if unit == "s" else STAMP_UNITS[self.dialect]


def _in_utc(instant: datetime) -> datetime:
    """In a zone where a day has 24 hours, so that a test may reckon with it."""
    if instant.tzinfo is None:
        return instant.replace(tzinfo=timezone.utc)
    return instant.astimezone(timezone.utc)
