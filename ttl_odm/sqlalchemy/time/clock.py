"""The database's clock, and the two columns that are read by it.

`Clock` is the clock in SQLAlchemy's expressions. The SQL that reads each database's now, stamps a
row and takes seconds from an instant is in `ttl_odm.dialects`; `Clock` adds SQLAlchemy's types.

``row.is_expired`` and the identity map need the database's now for rows that are already in
memory. A `Sample`, taken once in a while before a statement on a TTL table, gives an upper
bound: the server's answer, counted from the moment at which the question was *sent*. An upper bound
errs towards "expired", which the database then confirms or denies; it never shows an expired row
as live. The host's wall clock is not used anywhere, only its monotonic one.

`LastModified` is the type of ``_ts``: each database's best form for instants, and an aware UTC
datetime in Python. `Seconds` is the type of ``ttl`` and rejects what the contract rejects, in every
statement that writes it: flush, bulk and Core alike. Neither lets Alembic write it into a revision
that couldn't run: see `refuse_in_revision`. `Native` is the format of ``_ts``: the only
`ColumnFormat` that costs nothing at all. The formats of other columns are in
`ttl_odm.sqlalchemy.time.formats`. `PartEnd` is what the sweeper's indexes are ordered by.

SQLAlchemy leaves a comparison to the type of its left side. `InstantComparator` is that of
`LastModified`: it puts `AsInstant` around an expression of dates on the right side, which is
compiled to an instant. The type converts bound values by itself.

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

from sqlalchemy import TIMESTAMP as SQL_TIMESTAMP
from sqlalchemy import (
    BigInteger,
    BindParameter,
    Boolean,
    ClauseElement,
    ColumnElement,
    Date,
    DateTime,
    Double,
    Integer,
    Interval,
    ScalarSelect,
    Select,
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
from sqlalchemy.sql import functions, operators
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.core.values import row_ttl
from ttl_odm.dialects import EPOCH, Family
from ttl_odm.dialects.errors import heed
from ttl_odm.dialects.families import GROUP, PAGE, brought_family
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.dialects.postgresql import PostgreSQL
from ttl_odm.dialects.sqlite import SQLite
from ttl_odm.errors import InvalidTTL, TTLConfigurationError, TTLError
from ttl_odm.sqlalchemy.compat import SQLTemplate, affinity, undecorated
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
        converts: Whether columns may store other values than comparisons have: only then is there a
            `column_types_query`.
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
        self.converts = type(self).column_types_query is not Family.column_types_query

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

    def length(self, earlier: SQL, later: SQL) -> SQL:
        """How many seconds one instant is after another."""
        if self.per_second is None:
            return SQLTemplate(self.between("({0})", "({1})"), Double(), earlier, later)
        return type_coerce(later - earlier, _Length(self.per_second))

    def as_bookmark(self, place: SQL) -> SQL:
        """A place in one of the sweeper's indexes, as every driver can read it."""
        if isinstance(self, PostgreSQL):
            return SQLTemplate(self.bookmark("{0}"), String(), place)
        return place

    def from_bookmark(self, bookmark: object, type_: TypeEngine[Any]) -> SQL:
        """The place that a bookmark stands for, to compare with."""
        if isinstance(self, PostgreSQL):
            return cast(literal(bookmark, String()), type_)
        return literal(bookmark, type_)


class _Length(TypeDecorator[float]):
    """A length of time: in SQL in units of ``_ts``, in results in seconds."""

    impl = BigInteger
    cache_ok = True

    def __init__(self, per_second: int) -> None:
        super().__init__()
        self.per_second = per_second

    def process_result_value(self, value: Any, dialect: Dialect) -> float | None:  # noqa: ARG002
        """Divide what the driver returns, which may be a ``Decimal``."""
        return None if value is None else float(value / self.per_second)


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
"""By dialect. The clocks of other distributions' families are added when they are first used."""


def clock_of(dialect: Dialect) -> Clock:
    """Return the clock of a dialect.

    A dialect that isn't supported is an error, because a statement without the predicate would show
    expired rows.
    """
    clock = _CLOCKS.get(dialect.name)
    if clock is not None:
        return clock
    if dialect.name == "default":  # str(statement) without an engine: readable, never executed
        return _CLOCKS["postgresql"]
    return _brought_clock(dialect.name)


def _brought_clock(dialect: str) -> Clock:
    """Make the clock of a dialect whose family comes from another distribution."""
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

Not under its own name: freezegun replaces each `time.monotonic` that it finds in a module, and
samples taken then would be wrong by decades afterwards.
"""

MAX_AGE: Final = 300.0
"""Seconds after which a sample is renewed, in case the server's clock was changed."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of a database's clock.

    Attributes:
        instant: The latest that the server's now can have been, whose clock rounds (aware, UTC).
        asked: This host's monotonic clock when the question was sent.
    """

    instant: datetime
    asked: float

    def now(self) -> datetime:
        """Return the latest instant that the server's clock can show now (aware, UTC)."""
        return self.instant + timedelta(seconds=monotonic() - self.asked)

    def at(self, moment: float) -> datetime:
        """Return the latest that it can have shown at a moment of this host's monotonic clock."""
        return self.instant + timedelta(seconds=moment - self.asked)


_signature: Final = cache(signature)
_latest: list[Sample] = []
_engines: WeakSet[Engine] = WeakSet()


def sample_of(dialect: Dialect) -> Sample | None:
    """Return the latest sample of an engine's database; None before the first one."""
    # On the dialect, which copies of the engine share: that lookup costs the least.
    return getattr(dialect, "ttl_odm_sample", None)


def observe(connection: Connection) -> None:
    """Take a sample of the clock of a connection's database."""
    dialect: Any = connection.dialect
    clock = clock_of(dialect)
    asked = monotonic()
    instant = connection.exec_driver_sql(f"SELECT {clock.stamp}").scalar_one()
    step = timedelta(seconds=1 / (clock.per_second or 1_000_000))
    sample = Sample(clock.from_storage(instant).astimezone(timezone.utc) + step, asked)
    dialect.ttl_odm_sample = sample
    dialect.ttl_odm_stale_at = asked + MAX_AGE
    _engines.add(connection.engine)
    _latest[:] = [sample]


def forget(dialect: Any) -> None:
    """Drop the sample of an engine's database, so that the next statement takes a new one."""
    dialect.ttl_odm_sample = None
    dialect.ttl_odm_stale_at = 0.0


def database_now(row: object) -> datetime:
    """Return an upper bound of the now of the database that a row came from (aware, UTC).

    A detached row is judged by the database that was sampled last.

    Raises:
        TTLError: No database was sampled yet: no statement on a TTL table has run.
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
    """Return the dialect of the database that a session keeps an object in.

    Asks `get_bind()` as a flush does: for the object's own database where a session has several
    (horizontal sharding), otherwise for that of its class.
    """
    own: dict[str, Any] = {}
    if session.connection_callable is not None:
        parameters = _signature(type(session).get_bind).parameters.values()
        if any(p.name == "instance" or p.kind is p.VAR_KEYWORD for p in parameters):
            own["instance"] = row
    return session.get_bind(instance_state(row).manager.mapper, **own).dialect


def forget_compiled_statements() -> None:
    """Empty the statement caches of the engines that have run statements on a TTL table.

    (Only the engines' own caches: one that a user passes along can't be reached.)
    """
    for engine in list(_engines):
        engine.clear_compiled_cache()


class UnwrappedInvalidTTL(InvalidTTL, DontWrapMixin):
    """`InvalidTTL` that SQLAlchemy doesn't wrap in a StatementError."""


class UnwrappedConfigurationError(TTLConfigurationError, DontWrapMixin):
    """`TTLConfigurationError` that SQLAlchemy doesn't wrap in a StatementError."""


def refuse_in_revision(caller: FrameType | None) -> None:
    """Raise if Alembic calls a ``__repr__`` to write a revision without our operations.

    Without ``import ttl_odm.alembic`` in env.py autogenerate knows nothing of TTL. It would write
    our columns and policies as their ``repr()``, and the revision would end in a bare NameError or
    a SyntaxError. Other callers get the ``repr()``.

    Args:
        caller: The frame that called ``__repr__``.

    Raises:
        TTLConfigurationError: The caller is Alembic's renderer, and ``ttl_odm.alembic`` isn't
            imported. The error is Alembic's ``CommandError`` too, which its commands print as one
            line.
    """
    if (
        caller is not None
        and caller.f_globals.get("__name__") == "alembic.autogenerate.render"
        and "ttl_odm.alembic" not in sys.modules
    ):
        command_error = sys.modules["alembic.util"].CommandError
        kind = type("RevisionError", (TTLConfigurationError, command_error), {})
        raise kind(
            "env.py doesn't import ttl_odm.alembic, so Alembic can't write a revision for tables "
            "with TTL: it would end in \"NameError: name 'ttl_odm' is not defined\". Add the "
            "line `import ttl_odm.alembic` at the top of env.py, and generate the revision again."
        )


if TYPE_CHECKING:
    _Comparator = TypeDecorator.Comparator[datetime]
else:

    class _Comparator(TypeDecorator.Comparator, DateTime.Comparator):
        """The comparator that a decorator of `DateTime` has without us."""

        __slots__ = ()


_LISTS: Final = frozenset({operators.in_op, operators.not_in_op})
_COMPARISONS: Final = _LISTS | {
    operators.eq,
    operators.ne,
    operators.lt,
    operators.le,
    operators.gt,
    operators.ge,
    operators.between_op,
    operators.not_between_op,
    operators.is_distinct_from,
    operators.is_not_distinct_from,
}


class AsInstant(FunctionElement[Any]):
    """An expression of dates in the form of instants, to compare with one."""

    inherit_cache = True

    def __init__(self, dates: ColumnElement[Any], type_: TypeEngine[Any]) -> None:
        super().__init__(dates)
        self.type = type_


class InstantComparator(_Comparator):
    """The operators of an expression of instants."""

    __slots__ = ()

    def operate(self, op: OperatorType, *other: Any, **kwargs: Any) -> ColumnElement[Any]:
        """Give the other sides of a comparison the form of instants."""
        if op in _LISTS:
            other = tuple(map(self._listed, other))
        elif op in _COMPARISONS:
            other = tuple(map(self._as_instant, other))
        return super().operate(op, *other, **kwargs)

    def _listed(self, values: object) -> object:
        if isinstance(values, (list, tuple, set, frozenset)):
            return [self._as_instant(value) for value in values]
        if isinstance(values, ScalarSelect):
            values = values.element
        return self._as_instant(values) if isinstance(values, Select) else values

    def _as_instant(self, value: Any) -> object:
        element = value
        if not isinstance(value, ClauseElement) and hasattr(value, "__clause_element__"):
            element = value.__clause_element__()  # of an attribute of a class
        if isinstance(element, Select):
            dates = tuple(element.selected_columns)
            converted = self._as_instant(dates[0]) if len(dates) == 1 else None
            if isinstance(converted, AsInstant):
                return element.with_only_columns(converted, maintain_column_froms=True)
        elif isinstance(element, ColumnElement) and _holds_dates(element):
            return AsInstant(element, self.expr.type)
        return value


def _holds_dates(element: ColumnElement[Any]) -> bool:
    """Return whether an expression has a type of dates that isn't one of instants."""
    if isinstance(element, BindParameter) and element.expanding:  # many values
        return False
    is_date = issubclass(affinity(element.type), (Date, DateTime))
    return is_date and not isinstance(element.comparator, InstantComparator)


class LastModified(TypeDecorator[datetime]):
    """An instant; always an aware UTC ``datetime`` in Python.

    ``timestamptz`` on PostgreSQL, epoch microseconds on MariaDB and MySQL, epoch milliseconds
    on SQLite; on other databases the storage type of their family.
    """

    impl = DateTime(timezone=True)
    cache_ok = True
    comparator_factory = InstantComparator  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        refuse_in_revision(getattr(currentframe(), "f_back", None))
        return super().__repr__()

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """The storage type of the dialect's clock; SQLite's STRICT tables know no BIGINT."""
        is_sqlite = dialect.name == "sqlite"
        return dialect.type_descriptor(Integer() if is_sqlite else clock_of(dialect).storage)

    def bind_processor(self, dialect: Dialect) -> Any:
        """Store an aware datetime; a naive one is rejected, since it names no instant."""
        to_storage = clock_of(dialect).to_storage

        def process(value: object) -> object:
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
        """Read an aware datetime in UTC, without `TypeDecorator`'s detours: it runs per row."""
        clock = clock_of(dialect)
        if clock.per_second is None:
            from_storage = clock.from_storage
            return lambda value: None if value is None else from_storage(value)
        unit = timedelta(seconds=1) // clock.per_second
        return lambda value: None if value is None else EPOCH + value * unit


_NOWS: Final = (
    functions.now,
    functions.current_timestamp,
    functions.localtime,
    functions.localtimestamp,
    functions.sysdate,
)
"""Now, on MariaDB and MySQL in the session's time zone."""


@compiles(AsInstant)
def _render_as_instant(element: AsInstant, compiler: SQLCompiler, **kw: object) -> str:
    kw.pop("add_to_result_map", None)  # the element itself is the result column, not its parts
    kw["within_columns_clause"] = False
    (dates,) = element.clauses
    clock, kept = clock_of(compiler.dialect), undecorated(dates.type, compiler.dialect)
    if clock.per_second is None or not isinstance(kept, (Date, DateTime)):
        return str(compiler.process(dates.self_group(operators.eq), **kw))
    if isinstance(dates, _NOWS):
        return clock.now
    # MySQL's TIMESTAMP is read in the session's time zone; all other dates are UTC.
    if isinstance(clock, MySQL):
        has_zone = isinstance(kept, SQL_TIMESTAMP)
    else:
        has_zone = isinstance(kept, DateTime) and kept.timezone
    return clock.instant_of_column(compiler.process(dates, **kw), zoned=has_zone)


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
        """Return whole seconds, -1 or None; raise for anything else before it is sent."""
        if value is None:
            return None
        try:
            return row_ttl(value, where=self.where)
        except InvalidTTL as error:
            raise UnwrappedInvalidTTL(str(error)) from None

    def coerce_compared_value(self, op: OperatorType | None, value: object) -> TypeEngine[Any]:
        """Let a comparison take any integer, since ``where(Model.ttl > 0)`` stores nothing."""
        return Integer().coerce_compared_value(op, value)


@dataclass(frozen=True, slots=True)
class ColumnFormat:
    """How one column keeps instants on one database.

    Moments are instants of the database's clock, see `ttl_odm.sqlalchemy.time.dialect_time`. This
    class itself is for columns that keep moments: ``timestamptz`` on PostgreSQL, and a
    `LastModified` that may be NULL. `raw` reads and binds what the column holds, as it is;
    `precision` is the steps in which it keeps time, in microseconds.
    """

    clock: Clock
    raw: TypeEngine[Any]
    precision: int = 1

    @property
    def shifts(self) -> bool:
        """Whether the value that Python reads depends on the session's time zone."""
        return False

    def plain(self, column: SQL) -> SQL:
        """The column, without the conversions of the application's type."""
        return type_coerce(column, self.raw)

    def within(self, column: SQL, moment: SQL) -> Condition:
        """A condition that an index serves: true for all rows that have `reached` a moment."""
        return self.plain(column) <= moment

    def reached(self, column: SQL, moment: SQL) -> Condition:
        """The condition that the instant is not after a moment; false or NULL without one."""
        return self.within(column, moment)

    def ahead(self, column: SQL, moment: SQL) -> Condition:
        """The condition that the instant is after a moment, or there is none."""
        return SQLTemplate("(({0}) IS NOT TRUE)", Boolean(), self.reached(column, moment))

    def reached_after(self, column: SQL, seconds: SQL, moment: SQL) -> Condition:
        """`reached` for an instant so many seconds later."""
        return self.reached(column, moment - self.clock.span(seconds))

    def ahead_after(self, column: SQL, seconds: SQL, moment: SQL) -> Condition:
        """`ahead` for an instant so many seconds later."""
        return self.ahead(column, moment - self.clock.span(seconds))

    def instant(self, column: SQL) -> SQL:
        """The moment in the column; NULL where it holds none."""
        return self.plain(column)

    @property
    def form(self) -> str | None:
        """The form of dates in a column of texts, for messages; None for other columns."""
        return None

    def is_read(self, column: SQL) -> SQL | None:  # noqa: ARG002 (see the formats that are texts)
        """The condition that a text is a date; None for columns that hold no texts."""
        return None

    def stored(self, moment: SQL) -> SQL:
        """The column's value for a moment, or for one shortly after it."""
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
    """How a column keeps instants: this class is for the contract's own, of type `LastModified`.

    Other columns have `ttl_odm.sqlalchemy.time.instants.AdoptedInstants`.
    """

    native: ClassVar[bool] = True

    def __init__(self, column: Column[Any]) -> None:
        self.column = column
        self._formats: dict[str, ColumnFormat] = {}

    def on(self, clock: Clock) -> ColumnFormat:
        """Return how the column keeps instants on a database."""
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
    """The key of the index over inheriting rows; with a ttl, of that over rows with their own."""

    inherit_cache = True


@compiles(PartEnd)
def _render_part_end(element: PartEnd, compiler: SQLCompiler, **kw: object) -> str:
    stamp, *ttl = (compiler.process(column, **kw) for column in element.clauses)
    return clock_of(compiler.dialect).part_end(stamp, *ttl)
