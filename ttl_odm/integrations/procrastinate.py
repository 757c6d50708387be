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
    settings: Any = {"queueing_lock": name, **options}
    task: Any = app.task(name=name, **settings)
    return app.periodic(cron=cron)(task(_sweep_of(sweeper)))


def _sweep_of(sweeper: Any) -> Any:
    # Periodic tasks get the instant at which they were due.
    def sweep(timestamp: int) -> dict[str, Any]:  # noqa: ARG001
        return _finished(sweeper.run_once())

    async def sweep_async(timestamp: int) -> dict[str, Any]:  # noqa: ARG001
        return _finished(await sweeper.run_once())

    if isinstance(sweeper, (Sweeper, AsyncSweeper)):
        return sweep if isinstance(sweeper, Sweeper) else sweep_async
    raise TTLConfigurationError(
        f"add_sweep(app, {sweeper!r}): give a sweeper, such as AsyncSweeper(engine, Base)."
    )


def _finished(report: SweepReport) -> dict[str, Any]:
    report.raise_for_failures()
    return report.to_dict()
