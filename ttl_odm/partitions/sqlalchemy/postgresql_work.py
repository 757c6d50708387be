"""Purging by partition on PostgreSQL, which has transactions of DDL.

A drop needs the table for itself for a moment, and statements that arrive then wait behind it. So
it waits for others for at most 50 ms, is tried again a few times after pauses in which nothing is
held, and then is left to the next sweep. That lock is the first one and the strongest: a weaker
one, which keeps writers waiting while readers go on, would have to be exchanged for it, and that
ends transactions that have read and then write as deadlocks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlalchemy import String, cast, select, text

from ttl_odm.partitions.dialects.ddl import HINDRANCES
from ttl_odm.partitions.dialects.postgresql import PostgreSQLPartitions
from ttl_odm.partitions.sqlalchemy.leaf_tables import leaf_table
from ttl_odm.partitions.sqlalchemy.work import HELD, MOVED, PartitionWork
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.purge.removal import count_rows
from ttl_odm.sqlalchemy.sweep.table_walk import ctid
from ttl_odm.sqlalchemy.sweep.transactions import limit_statements, reading, writing
from ttl_odm.sweeper import BatchResult, StoreError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sqlalchemy import ColumnElement, Table

    from ttl_odm.partitions.dialects.ddl import Cut, NewPartition
    from ttl_odm.partitions.sqlalchemy.catalogue import Leaf

_BROUGHT: Final = 100_000
"""The most rows that are moved from the partition for the rest into a new one."""

_BRINGING: Final = 10.0
"""Seconds that a statement that moves them may take."""


@dataclass(slots=True)
class PostgreSQLWork(PartitionWork):
    """One request on PostgreSQL."""

    @property
    def _ddl(self) -> PostgreSQLPartitions:
        ddl = self.leaves.ddl
        assert isinstance(ddl, PostgreSQLPartitions)  # noqa: S101 (the database's)
        return ddl

    def _within(self, leaf: Leaf) -> tuple[Table, list[ColumnElement[bool]]]:
        return leaf_table(self.binding.table, leaf.name), []

    def _changing(self) -> AbstractContextManager[None]:
        """Return a transaction that neither waits long for others nor keeps them waiting."""
        table, replicate = self.binding.table, self.request.replicate
        return writing(self.connection, table, HELD, judged=(self.binding,), replicate=replicate)

    # --- making ----------------------------------------------------------------------------------

    def _make(self, leaf: NewPartition) -> BatchResult:
        leaves, ddl = self.leaves, self._ddl
        rest, brings = leaves.rest, False
        if rest is not None:
            with reading(self.connection, self.request.timeout):
                within = ddl.within(self._cut, leaf)
                brought = self._count(ddl.quoted(*rest.name), within, _BROUGHT + 1)
            brings = brought > 0
            if brings and rest.hindrance is not None:
                reason = HINDRANCES[rest.hindrance]
                self.notes.append(
                    f"the partition {leaf.name} was not created, because {rest.name[1]} has rows "
                    f"that belong there and can't be moved: {reason}"
                )
                return BatchResult(0)
            if brought > _BROUGHT:
                self.notes.append(
                    f"the partition {leaf.name} was not created, because {rest.name[1]} has more "
                    f"than {_BROUGHT:,} rows that belong there. These rows are deleted in batches. "
                    "Create partitions earlier (ahead=)."
                )
                return BatchResult(0)
        source = ddl.quoted(*rest.name) if rest is not None and brings else None
        statements = ddl.make(self._cut, leaf, source, leaves.columns)
        # Others go on meanwhile, unless they want one of the moved rows.
        unnoticed = 2 if brings else 1
        with reading(self.connection, _BRINGING):
            self._run(*statements[:unnoticed])
            limit_statements(self.connection, HELD)
            self._run(*statements[unnoticed:])
        self.is_done = True
        return BatchResult(0)

    def _count(self, source: str, condition: str, limit: int) -> int:
        query = f"SELECT 1 FROM {source} WHERE {condition} LIMIT {limit}"  # noqa: S608 (ours)
        counted = f"SELECT count(*) FROM ({query}) AS found".replace(":", r"\:")  # noqa: S608
        return int(self.connection.execute(text(counted)).scalar_one())

    def _drop_dead(self, leaf: Leaf) -> BatchResult:
        """Drop a partition whose bounds say that all of its rows have expired."""
        rows = self._rows(leaf)
        with self._changing():
            if not self._enter(leaf, dead=True):
                return BatchResult(0)
            self._drop(leaf)
        return BatchResult(rows)

    def _drop_if_empty(self, leaf: Leaf, reason: str) -> BatchResult:
        """Drop a partition without rows; otherwise note the reason why batches sweep it."""
        table = leaf_table(self.binding.table, leaf.name)
        if leaf.hindrance in ("policy", "owner", "shape", "detaching"):
            return self._leave_to_batches(reason)  # we may not see all of its rows
        with reading(self.connection, self.request.timeout):
            is_empty = not count_rows(self.connection, table, limit=1)
        if not is_empty:
            return self._leave_to_batches(reason)
        with self._changing():
            if self._enter(leaf, hindered=True) and not count_rows(self.connection, table, limit=1):
                self._drop(leaf)
        return BatchResult(0)

    def _drop_unless_live(self, leaf: Leaf) -> BatchResult:
        """Drop a partition in which no row is live, or move the few live rows."""
        if self._is_scan_postponed(leaf):
            return BatchResult(0)
        table = leaf_table(self.binding.table, leaf.name)
        live, began = self._live(table), time.monotonic()
        with reading(self.connection, self.request.timeout):
            number = count_rows(self.connection, table, live, limit=MOVED + 1)
        is_quick = time.monotonic() - began < HELD
        moves = 0 < number <= MOVED and is_quick and self._may_move
        if not is_quick or (number and not moves):  # batches delete its expired rows
            return self._postpone_scan(leaf)
        rows = self._rows(leaf)
        with self._changing():
            if not self._enter(leaf):
                return BatchResult(0)
            places = self._places(table, live, MOVED + 1 if moves else 1)
            if len(places) > (MOVED if moves else 0):
                return BatchResult(0)
            if places:
                self._move(leaf, places)
            else:
                self._drop(leaf)
        return BatchResult(max(0, rows - len(places)))

    def _hand_over(self, leaf: Leaf, into: Cut) -> BatchResult:
        """Make a partition one of the archive's partitions."""
        ddl, edges = self._ddl, self.leaves.edges(leaf)
        rows = self._rows(leaf)
        quoted = ddl.quoted(*leaf.name)
        for statements in ddl.prepare_handover(self._cut, quoted, edges):
            with reading(self.connection, self.request.timeout):
                self._run(*statements)
        with self._changing():
            if not self._enter(leaf, dead=True):
                return BatchResult(0)
            self._run(*ddl.hand_over(self._cut, leaf.name, into, edges))
            self._forget(leaf)
        return BatchResult(rows, archived=rows)

    @property
    def _may_move(self) -> bool:
        leaves = self.leaves
        if leaves.partitioning.declared.survivors != "move":
            return False
        if leaves.has_insert_trigger:
            self.notes.append("survivors are not moved: triggers would treat them as new rows")
            return False
        return leaves.rest is not None and leaves.rest.hindrance is None

    def _places(self, table: Table, live: ColumnElement[bool], limit: int) -> list[str]:
        """Return the physical places of live rows."""
        chosen = select(cast(ctid, String())).select_from(table).where(live).limit(limit)
        return list(self.connection.scalars(chosen.options(include_expired())))

    def _enter(self, leaf: Leaf, *, dead: bool = False, hindered: bool = False) -> bool:
        """Lock the table; then return whether a partition is still as it was (see `_is_still`).

        The partition, the one for the rest, and all other tables that a drop locks are locked too,
        so that it doesn't wait for them later, while readers wait.
        """
        ddl, rest = self._ddl, self.leaves.rest
        names = [ddl.quoted(*part.name) for part in (leaf, rest) if part is not None]
        if leaf.hindrance == "reference":
            tables = {"leaf": names[0], "table": ddl.table(self._cut)}
            names += self.connection.scalars(text(ddl.related()), tables)
        self._run(ddl.enter(self._cut, *names))
        return self._is_still(leaf, dead=dead, hindered=hindered)

    def _drop(self, leaf: Leaf) -> None:
        ddl, is_referred_to = self._ddl, leaf.hindrance == "reference"
        name = ddl.quoted(*leaf.name)
        self._run(*ddl.drop(self._cut, name, is_referred_to=is_referred_to))
        self._forget(leaf)

    def _move(self, leaf: Leaf, places: list[str]) -> None:
        ddl = self._ddl
        array = "{" + ",".join(f'"{place}"' for place in places) + "}"
        statements = ddl.move(self._cut, ddl.quoted(*leaf.name), array, self.leaves.columns)
        *_, moved = self._run(*statements)
        if moved != len(places):  # a rule or a trigger interfered
            raise StoreError(
                f"{len(places)} rows should have been moved, but {moved} were: the "
                "move was rolled back."
            )
        self._forget(leaf)
