"""Instants on each family of databases, in columns that are not ours.

`dialect_time_of` returns the `DialectTime` of a family: there is a class for each of our three, and
`GeneralTime` for any other one, made of what that family says.

A *moment* is an instant in the form of the database's clock (`Clock.storage`: ``timestamptz`` on
PostgreSQL, integers elsewhere). A `DialectTime` converts moments to the values of a column of
dates, integers or strings, and back. `ttl_odm.sqlalchemy.time.formats` chooses the conversion.

No conversion depends on the session's time zone, and none raises on a value that is not a date: the
``is_...`` conditions recognize dates, and are evaluated before, or beside, whatever would raise.
"""

# ruff: noqa: D102 (what a method is for stands where it is declared first)

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from datetime import datetime, timedelta, timezone
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, Boolean, Date, DateTime, Float, Numeric, String, cast
from sqlalchemy.dialects.mysql import DATETIME
from sqlalchemy.dialects.postgresql import TIMESTAMP

from ttl_odm.dialects import General
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.dialects.postgresql import PostgreSQL
from ttl_odm.dialects.sqlite import SQLite
from ttl_odm.sqlalchemy.compat import SQLTemplate

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.types import TypeEngine

    from ttl_odm.dialects import Family

    SQL = ColumnElement[Any]

PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000}
"""How many of a unit make a second."""

_YEAR_1: Final = 62_135_596_800
"""Seconds from the beginning of the year 1 to 1970: what makes integers positive, so that dividing
them rounds down everywhere."""

_YEAR_10_000: Final = 253_402_300_800
"""Seconds from 1970 to the year that Python has no dates for."""

NO_NUMBER: Final = -(2**63)
"""Numbers below are not instants: minus infinity. NaN and infinity are above all, or NULL."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def clock_face(seconds: int) -> str:
    """Return what a clock in UTC shows a number of seconds after 1970."""
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")


class DialectTime(ABC):
    """Conversions on one family of databases, as SQL expressions unless annotated otherwise.

    With `text_dates` SQLAlchemy keeps dates as texts, and other programs may write other forms.
    """

    family: Family
    moment_type: TypeEngine[Any] = BigInteger()
    wall_type: TypeEngine[Any]
    day_type: TypeEngine[Any] = Date()
    text_dates = False
    greatest = "GREATEST"
    """The function that returns the larger of two."""
    big_integer = "BIGINT"

    _from_microseconds = "{0}"  # a text, of which a `SQLTemplate` is made
    # The `SQLTemplate` of the method of the same name.
    _wall: str
    _day: str
    _text: str
    _day_text: str
    _canonical: str
    _is_day: str | None
    _from_wall: str
    _from_day: str
    _from_text: str

    def wall(self, moment: SQL) -> SQL:
        """Convert a moment to what a clock in UTC shows."""
        return SQLTemplate(self._wall, self.wall_type, moment)

    def day(self, moment: SQL) -> SQL:
        """Convert a moment to the day in UTC."""
        return SQLTemplate(self._day, self.day_type, moment)

    def text(self, moment: SQL) -> SQL:
        """Convert a moment to ``YYYY-MM-DD hh:mm:ss.ffffff`` in UTC, compared byte by byte."""
        return SQLTemplate(self._text, String(), moment)

    def day_text(self, moment: SQL) -> SQL:
        """Convert a moment to ``YYYY-MM-DD`` in UTC, compared as a column of strings is."""
        return SQLTemplate(self._day_text, String(), moment)

    @abstractmethod
    def iso(self, moment: SQL, *, fraction: bool, suffix: str) -> SQL:
        """Convert a moment to ``YYYY-MM-DDThh:mm:ss`` in UTC, perhaps with microseconds."""

    @abstractmethod
    def units(self, moment: SQL, unit: str, *, up: bool) -> SQL:
        """Convert a moment to whole units since 1970, rounded up or down."""

    @abstractmethod
    def rounded_up(self, moment: SQL, microseconds: int) -> SQL:
        """Round a moment up to the steps in which a column keeps time."""

    @abstractmethod
    def literal_wall(self, seconds: int) -> str:
        """Return what a clock in UTC shows seconds after 1970, as SQL to compare with `wall`."""

    @abstractmethod
    def literal_moment(self, seconds: int) -> str:
        """Return the moment a number of seconds after 1970, as SQL."""

    def canonical(self, string: SQL) -> SQL:
        """Convert a valid ISO string (`is_iso`) to the form of `text`."""
        return SQLTemplate(self._canonical, String(), string)

    def is_iso(self, string: SQL) -> SQL:
        """The condition that a string is a date and time of day, in ISO 8601 and UTC."""
        return SQLTemplate(self.family.is_iso("{0}"), Boolean(), string)

    def is_wall(self, column: SQL) -> SQL | None:
        """The condition that a column of datetimes holds one; None if it can hold nothing else."""
        is_wall = self.family.is_date("{0}")
        return None if is_wall is None else SQLTemplate(is_wall, Boolean(), column)

    def is_day(self, column: SQL) -> SQL | None:
        """The condition that a column of dates holds one; None if it can hold nothing else."""
        return None if self._is_day is None else SQLTemplate(self._is_day, Boolean(), column)

    def from_wall(self, column: SQL) -> SQL:
        """Return the moment at which a clock in UTC shows a wall time."""
        return SQLTemplate(self._from_wall, self.moment_type, column)

    def from_day(self, column: SQL) -> SQL:
        """Return the moment at which a day begins in UTC."""
        return SQLTemplate(self._from_day, self.moment_type, column)

    def from_text(self, text: SQL) -> SQL:
        """Return the moment of a `canonical` string."""
        return SQLTemplate(self._from_text, self.moment_type, text)

    @abstractmethod
    def from_units(self, column: SQL, unit: str) -> SQL:
        """Return the moment of units since 1970; NULL where Python has no date for it."""

    @abstractmethod
    def number(self, moment: SQL, unit: str, *, is_float: bool) -> SQL:
        """Convert a moment to units since 1970 with a fraction: a double, or an exact decimal."""

    def from_number(self, column: SQL, unit: str, *, is_float: bool) -> SQL:
        """Invert `number`, to the microsecond; decimals are rounded up."""
        factor, way = PER_SECOND[unit], "ROUND" if is_float else "CEIL"
        point = ".0" if self.text_dates else ""
        whole = f"{self.greatest}({{0}}, {-_YEAR_1 * factor}) * {1_000_000 // factor}{point}"
        microseconds = f"CAST({way}({whole}) AS {self.big_integer})"
        return SQLTemplate(
            f"CASE WHEN {{0}} < {_YEAR_10_000 * factor} AND {{0}} >= {NO_NUMBER} "
            f"THEN {self._from_microseconds.format(microseconds)} END",
            self.moment_type,
            column,
        )


class PostgreSQLTime(DialectTime):
    """PostgreSQL 14 and later."""

    family = PostgreSQL()
    moment_type = TIMESTAMP(timezone=True)
    wall_type = TIMESTAMP()

    _wall = "(({0}) AT TIME ZONE 'UTC')"
    _day = "CAST(({0}) AT TIME ZONE 'UTC' AS DATE)"
    # Of a date before the year 1, to_char() shows the year without its sign.
    _text = (
        "(CASE WHEN {0} < TIMESTAMPTZ '0001-01-01 00:00:00+00' THEN '0000' ELSE "
        "to_char(({0}) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') END COLLATE \"C\")"
    )
    _day_text = (
        "CASE WHEN {0} < TIMESTAMPTZ '0001-01-01 00:00:00+00' THEN '0000' ELSE "
        "to_char(({0}) AT TIME ZONE 'UTC', 'YYYY-MM-DD') END"
    )
    _canonical = "(REPLACE(regexp_replace({0}, '(Z|[+]00:00)$', ''), 'T', ' ') COLLATE \"C\")"
    _is_day = None
    # It has earlier and later dates than Python, of which no sum could be taken.
    _in_calendar = (
        "CASE WHEN {{0}} < {kind} '0001-01-02' THEN {kind} '0001-01-02' "
        "WHEN {{0}} > {kind} '10000-01-02' THEN {kind} '10000-01-02' ELSE {{0}} END"
    )
    _from_wall = f"(({_in_calendar.format(kind='TIMESTAMP')}) AT TIME ZONE 'UTC')"
    _from_day = f"(CAST({_in_calendar.format(kind='DATE')} AS TIMESTAMP) AT TIME ZONE 'UTC')"
    _from_text = "CAST({0} || '+00' AS TIMESTAMPTZ)"
    # In two steps: all the microseconds at once would lose some of them in a float.
    _from_microseconds = (
        "TIMESTAMPTZ '1970-01-01 00:00:00+00' + {0} / 1000000 * interval '1 second' "
        "+ MOD({0}, 1000000) * interval '1 microsecond'"
    )

    def iso(self, moment: SQL, *, fraction: bool, suffix: str) -> SQL:
        form = 'YYYY-MM-DD"T"HH24:MI:SS' + (".US" if fraction else "")
        text = f"(to_char(({{0}}) AT TIME ZONE 'UTC', '{form}') || '{suffix}')"
        return SQLTemplate(text, String(), moment)

    def units(self, moment: SQL, unit: str, *, up: bool) -> SQL:
        way = "CEIL" if up else "FLOOR"
        text = f"CAST({way}(EXTRACT(EPOCH FROM {{0}}) * {PER_SECOND[unit]}) AS BIGINT)"
        return SQLTemplate(text, BigInteger(), moment)

    def number(self, moment: SQL, unit: str, *, is_float: bool) -> SQL:
        text = f"(EXTRACT(EPOCH FROM {{0}}) * {PER_SECOND[unit]})"
        if not is_float:
            return SQLTemplate(text, Numeric(), moment)
        return SQLTemplate(f"CAST({text} AS DOUBLE PRECISION)", Float(53), moment)

    def rounded_up(self, moment: SQL, microseconds: int) -> SQL:
        if microseconds == 1:
            return moment
        # PostgreSQL rounds to the nearest step.
        text = f"({{0}} + {microseconds} / 2 * interval '1 microsecond')"
        return SQLTemplate(text, self.moment_type, moment)

    def literal_wall(self, seconds: int) -> str:
        return f"TIMESTAMP '{clock_face(seconds)}'"

    def literal_moment(self, seconds: int) -> str:
        return f"TIMESTAMPTZ '{clock_face(seconds)}+00'"

    def from_units(self, column: SQL, unit: str) -> SQL:
        factor = PER_SECOND[unit]
        lowest, end = -_YEAR_1 * factor, _YEAR_10_000 * factor
        # In two steps: all the microseconds at once would lose some of them in a float.
        return SQLTemplate(
            f"CASE WHEN {{0}} < {end} THEN TIMESTAMPTZ '1970-01-01 00:00:00+00' "
            f"+ GREATEST({{0}}, {lowest}) / {factor} * interval '1 second' "
            f"+ MOD(GREATEST({{0}}, {lowest}), {factor}) * {1_000_000 // factor} "
            "* interval '1 microsecond' END",
            self.moment_type,
            column,
        )


class IntegerTime(DialectTime):
    """Databases whose moments are integers since 1970, `per_second` to a second.

    `divide` is the operator that divides two integers and rounds towards zero.
    """

    per_second: int
    divide: str

    def units(self, moment: SQL, unit: str, *, up: bool) -> SQL:
        factor = PER_SECOND[unit]
        if factor == self.per_second:
            return moment
        if factor > self.per_second:
            text = f"(({{0}}) * {factor // self.per_second})"
        else:
            step = self.per_second // factor
            shift = _YEAR_1 * self.per_second + (step - 1 if up else 0)
            text = f"((({{0}}) + {shift}) {self.divide} {step} - {_YEAR_1 * factor})"
        return SQLTemplate(text, BigInteger(), moment)

    def rounded_up(self, moment: SQL, microseconds: int) -> SQL:
        step = microseconds * self.per_second // 1_000_000
        if step <= 1:
            return moment
        text = f"((({{0}}) + {step - 1}) {self.divide} {step} * {step})"
        return SQLTemplate(text, BigInteger(), moment)

    def literal_moment(self, seconds: int) -> str:
        return str(seconds * self.per_second)

    def from_units(self, column: SQL, unit: str) -> SQL:
        factor = PER_SECOND[unit]
        text = f"{self.greatest}({{0}}, {-_YEAR_1 * factor})"
        if self.per_second >= factor:
            text = f"{text} * {self.per_second // factor}"
        else:  # microseconds on SQLite: rounded up
            step, shift = factor // self.per_second, _YEAR_1 * factor
            text = f"({text} + {shift + step - 1}) / {step} - {_YEAR_1 * self.per_second}"
        text = f"CASE WHEN {{0}} < {_YEAR_10_000 * factor} THEN {text} END"
        return SQLTemplate(text, BigInteger(), column)


class MySQLTime(IntegerTime):
    """MariaDB and MySQL."""

    family = MySQL()
    per_second, divide, big_integer = 1_000_000, "DIV", "SIGNED"
    wall_type = DATETIME(fsp=6)

    _wall = (
        "(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL "
        f"GREATEST({{0}}, {-_YEAR_1 * 1_000_000}) MICROSECOND)"
    )
    _day = f"CAST({_wall} AS DATE)"
    _text = (
        f"CAST(CASE WHEN {{0}} < {-_YEAR_1 * 1_000_000} THEN '0000' "
        f"ELSE CAST({_wall} AS CHAR) END AS BINARY)"
    )
    _day_text = f"CAST({_day} AS CHAR)"
    _canonical = "CAST(REPLACE(REGEXP_REPLACE({0}, '(Z|[+]00:00)$', ''), 'T', ' ') AS BINARY)"
    _is_day = "(YEAR({0}) > 0 AND MONTH({0}) > 0 AND DAYOFMONTH({0}) > 0)"
    _from_wall = _from_day = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {0})"
    _from_text = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', CAST({0} AS DATETIME(6)))"

    def iso(self, moment: SQL, *, fraction: bool, suffix: str) -> SQL:
        length = 26 if fraction else 19
        text = f"REPLACE(LEFT(CAST({self._wall} AS CHAR), {length}), ' ', 'T')"
        return SQLTemplate(f"CONCAT({text}, '{suffix}')", String(), moment)

    def number(self, moment: SQL, unit: str, *, is_float: bool) -> SQL:
        divisor = 1_000_000 // PER_SECOND[unit]
        if is_float:
            return SQLTemplate(f"(({{0}}) / {divisor}e0)", Float(53), moment)
        return SQLTemplate(f"(CAST({{0}} AS DECIMAL(30, 6)) / {divisor})", Numeric(), moment)

    def literal_wall(self, seconds: int) -> str:
        return f"TIMESTAMP'{clock_face(seconds)}'"


class SQLiteTime(IntegerTime):
    """SQLite, where SQLAlchemy keeps dates as texts."""

    family = SQLite()
    per_second, divide, greatest, big_integer = 1_000, "/", "MAX", "INTEGER"
    wall_type = day_type = String()
    text_dates = True

    # The year 0 is before every valid date. (A whole number by / 1000.0 loses no millisecond.)
    _strftime = "strftime('{form}', MAX({{0}}, -62167219200000) / 1000.0, 'unixepoch')"

    _wall = _text = f"({_strftime.format(form='%Y-%m-%d %H:%M:%f')} || '000')"
    _day = _day_text = _strftime.format(form="%Y-%m-%d")
    _canonical = f"replace({family.without_zone('{0}')}, 'T', ' ')"
    _is_day = "(strftime('%Y-%m-%d', {0}, '+0 days') = {0} AND substr({0}, 1, 4) <> '0000')"
    _from_day = "(CAST(strftime('%s', {0}) AS INTEGER) * 1000)"
    _from_text = (
        "(CAST(strftime('%s', {0}) AS INTEGER) * 1000 "
        "+ CAST(substr(strftime('%f', {0}), 4) AS INTEGER))"
    )

    def iso(self, moment: SQL, *, fraction: bool, suffix: str) -> SQL:
        form = "%Y-%m-%dT%H:%M:" + ("%f" if fraction else "%S")
        zeros = "000" if fraction else ""
        text = f"({self._strftime.format(form=form)} || '{zeros}{suffix}')"
        return SQLTemplate(text, String(), moment)

    # Rounded up to the millisecond.
    _from_microseconds = f"({{0}} + {_YEAR_1 * 1_000_000 + 999}) / 1000 - {_YEAR_1 * 1_000}"

    def number(self, moment: SQL, unit: str, *, is_float: bool) -> SQL:  # noqa: ARG002 (all are)
        return SQLTemplate(f"(({{0}}) * {PER_SECOND[unit]}.0 / 1000.0)", Float(53), moment)

    def literal_wall(self, seconds: int) -> str:
        return f"'{clock_face(seconds)}'"

    def from_wall(self, column: SQL) -> SQL:
        return self.from_text(self.canonical(column))


class GeneralTime(IntegerTime):
    """A family of another distribution, with standard SQL for what the family doesn't specify.

    `zoned` is for columns with a time zone, on databases that have them.
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
    """Return the conversions of a family of databases, for `zoned` columns if these differ."""
    if isinstance(family, General):
        return GeneralTime(family, zoned=zoned)
    time = next(copy(time) for kind, time in _TIMES.items() if isinstance(family, kind))
    time.family = family
    return time
