"""The formats of columns that are not ours: how each keeps instants, and is compared with now.

There is one `ColumnFormat` for each column and database. The predicate, the stamps and the sweeper
get their SQL from it; none of them knows what a column holds.

Where possible, a comparison is of the column itself, never of a function of it, so that an index on
the column serves. Where that is not exact, an exact comparison is added.
"""

# ruff: noqa: D102 (what a method is for stands where it is declared first)

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Numeric,
    String,
    and_,
    case,
    literal_column,
)
from sqlalchemy.dialects.mysql import TIMESTAMP as MYSQL_TIMESTAMP

from ttl_odm.sqlalchemy.compat import SQLTemplate
from ttl_odm.sqlalchemy.time.clock import ColumnFormat
from ttl_odm.sqlalchemy.time.dialect_time import NO_NUMBER, PER_SECOND, clock_face, dialect_time_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ttl_odm.sqlalchemy.time.dialect_time import DialectTime
    from ttl_odm.sqlalchemy.time.zones import Offsets

    SQL = ColumnElement[Any]
    Condition = ColumnElement[bool]

_DAY: Final = 86_400
_INTEGER: Final = BigInteger()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Zoned(ColumnFormat):
    """Columns of wall times, in a time zone."""

    dialect: DialectTime
    offsets: Offsets

    def reached(self, column: SQL, moment: SQL) -> Condition:
        valid, exactly = self._is_valid(column), self._reached_exactly(column, moment)
        conditions = (self.within(column, moment), valid, exactly)
        return and_(*(condition for condition in conditions if condition is not None))

    @abstractmethod
    def _is_valid(self, column: SQL) -> SQL | None:
        """The condition that the column holds a wall time; None if it can hold nothing else."""

    @abstractmethod
    def _reached_exactly(self, column: SQL, moment: SQL) -> Condition | None:
        """The condition to add to `within`; None where `within` is exact."""

    @abstractmethod
    def _offset_of(self, column: SQL) -> SQL | int:
        """The seconds that the zone is ahead of UTC at the wall time in the column."""

    def _unzoned(self, column: SQL, shown: SQL) -> SQL:
        """Return the moment in the column; `shown` is the moment when clocks in UTC show it."""
        offset = self._offset_of(column)
        if isinstance(offset, int):
            moment = self._shifted(shown, -offset)
        else:
            moment = shown - self.clock.span(offset)
        valid = self._is_valid(column)
        return moment if valid is None else case((valid, moment))

    def _offset(self, at: SQL, boundaries: Iterable[tuple[str, int]], otherwise: int) -> SQL:
        """Return the zone's seconds ahead of UTC, by the start of each offset, the last first."""
        cases = " ".join(f"WHEN {{0}} >= {start} THEN {seconds}" for start, seconds in boundaries)
        return SQLTemplate(f"CASE {cases} ELSE {otherwise} END", _INTEGER, at)

    def _shifted(self, moment: SQL, seconds: SQL | int) -> SQL:
        """Return a moment a number of seconds later; the same SQL for 0."""
        if not isinstance(seconds, int):
            return moment + self.clock.span(seconds)
        if not seconds:
            return moment
        return moment + self.clock.span(literal_column(f"({seconds})", _INTEGER))

    def _at_wall(self, moment: SQL) -> SQL:
        """Return the moment at which a clock in UTC shows what the zone's shows at `moment`."""
        if self.offsets.is_fixed:
            return self._shifted(moment, self.offsets.most)
        literal = self.dialect.literal_moment
        boundaries = [(literal(at), offset) for at, offset in self.offsets.changes]
        return self._shifted(moment, self._offset(moment, boundaries, self.offsets.most))


@dataclass(frozen=True, slots=True, kw_only=True)
class WallTimes(_Zoned):
    """Naive datetimes; and aware ones on databases without zones, which keep them in UTC."""

    def within(self, column: SQL, moment: SQL) -> Condition:
        limit = self._shifted(moment, self.offsets.most)
        if self._is_text:
            next_day = self.dialect.day_text(self._shifted(limit, _DAY))
            return self.plain(column) < next_day
        return self.plain(column) <= self.dialect.wall(limit)

    def instant(self, column: SQL) -> SQL:
        if self._is_text:
            return self._unzoned(column, self.dialect.from_text(self._comparable(column)))
        return self._unzoned(column, self.dialect.from_wall(self.plain(column)))

    def stored(self, moment: SQL) -> SQL:
        rounded = self.dialect.rounded_up(moment, self.precision)
        return self.dialect.wall(self._at_wall(rounded))

    @property
    def form(self) -> str | None:
        return "YYYY-MM-DD HH:MM:SS" if self._is_text else None

    def is_read(self, column: SQL) -> SQL | None:
        return self._is_valid(column) if self._is_text else None

    @property
    def _is_text(self) -> bool:
        return self.dialect.text_dates

    def _is_valid(self, column: SQL) -> SQL | None:
        return self.dialect.is_wall(self.plain(column))

    def _comparable(self, column: SQL) -> SQL:
        plain = self.plain(column)
        return self.dialect.canonical(plain) if self._is_text else plain

    def _reached_exactly(self, column: SQL, moment: SQL) -> Condition | None:
        if self.offsets.is_fixed and not self._is_text:
            return None
        moment = self._shifted(moment, self._offset_of(column))
        limit = self.dialect.text(moment) if self._is_text else self.dialect.wall(moment)
        return self._comparable(column) <= limit

    def _offset_of(self, column: SQL) -> SQL | int:
        if self.offsets.is_fixed:
            return self.offsets.most
        at = self.plain(column)
        if self._is_text:
            at = SQLTemplate("replace(substr({0}, 1, 19), 'T', ' ')", String(), at)
        literal = self.dialect.literal_wall
        boundaries = [(literal(wall), offset) for wall, offset in self.offsets.by_wall_time()]
        return self._offset(at, boundaries, self.offsets.least)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsoStrings(WallTimes):
    """ISO-8601 strings in UTC, with or without a fraction, a T and a Z."""

    length: int | None = None

    @property
    def _is_text(self) -> bool:
        return True

    def _is_valid(self, column: SQL) -> SQL | None:
        return self.dialect.is_iso(self.plain(column))

    def stored(self, moment: SQL) -> SQL:
        for fraction, suffix, length in ((True, "+00:00", 32), (True, "Z", 27)):
            if self.length is None or self.length >= length:
                return self.dialect.iso(moment, fraction=fraction, suffix=suffix)
        whole = self.dialect.rounded_up(moment, 1_000_000)
        return self.dialect.iso(whole, fraction=False, suffix="Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Days(_Zoned):
    """Dates, which last until the midnight in the zone that ends them."""

    def within(self, column: SQL, moment: SQL) -> Condition:
        return self.plain(column) < self.dialect.day(self._shifted(moment, self.offsets.most))

    def instant(self, column: SQL) -> SQL:
        return self._unzoned(column, self._shifted(self.dialect.from_day(self.plain(column)), _DAY))

    def stored(self, moment: SQL) -> SQL:
        return self.dialect.day(self._at_wall(moment))

    @property
    def form(self) -> str | None:
        return "YYYY-MM-DD" if self.dialect.text_dates else None

    def is_read(self, column: SQL) -> SQL | None:
        return self._is_valid(column) if self.dialect.text_dates else None

    def _is_valid(self, column: SQL) -> SQL | None:
        return self.dialect.is_day(self.plain(column))

    def _reached_exactly(self, column: SQL, moment: SQL) -> Condition | None:
        if self.offsets.is_fixed:
            return None
        limit = self.dialect.day(self._shifted(moment, self._offset_of(column)))
        return self.plain(column) < limit

    def _offset_of(self, column: SQL) -> SQL | int:
        """The offset at the midnight that ends the day."""
        if self.offsets.is_fixed:
            return self.offsets.most
        # That midnight is at or after a wall time if the day is at or after this one.
        boundaries = [
            (f"'{clock_face(-(-wall // _DAY) * _DAY - _DAY)[:10]}'", offset)
            for wall, offset in self.offsets.by_wall_time()
        ]
        return self._offset(self.plain(column), boundaries, self.offsets.least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs(ColumnFormat):
    """Integers: seconds, milliseconds or microseconds since 1970."""

    dialect: DialectTime
    unit: str

    def within(self, column: SQL, moment: SQL) -> Condition:
        return self.plain(column) <= self.dialect.units(moment, self.unit, up=False)

    def instant(self, column: SQL) -> SQL:
        return self.dialect.from_units(self.plain(column), self.unit)

    def stored(self, moment: SQL) -> SQL:
        return self.dialect.units(moment, self.unit, up=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class FractionalEpochs(ColumnFormat):
    """Floats and decimals: seconds, milliseconds or microseconds since 1970, with a fraction.

    NaN and both infinities are not instants. A float stands for the nearest microsecond, by the
    same division that Python's ``time.time()`` uses.
    """

    dialect: DialectTime
    unit: str
    is_float: bool

    def within(self, column: SQL, moment: SQL) -> Condition:
        return self.plain(column) <= self._number(moment)

    def reached(self, column: SQL, moment: SQL) -> Condition:
        is_number = SQLTemplate(f"({{0}} >= {NO_NUMBER})", Boolean(), self.plain(column))
        return and_(self.within(column, moment), is_number)

    def instant(self, column: SQL) -> SQL:
        return self.dialect.from_number(self.plain(column), self.unit, is_float=self.is_float)

    def stored(self, moment: SQL) -> SQL:
        if self.is_float or self.precision == 1:
            return self._number(self.dialect.rounded_up(moment, self.precision))
        steps = 1_000_000 // PER_SECOND[self.unit] // self.precision
        text = f"(CEIL({{0}} * {steps}) / {steps}.0)"
        return SQLTemplate(text, Numeric(), self._number(moment))

    def _number(self, moment: SQL) -> SQL:
        return self.dialect.number(moment, self.unit, is_float=self.is_float)


@dataclass(frozen=True, slots=True, kw_only=True)
class MySQLTimestamps(ColumnFormat):
    """MariaDB's and MySQL's ``TIMESTAMP``: kept in UTC, but shown in the session's time zone.

    Only ``UNIX_TIMESTAMP()`` returns the value that is kept. A written value is converted from the
    session's zone. In the hour that a change repeats it would be an hour early, so it is made later
    there.
    """

    @property
    def shifts(self) -> bool:
        return True

    def within(self, column: SQL, moment: SQL) -> Condition:
        text = "({0} <= FROM_UNIXTIME(GREATEST({1}, 0) / 1000000) + INTERVAL 1 DAY)"
        return SQLTemplate(text, Boolean(), column, moment)

    def reached(self, column: SQL, moment: SQL) -> Condition:
        is_date = SQLTemplate("(UNIX_TIMESTAMP({0}) > 0)", Boolean(), column)
        return and_(self.within(column, moment), is_date, self._kept(column) <= moment)

    def instant(self, column: SQL) -> SQL:
        text = "CASE WHEN UNIX_TIMESTAMP({0}) > 0 THEN {1} END"
        return SQLTemplate(text, _INTEGER, column, self._kept(column))

    def stored(self, moment: SQL) -> SQL:
        moment = dialect_time_of(self.clock).rounded_up(moment, self.precision)
        seconds = SQLTemplate("(({0}) / 1000000)", _INTEGER, moment)
        text = "FROM_UNIXTIME(GREATEST({0}, 2 * {0} - UNIX_TIMESTAMP(FROM_UNIXTIME({0}))))"
        return SQLTemplate(text, MYSQL_TIMESTAMP(fsp=6), seconds)

    def _kept(self, column: SQL) -> SQL:
        return SQLTemplate("CAST(UNIX_TIMESTAMP({0}) * 1000000 AS SIGNED)", _INTEGER, column)
