"""How columns keep instants: in which kind, and what that means for a comparison with now.

One object per column and database, see `ColumnFormat`. The predicate, the stamps and the sweeper
ask it for SQL; none of them knows what a column holds. The columns of the contract are one kind of
several, and the only one that costs nothing at all.

A comparison says what the column must be, never what a function of it must be, where that can be
had: then an index on the column serves. Where it is not exact, an exact one stands beside it.
"""

# ruff: noqa: D102 (what a method is for stands where it is declared first)

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    String,
    and_,
    case,
    literal_column,
    type_coerce,
)
from sqlalchemy.dialects.mysql import TIMESTAMP as MYSQL_TIMESTAMP

from ttl_odm.sqlalchemy.time.dialect_time import SQLTemplate, clock_face, dialect_time_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlalchemy.types import TypeEngine

    from ttl_odm.sqlalchemy.time.clock import Clock
    from ttl_odm.sqlalchemy.time.dialect_time import DialectTime
    from ttl_odm.sqlalchemy.time.zones import Offsets

    SQL = ColumnElement[Any]
    Condition = ColumnElement[bool]

_DAY: Final = 86_400
_INTEGER: Final = BigInteger()
_ISO_LENGTH: Final = 20
"""Characters of ``YYYY-MM-DDThh:mm:ssZ``."""


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """How one column keeps instants on one database.

    Moments are instants of the database's clock, see `ttl_odm.sqlalchemy.time.dialect_time`. This
    class itself is for columns that keep just these: ``timestamptz`` on PostgreSQL, `LastModified`.

    Attributes:
        clock: The database's clock.
        raw: The type that reads and binds what the column holds, as it is.
        precision: The steps in which the column keeps time, in microseconds.
    """

    clock: Clock
    raw: TypeEngine[Any]
    precision: int = 1

    @property
    def shifts(self) -> bool:
        """Whether what Python reads depends on the session, and only the database can tell."""
        return False

    def plain(self, column: SQL) -> SQL:
        """The column, without what a type of the application's makes of it."""
        return type_coerce(column, self.raw)

    def within(self, column: SQL, moment: SQL) -> Condition:
        """What an index finds: the rows that have `reached` a moment, and perhaps others."""
        return self.plain(column) <= moment

    def reached(self, column: SQL, moment: SQL) -> Condition:
        """True where the instant is not after a moment; false or NULL where there is none."""
        return self.within(column, moment)

    def ahead(self, column: SQL, moment: SQL) -> Condition:
        """True where the instant is after a moment, or there is none."""
        return SQLTemplate("(({0}) IS NOT TRUE)", Boolean(), self.reached(column, moment))

    def reached_after(self, column: SQL, seconds: SQL, moment: SQL) -> Condition:
        """The same as `reached` for an instant so many seconds later."""
        return self.reached(column, moment - self.clock.span(seconds))

    def ahead_after(self, column: SQL, seconds: SQL, moment: SQL) -> Condition:
        """The same as `ahead` for an instant so many seconds later."""
        return self.ahead(column, moment - self.clock.span(seconds))

    def instant(self, column: SQL) -> SQL:
        """The moment that the column holds; NULL where it holds none."""
        return self.plain(column)

    def stored(self, moment: SQL) -> SQL:
        """What the column has to hold for a moment, or for one shortly after it."""
        if self.precision == 1:
            return moment
        return dialect_time_of(self.clock.family).rounded_up(moment, self.precision)


class Native(ColumnFormat):
    """The column of the contract: never NULL, and sums with it are indexed."""

    def ahead(self, column: SQL, moment: SQL) -> Condition:
        return self.plain(column) > moment

    def reached_after(self, column: SQL, seconds: SQL, moment: SQL) -> Condition:
        return self.plain(column) + self.clock.span(seconds) <= moment

    def ahead_after(self, column: SQL, seconds: SQL, moment: SQL) -> Condition:
        return self.plain(column) + self.clock.span(seconds) > moment

    def stored(self, moment: SQL) -> SQL:
        return moment


@dataclass(frozen=True, slots=True, kw_only=True)
class _Zoned(ColumnFormat):
    """Columns of wall times, in a zone.

    Attributes:
        dialect: How the database spells them.
        offsets: The zone's.
    """

    dialect: DialectTime
    offsets: Offsets

    def _offset(self, at: SQL, boundaries: Iterable[tuple[str, int]], otherwise: int) -> SQL:
        """The seconds that the zone is ahead of UTC.

        Args:
            at: What is compared with the boundaries.
            boundaries: From where on which offset counts, the last first.
            otherwise: Before the first of them.
        """
        cases = " ".join(f"WHEN {{0}} >= {each} THEN {seconds}" for each, seconds in boundaries)
        return SQLTemplate(f"CASE {cases} ELSE {otherwise} END", _INTEGER, at)

    def _shifted(self, moment: SQL, seconds: SQL | int) -> SQL:
        """A moment so many seconds later; the same SQL where that is none."""
        if not isinstance(seconds, int):
            return moment + self.clock.span(seconds)
        if not seconds:
            return moment
        return moment + self.clock.span(literal_column(f"({seconds})", _INTEGER))

    def _at_wall(self, moment: SQL) -> SQL:
        """The moment at which a clock in UTC shows what one in the zone shows at this moment."""
        if self.offsets.is_fixed:
            return self._shifted(moment, self.offsets.most)
        literal = self.dialect.literal_moment
        boundaries = [(literal(at), offset) for at, offset in self.offsets.by_instant()]
        return self._shifted(moment, self._offset(moment, boundaries, self.offsets.most))

    def _rounded_up(self, moment: SQL) -> SQL:
        return self.dialect.rounded_up(moment, self.precision)


@dataclass(frozen=True, slots=True, kw_only=True)
class WallTimes(_Zoned):
    """Naive datetimes, and on databases without zones aware ones, which are told in UTC there."""

    def within(self, column: SQL, moment: SQL) -> Condition:
        limit = self._shifted(moment, self.offsets.most)
        if self._is_text:
            next_day = self.dialect.day_text(self._shifted(limit, _DAY))
            return self.plain(column) < next_day
        return self.plain(column) <= self.dialect.wall(limit)

    def reached(self, column: SQL, moment: SQL) -> Condition:
        conditions = [self.within(column, moment)]
        valid = self._is_valid(column)
        if valid is not None:
            conditions.append(valid)
        if self._is_text or not self.offsets.is_fixed:
            limit = self._limit(self._shifted(moment, self._offset_of(column)))
            conditions.append(self._comparable(column) <= limit)
        return and_(*conditions)

    def instant(self, column: SQL) -> SQL:
        as_utc = (
            self.dialect.from_text(self._comparable(column))
            if self._is_text
            else self.dialect.from_wall(self.plain(column))
        )
        offset = self._offset_of(column)
        if not isinstance(offset, int):
            as_utc = as_utc - self.clock.span(offset)
        elif offset:
            as_utc = self._shifted(as_utc, -offset)
        valid = self._is_valid(column)
        return as_utc if valid is None else case((valid, as_utc))

    def stored(self, moment: SQL) -> SQL:
        return self.dialect.wall(self._at_wall(self._rounded_up(moment)))

    @property
    def _is_text(self) -> bool:
        return self.dialect.text_dates

    def _is_valid(self, column: SQL) -> SQL | None:
        return self.dialect.is_wall(self.plain(column))

    def _comparable(self, column: SQL) -> SQL:
        plain = self.plain(column)
        return self.dialect.canonical(plain) if self._is_text else plain

    def _limit(self, moment: SQL) -> SQL:
        return self.dialect.text(moment) if self._is_text else self.dialect.wall(moment)

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
    """ISO-8601 strings in UTC, with or without a fraction, a T and a Z.

    Attributes:
        length: How many characters the column takes; None for any number.
    """

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

    def reached(self, column: SQL, moment: SQL) -> Condition:
        conditions = [self.within(column, moment)]
        valid = self.dialect.is_day(self.plain(column))
        if valid is not None:
            conditions.append(valid)
        if not self.offsets.is_fixed:
            limit = self.dialect.day(self._shifted(moment, self._offset_of(column)))
            conditions.append(self.plain(column) < limit)
        return and_(*conditions)

    def instant(self, column: SQL) -> SQL:
        end = self._shifted(self.dialect.from_day(self.plain(column)), _DAY)
        offset = self._offset_of(column)
        if not isinstance(offset, int):
            end = end - self.clock.span(offset)
        elif offset:
            end = self._shifted(end, -offset)
        valid = self.dialect.is_day(self.plain(column))
        return end if valid is None else case((valid, end))

    def stored(self, moment: SQL) -> SQL:
        return self.dialect.day(self._at_wall(moment))

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
    """Integers: seconds, milliseconds or microseconds since 1970.

    Attributes:
        dialect: How the database counts them.
        unit: Which.
    """

    dialect: DialectTime
    unit: str

    def within(self, column: SQL, moment: SQL) -> Condition:
        return self.plain(column) <= self.dialect.units(moment, self.unit, up=False)

    def instant(self, column: SQL) -> SQL:
        return self.dialect.from_units(self.plain(column), self.unit)

    def stored(self, moment: SQL) -> SQL:
        return self.dialect.units(moment, self.unit, up=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MySQLTimestamps(ColumnFormat):
    """MariaDB's and MySQL's ``TIMESTAMP``: kept in UTC, but shown in the session's time zone.

    Nothing but ``UNIX_TIMESTAMP()`` tells what is kept. What is written goes through the zone of
    the session; in the hour that a change repeats it would be an hour early, and is made later.
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
        moment = dialect_time_of(self.clock.family).rounded_up(moment, self.precision)
        seconds = SQLTemplate("(({0}) / 1000000)", _INTEGER, moment)
        text = "FROM_UNIXTIME(GREATEST({0}, 2 * {0} - UNIX_TIMESTAMP(FROM_UNIXTIME({0}))))"
        return SQLTemplate(text, MYSQL_TIMESTAMP(fsp=6), seconds)

    def _kept(self, column: SQL) -> SQL:
        return SQLTemplate("CAST(UNIX_TIMESTAMP({0}) * 1000000 AS SIGNED)", _INTEGER, column)
