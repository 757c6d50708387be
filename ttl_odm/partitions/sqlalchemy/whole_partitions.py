"""Purging by partition: one is made, dropped, handed over to the archive, or emptied by a move.

Each request does at most one of these, in a short transaction of its own, so that whatever is
looked at between two batches is looked at here too. What is decided before that transaction is
decided in it again, by the database's clock and the catalogue, once it has the table for itself:

- A partition that is dead by its bounds goes without a look at its rows.
- One that is over, but may hold rows that live longer, is scanned for one, at first with no lock.
  Only if there is none, and the scan took a quarter of a second at most, it is scanned again under
  the lock. Batches make it smaller otherwise, and there is another scan later.
- Where few rows live on, they may be moved to the partition for the rest, in the transaction that
  drops theirs.

A drop needs the table for itself for a moment, and statements that arrive then wait behind it. So
it waits for others for 50 ms, tries again a few times after a pause in which nothing is held, and
is left to the next sweep then. That lock is the first one and the strongest: a weaker one, for
which writers wait while readers go on, would have to be exchanged for it, and that ends
transactions that have read and then write as deadlocks.

That is PostgreSQL's way; what is the same everywhere is in `partition_work`, and how MariaDB and
MySQL do it in `locked_partitions`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sqlalchemy import String, cast, select, text
from sqlalchemy.exc import DBAPIError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.partitions.dialects.ddl import HINDRANCES, Range
from ttl_odm.partitions.dialects.postgresql import PostgreSQLPartitions
from ttl_odm.partitions.facts import partitions
from ttl_odm.partitions.sqlalchemy.leaf_tables import leaf_table
from ttl_odm.partitions.sqlalchemy.locked_partitions import LockingWork
from ttl_odm.partitions.sqlalchemy.work import (
    HELD,
    MOVED,
    InUseError,
    PartitionWork,
    next_place,
)
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.purge.errors import is_away
from ttl_odm.sqlalchemy.purge.statements import count_rows
from ttl_odm.sqlalchemy.sweep.table_walk import ctid
from ttl_odm.sqlalchemy.sweep.transactions import (
    limit_statements,
    prepared,
    reading,
    unlogged,
    writing,
)
from ttl_odm.sweeper import BatchResult, StoreError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sqlalchemy import ColumnElement, Connection, Table

    from ttl_odm.partitions.dialects.ddl import Cut
    from ttl_odm.partitions.sqlalchemy.catalogue import Findings, Leaf
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sweeper import BatchRequest

BROUGHT: Final = 100_000
"""Rows that are brought from the partition for the rest into one that is made for them."""

BRINGING: Final = 10.0
"""Seconds that a statement of that may take."""


def purge_partition(
    connection: Connection, binding: Binding, request: BatchRequest, findings: Findings
) -> BatchResult:
    """Make a partition, or purge one, by a connection fresh from the pool."""
    if request.resume is None:
        table = binding.table.fullname
        findings.kept = {(of, leaf) for of, leaf in findings.kept if of != table}
    with prepared(connection, request.timeout):
        place = next_place(connection, binding, request)
        if place is None:
            return BatchResult(0)
        if not place.steps:
            return BatchResult(0, facts=partitions(place.counted))
        of_family = LockingWork if connection.dialect.name in MYSQL_FAMILY else _PostgreSQLWork
        work: PartitionWork = of_family(connection, binding, request, findings, place.leaves)
        step = place.steps[0]
        try:
            # Replicas that didn't hear of a new one would have no place for rows of it.
            hears = request.replicate or isinstance(step, Range)
            with unlogged(connection, replicate=hears):
                result = work.take(step)
        except (DBAPIError, InUseError) as error:
            if isinstance(error, DBAPIError) and is_away(error):
                raise
            return replace(work.failed(step, place, error), facts=partitions(place.counted))
        if work.is_done:
            place = place.done()
        return replace(result, resume=place.rest, notes=work.notes, facts=partitions(place.counted))


@dataclass(slots=True)
class _PostgreSQLWork(PartitionWork):
    """One request on PostgreSQL, which has transactions of DDL."""

    @property
    def _ddl(self) -> PostgreSQLPartitions:
        ddl = self.leaves.ddl
        assert isinstance(ddl, PostgreSQLPartitions)  # noqa: S101 (the database's)
        return ddl

    def _within(self, leaf: Leaf) -> tuple[Table, list[ColumnElement[bool]]]:
        return leaf_table(self.binding.table, leaf.name), []

    def _changing(self) -> AbstractContextManager[None]:
        """A transaction that waits briefly for others, and keeps nobody waiting for long."""
        table, replicate = self.binding.table, self.request.replicate
        return writing(self.connection, table, HELD, judged=(self.binding,), replicate=replicate)

    # --- making ----------------------------------------------------------------------------------

    def _make(self, leaf: Range) -> BatchResult:
        leaves, ddl = self.leaves, self._ddl
        rest, brings = leaves.rest, False
        if rest is not None:
            with reading(self.connection, self.request.timeout):
                within = ddl.within(self._cut, leaf)
                brought = self._count(ddl.quoted(*rest.name), within, BROUGHT + 1)
            brings = brought > 0
            if brings and rest.hindrance is not None:
                reason = HINDRANCES[rest.hindrance]
                self.notes.append(
                    f"the partition {leaf.name} was not created, because {rest.name[1]} has rows "
                    f"that belong there and can't be moved: {reason}"
                )
                return BatchResult(0)
            if brought > BROUGHT:
                self.notes.append(
                    f"the partition {leaf.name} was not created, because {rest.name[1]} has more "
                    f"than {BROUGHT:,} rows that belong there. These rows are deleted in batches. "
                    "Create partitions earlier (ahead=)."
                )
                return BatchResult(0)
        source = ddl.quoted(*rest.name) if rest is not None and brings else None
        statements = ddl.make(self._cut, leaf, source, leaves.columns)
        # The first two: others go on meanwhile, except for those who want one of the rows moved.
        unheard = 2 if brings else 1
        with reading(self.connection, BRINGING):
            self._run(*statements[:unheard])
            limit_statements(self.connection, HELD)
            self._run(*statements[unheard:])
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
        """Drop a partition that has no row which anybody would want to hear of."""
        table = leaf_table(self.binding.table, leaf.name)
        if leaf.hindrance in ("policy", "owner", "shape", "detaching"):
            return self._left_to_batches(reason)  # nobody knows what is in it
        with reading(self.connection, self.request.timeout):
            is_empty = not count_rows(self.connection, table, limit=1)
        if not is_empty:
            return self._left_to_batches(reason)
        with self._changing():
            if self._enter(leaf, hindered=True) and not count_rows(self.connection, table, limit=1):
                self._drop(leaf)
        return BatchResult(0)

    def _look(self, leaf: Leaf) -> BatchResult:
        """Drop a partition in which no row lives on, or move the few that do."""
        if self._is_looked_through_later(leaf):
            return BatchResult(0)
        table = leaf_table(self.binding.table, leaf.name)
        live, began = self._live(table), time.monotonic()
        with reading(self.connection, self.request.timeout):
            number = count_rows(self.connection, table, live, limit=MOVED + 1)
        is_quick = time.monotonic() - began < HELD
        moves = 0 < number <= MOVED and is_quick and self._may_move
        if not is_quick or (number and not moves):  # what has expired goes by batches
            return self._look_later(leaf)
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
        """Make a partition one of the archive's."""
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
        if leaves.is_heard:
            self.notes.append("survivors are not moved: triggers would treat them as new rows")
            return False
        return leaves.rest is not None and leaves.rest.hindrance is None

    def _places(self, table: Table, live: ColumnElement[bool], limit: int) -> list[str]:
        chosen = select(cast(ctid, String())).select_from(table).where(live).limit(limit)
        return list(self.connection.scalars(chosen.options(include_expired())))

    def _enter(self, leaf: Leaf, *, dead: bool = False, hindered: bool = False) -> bool:
        """Keep others off the table; then see whether all is as it was a moment ago.

        Also off the partition, the one for the rest, and all else that a drop locks, so that
        nothing is waited for later, while readers wait.
        """
        ddl, rest = self._ddl, self.leaves.rest
        names = [ddl.quoted(*one.name) for one in (leaf, rest) if one is not None]
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
        if moved != len(places):  # a rule or a trigger has a say that nobody knew of
            raise StoreError(
                f"{len(places)} rows should have been moved, but {moved} were: the "
                "move was rolled back."
            )
        self._forget(leaf)
