"""What an INSERT or UPDATE writes: ``_ts`` by the server's clock, and the rest by column key.

An INSERT gets the stamp as the column's default; an UPDATE gets it added to its SET clause
while it is compiled. A value that the caller supplies for ``_ts`` (a merged object, a row
copied from elsewhere) is not stored: it would move the row's expiry. The one exception is an
execution with ``keep_last_modified=True``, which is a bound value in the same SQL.

SQLAlchemy keeps what is written in several places: in the statement, under columns or under names
(which are those of attributes where the ORM made it), and in the parameters of an execution.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    ARRAY,
    VARCHAR,
    BigInteger,
    BindParameter,
    Boolean,
    Column,
    ColumnElement,
    CompoundSelect,
    Integer,
    Join,
    Select,
    String,
    Table,
    bindparam,
    case,
    cast,
    func,
    literal,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import ColumnClause, Label, Null
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import NullType

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.parameters import KeepFlag
from ttl_odm.sqlalchemy.rewrite.from_clauses import WithoutSources
from ttl_odm.sqlalchemy.rewrite.targets import column_key, is_renamed, known_values, plain
from ttl_odm.sqlalchemy.time.clock import LastModified, clock_of
from ttl_odm.sqlalchemy.time.instants import Stored

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from sqlalchemy import Dialect, FromClause, Insert, Update
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.types import TypeEngine

    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sqlalchemy.rewrite.targets import Target

    Row = dict[str, object]
    Parameters = Mapping[str, Any]
    Pair = tuple[Any, Any]

_CUT_OFF: Final = re.compile("CHAR|BIT")
"""PostgreSQL's types whose casts cut off what is too long, where an assignment would refuse it."""


class Stamp(FunctionElement[datetime]):
    """The database's clock at the moment of the write, as a value for ``_ts``.

    Its subclasses are the only other values that the gate takes for ``_ts``.
    """

    inherit_cache = True
    type = LastModified()


class StampUntil(Stamp):
    """A ``_ts`` that makes the row expire exactly at an instant, together with `SecondsUntil`.

    It is less than a second in the past for an instant in the future.
    """

    inherit_cache = True


class SecondsUntil(FunctionElement[int]):
    """Whole seconds, at least 1, from the database's now to an instant, rounded up."""

    inherit_cache = True
    type = Integer()


class Ago(Stamp):
    """A number of seconds before the database's now (of negative ones, after it)."""

    inherit_cache = True

    def __init__(self, seconds: int, type_: TypeEngine[int] | None = None) -> None:
        super().__init__(literal(seconds, type_ or BigInteger()))


class Granted(FunctionElement[bool]):
    """In the WHERE clause of a touch: the condition on which it renews a row.

    With RETURNING it is true, and the condition stands in the SET clause, see `IfGranted`: every
    live row that is asked for is returned.
    """

    inherit_cache = True
    type = Boolean()

    def self_group(self, against: object = None) -> Any:  # noqa: ARG002 (SQLAlchemy's signature)
        """As it is: it puts parentheses around itself."""
        return self


class IfGranted(FunctionElement[Any]):
    """In the SET clause of a touch with a condition: the condition, a new value, the column.

    With RETURNING, rows that don't meet the condition keep what they have.
    """

    inherit_cache = True

    def __init__(
        self,
        condition: ColumnElement[bool],
        value: ColumnElement[Any],
        column: ColumnElement[Any],
    ) -> None:
        super().__init__(condition, value, column)
        self.type = column.type


@compiles(Granted)
def _render_granted(element: Granted, compiler: SQLCompiler, **kw: object) -> str:
    (condition,) = element.clauses
    if compat.is_asked_to_return(compiler):
        return "(1 = 1)"
    return f"({compiler.process(condition, **kw)})"


@compiles(IfGranted)
def _render_if_granted(element: IfGranted, compiler: SQLCompiler, **kw: object) -> str:
    condition, value, column = element.clauses
    if compat.is_asked_to_return(compiler):
        value = case((condition, value), else_=column)
    return compiler.process(value, **kw)


@compiles(Stamp)
def _render_stamp(element: Stamp, compiler: SQLCompiler, **_: object) -> str:  # noqa: ARG001
    return clock_of(compiler.dialect).stamp


@compiles(Ago)
def _render_ago(element: Ago, compiler: SQLCompiler, **kw: object) -> str:
    clock = clock_of(compiler.dialect)
    return f"{clock.now} - {compiler.process(element.clauses, **kw)} * {clock.second}"


@compiles(SecondsUntil)
def _render_seconds_until(element: SecondsUntil, compiler: SQLCompiler, **kw: object) -> str:
    # The statement's now, not the clock's: StampUntil in the same statement must agree.
    return clock_of(compiler.dialect).seconds_until(compiler.process(element.clauses, **kw))


@compiles(StampUntil)
def _render_stamp_until(element: StampUntil, compiler: SQLCompiler, **kw: object) -> str:
    clock = clock_of(compiler.dialect)
    end = compiler.process(element.clauses, **kw)
    return f"{end} - {clock.seconds_until(end)} * {clock.second}"


def stamp_unless_kept(binding: Binding, value: ColumnElement[Any]) -> ColumnElement[Any]:
    """The server's clock, or with ``keep_last_modified`` a value: the old one, or another.

    A value that is a `Stamp`, or made of one, is written as it is.
    """
    if isinstance(value, Stamp):
        return binding.instants.stored(value)
    if isinstance(value, (Stored, IfGranted)):
        return value
    return case((KeepFlag(), value), else_=binding.instants.stored(Stamp()))


def stamped_update(statement: Update, binding: Binding, target: Target) -> Update:
    """The UPDATE with ``_ts`` reset in the rows of a target."""
    if not binding.stamps:
        return statement
    column: Column[Any] = target.source.c[binding.last_modified.key]  # type: ignore[assignment]
    supplied = [(name, value) for key, name, value in target.assignments if key == column.key]
    value = _supplied(supplied, column, target.parameters)
    stamp = stamp_unless_kept(binding, column if value is None else value)
    if isinstance(statement.table, Join):
        stamp = WithoutSources(stamp)
    names = {id(name) for name, _ in supplied}
    pairs = [pair for pair in compat.assignments(statement) if id(pair[0]) not in names]
    return compat.with_assignments(statement, [*pairs, (column, stamp)])


def stamped_insert(statement: Insert, binding: Binding, compiler: SQLCompiler) -> Insert:
    """The INSERT with a supplied ``_ts`` overruled; without one, the column's default acts."""
    if not binding.stamps:
        return statement
    if compat.selected_names(statement):
        return _stamped_selection(statement, binding, compiler.dialect)
    table, lists = binding.table, compat.value_lists(statement)
    if lists:
        return compat.with_value_lists(
            statement,
            [[dict(_stamped(_pairs_of(row, table), binding)) for row in rows] for rows in lists],
        )
    pairs = compat.assignments(statement)
    stamped = _stamped(pairs, binding, compiler.column_keys or ())
    return statement if stamped is pairs else compat.with_assignments(statement, stamped)


def _stamped_selection(statement: Insert, binding: Binding, dialect: Dialect) -> Insert:
    """The same for an INSERT FROM SELECT."""
    column, names, rows = binding.last_modified, compat.selected_names(statement), statement.select
    is_stamp = [_is(name, column) for name in names]
    if any(is_stamp):
        values = zip(selected_rows(statement, dialect).c, is_stamp, strict=True)
        columns = [_inserted_stamp(binding, c) if is_one else c for c, is_one in values]
        return compat.with_selection(statement, names, columns)
    if isinstance(rows, Select) and statement.include_insert_from_select_defaults:
        return statement
    # SQLAlchemy has no place for a default in a UNION, or was told to leave defaults out.
    columns = [*selected_rows(statement, dialect).c, binding.instants.stored(Stamp())]
    return compat.with_selection(statement, [*names, column.key], columns)


def _stamped(pairs: list[Pair], binding: Binding, parameters: Collection[str] = ()) -> list[Pair]:
    """What an INSERT sets a row to, with a supplied ``_ts`` overruled."""
    column = binding.last_modified
    value = _supplied(pairs, column, parameters)
    if value is None:
        return pairs
    rest = [pair for pair in pairs if not _is(pair[0], column)]
    return [*rest, (column, _inserted_stamp(binding, value))]


def _inserted_stamp(binding: Binding, value: ColumnElement[Any]) -> ColumnElement[Any]:
    """`stamp_unless_kept` for a new row, which has no old value, so None is nothing to keep."""
    if not binding.instants.native and not isinstance(value, (Stamp, Stored)):
        value = func.coalesce(value, binding.instants.stored(Stamp()))
    return stamp_unless_kept(binding, value)


def _supplied(
    pairs: Iterable[Pair], column: Column[Any], parameters: Collection[str] = ()
) -> ColumnElement[Any] | None:
    """What the caller supplies for a column, by a value in the statement or by a parameter."""
    value = next((value for key, value in pairs if _is(key, column)), None)
    if value is None:
        is_parameter = column.key in parameters
        return bindparam(column.key, required=True, type_=column.type) if is_parameter else None
    return typed(value, column)


def typed(value: Any, column: Column[Any]) -> ColumnElement[Any]:
    """A value, or SQL, that is set in a column, as a part of what is set in its place."""
    if not isinstance(value, ColumnElement):
        return literal(value, column.type)
    # SQLAlchemy would give it the column's type where it is the whole value, but not in a CASE.
    is_untyped = isinstance(value, BindParameter) and isinstance(value.type, NullType)
    return type_coerce(value, column.type) if is_untyped else value


def _is(key: object, column: Column[Any]) -> bool:
    return key == column.key if isinstance(key, str) else getattr(key, "key", None) == column.key


def _pairs_of(row: Any, table: Table) -> list[Pair]:
    """A row of a multi-values INSERT: a dict, or a sequence in the order of the table."""
    if isinstance(row, Mapping):
        return list(row.items())
    return [(column.key, value) for column, value in zip(table.c, row, strict=False)]


def selected_rows(statement: Insert, dialect: Dialect) -> FromClause:
    """What an INSERT selects, as a subquery.

    A literal column has no name there by which the rest of a statement could refer to it, and casts
    of NULL have the same. And a value, which PostgreSQL takes for one of the column that it is
    inserted into, becomes text.
    """

    def named(element: Any) -> Any:
        if isinstance(element, CompoundSelect):  # named as its first SELECT is
            first, *rest = element.selects
            return compat.copied(element, selects=[named(first), *rest])
        columns = [*element.inner_columns] if isinstance(element, Select) else []
        replaced = columns
        if element is statement.select and dialect.name == "postgresql":
            replaced = _typed(columns, statement, dialect)
        replaced = [column.label(None) if _is_nameless(column) else column for column in replaced]
        if all(new is column for new, column in zip(replaced, columns, strict=True)):
            return element
        return element.with_only_columns(*replaced)

    return named(statement.select).subquery()  # type: ignore[no-any-return]


def _is_nameless(element: Any) -> bool:
    if isinstance(element, ColumnClause):
        return element.is_literal
    return isinstance(element, ColumnElement) and not isinstance(element, Label)


def _typed(selected: list[Any], statement: Insert, dialect: Dialect) -> list[Any]:
    """What an INSERT selects, with bare values cast to the types of the columns they are for."""
    keys, columns = selected_columns(statement), statement.table.c
    if len(keys) != len(selected):  # there is text, which may be more than one
        return selected
    pairs = zip(selected, keys, strict=True)
    return [_for_column(element, columns.get(key), dialect) for element, key in pairs]


def _for_column(element: Any, column: ColumnClause[Any] | None, dialect: Dialect) -> Any:
    value = element.element if isinstance(element, Label) else element
    if column is None or not isinstance(value, (BindParameter, Null)):
        return element
    type_ = _without_loss(column.type, dialect)
    if type_ is None:
        return element
    made: ColumnElement[Any] = cast(value, type_)
    return made.label(element.name) if isinstance(element, Label) else made


def _without_loss(type_: TypeEngine[Any], dialect: Dialect) -> TypeEngine[Any] | None:
    """The type that a value for a column is cast to; None where it is left as it is.

    Unlike a string, an array of them can't be compared with a value that has no type.
    """
    if isinstance(type_, NullType):
        return None
    if not _CUT_OFF.search(type_.compile(dialect)):
        return type_
    if isinstance(type_, ARRAY) and type(type_.item_type) in (String, VARCHAR):
        return ARRAY(String(), dimensions=type_.dimensions)
    return None


def selected_columns(statement: Insert) -> list[str]:
    """The columns of an INSERT FROM SELECT, in order; empty for any other statement."""
    return [column_key(statement, name) for name in compat.selected_names(statement)]


def rows_of(statement: Insert, executions: Sequence[Parameters]) -> Iterator[Row]:
    """The rows that a statement (no INSERT FROM SELECT) writes: values, or SQL."""
    if compat.value_lists(statement):
        yield from inner_rows(statement, executions[0])
        return
    values = [(key, value) for key, value in _values_of(statement) if not is_renamed(value)]
    for parameters in executions:
        yield {**parameters, **{key: plain(value, parameters) for key, value in values}}


def inner_rows(statement: Insert | Update, parameters: Parameters) -> Iterator[Row]:
    """The rows of an INSERT that are in itself, as all are of one inside another statement.

    The parameters are those of the whole statement.
    """
    lists, table = compat.value_lists(statement), compat.original(statement.table)
    rows = [_pairs_of(row, table) for rows in lists for row in rows]  # type: ignore[arg-type]
    for pairs in rows if lists else [compat.assignments(statement)]:
        yield {key: plain(value, parameters) for key, value in known_values(statement, pairs)}


def parameters_of(
    statement: Insert | Update, columns: Iterable[Column[Any]]
) -> tuple[str, ...] | None:
    """The names that columns have in the compiled parameters.

    None where one is set by SQL, or by a value of which only SQLAlchemy knows the name: the
    INSERT that a write-only relationship makes has such.
    """
    values = dict(_values_of(statement))
    names = []
    for column in columns:
        value = values.get(column.key)
        if is_sql(value) and not (
            isinstance(value, BindParameter) and (value.unique or not compat.is_anonymous(value))
        ):
            return None
        named = column if value is None or not is_sql(value) or is_renamed(value) else value
        names.append(str(named.key))
    return tuple(names)


def is_sql(value: object) -> bool:
    """Whether a value is for the database to compute."""
    return isinstance(value, ColumnElement)


def _values_of(statement: Insert | Update) -> list[tuple[str, Any]]:
    return known_values(statement, compat.assignments(statement))
