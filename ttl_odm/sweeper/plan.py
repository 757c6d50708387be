"""The sweep as a plan: a generator that yields what to do next and receives the result.

It yields commands and receives replies; errors of the store are thrown into it. So every decision
(which batch, how large, whether to try again, when to stop) is made without a database, a clock or
a thread, and is the same for synchronous and asynchronous stores. `ttl_odm.sweeper.drive` carries
the commands out.

From top to bottom: one sweep or one after the other (`run_once`, `run_forever`), a `Run` with its
lease, and the order of the targets. The sweep of one target is in `target`; `batch_gate` has what
is checked between two batches, and the lease.
"""

from __future__ import annotations

from contextlib import suppress
from statistics import fmean
from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper.batch_gate import LOOK, BatchGate, Halt, Tenure
from ttl_odm.sweeper.commands import Emit, IsStopping, ListHooks, ListTargets, Now, Pause
from ttl_odm.sweeper.report import LIMITS, Ending, SweepReport
from ttl_odm.sweeper.stop import time_limit_of
from ttl_odm.sweeper.store import StoreError
from ttl_odm.sweeper.target import TargetSweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.sweeper.batch_gate import Claim
    from ttl_odm.sweeper.commands import Plan
    from ttl_odm.sweeper.options import Settings

CLOSED: Final = (Ending.PAUSED, Ending.WINDOW, Ending.STANDBY)
"""Endings of a sweep that only waits until it may begin."""

OPENS: Final = 10.0
"""The most seconds between two checks whether it may begin, or get the lease."""

STANDBY: Final = 1.0
"""The fewest seconds between two attempts to get a lease that another sweeper holds."""

SHORTEST: Final = 0.05
"""Seconds that even the shortest interval lasts."""

LEAST: Final = 0.1
"""The smallest share that a target gets, in relation to an equal one."""


def run_once(settings: Settings, claim: Claim | None = None) -> Plan[SweepReport]:
    """Sweep every target once, unless another sweeper holds the lease; no claim needs none."""
    return (yield from Run(settings, claim, is_only=True).once())


def run_forever(
    settings: Settings, claim: Claim | None = None, *, interval: float, jitter: float
) -> Plan[SweepReport | None]:
    """Sweep again and again until the sweeper is stopped, and return the last report.

    The lease is kept between two sweeps, so that one of many sweepers does all of them and the
    others stand by. Each sweep's report is emitted; of successive sweeps that were not allowed to
    begin (paused, outside the window, at a standby) only the first. For the interval and its
    jitter see `Sweeper.run_forever`.
    """
    run = Run(settings, claim)
    last: SweepReport | None = None
    while not (yield from IsStopping()):
        report = yield from run.once()
        is_news = last is None or report.ended is not last.ended
        if report.ended is Ending.LEASE_HELD:
            # The lease ends then, unless it is renewed, or earlier if its holder releases it.
            wait = min(max(run.standby, STANDBY), OPENS) * (1 + jitter * settings.jitter())
        elif report.ended in CLOSED:
            wait = min(interval, OPENS)
        else:
            wait, is_news = interval * (1 + jitter * (2 * settings.jitter() - 1)), True
        if is_news and report.ended is not Ending.STOPPED:
            yield from Emit(report)
        last = report
        if report.ended is Ending.STANDBY and not settings.waits_at_standby:
            break
        yield from run.idle(max(wait, SHORTEST))
    return last


class Run:
    """A run of a sweeper, from taking its lease to releasing it.

    `is_only`: whether the run is a single sweep, whose end ends the lease.

    Attributes:
        standby: Seconds until the lease that another sweeper holds ends.
    """

    def __init__(self, settings: Settings, claim: Claim | None, *, is_only: bool = False) -> None:
        self._is_only = is_only
        self._settings = settings
        self._tenure = Tenure(claim)
        self.standby = 0.0

    def once(self) -> Plan[SweepReport]:
        """Take the lease unless this run holds it, and sweep; a dry run takes none."""
        began = yield from Now()
        gate = BatchGate(self._settings, self._tenure)
        held = None
        try:
            with suppress(StoreError):  # no sweep fails by that alone
                yield from gate.persist(gate.see_server)
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
                return  # it is lost, or in trouble: the next sweep will see

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
        """Sweep all targets; one that fails doesn't stop the others."""
        settings = self._settings
        sweeps: list[TargetSweep] = []
        ended, error = Ending.FINISHED, None
        try:
            yield from gate.begin(began)
            targets = yield from ListTargets()
            hooks = settings.hooks + (yield from ListHooks())
            history = yield from gate.persist(self._tenure.history)
            sweeps += (
                TargetSweep(target, settings, hooks, gate, history)
                for target in targets_after(history.last, targets)
            )
            is_shared = settings.limits.are_shared and not settings.dry_run
            halt = yield from _take_turns(sweeps, gate) if is_shared else _one_by_one(sweeps)
            if halt is None:
                history.last = None
            else:
                ended, error = halt.ending, halt.error
            yield from self._tenure.record(history, ends=self._is_only)
        except Halt as end:
            ended, error = end.ending, end.error
        except Exception as failure:  # of no target: a lease, a clock
            if time_limit_of(failure) is not None:
                raise
            ended, error = Ending.FAILED, failure
        return SweepReport(
            tuple(sweep.report for sweep in sweeps if sweep.report is not None),
            duration=(yield from Now()) - began,
            ended=ended,
            error=error,
            waited=gate.waited,
            dry_run=settings.dry_run,
        )


def targets_after(last: str | None, targets: Sequence[str]) -> list[str]:
    """Return the targets from the one after `last` on, then the others.

    `last` is the target of the last batch of a sweep that ended early, None otherwise. So a first
    target whose single batch takes longer than `max_seconds` doesn't keep the others from being
    swept.
    """
    first = targets.index(last) + 1 if last in targets else 0
    return [*targets[first:], *targets[:first]]


def _one_by_one(sweeps: Sequence[TargetSweep]) -> Plan[Halt | None]:
    """Sweep each target to its end; return why the sweep ended early, None if it didn't.

    After a limit, which a dry run may reach, the other targets still report what is due.
    """
    halt = None
    for sweep in sweeps:
        try:
            yield from sweep.begin()
            if not sweep.is_over:
                yield from sweep.go_on()
        except Halt as end:
            halt = end
        yield from sweep.end(halt)
        if halt is not None and halt.ending not in LIMITS:
            break
    return halt


def _take_turns(sweeps: Sequence[TargetSweep], gate: BatchGate) -> Plan[Halt | None]:
    """Let the targets share what the limits allow; return why the sweep ended early, or None.

    One by one, the first target would have all of `max_rows` or `max_seconds` as long as it has
    enough expired rows. So all are looked at first, and get shares by how long their oldest rows
    have been expired. The rest of a target's share goes to the others, until nothing is left.
    """
    halt = None
    begun: list[TargetSweep] = []
    try:
        for sweep in sweeps:
            begun.append(sweep)
            yield from sweep.begin()
        waiting = [sweep for sweep in sweeps if not sweep.is_over]
        while waiting:
            weights = weights_of([sweep.overdue for sweep in waiting])
            for number, sweep in enumerate(waiting):
                yield from gate.begin_turn(weights[number] / sum(weights[number:]))
                yield from sweep.go_on()
            waiting = [sweep for sweep in waiting if not sweep.is_over]
    except Halt as end:
        halt = end
    for sweep in begun:
        yield from sweep.end(halt)
    return halt


def weights_of(overdue: Sequence[float | None]) -> list[float]:
    """Return the relative shares of targets that are so many seconds overdue; None if unknown."""
    known = [seconds for seconds in overdue if seconds is not None]
    usual = fmean(known) if known else 1.0
    weights = [usual if seconds is None else seconds for seconds in overdue]
    least = LEAST * fmean(weights) or 1.0
    return [max(weight, least) for weight in weights]
