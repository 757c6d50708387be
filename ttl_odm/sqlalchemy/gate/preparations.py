"""What has to happen just before a compiled statement runs.

The gate chooses preparations while it compiles a statement (`ttl_odm.sqlalchemy.gate.compiler`) and
runs them when it executes it (`ttl_odm.sqlalchemy.gate.execution`, which also decides when keys are
freed, and what follows a failed write). Keys are freed by `ttl_odm.sqlalchemy.keys.write_keys`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from sqlalchemy import Insert, Update, or_, update
from sqlalchemy.exc import CompileError
from sqlalchemy.sql import visitors

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer, referred_rows
from ttl_odm.sqlalchemy.keys.table_keys import with_sources
from ttl_odm.sqlalchemy.keys.updates import TargetLookup
from ttl_odm.sqlalchemy.keys.write_keys import TakenKeys
from ttl_odm.sqlalchemy.policy.bindings import first_of
from ttl_odm.sqlalchemy.policy.predicate import KEEP_LAST_MODIFIED, base_row_written
from ttl_odm.sqlalchemy.policy.references import Change
from ttl_odm.sqlalchemy.purge.statements import in_subquery
from ttl_odm.sqlalchemy.rewrite.writes import Stamp, filled, inner_rows

if TYPE_CHECKING:
    from sqlalchemy import Dialect, Table
    from sqlalchemy.engine.default import DefaultExecutionContext
    from typing_extensions import Self

    from ttl_odm.sqlalchemy.keys.updates import MetRows
    from ttl_odm.sqlalchemy.policy.bindings import SubBinding
    from ttl_odm.sqlalchemy.policy.sources import DefaultSource
    from ttl_odm.sqlalchemy.rewrite.statement_rules import Preparation
    from ttl_odm.sqlalchemy.rewrite.writes import Target


@dataclass(frozen=True, slots=True)
class Several:
    """Several preparations for one statement."""

    preparations: tuple[Preparation, ...]

    @classmethod
    def of(cls, *preparations: Preparation | None) -> Preparation | None:
        """Return the preparations that aren't None as one; None if there are none."""
        some = tuple(preparation for preparation in preparations if preparation is not None)
        return cls(some) if len(some) > 1 else next(iter(some), None)

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Run them in order, until one leaves the statement nothing to do."""
        return sum(
            preparation.prepare(context, current=current)
            for preparation in self.preparations
            if not getattr(context, "ttl_does_nothing", False)
        )


@dataclass(frozen=True, slots=True)
class SeenDefault:
    """Before a statement with a default that Python doesn't know: read it from time to time."""

    source: DefaultSource

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:  # noqa: ARG002 (as in the Protocol)
        """Read the default; no rows are in the way."""
        self.source.see(context.root_connection, context.execution_options)
        return 0


@dataclass(frozen=True, slots=True)
class ChangedReferences:
    """Before a DELETE, or an UPDATE of a key: the expired rows that refer to its rows."""

    change: Change
    lookup: TargetLookup | MetRows

    @classmethod
    def of(cls, target: Target, met: MetRows | None = None) -> ChangedReferences | None:
        """Return this for what a statement sets or deletes; None if nothing refers to it.

        Only references from TTL tables, and from tables whose rows depend on them, count.
        """
        columns = None
        if isinstance(target.statement.statement, Update):
            written = target.written
            columns = frozenset(
                column.key
                for column in target.table.c  # generated ones change with their sources
                if not written.isdisjoint(source.key for source in with_sources(column))
            )
        change = Change(first_of(target.table), columns)
        return cls(change, met or TargetLookup(target)) if change.consequences() else None

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Delete the expired rows that would block the change of the statement's rows."""
        reclaimer = KeyReclaimer.of(context, current=current)
        deleted = 0
        for target, executions in self.lookup.targets(context):
            if target.acts:  # which rows it changes is known only after it has run
                continue
            rows = zip(executions, target.rows(executions), strict=True)
            for (parameters, row), consequence in product(rows, self.change.consequences()):
                conditions, source = [*target.statement.criteria], target.source
                if self.change.columns is not None:  # a key that stays as it is needs no room
                    moves = (
                        source.c[column.key].is_distinct_from(row.get(column.key))
                        for column in consequence.referred
                        if column.key in self.change.columns
                    )
                    conditions.append(or_(*moves))
                changed = referred_rows(
                    consequence,
                    self.change.table,
                    *conditions,
                    source=source,
                    sources=target.sources,
                )
                deleted += reclaimer.make_way(consequence, filled(changed, parameters))
        return deleted


@dataclass(frozen=True, slots=True)
class StampedBase:
    """Before an UPDATE of a joined subclass's table: the ``_ts`` of the rows at the root."""

    sub: SubBinding
    lookup: TargetLookup

    @classmethod
    def of(cls, sub: SubBinding, target: Target) -> Self:
        """Return this for a table that an UPDATE changes.

        Raises:
            CompileError: The rows can't be determined before the UPDATE.
        """
        if sub.base.stamps and (target.acts or compat.is_limited(target.statement.statement)):
            raise CompileError(
                f"This statement writes {sub.table.fullname!r}, so it has to reset _ts in "
                f"{sub.base.table.fullname!r} ({sub.base.name}). Because it has a LIMIT or a CTE "
                "that writes, these rows can't be determined beforehand. Select the keys of the "
                "rows first, and name them in its WHERE."
            )
        return cls(sub, TargetLookup(target))

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Reset ``_ts`` in the table at the root, for the rows that the UPDATE will match."""
        base = self.sub.base
        if (
            current
            or not base.stamps
            or context.execution_options.get(KEEP_LAST_MODIFIED)
            or base_row_written.get()
        ):
            return 0
        reclaimer = KeyReclaimer.of(context)
        # With the UPDATE's options: those of the ORM may add conditions inside its WHERE.
        options = compat.loader_options(compat.invoked(context))
        stamp = (
            update(base.table)
            .values({base.last_modified: base.instants.stored(Stamp())})
            .options(*options)
        )
        for target, executions in self.lookup.targets(context):
            own, roots = zip(*self.sub.keys_of(target.source), strict=True)
            for parameters in executions:
                matched = in_subquery(roots, target.matched(parameters, *own))
                reclaimer.execute(stamp.where(matched))
        return 0


@dataclass(frozen=True, slots=True)
class InnerInserts:
    """Before a statement with INSERTs into one table in its CTEs: the keys of their rows."""

    taken: TakenKeys

    @classmethod
    def of(cls, table: Table, dialect: Dialect) -> InnerInserts | None:
        """Return this for INSERTs into a table; None if no expired row can be in their way."""
        taken = TakenKeys.of(table, dialect)
        return None if taken is None else cls(taken)

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Delete the expired rows that hold a key which one of the INSERTs takes."""
        reclaimer = KeyReclaimer.of(context, current=current)
        whole = compat.invoked(context)
        inserts = [
            element
            for element in visitors.iterate(whole)
            if isinstance(element, Insert) and element is not whole
            if compat.original(element.table) is self.taken.conflicting.table
        ]
        return sum(
            self.taken.free_for_insert(reclaimer, inner, inner_rows(inner, parameters), parameters)
            for inner in inserts
            for parameters in context.compiled_parameters
        )
