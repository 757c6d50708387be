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
    """Add a task that sweeps once, and let the workers defer it periodically.

    The task fails when something of the sweep failed. It may run in any number of workers: the
    lease lets one of them work.

    Args:
        app: The application, or a blueprint of it.
        sweeper: What sweeps; a `Sweeper` does so in a thread.
        cron: When, in cron's five fields (a sixth is for seconds).
        name: Of the task, and its queueing lock, so that at most one waits.
        options: Of the task, as for ``app.task``: a queue, say. A ``lock`` is not what you want:
            the job of a worker that was killed keeps it, and no sweep would run any more.

    Returns:
        The task.

    Raises:
        TTLConfigurationError: `sweeper` is something else.
    """
    if not isinstance(sweeper, (Sweeper, AsyncSweeper)):
        raise TTLConfigurationError(
            f"add_sweep(app, {sweeper!r}): give a sweeper, such as AsyncSweeper(engine, Base)."
        )
    run_once: Any = sweeper.run_once

    # Periodic tasks get the instant at which they were due.
    def sweep(timestamp: int) -> dict[str, Any]:  # noqa: ARG001
        return _finished(run_once())

    async def sweep_async(timestamp: int) -> dict[str, Any]:  # noqa: ARG001
        return _finished(await run_once())

    settings: Any = {"queueing_lock": name, **options}
    task: Any = app.task(name=name, **settings)
    return app.periodic(cron=cron)(task(sweep if isinstance(sweeper, Sweeper) else sweep_async))


def _finished(report: SweepReport) -> dict[str, Any]:
    report.raise_for_failures()
    return report.to_dict()
