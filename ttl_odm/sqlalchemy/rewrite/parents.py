"""Conditions for the parents that a statement puts rows under, where SQL says which these are.

A row whose parent has expired is left out; one that has none is an orphan, which is what its model
says. Where plain values say which parent it is, the statement stays as it is: see
`ttl_odm.sqlalchemy.keys.parents`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BindParameter, Join, bindparam, literal, select, type_coerce

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.following import following_of
from ttl_odm.sqlalchemy.rewrite.from_clauses import LiveRows, WithoutSources
from ttl_odm.sqlalchemy.rewrite.stamps import is_sql, selected_columns, selected_rows
from ttl_odm.sqlalchemy.rewrite.targets import column_key

if TYPE_CHECKING:
    from sqlalchemy import Insert, Update
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.policy.following import Links
    from ttl_odm.sqlalchemy.rewrite.targets import Target


def moves_by_values(target: Target, links: Links) -> bool:
    """Whether an UPDATE puts all rows of an execution under one parent, which values name."""
    if target.is_inner or not target.is_first or len(target.sources) > 1:
        return False
    values = target.values
    return all(
        not _is_computed(values[own.key]) if own.key in values else own.key in target.parameters
        for own in links.own
    )


def _is_computed(value: object) -> bool:
    return is_sql(value) and not isinstance(value, BindParameter)


def moved_update(statement: Update, target: Target, live: LiveRows) -> Update:
    """The UPDATE with the condition for rows of a target, if it needs one."""
    following = following_of(target.table)
    if following is None:
        return statement
    links = following.links()
    written = target.written
    if written.isdisjoint(own.key for own in links.own) or moves_by_values(target, links):
        return statement
    values, pairs, key = target.values, compat.assignments(statement), []
    for own in links.own:
        column: Any = target.source.c[own.key]
        if own.key in values:
            value = values[own.key]
            if isinstance(value, BindParameter):  # in SET, SQLAlchemy would give it another name
                value = type_coerce(value, own.type)
                pairs = [
                    (name, value if column_key(statement, name) == own.key else old)
                    for name, old in pairs
                ]
            key.append(value if is_sql(value) else literal(value, own.type))
        elif own.key in target.parameters:
            parameter = bindparam(own.key, required=True, type_=own.type)
            pairs = [*pairs, (column, parameter)]
            key.append(parameter)
        else:
            key.append(column)
    condition = live.under(following, target.source, key)
    if isinstance(statement.table, Join):
        condition = WithoutSources(condition)
    statement = compat.with_assignments(statement, pairs)
    return compat.with_criteria(statement, (*compat.where_criteria(statement), condition))


def selected_insert(statement: Insert, live: LiveRows, dialect: Dialect) -> Insert:
    """An INSERT FROM SELECT with the condition, if its rows follow others."""
    following = following_of(statement.table)
    names = compat.selected_names(statement)
    if following is None or not names:
        return statement
    rows, columns = selected_rows(statement, dialect), selected_columns(statement)
    if len(rows.c) != len(columns):  # there is text, which may be more than one
        return statement
    places = dict(zip(columns, rows.c, strict=True))
    links = following.links()
    if any(own.key not in places for own in links.own):
        return statement
    key = [places[own.key] for own in links.own]
    chosen = select(*rows.c).where(live.under(following, rows, key))
    return compat.copied(statement, select=chosen)
