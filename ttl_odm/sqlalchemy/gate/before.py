"""What has to happen just before a compiled statement runs.

The gate decides it while it compiles a statement (`ttl_odm.sqlalchemy.gate.compiler`), the
execution context does it (`ttl_odm.sqlalchemy.gate.context`). The keys of INSERT and UPDATE have a
module of their own, `ttl_odm.sqlalchemy.keys.taken`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Table, select, update

from ttl_odm.sqlalchemy.compat import original
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.policy.foreign_keys import restricting_children
from ttl_odm.sqlalchemy.policy.parameters import KEEP_LAST_MODIFIED, base_row_written
from ttl_odm.sqlalchemy.purge.statements import filled, in_subquery, writes
from ttl_odm.sqlalchemy.rewrite.stamps import Stamp

if TYPE_CHECKING:
    from ttl_odm.sqlalchemy.policy.binding import SubBinding


class Preparation(Protocol):
    """Something to do before a statement."""

    def prepare(self, context: Any, *, current: bool = False) -> int:
        """Do it, for the statement of this execution context.

        Args:
            context: the execution context.
            current: see `KeyReclaimer`; the statement has failed on a row that its transaction
                doesn't see, and this is the second try.

        Returns:
            How many expired rows were in the way, and are gone.
        """
        ...


@dataclass(frozen=True, slots=True)
class Several:
    """Some preparations for one statement."""

    preparations: tuple[Preparation, ...]

    @classmethod
    def of(cls, *preparations: Preparation | None) -> Preparation | None:
        """Those that there are; None where there is none."""
        given = tuple(each for each in preparations if each is not None)
        return cls(given) if len(given) > 1 else next(iter(given), None)

    def prepare(self, context: Any, *, current: bool = False) -> int:
        """Do all of them."""
        return sum(each.prepare(context, current=current) for each in self.preparations)


@dataclass(frozen=True, slots=True)
class DeletedReferences:
    """Before a DELETE: the expired rows that refer to its rows and would restrict it."""

    table: Table

    @classmethod
    def of(cls, table: Any) -> DeletedReferences | None:
        """For a DELETE from this table; None where no TTL table refers to it."""
        table = original(table)
        if not isinstance(table, Table):  # a lightweight table(), a join: nothing refers to it
            return None
        return cls(table) if any(True for _ in restricting_children(table)) else None

    def prepare(self, context: Any, *, current: bool = False) -> int:
        """Delete the expired children of the rows that are about to be deleted."""
        criteria = context.invoked_statement._where_criteria
        if writes(*criteria):
            return 0  # which rows it deletes is known once it has run
        reclaimer = KeyReclaimer.of(context, current=current)
        deleted = 0
        for parameters in context.compiled_parameters:
            for child, key in restricting_children(self.table):
                doomed = filled(select(*key.referred_columns).where(*criteria), parameters)
                deleted += reclaimer.displace(child, in_subquery(key.columns, doomed))
        return deleted


@dataclass(frozen=True, slots=True)
class StampedBase:
    """Before an UPDATE of a joined subclass's table: the ``_ts`` of the rows at the root."""

    sub: SubBinding

    def prepare(self, context: Any, *, current: bool = False) -> int:
        """Reset ``_ts`` in the table at the root, of the rows that the UPDATE will match."""
        if current or context.execution_options.get(KEEP_LAST_MODIFIED) or base_row_written.get():
            return 0
        criteria = context.invoked_statement._where_criteria
        if writes(*criteria):
            return 0  # which rows it matches is known once it has run
        base, reclaimer = self.sub.base, KeyReclaimer.of(context)
        if not base.stamps:
            return 0
        own, roots = zip(*self.sub.keys, strict=True)
        for parameters in context.compiled_parameters:
            matched = filled(select(*own).where(*criteria), parameters)
            stamp = update(base.table).where(in_subquery(roots, matched))
            reclaimer.execute(stamp.values({base.last_modified: Stamp()}))
        return 0
