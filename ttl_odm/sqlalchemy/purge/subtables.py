"""Joined inheritance: what sub-tables hold of a row goes with the row.

A sub-table refers to the table at its root, so its rows have to go first, and in the same
transaction. Where the foreign key says ON DELETE CASCADE the database sees to it; on SQLite only
if the connection was told to enforce foreign keys, which can't be relied on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.sqlalchemy.policy.binding import Binding, SubBinding, sub_binding_of
from ttl_odm.sqlalchemy.purge.statements import SweepDelete, is_one_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Column, Connection


def all_subtables(binding: Binding) -> list[SubBinding]:
    """The sub-tables of a table, the farthest first."""
    # A class is mapped after those that it inherits from, and its table is made with it.
    found = [
        sub
        for sub in map(sub_binding_of, binding.table.metadata.tables.values())
        if sub is not None and sub.base is binding
    ]
    return found[::-1]


def subtables(binding: Binding, dialect: str) -> list[SubBinding]:
    """Those of `all_subtables` that the database doesn't see to."""
    return [sub for sub in all_subtables(binding) if dialect == "sqlite" or not _cascades(sub)]


def _cascades(sub: SubBinding) -> bool:
    own = {column for column, _ in sub.keys}
    return any(
        (constraint.ondelete or "").upper() == "CASCADE"
        for constraint in sub.table.foreign_key_constraints
        if own.issuperset(constraint.columns)
    )


def delete_from_subtables(
    connection: Connection,
    subs: Iterable[SubBinding],
    columns: Sequence[Column[Any]],
    keys: Sequence[Sequence[Any]],
) -> None:
    """Delete what sub-tables hold of some rows, in the transaction that has locked these rows.

    Args:
        connection: The one with that transaction.
        subs: What `subtables` gave.
        columns: The primary key of the table at the root.
        keys: The values that the rows have there.
    """
    for sub in subs:
        own = {root: column for column, root in sub.keys}
        theirs = is_one_of([own[column] for column in columns], keys)
        connection.execute(SweepDelete(sub.table).where(theirs))
