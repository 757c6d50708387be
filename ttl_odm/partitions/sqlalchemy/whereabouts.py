"""`Partitioned`: everything that a sweep asks of a table in partitions, declared so or not.

A step with whole partitions is chosen here, and done by the work of the database's family.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import literal_column
from sqlalchemy.exc import DBAPIError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.partitions.dialects import partition_ddl
from ttl_odm.partitions.dialects.ddl import HINDRANCES, NewPartition
from ttl_odm.partitions.facts import PARTITIONS, partitions
from ttl_odm.partitions.sqlalchemy.catalogue import archive_cut, read_leaves, reason_against
from ttl_odm.partitions.sqlalchemy.layout import partitioning_on
from ttl_odm.partitions.sqlalchemy.leaf_tables import LeafPosition, divide_leaves, next_in_leaves
from ttl_odm.partitions.sqlalchemy.mysql_work import MySQLWork
from ttl_odm.partitions.sqlalchemy.postgresql_work import PostgreSQLWork
from ttl_odm.partitions.sqlalchemy.work import (
    FRESH,
    InUseError,
    Memory,
    PartitionWork,
    progress_of,
)
from ttl_odm.sqlalchemy.purge.errors import is_away
from ttl_odm.sqlalchemy.purge.removal import mode_of
from ttl_odm.sqlalchemy.sweep.transactions import prepared, reading, unlogged
from ttl_odm.sqlalchemy.sweep.whereabouts import Further, Whereabouts
from ttl_odm.sweeper import BatchResult

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Table

    from ttl_odm.partitions.sqlalchemy.catalogue import Leaves, Name
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.rules import Checked
    from ttl_odm.sqlalchemy.purge.removal import KeyRange
    from ttl_odm.sqlalchemy.sweep.whereabouts import Find, Marks, Stretch
    from ttl_odm.sweeper import BatchRequest, Fact
    from ttl_odm.sweeper.findings import Finding


def whereabouts(binding: Binding) -> Whereabouts:
    """Return where the rows of a table are."""
    return Partitioned(binding)


@dataclass(slots=True)
class Partitioned(Whereabouts):
    """A table in partitions, as the database has them and perhaps a model declares them."""

    _memory: Memory = field(init=False, default_factory=Memory)

    def due(self, connection: Connection, *, is_on: bool) -> Further:
        """Return what is to do; rows need new partitions even while the TTL is off."""
        with prepared(connection), reading(connection):
            leaves = read_leaves(connection, self.binding)
        if leaves is None:
            return Further()
        counted = leaves.counted
        has_work = counted.missing or (is_on and counted.over)
        return Further(
            (PARTITIONS,) if has_work else (), partitions(counted), self._not_waiting(leaves)
        )

    def _not_waiting(self, leaves: Leaves) -> list[ColumnElement[bool]]:
        """Return the condition for rows that don't wait for a partition; none if no row waits."""
        start = leaves.waiting_from()
        if start is None or reason_against(self.binding, mode_of(self.binding).hooks):
            return []
        column = leaves.partitioning.column
        return [column < literal_column(leaves.ddl.bound(leaves.cut, start))]

    def purge(self, connection: Connection, request: BatchRequest) -> BatchResult:
        """Make a partition, or purge one, by a connection fresh from the pool."""
        if request.resume is None:
            self._memory.unchangeable = set()
        with prepared(connection, request.timeout):
            progress = progress_of(connection, self.binding, request)
            if progress is None:
                return BatchResult(0)
            if not progress.steps:
                return BatchResult(0, facts=partitions(progress.counted))
            family = MySQLWork if connection.dialect.name in MYSQL_FAMILY else PostgreSQLWork
            work: PartitionWork = family(
                connection, self.binding, request, self._memory, progress.leaves
            )
            step = progress.steps[0]
            try:
                # A new partition is always replicated: replicas would have no place for its rows.
                is_replicated = request.replicate or isinstance(step, NewPartition)
                with unlogged(connection, replicate=is_replicated):
                    result = work.take(step)
            except (DBAPIError, InUseError) as error:
                if isinstance(error, DBAPIError) and is_away(error):
                    raise
                result = work.failed(step, progress, error)
                return replace(result, facts=partitions(progress.counted))
            if work.is_done:
                progress = progress.done()
            facts = partitions(progress.counted)
            return replace(result, resume=progress.rest, notes=work.notes, facts=facts)

    def next_range(
        self, connection: Connection, request: BatchRequest, find: Find
    ) -> tuple[Table, KeyRange | None]:
        """Search one partition after the other, except those that will go whole soon.

        If partitions aren't tables, a condition leaves out the rows of those partitions.
        """
        table, resume, until = self.binding.table, request.resume, request.until
        if connection.dialect.name != "postgresql":
            skipped = self._skipped(connection, request)
            outside = partial(skipped[0].outside, skipped[1]) if skipped else None
            return table, find(table, (resume, until), outside)
        if isinstance(resume, LeafPosition | None):
            skipped = self._skipped(connection, request)
            stretch: Stretch = resume, until
            leaf = next_in_leaves(connection, table, stretch, find, skipped[1] if skipped else ())
            if leaf is not None:
                return leaf
        return table, find(table, (resume, until))

    def _skipped(
        self, connection: Connection, request: BatchRequest
    ) -> tuple[Leaves, frozenset[Name]] | None:
        """Return the partitions whose rows a batch skips, since they go whole soon; or None."""
        binding = self.binding
        if binding.layout is None or reason_against(binding, request.hooks) is not None:
            return None
        moment = time.monotonic()
        read, leaves = self._memory.read
        if request.resume is None or moment - read >= FRESH:  # not for each batch of a part
            leaves = self._leaves_with_waiting_rows(connection)
            self._memory.read = moment, leaves
        if leaves is None:
            return None
        names = leaves.skipped_by(request.part, has_own=binding.override is not None)
        return leaves, frozenset(names) - self._memory.unchangeable

    def _leaves_with_waiting_rows(self, connection: Connection) -> Leaves | None:
        """Return the partitions for which rows may wait; None if an archive takes single rows."""
        leaves, copy = read_leaves(connection, self.binding), mode_of(self.binding).copy
        if leaves is None or copy is None:
            return leaves
        return None if isinstance(archive_cut(connection, leaves, copy), str) else leaves

    def divide(
        self, connection: Connection, request: BatchRequest, shares: int, marks: Marks
    ) -> Sequence[object]:
        """Find marks in the next partition, or between partitions."""
        table, resume = self.binding.table, request.resume
        until: Any = request.until
        if isinstance(resume, LeafPosition):
            return divide_leaves(connection, table, (resume, until), shares, marks)
        return marks(table, (resume, until))

    def facts(self, connection: Connection) -> Mapping[str, Fact]:
        """How many partitions there are, and what has to be done with them."""
        leaves = read_leaves(connection, self.binding)
        return partitions(None if leaves is None else leaves.counted)

    def check(self, checked: Checked) -> Iterator[Finding]:
        """Check that the table is cut as it is declared, and that its partitions can be dropped."""
        partitioning, dialect = partitioning_on(checked.binding), checked.dialect.name
        if partitioning is None or partition_ddl(dialect) is None:
            return
        column, span = partitioning.column.name, partitioning.declared.span
        leaves = read_leaves(checked.connection, checked.binding)
        if leaves is None:
            by = "RANGE COLUMNS" if dialect in MYSQL_FAMILY else "RANGE"
            yield checked.warning(
                "not-partitioned",
                f"it is declared with Partitions({span!r}), but isn't partitioned by {column} in "
                "the database: its rows are deleted in batches",
                f"recreate it with PARTITION BY {by} ({column}), or remove __ttl_partition__",
            )
            return
        missing = [leaf.name for leaf in leaves.missing()]
        if missing:
            yield checked.warning(
                "missing-partitions",
                f"{len(missing):,} of its partitions don't exist yet, the first is {missing[0]}: "
                "rows for it go to the default partition, or are rejected",
                f"ttl-odm sweep --model {checked.model}",
            )
        for hindrance in sorted({leaf.hindrance for leaf in leaves.every if leaf.hindrance}):
            yield checked.warning(
                "partitions-stay",
                "its partitions are not dropped, but rows are deleted in batches: "
                f"{HINDRANCES[hindrance]}",
                "see docs/partitions.md for what is deleted in batches",
            )
