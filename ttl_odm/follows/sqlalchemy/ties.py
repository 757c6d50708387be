"""What rows of a family refer to each other by, besides what they follow by.

A post that replies to another, a thread's link to its last message: such rows may form trees and
rings, of which none can go first. They have all expired, so before a row goes what refers to it
becomes NULL. Where it can't be NULL, one DELETE has to take all of them, which SQLite and
PostgreSQL allow as long as they are in one chunk; ``ttl-odm check`` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import column as bare_column
from sqlalchemy import select

from ttl_odm.follows.sqlalchemy.following import following_of
from ttl_odm.sqlalchemy.policy.bindings import binding_of, key_columns
from ttl_odm.sqlalchemy.policy.predicate import INCLUDE_EXPIRED
from ttl_odm.sqlalchemy.policy.references import root_of
from ttl_odm.sqlalchemy.policy.second_tables import BareTable
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, SweepUpdate, is_one_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Column, Connection, ForeignKeyConstraint, Table

    Keys = Sequence[Sequence[Any]]


CHUNK: Final = 500
"""Keys in one statement: well below every database's limit of bound values."""


class Tie(NamedTuple):
    """A foreign key by which rows of a family refer to rows of one of its tables."""

    table: Table
    columns: tuple[Column[Any], ...]
    referred: tuple[Column[Any], ...]

    @property
    def free(self) -> list[Column[Any]]:
        """Those of its columns that can be NULL; with one of them, a row refers to nothing."""
        return [column for column in self.columns if column.nullable and not column.primary_key]


def ties_to(table: Table) -> Iterator[Tie]:
    """The foreign keys of a family to one of its tables that would keep rows there."""
    root = root_of(table)
    for other in tuple(table.metadata.tables.values()):
        if root_of(other) is not root:
            continue
        for key in other.foreign_key_constraints:
            if key.referred_table is table and _restricts(key) and not _is_followed(key):
                pairs = [(element.parent, element.column) for element in key.elements]
                columns, referred = zip(*pairs, strict=True)
                yield Tie(other, columns, referred)


def untie(connection: Connection, tie: Tie, table: Table, keys: Keys) -> None:
    """Let expired rows no longer refer to rows of a table, by the keys of these."""
    own = key_columns(table)
    if tuple(own) != tie.referred:
        found = connection.execute(SweepSelect(*tie.referred).where(is_one_of(own, keys)))
        keys = [tuple(row) for row in found if None not in tuple(row)]
    if not (keys and tie.free):
        return
    columns = key_columns(tie.table)
    refers = is_one_of(tie.columns, keys)
    rows = set(map(tuple, connection.execute(SweepSelect(*columns).where(refers))))
    if not rows:
        return
    live: Any = select(*columns).where(refers).execution_options(**{INCLUDE_EXPIRED: False})
    expired = list(rows.difference(map(tuple, connection.execute(live))))
    # By a table that SQLAlchemy knows nothing of, which has no ``onupdate``.
    bare = BareTable(
        tie.table.name,
        *(bare_column(column.name, column.type) for column in tie.table.c),
        schema=tie.table.schema,
    )
    nothing: dict[str, Any] = {column.name: None for column in tie.free}
    binding = binding_of(tie.table)
    if binding is not None:
        stamp = binding.last_modified.name
        nothing[stamp] = bare.c[stamp]  # MySQL's column may set itself
    for start in range(0, len(expired), CHUNK):
        some = expired[start : start + CHUNK]
        theirs = is_one_of([bare.c[str(column.name)] for column in columns], some)
        connection.execute(SweepUpdate(bare).where(theirs).values(nothing))


def _restricts(key: ForeignKeyConstraint) -> bool:
    return (key.ondelete or "NO ACTION").upper() in {"NO ACTION", "RESTRICT"}


def _is_followed(key: ForeignKeyConstraint) -> bool:
    """Whether it is the one by which rows follow, which go first."""
    following = following_of(key.table)
    return following is not None and {element.parent for element in key.elements} == set(
        following.links().own
    )
