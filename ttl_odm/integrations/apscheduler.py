"""APScheduler 3: a job that sweeps once.

This module must not know any database, nor any other integration.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from apscheduler.schedulers.asyncio import AsyncIOScheduler  # type: ignore[import-untyped]
from apscheduler.triggers.interval import IntervalTrigger  # type: ignore[import-untyped]

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import AsyncSweeper, Sweeper, SweepReport
from ttl_odm.sweeper.options import scheduled

if TYPE_CHECKING:
    from apscheduler.job import Job  # type: ignore[import-untyped]
    from apscheduler.schedulers.base import BaseScheduler  # type: ignore[import-untyped]

logger = logging.getLogger(__name__)

NAME: Final = "ttl_odm.sweep"
EVERY: Final = 300.0


def add_sweep(
    scheduler: BaseScheduler,
    sweeper: Sweeper | AsyncSweeper,
    *,
    every: Any = EVERY,
    name: str = NAME,
    **options: Any,
) -> Job:
    """Add a job that sweeps once; it fails if any part of the sweep failed.

    Args:
        scheduler: The scheduler, started or not.
        sweeper: The sweeper; an `AsyncSweeper` requires an `AsyncIOScheduler`.
        every: Seconds or a timedelta between sweeps, or an APScheduler trigger.
        name: The name and id of the job.
        options: Options of the job, as for ``scheduler.add_job``. A sweeper can't be stored in a
            persistent job store; if that is the default, pass the ``jobstore`` alias of one that
            keeps jobs in memory.

    Returns:
        The job.

    Raises:
        TTLConfigurationError: This scheduler can't run that sweeper, or `every` isn't greater
            than 0.
    """
    is_async = isinstance(sweeper, AsyncSweeper) and isinstance(scheduler, AsyncIOScheduler)
    if not (is_async or isinstance(sweeper, Sweeper)):
        raise TTLConfigurationError(
            f"add_sweep(scheduler, {sweeper!r}): pass a Sweeper, or an AsyncSweeper with an "
            f"AsyncIOScheduler; the scheduler is a {type(scheduler).__name__}."
        )
    run_once: Any = sweeper.run_once

    def job() -> None:
        _finish(run_once())

    async def async_job() -> None:
        _finish(await run_once())

    seconds = every = scheduled(every)  # annotated as int, but fractions work
    trigger = IntervalTrigger(seconds=seconds) if isinstance(every, (int, float)) else every
    defaults = {
        "coalesce": True,  # missed runs become one
        "max_instances": 1,
        "misfire_grace_time": None,  # late is better than never
        "replace_existing": True,
    }
    run = async_job if is_async else job
    return scheduler.add_job(run, trigger, id=name, name=name, **{**defaults, **options})


def _finish(report: SweepReport) -> None:
    report.raise_for_failures()
    logger.info("%s", report)
