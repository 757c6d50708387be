"""The metrics of events, and their values by a worker's callbacks and an outbox.

This module must not know any monitoring system.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper import Ending, Number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ttl_odm.events.outbox import ConsumerState
    from ttl_odm.events.worker import Delivered
    from ttl_odm.metrics.numbers import Reading
    from ttl_odm.sweeper import SweepReport

_NOT_DONE: Final = frozenset(
    {Ending.LEASE_HELD, Ending.LEASE_LOST, Ending.PAUSED, Ending.STANDBY, Ending.FAILED}
)

DELIVERIES: Final = Number(
    "event_deliveries",
    "counter",
    "Deliveries of events by this process: delivered, to be retried, or dead.",
    ("consumer", "outcome"),
)
"""Counts a worker's deliveries."""

FAILURES: Final = Number(
    "event_sweep_failures",
    "counter",
    "Sweeps of a table in which this process couldn't record all events that were due.",
    ("table",),
)
"""Counts the failures of a worker's sweeps."""

SWEPT: Final = Number(
    "event_sweep_timestamp_seconds",
    "gauge",
    "When this process last swept the tables with events, by this host's clock.",
    (),
    "s",
)
"""The instant of a worker's last sweep; without a value before the first one."""

OUTBOX_NUMBERS: Final = (
    Number("events_pending", "gauge", "Events that will be delivered.", ("consumer",)),
    Number(
        "events_retried",
        "gauge",
        "Of the pending events, those that were delivered before.",
        ("consumer",),
    ),
    Number(
        "events_dead",
        "gauge",
        "Events that failed too often and won't be delivered any more.",
        ("consumer",),
    ),
    Number(
        "events_lag_seconds",
        "gauge",
        "Seconds since the oldest pending event was recorded; 0 if none is pending.",
        ("consumer",),
        "s",
    ),
)
"""The metrics that are read from an outbox."""


def of_delivered(delivered: Delivered, consumer: str) -> Iterator[tuple[dict[str, str], int]]:
    """Yield the increments of `DELIVERIES` by labels; also 0, so that all labels exist."""
    counts = {
        "delivered": delivered.done,
        "retried": delivered.failed,
        "dead": delivered.dead,
    }
    for outcome, count in counts.items():
        yield {"consumer": consumer, "outcome": outcome}, count


def of_failures(report: SweepReport) -> Iterator[tuple[dict[str, str], int]]:
    """Yield the increments of `FAILURES` by labels; also 0, so that all tables exist."""
    for target in report.targets:
        yield {"table": target.table}, int(target.error is not None)


def of_sweep(report: SweepReport) -> list[Reading]:
    """Return the value of `SWEPT` after a sweep; empty if this process didn't sweep."""
    return [] if report.ended in _NOT_DONE else [(SWEPT.name, {}, time.time())]


def of_states(states: Iterable[ConsumerState]) -> Iterator[Reading]:
    """Yield the values of `OUTBOX_NUMBERS`."""
    for state in states:
        labels = {"consumer": state.consumer}
        yield "events_pending", labels, state.pending
        yield "events_retried", labels, state.retried
        yield "events_dead", labels, state.dead
        yield "events_lag_seconds", labels, state.lag
