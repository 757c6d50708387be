"""The database's clock: in SQLAlchemy's expressions, and as this process knows it without asking.

How each database is asked for its now, stamps a row and takes seconds from an instant is in
`ttl_odm.dialects`; `Clock` gives those texts SQLAlchemy's types.

``row.is_expired`` and the identity map need the database's now for rows that are already in
memory. A `Sample`, taken once in a while before a statement on a TTL table, gives an upper
bound: the server's answer, less the moment at which the question was *sent*. An upper bound
errs towards "expired", where a look at the database settles it; it never shows an expired row
as live. The host's wall clock is not used anywhere, only its monotonic one.

This module must not know policies or statements.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from sqlalchemy import BigInteger, ColumnElement, Interval, inspect, literal_column
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.orm import object_session

from ttl_odm.dialects import Family
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.dialects.postgresql import PostgreSQL
from ttl_odm.dialects.sqlite import SQLite
from ttl_odm.errors import TTLConfigurationError, TTLError

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Dialect, Engine
    from sqlalchemy.types import TypeEngine

FOREVER: Final = 100_000_000_000
"""Seconds (about 3,170 years) that no instant is older than; "never" as a bound value.

Small enough for 64-bit microseconds and for PostgreSQL's first year, 4713 BC.
"""

OFF: Final = 2 * FOREVER
"""Like `FOREVER`, and says that rows' own ttls don't count either."""


class Clock(Family):
    """A family of databases whose texts can be expressions too."""

    def __init__(self) -> None:
        super().__init__()
        self.storage: TypeEngine[Any] = (
            TIMESTAMP(timezone=True) if self.per_second is None else BigInteger()
        )

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


class _PostgreSQLClock(Clock, PostgreSQL):
    pass


class _MySQLClock(Clock, MySQL):
    pass


class _SQLiteClock(Clock, SQLite):
    pass


_CLOCKS: Final[dict[str, Clock]] = {
    name: clock
    for clock in (_PostgreSQLClock(), _MySQLClock(), _SQLiteClock())
    for name in clock.names
}


def clock_of(dialect: Dialect) -> Clock:
    """The clock of a dialect.

    For one that isn't supported an error is the only safe answer: a statement without the predicate
    would show expired rows.
    """
    clock = _CLOCKS.get(dialect.name)
    if clock is not None:
        return clock
    if dialect.name == "default":  # str(statement) without an engine: readable, never executed
        return _CLOCKS["postgresql"]
    raise TTLConfigurationError(
        f"ttl_odm doesn't support the SQLAlchemy dialect {dialect.name!r}; "
        f"it supports {', '.join(sorted(_CLOCKS))}."
    )


monotonic: Final = partial(time.monotonic)
"""This host's monotonic clock, in seconds.

Not under its own name: freezegun replaces each `time.monotonic` that it finds in a module, and what
was sampled then would be wrong by decades afterwards.
"""

MAX_AGE: Final = 300.0
"""Seconds after which a sample is renewed, in case the server's clock was set."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A database's clock as it was seen once.

    That is the server's now (aware, UTC), and this host's monotonic clock when it was `asked`.
    """

    instant: datetime
    asked: float

    def now(self) -> datetime:
        """The latest that the server's clock can show at this moment (aware, UTC)."""
        return self.instant + timedelta(seconds=monotonic() - self.asked)


_latest: list[Sample] = []
_engines: WeakSet[Engine] = WeakSet()


def sample_of(dialect: Any) -> Sample | None:
    """What was seen of the clock of an engine's database; None before its first sample."""
    # On the dialect, which copies of the engine share: looking it up there costs the least.
    return getattr(dialect, "ttl_odm_sample", None)


def observe(connection: Connection) -> None:
    """Look at the clock of a connection's database."""
    dialect: Any = connection.dialect
    clock = clock_of(dialect)
    asked = monotonic()
    instant = connection.exec_driver_sql(f"SELECT {clock.stamp}").scalar_one()
    sample = Sample(clock.from_storage(instant).astimezone(timezone.utc), asked)
    dialect.ttl_odm_sample = sample
    dialect.ttl_odm_stale_at = asked + MAX_AGE
    _engines.add(connection.engine)
    _latest[:] = [sample]


def forget(dialect: Any) -> None:
    """Let the next statement look at the clock of this engine's database again."""
    dialect.ttl_odm_sample = None
    dialect.ttl_odm_stale_at = 0.0


def database_now(row: object) -> datetime:
    """The now of the database that a row came from (aware, UTC), as an upper bound.

    A detached row is judged by the database that was sampled last; before the first statement on a
    TTL table it is a TTLError.
    """
    session = object_session(row)
    sample = None
    if session is not None:
        sample = sample_of(session.get_bind(inspect(row).mapper).dialect)
    if sample is None:
        if not _latest:
            raise TTLError(
                f"The age of {row!r} isn't known: this process has not asked its database for "
                "the time yet; load the row from a session first."
            )
        (sample,) = _latest
    return sample.now()


def forget_compiled_statements() -> None:
    """Let the engines that have met a TTL table compile their statements again.

    (A statement cache that a user passes along can't be reached; only the engines' own.)
    """
    for engine in list(_engines):
        engine.clear_compiled_cache()
