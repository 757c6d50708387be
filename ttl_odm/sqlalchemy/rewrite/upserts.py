"""Upserts: the update half of ON CONFLICT and ON DUPLICATE KEY keeps the contract too.

Expired holders of the keys are deleted around the statement, so that an upsert which meets one is
an insert (`ttl_odm.sqlalchemy.keys.write_keys`). Any row that the statement itself still meets is
live, or has expired a moment ago: so the predicate is here as well. PostgreSQL and SQLite leave
such a row as it is; on MariaDB and MySQL the statement fails on it, and is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, case
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.bindings import binding_of, sub_binding_of
from ttl_odm.sqlalchemy.policy.predicate import Predicate, grouped
from ttl_odm.sqlalchemy.policy.references import rule_of
from ttl_odm.sqlalchemy.rewrite.writes import stamp_unless_kept, typed
from ttl_odm.sqlalchemy.time.clock import UnwrappedConfigurationError, clock_of

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.dialects.mysql.dml import OnDuplicateClause
    from sqlalchemy.dialects.postgresql.dml import OnConflictDoUpdate
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.sqlalchemy.policy.bindings import Binding


def gated_on_conflict(
    clause: OnConflictDoUpdate, table: object, dialect: Dialect
) -> OnConflictDoUpdate:
    """Return PostgreSQL's and SQLite's ``ON CONFLICT DO UPDATE``, stamped, for live rows only."""
    binding = _binding_of(table)
    if binding is None:
        return clause
    stamp = binding.last_modified
    values = compat.conflict_values(clause)
    if binding.stamps:
        value = typed(values.get(stamp.key, stamp), stamp)
        values[stamp.key] = stamp_unless_kept(binding, value)
    live = _live(binding, dialect)
    where: Any = clause.update_whereclause
    where = live if where is None else and_(*grouped((where,)), live)
    return compat.with_conflict_values(clause, values, where)


def gated_on_duplicate_key(
    clause: OnDuplicateClause, table: object, dialect: Dialect
) -> OnDuplicateClause:
    """Return MariaDB's and MySQL's ``ON DUPLICATE KEY UPDATE``, which has no WHERE, likewise.

    Assignments are made in order. The first resets ``_ts`` if the row is live (or leaves a date
    that no write resets), and fails if it isn't; `ttl_odm.sqlalchemy.gate.execution` then deletes
    the row and runs the statement again.
    """
    binding = _binding_of(table)
    if binding is None:
        return clause
    stamp = binding.last_modified
    values = compat.conflict_values(clause)
    value = typed(values.pop(stamp.key, stamp), stamp)
    live = _live(binding, dialect)
    reset = stamp_unless_kept(binding, value) if binding.stamps else value
    values = {stamp.key: case((live, reset), else_=_Failure(stamp)), **values}
    return compat.with_duplicate_values(clause, values, first=stamp.key)


def _live(binding: Binding, dialect: Dialect) -> ColumnElement[bool]:
    predicate = Predicate(clock_of(dialect), writing=True)
    return predicate.live(binding, binding.columns_of(binding.table))


def _binding_of(table: object) -> Binding | None:
    """Return the policy of a table; raise an error for the table of a joined subclass.

    An upsert there would write to rows whose lifetime is in another table, which the clause can't
    reach: their ``_ts`` would stay, and expired ones would be changed.
    """
    sub = sub_binding_of(table)
    if sub is not None:
        raise UnwrappedConfigurationError(
            f"An upsert that updates rows of {sub.table.fullname!r} can't reset their "
            f"{sub.base.last_modified.name!r}, which is in {sub.base.table.fullname!r} "
            f"(model {sub.base.name}): use session.merge(), or an UPDATE and then an INSERT that "
            "does nothing on a conflict."
        )
    rule = rule_of(table)
    if rule is not None:
        raise rule.rejected("upsert", rule.table.fullname)
    return binding_of(table)


class _Failure(FunctionElement[Any]):
    """An error when it is evaluated for a row: it has two values where one is allowed."""

    inherit_cache = True


@compiles(_Failure)
def _render_failure(element: _Failure, compiler: SQLCompiler, **kw: object) -> str:
    # It depends on a column, so that it can't be evaluated beforehand.
    column = compiler.process(element.clauses, **kw)
    return f"(SELECT {column} IS NULL UNION SELECT {column} IS NOT NULL)"
