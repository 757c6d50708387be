"""The database's clock, and the two columns that are read by it.

The clock is there in SQLAlchemy's expressions, and as this process knows it without asking. How
each database is asked for its now, stamps a row and takes seconds from an instant is in
`ttl_odm.dialects`; `Clock` gives those texts SQLAlchemy's types.

``row.is_expired`` and the identity map need the database's now for rows that are already in
memory. A `Sample`, taken once in a while before a statement on a TTL table, gives an upper
bound: the server's answer, less the moment at which the question was *sent*. An upper bound
errs towards "expired", where a look at the database settles it; it never shows an expired row
as live. The host's wall clock is not used anywhere, only its monotonic one.

`LastModified` keeps ``_ts`` as each database tells time best and shows it as an aware UTC
datetime; `Seconds` keeps ``ttl`` and refuses what the contract refuses, in every statement
that writes it: flush, bulk and Core alike. Neither lets Alembic write it into a revision that could
not run: see `refuse_in_revision`. `Native` is the format of ``_ts``: the only
`ColumnFormat` that costs nothing at all. Those of other columns are in
`ttl_odm.sqlalchemy.time.formats`. `PartEnd` is what the sweeper's indexes are ordered by.

This module must not know policies or statements.
"""

# ruff: noqa: D102 (what a method of a format is for stands where it is declared first)

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cache, partial
from inspect import currentframe, signature
from typing import TYPE_CHECKING, Any, ClassVar, Final
from weakref import WeakSet

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    DateTime,
    Integer,
    Interval,
    String,
    TypeDecorator,
    cast,
    literal,
    literal_column,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import object_session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.core.values import row_ttl
from ttl_odm.dialects import Family
from ttl_odm.dialects.entry_points import GROUP, PAGE, brought_family
from ttl_odm.dialects.errors import heed
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.dialects.postgresql import PostgreSQL
from ttl_odm.dialects.sqlite import SQLite
from ttl_odm.errors import InvalidTTL, TTLConfigurationError, TTLError
from ttl_odm.sqlalchemy.compat import SQLTemplate
from ttl_odm.sqlalchemy.time.dialect_time import dialect_time_of

if TYPE_CHECKING:
    from types import FrameType

    from sqlalchemy import Column
    from sqlalchemy.engine import Connection, Dialect, Engine
    from sqlalchemy.orm import Session
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.sql.operators import OperatorType
    from sqlalchemy.types import TypeEngine

    SQL = ColumnElement[Any]
    Condition = ColumnElement[bool]


class Clock(Family):
    """A family of databases whose texts can be expressions too.

    Attributes:
        storage: The type of ``_ts``.
        counting: `counting_ttl` as the text of a `SQLTemplate`, by whether a CHECK is there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.storage: TypeEngine[Any] = (
            TIMESTAMP(timezone=True) if self.per_second is None else BigInteger()
        )
        self.counting = {
            is_checked: self.counting_ttl("{0}", is_checked=is_checked)
            for is_checked in (True, False)
        }

    def span(self, seconds: SQL) -> SQL:
        """A number of seconds as an expression that can be added to ``_ts`` or taken from it.

        Never a bound interval: drivers send a ``timedelta`` of a day as ``1 day``, and PostgreSQL
        takes a day off in the session's time zone, where it may have 23 or 25 hours.
        """
        unit = Interval() if self.per_second is None else BigInteger()
        return seconds.op("*", return_type=unit)(literal_column(self.second))

    def literal(self, sql: str) -> SQL:
        """One of this clock's SQL texts as an expression of the storage type."""
        return literal_column(sql, self.storage)

    def as_bookmark(self, place: SQL) -> SQL:
        """A place in one of the sweeper's indexes, as every driver can read it."""
        if isinstance(self, PostgreSQL):
            return SQLTemplate(self.bookmark("{0}"), String(), place)
        return place

    def from_bookmark(self, bookmark: Any, type_: TypeEngine[Any]) -> SQL:
        """The place that a bookmark stands for, to compare with."""
        if isinstance(self, PostgreSQL):
            return cast(literal(bookmark, String()), type_)
        return literal(bookmark, type_)


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
"""By dialect. Those of families that others bring are added when they are met."""


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
    return _brought_clock(dialect.name)


def _brought_clock(dialect: str) -> Clock:
    """The clock of a dialect whose family another distribution brings."""
    family = brought_family(dialect)
    if family is None:
        raise TTLConfigurationError(
            f"ttl_odm doesn't support the SQLAlchemy dialect {dialect!r}; it supports "
            f"{', '.join(sorted(_CLOCKS))}. A package can add the family of another database "
            f"through the entry-point group {GROUP}: see {PAGE}."
        )
    clock: Clock = type(f"{family.__name__}Clock", (Clock, family), {})()
    heed(clock)
    _CLOCKS.update(dict.fromkeys(clock.names, clock))
    return clock


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

    def at(self, moment: float) -> datetime:
        """The latest that it can have shown when this host's monotonic clock showed this."""
        return self.instant + timedelta(seconds=moment - self.asked)


_signature: Final = cache(signature)
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
    sample = None if session is None else sample_of(dialect_of(session, row))
    if sample is None:
        if not _latest:
            raise TTLError(
                f"The age of {row!r} isn't known yet, because this process hasn't read its "
                "database's clock. Load the row in a session first."
            )
        (sample,) = _latest
    return sample.now()


def dialect_of(session: Session, row: object) -> Dialect:
    """The dialect of the database that a session has an object in.

    A flush asks for an object's own database where sessions have one for each (horizontal
    sharding), and for that of its class elsewhere; so `get_bind()` is asked for no more than that.
    """
    own: dict[str, Any] = {}
    if session.connection_callable is not None:
        parameters = _signature(type(session).get_bind).parameters.values()
        if any(p.name == "instance" or p.kind is p.VAR_KEYWORD for p in parameters):
            own["instance"] = row
    return session.get_bind(instance_state(row).manager.mapper, **own).dialect


def forget_compiled_statements() -> None:
    """Let the engines that have met a TTL table compile their statements again.

    (A statement cache that a user passes along can't be reached; only the engines' own.)
    """
    for engine in list(_engines):
        engine.clear_compiled_cache()


class UnwrappedInvalidTTL(InvalidTTL, DontWrapMixin):
    """`InvalidTTL` that SQLAlchemy does not dress up as a StatementError."""


class UnwrappedConfigurationError(TTLConfigurationError, DontWrapMixin):
    """`TTLConfigurationError` that SQLAlchemy does not dress up as a StatementError."""


def refuse_in_revision(caller: FrameType | None) -> None:
    """Refuse the call of a ``__repr__`` by which Alembic writes a revision without our operations.

    Without ``import ttl_odm.alembic`` in env.py autogenerate knows nothing of TTL. It would write
    our columns and policies as their ``repr()``, and the revision would end in a bare NameError or
    a SyntaxError. Whoever else asks for a ``repr()`` gets it.

    Args:
        caller: The frame that called ``__repr__``.

    Raises:
        TTLConfigurationError: It is Alembic's renderer, and ``ttl_odm.alembic`` isn't imported. The
            error is Alembic's ``CommandError`` too, which its commands print as one line.
    """
    if (
        caller is not None
        and caller.f_globals.get("__name__") == "alembic.autogenerate.render"
        and "ttl_odm.alembic" not in sys.modules
    ):
        command_error: Any = sys.modules["alembic.util"].CommandError
        kind = type("RevisionError", (TTLConfigurationError, command_error), {})
        raise kind(
            "env.py doesn't import ttl_odm.alembic, so Alembic can't write a revision for tables "
            "with TTL: it would end in \"NameError: name 'ttl_odm' is not defined\". Add the "
            "line `import ttl_odm.alembic` at the top of env.py, and generate the revision again."
        )


class LastModified(TypeDecorator[datetime]):
    """An instant; always an aware UTC ``datetime`` in Python.

    ``timestamptz`` on PostgreSQL, epoch microseconds on MariaDB and MySQL, epoch milliseconds
    on SQLite; elsewhere what the family of the database says.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def __repr__(self) -> str:
        refuse_in_revision(getattr(currentframe(), "f_back", None))
        return super().__repr__()

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The storage type of the dialect's clock."""
        return dialect.type_descriptor(clock_of(dialect).storage)

    def bind_processor(self, dialect: Dialect) -> Any:
        """Store an aware datetime; a naive one is refused, for it names no instant."""
        to_storage = clock_of(dialect).to_storage

        def process(value: Any) -> Any:
            if value is None:
                return None
            if not isinstance(value, datetime) or value.tzinfo is None:
                raise UnwrappedConfigurationError(
                    f"last_modified takes an aware datetime, not {value!r}; "
                    "add tzinfo=datetime.timezone.utc if it is UTC."
                )
            return to_storage(value)

        return process

    def result_processor(
        self,
        dialect: Dialect,
        coltype: object,  # noqa: ARG002 - SQLAlchemy's signature
    ) -> Any:
        """Read an aware datetime in UTC, without `TypeDecorator`'s detours: it is done per row."""
        return clock_of(dialect).reader()


class Seconds(TypeDecorator[int]):
    """A row's own ttl under the strict rule; takes ``timedelta`` too."""

    impl = Integer
    cache_ok = True

    def __init__(self, where: str = "ttl") -> None:
        super().__init__()
        self.where = where

    def __repr__(self) -> str:
        refuse_in_revision(getattr(currentframe(), "f_back", None))
        return super().__repr__()

    def process_bind_param(
        self,
        value: float | timedelta | None,
        dialect: Dialect,  # noqa: ARG002 - SQLAlchemy's signature
    ) -> int | None:
        """Whole seconds, -1 or None; of anything else nothing is sent to the database."""
        if value is None:
            return None
        try:
            return row_ttl(value, where=self.where)
        except InvalidTTL as error:
            raise UnwrappedInvalidTTL(str(error)) from None

    def coerce_compared_value(self, op: OperatorType | None, value: object) -> TypeEngine[Any]:
        """Compare with any integer: ``where(Model.ttl > 0)`` asks, it stores nothing."""
        return Integer().coerce_compared_value(op, value)


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """How one column keeps instants on one database.

    Moments are instants of the database's clock, see `ttl_odm.sqlalchemy.time.dialect_time`. This
    class itself is for columns that keep just these: ``timestamptz`` on PostgreSQL, and a
    `LastModified` that may be NULL. `raw` reads and binds what the column holds, as it is;
    `precision` is the steps in which it keeps time, in microseconds.
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

    @property
    def form(self) -> str | None:
        """How a column of texts has to write dates, for people; None of other columns."""
        return None

    def is_read(self, column: SQL) -> SQL | None:  # noqa: ARG002 (see the formats that are texts)
        """Whether a text is read as a date; None of columns that hold other things."""
        return None

    def stored(self, moment: SQL) -> SQL:
        """What the column has to hold for a moment, or for one shortly after it."""
        if self.precision == 1:
            return moment
        return dialect_time_of(self.clock).rounded_up(moment, self.precision)


class Native(ColumnFormat):
    """The column of the contract: never NULL, and sums with it are indexed."""

    def ahead(self, column: SQL, moment: SQL) -> Condition:
        return self.plain(column) > moment

    def reached_after(self, column: SQL, seconds: SQL, moment: SQL) -> Condition:
        return self.plain(column) + self.clock.span(seconds) <= moment

    def ahead_after(self, column: SQL, seconds: SQL, moment: SQL) -> Condition:
        return self.plain(column) + self.clock.span(seconds) > moment


class Instants:
    """How a column keeps instants: this is the contract's own, which is of type `LastModified`.

    Those of other columns are `ttl_odm.sqlalchemy.time.instants.AdoptedInstants`.
    """

    native: ClassVar[bool] = True

    def __init__(self, column: Column[Any]) -> None:
        self.column = column
        self._formats: dict[str, ColumnFormat] = {}

    def on(self, clock: Clock) -> ColumnFormat:
        """How the column keeps instants on a database."""
        column_format = self._formats.get(clock.family)
        if column_format is None:
            column_format = self._formats[clock.family] = self._format_on(clock)
        return column_format

    def _format_on(self, clock: Clock) -> ColumnFormat:
        return (ColumnFormat if self.column.nullable else Native)(clock, clock.storage)

    def stored(self, moment: SQL) -> SQL:
        """A moment of the database's clock as a value for the column."""
        return moment

    @property
    def coarseness(self) -> int:
        """Seconds by which a moment may grow when it is stored."""
        return 1


class PartEnd(FunctionElement[Any]):
    """What the index over inheriting rows orders by; given a ttl, that over rows with their own."""

    inherit_cache = True


@compiles(PartEnd)
def _render_part_end(element: PartEnd, compiler: SQLCompiler, **kw: object) -> str:
    stamp, *ttl = (compiler.process(column, **kw) for column in element.clauses)
    return clock_of(compiler.dialect).part_end(stamp, *ttl)
