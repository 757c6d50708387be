"""Deleting the expired rows that stand in the way of a write, in the write's transaction.

An expired row doesn't exist, so it may neither hold a key that somebody wants nor refer to a
row that somebody deletes. Whatever asks for it, this is the one place that does it: children
first, the predicate in the DELETE, and on InnoDB only after a look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, ColumnElement, Table, and_, select
from sqlalchemy.exc import IntegrityError, NoReferenceError

from ttl_odm.sqlalchemy.binding import Binding, binding_of
from ttl_odm.sqlalchemy.clock import MYSQL_FAMILY, clock_of
from ttl_odm.sqlalchemy.deleting import SweepDelete, in_subquery
from ttl_odm.sqlalchemy.joined import delete_from_subtables, subtables
from ttl_odm.sqlalchemy.options import include_expired
from ttl_odm.sqlalchemy.predicate import Verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, ForeignKeyConstraint


def displace(
    connection: Connection,
    binding: Binding,
    criterion: ColumnElement[bool],
    *,
    above: tuple[Table, ...] = (),
) -> None:
    """Delete the expired rows of a table that a condition finds, and expired rows below them.

    Args:
        connection: the one that the write is about to use.
        binding: the table's policy.
        criterion: which of its expired rows are in the way.
        above: tables whose rows are being displaced, on the way down to this one.

    Raises:
        IntegrityError: a live row refers to one of them, and the foreign key restricts it.
    """
    table = binding.table
    verdicts = Verdicts(clock_of(connection.dialect), writing=True)
    doomed = and_(verdicts.expired(binding, binding.columns_of(table)), criterion)
    children = list(restricting_children(table))
    looks_first = bool(children) or connection.dialect.name in MYSQL_FAMILY
    if looks_first and not _any(connection, table, doomed):
        # On InnoDB a DELETE that finds nothing locks the gap where the key would be, and two
        # such sessions that then insert deadlock. A plain read locks nothing.
        return
    for child, key in children:
        if child.table not in above:
            referred = select(*key.referred_columns).where(doomed)
            displace(
                connection,
                child,
                in_subquery(key.columns, referred.options(include_expired())),
                above=(*above, table),
            )
    subs = subtables(binding, connection.dialect.name)
    if subs:
        columns = list(table.primary_key)
        rows = select(*columns).where(doomed).with_for_update().options(include_expired())
        keys = [tuple(row) for row in connection.execute(rows)]
        if keys:
            delete_from_subtables(connection, subs, columns, keys)
    try:
        connection.execute(SweepDelete(table).where(doomed))
    except IntegrityError as error:
        error.add_detail(
            f"An expired row of {table.fullname!r} is in the way of this statement and can't be "
            "deleted, because another row refers to it. Let that foreign key cascade "
            "(ON DELETE CASCADE or SET NULL), or delete the referring row first."
        )
        raise


class ReferringKey:
    """A foreign key from a TTL table, without an ON DELETE that would make room by itself."""

    def __init__(self, constraint: ForeignKeyConstraint) -> None:
        """Take the constraint apart."""
        self.columns: list[Column[Any]] = [element.parent for element in constraint.elements]
        self.referred_columns: list[Column[Any]] = [e.column for e in constraint.elements]


def restricting_children(table: Table) -> Iterator[tuple[Binding, ReferringKey]]:
    """The TTL tables whose rows keep a row of this table from being deleted."""
    for other in table.metadata.tables.values():
        binding = binding_of(other)
        if binding is None:
            continue
        for constraint in other.foreign_key_constraints:
            action = (constraint.ondelete or "").upper()
            if action.startswith(("CASCADE", "SET")):
                continue
            if all(_refers_to(element, table) for element in constraint.elements):
                yield binding, ReferringKey(constraint)


def _refers_to(element: Any, table: Table) -> bool:
    try:
        return element.column.table is table
    except NoReferenceError:  # a table that isn't declared (yet): it holds no row of ours
        return False


def _any(connection: Connection, table: Table, criterion: ColumnElement[bool]) -> bool:
    found = select(next(iter(table.c))).where(criterion).limit(1).options(include_expired())
    return connection.execute(found).first() is not None
