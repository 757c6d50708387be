"""Removing the rows that follow others before those, the deepest first.

In the transaction that removes the parents, which it has locked, or in some before it: no reader
sees followers of expired rows. Those rows stay expired, see `seal`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import column as bare_column

from ttl_odm.core.policy import TTL
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.follows import check_options, sealing_ttl
from ttl_odm.follows.sqlalchemy.following import Following
from ttl_odm.follows.sqlalchemy.ties import CHUNK, Tie, ties_to, untie
from ttl_odm.sqlalchemy.policy.bindings import key_columns
from ttl_odm.sqlalchemy.policy.predicate import Predicate
from ttl_odm.sqlalchemy.policy.references import all_rules_below, rules_below
from ttl_odm.sqlalchemy.policy.second_tables import BareTable
from ttl_odm.sqlalchemy.policy.sources import SourceColumns
from ttl_odm.sqlalchemy.purge.statements import (
    PurgeDelete,
    SweepSelect,
    SweepUpdate,
    in_subquery,
    is_one_of,
)
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection, Table

    from ttl_odm.sqlalchemy.policy.bindings import Binding

    Keys = Sequence[Sequence[Any]]

READ: Final = 100_000
"""Keys that are read at once, some 10 MB."""


def all_followings(binding: Binding) -> list[Following]:
    """What follows rows of a policy, at whatever depth."""
    below = all_rules_below(binding.table)
    return [rule for rule in below if isinstance(rule, Following)]


def seal(connection: Connection, binding: Binding, keys: Keys) -> None:
    """Give expired rows that inherit the default a ttl of their own, with which they stay expired.

    Otherwise a default that is raised after some of their followers were removed would bring them
    back with the others. Where rows can't have their own ttl, this does nothing.
    """
    own = binding.override
    if own is None:
        return
    table = binding.table
    # A table without `onupdate`, and the stamp is written as it is: MySQL's column may have one.
    stamp = binding.last_modified.name
    bare = BareTable(
        table.name,
        *(bare_column(column.name, column.type) for column in table.c),
        schema=table.schema,
    )
    predicate = Predicate(clock_of(connection.dialect), writing=True)
    columns = SourceColumns(bare.c[stamp], bare.c[own.name], None, None)
    rows = is_one_of([bare.c[str(key.name)] for key in key_columns(table)], keys)
    statement = SweepUpdate(bare).where(rows, predicate.inherits(binding, columns))
    never = binding.policy.never if isinstance(binding.policy, TTL) else ()
    connection.execute(statement.values({own.name: sealing_ttl(never), stamp: bare.c[stamp]}))


@dataclass(slots=True)
class FollowersRemoval:
    """The followers of rows, to be removed.

    Args:
        limit: How many rows may go; None for all.
    """

    connection: Connection
    limit: int | None = None
    removed: Counter[str] = field(default_factory=Counter)
    _ties: dict[Table, list[Tie]] = field(init=False, default_factory=dict)

    @property
    def is_done(self) -> bool:
        """Whether none is left; otherwise the limit was reached."""
        return self.limit is None or self.removed.total() < self.limit

    def of(self, binding: Binding, keys: Keys) -> None:
        """Remove those of rows of a policy, by primary keys."""
        self._below(binding.table, key_columns(binding.table), keys)

    def _below(self, table: Table, columns: Sequence[Any], keys: Keys) -> None:
        for following in rules_below(table):
            check_options(following.owner)
            links = following.links()
            for start in range(0, len(keys), CHUNK):
                some = keys[start : start + CHUNK]
                if list(columns) != links.theirs:
                    some = self._read(links.theirs, is_one_of(columns, some))
                if some:
                    self.of_table(following.table, is_one_of(links.own, some))

    def of_table(self, table: Table, condition: ColumnElement[bool]) -> None:
        """Remove rows of a table that follows another, after what follows them."""
        if self._go_at_once(table):
            self._all_of(table, condition)
            return
        columns = key_columns(table)
        for keys in self._batches(columns, condition):
            self._below(table, columns, keys)
            if not self.is_done:
                return
            for tie in self._ties_to(table):
                untie(self.connection, tie, table, keys)
            self._delete(table, is_one_of(columns, keys))

    def _go_at_once(self, table: Table) -> bool:
        """Whether one DELETE takes any number of rows, and one those of each table below.

        InnoDB might read the whole table for it, and lock what it reads: there, rows are found by
        an index and deleted by their keys. SQLite finds rows by one column of other rows only.
        """
        return (
            self.limit is None
            and self.connection.dialect.name not in MYSQL_FAMILY
            and not self._ties_to(table)
            and all(
                len(below.links().own) == 1 and self._go_at_once(below.table)
                for below in rules_below(table)
            )
        )

    def _all_of(self, table: Table, condition: ColumnElement[bool]) -> None:
        for following in rules_below(table):
            check_options(following.owner)
            links = following.links()
            rows = SweepSelect(*links.theirs).where(condition)
            self._all_of(following.table, in_subquery(links.own, rows))
        self._delete(table, condition)

    def _delete(self, table: Table, condition: ColumnElement[bool]) -> None:
        deleted = self.connection.execute(PurgeDelete(table).where(condition)).rowcount
        self.removed[table.fullname] += deleted

    def _ties_to(self, table: Table) -> list[Tie]:
        if table not in self._ties:
            self._ties[table] = list(ties_to(table))
        return self._ties[table]

    def _batches(self, columns: Sequence[Any], condition: ColumnElement[bool]) -> Iterator[Keys]:
        """Keys for one statement each.

        Many are read at once: each read walks over the index entries of all rows that this
        transaction has deleted.
        """
        while self.is_done:
            left = READ if self.limit is None else self.limit - self.removed.total()
            most = min(left, READ)
            keys = self._read(columns, condition, most)
            for start in range(0, len(keys), CHUNK):
                yield keys[start : start + CHUNK]
            if len(keys) < most:
                return

    def _read(
        self, columns: Sequence[Any], condition: ColumnElement[bool], limit: int | None = None
    ) -> Keys:
        """Lock rows and read of them, as they are now: not as a snapshot has them."""
        rows = SweepSelect(*columns).where(condition).limit(limit)
        if clock_of(self.connection.dialect).locks_rows:
            rows = rows.with_for_update()
        return self.connection.execute(rows).all()
