"""Metrics of events for prometheus-client.

``metrics = EventMetrics("postgresql")``, then ``EventWorker(engine, Base,
on_delivered=metrics.on_delivered, on_report=metrics.on_report)``. ``OutboxMetrics`` reads the
states of consumers from the database at each scrape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter

from ttl_odm.events.metrics.numbers import (
    DELIVERIES,
    FAILURES,
    OUTBOX_NUMBERS,
    SWEPT,
    of_delivered,
    of_failures,
    of_states,
    of_sweep,
)
from ttl_odm.metrics.prometheus import ReadMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import CollectorRegistry

    from ttl_odm.events.outbox import ConsumerState
    from ttl_odm.events.worker import Delivered
    from ttl_odm.metrics.numbers import Reading
    from ttl_odm.sweeper import Number, SweepReport


class EventMetrics:
    """The collectors of a worker's deliveries and sweeps, and the callbacks that fill them.

    Create one instance per registry: prometheus-client raises an error for a second one in the
    same registry. Several workers may share it.

    Args:
        backend: The value of the label ``backend``: ``postgresql``, ``mariadb``, ``sqlite``,
            ``mongodb``.
        registry: The registry to register in.
    """

    def __init__(self, backend: str, registry: CollectorRegistry = REGISTRY) -> None:
        self._backend = backend
        self._deliveries = _counter(DELIVERIES, registry)
        self._failures = _counter(FAILURES, registry)
        self._swept: list[Reading] = []
        ReadMetrics((SWEPT,), lambda: self._swept, backend, registry)

    def on_delivered(self, delivered: Delivered, consumer: str) -> None:
        """Count deliveries."""
        for labels, count in of_delivered(delivered, consumer):
            self._deliveries.labels(**labels, backend=self._backend).inc(count)

    def on_report(self, report: SweepReport) -> None:
        """Count a sweep's failures, and note when it was."""
        for labels, count in of_failures(report):
            self._failures.labels(**labels, backend=self._backend).inc(count)
        self._swept = of_sweep(report) or self._swept


class OutboxMetrics(ReadMetrics):
    """The numbers of events that consumers haven't dealt with, read at each scrape.

    Args:
        backend: The value of the label ``backend``: ``postgresql``, ``mariadb``, ``sqlite``,
            ``mongodb``.
        read: Returns the states of the consumers, such as ``lambda: consumer_states(engine)`` of
            `ttl_odm.events`. If it raises an error, the scrape fails.
        registry: The registry to register in.
    """

    def __init__(
        self,
        backend: str,
        read: Callable[[], Iterable[ConsumerState]],
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        super().__init__(OUTBOX_NUMBERS, lambda: of_states(read()), backend, registry)


def _counter(number: Number, registry: CollectorRegistry) -> Counter:
    name, labels = f"ttl_odm_{number.name}", (*number.labels, "backend")
    return Counter(name, number.about, labels, registry=registry)
