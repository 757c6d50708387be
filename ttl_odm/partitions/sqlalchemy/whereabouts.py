"""`Partitioned`: all that a sweep asks of a table in partitions, declared so or not."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import literal_column

from ttl_odm.partitions.facts import PARTITIONS, partitions
from ttl_odm.partitions.sqlalchemy import checks
from ttl_odm.partitions.sqlalchemy.catalogue import (
    Findings,
    left_to_partitions,
    read_leaves,
    reason_against,
)
from ttl_odm.partitions.sqlalchemy.leaf_tables import Resume, divide_leaves, next_in_leaves
from ttl_odm.partitions.sqlalchemy.whole_partitions import purge_partition
from ttl_odm.sqlalchemy.purge.removal import mode_of
from ttl_odm.sqlalchemy.sweep.transactions import prepared, reading
from ttl_odm.sqlalchemy.sweep.whereabouts import Further, Whereabouts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Table

    from ttl_odm.partitions.sqlalchemy.catalogue import Leaves
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.rules import Checked
    from ttl_odm.sqlalchemy.sweep.whereabouts import Find, KeyRange, Marks
    from ttl_odm.sweeper import BatchRequest, BatchResult, Fact
    from ttl_odm.sweeper.findings import Finding


def whereabouts(binding: Binding) -> Whereabouts:
    """Where the rows of a table are."""
    return Partitioned(binding)


@dataclass(slots=True)
class Partitioned(Whereabouts):
    """A table in partitions, as the database has them, and perhaps a model."""

    _findings: Findings = field(init=False, default_factory=Findings)

    def due(self, connection: Connection, *, is_on: bool) -> Further:
        """Whether partitions are to be made or dropped. Rows need theirs while the TTL is off."""
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
        """The condition for rows that don't wait for their partition; none where no row does."""
        start = leaves.waiting_from()
        if start is None or reason_against(self.binding, mode_of(self.binding).hooks):
            return []
        column = leaves.partitioning.column
        return [column < literal_column(leaves.ddl.bound(leaves.cut, start))]

    def purge(self, connection: Connection, request: BatchRequest) -> BatchResult:
        """Make a partition, or purge one."""
        return purge_partition(connection, self.binding, request, self._findings)

    def next_range(
        self, connection: Connection, request: BatchRequest, find: Find
    ) -> tuple[Table, KeyRange | None]:
        """Look in one partition after the other, but not in those that go whole soon.

        Where partitions aren't tables, a condition leaves out what these have.
        """
        table, resume, until = self.binding.table, request.resume, request.until
        if connection.dialect.name != "postgresql":
            left = left_to_partitions(connection, self.binding, request, self._findings)
            beside = partial(left[0].beside, left[1]) if left else None
            return table, find(table, (resume, until), beside)
        if isinstance(resume, Resume | None):
            left = left_to_partitions(connection, self.binding, request, self._findings)
            stretch: tuple[Any, Any] = resume, until
            leaf = next_in_leaves(connection, table, stretch, find, left[1] if left else ())
            if leaf is not None:
                return leaf
        return table, find(table, (resume, until))

    def divide(
        self, connection: Connection, request: BatchRequest, shares: int, marks: Marks
    ) -> Sequence[object]:
        """Find marks in the next partition, or between partitions."""
        table, resume = self.binding.table, request.resume
        until: Any = request.until
        if isinstance(resume, Resume):
            return divide_leaves(connection, table, (resume, until), shares, marks)
        return marks(table, (resume, until))

    def facts(self, connection: Connection) -> Mapping[str, Fact]:
        """How many partitions there are, and what there is to do."""
        leaves = read_leaves(connection, self.binding)
        return partitions(None if leaves is None else leaves.counted)

    def check(self, checked: Checked) -> Iterator[Finding]:
        """Report what isn't as it is declared, and what partitions stay for."""
        return checks.partitions(checked)
