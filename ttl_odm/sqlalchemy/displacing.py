"""Deleting the expired rows that stand in the way of a write, in the write's transaction.

An expired row doesn't exist, so it may neither hold a key that somebody wants nor refer to a
row that somebody deletes. Whatever asks for it, this is the one place that does it: children
first, the predicate in the DELETE, and on InnoDB only after a look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, ColumnElement, Delete, Table, and_, or_, select, tuple_
from sqlalchemy.exc import IntegrityError

from ttl_odm.sqlalchemy.binding import Binding, binding_of
from ttl_odm.sqlalchemy.clock import MYSQL_FAMILY, clock_of
from ttl_odm.sqlalchemy.options import include_expired
from ttl_odm.sqlalchemy.predicate import Verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection, ForeignKeyConstraint


class SweepDelete(Delete):
    """A DELETE of expired rows; the gate lets it through as it is.

    Being a class of its own, it has cache keys of its own.
    """

    inherit_cache = True


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


def in_subquery(columns: Sequence[Column[Any]], rows: Any) -> ColumnElement[bool]:
    """Whether columns have one of the values that a SELECT finds."""
    # The SELECT is wrapped since MySQL may not read a table that the same statement deletes from.
    wrapped = rows.subquery()
    wanted = select(*wrapped.c)
    return (columns[0] if len(columns) == 1 else tuple_(*columns)).in_(wanted)


def is_one_of(columns: Sequence[Column[Any]], keys: Sequence[Sequence[Any]]) -> ColumnElement[bool]:
    """The condition for the rows with these keys."""
    if len(columns) == 1:
        return columns[0].in_([value for (value,) in keys])
    # SQLite reads the whole table for (a, b) IN (VALUES ...).
    return or_(
        *(and_(*(key == value for key, value in zip(columns, each, strict=True))) for each in keys)
    )


def _refers_to(element: Any, table: Table) -> bool:
    try:
        return element.column.table is table
    except Exception:  # noqa: BLE001 - a table that isn't declared (yet) refers to nothing here
        return False


def _any(connection: Connection, table: Table, criterion: ColumnElement[bool]) -> bool:
    found = select(next(iter(table.c))).where(criterion).limit(1).options(include_expired())
    return connection.execute(found).first() is not None
