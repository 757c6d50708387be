"""``session.execute(update(Model))``: objects in memory agree with the rows.

SQLAlchemy's default strategy evaluates the WHERE clause in Python to find the objects that a
bulk UPDATE or DELETE has changed. It knows nothing of the predicate, and would change or drop
objects whose rows have expired and were not matched. For TTL models the matched rows are
fetched instead; ``synchronize_session=False`` keeps its meaning.

A session without objects of the class fetches nothing: under SERIALIZABLE, the SELECT that MariaDB
and MySQL need would lock the rows in shared mode before they are written, and two such writes of a
row would deadlock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.bindings import root_binding_of
from ttl_odm.sqlalchemy.policy.predicate import KEEP_LAST_MODIFIED
from ttl_odm.sqlalchemy.policy.references import rule_of
from ttl_odm.sqlalchemy.rewrite.from_clauses import binding_of_source
from ttl_odm.sqlalchemy.rewrite.writes import IfGranted, Stamp
from ttl_odm.sqlalchemy.time.instants import Stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Column, Table, Update
    from sqlalchemy.orm import Session

    from ttl_odm.sqlalchemy.compat import Handler


def fetching(evaluate: Handler) -> Handler:
    """Let a bulk statement on a TTL table fetch the rows that it matches."""

    def fetch_instead(cls: type, *arguments: object) -> object:
        table = compat.bulk_mapper(arguments[-1]).local_table
        if root_binding_of(table) is None and rule_of(table) is None:
            return evaluate(cls, *arguments)
        if not compat.has_objects_of(*arguments):
            return compat.synchronize_nothing(*arguments)
        return compat.synchronize_by_fetch(cls, *arguments)

    return fetch_instead


def stamping(before_execute: Handler) -> Handler:
    """Let the ORM know that a bulk UPDATE resets ``_ts``.

    The gate stamps every UPDATE; an assignment here lets the ORM expire the old value in objects in
    memory.
    """

    def stamped(
        cls: type,
        session: Session,
        statement: Update,
        params: object,
        options: Mapping[str, object],
        *rest: object,
    ) -> object:
        binding = binding_of_source(statement.table)
        if {**statement.get_execution_options(), **options}.get(KEEP_LAST_MODIFIED):
            # An update by primary key loses the options that session.execute() was given.
            statement = statement.execution_options(**{KEEP_LAST_MODIFIED: True})
        elif (
            binding is not None
            and binding.stamps
            and not compat.is_ordered(statement)
            and not isinstance(params, list)
            and _sets_own(statement, binding.table)
            and not _is_touch(statement, binding.last_modified)
        ):
            # In the column's format: the policy may be gone when the statement is compiled.
            stamp = binding.instants.stored(Stamp())
            # Not by `values()`, which fails on the copy that a lambda makes of an UPDATE.
            pairs = [*compat.assignments(statement), (binding.last_modified, stamp)]
            statement = compat.with_assignments(statement, pairs)
        return before_execute(cls, session, statement, params, options, *rest)

    return stamped


def _is_touch(statement: Update, stamp: Column[Any]) -> bool:
    """Return whether an UPDATE sets the stamp itself, as that of `touch` does."""
    return isinstance(dict(compat.assignments(statement)).get(stamp), (Stamp, Stored, IfGranted))


def _sets_own(statement: Update, table: Table) -> bool:
    """Return whether an UPDATE sets a class's own columns, not only other tables' (on MariaDB).

    Columns of an alias don't count: SQLAlchemy doesn't follow them into objects either.
    """
    names = [name for name, _ in compat.assignments(statement)]
    return not names or any(
        isinstance(name, str) or compat.original(name.table) is table for name in names
    )
