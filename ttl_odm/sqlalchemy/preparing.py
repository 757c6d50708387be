"""What has to happen just before a compiled statement runs.

The gate decides it while it compiles a statement (`ttl_odm.sqlalchemy.gate`), the execution
context does it (`ttl_odm.sqlalchemy.context`). The keys of INSERT and UPDATE have a module of
their own, `ttl_odm.sqlalchemy.keys`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from sqlalchemy import Table, select, update

from ttl_odm.sqlalchemy.binding import base_row_written
from ttl_odm.sqlalchemy.deleting import filled, in_subquery
from ttl_odm.sqlalchemy.displacing import displace, restricting_children
from ttl_odm.sqlalchemy.options import KEEP_LAST_MODIFIED
from ttl_odm.sqlalchemy.stamping import Stamp

if TYPE_CHECKING:
    from ttl_odm.sqlalchemy.binding import SubBinding


class Preparation(Protocol):
    """Something to do before a statement."""

    def prepare(self, context: Any) -> None:
        """Do it, for the statement of this execution context."""
        ...


@dataclass(frozen=True, slots=True)
class DeletedReferences:
    """Before a DELETE: the expired rows that refer to its rows and would restrict it."""

    table: Table

    @classmethod
    def of(cls, table: Any) -> DeletedReferences | None:
        """For a DELETE from this table; None where no TTL table refers to it."""
        # The ORM annotates the Table; foreign keys know the original.
        table = getattr(table, "_Annotated__element", table)
        if not isinstance(table, Table):  # a lightweight table(), a join: nothing refers to it
            return None
        return cls(table) if any(True for _ in restricting_children(table)) else None

    def prepare(self, context: Any) -> None:
        """Delete the expired children of the rows that are about to be deleted."""
        criteria = context.invoked_statement._where_criteria
        for parameters in context.compiled_parameters:
            for child, key in restricting_children(self.table):
                doomed = filled(select(*key.referred_columns).where(*criteria), parameters)
                displace(
                    context.root_connection,
                    child,
                    in_subquery(key.columns, doomed),
                    above=(self.table,),
                )


@dataclass(frozen=True, slots=True)
class StampedBase:
    """Before an UPDATE of a joined subclass's table: the ``_ts`` of the rows at the root."""

    sub: SubBinding

    def prepare(self, context: Any) -> None:
        """Reset ``_ts`` in the table at the root, of the rows that the UPDATE will match."""
        if context.execution_options.get(KEEP_LAST_MODIFIED) or base_row_written.get():
            return
        base = self.sub.base
        own, roots = zip(*self.sub.keys, strict=True)
        criteria = context.invoked_statement._where_criteria
        for parameters in context.compiled_parameters:
            matched = filled(select(*own).where(*criteria), parameters)
            stamp = update(base.table).where(in_subquery(roots, matched))
            context.root_connection.execute(stamp.values({base.last_modified: Stamp()}))
