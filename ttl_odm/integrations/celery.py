"""Celery: a task that sweeps once, and its beat entry.

This module must not know any database, nor any other integration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import Sweeper
from ttl_odm.sweeper.options import scheduled

if TYPE_CHECKING:
    from celery import Celery  # type: ignore[import-untyped]

NAME: Final = "ttl_odm.sweep"
EVERY: Final = 300.0


def add_sweep(
    app: Celery, sweeper: Sweeper, *, every: Any = EVERY, name: str = NAME, **options: Any
) -> Any:
    """Add a task that sweeps once, and let the beat send it.

    The task returns the report as plain values, and fails if any part of the sweep failed. It may
    run in any number of workers: the lease lets only one of them work.

    Args:
        app: The Celery application.
        sweeper: The sweeper. Set its ``max_seconds`` below the task's time limits so that no sweep
            hits them.
        every: Seconds or a timedelta between sweeps, or a Celery schedule such as a ``crontab``;
            None for no beat entry.
        name: The name of the task and of the beat entry.
        options: Options of the task, as for ``app.task``, such as a ``soft_time_limit``.

    Returns:
        The task.

    Raises:
        TTLConfigurationError: `sweeper` isn't a suitable sweeper, such as an AsyncSweeper, or
            `every` isn't greater than 0.
    """
    if not isinstance(sweeper, Sweeper):
        raise TTLConfigurationError(
            f"add_sweep(app, {sweeper!r}): pass a Sweeper, because Celery's tasks are "
            "synchronous. For an AsyncSweeper, write a task of your own: see docs/schedulers.md."
        )

    every = scheduled(every)

    def sweep() -> dict[str, object]:
        report = sweeper.run_once()
        report.raise_for_failures()
        return report.to_dict()

    # Not shared, or all other Celery applications of the process would have this task too.
    task = app.task(sweep, name=name, **{"shared": False, **options})
    if every is not None:
        # By its name: the task itself would read the configuration, which may be set later.
        # A message that no worker has taken when the next one is sent expires, so none pile up.
        expires = {"expires": every} if isinstance(every, (int, float)) else {}
        app.add_periodic_task(every, app.signature(name), name=name, **expires)
    return task
