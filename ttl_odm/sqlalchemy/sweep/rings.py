"""`Rings`: expired rows that stay only because expired rows refer to them.

These are rows in a ring, rows that depend on them, and long chains. They are removed together with
all rows that refer to them, at any depth, if all of these have expired and are free, and no other
row refers to them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from ttl_odm.sqlalchemy.policy.bindings import Binding, key_columns
from ttl_odm.sqlalchemy.policy.predicate import expired_in, include_expired
from ttl_odm.sqlalchemy.policy.references import Change
from ttl_odm.sqlalchemy.purge.errors import is_restricted
from ttl_odm.sqlalchemy.purge.removal import Removal
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, chunks, is_one_of
from ttl_odm.sqlalchemy.purge.ties import Together, keys_in, remove_together

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, Select, Table

    from ttl_odm.sqlalchemy.policy.references import Consequence
    from ttl_odm.sqlalchemy.sweep.foreign_keys import Reference, ReferringKeys
    from ttl_odm.sweeper import Hooks

    Key = tuple[object, ...]

_MOST: Final = 5_000
"""How many rows are removed together; larger groups stay."""

Node = tuple["Table", "tuple[object, ...]"]
"""A row: the table of its policy, and its primary key."""


@dataclass(slots=True)
class Rings:
    """Rows of a batch that stayed, and all rows that refer to them."""

    connection: Connection
    keys: ReferringKeys
    hooks: Hooks
    _bindings: dict[Table, Binding] = field(default_factory=dict)
    """In the order in which rows were found to refer to others."""
    _nodes: set[Node] = field(default_factory=set)
    _parents: dict[Node, set[Node]] = field(default_factory=lambda: defaultdict(set))
    """The rows that a row refers to."""
    _held: set[Node] = field(default_factory=set)
    """Rows that have to stay."""

    def remove(self, binding: Binding, keys: Iterable[Key]) -> list[tuple[Removal, int]]:
        """Remove the rows that can be removed, with those that refer to them; return how many."""
        self._walk(binding, {(binding.table, tuple(key)) for key in keys})
        parts = [
            Together(Removal(self.connection, policy, self.hooks), _keys_of(table, self._nodes))
            for table, policy in reversed(self._bindings.items())
        ]
        for part in parts:
            part.choose(waits=False)
        self._hold(parts)
        free = self._free()
        for part in parts:
            table = part.removal.binding.table
            pairs = zip(part.rows, part.removal.keys(part.rows), strict=True)
            part.rows = [row for row, key in pairs if (table, key) in free]
        parts = [part for part in parts if part.rows]
        try:
            if parts:
                remove_together(parts)
        except DBAPIError as error:
            if not is_restricted(error):
                raise
            return []  # a reference that can't be NULL, or that was written a moment ago
        return [(part.removal, len(part.rows)) for part in parts]

    def _walk(self, binding: Binding, rows: set[Node]) -> None:
        """Find the rows that refer to rows, at any depth."""
        self._bindings[binding.table] = binding
        while rows and len(self._nodes) <= _MOST:
            self._nodes |= rows
            below: set[Node] = set()
            for table, policy in list(self._bindings.items()):
                keys = _keys_of(table, rows)
                for consequence in _restricting(policy, self.hooks) if keys else ():
                    for chunk in chunks(keys):
                        below |= self._children(policy, consequence, chunk)
            rows = below - self._nodes
        self._held |= rows  # too many
        self._nodes |= rows

    def _children(
        self, binding: Binding, consequence: Consequence, keys: Sequence[Key]
    ) -> set[Node]:
        """Return the expired rows that refer to rows; rows to which live ones refer are held."""
        child, width = consequence.binding, len(key_columns(binding.table))
        assert child is not None  # noqa: S101 (see `_restricting`)
        pairs = self.connection.execute(_referring(self.connection, binding, consequence, keys))
        nodes = set()
        for *both, is_expired in pairs:
            parent: Node = (binding.table, tuple(both[:width]))
            if not is_expired:
                self._held.add(parent)
                continue
            node: Node = (child.table, tuple(both[width:]))
            self._parents[node].add(parent)
            nodes.add(node)
        if nodes and child.table is not binding.table:
            self._bindings.pop(child.table, None)
            self._bindings[child.table] = child
        return nodes

    def _hold(self, parts: Sequence[Together]) -> None:
        """Find the rows that are locked, or to which other rows refer."""
        walked: set[Reference] = {
            (
                self.keys.place(self.connection, consequence.table),
                frozenset(str(column.name) for column in consequence.columns),
            )
            for binding in self._bindings.values()
            for consequence in _restricting(binding, self.hooks)
        }
        for part in parts:
            binding, locked = part.removal.binding, part.removal.keys(part.rows)
            table = binding.table
            free = set(locked)
            self._held |= {node for node in self._nodes if node[0] is table and node[1] not in free}
            blocked = self.keys.blocks(self.connection, binding, but=walked)
            if blocked is None:
                continue
            columns = key_columns(table)
            for keys in chunks(locked):
                kept = SweepSelect(*columns).where(is_one_of(columns, keys), blocked)
                self._held |= {(table, tuple(key)) for key in self.connection.execute(kept)}

    def _free(self) -> set[Node]:
        """Return the rows that nothing keeps; the rows that a held row refers to are held too."""
        held, waiting = set(self._held), list(self._held)
        while waiting:
            above = self._parents[waiting.pop()] - held
            held |= above
            waiting += above
        return self._nodes - held


def _keys_of(table: Table, nodes: Iterable[Node]) -> list[Key]:
    return [key for other, key in nodes if other is table]


def _restricting(binding: Binding, hooks: Hooks) -> list[Consequence]:
    """Return the foreign keys of tables with a policy that keep rows."""
    consequences = Change(binding.table).consequences(hooks)
    return [
        consequence
        for consequence in consequences
        if consequence.binding is not None and consequence.is_certain
    ]


def may_have_rings(binding: Binding, hooks: Hooks) -> bool:
    """Return whether expired rows can keep rows of a table."""
    return bool(_restricting(binding, hooks))


def _referring(
    connection: Connection, binding: Binding, consequence: Consequence, keys: Sequence[Key]
) -> Select[Any]:
    """Return the SELECT of rows' keys, the keys that refer to them, and whether those expired."""
    child = consequence.binding
    assert child is not None  # noqa: S101 (see `_restricting`)
    referred, refers = consequence.referred[0].table, consequence.table
    parent, part = referred.alias(), refers.alias()
    rows = part if refers is child.table else child.table.alias()
    above, below = keys_in(referred, binding, parent), keys_in(child.table, child, rows)
    pairs = zip(consequence.columns, consequence.referred, strict=True)
    conditions = [part.c[own.key] == parent.c[column.key] for own, column in pairs]
    if rows is not part:
        joins = zip(keys_in(refers, child, part), below, strict=True)
        conditions += [own == root for own, root in joins]
    expired = expired_in(connection, child, rows)
    chosen = select(*above, *below, expired).where(is_one_of(above, keys), *conditions)
    return chosen.options(include_expired())
