"""What instants look like on each database, in columns that are not ours.

A *moment* is an instant as the database's clock tells it (`Clock.storage`: ``timestamptz`` on
PostgreSQL, integers elsewhere). What is here turns a moment into what a column of dates,
integers or strings holds, and back. `ttl_odm.sqlalchemy.time.formats` says which column needs what.

Nothing here asks for the session's time zone, and nothing raises on a value that is no date:
``is_...`` conditions tell these, and are asked before, or beside, what would.

It is long because it is a table: three databases, and for each the same twenty texts of SQL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, Boolean, Date, String
from sqlalchemy.dialects.mysql import DATETIME
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal

from ttl_odm.dialects import MYSQL_FAMILY

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.types import TypeEngine

    SQL = ColumnElement[Any]

PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000}
"""How many of a unit make a second."""

_YEAR_1: Final = 62_135_596_800
"""Seconds from the beginning of the year 1 to 1970: what makes integers positive, so that dividing
them rounds down everywhere."""

_YEAR_10_000: Final = 253_402_300_800
"""Seconds from 1970 to the year that Python has no dates for."""

# A Gregorian date, a time, a fraction; without what may follow for the zone.
_DAY_PATTERN: Final = (
    "[0-9][0-9][0-9][0-9]-"
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_LEAP_DAY_PATTERN: Final = (
    "([0-9][0-9](0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29"
)
ISO_PATTERN: Final = (
    f"^({_DAY_PATTERN}|{_LEAP_DAY_PATTERN})[T ]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    "([.][0-9]{{1,9}})?(Z|[+]00:00)?"
)
"""With its braces doubled, as a `SQLTemplate` wants them."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


class SQLTemplate(FunctionElement[Any]):
    """SQL that SQLAlchemy has no words for: a text in which ``{0}``, ``{1}``... are expressions.

    There is nothing in the text that comes from outside of this package. It puts parentheses around
    the expressions that need them, and around itself if it does.
    """

    inherit_cache = True
    _traverse_internals = [  # noqa: RUF012 (SQLAlchemy's)
        *FunctionElement._traverse_internals,  # noqa: SLF001 (a subclass's)
        ("text", InternalTraversal.dp_string),
        ("type", InternalTraversal.dp_type),
    ]

    def __init__(self, text: str, type_: TypeEngine[Any], *parts: SQL) -> None:
        super().__init__(*parts)
        self.text = text
        self.type = type_

    def self_group(self, against: object = None) -> Any:  # noqa: ARG002 (SQLAlchemy's signature)
        """As it is: a condition needs no ``= 1`` on databases without booleans."""
        return self


@compiles(SQLTemplate)
def _render(element: SQLTemplate, compiler: SQLCompiler, **kw: object) -> str:
    kw.pop("add_to_result_map", None)  # the element itself is the result column, not its parts
    kw["within_columns_clause"] = False
    return element.text.format(*(compiler.process(part, **kw) for part in element.clauses))


def clock_face(seconds: int) -> str:
    """What a clock in UTC shows so many seconds after 1970."""
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")


class DialectTime(ABC):
    """One family of databases. Where nothing else is said, expressions are what it returns.

    With `text_dates` SQLAlchemy keeps dates as texts, which others may have written in another way.
    """

    moment_type: TypeEngine[Any] = BigInteger()
    wall_type: TypeEngine[Any]
    day_type: TypeEngine[Any] = Date()
    text_dates = False

    # A `SQLTemplate` for the method of this name each.
    _wall: str
    _day: str
    _text: str
    _day_text: str
    _canonical: str
    _is_iso: str
    _is_wall: str | None
    _is_day: str | None
    _from_wall: str
    _from_day: str
    _from_text: str

    def wall(self, moment: SQL) -> SQL:
        """What a clock in UTC shows at a moment."""
        return SQLTemplate(self._wall, self.wall_type, moment)

    def day(self, moment: SQL) -> SQL:
        """The day in UTC."""
        return SQLTemplate(self._day, self.day_type, moment)

    def text(self, moment: SQL) -> SQL:
        """``YYYY-MM-DD hh:mm:ss.ffffff`` in UTC, compared byte by byte."""
        return SQLTemplate(self._text, String(), moment)

    def day_text(self, moment: SQL) -> SQL:
        """``YYYY-MM-DD`` in UTC, as a column of strings is compared."""
        return SQLTemplate(self._day_text, String(), moment)

    @abstractmethod
    def iso(self, moment: SQL, *, fraction: bool, suffix: str) -> SQL:
        """``YYYY-MM-DDThh:mm:ss`` in UTC, perhaps with microseconds."""

    @abstractmethod
    def units(self, moment: SQL, unit: str, *, up: bool) -> SQL:
        """Whole units since 1970, rounded up or down."""

    @abstractmethod
    def rounded_up(self, moment: SQL, microseconds: int) -> SQL:
        """A moment that loses nothing, or grows, where a column keeps steps of so much only."""

    @abstractmethod
    def literal_wall(self, seconds: int) -> str:
        """What a clock in UTC shows so many seconds after 1970, to compare with `wall`."""

    @abstractmethod
    def literal_moment(self, seconds: int) -> str:
        """The moment so many seconds after 1970."""

    def canonical(self, string: SQL) -> SQL:
        """A valid ISO string (`is_iso`) in the form of `text`."""
        return SQLTemplate(self._canonical, String(), string)

    def is_iso(self, string: SQL) -> SQL:
        """Whether a string is a date and time of day, in ISO 8601 and UTC."""
        return SQLTemplate(self._is_iso, Boolean(), string)

    def is_wall(self, column: SQL) -> SQL | None:
        """Whether a column of datetimes holds one; None where it can't help it."""
        return None if self._is_wall is None else SQLTemplate(self._is_wall, Boolean(), column)

    def is_day(self, column: SQL) -> SQL | None:
        """The same for a column of dates."""
        return None if self._is_day is None else SQLTemplate(self._is_day, Boolean(), column)

    def from_wall(self, column: SQL) -> SQL:
        """The moment at which a clock in UTC shows this."""
        return SQLTemplate(self._from_wall, self.moment_type, column)

    def from_day(self, column: SQL) -> SQL:
        """The moment at which a day begins in UTC."""
        return SQLTemplate(self._from_day, self.moment_type, column)

    def from_text(self, text: SQL) -> SQL:
        """The moment of a `canonical` string."""
        return SQLTemplate(self._from_text, self.moment_type, text)

    @abstractmethod
    def from_units(self, column: SQL, unit: str) -> SQL:
        """The moment of so many units since 1970; NULL where Python has no date for it."""


class _PostgreSQL(DialectTime):
    """PostgreSQL 14 and later."""

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
    _is_iso = f"({{0}} ~ '{ISO_PATTERN}$' AND LEFT({{0}}, 4) <> '0000')"
    _is_wall = _is_day = None
    _from_wall = "({0} AT TIME ZONE 'UTC')"
    _from_day = "(CAST({0} AS TIMESTAMP) AT TIME ZONE 'UTC')"
    _from_text = "CAST({0} || '+00' AS TIMESTAMPTZ)"

    def iso(self, moment: SQL, *, fraction: bool, suffix: str) -> SQL:
        form = 'YYYY-MM-DD"T"HH24:MI:SS' + (".US" if fraction else "")
        text = f"(to_char(({{0}}) AT TIME ZONE 'UTC', '{form}') || '{suffix}')"
        return SQLTemplate(text, String(), moment)

    def units(self, moment: SQL, unit: str, *, up: bool) -> SQL:
        way = "CEIL" if up else "FLOOR"
        text = f"CAST({way}(EXTRACT(EPOCH FROM {{0}}) * {PER_SECOND[unit]}) AS BIGINT)"
        return SQLTemplate(text, BigInteger(), moment)

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


class _IntegerTime(DialectTime):
    """Databases whose moments are integers since 1970, `per_second` to a second.

    `divide` is the operator that divides two integers and rounds towards zero, `greatest` the
    function that returns the larger of two.
    """

    per_second: int
    divide: str
    greatest: str

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


class _MySQL(_IntegerTime):
    """MariaDB and MySQL."""

    per_second, divide, greatest = 1_000_000, "DIV", "GREATEST"
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
    # Letters count as they are written, whatever the column's collation says; and $ alone would
    # match before a line break too.
    _is_iso = f"({{0}} REGEXP '(?-i){ISO_PATTERN}(?![[:space:]])$' AND LEFT({{0}}, 4) <> '0000')"
    # "Zero dates", and dates with a month or a day that is zero, are no dates.
    _is_wall = "({0} > TIMESTAMP'0001-01-01 00:00:00' AND MONTH({0}) > 0 AND DAYOFMONTH({0}) > 0)"
    _is_day = "(YEAR({0}) > 0 AND MONTH({0}) > 0 AND DAYOFMONTH({0}) > 0)"
    _from_wall = _from_day = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {0})"
    _from_text = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', CAST({0} AS DATETIME(6)))"

    def iso(self, moment: SQL, *, fraction: bool, suffix: str) -> SQL:
        length = 26 if fraction else 19
        text = f"REPLACE(LEFT(CAST({self._wall} AS CHAR), {length}), ' ', 'T')"
        return SQLTemplate(f"CONCAT({text}, '{suffix}')", String(), moment)

    def literal_wall(self, seconds: int) -> str:
        return f"TIMESTAMP'{clock_face(seconds)}'"


class _SQLite(_IntegerTime):
    """SQLite, where SQLAlchemy keeps dates as texts."""

    per_second, divide, greatest = 1_000, "/", "MAX"
    wall_type = day_type = String()
    text_dates = True

    # The year 0 is before every valid date. (A whole number by / 1000.0 loses no millisecond.)
    _strftime = "strftime('{form}', MAX({{0}}, -62167219200000) / 1000.0, 'unixepoch')"
    _without_zone = (
        "CASE WHEN substr({0}, -1) = 'Z' THEN substr({0}, 1, length({0}) - 1) "
        "WHEN substr({0}, -6) = '+00:00' THEN substr({0}, 1, length({0}) - 6) ELSE {0} END"
    )
    _fraction = f"substr({_without_zone}, 20)"

    _wall = _text = f"({_strftime.format(form='%Y-%m-%d %H:%M:%f')} || '000')"
    _day = _day_text = _strftime.format(form="%Y-%m-%d")
    _canonical = f"replace({_without_zone}, 'T', ' ')"
    # strftime() takes the 31st of any month. Once it counts, that is a day of the next one.
    _is_iso = _is_wall = (
        "({0} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9][T ]"
        "[0-2][0-9]:[0-5][0-9]:[0-5][0-9]*' "
        "AND strftime('%Y-%m-%d %H:%M:%S', substr({0}, 1, 19), '+0 days') "
        "= replace(substr({0}, 1, 19), 'T', ' ') AND substr({0}, 1, 4) <> '0000' "
        f"AND ({_fraction} = '' OR {_fraction} GLOB '.[0-9]*' AND length({_fraction}) <= 10 "
        f"AND rtrim(substr({_fraction}, 2), '0123456789') = ''))"
    )
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

    def literal_wall(self, seconds: int) -> str:
        return f"'{clock_face(seconds)}'"

    def from_wall(self, column: SQL) -> SQL:
        return self.from_text(self.canonical(column))


_POSTGRESQL: Final = _PostgreSQL()
_BY_DIALECT: Final[dict[str, DialectTime]] = {
    "postgresql": _POSTGRESQL,
    "sqlite": _SQLite(),
    **dict.fromkeys(MYSQL_FAMILY, _MySQL()),
}


def dialect_time_of(dialect: str) -> DialectTime:
    """What instants look like on the database of a dialect."""
    return _BY_DIALECT.get(dialect, _POSTGRESQL)
