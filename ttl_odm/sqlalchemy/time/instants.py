"""The column that lifetimes are counted from: which types it may have, and how a policy reads it.

It is checked when a policy is put on a table (`instants_of`), so that a column which can't hold
instants, or doesn't say how, is found before any row is deleted. The type of the contract's own
column is in `ttl_odm.sqlalchemy.time.clock`; the formats of others on each database are in
`ttl_odm.sqlalchemy.time.formats`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    TIMESTAMP,
    BigInteger,
    Date,
    DateTime,
    Enum,
    Float,
    Integer,
    Numeric,
    String,
    TypeDecorator,
)
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mysql import TIMESTAMP as MYSQL_TIMESTAMP
from sqlalchemy.dialects.postgresql import TIMESTAMP as PG_TIMESTAMP
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.sql.visitors import InternalTraversal

from ttl_odm.core.lifetime import EARLIEST_NOW
from ttl_odm.dialects import EPOCH, MYSQL_FAMILY, General
from ttl_odm.dialects.mysql import MySQL
from ttl_odm.dialects.postgresql import PostgreSQL
from ttl_odm.dialects.sqlite import SQLite
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.compat import SQLTemplate
from ttl_odm.sqlalchemy.time.clock import (
    ColumnFormat,
    Instants,
    LastModified,
    UnwrappedInvalidTTL,
    clock_of,
    sample_of,
)
from ttl_odm.sqlalchemy.time.dialect_time import PER_SECOND, dialect_time_of
from ttl_odm.sqlalchemy.time.formats import (
    Days,
    Epochs,
    FractionalEpochs,
    IsoStrings,
    MySQLTimestamps,
    WallTimes,
)
from ttl_odm.sqlalchemy.time.zones import offsets_of

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy import Column, ColumnElement
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.types import TypeEngine

    from ttl_odm.sqlalchemy.time.clock import Clock

_EPOCH_UNITS: Final = "unit='s', 'ms' or 'us'"
_SHORTEST_ISO: Final = 20
"""Characters of ``YYYY-MM-DDThh:mm:ssZ``."""


def instants_of(column: Column[Any], zone: str, unit: str | None, where: str) -> Instants:
    """Return how a column keeps instants, by its type and the policy's time zone and unit."""
    fix = _fix(column.type, unit)
    if fix is not None:
        raise TTLConfigurationError(
            f"{where}: column {column.name!r} is {column.type!r}, and the policy has "
            f"unit={unit!r}: {fix}."
        )
    if isinstance(column.type, LastModified):
        return Instants(column)
    return AdoptedInstants(column, zone, unit)


def _fix(type_: TypeEngine[Any], unit: str | None) -> str | None:
    """Return what to write instead; None if the type and the unit fit."""
    affinity = _affinity(type_)
    if isinstance(type_, LastModified) or issubclass(affinity, (DateTime, Date)):
        return None if unit is None else "the column holds dates, so leave unit out"
    if issubclass(affinity, (Integer, Numeric, Float)):
        return None if unit in PER_SECOND else f"for epoch numbers write {_EPOCH_UNITS}"
    if not issubclass(affinity, String) or issubclass(affinity, Enum):
        return (
            "name a column of datetimes, of dates, of epoch numbers (with "
            f"{_EPOCH_UNITS}) or of ISO-8601 strings in UTC (with unit='iso')"
        )
    if unit != "iso":
        return "if it holds ISO-8601 strings in UTC, write unit='iso'"
    length = getattr(type_, "length", None)
    if length is not None and length < _SHORTEST_ISO:
        return f"an ISO-8601 string in UTC has {_SHORTEST_ISO} characters or more"
    return None


class AdoptedInstants(Instants):
    """How a column of the application keeps instants; see `instants_of`."""

    native = False

    def __init__(self, column: Column[Any], zone: str, unit: str | None) -> None:
        super().__init__(column)
        self._zone = zone
        self._unit = unit

    def stored(self, moment: ColumnElement[Any]) -> ColumnElement[Any]:
        """Return a moment of the database's clock as a value for the column."""
        return Stored(self, moment)

    @property
    def coarseness(self) -> int:
        """Two days for dates: the zone's offset, and the day itself."""
        return 2 * 86_400 if issubclass(_affinity(self.column.type), Date) else 1

    def latest_on(self, dialect: Dialect) -> datetime | None:
        """Return the last instant that the column can hold; None if it can hold any datetime."""
        kept: Any = kept_type(self.column.type, clock_of(dialect).family)
        if dialect.name == "sqlite" or isinstance(kept, BigInteger):
            return None
        if dialect.name in MYSQL_FAMILY and isinstance(kept, TIMESTAMP):
            version = getattr(dialect, "server_version_info", None) or ()
            is_unsigned = getattr(dialect, "is_mariadb", False) and version >= (11, 5)
        elif self._unit in PER_SECOND and issubclass(_affinity(kept), Integer):
            is_unsigned = getattr(kept, "unsigned", False)
        else:
            return None
        most = 2 ** (32 if is_unsigned else 31) - 1
        return EPOCH + timedelta(seconds=most // PER_SECOND.get(self._unit or "s", 1))

    def _format_on(self, clock: Clock) -> ColumnFormat:
        kept: Any = kept_type(self.column.type, clock.family)
        affinity, dialect = _affinity(kept), dialect_time_of(clock)
        if issubclass(affinity, (Integer, Numeric, Float)):
            return self._epoch_format(clock, kept)
        if issubclass(affinity, String):
            utc, length = offsets_of("UTC"), getattr(kept, "length", None)
            return IsoStrings(clock, String(), dialect=dialect, offsets=utc, length=length)
        offsets = offsets_of(self._zone)
        if issubclass(affinity, Date):
            raw = String() if dialect.text_dates else Date()
            return Days(clock, raw, dialect=dialect, offsets=offsets)
        # The steps in which the column keeps time, in microseconds.
        digits = 6
        if isinstance(clock, MySQL):
            digits = getattr(kept, "fsp", None) or 0
        elif isinstance(clock, PostgreSQL) and isinstance(kept, PG_TIMESTAMP):
            digits = 6 if kept.precision is None else kept.precision
        precision = int(10 ** (6 - digits))
        if isinstance(clock, PostgreSQL) and kept.timezone:
            return ColumnFormat(clock, clock.storage, precision)
        if isinstance(clock, MySQL) and isinstance(kept, TIMESTAMP):
            return MySQLTimestamps(clock, MYSQL_TIMESTAMP(fsp=6), precision)
        if isinstance(clock, SQLite):
            self._check_text(kept)
        if isinstance(clock, General) and kept.timezone and clock.zoned("0") is not None:
            dialect, offsets = dialect_time_of(clock, zoned=True), offsets_of("UTC")
        return WallTimes(
            clock, dialect.wall_type, precision=precision, dialect=dialect, offsets=offsets
        )

    def _epoch_format(self, clock: Clock, kept: TypeEngine[Any]) -> ColumnFormat:
        assert self._unit is not None  # noqa: S101 (it was checked)
        dialect = dialect_time_of(clock)
        if issubclass(_affinity(kept), Integer):
            return Epochs(clock, BigInteger(), dialect=dialect, unit=self._unit)
        sql = self.column.type.compile(_dialect(clock.family))
        if re.fullmatch(clock.short_float, sql):
            raise TTLConfigurationError(
                f"Column {self.column.table.fullname}.{self.column.name} is {sql} on "
                f"{clock.family}: 4 bytes store epoch seconds in steps of 128. Make it a double: "
                "Double(), or Float(53)."
            )
        # The steps in which the column keeps time, in microseconds; a float has none of its own.
        is_float = isinstance(kept, Float) or isinstance(clock, SQLite)
        scale = getattr(kept, "scale", None)
        digits = 6 - len(str(PER_SECOND[self._unit])) + 1
        if isinstance(kept, Float) or (scale is None and not isinstance(clock, MySQL)):
            scale = digits
        return FractionalEpochs(
            clock,
            Float(53) if is_float else Numeric(),
            precision=10 ** max(0, digits - (scale or 0)),
            dialect=dialect,
            unit=self._unit,
            is_float=is_float,
        )

    def _check_text(self, kept: TypeEngine[Any]) -> None:
        """Reject datetimes that SQLite keeps as texts of another form than SQLAlchemy's own."""
        usual = compat.storage_format(DateTime().dialect_impl(_dialect("sqlite")))
        form = compat.storage_format(kept.dialect_impl(_dialect("sqlite")))
        in_seconds, *_ = str(usual).split(".")
        if form not in (usual, in_seconds):
            raise TTLConfigurationError(
                f"Column {self.column.table.fullname}.{self.column.name} stores its datetimes in "
                f"a custom format on SQLite ({form!r}), in which they can't be compared: leave "
                "storage_format out."
            )


@dataclass(frozen=True)
class Capacity:
    """The range of instants of a model's column; `where` names both, for messages."""

    instants: Instants
    where: str

    def check(self, dialect: Dialect, end: datetime | None, call: str) -> None:
        """Reject an end of a row's life that is too late for the column."""
        instants = self.instants
        latest = instants.latest_on(dialect) if isinstance(instants, AdoptedInstants) else None
        if end is not None and latest is not None and end > latest:
            kept = kept_type(instants.column.type, clock_of(dialect).family)
            raise UnwrappedInvalidTTL(
                f"{self.where}: {call}: its column ({kept!r}) can't hold instants after "
                f"{latest:%Y-%m-%d %H:%M:%S} UTC: make it a BIGINT (or a DATETIME if it is a "
                "TIMESTAMP); for a row that never expires, call persist()."
            )


class End(LastModified):
    """The type of the instant passed to ``expire_at``; the column must have room for it."""

    cache_ok = True

    def __init__(self, capacity: Capacity) -> None:
        super().__init__()
        self.capacity = capacity

    def bind_processor(self, dialect: Dialect) -> Any:
        """Check the instant before anything is sent."""
        to_storage = super().bind_processor(dialect)

        def process(value: Any) -> object:
            self.capacity.check(dialect, value, f"expire_at({value!r})")
            return to_storage(value)

        return process


class SecondsAhead(TypeDecorator[int]):
    """The type of the seconds passed to ``expire_in``, negative as in `Ago`; checked like `End`."""

    impl = BigInteger
    cache_ok = True

    def __init__(self, capacity: Capacity) -> None:
        super().__init__()
        self.capacity = capacity

    def process_bind_param(self, value: int | None, dialect: Dialect) -> int | None:
        """Check the end, as far as the database's clock is known."""
        sample = sample_of(dialect)
        if value is not None:
            now = EARLIEST_NOW if sample is None else sample.now()
            self.capacity.check(dialect, now - timedelta(seconds=value), f"expire_in({-value})")
        return value


class Stored(FunctionElement[Any]):
    """A moment of the database's clock, converted to the value of a column."""

    inherit_cache = True
    _traverse_internals = [  # noqa: RUF012 (SQLAlchemy's)
        *FunctionElement._traverse_internals,  # noqa: SLF001 (a subclass's)
        ("instants", InternalTraversal.dp_plain_obj),
    ]

    def __init__(self, instants: Instants, moment: ColumnElement[Any]) -> None:
        super().__init__(moment)
        self.instants = instants
        self.type = instants.column.type


@compiles(Stored)
def _render_stored(element: Stored, compiler: SQLCompiler, **kw: object) -> str:
    kw.pop("add_to_result_map", None)  # the element itself is the result column, not its parts
    clock = clock_of(compiler.dialect)
    (moment,) = element.clauses
    # Not by type_coerce(), which would take an instant's own type from a bound value.
    stored = element.instants.on(clock).stored(SQLTemplate("{0}", clock.storage, moment))
    return compiler.process(stored, **kw)


def _affinity(type_: TypeEngine[Any]) -> type:
    # Of a TypeDecorator, what it is made of; of a dialect's own type, the general one.
    return Enum if isinstance(type_, Enum) else compat.affinity(type_)


def kept_type(type_: TypeEngine[Any], family: str) -> TypeEngine[Any]:
    """Return the type that a column has on a database: the variant for it, without decorators."""
    return compat.undecorated(type_, _dialect(family))


@cache
def _dialect(family: str) -> Dialect:
    dialect: Dialect = registry.load(family)()
    return dialect
