"""The tables that a write changes, when it is about to run.

What comes out of SQLAlchemy's cache was compiled of another statement, with other values and other
aliases. So all but the simplest writes are asked again (`ttl_odm.sqlalchemy.rewrite.writes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Delete, Update
from sqlalchemy.sql import visitors

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.compat import Resolved
from ttl_odm.sqlalchemy.rewrite.writes import targets_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine.default import DefaultExecutionContext

    from ttl_odm.sqlalchemy.rewrite.writes import Parameters, Target


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
