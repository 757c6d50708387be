"""How each database spells instants in columns that are not ours.

A *moment* is an instant as the database's clock tells it (`Clock.storage`: ``timestamptz`` on
PostgreSQL, integers elsewhere). What is here turns a moment into what a column of dates,
integers or strings holds, and back. `ttl_odm.sqlalchemy.time.formats` says which column needs what.

Nothing here asks for the session's time zone, and nothing raises on a value that is no date:
``is_...`` conditions tell these, and are asked before, or beside, what would.
"""

# ruff: noqa: D102 (what a method is for stands where it is declared first)

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final, Protocol

from sqlalchemy import BigInteger, Boolean, Date, String
from sqlalchemy.dialects.mysql import DATETIME
from sqlalchemy.dialects.postgresql import TIMESTAMP

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.time.template import SQLTemplate

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.types import TypeEngine

    SQL = ColumnElement[Any]

_BOOLEAN: Final = Boolean()
_INTEGER: Final = BigInteger()
_STRING: Final = String()

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


def clock_face(seconds: int) -> str:
    """What a clock in UTC shows so many seconds after 1970."""
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")


class DialectTime(Protocol):
    """One family of databases. Where nothing else is said, expressions are what it returns."""

    wall_type: TypeEngine[Any]
    """Of what `wall` makes."""
    text_dates: bool
    """Whether SQLAlchemy keeps its dates as texts, which others may have written otherwise."""

    def wall(self, moment: SQL) -> SQL:
        """What a clock in UTC shows at a moment."""
        ...

    def day(self, moment: SQL) -> SQL:
        """The day in UTC."""
        ...

    def text(self, moment: SQL) -> SQL:
        """``YYYY-MM-DD hh:mm:ss.ffffff`` in UTC, compared byte by byte."""
        ...

    def day_text(self, moment: SQL) -> SQL:
        """``YYYY-MM-DD`` in UTC, as a column of strings is compared."""
        ...

    def iso(self, moment: SQL, *, fraction: bool, suffix: str) -> SQL:
        """``YYYY-MM-DDThh:mm:ss`` in UTC, perhaps with microseconds."""
        ...

    def units(self, moment: SQL, unit: str, *, up: bool) -> SQL:
        """Whole units since 1970, rounded up or down."""
        ...

    def rounded_up(self, moment: SQL, microseconds: int) -> SQL:
        """A moment that loses nothing, or grows, where a column keeps steps of so much only."""
        ...

    def literal_wall(self, seconds: int) -> str:
        """What a clock in UTC shows so many seconds after 1970, to compare with `wall`."""
        ...

    def literal_moment(self, seconds: int) -> str:
        """The moment so many seconds after 1970."""
        ...

    def canonical(self, string: SQL) -> SQL:
        """A valid ISO string (`is_iso`) in the form of `text`."""
        ...

    def is_iso(self, string: SQL) -> SQL:
        """Whether a string is a date and time of day, in ISO 8601 and UTC."""
        ...

    def is_wall(self, column: SQL) -> SQL | None:
        """Whether a column of datetimes holds one; None where it can't help it."""
        ...

    def is_day(self, column: SQL) -> SQL | None:
        """The same for a column of dates."""
        ...

    def from_wall(self, column: SQL) -> SQL:
        """The moment at which a clock in UTC shows this."""
        ...

    def from_day(self, column: SQL) -> SQL:
        """The moment at which a day begins in UTC."""
        ...

    def from_text(self, text: SQL) -> SQL:
        """The moment of a `canonical` string."""
        ...

    def from_units(self, column: SQL, unit: str) -> SQL:
        """The moment of so many units since 1970; NULL where Python has no date for it."""
        ...


class PostgreSQL:
    """PostgreSQL 14 and later."""

    wall_type: TypeEngine[Any] = TIMESTAMP()
    text_dates = False
    _moment: TypeEngine[Any] = TIMESTAMP(timezone=True)

    def wall(self, moment: SQL) -> SQL:
        return SQLTemplate("(({0}) AT TIME ZONE 'UTC')", self.wall_type, moment)

    def day(self, moment: SQL) -> SQL:
        return SQLTemplate("CAST(({0}) AT TIME ZONE 'UTC' AS DATE)", Date(), moment)

    def text(self, moment: SQL) -> SQL:
        # Of a date before the year 1, to_char() shows the year without its sign.
        return SQLTemplate(
            "(CASE WHEN {0} < TIMESTAMPTZ '0001-01-01 00:00:00+00' THEN '0000' ELSE "
            "to_char(({0}) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') END COLLATE \"C\")",
            _STRING,
            moment,
        )

    def day_text(self, moment: SQL) -> SQL:
        return SQLTemplate(
            "CASE WHEN {0} < TIMESTAMPTZ '0001-01-01 00:00:00+00' THEN '0000' ELSE "
            "to_char(({0}) AT TIME ZONE 'UTC', 'YYYY-MM-DD') END",
            _STRING,
            moment,
        )

    def iso(self, moment: SQL, *, fraction: bool, suffix: str) -> SQL:
        form = 'YYYY-MM-DD"T"HH24:MI:SS' + (".US" if fraction else "")
        text = f"to_char(({{0}}) AT TIME ZONE 'UTC', '{form}') || '{suffix}'"
        return SQLTemplate(f"({text})", _STRING, moment)

    def units(self, moment: SQL, unit: str, *, up: bool) -> SQL:
        way = "CEIL" if up else "FLOOR"
        text = f"CAST({way}(EXTRACT(EPOCH FROM {{0}}) * {PER_SECOND[unit]}) AS BIGINT)"
        return SQLTemplate(text, _INTEGER, moment)

    def rounded_up(self, moment: SQL, microseconds: int) -> SQL:
        if microseconds == 1:
            return moment
        # PostgreSQL rounds to the nearest step.
        text = f"({{0}} + {microseconds} / 2 * interval '1 microsecond')"
        return SQLTemplate(text, self._moment, moment)

    def literal_wall(self, seconds: int) -> str:
        return f"TIMESTAMP '{clock_face(seconds)}'"

    def literal_moment(self, seconds: int) -> str:
        return f"TIMESTAMPTZ '{clock_face(seconds)}+00'"

    def canonical(self, string: SQL) -> SQL:
        text = "(REPLACE(regexp_replace({0}, '(Z|[+]00:00)$', ''), 'T', ' ') COLLATE \"C\")"
        return SQLTemplate(text, _STRING, string)

    def is_iso(self, string: SQL) -> SQL:
        text = f"({{0}} ~ '{ISO_PATTERN}$' AND LEFT({{0}}, 4) <> '0000')"
        return SQLTemplate(text, _BOOLEAN, string)

    def is_wall(self, column: SQL) -> SQL | None:  # noqa: ARG002 (the protocol's)
        return None

    def is_day(self, column: SQL) -> SQL | None:  # noqa: ARG002 (the protocol's)
        return None

    def from_wall(self, column: SQL) -> SQL:
        return SQLTemplate("({0} AT TIME ZONE 'UTC')", self._moment, column)

    def from_day(self, column: SQL) -> SQL:
        return SQLTemplate("(CAST({0} AS TIMESTAMP) AT TIME ZONE 'UTC')", self._moment, column)

    def from_text(self, text: SQL) -> SQL:
        return SQLTemplate("CAST({0} || '+00' AS TIMESTAMPTZ)", self._moment, text)

    def from_units(self, column: SQL, unit: str) -> SQL:
        factor = PER_SECOND[unit]
        lowest, end = -_YEAR_1 * factor, _YEAR_10_000 * factor
        # In two steps: all the microseconds at once would lose some of them in a float.
        return SQLTemplate(
            f"CASE WHEN {{0}} < {end} THEN TIMESTAMPTZ '1970-01-01 00:00:00+00' "
            f"+ GREATEST({{0}}, {lowest}) / {factor} * interval '1 second' "
            f"+ MOD(GREATEST({{0}}, {lowest}), {factor}) * {1_000_000 // factor} "
            "* interval '1 microsecond' END",
            self._moment,
            column,
        )


class MySQL:
    """MariaDB and MySQL."""

    wall_type: TypeEngine[Any] = DATETIME(fsp=6)
    text_dates = False
    _wall = (
        "(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL "
        f"GREATEST({{0}}, {-_YEAR_1 * 1_000_000}) MICROSECOND)"
    )
    _is_before = f"{{0}} < {-_YEAR_1 * 1_000_000}"

    def wall(self, moment: SQL) -> SQL:
        return SQLTemplate(self._wall, self.wall_type, moment)

    def day(self, moment: SQL) -> SQL:
        return SQLTemplate(f"CAST({self._wall} AS DATE)", Date(), moment)

    def text(self, moment: SQL) -> SQL:
        text = f"CASE WHEN {self._is_before} THEN '0000' ELSE CAST({self._wall} AS CHAR) END"
        return SQLTemplate(f"CAST({text} AS BINARY)", _STRING, moment)

    def day_text(self, moment: SQL) -> SQL:
        return SQLTemplate(f"CAST(CAST({self._wall} AS DATE) AS CHAR)", _STRING, moment)

    def iso(self, moment: SQL, *, fraction: bool, suffix: str) -> SQL:
        length = 26 if fraction else 19
        text = f"REPLACE(LEFT(CAST({self._wall} AS CHAR), {length}), ' ', 'T')"
        return SQLTemplate(f"CONCAT({text}, '{suffix}')", _STRING, moment)

    def units(self, moment: SQL, unit: str, *, up: bool) -> SQL:
        step = 1_000_000 // PER_SECOND[unit]
        if step == 1:
            return moment
        shift = _YEAR_1 * 1_000_000 + (step - 1 if up else 0)
        text = f"((({{0}}) + {shift}) DIV {step} - {_YEAR_1 * PER_SECOND[unit]})"
        return SQLTemplate(text, _INTEGER, moment)

    def rounded_up(self, moment: SQL, microseconds: int) -> SQL:
        if microseconds == 1:
            return moment
        text = f"((({{0}}) + {microseconds - 1}) DIV {microseconds} * {microseconds})"
        return SQLTemplate(text, _INTEGER, moment)

    def literal_wall(self, seconds: int) -> str:
        return f"TIMESTAMP'{clock_face(seconds)}'"

    def literal_moment(self, seconds: int) -> str:
        return str(seconds * 1_000_000)

    def canonical(self, string: SQL) -> SQL:
        text = "CAST(REPLACE(REGEXP_REPLACE({0}, '(Z|[+]00:00)$', ''), 'T', ' ') AS BINARY)"
        return SQLTemplate(text, _STRING, string)

    def is_iso(self, string: SQL) -> SQL:
        # Letters count as they are written, whatever the column's collation says; and $ alone would
        # match before a line break too.
        text = f"({{0}} REGEXP '(?-i){ISO_PATTERN}(?![[:space:]])$' AND LEFT({{0}}, 4) <> '0000')"
        return SQLTemplate(text, _BOOLEAN, string)

    def is_wall(self, column: SQL) -> SQL | None:
        # "Zero dates", and dates with a month or a day that is zero, are no dates.
        text = "({0} > TIMESTAMP'0001-01-01 00:00:00' AND MONTH({0}) > 0 AND DAYOFMONTH({0}) > 0)"
        return SQLTemplate(text, _BOOLEAN, column)

    def is_day(self, column: SQL) -> SQL | None:
        text = "(YEAR({0}) > 0 AND MONTH({0}) > 0 AND DAYOFMONTH({0}) > 0)"
        return SQLTemplate(text, _BOOLEAN, column)

    def from_wall(self, column: SQL) -> SQL:
        return SQLTemplate("TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {0})", _INTEGER, column)

    def from_day(self, column: SQL) -> SQL:
        return self.from_wall(column)

    def from_text(self, text: SQL) -> SQL:
        text_ = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', CAST({0} AS DATETIME(6)))"
        return SQLTemplate(text_, _INTEGER, text)

    def from_units(self, column: SQL, unit: str) -> SQL:
        return _integers_of(column, unit, 1_000_000, "GREATEST")


class SQLite:
    """SQLite, where SQLAlchemy keeps dates as texts."""

    wall_type: TypeEngine[Any] = _STRING
    text_dates = True
    # The year 0 is before every valid date. (A whole number by / 1000.0 loses no millisecond.)
    _text = "strftime('{form}', MAX({{0}}, -62167219200000) / 1000.0, 'unixepoch')"
    _suffix_free = (
        "CASE WHEN substr({0}, -1) = 'Z' THEN substr({0}, 1, length({0}) - 1) "
        "WHEN substr({0}, -6) = '+00:00' THEN substr({0}, 1, length({0}) - 6) ELSE {0} END"
    )

    def wall(self, moment: SQL) -> SQL:
        return self.text(moment)

    def day(self, moment: SQL) -> SQL:
        return SQLTemplate(self._text.format(form="%Y-%m-%d"), _STRING, moment)

    def text(self, moment: SQL) -> SQL:
        text = self._text.format(form="%Y-%m-%d %H:%M:%f")
        return SQLTemplate(f"({text} || '000')", _STRING, moment)

    def day_text(self, moment: SQL) -> SQL:
        return self.day(moment)

    def iso(self, moment: SQL, *, fraction: bool, suffix: str) -> SQL:
        form = "%Y-%m-%dT%H:%M:" + ("%f" if fraction else "%S")
        text = f"({self._text.format(form=form)} || '{'000' if fraction else ''}{suffix}')"
        return SQLTemplate(text, _STRING, moment)

    def units(self, moment: SQL, unit: str, *, up: bool) -> SQL:
        if unit == "ms":
            return moment
        if unit == "us":
            return SQLTemplate("(({0}) * 1000)", _INTEGER, moment)
        shift = _YEAR_1 * 1_000 + (999 if up else 0)
        return SQLTemplate(f"((({{0}}) + {shift}) / 1000 - {_YEAR_1})", _INTEGER, moment)

    def rounded_up(self, moment: SQL, microseconds: int) -> SQL:
        step = microseconds // 1_000
        if step <= 1:
            return moment
        return SQLTemplate(f"((({{0}}) + {step - 1}) / {step} * {step})", _INTEGER, moment)

    def literal_wall(self, seconds: int) -> str:
        return f"'{clock_face(seconds)}'"

    def literal_moment(self, seconds: int) -> str:
        return str(seconds * 1_000)

    def canonical(self, string: SQL) -> SQL:
        return SQLTemplate(f"replace({self._suffix_free}, 'T', ' ')", _STRING, string)

    def is_iso(self, string: SQL) -> SQL:
        # strftime() takes the 31st of any month. Once it counts, that is a day of the next one.
        fraction = f"substr({self._suffix_free}, 20)"
        return SQLTemplate(
            "({0} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9][T ]"
            "[0-2][0-9]:[0-5][0-9]:[0-5][0-9]*' "
            "AND strftime('%Y-%m-%d %H:%M:%S', substr({0}, 1, 19), '+0 days') "
            "= replace(substr({0}, 1, 19), 'T', ' ') AND substr({0}, 1, 4) <> '0000' "
            f"AND ({fraction} = '' OR {fraction} GLOB '.[0-9]*' AND length({fraction}) <= 10 "
            f"AND rtrim(substr({fraction}, 2), '0123456789') = ''))",
            _BOOLEAN,
            string,
        )

    def is_wall(self, column: SQL) -> SQL | None:
        return self.is_iso(column)

    def is_day(self, column: SQL) -> SQL | None:
        text = "(strftime('%Y-%m-%d', {0}, '+0 days') = {0} AND substr({0}, 1, 4) <> '0000')"
        return SQLTemplate(text, _BOOLEAN, column)

    def from_wall(self, column: SQL) -> SQL:
        return self.from_text(self.canonical(column))

    def from_day(self, column: SQL) -> SQL:
        return SQLTemplate("(CAST(strftime('%s', {0}) AS INTEGER) * 1000)", _INTEGER, column)

    def from_text(self, text: SQL) -> SQL:
        return SQLTemplate(
            "(CAST(strftime('%s', {0}) AS INTEGER) * 1000 "
            "+ CAST(substr(strftime('%f', {0}), 4) AS INTEGER))",
            _INTEGER,
            text,
        )

    def from_units(self, column: SQL, unit: str) -> SQL:
        return _integers_of(column, unit, 1_000, "MAX")


def _integers_of(column: SQL, unit: str, per_second: int, greatest: str) -> SQL:
    """A moment that is an integer, of a number of units; NULL from the year 10,000 on."""
    factor = PER_SECOND[unit]
    text = f"{greatest}({{0}}, {-_YEAR_1 * factor})"
    if per_second >= factor:
        text = f"{text} * {per_second // factor}"
    else:  # microseconds on SQLite: rounded up
        step = factor // per_second
        text = f"({text} + {_YEAR_1 * factor + step - 1}) / {step} - {_YEAR_1 * per_second}"
    return SQLTemplate(
        f"CASE WHEN {{0}} < {_YEAR_10_000 * factor} THEN {text} END", _INTEGER, column
    )


_POSTGRESQL: Final = PostgreSQL()
_MYSQL: Final = MySQL()
_SPELLINGS: Final[dict[str, DialectTime]] = {
    "postgresql": _POSTGRESQL,
    "sqlite": SQLite(),
    **dict.fromkeys(MYSQL_FAMILY, _MYSQL),
}


def spelling_of(dialect: str) -> DialectTime:
    """How the database of a dialect spells instants."""
    return _SPELLINGS.get(dialect, _POSTGRESQL)
