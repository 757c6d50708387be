"""The link of a row: the columns that lead to its parent, and the values that a write gives them.

If SQL computes the new values, the statement gets a condition that leaves out rows whose new parent
has expired; a row without a new parent is an orphan, live or expired as its model declares. If the
values are plain, the statement stays as it is: see `ttl_odm.follows.sqlalchemy.parents`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    BindParameter,
    Column,
    Join,
    TextClause,
    bindparam,
    literal_column,
    select,
    type_coerce,
)
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import Grouping

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.follows.sqlalchemy.conditions import under
from ttl_odm.follows.sqlalchemy.follower import following_of
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.compat import SQLTemplate, column_key
from ttl_odm.sqlalchemy.keys.defaults import UNKNOWN, default_of
from ttl_odm.sqlalchemy.keys.table_keys import (
    Key,
    as_sql,
    is_sql,
    with_generated,
    with_sources,
    with_values,
)
from ttl_odm.sqlalchemy.rewrite.from_clauses import Assigned
from ttl_odm.sqlalchemy.rewrite.selections import selected_columns, selected_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import ColumnElement, FromClause, Insert, Update
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.policy.rules import Links
    from ttl_odm.sqlalchemy.rewrite.statement_rules import Rows
    from ttl_odm.sqlalchemy.rewrite.writes import Target

    Row = Mapping[str, Any]

_NAME: Final = r"(?:`[^`]+`|[^\W\d][\w$]*)"
_TOKENS: Final = re.compile(
    rf"""
    '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*"
    | (?<![\w$]) (?P<name> (?:{_NAME}\s*\.\s*)? {_NAME}) (?![\w$]|\s*\()
    """,
    re.VERBOSE,
)
"""Strings, and names that may be those of columns, in the text of a generated column of MariaDB."""


def link_of(links: Links) -> Key:
    """Return the columns of a link as a key; for generated ones, the columns that they read."""
    own = tuple(links.own)
    if all(column.computed is None for column in own):
        return Key(own, own)
    sources = dict.fromkeys(source for column in own for source in with_sources(column))
    stored = tuple(column for column in sources if column.computed is None)
    return Key(own, stored, tuple(column for column in sources if column.computed is not None))


def moves_by_values(target: Target, link: Key) -> bool:
    """Return whether an UPDATE puts all rows of an execution under one parent, by plain values."""
    if target.is_inner or not target.is_first or len(target.sources) > 1:
        return False
    values = target.values
    return all(
        not is_sql(values[name]) or isinstance(values[name], BindParameter)
        if name in values
        else name in target.parameters
        for name in link.names
    )


def moved_update(statement: Update, target: Target, rows: Rows, dialect: Dialect) -> Update:
    """Return the UPDATE with a condition for the new parents of a target's rows, if needed."""
    following = following_of(target.table)
    if following is None:
        return statement
    link = link_of(following.links())
    if target.written.isdisjoint(link.names) or moves_by_values(target, link):
        return statement
    values = target.values
    # A bound value has another name in SET than elsewhere, unless it is inside an expression.
    needed = values if dialect.name in MYSQL_FAMILY else link.names
    coerced = {
        name: type_coerce(values[name], target.table.c[name].type)
        for name in needed
        if isinstance(values.get(name), BindParameter) and name in target.table.c
    }
    parameters: dict[str, ColumnElement[object]] = {
        column.key: bindparam(column.key, required=True, type_=column.type)
        for column in link.columns
        if column.key in target.parameters and column.key not in values
    }
    pairs: list[tuple[Any, Any]] = [
        (name, coerced.get(column_key(statement, name), value))
        for name, value in compat.assignments(statement)
    ]
    pairs += [(target.source.c[name], parameter) for name, parameter in parameters.items()]
    conditions = []
    for row in as_set({**parameters, **values, **coerced}, target, dialect):
        places = {
            column: Assigned(as_sql(row.get(column.key, target.source.c[column.key]), column))
            for column in link.columns
        }
        key = _made_of(link, places, laterally=rows.laterally)
        conditions.append(under(rows, following, target.source, key))
    statement = compat.with_assignments(statement, pairs)
    return compat.with_criteria(statement, (*compat.where_criteria(statement), *conditions))


def as_set(row: Row, target: Target, dialect: Dialect) -> list[Row]:
    """Return the values that an UPDATE sets, by column key, as the database evaluates them.

    MariaDB and MySQL evaluate assignments one after the other, so an expression reads the new value
    of a column that was set before. In an UPDATE of several tables they may also read the old one,
    so there are two answers.
    """
    if dialect.name not in MYSQL_FAMILY:
        return [row]
    write: Any = target.statement.statement
    order = [key for key, *_ in target.assignments if key in row and key in target.table.c]
    if not compat.is_ordered(write):
        order = [column.key for column in target.table.c if column.key in order]
    assigned: dict[Any, Any] = {}
    in_turn = dict(row)
    for key in dict.fromkeys(order):
        value = row[key]
        if is_sql(value) and any(
            isinstance(element, Column) and element in assigned
            for element in visitors.iterate(value)
        ):
            in_turn[key] = with_values(value, assigned)
        assigned[target.source.c[key]] = as_sql(in_turn[key], target.table.c[key])
    has_several = len(target.sources) > 1 or isinstance(target.sources[0], Join)
    differs = any(in_turn[key] is not value for key, value in row.items())
    return [row, in_turn] if has_several and differs else [in_turn]


def _made_of(
    link: Key, values: Mapping[Column[object], ColumnElement[object]], *, laterally: bool
) -> list[ColumnElement[object]]:
    """Return the link of a row with these values, as SQL.

    If generated columns belong to the link, it is computed in a subquery over the values, as for
    rows of a table. Without LATERAL (`laterally` is False) the text of these columns is used, with
    the values put in.
    """
    if laterally or not link.generated:
        return link.made_of(values)
    known: dict[Any, ColumnElement[object]] = dict(values)
    for column in link.generated:
        known[column] = _substituted(column, known)
    return [known[part] for part in link.parts]


def _substituted(
    column: Column[object], values: Mapping[Column[object], ColumnElement[object]]
) -> ColumnElement[object]:
    """Return the expression of a generated column, with values in the place of other columns."""
    computed: Any = column.computed
    if not isinstance(computed.sqltext, TextClause):
        return Grouping(with_values(computed.sqltext, values))
    by_name = {str(own.name).lower(): value for own, value in values.items()}
    text, parts, end = computed.sqltext.text, [], 0
    for token in _TOKENS.finditer(text):
        name = (token.group("name") or "").rpartition(".")[2]
        value = by_name.get(name.strip(" `").lower())
        if value is not None:
            parts += [literal_column(text[end : token.start()]), value]
            end = token.end()
    parts.append(literal_column(text[end:]))
    places = "".join(f"{{{number}}}" for number in range(len(parts)))
    return SQLTemplate(f"({places})", column.type, *parts)


def selected_insert(statement: Insert, rows: Rows, dialect: Dialect) -> Insert:
    """Return an INSERT FROM SELECT with a condition for the parents of its rows, if needed."""
    following = following_of(statement.table)
    if following is None or not compat.selected_names(statement):
        return statement
    selected = selected_links(link_of(following.links()), statement, dialect)
    if selected is None:
        return statement
    chosen = select(*selected.columns)
    chosen = chosen.where(under(rows, following, selected.source, selected.key))
    return compat.copied(statement, select=chosen)


class SelectedLinks(NamedTuple):
    """The rows that an INSERT selects: a subquery, its columns, and the links of the rows."""

    source: FromClause
    columns: Sequence[ColumnElement[object]]
    key: list[ColumnElement[object]]


def selected_links(
    link: Key, statement: Insert, dialect: Dialect, parameters: Row | None = None
) -> SelectedLinks | None:
    """Return the links of the rows that an INSERT selects; None if they can't be expressed in SQL.

    Columns that the INSERT leaves out get their defaults. Those that are Python functions have been
    called for the parameters of an execution. None, too, if it leaves out the whole link, which is
    then the same in all rows.
    """
    names, rows = selected_columns(statement), selected_rows(statement, dialect)
    if len(rows.c) != len(names):  # raw SQL may select several columns as one
        return None
    places = dict(zip(names, rows.c, strict=True))
    values: dict[Column[object], Any] = {
        column: places[column.key] if column.key in places else _default(column, parameters)
        for column in link.columns
    }
    if UNKNOWN in values.values() or places.keys().isdisjoint(link.names):
        return None
    values = {column: as_sql(value, column) for column, value in values.items()}
    if not link.generated:
        return SelectedLinks(rows, list(rows.c), [values[column] for column in link.columns])
    # Under the names of their columns, since a generated column may be raw SQL.
    numbered = [column.label(f"ttl_odm_{number}") for number, column in enumerate(rows.c)]
    named = [value.label(column.name) for column, value in values.items()]
    renamed = select(*numbered, *named).subquery(link.columns[0].table.name)
    own = {column: renamed.c[column.name] for column in values}
    source, computed = with_generated(renamed, own, link.generated, as_sql)
    parts: Any = link.parts
    columns = [source.c[column.name] for column in numbered]
    return SelectedLinks(source, columns, [computed[part] for part in parts])


def _default(column: Column[object], parameters: Row | None) -> Any:
    default: Any = column.default
    if parameters is None and default is not None and default.is_scalar:
        return default.arg
    return default_of(column, parameters or {})
