"""Procrastinate: a periodic task that sweeps once.

This module must not know any database, nor any other integration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import AsyncSweeper, Sweeper, SweepReport

if TYPE_CHECKING:
    from procrastinate import App, Blueprint

NAME: Final = "ttl_odm.sweep"
CRON: Final = "*/5 * * * *"


def add_sweep(
    app: App | Blueprint,
    sweeper: Sweeper | AsyncSweeper,
    *,
    cron: str = CRON,
    name: str = NAME,
    **options: Any,
) -> Any:
    """Add a task that sweeps once, and have the workers defer it periodically.

    The task fails if any part of the sweep failed. It may run in any number of workers: the lease
    lets only one of them work.

    Args:
        app: The application, or one of its blueprints.
        sweeper: The sweeper; a `Sweeper` runs in a thread.
        cron: The schedule, in cron's five fields (an optional sixth is for seconds).
        name: The name of the task and of its queueing lock, which lets at most one job wait.
        options: Options of the task, as for ``app.task``, such as a queue. Don't set a ``lock``:
            the job of a killed worker would keep it, and no sweep would run again.

    Returns:
        The task.

    Raises:
        TTLConfigurationError: `sweeper` isn't a suitable sweeper.
    """
    if not isinstance(sweeper, (Sweeper, AsyncSweeper)):
        raise TTLConfigurationError(
            f"add_sweep(app, {sweeper!r}): pass a sweeper, such as AsyncSweeper(engine, Base)."
        )
    run_once: Any = sweeper.run_once

    # Periodic tasks get the instant at which they were due.
    def sweep(timestamp: int) -> dict[str, object]:  # noqa: ARG001
        return _finished(run_once())

    async def sweep_async(timestamp: int) -> dict[str, object]:  # noqa: ARG001
        return _finished(await run_once())

    settings: Any = {"queueing_lock": name, **options}
    task: Any = app.task(name=name, **settings)
    return app.periodic(cron=cron)(task(sweep if isinstance(sweeper, Sweeper) else sweep_async))


def _finished(report: SweepReport) -> dict[str, object]:
    report.raise_for_failures()
    return report.to_dict()
