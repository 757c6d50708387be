"""Exact values of ``TIMESTAMP`` columns of MariaDB and MySQL.

Such a column keeps UTC, but is read and compared in the session's time zone, in which dates of the
hour that its clocks show twice mean two instants. What is read to find the same rows again is read
as a `KeptInstant` (see `exact` in `ttl_odm.sqlalchemy.time.instants`), and compared as one.
"""

from __future__ import annotations

from operator import eq, ge, gt, le, lt
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, Boolean, ColumnElement, TypeDecorator, and_, literal

from ttl_odm.sqlalchemy.time.clock import SQLTemplate
from ttl_odm.sqlalchemy.time.dialect_time import clock_face

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import Dialect

    SQL = ColumnElement[Any]


class KeptInstant(int):
    """Microseconds since 1970 that a ``TIMESTAMP`` keeps, whatever the session shows."""

    def __repr__(self) -> str:
        """As a session in UTC shows it."""
        return f"{clock_face(self // 1_000_000)}.{self % 1_000_000:06} UTC"


class _KeptInstants(TypeDecorator[int]):
    impl = BigInteger
    cache_ok = True

    def process_result_value(self, value: int | None, dialect: Dialect) -> int | None:  # noqa: ARG002 (SQLAlchemy passes it)
        """Mark the number as what it is."""
        return None if value is None else KeptInstant(value)


def kept_in(column: SQL) -> SQL:
    """What a ``TIMESTAMP`` keeps, as a `KeptInstant`; nothing but UNIX_TIMESTAMP() tells it."""
    return SQLTemplate("CAST(UNIX_TIMESTAMP({0}) * 1000000 AS SIGNED)", _KeptInstants(), column)


def copied_from(column: SQL) -> SQL:
    """A ``TIMESTAMP`` as what MySQL stores in another one, with its offset from UTC.

    MySQL would copy what the session shows. (MariaDB copies what is kept.)
    """
    utc = "TIMESTAMP'1970-01-01 00:00:00' + INTERVAL {1} MICROSECOND"
    shown = f"CONCAT(CAST({utc} AS CHAR), '+00:00')"
    text = f"CASE WHEN UNIX_TIMESTAMP({{0}}) > 0 THEN {shown} ELSE {{0}} END"
    return SQLTemplate(text, column.type, column, kept_in(column))


def compare_exactly(
    column: SQL, compare: Callable[[Any, Any], Any], instant: int
) -> ColumnElement[bool]:
    """A ``TIMESTAMP`` compared with an instant, in sessions of any time zone.

    A comparison with a date is made in the session's zone. So if the clocks of that zone change
    within three hours, the date is one two hours beyond (clocks are never put back by more), and
    an exact comparison stands beside it. Otherwise the date is exact. An index serves both.
    """
    microseconds = literal(int(instant), BigInteger())  # PyMySQL sends a subclass as text
    conditions: list[ColumnElement[bool]] = [compare(kept_in(column), microseconds)]
    for sign, operators in (("-", (gt, ge, eq)), ("+", (lt, le, eq))):
        if compare in operators:
            bound = ">=" if sign == "-" else "<="
            text = f"({{0}} {bound} {_NEAR.format(sign=sign)})"
            conditions.append(SQLTemplate(text, Boolean(), column, microseconds))
    return and_(*conditions)


_NEAR: Final = (
    "FROM_UNIXTIME({{1}} / 1000000) {sign} INTERVAL IF(TIMESTAMPDIFF(SECOND, "
    "FROM_UNIXTIME(GREATEST(0, {{1}} / 1000000 - 10800)), "
    "FROM_UNIXTIME({{1}} / 1000000 + 10800)) = 21600, 0, 7200) SECOND"
)


def compared(column: SQL, compare: Callable[[Any, Any], Any], value: Any) -> ColumnElement[bool]:
    """A column compared with a value that may be a `KeptInstant`."""
    if isinstance(value, KeptInstant):
        return compare_exactly(column, compare, value)
    condition: ColumnElement[bool] = compare(column, literal(value, column.type))
    return condition
