"""The sweep of one target: what is due, whether that is likely, batch after batch, what is left."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper.commands import CountDue, Emit, FindDue, Now, PurgeBatch, Tell
from ttl_odm.sweeper.report import Ending, Progress, TargetReport
from ttl_odm.sweeper.store import BatchRequest, StoreError
from ttl_odm.sweeper.tenure import Halt
from ttl_odm.sweeper.watch import ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ttl_odm.sweeper.commands import Plan
    from ttl_odm.sweeper.hooks import Hooks
    from ttl_odm.sweeper.options import Settings
    from ttl_odm.sweeper.phases import Phase
    from ttl_odm.sweeper.store import BatchResult, Counted, Part, Skip
    from ttl_odm.sweeper.watch import BatchGate

LIMITS: Final = (Ending.MAX_ROWS, Ending.MAX_SECONDS)
"""Ends of a sweep after which the targets are looked at, although nothing is deleted any more."""


class TargetSweep:
    """The sweep of one target, and what it has come to so far."""

    def __init__(
        self,
        target: str,
        settings: Settings,
        hooks: Hooks,
        watch: BatchGate,
        found: Sequence[int],
    ) -> None:
        self._target = target
        self._settings = settings
        self._hooks = hooks
        self._watch = watch
        self._found = found
        self._size = settings.pace.start
        self._deleted = 0
        self._archived = 0
        self._skips: Counter[Skip] = Counter()
        self._batches = 0
        self._counted: Counted | None = None
        self._problem: Exception | None = None
        self._is_complete = False
        self.report: TargetReport | None = None

    def run(self) -> Plan[None]:
        """Purge the target; `report` says what came of it, and stays None when its TTL is off.

        Raises:
            Halt: The whole sweep has to end. The report is there nevertheless.
        """
        began = yield from Now()
        before = after = halt = None
        try:
            due = yield from self._watch.persist(self._look)
            if due is None:
                return
            before = after = due.oldest
            if due.parts:
                yield from self._consider()
                after = yield from self._purge_all(due.parts, after)
            self._is_complete = True
        except Halt as end:
            halt, after = end, None if self._batches else before
        except Exception as failure:  # noqa: BLE001 (whatever it is, the other targets go on)
            self._problem, after = failure, None
        if halt is not None and halt.ending in LIMITS and self._batches:
            after = yield from self._age_left()
        ended = yield from Now()
        self.report = self._report(ended - began, before, after)
        if halt is not None:
            raise halt

    @property
    def found(self) -> int | None:
        """How many rows had expired, for the history; None when that isn't known."""
        if self._problem is not None:
            return None
        if self._counted is not None:
            return self._counted.due
        return self._deleted + self._skips.total() if self._is_complete else None

    def _look(self) -> FindDue:
        return FindDue(self._target)

    def _consider(self) -> Plan[None]:
        """Count, where the fuse or a dry run wants that, and let the fuse decide."""
        fuse, settings = self._settings.fuse, self._settings
        if fuse is None and not settings.dry_run:
            return
        self._counted = yield from self._watch.persist(lambda: CountDue(self._target))
        if fuse is not None and not settings.force:
            fuse.check(self._target, self._counted, self._found)

    def _purge_all(self, parts: Sequence[Part], before: float | None) -> Plan[float | None]:
        """Purge the parts, and return the age of the oldest expired row that is left."""
        if self._settings.dry_run:
            return before
        for part in parts:
            yield from self._purge(part)
        if before is not None and not self._skips:
            # Nothing is left. To look would be to walk over all that was just deleted.
            return 0.0
        due = yield from self._watch.persist(self._look)
        return None if due is None else due.oldest

    def _age_left(self) -> Plan[float | None]:
        try:
            due = yield from self._look()
        except StoreError:
            return None
        return None if due is None else due.oldest

    def _purge(self, part: Part) -> Plan[None]:
        """Purge one part to its end."""
        resume: object = None
        failures = 0
        while True:
            yield from self._watch.clear()
            size, result = yield from self._purge_batch(part, resume)
            failures = failures + 1 if result.failure else 0
            if result.failure and failures == ATTEMPTS:
                raise result.failure
            if result.resume is None:
                # It ended before it was full, so it says nothing about the time that others take.
                return
            if not result.deleted and not result.skipped and result.resume == resume:
                raise StoreError(f"The store makes no progress: {result!r} for {size} rows.")
            if not result.failure:
                self._size = self._settings.pace.next(size, result.elapsed)
            resume = result.resume

    def _purge_batch(self, part: Part, resume: object) -> Plan[tuple[int, BatchResult]]:
        def batch() -> PurgeBatch:
            return PurgeBatch(
                BatchRequest(
                    self._target,
                    part,
                    self._watch.cap(self._size),
                    resume,
                    hooks=self._hooks,
                    timeout=self._settings.statement_timeout,
                    force=self._settings.force,
                )
            )

        def shrink() -> None:
            self._size = self._settings.pace.shrunk(self._size)

        result = yield from self._watch.persist(lambda: self._tried(batch()), shrink)
        size = self._watch.cap(self._size)  # as it was asked for: nothing has changed since
        self._watch.spend(result)
        self._batches += 1
        self._deleted += result.deleted
        self._archived += result.archived
        self._skips.update(result.skipped)
        self._problem = self._problem or result.failure
        after: Mapping[Phase, float] = yield from self._tell(result)
        yield from Emit(
            Progress(
                self._target,
                deleted=result.deleted,
                archived=result.archived,
                deleted_so_far=self._deleted,
                batch_size=size,
                elapsed=result.elapsed,
                phases={**result.phases, **after},
                error=result.failure,
            )
        )
        return size, result

    def _tried(self, batch: PurgeBatch) -> Plan[BatchResult]:
        """Try a batch once, and tell of it when the store raises."""
        began = yield from Now()
        try:
            return (yield from batch)
        except Exception as error:
            elapsed = (yield from Now()) - began
            size = batch.request.size
            yield from Emit(
                Progress(self._target, 0, self._deleted, size, elapsed=elapsed, error=error)
            )
            raise

    def _tell(self, result: BatchResult) -> Plan[Mapping[Phase, float]]:
        """Call the hooks after the commit; a failure is reported, and undoes nothing."""
        if not result.purged:
            return {}
        began = yield from Now()
        for purged in result.purged:
            try:
                yield from Tell(self._hooks, purged)
            except Exception as error:  # noqa: BLE001 (a HookError, or a bug in one: reported)
                self._problem = self._problem or error
        return {"after_commit": (yield from Now()) - began}

    def _report(self, duration: float, before: float | None, after: float | None) -> TargetReport:
        counted = self._counted
        return TargetReport(
            self._target,
            deleted=self._deleted,
            archived=self._archived,
            skips=dict(self._skips),
            batches=self._batches,
            duration=duration,
            oldest_before=before,
            oldest_after=after,
            due=None if counted is None else counted.due,
            rows=None if counted is None else counted.rows,
            error=self._problem,
        )
