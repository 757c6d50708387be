"""Moves the clock of SQLAlchemy's adapter: in the SQL that is about to be sent, and nowhere else.

Compiled statements stay as they are, in whatever cache or variable they are kept. The text that
asks the database for its now is replaced in each statement just before the driver gets it; so a
statement that was compiled before follows, a move costs nothing, and after the end the very same
SQL goes out as before. It needs no DDL, no commit and no connection of its own, and holds for
every engine, thread and session of the process.

What the database does by itself keeps to the real time: a column's default in an INSERT of raw SQL
that leaves ``_ts`` out, triggers, views. DDL is left alone, or a move would outlive the test in a
column's default.

It rests on two things of SQLAlchemy's: a listener of ``before_cursor_execute`` may return another
statement, and one that listens to the class Engine hears of every statement of every engine.
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
    from ttl_odm.sqlalchemy.time.clock import Clock
    from ttl_odm.testing.clock import TTLClock

_real_sample_now: Final = database_clock.Sample.now

_in_use: TTLClock | None = None

_as_it_is: ContextVar[bool] = ContextVar("ttl_odm_as_it_is", default=False)
"""True while a statement is sent that is to hear the real time."""

_DDL: Final = re.compile(
    r"(?:\s|--[^\n]*\n|/\*.*?\*/)*(?:CREATE|ALTER|DROP|COMMENT|DO|SET)\b", re.IGNORECASE | re.DOTALL
)
_COPY: Final = re.compile(r"\s*CREATE\s(?:\s*\w+\s)*?\s*TABLE\s[^(]+\sAS\s", re.IGNORECASE)
"""``CREATE TABLE copies AS SELECT``, which reads rows and keeps no expression."""


def install(clock: TTLClock) -> Callable[[], None]:
    """Let the clock decide; returns what undoes it. See `ttl_odm.testing.clock`."""
    with ExitStack() as undo:
        for owner, name, value in (
            (database_clock.Sample, "now", lambda sample: clock.moved(_real_sample_now(sample))),
            (execution, "observe", partial(_observe, database_clock.observe)),
            # By which a flush knows how old a row is without having its stamp.
            (flush, "monotonic", partial(_moment, clock)),
            (ends, "monotonic", partial(_moment, clock)),
            (leases, "_now", _now_of_leases),
            (sys.modules[__name__], "_in_use", clock),
        ):
            undo.enter_context(patch.object(owner, name, value))
        return undo.pop_all().close


def real_now() -> datetime | None:
    """The unmoved clock of the database that was asked last, from above."""
    return _real_sample_now(database_clock._latest[0]) if database_clock._latest else None


def _moment(clock: TTLClock) -> float:
    """The moment of this host's monotonic clock at which a database's now would be the moved one.

    A sample makes the stamp of a row out of it (`Sample.at`), also after the clock has moved on.
    """
    if clock.frozen_at is None:
        return database_clock.monotonic() + clock.offset.total_seconds()
    if not database_clock._latest:
        return database_clock.monotonic()
    (sample,) = database_clock._latest
    return sample.asked + (clock.frozen_at - sample.instant).total_seconds()


def lifetime(target: Any) -> timedelta | None:
    """How long a row lives that is written now."""
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
    """The default at this moment; of one that Python doesn't know, what was noted last."""
    if binding.source.is_known:
        return declared()
    policy = binding.source.policy_as_noted(None, None)
    return policy.default if isinstance(policy, TTL) else None


# Once, and never removed: that would change a list which other threads go through at that moment,
# and fail their statements. While no clock is in use it does nothing.
@event.listens_for(Engine, "before_cursor_execute", retval=True)
def _as_moved(
    connection: Connection,
    _cursor: Any,
    statement: str,
    parameters: Any,
    execution: Any,
    _executemany: bool,  # noqa: FBT001 (SQLAlchemy's signature)
) -> tuple[str, Any]:
    clock = _in_use
    now_of = None if clock is None else _now_of(connection.dialect)
    if clock is None or now_of is None:
        return statement, parameters
    offset, frozen_at = clock.offset, clock.frozen_at
    is_moved = (offset or frozen_at) and not _as_it_is.get()
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
    """Seconds, without the detour by a float."""
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
"""By dialect: what asks for its now in the SQL of this package, and what makes its replacement.

Those of families that others bring are added when they are met; None is for other engines."""


def _now_of(dialect: Dialect) -> tuple[re.Pattern[str], Callable[..., str]] | None:
    if dialect.name not in _NOWS:
        is_known = brought_family(dialect.name) is not None
        _NOWS[dialect.name] = _of_family(clock_of(dialect)) if is_known else None
    return _NOWS[dialect.name]


def _of_family(clock: Clock) -> tuple[re.Pattern[str], Callable[..., str]] | None:
    if isinstance(clock, General):
        return re.compile("|".join(map(re.escape, {clock.now, clock.now_at_write}))), _on_integers
    return next(_NOWS[ours.family] for ours in FAMILIES if isinstance(clock, type(ours)))


def _now_of_leases(connection: Connection) -> ColumnElement[Any]:
    """The database's now, written so that it isn't replaced."""
    clock = clock_of(connection.dialect)
    written = clock.at_write
    hidden = written.replace("(", "( ") if "(" in written else f" {written}"
    return clock.literal(clock.instant(hidden))


def _observe(observe: Callable[[Connection], None], connection: Connection) -> None:
    """Samples of the database's clock stay unmoved; what is read from them moves."""
    token = _as_it_is.set(True)
    try:
        observe(connection)
    finally:
        _as_it_is.reset(token)
