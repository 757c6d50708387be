"""The sweep as a plan: a generator that says what to do next and gets what came of it.

It yields commands and gets replies; errors of the store are thrown into it. So everything that
is a decision (which batch, how large, whether to try again, when to stop) runs without a database,
a clock or a thread, and is the same for synchronous and asynchronous stores.
`ttl_odm.sweeper.drive` carries the commands out.

Here are the sweep over all targets and that of one; `schedule` has sweep after sweep, `batch_gate`
what is looked at between two batches, `tenure` the lease, `fuse` and `pace` their arithmetic.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper.batch_gate import LOOK, BatchGate
from ttl_odm.sweeper.commands import (
    CallHooks,
    CountDue,
    Emit,
    FindDue,
    IsStopping,
    ListHooks,
    ListTargets,
    Now,
    Pause,
    PurgeBatch,
)
from ttl_odm.sweeper.culprits import CulpritSearch
from ttl_odm.sweeper.hooks import HookError
from ttl_odm.sweeper.pace import FIRST_LOADED, fitting
from ttl_odm.sweeper.report import (
    LIMITS,
    Ending,
    Progress,
    SweepReport,
    TargetReport,
    in_one_line,
)
from ttl_odm.sweeper.store import BatchRequest, MissingTargetError, StoreError
from ttl_odm.sweeper.tenure import Halt, Tenure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ttl_odm.sweeper.commands import Plan
    from ttl_odm.sweeper.hooks import Hooks
    from ttl_odm.sweeper.options import Settings
    from ttl_odm.sweeper.phases import Phase
    from ttl_odm.sweeper.store import BatchResult, Counted, Due, Part, RefusedError, Skip
    from ttl_odm.sweeper.tenure import Claim, History

NAMED: Final = 10
"""Rows that a report names, of those that had to stay."""


def run_once(settings: Settings, claim: Claim | None = None) -> Plan[SweepReport]:
    """Sweep every target once, unless somebody else holds the lease; no claim asks for none."""
    return (yield from Run(settings, claim).once())


class Run:
    """A run of a sweeper, from taking its lease to giving it back."""

    def __init__(self, settings: Settings, claim: Claim | None) -> None:
        self._settings = settings
        self._tenure = Tenure(claim)
        self.standby = 0.0
        """Seconds until the lease that somebody else holds ends."""

    def once(self) -> Plan[SweepReport]:
        """Take the lease if it isn't ours already, and sweep; a dry run takes none."""
        began = yield from Now()
        gate = BatchGate(self._settings, self._tenure)
        held = None
        try:
            if not self._settings.dry_run:
                held = yield from gate.persist(self._tenure.take)
        except StoreError as error:
            return (yield from self._ended(began, Ending.FAILED, error))
        except Halt as halt:
            return (yield from self._ended(began, halt.ending, halt.error))
        if held is None:
            return (yield from self._sweep(began, gate))
        self.standby = held.seconds_left
        return (yield from self._ended(began, Ending.LEASE_HELD, holder=held.holder))

    def idle(self, seconds: float) -> Plan[None]:
        """Wait until the next sweep, and keep the lease meanwhile."""
        step = min(LOOK, self._tenure.look_after or LOOK)
        while seconds > 0 and not (yield from IsStopping()):
            yield from Pause(min(seconds, step))
            seconds -= step
            try:
                yield from self._tenure.keep()
            except (Halt, StoreError):
                return  # it is lost, or in trouble: taking it again will tell

    def _ended(
        self,
        began: float,
        ending: Ending,
        error: Exception | None = None,
        holder: str | None = None,
    ) -> Plan[SweepReport]:
        now = yield from Now()
        return SweepReport(duration=now - began, ended=ending, error=error, holder=holder)

    def _sweep(self, began: float, gate: BatchGate) -> Plan[SweepReport]:
        """Pass over all targets; one that fails doesn't stop the others."""
        settings, reports = self._settings, []
        ended, error = Ending.FINISHED, None
        try:
            yield from gate.begin(began)
            targets = yield from ListTargets()
            hooks = settings.hooks + (yield from ListHooks())
            history = yield from gate.persist(self._tenure.history)
            for target in targets:
                sweep = _TargetSweep(target, settings, hooks, gate, history)
                try:
                    yield from sweep.run()
                except Halt as halt:
                    ended, error = halt.ending, halt.error
                if sweep.report is not None:
                    reports.append(sweep.report)
                if ended not in (Ending.FINISHED, *LIMITS):
                    break
            yield from self._tenure.record(history)
        except Halt as halt:
            ended, error = halt.ending, halt.error
        except Exception as failure:  # noqa: BLE001 (of no target: a lease, a clock)
            ended, error = Ending.FAILED, failure
        return SweepReport(
            tuple(reports),
            duration=(yield from Now()) - began,
            ended=ended,
            error=error,
            waited=gate.waited,
            dry_run=settings.dry_run,
        )


class _TargetSweep:
    """The sweep of one target: what is due, whether that is likely, batch after batch, the rest.

    ``report`` is what came of it; None when the target's TTL is off.
    """

    def __init__(
        self, target: str, settings: Settings, hooks: Hooks, gate: BatchGate, history: History
    ) -> None:
        self.report: TargetReport | None = None
        self._target = target
        self._settings = settings
        self._hooks = hooks
        self._gate = gate
        self._history = history
        self._size = settings.pace.start
        self._deleted = 0
        self._archived = 0
        self._skips: Counter[Skip] = Counter()
        self._left: list[str] = []
        self._referring: Counter[str] = Counter()
        self._batches = 0
        self._oldest: float | None = None
        self._oldest_left: float | None = None
        """What the batches have met, where only reading the table tells: of all, and of those that
        have left rows behind."""
        self._counted: Counted | None = None
        self._problem: Exception | None = None
        self._is_complete = False
        self._is_missing = False
        self._loads = False

    def run(self) -> Plan[None]:
        """Purge the target, and report, also where a `Halt` ends the whole sweep."""
        began = yield from Now()
        before = after = halt = None
        try:
            due = yield from self._gate.persist(self._look)
            if due is None:
                return
            before = due.oldest
            after = yield from self._purge_parts(due)
            self._is_complete = True
        except Halt as end:
            halt, after = end, self._oldest if self._batches else before
        except MissingTargetError:
            self._is_missing, after = True, None
        except Exception as failure:  # noqa: BLE001 (whatever it is, the other targets go on)
            self._problem, after = failure, None
        if halt is not None and halt.ending in LIMITS and self._batches:
            try:
                due = yield from self._look()
            except StoreError:
                due = None
            after = self._oldest if due is None or due.oldest is None else due.oldest
        counted = self._counted
        if before is None and self._is_complete:  # the table was walked, or counted
            met = self._deleted + self._skips.total() if counted is None else counted.due
            oldest = self._oldest if counted is None else counted.oldest
            before = oldest if met else 0.0
        elif before is None:
            before = self._oldest
        self.report = TargetReport(
            self._target,
            deleted=self._deleted,
            archived=self._archived,
            skips=dict(self._skips),
            left=tuple(self._left),
            referring=dict(self._referring),
            batches=self._batches,
            duration=(yield from Now()) - began,
            oldest_before=before,
            oldest_after=after,
            due=None if counted is None else counted.due,
            rows=None if counted is None else counted.rows,
            error=self._problem,
            missing=self._is_missing,
        )
        self._remember(self.report)
        if halt is not None:
            raise halt

    def _look(self) -> FindDue:
        return FindDue(self._target)

    def _purge_parts(self, due: Due) -> Plan[float | None]:
        """Purge all parts, and return the age of the oldest expired row that is left.

        Where the fuse or a dry run wants it, the rows are counted first, and the fuse decides.
        """
        settings, fuse = self._settings, self._settings.fuse
        if due.parts and (settings.dry_run or fuse is not None):
            self._counted = yield from self._gate.persist(lambda: CountDue(self._target))
            if fuse is not None and not settings.force:
                fuse.check(self._target, self._counted, self._history.of(self._target))
        if not due.parts:
            return due.oldest
        if settings.dry_run:
            assert self._counted is not None  # noqa: S101 (for a dry run it was)
            return self._counted.oldest if due.oldest is None else due.oldest
        self._loads = due.loads_rows or self._hooks.wants_rows(self._target)
        if self._loads:
            self._size = min(self._size, FIRST_LOADED)
        for part in due.parts:
            yield from self._purge(part)
        if not self._skips:
            # Nothing is left. To look would be to walk over all that was just deleted.
            return 0.0
        rest = yield from self._gate.persist(self._look)
        return self._oldest_left if rest is None or rest.oldest is None else rest.oldest

    def _purge(self, part: Part) -> Plan[None]:
        """Purge one part to its end."""
        resume: object = None
        search = CulpritSearch()
        while True:
            yield from self._gate.clear()
            size, result = yield from self._purge_batch(part, resume, search)
            failure = result.failure
            if failure is None:
                self._learn(size, result, resume, search)
            elif search.leaves(resume, size, result):
                self._leave(failure, result, search)
            else:
                continue
            resume = result.resume
            has_gone = result.deleted and failure is None
            back = search.go_back() if has_gone or resume is None else None
            if back is not None:
                resume, left = back
                self._skips -= Counter(left.skipped)
            elif resume is None:
                return

    def _learn(self, size: int, result: BatchResult, began: object, search: CulpritSearch) -> None:
        """Count what a batch skipped, and choose the size of the next one by it."""
        if not result.deleted and not result.skipped and result.resume == began is not None:
            raise StoreError(f"The store makes no progress: {result!r} for {size} rows.")
        # A batch that ended before it was full says nothing about the time of others.
        if result.resume is not None and search.limit is None:
            self._size = self._settings.pace.next(size, result.elapsed)
            if self._loads:
                self._size = fitting(self._size, result.deleted, result.loaded)
        self._count_skips(result)
        if result.deleted:
            search.goes_on(self._size)

    def _count_skips(self, result: BatchResult) -> None:
        self._skips.update(result.skipped)
        if result.skipped and result.oldest is not None:
            self._oldest_left = max(self._oldest_left or 0.0, result.oldest)

    def _leave(
        self, failure: HookError | RefusedError, result: BatchResult, search: CulpritSearch
    ) -> None:
        """Count the rows of a batch that has to stay, and name the one that was found."""
        self._count_skips(result)
        if sum(result.skipped.values()) == 1 and len(self._left) < NAMED:
            key = ", ".join(map(repr, result.left[0])) if result.left else "?"
            self._left.append(f"({key}): {in_one_line(failure)}")
        if isinstance(failure, HookError):
            self._problem = self._problem or failure
            if search.cap(self._size) == self._size:
                raise failure  # whatever rows there are

    def _purge_batch(
        self, part: Part, resume: object, search: CulpritSearch
    ) -> Plan[tuple[int, BatchResult]]:
        """Purge one batch, with fewer rows if that fails, count it, and call the hooks."""

        def shrink() -> None:
            self._size = self._settings.pace.shrunk(self._size)

        attempt = partial(self._attempt, part, resume, search)
        size, result = yield from self._gate.persist(attempt, shrink)
        self._gate.spend(result)
        self._batches += 1
        self._deleted += result.deleted
        self._archived += result.archived
        self._referring.update(result.referring)
        if result.oldest is not None:
            self._oldest = max(self._oldest or 0.0, result.oldest)
        after: Mapping[Phase, float] = yield from self._call_hooks(result)
        yield from Emit(
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
            )
        )
        return size, result

    def _attempt(
        self, part: Part, resume: object, search: CulpritSearch
    ) -> Plan[tuple[int, BatchResult]]:
        """Purge as many rows as a batch may have now; return that number too."""
        size = self._gate.cap(search.cap(self._size))
        request = BatchRequest(
            self._target,
            part,
            size,
            resume,
            hooks=self._hooks,
            timeout=self._settings.statement_timeout,
            force=self._settings.force,
        )
        began = yield from Now()
        try:
            return size, (yield from PurgeBatch(request))
        except Exception as error:
            elapsed = (yield from Now()) - began
            counts = (0, self._deleted, size)
            yield from Emit(Progress(self._target, *counts, elapsed=elapsed, error=error))
            raise

    def _call_hooks(self, result: BatchResult) -> Plan[Mapping[Phase, float]]:
        """Call the hooks after the commit; a failure is reported, and undoes nothing."""
        if not result.purged:
            return {}
        began = yield from Now()
        for purged in result.purged:
            try:
                yield from CallHooks(self._hooks, purged)
            except Exception as error:  # noqa: BLE001 (a HookError, or a bug in one: reported)
                self._problem = self._problem or error
        return {"after_commit": (yield from Now()) - began}

    def _remember(self, report: TargetReport) -> None:
        """Note how many rows had expired, if that is known, and how fast the sweep was."""
        if self._problem is None and self._counted is not None:
            self._history.add(self._target, self._counted.due)
        elif self._problem is None and self._is_complete:
            self._history.add(self._target, self._deleted + self._skips.total())
        self._history.note(self._target, self._deleted, report.duration)
