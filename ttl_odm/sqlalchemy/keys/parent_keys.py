"""The parents that a statement puts rows under: their keys, as far as they are known beforehand.

Values are in the statement or its parameters; what SQL computes is read by a SELECT of the same
SQL, unless that would write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import ColumnElement, Insert, literal, select, type_coerce
from sqlalchemy.sql import visitors

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.keys.defaults import UNKNOWN, default_of, with_defaults
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.rewrite.parents import moves_by_values
from ttl_odm.sqlalchemy.rewrite.stamps import (
    inner_rows,
    is_sql,
    rows_of,
    selected_columns,
    selected_rows,
)
from ttl_odm.sqlalchemy.rewrite.targets import filled, writes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy import Select
    from sqlalchemy.engine.default import DefaultExecutionContext

    from ttl_odm.sqlalchemy.policy.following import Following, Links
    from ttl_odm.sqlalchemy.rewrite.targets import TargetLookup

    Row = Mapping[str, Any]

    Key = tuple[Any, ...]


class Written(NamedTuple):
    """A parent's key, and what can leave out the rows that a statement puts under it.

    That is the number of an execution, all of whose rows they are; or a condition, if the statement
    `excludes` them itself. Of a row in a list of VALUES it is neither.
    """

    key: Key
    execution: int | None = None
    excludes: bool = False


def parents_written(
    context: DefaultExecutionContext, following: Following, lookup: TargetLookup | None
) -> list[Written]:
    """Those of rows that follow others; without a `lookup` the statement is an INSERT, or has one.

    Without NULLs, by which a row has no parent.
    """
    reclaimer, links = KeyReclaimer.of(context), following.links()
    if lookup is None:
        written = _inserted(context, reclaimer, following)
    else:
        written = _updated(context, reclaimer, links, lookup)
    return [one for one in dict.fromkeys(written) if None not in one.key]


def _updated(
    context: DefaultExecutionContext, reclaimer: KeyReclaimer, links: Links, lookup: TargetLookup
) -> Iterator[Written]:
    # With its options, since those of the ORM may add conditions inside its WHERE.
    options = compat.loader_options(compat.invoked(context))
    for target, executions in lookup.targets(context):
        by_values = moves_by_values(target, links)
        rows = zip(executions, target.rows(executions), strict=True)
        for number, (parameters, row) in enumerate(rows):
            key = [row.get(own.key, target.source.c[own.key]) for own in links.own]
            if not any(map(is_sql, key)):
                yield Written(tuple(key), number if by_values else None, excludes=not by_values)
            elif not target.acts:
                moved = target.matched(parameters, *_typed(key, links)).options(*options)
                for found in reclaimer.execute(moved.distinct()):
                    yield Written(tuple(found), excludes=True)


def _inserted(
    context: DefaultExecutionContext, reclaimer: KeyReclaimer, following: Following
) -> Iterator[Written]:
    links, executions = following.links(), context.compiled_parameters
    for statement, is_inner in _inserts(context, following):
        if compat.selected_names(statement):
            for parameters in executions:
                yield from _selected(reclaimer, links, statement, parameters)
        elif is_inner or compat.value_lists(statement):
            for parameters in executions:
                for number, row in enumerate(inner_rows(statement, parameters)):
                    full = with_defaults(row, links.own, parameters, number)
                    yield from map(Written, _of_row(reclaimer, links, full, parameters))
        else:
            rows = zip(executions, rows_of(statement, executions), strict=True)
            for number, (parameters, row) in enumerate(rows):
                full = with_defaults(row, links.own, parameters)
                for key in _of_row(reclaimer, links, full, parameters):
                    yield Written(key, number)


def _inserts(
    context: DefaultExecutionContext, following: Following
) -> Iterator[tuple[Insert, bool]]:
    """Those of a statement into a table; itself, or inside it, in its CTEs."""
    whole, compiled = compat.invoked(context), context.compiled
    has_inner = not isinstance(whole, Insert) or getattr(compiled, "ctes", None)
    for statement in visitors.iterate(whole) if has_inner else [whole]:
        if isinstance(statement, Insert):
            is_inner = statement is not whole
            emitted = statement if is_inner else compat.emitted(statement)
            if compat.original(emitted.table) is following.table:
                yield emitted, is_inner


def _of_row(reclaimer: KeyReclaimer, links: Links, row: Row, parameters: Row) -> Iterator[Key]:
    key = tuple(row.get(own.key) for own in links.own)
    if not any(map(is_sql, key)):
        yield key
    elif not writes(*(part for part in key if isinstance(part, ColumnElement))):
        computed = filled(select(*_typed(key, links)), parameters)
        for found in reclaimer.execute(computed):
            yield tuple(found)


def _selected(
    reclaimer: KeyReclaimer, links: Links, statement: Insert, parameters: Row
) -> Iterator[Written]:
    """The keys in what an INSERT selects."""
    selected: Any = statement.select
    columns, rows = selected_columns(statement), selected_rows(statement, reclaimer.dialect)
    # What writes would write; what text selects has no names.
    if writes(selected) or len(rows.c) != len(columns):
        return
    places = dict(zip(columns, rows.c, strict=True))
    defaults = {own.key: default_of(own, {}) for own in links.own if own.key not in places}
    if UNKNOWN in defaults.values():
        return
    key = [places.get(own.key, defaults.get(own.key)) for own in links.own]
    found: Select[Any] = select(*_typed(key, links)).select_from(rows).distinct()
    for row in reclaimer.execute(filled(found, parameters)):
        yield Written(tuple(row), excludes=True)


def _typed(key: Iterable[Any], links: Links) -> list[ColumnElement[Any]]:
    """Values, and SQL, with the types of the columns that they are for."""
    return [
        type_coerce(value, own.type) if is_sql(value) else literal(value, own.type)
        for value, own in zip(key, links.own, strict=True)
    ]
