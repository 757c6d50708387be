"""The test clock on SQLAlchemy: moves the time in the SQL that is about to be sent.

Compiled statements stay unchanged in their caches and variables. The text that asks the database
for its time is replaced in each statement just before the driver gets it. So statements compiled
before a move follow it, a move is free, and afterwards the same SQL is sent as before. It needs no
DDL, no commit and no connection of its own, and covers every engine, thread and session of the
process.

The database's own actions use the real time: triggers, views, and the default of ``_ts`` in raw
SQL. DDL isn't changed, because in a column's default a move would outlive the test.

It rests on two features of SQLAlchemy: a listener of ``before_cursor_execute`` may return another
statement, and a listener on the class Engine is notified of every statement of every engine.
"""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from contextvars import ContextVar
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from sqlalchemy import Engine, Table, event, inspect

from ttl_odm.core import expiry
from ttl_odm.core.policy import TTL
from ttl_odm.dialects import EPOCH, FAMILIES, MYSQL_FAMILY, General
from ttl_odm.dialects.families import brought_family
from ttl_odm.dialects.sqlite import SQLite
from ttl_odm.sqlalchemy.gate import execution
from ttl_odm.sqlalchemy.objects import ends, flush
from ttl_odm.sqlalchemy.objects.lifetime import lifetime_of
from ttl_odm.sqlalchemy.policy.bindings import root_binding_of
from ttl_odm.sqlalchemy.sweep import leases
from ttl_odm.sqlalchemy.time import clock as database_clock
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.testing.clock import life, not_counted_from_writing

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from sqlalchemy import ColumnElement, Connection
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import DefaultTTL
    from ttl_odm.testing.clock import TTLClock

_real_sample_now: Final = database_clock.Sample.now

_in_use: TTLClock | None = None

_in_real_time: ContextVar[bool] = ContextVar("ttl_odm_in_real_time", default=False)
"""True while a statement is sent that needs the real time."""

_DDL: Final = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:CREATE|ALTER|DROP|COMMENT|DO|SET)\b", re.IGNORECASE | re.DOTALL
)
_COPY: Final = re.compile(r"\s*CREATE\s(?:\s*\w+\s)*?\s*TABLE\s[^(]+\sAS\s", re.IGNORECASE)
"""``CREATE TABLE copies AS SELECT``, which reads rows and stores no expression."""


def install(clock: TTLClock) -> Callable[[], None]:
    """Let the clock move the adapter's time; return the undo. See `ttl_odm.testing.clock`."""
    with ExitStack() as undo:
        for owner, name, value in (
            (database_clock.Sample, "now", lambda sample: clock.moved(_real_sample_now(sample))),
            (execution, "observe", partial(_observe, database_clock.observe)),
            # From these, a flush knows the age of a row without its stamp.
            (flush, "monotonic", partial(_moment, clock)),
            (ends, "monotonic", partial(_moment, clock)),
            (leases, "_now", _now_of_leases),
            (sys.modules[__name__], "_in_use", clock),
        ):
            undo.enter_context(patch.object(owner, name, value))
        return undo.pop_all().close


def real_now() -> datetime | None:
    """Return an upper limit of the unmoved time of the database that was asked last."""
    return _real_sample_now(database_clock._latest[0]) if database_clock._latest else None


def _moment(clock: TTLClock) -> float:
    """Return the monotonic time of this host at which the database's time would be the moved one.

    A sample computes the stamp of a row from it (`Sample.at`), even after further moves.
    """
    if clock.frozen_at is None:
        return database_clock.monotonic() + clock.offset.total_seconds()
    if not database_clock._latest:
        return database_clock.monotonic()
    (sample,) = database_clock._latest
    return sample.asked + (clock.frozen_at - sample.instant).total_seconds()


def lifetime(target: object) -> timedelta | None:
    """Return the lifetime of a row written now."""
    if isinstance(target, Table):
        binding = root_binding_of(target)
        if binding is None:
            return None
        name, default, own = target.name, _default(binding, binding.default), None
    else:
        inspected: Any = inspect(target, raiseerr=False)
        by_mapper = lifetime_of(inspected.mapper) if hasattr(inspected, "mapper") else None
        if by_mapper is None:
            return None
        binding, own = by_mapper.binding, None
        default = _default(binding, by_mapper.default)
        name = inspected.mapper.class_.__name__
        policy = by_mapper.default.policy
        if isinstance(policy, TTL) and not isinstance(target, type):
            if by_mapper.kind is not None:
                default = policy.default_of(getattr(target, by_mapper.kind))
            stored = None if by_mapper.own is None else getattr(target, by_mapper.own)
            own = None if stored is None else expiry.own_ttl(policy, stored)
    if not binding.stamps:
        raise not_counted_from_writing(name, binding.last_modified.key)
    return life(name, default, own)


def _default(binding: Binding, declared: DefaultTTL) -> int | None:
    """Return the current default; if only the database knows it, the value noted last."""
    if binding.source.is_known:
        return declared()
    policy = binding.source.policy_as_noted(None, None)
    return policy.default if isinstance(policy, TTL) else None


# Registered once and never removed: a removal would change a list that other threads are iterating,
# and fail their statements. Without a clock in use it does nothing.
@event.listens_for(Engine, "before_cursor_execute", retval=True)
def _as_moved(
    connection: Connection,
    _cursor: object,
    statement: str,
    parameters: object,
    execution: object,
    _executemany: bool,  # noqa: FBT001 (SQLAlchemy's signature)
) -> tuple[str, object]:
    clock = _in_use
    now_of = None if clock is None else _now_of(connection.dialect)
    if clock is None or now_of is None:
        return statement, parameters
    offset, frozen_at = clock.offset, clock.frozen_at
    is_moved = (offset or frozen_at) and not _in_real_time.get()
    if not is_moved or (getattr(execution, "isddl", False) and not _COPY.match(statement)):
        return statement, parameters
    now, moved = now_of
    if now.search(statement) and (_COPY.match(statement) or not _DDL.match(statement)):
        statement = now.sub(partial(moved, offset, frozen_at), statement)
    return statement, parameters


def _on_postgresql(offset: timedelta, frozen_at: datetime | None, now: re.Match[str]) -> str:
    if frozen_at is not None:
        return f"TIMESTAMPTZ '{frozen_at.isoformat(' ')}'"
    return f"({now[0]} + interval '{_decimal(offset, 6)} seconds')"


def _on_mysql(offset: timedelta, frozen_at: datetime | None, now: re.Match[str]) -> str:
    if frozen_at is not None:
        return f"TIMESTAMP'{frozen_at.replace(tzinfo=None).isoformat(' ', 'microseconds')}'"
    return f"({now[0]} + INTERVAL {offset // timedelta(microseconds=1)} MICROSECOND)"


def _on_sqlite(offset: timedelta, frozen_at: datetime | None, now: re.Match[str]) -> str:
    is_number = now[0].startswith("CAST")
    if frozen_at is not None:
        if is_number:
            return str((frozen_at - EPOCH) // timedelta(milliseconds=1))
        return f"'{frozen_at.replace(tzinfo=None).isoformat(' ', 'milliseconds')}000'"
    if is_number:
        return f"({now[0]} + {offset // timedelta(milliseconds=1)})"
    return f"{now[0][:-1]}, '{_decimal(offset, 3)} seconds')"


def _decimal(offset: timedelta, digits: int) -> str:
    """Return seconds as decimal digits, without conversion to a float."""
    whole = offset // timedelta(microseconds=10 ** (6 - digits))
    seconds, rest = divmod(abs(whole), 10**digits)
    return f"{'-' if whole < 0 else '+'}{seconds}.{rest:0{digits}}"


def _on_integers(offset: timedelta, frozen_at: datetime | None, now: re.Match[str]) -> str:
    microsecond = timedelta(microseconds=1)
    if frozen_at is not None:
        return f"CAST({(frozen_at - EPOCH) // microsecond} AS BIGINT)"
    return f"({now[0]} + CAST({offset // microsecond} AS BIGINT))"


_SQLITE: Final = SQLite()
_NOWS: Final[dict[str, tuple[re.Pattern[str], Callable[..., str]] | None]] = {
    "postgresql": (re.compile(r"\b(?:statement|clock)_timestamp\(\)"), _on_postgresql),
    **dict.fromkeys(MYSQL_FAMILY, (re.compile(r"\bUTC_TIMESTAMP\(6\)"), _on_mysql)),
    "sqlite": (
        re.compile(f"{re.escape(_SQLITE.now)}|{re.escape(_SQLITE.date(_SQLITE.at_read))}"),
        _on_sqlite,
    ),
}
"""By dialect: the pattern of its time in this package's SQL, and the function for the replacement.

Families of other packages are added at their first statement; None marks other engines."""


def _now_of(dialect: Dialect) -> tuple[re.Pattern[str], Callable[..., str]] | None:
    if dialect.name not in _NOWS:
        if brought_family(dialect.name) is None:
            now_of = None
        elif isinstance(clock := clock_of(dialect), General):
            pattern = "|".join(map(re.escape, {clock.now, clock.now_at_write}))
            now_of = re.compile(pattern), _on_integers
        else:
            now_of = next(_NOWS[own.family] for own in FAMILIES if isinstance(clock, type(own)))
        _NOWS[dialect.name] = now_of
    return _NOWS[dialect.name]


def _now_of_leases(connection: Connection) -> ColumnElement[Any]:
    """Return the database's time, written so that it isn't replaced."""
    clock = clock_of(connection.dialect)
    written = clock.at_write
    hidden = written.replace("(", "( ") if "(" in written else f" {written}"
    return clock.literal(clock.instant(hidden))


def _observe(observe: Callable[[Connection], None], connection: Connection) -> None:
    """Take an unmoved sample of the database's clock; the times read from it are moved."""
    token = _in_real_time.set(True)
    try:
        observe(connection)
    finally:
        _in_real_time.reset(token)
