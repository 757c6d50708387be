"""Purging by partition: one is made, dropped, handed over to the archive, or emptied by a move.

Each request does at most one of these, in a short transaction of its own, so that whatever is
looked at between two batches is looked at here too. What is decided before that transaction is
decided in it again, by the database's clock and the catalogue, once nobody can write any more:

- A partition that is dead by its bounds goes without a look at its rows.
- One that is over, but may hold rows that live longer, is looked through for one, at first with no
  lock. Only if there is none, and that took no time to speak of, it is looked through again, while
  writers wait (readers go on). Batches make it smaller otherwise, and there is another look later.
- Where few rows live on, they may be moved to the partition for the rest, in the transaction that
  drops theirs.

Rows that have to go one by one (see `reason_against`, and the hindrances of `Leaf`) are left to the
batches, and the report says why; a partition that these have emptied is dropped.

A drop needs the table for itself for a moment, and whoever comes then waits behind it. So it waits
for others for 50 ms, tries again a few times after a pause in which nothing is held, and is left to
the next sweep then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from sqlalchemy import String, cast, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from ttl_odm.dialects.partitions import HINDRANCES, Range
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.policy.partitioned import as_ddl
from ttl_odm.sqlalchemy.policy.predicate import Predicate
from ttl_odm.sqlalchemy.purge.errors import in_short, is_away, is_locked, is_passing
from ttl_odm.sqlalchemy.purge.removal import mode_of
from ttl_odm.sqlalchemy.sweep.due import count_rows
from ttl_odm.sqlalchemy.sweep.leaves import archive_cut, read_leaves, reason_against
from ttl_odm.sqlalchemy.sweep.partitions import forget_leaf, leaf_table
from ttl_odm.sqlalchemy.sweep.table_walk import ctid
from ttl_odm.sqlalchemy.sweep.transactions import limit_statements, prepared, reading
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import BatchResult, StoreError
from ttl_odm.sweeper.pace import backoff

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from sqlalchemy import ColumnElement, Connection, Table

    from ttl_odm.dialects.partitions import Cut
    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sqlalchemy.sweep.leaves import Findings, Leaf, Leaves
    from ttl_odm.sweeper import BatchRequest

TRIES: Final = 5
"""How often a step is tried in a sweep."""

HELD: Final = 0.25
"""Seconds that a statement may take while others wait for the table; more would be noticed."""

LOOK: Final = 0.5
"""Seconds for which writers may wait for a look through a partition that is over."""

MOVED: Final = 1_000
"""Rows that are few enough to be moved while readers wait."""

BROUGHT: Final = 100_000
"""Rows that are brought from the partition for the rest into one that is made for them."""

BRINGING: Final = 10.0
"""Seconds that a statement of that may take."""

FRESH: Final = 60.0
"""Seconds for which what was read of the partitions is good enough to choose what to do next."""

ESTIMATED: Final = 10_000
"""Rows from which on a partition that is dropped isn't counted: the database's own number does."""

GROWTH: Final = 1.25
"""How much longer a partition has to have been over for it to be looked through again."""


@dataclass(frozen=True, slots=True)
class _Step:
    """What may be done next: a partition that is to be made, or one that goes."""

    what: Range | Leaf

    @property
    def name(self) -> str:
        return self.what.name if isinstance(self.what, Range) else self.what.name[1]


@dataclass(frozen=True, slots=True)
class _Place:
    """How far the partitions of a table are done.

    Attributes:
        leaves: What they were when they were read.
        read: When that was, by the clock of `time.monotonic`.
        steps: What is left to do with them.
        tries: How often the first of these was tried in vain.
    """

    leaves: Leaves
    read: float
    steps: tuple[_Step, ...]
    tries: int = 0

    @property
    def rest(self) -> _Place | None:
        """The place after the first step; None after the last one."""
        return replace(self, steps=self.steps[1:], tries=0) if len(self.steps) > 1 else None


def purge_partition(
    connection: Connection, binding: Binding, request: BatchRequest, findings: Findings
) -> BatchResult:
    """Make a partition, or purge one, by a connection fresh from the pool."""
    if request.resume is None:
        table = binding.table.fullname
        findings.kept = {(of, leaf) for of, leaf in findings.kept if of != table}
    with prepared(connection, request.timeout):
        place = _next_place(connection, binding, request)
        if place is None:
            return BatchResult(0)
        work = _Work(connection, binding, request, findings, place.leaves)
        step = place.steps[0]
        try:
            result = work.take(step)
        except DBAPIError as error:
            if is_away(error):
                raise
            return work.failed(step, place, error)
        if result.deleted and not isinstance(step.what, Range):
            findings.looks.pop((binding.table.fullname, step.what.name), None)
            forget_leaf(binding.table, step.what.name)
        return replace(result, resume=place.rest, notes=work.notes)


def _next_place(connection: Connection, binding: Binding, request: BatchRequest) -> _Place | None:
    """Where to go on, if there is anything left to do; what is old is read anew."""
    place, is_on = request.resume, any(default() is not None for default in binding.defaults())
    if not isinstance(place, _Place) or time.monotonic() - place.read > FRESH:
        with reading(connection, request.timeout):
            leaves = read_leaves(connection, binding)
        if leaves is None:
            return None
        steps = _steps(leaves)
        if isinstance(place, _Place):
            left = {step.what.name for step in place.steps}
            steps = [step for step in steps if step.what.name in left]
        place = _Place(leaves, time.monotonic(), tuple(steps))
    steps = [step for step in place.steps if is_on or isinstance(step.what, Range)]
    return replace(place, steps=tuple(steps)) if steps else None


def _steps(leaves: Leaves) -> list[_Step]:
    """What there is to do: rows need a place before anything else."""
    made = [_Step(missing) for missing in leaves.missing()]
    return made + [_Step(leaf) for leaf in leaves.every if leaves.is_over(leaf)]


@dataclass(slots=True)
class _Work:
    """One request."""

    connection: Connection
    binding: Binding
    request: BatchRequest
    findings: Findings
    leaves: Leaves
    notes: list[str] = field(default_factory=list)

    @property
    def _cut(self) -> Cut:
        return self.leaves.cut

    def take(self, step: _Step) -> BatchResult:
        """Do it, or see that it can't be done."""
        what = step.what
        return self._make(what) if isinstance(what, Range) else self._purge(what)

    def failed(self, step: _Step, place: _Place, error: DBAPIError) -> BatchResult:
        """Try again after a pause, or leave it."""
        # A row that came in between, for a partition that was to be made.
        passes = is_locked(error) or is_passing(error) or isinstance(error, IntegrityError)
        tries = place.tries + 1
        if passes and tries < TRIES:
            return BatchResult(0, replace(place, tries=tries), pause=backoff(tries, 0.5))
        if passes:
            self.notes.append(
                f"the partition {step.name} is in use, and left to the next sweep: "
                f"{in_short(error)}"
            )
        else:
            self.notes.append(f"the partition {step.name} can't be changed: {in_short(error)}")
            if not isinstance(step.what, Range):
                self.findings.kept.add((self.binding.table.fullname, step.what.name))
        return BatchResult(0, place.rest, notes=self.notes)

    def _changing(self) -> AbstractContextManager[None]:
        """A transaction that waits briefly for others, and keeps nobody waiting for long."""
        return reading(self.connection, HELD)

    def _run(self, *statements: str) -> list[int]:
        """Run statements; return how many rows each has changed."""
        options = {"preserve_rowcount": True}
        return [
            self.connection.execute(as_ddl(each), execution_options=options).rowcount
            for each in statements
        ]

    # --- making ----------------------------------------------------------------------------------

    def _make(self, leaf: Range) -> BatchResult:
        leaves, ddl = self.leaves, self.leaves.ddl
        rest, brings = leaves.rest, False
        if rest is not None:
            with reading(self.connection, self.request.timeout):
                within = ddl.within(self._cut, leaf)
                brought = self._count(ddl.quoted(*rest.name), within, BROUGHT + 1)
            brings = brought > 0
            if brings and rest.hindrance is not None:
                reason = HINDRANCES[rest.hindrance]
                self.notes.append(
                    f"the partition {leaf.name} is not made, as rows of {rest.name[1]} belong "
                    f"there, which can't be moved: {reason}"
                )
                return BatchResult(0)
            if brought > BROUGHT:
                self.notes.append(
                    f"the partition {leaf.name} is not made, as {rest.name[1]} has more than "
                    f"{BROUGHT:,} rows that belong there: they go by batches. Let partitions be "
                    "made earlier (ahead=)."
                )
                return BatchResult(0)
        source = ddl.quoted(*rest.name) if rest is not None and brings else None
        *before, last = ddl.make(self._cut, leaf, source, leaves.columns)
        # While rows are brought writers wait, if they write there; readers only for the last.
        with reading(self.connection, BRINGING):
            self._run(*before)
            limit_statements(self.connection, HELD)
            self._run(last)
        return BatchResult(0)

    def _count(self, source: str, condition: str, limit: int) -> int:
        query = f"SELECT 1 FROM {source} WHERE {condition} LIMIT {limit}"  # noqa: S608 (ours)
        counted = f"SELECT count(*) FROM ({query}) AS found".replace(":", r"\:")  # noqa: S608
        return int(self.connection.execute(text(counted)).scalar_one())

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
        if leaf.hindrance in ("policy", "owner", "shape"):  # nobody knows what is in it
            self.notes.append(f"partitions are swept by batches: {reason}")
            return BatchResult(0)
        with reading(self.connection, self.request.timeout):
            is_empty = not count_rows(self.connection, table, limit=1)
        if not is_empty:
            self.notes.append(f"partitions are swept by batches: {reason}")
            return BatchResult(0)
        with self._changing():
            self._lock(leaf)
            if not count_rows(self.connection, table, limit=1) and self._enter(leaf, hindered=True):
                self._drop(leaf)
        return BatchResult(0)

    def _look(self, leaf: Leaf) -> BatchResult:
        """Drop a partition in which no row lives on, or move the few that do."""
        known = (self.binding.table.fullname, leaf.name)
        overdue, before = self.leaves.overdue(leaf), self.findings.looks.get(known)
        if before is not None and overdue < before * GROWTH:
            return BatchResult(0)
        table = leaf_table(self.binding.table, leaf.name)
        live, began = self._live(table), time.monotonic()
        with reading(self.connection, self.request.timeout):
            number = count_rows(self.connection, table, live, limit=MOVED + 1)
        is_quick = time.monotonic() - began < LOOK
        moves = 0 < number <= MOVED and is_quick and self._may_move
        if not is_quick or (number and not moves):  # what has expired goes by batches
            self.findings.looks[known] = overdue
            return BatchResult(0)
        rows = self._rows(leaf)
        with self._changing():
            self._lock(leaf)
            limit_statements(self.connection, LOOK)
            if moves:
                places = self._places(table, live)
            else:
                places = ["?"] * count_rows(self.connection, table, live, limit=1)
            limit_statements(self.connection, HELD)
            if (places and not moves) or len(places) > MOVED or not self._enter(leaf):
                return BatchResult(0)
            if places:
                self._move(leaf, places)
            else:
                self._drop(leaf)
        return BatchResult(max(0, rows - len(places)))

    def _hand_over(self, leaf: Leaf, into: Cut) -> BatchResult:
        """Make a partition one of the archive's."""
        ddl, edges = self.leaves.ddl, self.leaves.edges(leaf)
        rows = self._rows(leaf)
        quoted = ddl.quoted(*leaf.name)
        for statements in ddl.prepare_handover(self._cut, quoted, edges):
            with reading(self.connection, self.request.timeout):
                self._run(*statements)
        with self._changing():
            if not self._enter(leaf, dead=True):
                return BatchResult(0)
            self._run(*ddl.hand_over(self._cut, leaf.name, into, edges))
        return BatchResult(rows, archived=rows)

    @property
    def _may_move(self) -> bool:
        leaves = self.leaves
        if leaves.partitioning.declared.survivors != "move":
            return False
        if leaves.is_heard:
            self.notes.append("survivors are not moved: triggers would hear of them as new rows")
            return False
        return leaves.rest is not None and leaves.rest.hindrance is None

    def _rows(self, leaf: Leaf) -> int:
        """How many rows a partition has; a few are counted, with no lock that anybody notices."""
        if leaf.rows is not None and leaf.rows >= ESTIMATED:
            return leaf.rows
        with reading(self.connection, self.request.timeout):
            return count_rows(self.connection, leaf_table(self.binding.table, leaf.name))

    def _live(self, table: Table) -> ColumnElement[bool]:
        predicate = Predicate(clock_of(self.connection.dialect), writing=True)
        return predicate.live(self.binding, self.binding.columns_of(table))

    def _places(self, table: Table, live: ColumnElement[bool]) -> list[str]:
        chosen = select(cast(ctid, String())).select_from(table).where(live).limit(MOVED + 1)
        return list(self.connection.scalars(chosen.options(include_expired())))

    def _lock(self, leaf: Leaf) -> None:
        ddl = self.leaves.ddl
        self._run(*ddl.lock(self._cut, ddl.quoted(*leaf.name)))

    def _enter(self, leaf: Leaf, *, dead: bool = False, hindered: bool = False) -> bool:
        """Keep others off the table; then see whether all is as it was a moment ago."""
        self._run(self.leaves.ddl.enter(self._cut))
        leaves = read_leaves(self.connection, self.binding)
        same = None if leaves is None else leaves.again(leaf)
        if leaves is None or same is None or not leaves.is_over(same):
            return False
        return same.hindrance == (leaf.hindrance if hindered else None) and (
            not dead or leaves.is_dead(same)
        )

    def _drop(self, leaf: Leaf) -> None:
        ddl = self.leaves.ddl
        self._run(*ddl.drop(self._cut, ddl.quoted(*leaf.name)))

    def _move(self, leaf: Leaf, places: list[str]) -> None:
        ddl = self.leaves.ddl
        array = "{" + ",".join(f'"{place}"' for place in places) + "}"
        statements = ddl.move(self._cut, ddl.quoted(*leaf.name), array, self.leaves.columns)
        _, moved, *_ = self._run(*statements)
        if moved != len(places):  # a rule or a trigger has a say that nobody knew of
            raise StoreError(f"{len(places)} rows were to be moved, and {moved} were: undone.")
