"""Resetting ``_ts`` by the server's clock on every write that passes the gate.

An INSERT gets the stamp as the column's default; an UPDATE gets it added to its SET clause
while it is compiled. A value that the caller supplies for ``_ts`` (a merged object, a row
copied from elsewhere) is not stored: it would move the row's expiry. The one exception is an
execution with ``keep_last_modified=True``, which is a bound value in the same SQL.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Integer,
    bindparam,
    case,
    func,
    literal,
    select,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.sqlalchemy.policy.binding import Binding, binding_of
from ttl_odm.sqlalchemy.policy.parameters import KeepFlag
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.column_types import LastModified
from ttl_odm.sqlalchemy.time.instants import Stored

if TYPE_CHECKING:
    from sqlalchemy import Column


class Stamp(FunctionElement[datetime]):
    """The database's clock at the moment of the write, as a value for ``_ts``.

    Its subclasses are the only other values that the gate takes for ``_ts``.
    """

    inherit_cache = True
    type = LastModified()


class StampUntil(Stamp):
    """A ``_ts`` that makes the row expire exactly at an instant, together with `SecondsUntil`."""

    inherit_cache = True


class SecondsUntil(FunctionElement[int]):
    """Whole seconds, at least 1, from the database's now to an instant, rounded up."""

    inherit_cache = True
    type = Integer()


class Ago(Stamp):
    """A number of seconds before the database's now."""

    inherit_cache = True


@compiles(Stamp)
def _render_stamp(element: Stamp, compiler: Any, **_: Any) -> str:  # noqa: ARG001
    return clock_of(compiler.dialect).stamp


@compiles(Ago)
def _render_ago(element: Ago, compiler: Any, **kw: Any) -> str:
    clock = clock_of(compiler.dialect)
    return f"{clock.now} - {compiler.process(element.clauses, **kw)} * {clock.second}"


@compiles(SecondsUntil)
def _render_seconds_until(element: SecondsUntil, compiler: Any, **kw: Any) -> str:
    # The statement's now, not the clock's: StampUntil in the same statement must agree.
    return clock_of(compiler.dialect).seconds_until(compiler.process(element.clauses, **kw))


@compiles(StampUntil)
def _render_stamp_until(element: StampUntil, compiler: Any, **kw: Any) -> str:
    clock = clock_of(compiler.dialect)
    end = compiler.process(element.clauses, **kw)
    return f"{end} - {clock.seconds_until(end)} * {clock.second}"


def stamp_unless_kept(binding: Binding, value: ColumnElement[Any]) -> ColumnElement[Any]:
    """The server's clock, or with ``keep_last_modified`` a value: the old one, or a given one."""
    if isinstance(value, Stamp):
        return binding.instants.stored(value)
    if isinstance(value, Stored):
        return value
    return case((KeepFlag(), value), else_=binding.instants.stored(Stamp()))


def inserted_stamp(binding: Binding, value: ColumnElement[Any]) -> ColumnElement[Any]:
    """The same for a new row, which has no old value, so that None is nothing to keep."""
    if not binding.instants.native and not isinstance(value, (Stamp, Stored)):
        value = func.coalesce(value, binding.instants.stored(Stamp()))
    return stamp_unless_kept(binding, value)


def stamped_update(statement: Any, compiler: Any) -> Any:
    """The UPDATE with ``_ts`` reset, or as it is where its table has no policy."""
    binding = binding_of(statement.table)
    if binding is None or not binding.stamps:
        return statement
    column = binding.last_modified
    given = _given(statement._values, column)
    if given is None and column.key in (compiler.column_keys or ()):
        given = bindparam(column.key, required=True, type_=column.type)
    stamp = stamp_unless_kept(binding, column if given is None else _typed(given, column))
    stamped = statement._generate()
    if getattr(statement, "_ordered_values", None) is not None:  # SQLAlchemy 2.0
        stamped._ordered_values = [
            *((key, value) for key, value in statement._ordered_values if not _is(key, column)),
            (column, stamp),
        ]
    else:
        stamped._values = _replaced(statement._values, column, stamp)
    return stamped


def stamped_insert(statement: Any, binding: Binding, compiler: Any) -> Any:
    """The INSERT with a supplied ``_ts`` overruled; without one, the column's default acts."""
    if not binding.stamps:
        return statement
    column = binding.last_modified
    stamped = statement._generate()
    if statement._select_names:
        stamped.select = _stamped_select(statement, binding)
    elif statement._multi_values:
        stamped._multi_values = tuple(
            [_stamped_row(row, binding) for row in rows] for rows in statement._multi_values
        )
    else:
        given = _given(statement._values, column)
        if given is None and column.key in (compiler.column_keys or ()):
            given = bindparam(column.key, required=True, type_=column.type)
        if given is not None:
            stamp = inserted_stamp(binding, _typed(given, column))
            stamped._values = _replaced(statement._values, column, stamp)
    return stamped


def _stamped_select(statement: Any, binding: Binding) -> Any:
    """The SELECT of an INSERT FROM SELECT, with its value for ``_ts`` overruled."""
    column = binding.last_modified
    positions = [_is(name, column) for name in statement._select_names]
    if not any(positions):
        return statement.select
    given = statement.select.subquery()
    return select(
        *(
            inserted_stamp(binding, value) if is_stamp else value
            for value, is_stamp in zip(given.c, positions, strict=True)
        )
    )


def _stamped_row(row: Any, binding: Binding) -> Any:
    """One row of a multi-values INSERT: a dict, or a sequence in the order of the table."""
    column = binding.last_modified
    if not hasattr(row, "items"):
        row = {c.key: value for c, value in zip(column.table.c, row, strict=False)}
    given = _given(row, column)
    if given is None:
        return row
    return _replaced(row, column, inserted_stamp(binding, _typed(given, column)))


def _typed(value: Any, column: Column[Any]) -> ColumnElement[Any]:
    if not isinstance(value, ColumnElement):
        return literal(value, column.type)
    # SQLAlchemy would give it the column's type where it is the whole value, but not in a CASE.
    is_untyped = isinstance(value, BindParameter) and value.type._isnull
    return type_coerce(value, column.type) if is_untyped else value


def _given(values: Any, column: Column[Any]) -> Any:
    for key, value in (values or {}).items():
        if _is(key, column):
            return value
    return None


def _replaced(values: Any, column: Column[Any], value: Any) -> dict[Any, Any]:
    kept = {key: old for key, old in (values or {}).items() if not _is(key, column)}
    return {**kept, column: value}


def _is(key: Any, column: Column[Any]) -> bool:
    return key == column.key if isinstance(key, str) else getattr(key, "key", None) == column.key


def own_ttl_until(instant: datetime) -> ColumnElement[int]:
    """The ttl that, together with `stamp_until` in one statement, ends a life at an instant."""
    return SecondsUntil(literal(instant, LastModified()))


def stamp_until(instant: datetime) -> ColumnElement[datetime]:
    """The matching ``_ts``: less than a second in the past for an instant in the future."""
    return StampUntil(literal(instant, LastModified()))


def stamp_ago(seconds: int) -> ColumnElement[datetime]:
    """A ``_ts`` in the past (or, of negative seconds, in the future), on the database's clock."""
    return Ago(literal(seconds, BigInteger()))
