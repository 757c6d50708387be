"""What a write changes: which tables, which of their rows, and what these are set to.

Mostly that is one table under its own name. But an UPDATE or DELETE may be of an alias; on MariaDB
and MySQL an UPDATE may be of a join, and set columns of every table that it names; the ORM adds
conditions to it; and on PostgreSQL it may be a CTE.

SQLAlchemy keeps the written values in several places: in the statement, under columns or under
names (which are those of attributes if the ORM made it), and in the parameters of an execution.
This module identifies them by column key. ``_ts`` is set by the server's clock. An INSERT gets the
stamp as the column's default; an UPDATE gets it added to its SET clause while it is compiled. A
value that the caller supplies for ``_ts`` (a merged object, a row copied from elsewhere) is not
stored: it would move the row's expiry. The one exception is an execution with
``keep_last_modified=True``, which is a bound value in the same SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Boolean,
    ClauseElement,
    Column,
    ColumnElement,
    Integer,
    Join,
    Select,
    Table,
    TextClause,
    UniqueConstraint,
    Update,
    UpdateBase,
    bindparam,
    case,
    func,
    literal,
    select,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import ColumnClause, Grouping
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import NullType

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.compat import Resolved, leaves, table_of
from ttl_odm.sqlalchemy.policy.predicate import KeepFlag
from ttl_odm.sqlalchemy.rewrite.selections import selected_rows
from ttl_odm.sqlalchemy.rewrite.unique_indexes import (
    IndexCondition,
    Unique,
    equates_nulls,
    index_parts,
)
from ttl_odm.sqlalchemy.time.clock import LastModified, clock_of
from ttl_odm.sqlalchemy.time.instants import Stored

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from sqlalchemy import Dialect, FromClause, Insert
    from sqlalchemy.sql.compiler import SQLCompiler
    from sqlalchemy.types import TypeEngine

    from ttl_odm.sqlalchemy.policy.bindings import Binding

    Row = dict[str, object]
    Parameters = Mapping[str, object]
    Pair = tuple[Any, object]


class Assignment(NamedTuple):
    """A column that an UPDATE sets: its key, its name in the statement, and a value or SQL."""

    key: str
    name: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Target:
    """A table whose rows an UPDATE or DELETE changes.

    Attributes:
        statement: The UPDATE or DELETE, its FROM elements and its WHERE clause.
        source: Its FROM element for the table: the table itself, or an alias.
        table: The table.
        assignments: The values that an UPDATE sets.
        parameters: The names of an execution's parameters, which may set columns too.
        is_first: Whether the statement is about this table, and doesn't just set its columns too.
        is_inner: Whether the statement is inside another one.
    """

    statement: Resolved
    source: FromClause
    table: Table
    assignments: Sequence[Assignment]
    parameters: Collection[str]
    is_first: bool
    is_inner: bool

    @property
    def sources(self) -> list[FromClause]:
        """The FROM elements without the ORM's marks, which would make an ORM query of a SELECT."""
        return [compat.original(source) for source in self.statement.sources]

    @property
    def written(self) -> set[str]:
        """The keys of the columns that an UPDATE sets, perhaps with names of other parameters."""
        by_themselves = (column.key for column in self.table.c if column.onupdate is not None)
        return {*self.values, *self.parameters, *by_themselves}

    @property
    def may_change_keys(self) -> bool:
        """Whether an UPDATE may set part of a key, or decide whether a row is in a unique index.

        Generated columns may change with any column.
        """
        written = self.written
        return any(
            isinstance(element, Column) and (element.key in written or element.computed is not None)
            for parts, *_ in uniques(self.table)
            for part in parts
            for element in visitors.iterate(part)
        ) or any(
            column.key in written
            for _, condition, _ in uniques(self.table)
            if condition is not None
            for column in condition.columns_of(self.table)
        )

    @property
    def values(self) -> dict[str, Any]:
        """The values that an UPDATE sets, by column key."""
        # If a column is set twice, by itself and by its name, the first value counts.
        return {
            key: as_element(value)
            for key, _, value in reversed(self.assignments)
            if not _is_default(value)
        }

    @property
    def acts(self) -> bool:
        """Whether an INSERT, UPDATE or DELETE is inside: a query for the rows would write."""
        sql = (value for *_, value in self.assignments if isinstance(value, ColumnElement))
        return has_writes(*self.sources, *self.statement.criteria, *sql)

    def rows(self, executions: Sequence[Parameters]) -> Iterator[Row]:
        """Yield the values or SQL that an UPDATE sets in each execution."""
        # The compiled parameters of such a target have values under the names of its columns.
        is_named = not self.is_inner and self.is_first
        named = executions[0] if is_named and executions else ()
        values = [
            (key, value)
            for key, value in self.values.items()
            if not (key in named and _is_renamed(value))
        ]
        for parameters in executions:
            row = {key: plain(value, parameters) for key, value in values}
            yield {**parameters, **row} if is_named else row

    def matched(self, parameters: Parameters, *columns: ColumnElement[Any]) -> Select[Any]:
        """Return a SELECT of the rows that the statement is about to match."""
        rows: Select[Any] = select(*columns).select_from(*self.sources)
        return filled(rows.where(*self.statement.criteria), parameters)


def targets_of(
    statement: Resolved, compiler: SQLCompiler, *, is_inner: bool = False
) -> list[Target]:
    """Return the tables that a statement changes.

    The compiler is that of the whole statement, in which this one may be a CTE.
    """
    places = [compat.original(leaf) for source in statement.sources for leaf in leaves(source)]
    assigned: list[list[Assignment]] = [[] for _ in places]
    write = statement.statement
    # On other databases it sets columns of one table, by whatever names the statement has.
    others = places[1:] if compiler.render_table_with_column_in_update_from else []
    if isinstance(write, Update):
        for name, value in compat.assignments(write):
            table = compat.original(getattr(name, "table", None))
            number = next((n for n, place in enumerate(others, 1) if place is table), 0)
            assigned[number].append(Assignment(compat.column_key(write, name), name, value))
    targets = []
    for number, (source, assignments) in enumerate(zip(places, assigned, strict=True)):
        table = table_of(source)
        parameters = () if number else compiler.column_keys or ()
        if not isinstance(table, Table):
            continue
        is_first = not number
        if assignments or (
            is_first
            and (
                not any(assigned)  # otherwise it has values for other tables, and this one perhaps
                or any(c.key in parameters or c.onupdate is not None for c in table.c)
            )
        ):
            targets.append(
                Target(statement, source, table, assignments, parameters, is_first, is_inner)
            )
    return targets


def filled(statement: Select[Any], parameters: Parameters) -> Select[Any]:
    """Return a SELECT made of parts of a statement, with that statement's parameter values."""
    # Only parameters without a value: the others have names that the compiler made.
    required = {
        element.key
        for element in visitors.iterate(statement)
        if isinstance(element, BindParameter) and element.required
    }
    return (
        statement.params({name: parameters[name] for name in required}) if required else statement
    )


def has_writes(*elements: ClauseElement) -> bool:
    """Return whether an INSERT, UPDATE or DELETE is inside (a CTE): evaluation would write."""
    return any(
        isinstance(inner, UpdateBase) for element in elements for inner in visitors.iterate(element)
    )


def uniques(table: Table) -> list[Unique]:
    """Return the primary key, the unique constraints and the unique indexes of a table."""
    return [
        Unique(tuple(table.primary_key.columns)),
        *(
            Unique(tuple(constraint.columns), equates_nulls=equates_nulls(constraint))
            for constraint in table.constraints
            if isinstance(constraint, UniqueConstraint)
        ),
        *(
            Unique(index_parts(index), IndexCondition.of(index), equates_nulls(index))
            for index in table.indexes
            if index.unique
        ),
    ]


def _is_renamed(value: object) -> bool:
    """Return whether SQLAlchemy names a value after its column, as it does with unnamed values."""
    return isinstance(value, BindParameter) and value.unique


def plain(value: object, parameters: Parameters) -> object:
    """Return a value without SQLAlchemy's wrapping, or SQL."""
    if not isinstance(value, BindParameter):
        return value
    # A value with a name of its own may differ in each execution.
    return value.effective_value if compat.is_anonymous(value) else parameters[value.key]


def _known_values(statement: Insert | Update, pairs: Iterable[Pair]) -> list[tuple[str, object]]:
    """Return the values that a statement sets, by column key, without columns set to DEFAULT."""
    return [
        (compat.column_key(statement, column), as_element(value))
        for column, value in pairs
        if not _is_default(value)
    ]


def _is_default(value: object) -> bool:
    """Return whether a value is SQL's keyword for the default of a column."""
    return isinstance(value, (TextClause, ColumnClause)) and str(value).upper() == "DEFAULT"


def as_element(value: Any) -> Any:
    """Return a value or SQL; text as an element that can be compared."""
    return Grouping(value) if isinstance(value, TextClause) else value


class Stamp(FunctionElement[datetime]):
    """The database's clock at the moment of the write, as a value for ``_ts``.

    Its subclasses are the only other values that the gate accepts for ``_ts``.
    """

    inherit_cache = True
    type = LastModified()


class StampUntil(Stamp):
    """A ``_ts`` with which `SecondsUntil` makes the row expire exactly at an instant.

    It is less than a second in the past for an instant in the future.
    """

    inherit_cache = True


class SecondsUntil(FunctionElement[int]):
    """Whole seconds, at least 1, from the database's now to an instant, rounded up."""

    inherit_cache = True
    type = Integer()


class Ago(Stamp):
    """An instant some seconds before the database's now, or after it if they are negative."""

    inherit_cache = True

    def __init__(self, seconds: int, type_: TypeEngine[int] | None = None) -> None:
        super().__init__(literal(seconds, type_ or BigInteger()))


class Granted(FunctionElement[bool]):
    """In the WHERE clause of a touch: the condition on which it renews a row.

    With RETURNING it is true, and the condition is in the SET clause instead (`IfGranted`): every
    live row that the WHERE clause names is returned.
    """

    inherit_cache = True
    type = Boolean()

    def self_group(self, against: object = None) -> Granted:  # noqa: ARG002 (SQLAlchemy's signature)
        """Return the element itself: it is rendered in parentheses."""
        return self


class IfGranted(FunctionElement[Any]):
    """In the SET clause of a touch with a condition: the condition, a new value, the column.

    With RETURNING, rows that don't meet the condition keep their value.
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


class WithoutSources(Grouping[Any]):
    """SQL in an UPDATE of a join, in which SQLAlchemy doesn't look for tables.

    It would find those of the join, and list them again beside it.
    """

    inherit_cache = True

    @property
    def _from_objects(self) -> list[FromClause]:
        return []


def stamp_unless_kept(binding: Binding, value: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the server's clock, or with ``keep_last_modified`` the given value.

    A value that is a `Stamp`, or consists of one, is written as it is.
    """
    if isinstance(value, Stamp):
        return binding.instants.stored(value)
    if isinstance(value, (Stored, IfGranted)):
        return value
    return case((KeepFlag(), value), else_=binding.instants.stored(Stamp()))


def stamped_update(statement: Update, binding: Binding, target: Target) -> Update:
    """Return the UPDATE with ``_ts`` reset in the rows of a target."""
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
    """Return the INSERT with a supplied ``_ts`` overruled; without one, its default applies."""
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
    """Return an INSERT FROM SELECT with the stamp."""
    column, names, rows = binding.last_modified, compat.selected_names(statement), statement.select
    is_stamp = [_is(name, column) for name in names]
    if any(is_stamp):
        values = zip(selected_rows(statement, dialect).c, is_stamp, strict=True)
        columns = [_inserted_stamp(binding, c) if stamps else c for c, stamps in values]
        return compat.with_selection(statement, names, columns)
    if isinstance(rows, Select) and statement.include_insert_from_select_defaults:
        return statement
    # SQLAlchemy has no place for a default in a UNION, or was told to leave defaults out.
    columns = [*selected_rows(statement, dialect).c, binding.instants.stored(Stamp())]
    return compat.with_selection(statement, [*names, column.key], columns)


def _stamped(pairs: list[Pair], binding: Binding, parameters: Collection[str] = ()) -> list[Pair]:
    """Return the values that an INSERT sets in a row, with a supplied ``_ts`` overruled."""
    column = binding.last_modified
    value = _supplied(pairs, column, parameters)
    if value is None:
        return pairs
    rest = [pair for pair in pairs if not _is(pair[0], column)]
    return [*rest, (column, _inserted_stamp(binding, value))]


def _inserted_stamp(binding: Binding, value: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return `stamp_unless_kept` for a new row: with no old value, there is no None to keep."""
    if not binding.instants.native and not isinstance(value, (Stamp, Stored)):
        value = func.coalesce(value, binding.instants.stored(Stamp()))
    return stamp_unless_kept(binding, value)


def _supplied(
    pairs: Iterable[Pair], column: Column[Any], parameters: Collection[str] = ()
) -> ColumnElement[Any] | None:
    """Return the caller's value for a column, from the statement or from a parameter."""
    value = next((value for key, value in pairs if _is(key, column)), None)
    if value is None:
        is_parameter = column.key in parameters
        return bindparam(column.key, required=True, type_=column.type) if is_parameter else None
    return typed(value, column)


def typed(value: object, column: Column[Any]) -> ColumnElement[Any]:
    """Return a column's value, or SQL, for use inside an expression that replaces it."""
    if not isinstance(value, ColumnElement):
        return literal(value, column.type)
    # SQLAlchemy gives it the column's type if it is the whole value, but not in a CASE.
    is_untyped = isinstance(value, BindParameter) and isinstance(value.type, NullType)
    return type_coerce(value, column.type) if is_untyped else value


def _is(key: object, column: Column[Any]) -> bool:
    return key == column.key if isinstance(key, str) else getattr(key, "key", None) == column.key


def _pairs_of(row: Any, table: Table) -> list[Pair]:
    """Return a row of a multi-values INSERT, given as a dict or in the order of the table."""
    if isinstance(row, Mapping):
        return list(row.items())
    return [(column.key, value) for column, value in zip(table.c, row, strict=False)]


def rows_of(statement: Insert, executions: Sequence[Parameters]) -> Iterator[Row]:
    """Yield the rows that a statement (no INSERT FROM SELECT) writes: values, or SQL."""
    if compat.value_lists(statement):
        yield from inner_rows(statement, executions[0])
        return
    values = [(key, value) for key, value in _values_of(statement) if not _is_renamed(value)]
    for parameters in executions:
        yield {**parameters, **{key: plain(value, parameters) for key, value in values}}


def inner_rows(statement: Insert | Update, parameters: Parameters) -> Iterator[Row]:
    """Yield the rows whose values are in an INSERT itself, as they are inside another statement.

    The parameters are those of the whole statement.
    """
    lists, table = compat.value_lists(statement), compat.original(statement.table)
    rows = [_pairs_of(row, table) for rows in lists for row in rows]  # type: ignore[arg-type]
    for pairs in rows if lists else [compat.assignments(statement)]:
        yield {key: plain(value, parameters) for key, value in _known_values(statement, pairs)}


def parameters_of(
    statement: Insert | Update, columns: Iterable[Column[Any]]
) -> tuple[str, ...] | None:
    """Return the names that columns have in the compiled parameters.

    None if SQL sets one, or a value whose name only SQLAlchemy knows: the INSERT of a write-only
    relationship has such values.
    """
    values = dict(_values_of(statement))
    names = []
    for column in columns:
        value = values.get(column.key)
        name = column.key
        if isinstance(value, ColumnElement):
            if not isinstance(value, BindParameter):
                return None
            if not value.unique:
                if compat.is_anonymous(value):
                    return None
                name = value.key
        names.append(str(name))
    return tuple(names)


def _values_of(statement: Insert | Update) -> list[tuple[str, object]]:
    return _known_values(statement, compat.assignments(statement))
