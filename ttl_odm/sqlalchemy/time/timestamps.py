"""MariaDB's and MySQL's ``TIMESTAMP`` columns in sessions of any time zone.

Such a column keeps UTC, but a session reads and compares it in its own time zone. Where the clocks
of that zone are put back, one wall time stands for two instants, so a value that was read may find
another row. In UTC each value is one instant: a sweeper's sessions are in UTC where they compare
with values that they have read, and so is an application's while rows are deleted by their keys.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import TIMESTAMP

from ttl_odm.sqlalchemy.compat import SQLTemplate
from ttl_odm.sqlalchemy.time.instants import kept_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection, MetaData, Table

UTC: Final = "+00:00"
"""UTC as a session's ``time_zone``: a server knows it without tables of time zones."""

_TABLES: Final = "ttl_odm_timestamps"
"""Where a MetaData keeps its tables with such columns."""

_IN_UTC: Final = (
    "(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL CAST(UNIX_TIMESTAMP({0}) * 1000000 AS SIGNED)"
    " MICROSECOND)"
)


def has_timestamp(columns: Iterable[ColumnElement[Any]]) -> bool:
    """Whether one of some columns is a ``TIMESTAMP`` on MariaDB and MySQL."""
    return any(map(_is_timestamp, columns))


def timestamp_tables(metadata: MetaData) -> Sequence[Table]:
    """The tables of a MetaData that have such a column."""
    number = len(metadata.tables)
    known_number, tables = metadata.info.get(_TABLES, (None, ()))
    if known_number != number:
        tables = [table for table in metadata.tables.values() if has_timestamp(table.c)]
        metadata.info[_TABLES] = number, tables
    return tables  # type: ignore[no-any-return]


def has_timestamp_key(tables: Iterable[Table]) -> bool:
    """Whether such a column is in a primary key or a foreign key."""
    return any(
        has_timestamp(column for column in table.c if column.primary_key or column.foreign_keys)
        for table in tables
    )


def shown_in_utc(columns: Iterable[ColumnElement[Any]]) -> list[ColumnElement[Any]]:
    """Columns as a session in UTC reads them, in a session of any time zone."""
    return [
        SQLTemplate(_IN_UTC, column.type, column) if _is_timestamp(column) else column
        for column in columns
    ]


@contextmanager
def in_utc(connection: Connection) -> Iterator[None]:
    """Let a session of MariaDB's or MySQL's be in UTC for a few statements of its transaction."""
    before = connection.exec_driver_sql("SELECT @@time_zone").scalar_one()
    if before == UTC:
        yield
        return
    connection.exec_driver_sql(f"SET time_zone = '{UTC}'")
    try:
        yield
    finally:
        if not connection.invalidated:
            connection.exec_driver_sql(f"SET time_zone = '{before}'")


def _is_timestamp(column: ColumnElement[Any]) -> bool:
    return isinstance(kept_type(column.type, "mysql"), TIMESTAMP)
