"""Which tables a write changes, under which names, and which of their rows.

Mostly that is one table under its own name. But an UPDATE or DELETE may be of an alias; on MariaDB
and MySQL an UPDATE may be of a join, and set columns of every table that it names; the ORM adds
conditions to it; and on PostgreSQL it may be a CTE.

That is asked while a statement is compiled and, of all but the simplest, again of the one that is
about to run: what comes out of SQLAlchemy's cache was compiled of another statement, with other
values and other aliases. This module must not know what a policy is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    ClauseElement,
    Column,
    ColumnElement,
    Delete,
    Table,
    TextClause,
    UniqueConstraint,
    Update,
    UpdateBase,
    select,
)
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import ColumnClause, Grouping

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.compat import Resolved, leaves, table_of
from ttl_odm.sqlalchemy.rewrite.unique_indexes import IndexCondition, index_parts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import FromClause, Insert, Select
    from sqlalchemy.engine import Dialect
    from sqlalchemy.engine.default import DefaultExecutionContext
    from sqlalchemy.sql.compiler import SQLCompiler

    Row = dict[str, object]
    Parameters = Mapping[str, Any]


class Assignment(NamedTuple):
    """What an UPDATE sets a column to: the column's key, its name there, and a value or SQL."""

    key: str
    name: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Target:
    """A table whose rows an UPDATE or DELETE changes.

    Attributes:
        statement: The UPDATE or DELETE, its FROM elements and its WHERE clause.
        source: What it names the table by: the table itself, or an alias.
        table: The table.
        assignments: What an UPDATE sets.
        parameters: The names of an execution's parameters, which may set columns too.
        is_first: Whether it is what the statement is of, and not another one that it sets too.
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
        """The keys of the columns that an UPDATE sets (and perhaps names of other parameters)."""
        by_themselves = (column.key for column in self.table.c if column.onupdate is not None)
        return {*self.values, *self.parameters, *by_themselves}

    @property
    def may_change_keys(self) -> bool:
        """Whether an UPDATE sets something unique, or that decides whether a row has to be.

        What is computed from columns may be.
        """
        written = self.written
        return any(
            isinstance(element, Column) and (element.key in written or element.computed is not None)
            for parts, _ in uniques(self.table)
            for part in parts
            for element in visitors.iterate(part)
        ) or any(
            column.key in written
            for _, condition in uniques(self.table)
            if condition is not None
            for column in condition.columns_of(self.table)
        )

    @property
    def values(self) -> dict[str, Any]:
        """What an UPDATE sets, by the keys of the columns."""
        # The first counts of those by a column and by its name.
        return {
            key: as_element(value)
            for key, _, value in reversed(self.assignments)
            if not is_default(value)
        }

    @property
    def acts(self) -> bool:
        """Whether an INSERT, UPDATE or DELETE is inside, so that looking for the rows would act."""
        sql = (value for *_, value in self.assignments if isinstance(value, ColumnElement))
        return writes(*self.sources, *self.statement.criteria, *sql)

    def rows(self, executions: Sequence[Parameters]) -> Iterator[Row]:
        """What an UPDATE sets in each execution: values, or SQL."""
        # There, the compiled parameters have values under the names of their columns.
        is_named = not self.is_inner and self.is_first
        named = executions[0] if is_named and executions else ()
        values = [
            (key, value)
            for key, value in self.values.items()
            if not (key in named and is_renamed(value))
        ]
        for parameters in executions:
            row = {key: plain(value, parameters) for key, value in values}
            yield {**parameters, **row} if is_named else row

    def matched(self, parameters: Parameters, *columns: ColumnElement[Any]) -> Select[Any]:
        """A SELECT of the rows that the statement is about to match."""
        rows: Select[Any] = select(*columns).select_from(*self.sources)
        return filled(rows.where(*self.statement.criteria), parameters)


def targets_of(
    statement: Resolved, compiler: SQLCompiler, *, is_inner: bool = False
) -> list[Target]:
    """The tables that a statement changes.

    The compiler is that of the whole statement, inside which it may be a CTE.
    """
    places = [compat.original(leaf) for source in statement.sources for leaf in leaves(source)]
    assigned: list[list[Assignment]] = [[] for _ in places]
    write = statement.statement
    # Elsewhere it sets columns of one table, whichever name the statement has for them.
    others = places[1:] if compiler.render_table_with_column_in_update_from else []
    if isinstance(write, Update):
        for name, value in compat.assignments(write):
            table = compat.original(getattr(name, "table", None))
            number = next((n for n, place in enumerate(others, 1) if place is table), 0)
            assigned[number].append(Assignment(column_key(write, name), name, value))
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


def unreadable_tables(statement: Resolved, dialect: Dialect) -> frozenset[object]:
    """The tables of a write that its subqueries can't read, but in a FROM clause of their own.

    On MySQL, those that it changes; on MariaDB, that of which it deletes rows by another table.
    """
    is_several = isinstance(statement.statement, Delete) and len(statement.sources) > 1
    if not (compat.is_mysql(dialect) or (is_several and dialect.name in MYSQL_FAMILY)):
        return frozenset()
    return frozenset(table_of(leaf) for source in statement.sources for leaf in leaves(source))


class TargetLookup:
    """Finds a target of a compiled statement again, in the one that is about to run."""

    def __init__(self, target: Target) -> None:
        write = target.statement.statement
        self._table = target.table
        self._kind = Update if isinstance(write, Update) else Delete
        self._is_inner = target.is_inner
        self._is_simple = (
            not target.is_inner
            and target.sources == [target.table]
            and len(target.statement.criteria) == len(compat.where_criteria(write))
        )

    def targets(
        self, context: DefaultExecutionContext
    ) -> list[tuple[Target, Sequence[Parameters]]]:
        """The target; or, where it is inside another statement, those that may be it.

        With the parameters of its executions.
        """
        compiled: Any = context.compiled
        whole, executions = compat.invoked(context), context.compiled_parameters
        if self._is_simple:  # nobody need be asked
            simple = Resolved(whole, [self._table], compat.where_criteria(whole))
            return [(target, executions) for target in targets_of(simple, compiled)]
        inner = (element for element in visitors.iterate(whole) if element is not whole)
        return [
            (target, executions)
            for write in (inner if self._is_inner else [whole])
            if isinstance(write, self._kind)
            for target in targets_of(
                compat.resolved(
                    write, context.dialect.statement_compiler(context.dialect, None), {}
                ),
                compiled,
                is_inner=self._is_inner,
            )
            if target.table is self._table
        ]


def filled(statement: Select[Any], parameters: Parameters) -> Select[Any]:
    """A SELECT made of parts of a statement, with that statement's values for its parameters."""
    # Only for parameters that wait for a value: the others go by names that the compiler made.
    required = {
        element.key
        for element in visitors.iterate(statement)
        if isinstance(element, BindParameter) and element.required
    }
    return (
        statement.params({name: parameters[name] for name in required}) if required else statement
    )


def writes(*elements: ClauseElement) -> bool:
    """Whether an INSERT, UPDATE or DELETE is inside (in a CTE), so that evaluating it would act."""
    return any(
        isinstance(inner, UpdateBase) for element in elements for inner in visitors.iterate(element)
    )


class Unique(NamedTuple):
    """What no two rows of a table may have in common: columns, or expressions of columns.

    With a condition, that is so among the rows that meet it.
    """

    parts: tuple[Any, ...]
    condition: IndexCondition | None = None


def uniques(table: Table) -> list[Unique]:
    """The primary key, the unique constraints and the unique indexes of a table."""
    return [
        Unique(tuple(table.primary_key.columns)),
        *(Unique(tuple(c.columns)) for c in table.constraints if isinstance(c, UniqueConstraint)),
        *(
            Unique(index_parts(index), IndexCondition.of(index))
            for index in table.indexes
            if index.unique
        ),
    ]


def is_renamed(value: object) -> bool:
    """Whether SQLAlchemy names it after its column: it does with values that have no name."""
    return isinstance(value, BindParameter) and value.unique


def plain(value: object, parameters: Parameters) -> object:
    """A value without SQLAlchemy's wrapping, or SQL."""
    if not isinstance(value, BindParameter):
        return value
    # With a name of its own, it may have another value in each execution.
    return value.effective_value if compat.is_anonymous(value) else parameters[value.key]


def known_values(
    statement: Insert | Update, pairs: Iterable[tuple[Any, Any]]
) -> list[tuple[str, Any]]:
    """What a statement sets, by column key, without the columns that get their DEFAULT."""
    return [
        (column_key(statement, column), as_element(value))
        for column, value in pairs
        if not is_default(value)
    ]


def is_default(value: object) -> bool:
    """Whether it is SQL's word for the default of a column."""
    return isinstance(value, (TextClause, ColumnClause)) and str(value).upper() == "DEFAULT"


def as_element(value: Any) -> Any:
    """A value, or SQL; of text, an element that can be compared."""
    return Grouping(value) if isinstance(value, TextClause) else value


def column_key(statement: Insert | Update, column: Any) -> str:
    """The key of a column that a statement sets, by whatever name."""
    if not isinstance(column, str):
        return str(column.key)
    mapped = compat.attributes_of(statement).get(column)
    return column if mapped is None else str(mapped.key)
