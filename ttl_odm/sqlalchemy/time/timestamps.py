"""MariaDB's and MySQL's ``TIMESTAMP`` columns in sessions of any time zone.

Such a column keeps UTC, but a session reads and compares it in its own time zone. When the clocks
of that zone are set back, one wall time stands for two instants, so a comparison with a value that
was read may find another row. In UTC each value is one instant: so a sweeper's session is in UTC if
it compares with values that it has read, and an application's while rows are deleted by their keys.
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
"""UTC as a session's ``time_zone``: it works without the server's tables of time zones."""

_TABLES: Final = "ttl_odm_timestamps"
"""In ``MetaData.info``: the number of its tables, and those that have such columns."""

_IN_UTC: Final = (
    "(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL CAST(UNIX_TIMESTAMP({0}) * 1000000 AS SIGNED)"
    " MICROSECOND)"
)


def has_timestamp(columns: Iterable[ColumnElement[Any]]) -> bool:
    """Return whether any column is a ``TIMESTAMP`` on MariaDB and MySQL."""
    return any(map(_is_timestamp, columns))


def timestamp_tables(metadata: MetaData) -> Sequence[Table]:
    """Return the tables of a MetaData that have such a column."""
    number = len(metadata.tables)
    known_number, tables = metadata.info.get(_TABLES, (None, ()))
    if known_number != number:
        tables = [table for table in metadata.tables.values() if has_timestamp(table.c)]
        metadata.info[_TABLES] = number, tables
    return tables  # type: ignore[no-any-return]


def has_timestamp_key(tables: Iterable[Table]) -> bool:
    """Return whether such a column is in a primary key or a foreign key of any table."""
    return any(
        has_timestamp(column for column in table.c if column.primary_key or column.foreign_keys)
        for table in tables
    )


def shown_in_utc(columns: Iterable[ColumnElement[Any]]) -> list[ColumnElement[Any]]:
    """Return columns so that a session of any time zone reads them as one in UTC does."""
    return [
        SQLTemplate(_IN_UTC, column.type, column) if _is_timestamp(column) else column
        for column in columns
    ]


@contextmanager
def in_utc(connection: Connection) -> Iterator[None]:
    """Set a session of MariaDB or MySQL to UTC for a few statements of its transaction."""
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
