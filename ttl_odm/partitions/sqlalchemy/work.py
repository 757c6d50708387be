"""What is to be done next with the partitions of a table, and what stands against it.

`PartitionWork` is one request of the sweeper, without the database's own way of doing it, which
`whole_partitions` (PostgreSQL) and `locked_partitions` (MariaDB and MySQL) know.

Rows that have to go one by one (see `reason_against`, and the hindrances of `Leaf`) are left to the
batches, and the report says why; a partition that these have emptied is dropped.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from sqlalchemy.exc import IntegrityError

from ttl_odm.partitions.dialects.ddl import HINDRANCES, Range
from ttl_odm.partitions.sqlalchemy.catalogue import FRESH, archive_cut, read_leaves, reason_against
from ttl_odm.partitions.sqlalchemy.leaf_tables import forget_leaf
from ttl_odm.sqlalchemy.policy.predicate import Predicate
from ttl_odm.sqlalchemy.policy.schema import as_ddl
from ttl_odm.sqlalchemy.purge.errors import in_short, is_locked, is_passing
from ttl_odm.sqlalchemy.purge.removal import mode_of
from ttl_odm.sqlalchemy.purge.statements import count_rows
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
    from ttl_odm.partitions.sqlalchemy.catalogue import Findings, Leaf, Leaves
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sweeper import BatchRequest

TRIES: Final = 5
"""How often a step is tried in a sweep."""

HELD: Final = 0.25
"""Seconds that a statement may take while others wait for the table; more would be noticed."""

MOVED: Final = 1_000
"""Rows that are few enough to be moved while readers wait."""

ESTIMATED: Final = 10_000
"""Rows from which on a partition that is dropped isn't counted: the database's own number does."""

GROWTH: Final = 1.25
"""How much longer a partition has to have been over for it to be looked through again."""


Step: TypeAlias = "Range | Leaf"
"""What may be done next: a partition that is to be made, or one that goes."""


class InUseError(Exception):
    """Somebody has the table in a transaction that isn't over soon."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far the partitions of a table are done.

    Attributes:
        leaves: What they were when they were read.
        read: When that was, by the clock of `time.monotonic`.
        steps: What is left to do: partitions to make, and those that may go.
        counted: How many there are, what was done since included.
        tries: How often the first of these was tried in vain.
    """

    leaves: Leaves
    read: float
    steps: tuple[Step, ...]
    counted: PartitionsCounted
    tries: int = 0

    @property
    def rest(self) -> Place | None:
        """The place after the first step; None after the last one."""
        return replace(self, steps=self.steps[1:], tries=0) if len(self.steps) > 1 else None

    def done(self) -> Place:
        """The same, with the first step counted as done."""
        step, counted = self.steps[0], self.counted
        if isinstance(step, Range):
            there, missing = counted.there + 1, counted.missing - 1
            return replace(self, counted=replace(counted, there=there, missing=missing))
        dead = counted.dead - self.leaves.is_dead(step)
        there, over = counted.there - 1, counted.over - 1
        return replace(self, counted=replace(counted, there=there, over=over, dead=dead))

    def anew(self, place: Place) -> Place:
        """The same with what another place has read; what is done stays done."""
        left = {step.name for step in self.steps}
        steps = tuple(step for step in place.steps if step.name in left)
        is_same = steps[:1] and steps[0].name == self.steps[0].name
        return replace(place, steps=steps, tries=self.tries if is_same else 0)


def next_place(connection: Connection, binding: Binding, request: BatchRequest) -> Place | None:
    """Where to go on; None for a table that isn't cut. What was read long ago is read anew."""
    before = request.resume if isinstance(request.resume, Place) else None
    # Elsewhere what one step does changes the bounds of others.
    fresh = FRESH if connection.dialect.name == "postgresql" else 0.0
    if before is not None and time.monotonic() - before.read <= fresh:
        place = before
    else:
        with reading(connection, request.timeout):
            leaves = read_leaves(connection, binding)
        if leaves is None:
            return None
        # Rows need a place before anything else.
        over = filter(leaves.is_over, leaves.every)
        steps: tuple[Step, ...] = (*leaves.missing(), *over)
        place = Place(leaves, time.monotonic(), steps, leaves.counted)
        if before is not None:
            place = before.anew(place)
    # What Python doesn't know was read with the partitions, and is again before one goes.
    if binding.source.is_known and not is_ttl_on(connection, binding):  # nothing goes any more
        place = replace(place, steps=tuple(s for s in place.steps if isinstance(s, Range)))
    return place


@dataclass(slots=True)
class PartitionWork(ABC):
    """One request: at most one partition is made, or goes.

    How that is done is the database's; what is to be done, and what stands against it, isn't.
    """

    connection: Connection
    binding: Binding
    request: BatchRequest
    findings: Findings
    leaves: Leaves
    notes: list[str] = field(default_factory=list)
    is_done: bool = False
    """Whether the partition of the step has been made, or has gone."""

    @property
    def _cut(self) -> Cut:
        return self.leaves.cut

    def take(self, step: Step) -> BatchResult:
        """Do it, or see that it can't be done."""
        return self._make(step) if isinstance(step, Range) else self._purge(step)

    def failed(self, step: Step, place: Place, error: DBAPIError | InUseError) -> BatchResult:
        """Try again after a pause, or leave it."""
        # A row that came in between, for a partition that was to be made.
        passes = isinstance(error, InUseError | IntegrityError)
        passes = passes or is_locked(error) or is_passing(error)
        tries = place.tries + 1
        if passes and tries < TRIES:
            return BatchResult(0, replace(place, tries=tries), pause=backoff(tries, 0.5))
        name = step.name if isinstance(step, Range) else step.name[1]
        if passes:
            state = "is in use, and left to the next sweep"
        else:
            state = "can't be changed"
            if not isinstance(step, Range):
                self.findings.kept.add((self.binding.table.fullname, step.name))
        self.notes.append(f"the partition {name} {state}: {in_short(error)}")
        return BatchResult(0, place.rest, notes=self.notes)

    def _run(self, *statements: str) -> list[int]:
        """Run statements; return how many rows each has changed."""
        options = {"preserve_rowcount": True}
        return [
            self.connection.execute(as_ddl(each), execution_options=options).rowcount
            for each in statements
        ]

    @abstractmethod
    def _make(self, leaf: Range) -> BatchResult:
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
        # An archive gets the expired rows by batches, and the partition when all of it is dead.
        return self._look(leaf) if copy is None else BatchResult(0)

    @abstractmethod
    def _drop_dead(self, leaf: Leaf) -> BatchResult:
        """Drop a partition whose bounds say that all of its rows have expired."""

    @abstractmethod
    def _drop_if_empty(self, leaf: Leaf, reason: str) -> BatchResult:
        """Drop a partition that has no row which anybody would want to hear of."""

    @abstractmethod
    def _look(self, leaf: Leaf) -> BatchResult:
        """Drop a partition in which no row lives on, or move the few that do."""

    @abstractmethod
    def _hand_over(self, leaf: Leaf, into: Cut) -> BatchResult:
        """Make a partition one of the archive's."""

    @abstractmethod
    def _within(self, leaf: Leaf) -> tuple[Table, list[ColumnElement[bool]]]:
        """A table in which the rows of a partition are, and what tells them from others."""

    def _rows(self, leaf: Leaf) -> int:
        """How many rows a partition has; a few are counted, with no lock that anybody notices."""
        if leaf.rows is not None and leaf.rows >= ESTIMATED:
            return leaf.rows
        with reading(self.connection, self.request.timeout):
            table, within = self._within(leaf)
            return count_rows(self.connection, table, *within)

    def _live(self, table: Table) -> ColumnElement[bool]:
        predicate = Predicate(clock_of(self.connection.dialect), writing=True)
        return predicate.live(self.binding, self.binding.columns_of(table))

    def _is_still(self, leaf: Leaf, *, dead: bool, hindered: bool) -> bool:
        """Whether all is as it was a moment ago, by the catalogue and the clock."""
        leaves = read_leaves(self.connection, self.binding)
        same = None if leaves is None else leaves.again(leaf)
        if leaves is None or same is None or not leaves.is_over(same):
            return False
        if same.upper != leaf.upper:
            return False
        return same.hindrance == (leaf.hindrance if hindered else None) and (
            not dead or leaves.is_dead(same)
        )

    def _left_to_batches(self, reason: str) -> BatchResult:
        """Let the report say why a partition doesn't go as a whole."""
        self.notes.append(f"partitions are swept in batches: {reason}")
        return BatchResult(0)

    def _forget(self, leaf: Leaf) -> None:
        """Forget what is known of a partition that is gone."""
        self.is_done = True
        self.findings.looks.pop((self.binding.table.fullname, leaf.name), None)
        forget_leaf(self.binding.table, leaf.name)

    def _is_looked_through_later(self, leaf: Leaf) -> bool:
        """Whether a live row was found in it not long ago."""
        before = self.findings.looks.get((self.binding.table.fullname, leaf.name))
        return before is not None and self.leaves.overdue(leaf) < before * GROWTH

    def _look_later(self, leaf: Leaf) -> BatchResult:
        """Leave a partition to the batches for a while."""
        known = (self.binding.table.fullname, leaf.name)
        self.findings.looks[known] = self.leaves.overdue(leaf)
        return BatchResult(0)
