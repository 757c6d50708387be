"""The keys of the parents that a statement puts rows under, as far as they are known beforehand.

Plain values are in the statement or its parameters. Expressions are evaluated by a SELECT of the
same SQL, unless that would write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import Insert, literal, select, type_coerce
from sqlalchemy.sql import visitors

from ttl_odm.follows.sqlalchemy.links import as_set, link_of, moves_by_values, selected_links
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.keys.defaults import with_defaults
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.keys.insert_conflicts import IgnoredRows
from ttl_odm.sqlalchemy.keys.table_keys import is_sql
from ttl_odm.sqlalchemy.policy.predicate import INCLUDE_EXPIRED
from ttl_odm.sqlalchemy.rewrite.selections import selected_columns
from ttl_odm.sqlalchemy.rewrite.writes import filled, has_writes, inner_rows, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, Select
    from sqlalchemy.engine.default import DefaultExecutionContext

    from ttl_odm.follows.sqlalchemy.follower import Following
    from ttl_odm.sqlalchemy.keys.table_keys import Key as LinkKey
    from ttl_odm.sqlalchemy.keys.updates import TargetLookup
    from ttl_odm.sqlalchemy.rewrite.writes import Target

    Row = Mapping[str, object]

    Key = tuple[object, ...]

_AT_ONCE: Final = 100
"""Rows whose links one statement computes."""


class Written(NamedTuple):
    """The key of a parent, and how the rows that a statement puts under it can be left out.

    Attributes:
        key: The key.
        execution: The number of the execution whose rows all get this parent: it needn't be sent.
            None for a row in a list of VALUES, or if SQL computes the parent.
        excludes: Whether the statement has a condition that leaves out these rows by itself.
    """

    key: Key
    execution: int | None = None
    excludes: bool = False


def parents_written(
    context: DefaultExecutionContext,
    following: Following,
    lookup: TargetLookup | None,
    *,
    but_ignored: bool = False,
) -> list[Written]:
    """Return the parents that a statement puts rows of a table under; keys with a NULL name none.

    Args:
        context: The execution of the statement.
        following: The rule of the table.
        lookup: The rows of an UPDATE; None for a statement that is an INSERT, or contains one.
        but_ignored: Leave out rows that an INSERT ignores because of a conflict.
    """
    links = _Links(KeyReclaimer.of(context), link_of(following.links()))
    if lookup is None:
        parents = _inserted(context, links, following, but_ignored=but_ignored)
    else:
        parents = _updated(context, links, lookup)
    return [written for written in dict.fromkeys(parents) if None not in written.key]


def _updated(
    context: DefaultExecutionContext, links: _Links, lookup: TargetLookup
) -> Iterator[Written]:
    # The ORM's options may add conditions to its WHERE clause.
    options = compat.loader_options(compat.invoked(context))
    for target, executions in lookup.targets(context):
        rows = list(target.rows(executions))
        if moves_by_values(target, links.link):
            for number, key in enumerate(links.of(rows, executions)):
                yield Written(key, number)
        elif not target.acts:
            for parameters, row in zip(executions, rows, strict=True):

                def matched(
                    *columns: ColumnElement[object],
                    target: Target = target,
                    parameters: Row = parameters,
                ) -> Select[Any]:
                    return target.matched(parameters, *columns).options(*options)

                for assigned in as_set(row, target, links.reclaimer.dialect):
                    for key in links.matched(assigned, target, matched):
                        yield Written(key, excludes=True)


def _inserted(
    context: DefaultExecutionContext, links: _Links, following: Following, *, but_ignored: bool
) -> Iterator[Written]:
    executions = context.compiled_parameters
    for statement, is_inner in _inserts(context, following):
        ignored = None
        if but_ignored and compat.ignores_conflicts(statement):
            ignored = IgnoredRows(following.table, links.reclaimer)
        columns = dict.fromkeys((*links.columns, *(ignored.columns if ignored else ())))
        if compat.selected_names(statement):
            for number, parameters in enumerate(executions):
                yield from _selected(links, statement, parameters, number, ignored)
        elif is_inner or compat.value_lists(statement):
            for parameters in executions:
                rows = inner_rows(statement, parameters)
                full = [
                    with_defaults(row, columns, parameters, number)
                    for number, row in enumerate(rows)
                ]
                for _, key in _keys(links, full, [parameters] * len(full), ignored):
                    yield Written(key)
        else:
            pairs = zip(executions, rows_of(statement, executions), strict=True)
            full = [with_defaults(row, columns, parameters) for parameters, row in pairs]
            for number, key in _keys(links, full, executions, ignored):
                yield Written(key, number)


def _keys(
    links: _Links, rows: Sequence[Row], executions: Sequence[Row], ignored: IgnoredRows | None
) -> Iterator[tuple[int, Key]]:
    """Yield the numbers of rows that an INSERT doesn't ignore, and the keys of their parents."""
    left_out = () if ignored is None else ignored.among(rows, executions)
    for number, key in enumerate(links.of(rows, executions)):
        if number not in left_out:
            yield number, key


def _inserts(
    context: DefaultExecutionContext, following: Following
) -> Iterator[tuple[Insert, bool]]:
    """Yield the INSERTs into the table (the statement, or its CTEs), and whether each is a CTE."""
    whole, compiled = compat.invoked(context), context.compiled
    has_inner = not isinstance(whole, Insert) or getattr(compiled, "ctes", None)
    for statement in visitors.iterate(whole) if has_inner else [whole]:
        if isinstance(statement, Insert):
            is_inner = statement is not whole
            emitted = statement if is_inner else compat.emitted(statement)
            if compat.original(emitted.table) is following.table:
                yield emitted, is_inner


def _selected(
    links: _Links, statement: Insert, parameters: Row, number: int, ignored: IgnoredRows | None
) -> Iterator[Written]:
    """Yield the parents of the rows that an INSERT selects."""
    link, dialect = links.link, links.reclaimer.dialect
    if statement.select is None or has_writes(statement.select):  # looking would write
        return
    if set(selected_columns(statement)).isdisjoint(link.names):  # the same default in all rows
        (key,) = links.of([with_defaults({}, link.columns, parameters)], [parameters])
        yield Written(key, number)
        return
    selected = selected_links(link, statement, dialect, parameters)
    if selected is None:
        return
    excludes = selected_links(link, statement, dialect) is not None
    pairs = zip(selected.key, link.parts, strict=True)
    rows: Select[Any] = select(*(type_coerce(value, part.type) for value, part in pairs))
    rows = rows.select_from(selected.source).distinct()
    if ignored is not None:
        values = dict(zip(selected_columns(statement), selected.columns, strict=True))
        rows = rows.where(*ignored.unmet(with_defaults(values, ignored.columns, parameters)))
        rows = rows.execution_options(**{INCLUDE_EXPIRED: False})
    for row in links.reclaimer.execute(filled(rows, parameters)):
        yield Written(tuple(row), excludes=excludes)


class _Links(NamedTuple):
    """Computes links on the connection of the statement."""

    reclaimer: KeyReclaimer
    link: LinkKey

    @property
    def columns(self) -> tuple[Column[object], ...]:
        """The columns that a link is computed from."""
        return self.link.columns

    def of(self, rows: Sequence[Row], executions: Sequence[Row]) -> list[Key]:
        """Return the links of rows, which have values or SQL; ``(None,)`` for an unknown link."""
        keys: list[Key] = [(None,)] * len(rows)
        generated: dict[int, list[ColumnElement[Any]]] = {}
        for number, row in enumerate(rows):
            values: list[Any] = [row.get(column.key) for column in self.columns]
            expressions = [value for value in values if is_sql(value)]
            if not (expressions or self.link.generated):
                keys[number] = tuple(values)
            elif not expressions:
                generated[number] = self.link.made_of(self._values_of(row))
            elif not has_writes(*expressions):
                query = self.link.selected(self._values_of(row), typed=True)
                links = self.reclaimer.execute(filled(query, executions[number]))
                keys[number] = next(map(tuple, links), (None,))
        width, numbers = len(self.link.parts), list(generated)
        for start in range(0, len(numbers), _AT_ONCE):
            some = numbers[start : start + _AT_ONCE]
            query = select(*(part for number in some for part in generated[number]))
            parts = self.reclaimer.execute(query).one()
            for place, number in enumerate(some):
                keys[number] = tuple(parts[place * width : (place + 1) * width])
        return keys

    def matched(
        self, row: Row, target: Target, matched: Callable[..., Select[Any]]
    ) -> Iterator[Key]:
        """Yield the new links of rows that an UPDATE matches, which SQL may compute from rows."""
        values = {
            column: row.get(column.key, target.source.c[column.key]) for column in self.columns
        }
        moved = self.link.selected(_typed(values), matched)
        for key in self.reclaimer.execute(moved.distinct()):
            yield tuple(key)

    def _values_of(self, row: Row) -> dict[Column[object], ColumnElement[object]]:
        return _typed({column: row.get(column.key) for column in self.columns})


def _typed(values: Mapping[Column[object], object]) -> dict[Column[object], ColumnElement[object]]:
    """Values and SQL, with the types of their columns."""
    return {
        column: type_coerce(value, column.type) if is_sql(value) else literal(value, column.type)
        for column, value in values.items()
    }
