"""Purging by partition: which step comes next, and what prevents it.

A step makes a partition, drops one, hands one over to the archive, or empties one by moving its
rows. Each request does at most one step, in a short transaction of its own, so that the checks
between two batches apply to partitions too. Everything that was decided before that transaction is
decided in it again, by the database's clock and the catalogue, once it has the table for itself:

- A partition that is dead by its bounds is dropped without reading its rows.
- A partition that is over, but may hold rows that live longer, is scanned for a live row, at first
  without a lock. Only if there is none, and the scan took at most a quarter of a second, it is
  scanned again under the lock. Otherwise batches make it smaller, and it is scanned again later.
- If only few rows live on, they may be moved, in the transaction that drops their partition.

If rows have to go one by one (see `reason_against`, and the hindrances of `Leaf`), they are left to
the batches, and the report says why; a partition that batches have emptied is dropped.

`PartitionWork` is one request, without the statements: `postgresql_work` and `mysql_work` (for
MariaDB, too) have them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from sqlalchemy.exc import IntegrityError

from ttl_odm.partitions.dialects.ddl import HINDRANCES, NewPartition
from ttl_odm.partitions.sqlalchemy.catalogue import archive_cut, read_leaves, reason_against
from ttl_odm.partitions.sqlalchemy.leaf_tables import forget_leaf
from ttl_odm.sqlalchemy.policy.predicate import Predicate
from ttl_odm.sqlalchemy.policy.schema import as_ddl
from ttl_odm.sqlalchemy.purge.errors import in_short, is_locked, is_passing
from ttl_odm.sqlalchemy.purge.removal import count_rows, mode_of
from ttl_odm.sqlalchemy.sweep.due import is_ttl_on
from ttl_odm.sqlalchemy.sweep.transactions import reading
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import BatchResult
from ttl_odm.sweeper.pace import backoff

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Table
    from sqlalchemy.exc import DBAPIError

    from ttl_odm.partitions.dialects.ddl import Cut
    from ttl_odm.partitions.facts import PartitionsCounted
    from ttl_odm.partitions.sqlalchemy.catalogue import Leaf, Leaves, Name
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sweeper import BatchRequest

TRIES: Final = 5
"""How often a step is tried in a sweep."""

HELD: Final = 0.25
"""Seconds that a statement may take while others wait for the table; more would be noticed."""

MOVED: Final = 1_000
"""The most rows that are moved while readers wait."""

_ESTIMATED: Final = 10_000
"""Rows from which on a dropped partition isn't counted, but estimated by the database."""

_GROWTH: Final = 1.25
"""How many times longer a partition must have been over for another scan."""

FRESH: Final = 60.0
"""Seconds for which a reading of the catalogue is good enough to choose the next step; before a
partition is changed, it is read again."""

Step: TypeAlias = "NewPartition | Leaf"
"""The next thing to do: make a partition, or purge one."""


class InUseError(Exception):
    """Another session uses the table in a transaction that won't end soon."""


@dataclass(slots=True)
class Memory:
    """What a store remembers of the partitions of one table, as long as the process runs.

    Attributes:
        unchangeable: The partitions that the database didn't let go in this sweep: batches sweep
            them.
        scans: By partition, for how many seconds it had been over at its last scan, which found a
            live row or took too long.
        read: The moment, by `time.monotonic`, at which batches last read the catalogue, and the
            partitions; these are None if no row waits for one.
    """

    unchangeable: set[Name] = field(default_factory=set)
    scans: dict[Name, float] = field(default_factory=dict)
    read: tuple[float, Leaves | None] = (-FRESH, None)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep has got with the partitions of a table.

    Attributes:
        leaves: The partitions as they were read.
        read: The moment of that, by `time.monotonic`.
        steps: The remaining steps: partitions to make, and partitions that may go.
        counted: How many partitions there are, counting the steps done since.
        tries: How often the first step has failed.
    """

    leaves: Leaves
    read: float
    steps: tuple[Step, ...]
    counted: PartitionsCounted
    tries: int = 0

    @property
    def rest(self) -> Progress | None:
        """The progress after the first step; None after the last step."""
        return replace(self, steps=self.steps[1:], tries=0) if len(self.steps) > 1 else None

    def done(self) -> Progress:
        """Return the progress with the first step counted as done."""
        step, counted = self.steps[0], self.counted
        if isinstance(step, NewPartition):
            there, missing = counted.there + 1, counted.missing - 1
            return replace(self, counted=replace(counted, there=there, missing=missing))
        dead = counted.dead - self.leaves.is_dead(step)
        there, over = counted.there - 1, counted.over - 1
        return replace(self, counted=replace(counted, there=there, over=over, dead=dead))

    def updated(self, newer: Progress) -> Progress:
        """Return the progress by a new reading of the catalogue; steps that are done stay done."""
        remaining = {step.name for step in self.steps}
        steps = tuple(step for step in newer.steps if step.name in remaining)
        is_same = steps[:1] and steps[0].name == self.steps[0].name
        return replace(newer, steps=steps, tries=self.tries if is_same else 0)


def progress_of(connection: Connection, binding: Binding, request: BatchRequest) -> Progress | None:
    """Return the progress of a sweep, by a recent reading; None if the table isn't cut."""
    before = request.resume if isinstance(request.resume, Progress) else None
    # Except on PostgreSQL, each step changes the bounds of other partitions.
    fresh = FRESH if connection.dialect.name == "postgresql" else 0.0
    if before is not None and time.monotonic() - before.read <= fresh:
        progress = before
    else:
        with reading(connection, request.timeout):
            leaves = read_leaves(connection, binding)
        if leaves is None:
            return None
        # New rows need their partitions first.
        over = filter(leaves.is_over, leaves.every)
        steps: tuple[Step, ...] = (*leaves.missing(), *over)
        progress = Progress(leaves, time.monotonic(), steps, leaves.counted)
        if before is not None:
            progress = before.updated(progress)
    # A default that Python doesn't know was read with the partitions, and is again before one goes.
    if binding.source.is_known and not is_ttl_on(connection, binding):  # nothing goes any more
        makes = tuple(step for step in progress.steps if isinstance(step, NewPartition))
        progress = replace(progress, steps=makes)
    return progress


@dataclass(slots=True)
class PartitionWork(ABC):
    """One request: it makes or purges at most one partition."""

    connection: Connection
    binding: Binding
    request: BatchRequest
    memory: Memory
    leaves: Leaves
    notes: list[str] = field(default_factory=list)
    is_done: bool = False
    """Whether the partition of the step was made, or is gone."""

    @property
    def _cut(self) -> Cut:
        return self.leaves.cut

    def take(self, step: Step) -> BatchResult:
        """Do a step, unless something prevents it."""
        return self._make(step) if isinstance(step, NewPartition) else self._purge(step)

    def failed(self, step: Step, progress: Progress, error: DBAPIError | InUseError) -> BatchResult:
        """Try a step again after a pause, or give it up."""
        # IntegrityError: a row for a new partition was inserted in between.
        passes = isinstance(error, InUseError | IntegrityError)
        passes = passes or is_locked(error) or is_passing(error)
        tries = progress.tries + 1
        if passes and tries < TRIES:
            return BatchResult(0, replace(progress, tries=tries), pause=backoff(tries, 0.5))
        name = step.name if isinstance(step, NewPartition) else step.name[1]
        if passes:
            state = "is in use, and left to the next sweep"
        else:
            state = "can't be changed"
            if not isinstance(step, NewPartition):
                self.memory.unchangeable.add(step.name)
        self.notes.append(f"the partition {name} {state}: {in_short(error)}")
        return BatchResult(0, progress.rest, notes=self.notes)

    def _run(self, *statements: str) -> list[int]:
        """Run statements; return how many rows each of them changed."""
        options = {"preserve_rowcount": True}
        return [
            self.connection.execute(as_ddl(statement), execution_options=options).rowcount
            for statement in statements
        ]

    @abstractmethod
    def _make(self, leaf: NewPartition) -> BatchResult:
        """Make a partition."""

    # --- purging ---------------------------------------------------------------------------------

    def _purge(self, leaf: Leaf) -> BatchResult:
        reason = reason_against(self.binding, self.request.hooks)
        if reason is None and leaf.hindrance is not None:
            reason = HINDRANCES[leaf.hindrance]
        copy = mode_of(self.binding).copy
        if reason is None and copy is not None:
            with reading(self.connection, self.request.timeout):
                into = archive_cut(self.connection, self.leaves, copy)
            if isinstance(into, str):
                reason = into
            elif self.leaves.is_dead(leaf):
                return self._hand_over(leaf, into)
        if reason is not None:
            return self._drop_if_empty(leaf, reason)
        if self.leaves.is_dead(leaf):
            return self._drop_dead(leaf)
        # An archive gets expired rows by batches, or the partition once all of it is dead.
        return self._drop_unless_live(leaf) if copy is None else BatchResult(0)

    @abstractmethod
    def _drop_dead(self, leaf: Leaf) -> BatchResult:
        """Drop a partition whose bounds say that all of its rows have expired."""

    @abstractmethod
    def _drop_if_empty(self, leaf: Leaf, reason: str) -> BatchResult:
        """Drop a partition without rows; otherwise note the reason why batches sweep it."""

    @abstractmethod
    def _drop_unless_live(self, leaf: Leaf) -> BatchResult:
        """Drop a partition in which no row is live, or move the few live rows."""

    @abstractmethod
    def _hand_over(self, leaf: Leaf, into: Cut) -> BatchResult:
        """Make a partition one of the archive's partitions."""

    @abstractmethod
    def _within(self, leaf: Leaf) -> tuple[Table, list[ColumnElement[bool]]]:
        """Return a table with the rows of a partition, and the conditions for these rows."""

    def _rows(self, leaf: Leaf) -> int:
        """Return the number of rows in a partition: counted if small, without a noticeable lock."""
        if leaf.rows is not None and leaf.rows >= _ESTIMATED:
            return leaf.rows
        with reading(self.connection, self.request.timeout):
            table, within = self._within(leaf)
            return count_rows(self.connection, table, *within)

    def _live(self, table: Table) -> ColumnElement[bool]:
        predicate = Predicate(clock_of(self.connection.dialect), writing=True)
        return predicate.live(self.binding, self.binding.columns_of(table))

    def _is_still(self, leaf: Leaf, *, dead: bool, hindered: bool) -> bool:
        """Return whether a partition is still as it was read, by the catalogue and the clock.

        Args:
            leaf: The partition.
            dead: Whether it has to be dead, not just over.
            hindered: Whether it may have the hindrance that it had.
        """
        leaves = read_leaves(self.connection, self.binding)
        current = None if leaves is None else leaves.current(leaf)
        if leaves is None or current is None or not leaves.is_over(current):
            return False
        if current.upper != leaf.upper:
            return False
        return current.hindrance == (leaf.hindrance if hindered else None) and (
            not dead or leaves.is_dead(current)
        )

    def _leave_to_batches(self, reason: str) -> BatchResult:
        """Note why a partition doesn't go as a whole."""
        self.notes.append(f"partitions are swept in batches: {reason}")
        return BatchResult(0)

    def _forget(self, leaf: Leaf) -> None:
        """Count the step as done, and forget its partition, which is gone."""
        self.is_done = True
        self.memory.scans.pop(leaf.name, None)
        forget_leaf(self.binding.table, leaf.name)

    def _is_scan_postponed(self, leaf: Leaf) -> bool:
        """Return whether a partition was scanned in vain not long ago."""
        before = self.memory.scans.get(leaf.name)
        return before is not None and self.leaves.overdue(leaf) < before * _GROWTH

    def _postpone_scan(self, leaf: Leaf) -> BatchResult:
        """Leave a partition to the batches for a while."""
        self.memory.scans[leaf.name] = self.leaves.overdue(leaf)
        return BatchResult(0)
