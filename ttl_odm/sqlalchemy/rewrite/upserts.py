"""Upserts: the update half of ON CONFLICT and ON DUPLICATE KEY keeps the contract too.

Expired holders of the keys are deleted just before the statement, so that an upsert which meets one
is an insert (`ttl_odm.sqlalchemy.keys.writes`). What the statement itself still meets is live, or
has expired within the moment between: the predicate is in here as well. PostgreSQL and SQLite leave
such a row as it is; on MariaDB and MySQL the statement fails on it, and is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, case, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.predicate import grouped
from ttl_odm.sqlalchemy.rewrite.stamps import stamp_unless_kept

if TYPE_CHECKING:
    from sqlalchemy import Column
    from sqlalchemy.dialects.mysql.dml import OnDuplicateClause
    from sqlalchemy.dialects.postgresql.dml import OnConflictDoUpdate
    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sqlalchemy.policy.predicate import Predicate


def gated_on_conflict(
    clause: OnConflictDoUpdate, binding: Binding, predicate: Predicate
) -> OnConflictDoUpdate:
    """PostgreSQL's and SQLite's ``ON CONFLICT DO UPDATE``: stamped, and for live rows only."""
    stamp = binding.last_modified
    values = _by_key(clause.update_values_to_set)
    if binding.stamps:
        value = _expression(values.get(stamp.key, stamp), stamp)
        values[stamp.key] = stamp_unless_kept(binding, value)
    live = predicate.live(binding, binding.columns_of(binding.table))
    where: Any = clause.update_whereclause
    where = live if where is None else and_(*grouped((where,)), live)
    return compat.with_conflict_values(clause, values, where)


def gated_on_duplicate_key(
    clause: OnDuplicateClause, binding: Binding, predicate: Predicate
) -> OnDuplicateClause:
    """MariaDB's and MySQL's ``ON DUPLICATE KEY UPDATE``, which has no WHERE.

    Assignments are made in order. The first resets ``_ts`` if the row is live (or leaves a date
    that no write resets), and fails if not; `ttl_odm.sqlalchemy.gate.preparations` then deletes the
    row and runs the statement again.
    """
    stamp = binding.last_modified
    values = _by_key(clause.update)
    value = _expression(values.pop(stamp.key, stamp), stamp)
    live = predicate.live(binding, binding.columns_of(binding.table))
    reset = stamp_unless_kept(binding, value) if binding.stamps else value
    values = {stamp.key: case((live, reset), else_=_Failure(stamp)), **values}
    return compat.with_duplicate_values(clause, values, first=stamp.key)


class _Failure(FunctionElement[Any]):
    """An error, once it is evaluated for a row: two values where one is due."""

    inherit_cache = True


@compiles(_Failure)
def _render_failure(element: _Failure, compiler: SQLCompiler, **kw: object) -> str:
    # Of a column, so that it can't be evaluated beforehand.
    column = compiler.process(element.clauses, **kw)
    return f"(SELECT {column} IS NULL UNION SELECT {column} IS NOT NULL)"


def _by_key(values: Any) -> dict[str, Any]:
    return {
        key if isinstance(key, str) else str(key.key): value for key, value in dict(values).items()
    }


def _expression(value: Any, column: Column[Any]) -> ColumnElement[Any]:
    return value if isinstance(value, ColumnElement) else literal(value, column.type)
