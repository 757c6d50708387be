"""The two columns of the contract: their types, and how the instants in ``_ts`` are compared.

`LastModified` keeps ``_ts`` as each database tells time best and shows it as an aware UTC
datetime; `Seconds` keeps ``ttl`` and refuses what the contract refuses, in every statement
that writes it: flush, bulk and Core alike. Neither lets Alembic write it into a revision that could
not run: see `refuse_in_revision`. `Native` is the format of ``_ts``: the only
`ColumnFormat` that costs nothing at all. Those of other columns are in
`ttl_odm.sqlalchemy.time.formats`. `PartEnd` is what the sweeper's indexes are ordered by.
"""

# ruff: noqa: D102 (what a method of a format is for stands where it is declared first)

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from inspect import currentframe
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import Boolean, ColumnElement, DateTime, Integer, TypeDecorator, type_coerce
from sqlalchemy.exc import DontWrapMixin
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.core.values import row_ttl
from ttl_odm.errors import InvalidTTL, TTLConfigurationError
from ttl_odm.sqlalchemy.time.clock import SQLTemplate, clock_of
from ttl_odm.sqlalchemy.time.family_times import dialect_time_of

if TYPE_CHECKING:
    from types import FrameType

    from sqlalchemy import Column
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.sql.operators import OperatorType
    from sqlalchemy.types import TypeEngine

    from ttl_odm.sqlalchemy.time.clock import Clock

    SQL = ColumnElement[Any]
    Condition = ColumnElement[bool]


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
