"""The database's clock, as each dialect spells it, and the unit ``_ts`` is kept in.

Everything that differs between PostgreSQL, MariaDB/MySQL and SQLite about *time* is in this
module: how to ask the server for its now, how to stamp a row, how to take seconds from an
instant. It knows nothing of policies or statements.

Three traps are settled here once:

* PostgreSQL's ``now()`` is the start of the *transaction*: a row written late in a long one
  would be born dead, and a long reader would see the expired. Reads compare with
  ``statement_timestamp()``; stamps and the predicates of writes use ``clock_timestamp()``, so
  that a write which waited for a lock judges the row at the moment it writes.
* MariaDB's and MySQL's ``UNIX_TIMESTAMP(NOW(6))`` goes through the session's time zone and is
  an hour off during the hour that daylight saving repeats in autumn.
  ``TIMESTAMPDIFF(MICROSECOND, ..., UTC_TIMESTAMP(6))`` never leaves UTC.
* SQLite's ``unixepoch('now', 'subsec')`` is NULL before 3.42; ``julianday`` is right everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, ColumnElement, Interval, literal_column
from sqlalchemy.dialects.postgresql import TIMESTAMP

from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import Dialect
    from sqlalchemy.types import TypeEngine

EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

FOREVER: Final = 100_000_000_000
"""Seconds (about 3,170 years) that no instant is older than; "never" as a bound value.

Small enough for 64-bit microseconds and for PostgreSQL's first year, 4713 BC.
"""

OFF: Final = 2 * FOREVER
"""Like `FOREVER`, and says that rows' own ttls don't count either."""


@dataclass(frozen=True, slots=True)
class Clock:
    """How one family of databases tells and stores time.

    Attributes:
        family: the name of the dialect, the first one where there are several.
        now: SQL for the database's now in reads, in the unit of ``_ts``.
        now_at_write: the same for the predicate of UPDATE and DELETE.
        stamp: SQL for the value of a fresh ``_ts``.
        per_second: units of ``_ts`` in a second; ``None`` where ``_ts`` is a timestamp.
        until: template of `seconds_until`.
        own_end: template for the end of a row's own ttl, spelled as its index has it.
        inherited_end: template for what the index over the inheriting rows orders by.
        earliest: SQL for the first instant that a datetime can be, in the unit of ``_ts``.
        latest: SQL for the first one that it can't.
    """

    family: str
    now: str
    now_at_write: str
    stamp: str
    per_second: int | None
    until: str
    own_end: str
    inherited_end: str
    earliest: str
    latest: str

    def seconds_until(self, instant: str) -> str:
        """SQL for the whole seconds from now to an instant, rounded up, at least 1."""
        return self.until.format(instant=instant, now=self.now)

    @property
    def storage(self) -> TypeEngine[Any]:
        """The column type that ``_ts`` has on this database."""
        if self.per_second is None:
            return TIMESTAMP(timezone=True)
        return BigInteger()

    @property
    def second(self) -> str:
        """SQL for one second, to be multiplied and added to ``_ts``."""
        return "interval '1 second'" if self.per_second is None else str(self.per_second)

    def span(self, seconds: ColumnElement[Any]) -> ColumnElement[Any]:
        """A number of seconds as an expression that can be added to ``_ts`` or taken from it.

        Never a bound interval: drivers send a ``timedelta`` of a day as ``1 day``, and PostgreSQL
        takes a day off in the session's time zone, where it may have 23 or 25 hours.
        """
        unit = Interval() if self.per_second is None else BigInteger()
        return seconds.op("*", return_type=unit)(literal_column(self.second))

    def literal(self, sql: str) -> ColumnElement[Any]:
        """One of this clock's SQL texts as an expression of the storage type."""
        return literal_column(sql, self.storage)

    def to_storage(self) -> Callable[[datetime], Any]:
        """A function from an aware datetime to what the driver stores."""
        if self.per_second is None:
            return lambda value: value
        per_second = self.per_second
        unit = timedelta(microseconds=1_000_000 // per_second)
        return lambda value: (value - EPOCH) // unit

    def from_storage(self) -> Callable[[Any], datetime]:
        """A function from what the driver returns to an aware datetime in UTC."""
        if self.per_second is None:
            return _in_utc
        factor = 1_000_000 // self.per_second
        return lambda value: EPOCH + timedelta(microseconds=value * factor)


def _in_utc(value: datetime) -> datetime:
    # psycopg answers in the session's time zone, asyncpg in UTC.
    return value if value.tzinfo is timezone.utc else value.astimezone(timezone.utc)


MYSQL_FAMILY: Final = ("mysql", "mariadb")

INHERITED_END: Final = "_ttl_inh"
OWN_END: Final = "_ttl_own"
"""MariaDB's and MySQL's virtual columns (neither has partial indexes); no Table knows them."""

_MYSQL_NOW: Final = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
_SQLITE_NOW: Final = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"

_POSTGRESQL: Final = Clock(
    family="postgresql",
    now="statement_timestamp()",
    now_at_write="clock_timestamp()",
    stamp="clock_timestamp()",
    per_second=None,
    until="GREATEST(1, CEIL(EXTRACT(EPOCH FROM {instant} - {now})))::integer",
    # timestamptz + interval depends on the session's time zone and may not be indexed; in UTC,
    # without a zone, it may.
    own_end="((({stamp} AT TIME ZONE 'UTC') + {ttl} * interval '1 second') AT TIME ZONE 'UTC')",
    inherited_end="{stamp}",
    earliest="TIMESTAMPTZ '0001-01-01 00:00:00+00'",
    latest="TIMESTAMPTZ '10000-01-01 00:00:00+00'",
)
_MYSQL: Final = Clock(
    family="mysql",
    now=_MYSQL_NOW,
    now_at_write=_MYSQL_NOW,
    stamp=_MYSQL_NOW,
    per_second=1_000_000,
    until="GREATEST(1, ({instant} - {now} + 999999) DIV 1000000)",
    own_end=OWN_END,
    inherited_end=INHERITED_END,
    earliest="-62135596800000000",
    latest="253402300800000000",
)
_SQLITE: Final = Clock(
    family="sqlite",
    now=_SQLITE_NOW,
    now_at_write=_SQLITE_NOW,
    stamp=_SQLITE_NOW,
    per_second=1_000,
    until="MAX(1, ({instant} - {now} + 999) / 1000)",
    own_end="({stamp} + {ttl} * 1000)",
    inherited_end="{stamp}",
    earliest="-62135596800000",
    latest="253402300800000",
)

_CLOCKS: Final = {
    "postgresql": _POSTGRESQL,
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "sqlite": _SQLITE,
}


def clock_of(dialect: Dialect) -> Clock:
    """The clock of a dialect.

    Raises:
        TTLConfigurationError: the dialect is not one that ttl_odm supports. Failing is the
            only safe answer: a statement without the predicate would show expired rows.
    """
    clock = _CLOCKS.get(dialect.name)
    if clock is not None:
        return clock
    if dialect.name == "default":  # str(statement) without an engine: readable, never executed
        return _POSTGRESQL
    raise TTLConfigurationError(
        f"ttl_odm doesn't support the SQLAlchemy dialect {dialect.name!r}; "
        f"it supports {', '.join(sorted(_CLOCKS))}."
    )
