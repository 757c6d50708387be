"""The sweep of one target: find what is due, check the fuse, purge batch after batch, report.

It goes in steps, since targets may take turns: see `ttl_odm.sweeper.plan`. A step that fails fails
its target, whose report has the error; the other targets go on. From top to bottom here:
`TargetSweep`; the `Ranges` that are left to purge; one `Range`.

This module must not know what a store's marks mean, nor why a batch failed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper import commands as c
from ttl_odm.sweeper.batch_gate import Halt
from ttl_odm.sweeper.facts import latest, of_rows
from ttl_odm.sweeper.hooks import HookError
from ttl_odm.sweeper.pace import FIRST_LOADED, SLOW, Crew, CulpritSearch, loadable
from ttl_odm.sweeper.report import LIMITS, Progress, TargetReport, in_one_line
from ttl_odm.sweeper.stop import time_limit_of
from ttl_odm.sweeper.store import (
    BatchRequest,
    BatchResult,
    MissingTargetError,
    Skip,
    StoreError,
    TransientStoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Concatenate, ParamSpec

    from ttl_odm.sweeper.batch_gate import BatchGate, History
    from ttl_odm.sweeper.commands import Plan
    from ttl_odm.sweeper.facts import Fact
    from ttl_odm.sweeper.hooks import Hooks, Phase
    from ttl_odm.sweeper.options import Settings
    from ttl_odm.sweeper.store import Counted, Due, Part, RefusedError

    P = ParamSpec("P")

NAMED: Final = 10
"""The most rows that a report names among the rows that had to stay."""

_LONGEST_PATIENCE: Final = 64
"""The most batches between two attempts to divide a range."""


def _step(
    run: Callable[Concatenate[TargetSweep, P], Plan[None]],
) -> Callable[Concatenate[TargetSweep, P], Plan[None]]:
    """Time a step, and record its error as the target's own; a `Halt` is the whole sweep's."""

    @wraps(run)
    def timed(self: TargetSweep, /, *args: P.args, **kwargs: P.kwargs) -> Plan[None]:
        began, halt = (yield from c.Now()), None
        try:
            yield from run(self, *args, **kwargs)
        except Halt as end:
            halt = end
        except MissingTargetError:
            self._is_missing = self.is_over = True
            self._after = None
        except Exception as failure:
            if time_limit_of(failure) is not None:
                raise
            # Whatever it is, the other targets go on.
            self._problem, self._after, self.is_over = failure, None, True
        self._duration += (yield from c.Now()) - began
        if halt is not None:
            raise halt

    return timed


class TargetSweep:
    """The sweep of one target.

    Attributes:
        report: The result; None before the end, and for a target whose TTL is off.
        is_over: Whether nothing is left to do, or nothing can be done.
    """

    def __init__(
        self, target: str, settings: Settings, hooks: Hooks, gate: BatchGate, history: History
    ) -> None:
        self.report: TargetReport | None = None
        self.is_over = False
        self._target = target
        self._settings = settings
        self._hooks = hooks
        self._gate = gate
        self._history = history
        self._find_due = partial(c.FindDue, target)
        self._due: Due | None = None
        self._ranges: Ranges | None = None
        """The ranges that are left to purge; None until the fuse has been checked."""
        self._crew = Crew(settings.workers)
        self._workers = 1
        self._running: dict[Range, tuple[BatchRequest, float]] = {}
        """Batches that run at once, each with the monotonic instant when it began."""
        self._size = settings.pace.start
        self._duration = 0.0
        self._deleted = 0
        self._archived = 0
        self._skips: Counter[Skip] = Counter()
        self._left: dict[str, None] = {}
        self._notes: dict[str, None] = {}
        self._pause = 0.0
        self._referring: Counter[str] = Counter()
        self._batches = 0
        self._oldest: float | None = None
        self._oldest_left: float | None = None
        """Age of the oldest row, over all batches and over batches that skipped rows; set only
        where the table has to be read to tell."""
        self._counted: Counted | None = None
        self._facts: dict[str, Fact] = {}
        """Facts about the target, and about its deleted rows."""
        self._problem: Exception | None = None
        self._after: float | None = None
        """Seconds since the first of the remaining rows expired."""
        self._is_off = False
        self._is_missing = False
        self._loads = False

    @property
    def overdue(self) -> float | None:
        """Seconds since the first of its expired rows expired; None if unknown."""
        return None if self._due is None else self._due.oldest

    @_step
    def begin(self) -> Plan[None]:
        """Find what has expired."""
        self._due = yield from self._gate.persist(self._find_due)
        self._is_off = self._due is None
        self._facts = {} if self._due is None else dict(self._due.facts)
        self._after = self.overdue
        # A dry run counts the rows even where none has expired.
        has_work = self._due is not None and (self._due.parts or self._settings.dry_run)
        self.is_over = not has_work

    @_step
    def go_on(self) -> Plan[None]:
        """Purge until nothing is left, or the target's turn is over: see `is_over`."""
        if self._ranges is None:
            self._ranges = yield from self._prepare()
        try:
            while self._ranges and (yield from self._gate.clear()):
                self._pause = 0.0
                yield from self._purge(self._ranges)
                yield from self._gate.wait(self._pause, "retry")
        except Exception:
            yield from self._await_all()
            raise
        yield from self._await_all()
        if self._ranges:
            return
        if self._skips:
            rest = yield from self._gate.persist(self._find_due)
            self._after = self._oldest_left if rest is None or rest.oldest is None else rest.oldest
        elif self._batches:
            # Nothing is left. To look would be to walk over all that was just deleted.
            self._after = 0.0
        self.is_over = True

    def _prepare(self) -> Plan[Ranges]:
        """Count the rows for the fuse and for a dry run, and return the ranges to purge.

        There are none in a dry run.
        """
        assert self._due is not None  # noqa: S101 (else it would be over)
        due, settings, fuse = self._due, self._settings, self._settings.fuse
        if settings.dry_run or fuse is not None:
            self._counted = yield from self._gate.persist(
                lambda: c.CountDue(self._target, settings.dry_run)
            )
            if fuse is not None and not settings.force:
                fuse.check(self._target, self._counted, self._history.of(self._target))
        if settings.dry_run:
            if due.oldest is None and self._counted is not None:
                self._after = self._counted.oldest
            return Ranges()
        self._loads = due.loads_rows or self._hooks.wants_rows(self._target)
        if self._loads:
            self._size = min(self._size, FIRST_LOADED)
        return Ranges(map(Range, sorted(due.parts, key=lambda part: part.last)))

    def _purge(self, ranges: Ranges) -> Plan[None]:
        """Purge one batch, or start as many as may run at once and wait for one of them."""
        range_ = ranges.next(self._running)
        is_shared = range_ is not None and range_.is_shareable and self._crew.size > 1
        if range_ is not None and is_shared:
            yield from self._divide(ranges, range_)
            is_shared = ranges.count(range_.part) > 1
        if range_ is not None and not self._running and not is_shared:
            yield from self._purge_alone(range_)
            return
        while range_ is not None and len(self._running) < self._crew.size:
            promised = sum(request.size for request, _ in self._running.values())
            size = self._gate.cap(range_.search.cap(self._size), promised)
            if not size:
                break
            request = self._request(range_, size)
            self._running[range_] = request, (yield from c.Now())
            yield from c.Begin(request)
            range_ = ranges.next(self._running)
        self._workers = max(self._workers, len(self._running))
        yield from self._await_batch()

    def _divide(self, ranges: Ranges, range_: Range) -> Plan[None]:
        """Divide a range if there are fewer ranges than workers."""
        lacking = self._crew.size - ranges.count(range_.part)
        if lacking > 0 and range_.is_worth_dividing():
            try:
                marks = yield from c.Divide(self._request(range_, self._size), lacking + 1)
            except TransientStoreError:
                return
            ranges.divide(range_, marks)

    def _request(self, range_: Range, size: int) -> BatchRequest:
        return BatchRequest(
            self._target,
            range_.part,
            size,
            range_.resume,
            hooks=self._hooks,
            timeout=self._settings.statement_timeout,
            force=self._settings.force,
            replicate=self._settings.replicate,
            until=range_.until,
        )

    def _purge_alone(self, range_: Range) -> Plan[None]:
        """Purge one batch while no other runs, with fewer rows if it fails."""

        def shrink() -> None:
            self._size = self._settings.pace.shrunk(self._size)

        size, result = yield from self._gate.persist(lambda: self._attempt(range_), shrink)
        self._gate.spend(result, is_whole=range_.part.whole)
        yield from self._count(size, result)
        self._advance(range_, size, result)

    def _attempt(self, range_: Range) -> Plan[tuple[int, BatchResult]]:
        """Purge as many rows as a batch may have now; return that number, too."""
        if range_.error is not None:  # the first attempt, while others ran
            error, range_.error = range_.error, None
            raise error
        size = self._gate.cap(range_.search.cap(self._size))
        began = yield from c.Now()
        try:
            return size, (yield from c.PurgeBatch(self._request(range_, size)))
        except Exception as error:
            yield from self._emit_failure(size, (yield from c.Now()) - began, error)
            raise

    def _await_batch(self) -> Plan[None]:
        """Wait for one of the running batches, and count it; one that failed is retried alone."""
        request, reply = yield from c.AwaitBatch()
        range_ = next(key for key, (begun, _) in self._running.items() if begun is request)
        (_, began), now = self._running.pop(range_), (yield from c.Now())
        if isinstance(reply, Exception):
            yield from self._emit_failure(request.size, now - began, reply)
            range_.error = reply
            return
        self._gate.spend(reply, period=(began, now))
        yield from self._count(request.size, reply)
        is_slow = self._settings.pace.next(self._size, reply.elapsed) < self._size * SLOW
        is_full = request.size == self._size and reply.resume is not None
        self._crew.take(reply.deleted, now, is_full=is_full, is_slow=is_slow)
        self._advance(range_, request.size, reply)

    def _emit_failure(self, size: int, elapsed: float, error: Exception) -> c.Emit:
        return c.Emit(Progress(self._target, 0, self._deleted, size, elapsed, error=error))

    def _await_all(self) -> Plan[None]:
        """Wait for all running batches, whatever has ended the sweep."""
        while self._running:
            yield from self._await_batch()

    def _count(self, size: int, result: BatchResult) -> Plan[None]:
        """Count a batch that came back, call the hooks, and report it."""
        self._pause = max(self._pause, result.pause)
        self._history.last = self._target
        self._batches += 1
        self._deleted += result.deleted
        self._archived += result.archived
        self._referring.update(result.referring)
        self._notes.update(dict.fromkeys(result.notes))
        if result.facts:
            self._facts = latest(self._facts, result.facts)
        if result.oldest is not None:
            self._oldest = max(self._oldest or 0.0, result.oldest)
        after = yield from self._call_hooks(result)
        yield from c.Emit(
            Progress(
                self._target,
                deleted=result.deleted,
                archived=result.archived,
                referring=result.referring,
                deleted_so_far=self._deleted,
                batch_size=size,
                elapsed=result.elapsed,
                phases={**result.phases, **after},
                error=result.failure,
                facts=_among(result.deleted, result.facts),
            )
        )

    def _call_hooks(self, result: BatchResult) -> Plan[Mapping[Phase, float]]:
        """Call the hooks after the commit; a failure is reported, and undoes nothing."""
        if not result.purged:
            return {}
        began = yield from c.Now()
        for purged in result.purged:
            try:
                yield from c.CallHooks(self._hooks, purged)
            except Exception as error:  # noqa: BLE001 (a HookError, or a bug in one: reported)
                self._problem = self._problem or error
        return {"after_commit": (yield from c.Now()) - began}

    def _advance(self, range_: Range, size: int, result: BatchResult) -> None:
        """Move a range past a batch, unless that failed and is tried with fewer rows."""
        search, failure = range_.search, result.failure
        if failure is not None and not search.leaves(range_.resume, size, result):
            return
        self._skips.update(result.skipped)
        range_.skips.update(result.skipped)
        if result.skipped and result.oldest is not None:
            self._oldest_left = max(self._oldest_left or 0.0, result.oldest)
        if failure is None:
            self._adapt_size(size, result, range_)
        else:
            self._leave_rows(failure, result, search)
        range_.resume = result.resume
        has_deleted = result.deleted and failure is None
        back = search.go_back() if has_deleted or range_.resume is None else None
        if back is not None:
            range_.resume, left = back
            self._skips -= Counter(left.skipped)
            range_.skips -= Counter(left.skipped)
        elif range_.resume is None and self._ranges is not None:
            self._skips -= self._ranges.end(range_)

    def _adapt_size(self, size: int, result: BatchResult, range_: Range) -> None:
        """Choose the size of the next batch by one that succeeded."""
        search = range_.search
        has_done = result.deleted or result.skipped or result.referring
        if not has_done and result.resume == range_.resume is not None:
            raise StoreError(f"The store makes no progress: {result!r} for {size} rows.")
        # A batch that ended before it was full says nothing about the time of others, and one that
        # a limit made small only whether even that was too many.
        is_sized = not range_.part.whole
        if is_sized and result.resume is not None and search.limit is None:
            fit = self._settings.pace.next(size, result.elapsed)
            if size >= self._size or fit < size:
                self._size = fit
            if self._loads:
                self._size = loadable(self._size, result.deleted, result.loaded)
        if result.deleted and is_sized:
            search.grow(self._size)

    def _leave_rows(
        self, failure: HookError | RefusedError, result: BatchResult, search: CulpritSearch
    ) -> None:
        """Name the culprit if the rows that are left are a single one; note a hook's error."""
        if sum(result.skipped.values()) == 1 and len(self._left) < NAMED:
            key = ", ".join(map(repr, result.left[0])) if result.left else "?"
            self._left.setdefault(f"({key}): {in_one_line(failure)}")
        if isinstance(failure, HookError):
            self._problem = self._problem or failure
            if search.cap(self._size) == self._size:
                raise failure  # whatever rows there are

    def end(self, halt: Halt | None) -> Plan[None]:
        """Make the report; `halt` is why the whole sweep ended early, None if it didn't."""
        if self._is_off:
            return
        if not self.is_over:
            yield from self._break_off(halt)
        counted = self._counted
        facts = _among(self._deleted, self._facts)
        if counted is not None:
            facts = {**_among(counted.due, of_rows(counted.facts)), **facts}
        self.report = TargetReport(
            self._target,
            deleted=self._deleted,
            archived=self._archived,
            skips=dict(self._skips),
            left=tuple(self._left),
            notes=tuple(self._notes),
            referring=dict(self._referring),
            batches=self._batches,
            duration=self._duration,
            oldest_before=self._oldest_before,
            oldest_after=self._after,
            due=None if counted is None else counted.due,
            rows=None if counted is None else counted.rows,
            error=self._problem,
            missing=self._is_missing,
            workers=self._workers,
            facts=facts,
        )
        if self._problem is None and (counted is not None or self._is_complete):
            due = self._deleted + self._skips.total() if counted is None else counted.due
            self._history.add(self._target, due)
        self._history.add_rate(self._target, self._deleted, self._duration)

    @_step
    def _break_off(self, halt: Halt | None) -> Plan[None]:
        """Find how old the remaining rows are, where the sweep has ended early."""
        if not self._batches:
            return
        self._after = self._oldest
        if halt is not None and halt.ending in LIMITS:
            try:
                due = yield from self._find_due()
            except StoreError:
                return
            if due is not None and due.oldest is not None:
                self._after = due.oldest

    @property
    def _oldest_before(self) -> float | None:
        if self.overdue is not None:
            return self.overdue
        if not self._is_complete:
            return self._oldest
        if self._counted is not None:
            return self._counted.oldest if self._counted.due else 0.0
        return self._oldest if self._deleted + self._skips.total() else 0.0

    @property
    def _is_complete(self) -> bool:
        return self.is_over and self._problem is None and not self._is_missing


class Ranges:
    """The ranges that are left to purge, in order."""

    def __init__(self, ranges: Iterable[Range] = ()) -> None:
        self._ranges = list(ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    def next(self, running: Collection[Range]) -> Range | None:
        """Return the range of the next batch; None while that has to wait for running ones.

        A range whose batch failed while others ran comes first, and alone. Parts are not mixed.
        """
        range_ = next((range_ for range_ in self._ranges if range_.error), None)
        if range_ is None:
            part = self._ranges[0].part
            free = (other for other in self._ranges if other not in running and other.part == part)
            range_ = next(free, None)
        if range_ is None or (running and not range_.is_shareable):
            return None
        return range_

    def count(self, part: Part) -> int:
        """Return the number of ranges of a part."""
        return sum(range_.part == part for range_ in self._ranges)

    def divide(self, range_: Range, marks: Sequence[object]) -> None:
        """Divide a range at marks that lie in it."""
        if not marks:
            return
        ends = [*marks, range_.until]
        range_.begin, range_.until = range_.begin or range_.resume, ends[0]
        number = self._ranges.index(range_) + 1
        self._ranges[number:number] = [
            Range(range_.part, begin, end, begin=begin) for begin, end in pairwise(ends)
        ]

    def end(self, range_: Range) -> Counter[Skip]:
        """Remove a range that was purged; return those of its skips that must not be counted.

        A worker may have skipped rows that its neighbour had locked, such as the first one past
        its own end on InnoDB. Such a range is purged once more, when the others are done.
        """
        self._ranges.remove(range_)
        if range_.begin is None or not range_.skips[Skip.LOCKED]:
            return Counter()
        again = Range(range_.part, range_.begin, range_.until, is_again=True)
        self._ranges.insert(self.count(range_.part), again)
        return range_.skips


@dataclass(slots=True, eq=False)
class Range:
    """A part, or a worker's share of one, and how far it has been purged.

    Attributes:
        resume: Where its next batch begins; None at the beginning of a part.
        until: Where the next range begins; None at the end of a part.
        error: Why its last batch failed while others were running.
        skips: Rows that were skipped so far, by reason.
        begin: Where a range that was divided off begins; None for a part.
        is_again: Whether it is purged for the second time; then it stays undivided.
    """

    part: Part
    resume: object = None
    until: object = None
    search: CulpritSearch = field(default_factory=CulpritSearch)
    error: Exception | None = None
    skips: Counter[Skip] = field(default_factory=Counter)
    begin: object = None
    is_again: bool = False
    _patience: int = 1
    _batches: int = 0

    @property
    def is_shareable(self) -> bool:
        """Whether batches of other ranges may run at the same time as its next one.

        The first batch of a part is alone: a store may have to read what is the same for all. So is
        a range that is purged again: others would lock its rows again.
        """
        is_begun = self.resume is not None or self.until is not None
        is_alone = self.part.whole or self.part.last or self.is_again
        return is_begun and not is_alone and self.error is None

    def is_worth_dividing(self) -> bool:
        """Return whether to ask the store to divide it, which isn't done before each batch."""
        if self.is_again or self.search.limit is not None:
            return False
        self._batches += 1
        if self._batches < self._patience:
            return False
        self._batches, self._patience = 0, min(self._patience * 2, _LONGEST_PATIENCE)
        return True


def _among(rows: int, facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return facts as they are reported for so many rows in total."""
    return {name: fact.among(rows) for name, fact in facts.items()}
