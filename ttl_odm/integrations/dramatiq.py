"""Dramatiq: an actor that sweeps once. You send it yourself: Dramatiq has no scheduler.

This module must not know any database, nor any other integration.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import dramatiq

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import AsyncSweeper, Sweeper, SweepReport

if TYPE_CHECKING:
    from dramatiq import Actor, Broker

logger = logging.getLogger(__name__)

NAME: Final = "ttl_odm_sweep"


def add_sweep(
    broker: Broker, sweeper: Sweeper | AsyncSweeper, *, name: str = NAME, **options: Any
) -> Actor[..., object]:
    """Add an actor that sweeps once; it fails if any part of the sweep failed.

    It may run in any number of workers: the lease lets only one of them work.

    Args:
        broker: The broker.
        sweeper: The sweeper. Set its ``max_seconds`` below the time limit of actors (ten minutes)
            so that no sweep hits it. An `AsyncSweeper` needs Dramatiq's `AsyncIO` middleware.
        name: The name of the actor.
        options: Options of the actor, as for `dramatiq.actor`, such as a queue.

    Returns:
        The actor: ``actor.send()``.

    Raises:
        TTLConfigurationError: `sweeper` isn't a suitable sweeper.
    """
    if not isinstance(sweeper, (Sweeper, AsyncSweeper)):
        raise TTLConfigurationError(
            f"add_sweep(broker, {sweeper!r}): pass a sweeper, such as Sweeper(engine, Base)."
        )
    run_once: Any = sweeper.run_once

    def run() -> None:
        _finish(run_once())

    async def run_async() -> None:
        _finish(await run_once())

    # No retries: the next sweep is one.
    settings: Any = {"max_retries": 0, **options}
    function: Any = run if isinstance(sweeper, Sweeper) else run_async
    return dramatiq.actor(broker=broker, actor_name=name, **settings)(function)


def _finish(report: SweepReport) -> None:
    report.raise_for_failures()
    logger.info("%s", report)
