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
from functools import cache, partial
from inspect import signature
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from sqlalchemy import BigInteger, ColumnElement, Interval, literal_column
from sqlalchemy.dialects.postgresql import TIMESTAMP
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import object_session
from sqlalchemy.orm.attributes import instance_state
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal

from ttl_odm.dialects import Family
from ttl_odm.dialects.entry_points import GROUP, PAGE, brought_family
from ttl_odm.dialects.errors import heed
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.dialects.postgresql import PostgreSQL
from ttl_odm.dialects.sqlite import SQLite
from ttl_odm.errors import TTLConfigurationError, TTLError

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Dialect, Engine
    from sqlalchemy.orm import Session
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.types import TypeEngine

    SQL = ColumnElement[Any]


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
