"""Upserts: the update half of ON CONFLICT and ON DUPLICATE KEY keeps the contract too.

Expired holders of the keys are deleted just before the statement (`ttl_odm.sqlalchemy.keys.taken`),
so that an upsert which meets one is an insert. What the statement itself still meets is live, or
has expired within the moment between: the predicate is in here as well. PostgreSQL and SQLite leave
such a row as it is; on MariaDB and MySQL the statement fails on it, and is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, case, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.sqlalchemy.policy.predicate import grouped
from ttl_odm.sqlalchemy.rewrite.stamps import stamp_unless_kept

if TYPE_CHECKING:
    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sqlalchemy.policy.predicate import Predicate


def gated_on_conflict(clause: Any, binding: Binding, predicate: Predicate) -> Any:
    """PostgreSQL's and SQLite's ``ON CONFLICT DO UPDATE``: stamped, and for live rows only."""
    stamp = binding.last_modified
    values = _by_key(clause.update_values_to_set)
    if binding.stamps:
        given = _expression(values.get(stamp.key, stamp), stamp)
        values[stamp.key] = stamp_unless_kept(binding, given)
    gated = clause._clone()
    # A list of pairs in SQLAlchemy 2.0, a dict in 2.1.
    is_list = isinstance(clause.update_values_to_set, list)
    gated.update_values_to_set = list(values.items()) if is_list else values
    live = predicate.live(binding, binding.columns_of(binding.table))
    where = clause.update_whereclause
    gated.update_whereclause = live if where is None else and_(*grouped((where,)), live)
    return gated


def gated_on_duplicate_key(clause: Any, binding: Binding, predicate: Predicate) -> Any:
    """MariaDB's and MySQL's ``ON DUPLICATE KEY UPDATE``, which has no WHERE.

    Assignments are made in order. The first resets ``_ts`` if the row is live (or leaves a date
    that no write resets), and fails if not; `ttl_odm.sqlalchemy.gate.retry` then deletes the row
    and runs the statement again.
    """
    table, stamp = binding.table, binding.last_modified
    values = _by_key(clause.update)
    given = _expression(values.pop(stamp.key, stamp), stamp)
    live = predicate.live(binding, binding.columns_of(table))
    reset = stamp_unless_kept(binding, given) if binding.stamps else given
    gated = clause._clone()
    gated.update = {stamp.key: case((live, reset), else_=_Failure(stamp)), **values}
    order = clause._parameter_ordering or list(values)
    gated._parameter_ordering = [stamp.key, *(key for key in order if key != stamp.key)]
    return gated


class _Failure(FunctionElement[Any]):
    """An error, once it is evaluated for a row: two values where one is due."""

    inherit_cache = True


@compiles(_Failure)
def _render_failure(element: _Failure, compiler: Any, **kw: Any) -> str:
    # Of a column, so that it can't be evaluated beforehand.
    column = compiler.process(element.clauses, **kw)
    return f"(SELECT {column} IS NULL UNION SELECT {column} IS NOT NULL)"


def _by_key(values: Any) -> dict[str, Any]:
    return {
        key if isinstance(key, str) else str(key.key): value for key, value in dict(values).items()
    }


def _expression(value: Any, column: Any) -> ColumnElement[Any]:
    return value if isinstance(value, ColumnElement) else literal(value, column.type)
