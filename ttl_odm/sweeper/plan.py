"""The sweep as a plan: a generator that says what to do next and gets what came of it.

It yields commands and gets replies; errors of the store are thrown into it. So everything that
is a decision (which batch, how large, whether to try again, when to stop) runs without a database,
a clock or a thread, and is the same for synchronous and asynchronous stores.
`ttl_odm.sweeper.drive` carries the commands out.

Here is the sweep over all targets, `turns` says in which order, and `target` has that of one;
`schedule` has sweep after sweep, `batch_gate` what is looked at between two batches, `tenure` the
lease, `fuse` and `pace` their arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.sweeper.batch_gate import LOOK, BatchGate
from ttl_odm.sweeper.commands import IsStopping, ListHooks, ListTargets, Now, Pause
from ttl_odm.sweeper.report import Ending, SweepReport
from ttl_odm.sweeper.store import StoreError
from ttl_odm.sweeper.target import TargetSweep
from ttl_odm.sweeper.tenure import Halt, Tenure
from ttl_odm.sweeper.turns import after, in_turns, to_the_end

if TYPE_CHECKING:
    from ttl_odm.sweeper.commands import Plan
    from ttl_odm.sweeper.options import Settings
    from ttl_odm.sweeper.tenure import Claim


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
                for target in after(history.last, targets)
            )
            is_shared = settings.limits.are_shared and not settings.dry_run
            halt = yield from in_turns(sweeps, gate) if is_shared else to_the_end(sweeps)
            if halt is None:
                history.last = None
            else:
                ended, error = halt.ending, halt.error
            yield from self._tenure.record(history)
        except Halt as end:
            ended, error = end.ending, end.error
        except Exception as failure:  # noqa: BLE001 (of no target: a lease, a clock)
            ended, error = Ending.FAILED, failure
        return SweepReport(
            tuple(sweep.report for sweep in sweeps if sweep.report is not None),
            duration=(yield from Now()) - began,
            ended=ended,
            error=error,
            waited=gate.waited,
            dry_run=settings.dry_run,
        )
