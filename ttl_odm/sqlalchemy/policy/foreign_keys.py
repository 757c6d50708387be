"""Foreign keys between tables with a policy: which of them keep a row from being deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, ColumnElement, Table, or_, true
from sqlalchemy.exc import NoReferenceError

from ttl_odm.sqlalchemy.policy.binding import Binding, binding_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ForeignKeyConstraint


class RestrictingKey:
    """A foreign key from a TTL table, without an ON DELETE that would make room by itself."""

    def __init__(self, constraint: ForeignKeyConstraint) -> None:
        self.columns: list[Column[Any]] = [element.parent for element in constraint.elements]
        self.referred_columns = [element.column for element in constraint.elements]

    def refers_to_another_row(self) -> ColumnElement[bool]:
        """The condition for rows that it doesn't make refer to themselves, which is no obstacle."""
        if self.columns[0].table is not self.referred_columns[0].table:
            return true()
        pairs = zip(self.columns, self.referred_columns, strict=True)
        return or_(*(own != referred for own, referred in pairs))


def restricting_children(table: Table) -> Iterator[tuple[Binding, RestrictingKey]]:
    """The TTL tables whose rows keep a row of this table from being deleted."""
    for other in list(table.metadata.tables.values()):
        binding = binding_of(other)
        if binding is None:
            continue
        for constraint in other.foreign_key_constraints:
            action = (constraint.ondelete or "").upper()
            if not action.startswith(("CASCADE", "SET")) and referred_table(constraint) is table:
                yield binding, RestrictingKey(constraint)


def referred_table(constraint: ForeignKeyConstraint) -> Table | None:
    """The table that a foreign key refers to; None where that isn't declared (yet)."""
    try:
        columns = [element.column for element in constraint.elements]
    except NoReferenceError:  # such a table holds no row of ours
        return None
    return columns[0].table
