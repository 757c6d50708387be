"""What instants look like on each family of databases, also on those that others bring.

`dialect_time_of` has the `DialectTime` of a family. That of our three is written out in
`ttl_odm.sqlalchemy.time.dialect_time`; `GeneralTime` makes one of what any other family says.
"""

# ruff: noqa: D102 (what a method is for stands where it is declared first)

from __future__ import annotations

from copy import copy
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, DateTime, Float, Numeric, String, cast

from ttl_odm.dialects import General
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.dialects.postgresql import PostgreSQL
from ttl_odm.dialects.sqlite import SQLite
from ttl_odm.sqlalchemy.time.clock import SQLTemplate
from ttl_odm.sqlalchemy.time.dialect_time import (
    PER_SECOND,
    DialectTime,
    IntegerTime,
    MySQLTime,
    PostgreSQLTime,
    SQLiteTime,
    clock_face,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

    from ttl_odm.dialects import Family

    SQL = ColumnElement[Any]


class GeneralTime(IntegerTime):
    """A family that somebody brings: what it doesn't say, standard SQL does.

    `zoned` is for columns with a time zone, where the database has them.
    """

    per_second = 1_000_000
    _is_day = None
    _from_microseconds = "{0}"

    def __init__(self, family: General, *, zoned: bool) -> None:
        self.family, self.divide = family, family.divide
        self.wall_type = DateTime(timezone=zoned)
        shown = family.datetime("{0}")
        self._wall = (family.zoned("{0}") if zoned else None) or shown
        self._day = f"CAST({shown} AS DATE)"
        self._text = family.clock_face("{0}")
        self._day_text = f"SUBSTR({self._text}, 1, 10)"
        self._canonical = "REPLACE(REPLACE(REPLACE({0}, 'T', ' '), 'Z', ''), '+00:00', '')"
        self._from_wall = family.instant_of_column("{0}", zoned=zoned)
        self._from_day = self._from_text = family.microseconds("CAST({0} AS TIMESTAMP)")

    def from_units(self, column: SQL, unit: str) -> SQL:
        # Not of an INTEGER, whose product with another one may be too large for it.
        return super().from_units(cast(column, BigInteger()), unit)

    def iso(self, moment: SQL, *, fraction: bool, suffix: str) -> SQL:
        text = f"REPLACE(SUBSTR({self._text}, 1, {26 if fraction else 19}), ' ', 'T')"
        return SQLTemplate(f"({text} || '{suffix}')", String(), moment)

    def number(self, moment: SQL, unit: str, *, is_float: bool) -> SQL:
        divisor = 1_000_000 // PER_SECOND[unit]
        if is_float:
            return SQLTemplate(f"(({{0}}) / {divisor}e0)", Float(53), moment)
        return SQLTemplate(f"(CAST({{0}} AS DECIMAL(30, 6)) / {divisor})", Numeric(), moment)

    def literal_wall(self, seconds: int) -> str:
        return f"TIMESTAMP '{clock_face(seconds)}'"


_TIMES: Final[dict[type[Family], DialectTime]] = {
    PostgreSQL: PostgreSQLTime(),
    MySQL: MySQLTime(),
    SQLite: SQLiteTime(),
}


@cache
def dialect_time_of(family: Family, *, zoned: bool = False) -> DialectTime:
    """What instants look like on a family of databases; in `zoned` columns, if that differs."""
    if isinstance(family, General):
        return GeneralTime(family, zoned=zoned)
    time = next(copy(time) for kind, time in _TIMES.items() if isinstance(family, kind))
    time.family = family
    return time
