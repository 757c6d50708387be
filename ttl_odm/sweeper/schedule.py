"""Sweep after sweep: when the next one begins, and which of them are news.

A plan as `ttl_odm.sweeper.plan` has it, of a run's sweeps and the waits between them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper.commands import Emit, IsStopping
from ttl_odm.sweeper.plan import Run
from ttl_odm.sweeper.report import Ending

if TYPE_CHECKING:
    from ttl_odm.sweeper.commands import Plan
    from ttl_odm.sweeper.options import Settings
    from ttl_odm.sweeper.report import SweepReport
    from ttl_odm.sweeper.tenure import Claim

CLOSED: Final = (Ending.PAUSED, Ending.WINDOW)
"""Ends of a sweep that only wait for being allowed to begin."""

OPENS: Final = 10.0
"""Seconds between two looks at whether it may begin, or has the lease, at most."""

STANDBY: Final = 1.0
"""Seconds between two tries to get a lease that somebody else holds, at least."""

SHORTEST: Final = 0.05
"""Seconds that even the shortest interval lasts."""


def run_forever(
    settings: Settings, claim: Claim | None = None, *, interval: float, jitter: float
) -> Plan[SweepReport | None]:
    """Sweep again and again until somebody wants the sweeper to stop.

    The lease is kept between two sweeps, so that one of many sweepers does all of them and the
    others stand by. Each sweep's report is emitted; sweeps that were not allowed to begin (paused,
    outside the window) are emitted once for each stretch of them. For the interval and its jitter
    see `Sweeper.run_forever`. Run to its end the plan returns the last report.
    """
    run = Run(settings, claim)
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
