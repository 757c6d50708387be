"""The sweep of one target: what is due, whether that is likely, batch after batch, the rest.

It is taken in steps, since targets may take turns: see `ttl_odm.sweeper.turns`. What fails in one
is the target's own, and goes into its report; the other targets go on.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from ttl_odm.sweeper.commands import (
    AwaitBatch,
    Begin,
    CallHooks,
    CountDue,
    Divide,
    Emit,
    FindDue,
    Now,
    PurgeBatch,
)
from ttl_odm.sweeper.crew import SLOW, Crew
from ttl_odm.sweeper.facts import among, latest, of_rows
from ttl_odm.sweeper.hooks import HookError
from ttl_odm.sweeper.pace import FIRST_LOADED, fitting
from ttl_odm.sweeper.places import Place, Places
from ttl_odm.sweeper.report import LIMITS, Progress, TargetReport, in_one_line
from ttl_odm.sweeper.store import (
    BatchRequest,
    BatchResult,
    MissingTargetError,
    StoreError,
    TransientStoreError,
)
from ttl_odm.sweeper.tenure import Halt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ttl_odm.sweeper.batch_gate import BatchGate
    from ttl_odm.sweeper.commands import Plan
    from ttl_odm.sweeper.facts import Fact
    from ttl_odm.sweeper.hooks import Hooks
    from ttl_odm.sweeper.options import Settings
    from ttl_odm.sweeper.phases import Phase
    from ttl_odm.sweeper.store import Counted, Due, RefusedError, Skip
    from ttl_odm.sweeper.tenure import History

NAMED: Final = 10
"""Rows that a report names, of those that had to stay."""


class _AtWork(NamedTuple):
    """A batch that is under way, and since when, by a monotonic clock."""

    request: BatchRequest
    began: float


class TargetSweep:
    """The sweep of one target: what is due, whether that is likely, batch after batch, the rest.

    Attributes:
        report: What came of it; None before its end, and for a target whose TTL is off.
        is_over: Whether there is nothing more to do, or nothing that could be done.
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
        self._due: Due | None = None
        self._places: Places | None = None
        """What is left of the parts, once it is known that they may be purged."""
        self._crew = Crew(settings.workers)
        self._workers = 1
        self._at_work: dict[Place, _AtWork] = {}
        """Batches that are under way beside each other."""
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
        """What the batches have met, where only reading the table tells: of all, and of those that
        have left rows behind."""
        self._counted: Counted | None = None
        self._facts: dict[str, Fact] = {}
        """What was said of the target, and of the rows that were deleted."""
        self._problem: Exception | None = None
        self._after: float | None = None
        """Seconds since the first of the rows that are left expired."""
        self._is_off = False
        self._is_missing = False
        self._loads = False

    def begin(self) -> Plan[None]:
        """Look for what has expired."""
        yield from self._timed(self._begin)

    def go_on(self) -> Plan[None]:
        """Purge until nothing is left, or its turn is over: see `is_over`."""
        yield from self._timed(self._go_on)

    def end(self, halt: Halt | None) -> Plan[None]:
        """Report; ``halt`` says what has ended the whole sweep, None if nothing did."""
        if self._is_off:
            return
        if not self.is_over:
            yield from self._timed(lambda: self._break_off(halt))
        counted, before = self._counted, self.overdue
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
            notes=tuple(self._notes),
            referring=dict(self._referring),
            batches=self._batches,
            duration=self._duration,
            oldest_before=before,
            oldest_after=self._after,
            due=None if counted is None else counted.due,
            rows=None if counted is None else counted.rows,
            error=self._problem,
            missing=self._is_missing,
            workers=self._workers,
            facts={
                **({} if counted is None else of_rows(among(counted.due, counted.facts))),
                **among(self._deleted, self._facts),
            },
        )
        self._remember()

    @property
    def overdue(self) -> float | None:
        """Seconds since the first of its expired rows expired; None where nobody can tell."""
        return None if self._due is None else self._due.oldest

    @property
    def _is_complete(self) -> bool:
        return self.is_over and self._problem is None and not self._is_missing

    def _timed(self, step: Callable[[], Plan[None]]) -> Plan[None]:
        """Take a step; what fails in it is the target's, and only a `Halt` anybody else's."""
        began, halt = (yield from Now()), None
        try:
            yield from step()
        except Halt as end:
            halt = end
        except MissingTargetError:
            self._is_missing = self.is_over = True
            self._after = None
        except Exception as failure:  # noqa: BLE001 (whatever it is, the other targets go on)
            self._problem, self._after, self.is_over = failure, None, True
        self._duration += (yield from Now()) - began
        if halt is not None:
            raise halt

    def _begin(self) -> Plan[None]:
        self._due = yield from self._gate.persist(self._look)
        self._is_off = self._due is None
        self._facts = {} if self._due is None else dict(self._due.facts)
        self._after = self.overdue
        # A dry run says how many rows there are, also where none has expired.
        is_wanted = self._due is not None and (self._due.parts or self._settings.dry_run)
        self.is_over = not is_wanted

    def _go_on(self) -> Plan[None]:
        if self._places is None:
            self._places = yield from self._prepare()
        try:
            while self._places and (yield from self._gate.clear()):
                self._pause = 0.0
                yield from self._purge(self._places)
                yield from self._gate.wait(self._pause, "retry")
        except Exception:
            yield from self._take_in_all()
            raise
        yield from self._take_in_all()
        if self._places:
            return
        if self._skips:
            rest = yield from self._gate.persist(self._look)
            self._after = self._oldest_left if rest is None or rest.oldest is None else rest.oldest
        elif self._batches:
            # Nothing is left. To look would be to walk over all that was just deleted.
            self._after = 0.0
        self.is_over = True

    def _break_off(self, halt: Halt | None) -> Plan[None]:
        """See what is left where the sweep has ended before."""
        if not self._batches:
            return
        self._after = self._oldest
        if halt is not None and halt.ending in LIMITS:
            try:
                due = yield from self._look()
            except StoreError:
                return
            if due is not None and due.oldest is not None:
                self._after = due.oldest

    def _look(self) -> FindDue:
        return FindDue(self._target)

    def _prepare(self) -> Plan[Places]:
        """List the parts to purge, none for a dry run.

        Where the fuse or a dry run wants it, the rows are counted first, and the fuse decides.
        """
        assert self._due is not None  # noqa: S101 (else it would be over)
        due, settings, fuse = self._due, self._settings, self._settings.fuse
        if settings.dry_run or fuse is not None:
            self._counted = yield from self._gate.persist(
                lambda: CountDue(self._target, settings.dry_run)
            )
            if fuse is not None and not settings.force:
                fuse.check(self._target, self._counted, self._history.of(self._target))
        if settings.dry_run:
            if due.oldest is None and self._counted is not None:
                self._after = self._counted.oldest
            return Places()
        self._loads = due.loads_rows or self._hooks.wants_rows(self._target)
        if self._loads:
            self._size = min(self._size, FIRST_LOADED)
        return Places(map(Place, sorted(due.parts, key=lambda part: part.last)))

    def _purge(self, places: Places) -> Plan[None]:
        """Purge a batch, or begin as many as may run at once, and wait for one of them."""
        place = places.next(self._at_work)
        if place is not None and self._crew.size > 1 and place.may_have_company:
            yield from self._divide(places, place)
        has_company = place is not None and place.may_have_company and places.beside(place) > 1
        if place is not None and not self._at_work and not (has_company and self._crew.size > 1):
            size, result = yield from self._purge_batch(place)
            self._go_past(place, size, result)
            return
        while place is not None and len(self._at_work) < self._crew.size:
            promised = sum(batch.request.size for batch in self._at_work.values())
            size = self._gate.cap(place.search.cap(self._size), promised)
            if not size:
                break
            request = self._request(place, size)
            self._at_work[place] = _AtWork(request, (yield from Now()))
            yield from Begin(request)
            place = places.next(self._at_work)
        self._workers = max(self._workers, len(self._at_work))
        yield from self._take_in()

    def _divide(self, places: Places, place: Place) -> Plan[None]:
        """Cut a place, if there is none for everybody."""
        lacking = self._crew.size - places.beside(place)
        if lacking > 0 and place.asks_to_be_divided():
            try:
                marks = yield from Divide(self._request(place, self._size), lacking + 1)
            except TransientStoreError:
                return
            places.divide(place, marks)

    def _take_in(self) -> Plan[None]:
        """Wait for a batch that is under way, and count it.

        One that has failed is tried again alone.
        """
        request, reply = yield from AwaitBatch()
        place = next(each for each, batch in self._at_work.items() if batch.request is request)
        began, now = self._at_work.pop(place).began, (yield from Now())
        if isinstance(reply, Exception):
            yield from self._emit_failure(request.size, now - began, reply)
            place.error = reply
            return
        self._gate.spend(reply, period=(began, now))
        yield from self._count(request.size, reply)
        is_slow = self._settings.pace.next(self._size, reply.elapsed) < self._size * SLOW
        is_full = request.size == self._size and reply.resume is not None
        self._crew.take(reply.deleted, now, is_full=is_full, is_slow=is_slow)
        self._go_past(place, request.size, reply)

    def _take_in_all(self) -> Plan[None]:
        """Wait for all that are under way, whatever has ended the sweep."""
        while self._at_work:
            yield from self._take_in()

    def _go_past(self, place: Place, size: int, result: BatchResult) -> None:
        """Go on after a batch."""
        search, failure = place.search, result.failure
        if failure is None:
            self._learn(size, result, place)
        elif search.leaves(place.resume, size, result):
            self._leave(failure, result, place)
        else:
            return
        place.resume = result.resume
        has_gone = result.deleted and failure is None
        back = search.go_back() if has_gone or place.resume is None else None
        if back is not None:
            place.resume, left = back
            self._skips -= Counter(left.skipped)
            place.skips -= Counter(left.skipped)
        elif place.resume is None and self._places is not None:
            self._skips -= self._places.end(place)

    def _learn(self, size: int, result: BatchResult, place: Place) -> None:
        """Count what a batch skipped, and choose the size of the next one by it."""
        began, search = place.resume, place.search
        has_done = result.deleted or result.skipped or result.referring
        if not has_done and result.resume == began is not None:
            raise StoreError(f"The store makes no progress: {result!r} for {size} rows.")
        # A batch that ended before it was full says nothing about the time of others, and one that
        # a limit made small only whether even that was too many.
        is_sized = not place.part.whole
        if is_sized and result.resume is not None and search.limit is None:
            fit = self._settings.pace.next(size, result.elapsed)
            if size >= self._size or fit < size:
                self._size = fit
            if self._loads:
                self._size = fitting(self._size, result.deleted, result.loaded)
        self._count_skips(result, place)
        if result.deleted and is_sized:
            search.goes_on(self._size)

    def _count_skips(self, result: BatchResult, place: Place) -> None:
        self._skips.update(result.skipped)
        place.skips.update(result.skipped)
        if result.skipped and result.oldest is not None:
            self._oldest_left = max(self._oldest_left or 0.0, result.oldest)

    def _leave(self, failure: HookError | RefusedError, result: BatchResult, place: Place) -> None:
        """Count the rows of a batch that has to stay, and name the one that was found."""
        self._count_skips(result, place)
        if sum(result.skipped.values()) == 1 and len(self._left) < NAMED:
            key = ", ".join(map(repr, result.left[0])) if result.left else "?"
            self._left.setdefault(f"({key}): {in_one_line(failure)}")
        if isinstance(failure, HookError):
            self._problem = self._problem or failure
            if place.search.cap(self._size) == self._size:
                raise failure  # whatever rows there are

    def _purge_batch(self, place: Place) -> Plan[tuple[int, BatchResult]]:
        """Purge one batch, with fewer rows if that fails, and count it."""

        def shrink() -> None:
            self._size = self._settings.pace.shrunk(self._size)

        size, result = yield from self._gate.persist(lambda: self._attempt(place), shrink)
        self._gate.spend(result, is_whole=place.part.whole)
        yield from self._count(size, result)
        return size, result

    def _count(self, size: int, result: BatchResult) -> Plan[None]:
        """Count a batch that came back, call the hooks, and report it."""
        self._pause = max(self._pause, result.pause)
        self._history.last = self._target
        self._batches += 1
        self._deleted += result.deleted
        self._archived += result.archived
        self._referring.update(result.referring)
        self._notes.update(dict.fromkeys(result.notes))
        self._facts = latest(self._facts, result.facts)
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
                facts=among(result.deleted, result.facts),
            )
        )

    def _attempt(self, place: Place) -> Plan[tuple[int, BatchResult]]:
        """Purge as many rows as a batch may have now; return that number too."""
        if place.error is not None:  # of a batch beside others, which was the first attempt
            error, place.error = place.error, None
            raise error
        size = self._gate.cap(place.search.cap(self._size))
        began = yield from Now()
        try:
            return size, (yield from PurgeBatch(self._request(place, size)))
        except Exception as error:
            yield from self._emit_failure(size, (yield from Now()) - began, error)
            raise

    def _request(self, place: Place, size: int) -> BatchRequest:
        return BatchRequest(
            self._target,
            place.part,
            size,
            place.resume,
            hooks=self._hooks,
            timeout=self._settings.statement_timeout,
            force=self._settings.force,
            replicate=self._settings.replicate,
            until=place.until,
        )

    def _emit_failure(self, size: int, elapsed: float, error: Exception) -> Emit:
        counts = (0, self._deleted, size)
        return Emit(Progress(self._target, *counts, elapsed=elapsed, error=error))

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

    def _remember(self) -> None:
        """Note how many rows had expired, if that is known, and how fast the sweep was."""
        if self._problem is None and self._counted is not None:
            self._history.add(self._target, self._counted.due)
        elif self._problem is None and self._is_complete:
            self._history.add(self._target, self._deleted + self._skips.total())
        self._history.note(self._target, self._deleted, self._duration)
