"""The sweep as a plan: a generator that says what to do next and is told what came of it.

It yields commands and gets replies; errors of the store are thrown into it. So everything that
is a decision (which batch, how large, whether to try again, when to stop) runs without a database,
a clock or a thread, and is the same for synchronous and asynchronous stores.
`ttl_odm.sweeper.drive` carries the commands out.

Here are the sweep over all targets and the two ways to run it; `targets` has one target, `watch`
what is looked at between two batches, `tenure` the lease, `fuse` and `limits` their arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper.commands import Emit, IsStopping, ListHooks, ListTargets, Now, Pause
from ttl_odm.sweeper.report import Ending, SweepReport
from ttl_odm.sweeper.store import StoreError
from ttl_odm.sweeper.targets import LIMITS, TargetSweep
from ttl_odm.sweeper.tenure import Halt, Tenure
from ttl_odm.sweeper.watch import LOOK, BatchGate

if TYPE_CHECKING:
    from ttl_odm.sweeper.commands import Plan
    from ttl_odm.sweeper.options import Settings
    from ttl_odm.sweeper.report import TargetReport
    from ttl_odm.sweeper.tenure import Claim

CLOSED: Final = (Ending.PAUSED, Ending.WINDOW)
"""Ends of a sweep that only wait for being allowed to begin."""

OPENS: Final = 10.0
"""Seconds between two looks at whether it may begin, or has the lease, at most."""

STANDBY: Final = 1.0
"""Seconds between two tries to get a lease that somebody else holds, at least."""

SHORTEST: Final = 0.05
"""Seconds that even the shortest interval lasts."""


def run_once(settings: Settings, claim: Claim | None = None) -> Plan[SweepReport]:
    """Sweep every target once, if nobody else is sweeping.

    Args:
        settings: How.
        claim: The lease to hold meanwhile; None for none.

    Returns:
        The plan; run to its end it returns what was done.
    """
    return (yield from _Run(settings, claim).once())


def run_forever(
    settings: Settings, claim: Claim | None = None, *, interval: float, jitter: float
) -> Plan[SweepReport | None]:
    """Sweep again and again until somebody wants the sweeper to stop.

    The lease is kept between two sweeps, so that one of many sweepers does all of them and the
    others stand by. Each sweep's report is emitted; sweeps that were not allowed to begin (paused,
    outside the window) are emitted once for each stretch of them.

    Args:
        settings: How to sweep.
        claim: The lease to hold; None for none.
        interval: Seconds between two sweeps, from the end of one to the beginning of the next.
        jitter: Share of the interval by which it varies at random, to either side.

    Returns:
        The plan; run to its end it returns the last report.
    """
    run = _Run(settings, claim)
    last: SweepReport | None = None
    while not (yield from IsStopping()):
        report = yield from run.once()
        is_news = last is None or report.ended is not last.ended
        if report.ended is Ending.LEASE_HELD:
            # It ends then at the latest, unless it is renewed. It may end before, when its holder
            # gives it back.
            wait = min(max(run.standby, STANDBY), OPENS) * (1 + jitter * settings.jitter())
        elif report.ended in CLOSED:
            wait = min(interval, OPENS)
        else:
            wait, is_news = interval * (1 + jitter * (2 * settings.jitter() - 1)), True
        if is_news and report.ended is not Ending.STOPPED:
            yield from Emit(report)
        last = report
        yield from run.idle(max(wait, SHORTEST))
    return last


class _Run:
    """A run of a sweeper, from taking its lease to giving it back."""

    def __init__(self, settings: Settings, claim: Claim | None) -> None:
        self._settings = settings
        self._tenure = Tenure(claim)
        self.standby = 0.0
        """Seconds until the lease that somebody else holds ends."""

    def once(self) -> Plan[SweepReport]:
        """Take the lease if it isn't ours already, and sweep; a dry run takes none."""
        began = yield from Now()
        watch = BatchGate(self._settings, self._tenure)
        held = None
        try:
            if not self._settings.dry_run:
                held = yield from watch.persist(self._tenure.take)
        except StoreError as error:
            return (yield from self._ended(began, Ending.FAILED, error))
        except Halt as halt:
            return (yield from self._ended(began, halt.ending, halt.error))
        if held is None:
            return (yield from _Sweep(self._settings, self._tenure, watch).run(began))
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


class _Sweep:
    """One pass over all targets; one that fails doesn't stop the others."""

    def __init__(self, settings: Settings, tenure: Tenure, watch: BatchGate) -> None:
        self._settings = settings
        self._tenure = tenure
        self._watch = watch
        self._reports: list[TargetReport] = []
        self._ended = Ending.FINISHED
        self._error: Exception | None = None

    def run(self, began: float) -> Plan[SweepReport]:
        """Sweep, and tell what came of it."""
        try:
            yield from self._watch.begin(began)
            yield from self._sweep()
        except Halt as halt:
            self._ended, self._error = halt.ending, halt.error
        except Exception as error:  # noqa: BLE001 (of no target: a lease, a clock)
            self._ended, self._error = Ending.FAILED, error
        now = yield from Now()
        return SweepReport(
            tuple(self._reports),
            duration=now - began,
            ended=self._ended,
            error=self._error,
            waited=self._watch.waited,
            dry_run=self._settings.dry_run,
        )

    def _sweep(self) -> Plan[None]:
        targets = yield from ListTargets()
        hooks = self._settings.hooks + (yield from ListHooks())
        history = yield from self._watch.persist(self._tenure.history)
        for target in targets:
            work = TargetSweep(target, self._settings, hooks, self._watch, history.of(target))
            try:
                yield from work.run()
            except Halt as halt:
                self._ended, self._error = halt.ending, halt.error
            if work.report is not None:
                self._reports.append(work.report)
                if work.found is not None:
                    history.add(target, work.found)
                history.note(target, work.report.deleted, work.report.duration)
            if self._ended not in (Ending.FINISHED, *LIMITS):
                break
        yield from self._tenure.record(history)
