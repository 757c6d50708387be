"""Rows that a flush inserts, and whose stamps it reads.

The server stamps a new row, so SQLAlchemy reads the stamps by RETURNING. It finds the object of
each row by its key, which must come back as it was given. A key that the database or its type
changes (a TypeDecorator that makes it lower-case, a NUMERIC(10, 2) given 1.236) would end a flush
of several objects with an error, though without a policy nothing would have to be read. So the
stamps of such objects are read when they are needed, as on MySQL, which has no RETURNING.
"""

from __future__ import annotations

import re
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import CHAR, TEXT, DateTime, Enum, Integer, TypeDecorator, Uuid

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.keys.table_keys import TEXTS, is_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Column, Table
    from sqlalchemy.engine import Dialect
    from sqlalchemy.types import TypeEngine

    from ttl_odm.sqlalchemy.compat import Record

_INTEGERS: Final = (int, type(None))
"""Types of what a column of integers returns as it was given, or generates."""

_TEXTS: Final = TEXTS | {TEXT}

_HEX: Final = "[0-9a-f]"
_UUID: Final = re.compile(f"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}")


def read_later(records: Sequence[Record], table: Table, stamp: Column[Any]) -> list[Record]:
    """Return the records of INSERTs, without stamps to read where a key may come back changed."""
    dialect, given = records[0][compat.CONNECTION].dialect, compat.given_values
    checks = [(column.key, _check_of(column, dialect)) for column in table.primary_key]
    return [
        record
        if all([check(given(record).get(name)) for name, check in checks])  # noqa: C419 (quicker)
        else compat.read_later(record, table, stamp)
        for record in records
    ]


def _check_of(column: Column[Any], dialect: Dialect) -> Callable[[object], bool]:
    """Return the check whether a value comes back: a quick one for most columns' types."""
    type_: Any = compat.variant_of(column.type, dialect)
    if not isinstance(type_, TypeDecorator) and compat.affinity(type_) is Integer:
        return lambda value: type(value) in _INTEGERS
    if type(type_) in _TEXTS:  # it comes back unless it is too long or ends in a space
        most = inf if type_.length is None else type_.length
        return lambda value: (
            value is None or (type(value) is str and len(value) <= most and value[-1:] != " ")
        )
    return lambda value: _comes_back(value, column, dialect)


def _comes_back(value: object, column: Column[Any], dialect: Dialect) -> bool:
    """Return whether a query returns a value of a key exactly as it was given."""
    if value is None:  # the database generates it
        return True
    type_ = compat.variant_of(column.type, dialect)
    while isinstance(type_, TypeDecorator):
        if type(type_).process_result_value is not TypeDecorator.process_result_value:
            return False
        type_ = type_.impl_instance
    return type(value) is type_.python_type and _is_returned(value, type_, column, dialect)


def _is_returned(
    value: object, type_: TypeEngine[Any], column: Column[Any], dialect: Dialect
) -> bool:
    if isinstance(value, datetime):
        if type(type_) is not DateTime:  # others may have another precision
            return False
        is_aware = type_.timezone and dialect.name == "postgresql"
        is_exact = value.microsecond == 0 or dialect.name not in MYSQL_FAMILY
        return is_exact and (value.tzinfo is not None) == is_aware
    if isinstance(value, str) and isinstance(type_, Uuid):
        return _UUID.fullmatch(value) is not None
    if isinstance(value, str) and isinstance(type_, Enum):  # in MySQL's and MariaDB's, case differs
        return value in type_.enums
    if isinstance(type_, CHAR) and dialect.name == "postgresql":  # it pads them with spaces
        return isinstance(value, str) and len(value) == (type_.length or 1)
    return is_kept(value, column)
