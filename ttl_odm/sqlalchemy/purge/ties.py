"""`remove_together`: removes rows that refer to one another.

No row of a ring can be deleted first, and InnoDB, which checks row by row, deletes no row that
refers to itself. So references to rows that are deleted later are set to NULL before. Where they
can't be NULL, one DELETE has to remove all: SQLite and PostgreSQL check foreign keys at its end.

Hooks and archives get the rows as they were; events of the ORM see the NULL.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ttl_odm.sqlalchemy.policy.bindings import key_columns, sub_binding_of
from ttl_odm.sqlalchemy.policy.predicate import expired_in
from ttl_odm.sqlalchemy.policy.references import Change
from ttl_odm.sqlalchemy.policy.second_tables import BareCopy
from ttl_odm.sqlalchemy.purge.statements import SweepUpdate, chunks, is_one_of
from ttl_odm.sweeper import Hooks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, FromClause, Row, Table

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.references import Consequence
    from ttl_odm.sqlalchemy.purge.removal import Removal

    Keys = Sequence[Sequence[object]]


def keys_in(table: Table, binding: Binding, source: FromClause) -> list[ColumnElement[Any]]:
    """Return the columns with a row's key in `source`, an alias of its table or a sub-table."""
    sub = sub_binding_of(table)
    own = {} if sub is None else {root: column for column, root in sub.keys}
    return [source.c[own.get(key, key).key] for key in key_columns(binding.table)]


@dataclass(slots=True)
class Together:
    """Rows of one table that are removed with rows of others."""

    removal: Removal
    keys: Keys
    rows: list[Row[Any]] = field(init=False, default_factory=list)

    def choose(self, *, waits: bool) -> None:
        """Lock the expired rows among them."""
        removal = self.removal
        binding = removal.binding
        for keys in chunks(self.keys):
            condition = is_one_of(key_columns(binding.table), keys)
            locking = removal.reason == "displaced"
            expired = expired_in(removal.connection, binding, locking=locking)
            self.rows += removal.choose([condition, expired], waits=waits)

    def remove(self) -> int:
        """Delete the chosen rows, and return how many."""
        return sum(self.removal.delete(rows, judged=True) for rows in chunks(self.rows))


def remove_together(parts: Sequence[Together]) -> int:
    """Remove chosen rows, table by table, or none of them; return how many.

    Raises:
        IntegrityError: Another row refers to one of them.
    """
    connection = parts[0].removal.connection
    with connection.begin_nested():
        for part in parts:
            for rows in chunks(part.rows):
                part.removal.copy(rows)
        by_table = {part.removal.binding.table: part for part in parts}
        for consequence in ties(list(by_table), parts[0].removal.hooks):
            assert consequence.binding is not None  # noqa: S101 (see `ties`)
            _untie(connection, consequence, by_table)
        return sum(part.remove() for part in parts)


def ties(tables: Sequence[Table], hooks: Hooks | None = None) -> Iterator[Consequence]:
    """Yield the nullable references to rows deleted later, if the tables go in this order."""
    place = {table: number for number, table in enumerate(tables)}
    for table in tables:
        for consequence in Change(table).consequences(hooks or Hooks()):
            child = consequence.binding
            if (
                child is not None
                and place.get(child.table, -1) >= place[table]
                and _free_columns(consequence)
            ):
                yield consequence


def _free_columns(consequence: Consequence) -> list[Column[object]]:
    return [column for column in consequence.columns if column.nullable and not column.primary_key]


def _untie(
    connection: Connection, consequence: Consequence, parts: Mapping[Table, Together]
) -> None:
    """Set the references of rows to NULL.

    The statement names a bare table, which has no ``onupdate``.
    """
    assert consequence.binding is not None  # noqa: S101 (see `ties`)
    part, table = parts[consequence.binding.table], consequence.table
    bare = BareCopy.of(table)
    keys: list[Any] = [
        bare.c[str(column.name)] for column in keys_in(table, consequence.binding, table)
    ]
    nothing = {column.name: None for column in _free_columns(consequence)}
    for rows in chunks(part.rows):
        condition = is_one_of(keys, part.removal.keys(rows))
        connection.execute(SweepUpdate(bare).where(condition).values(nothing))
