"""What happens to events, as metrics of prometheus-client.

``metrics = EventMetrics("postgresql")``, then ``EventWorker(engine, Base,
on_delivered=metrics.on_delivered)``. ``OutboxMetrics`` asks the database at each scrape what
consumers haven't dealt with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter

from ttl_odm.events.metrics.numbers import DELIVERIES, OUTBOX_NUMBERS, of_delivered, of_states
from ttl_odm.metrics.prometheus import ReadMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import CollectorRegistry

    from ttl_odm.events.outbox import ConsumerState
    from ttl_odm.events.worker import Delivered


class EventMetrics:
    """The counter of a worker's deliveries, and the callback that fills it.

    Create one instance per registry: prometheus-client raises an error for a second one in the
    same registry. Several workers may share it.

    Args:
        backend: The value of the label ``backend``: ``postgresql``, ``mariadb``, ``sqlite``,
            ``mongodb``.
        registry: The registry to register in.
    """

    def __init__(self, backend: str, registry: CollectorRegistry = REGISTRY) -> None:
        self._backend = backend
        self._deliveries = Counter(
            f"ttl_odm_{DELIVERIES.name}",
            DELIVERIES.about,
            (*DELIVERIES.labels, "backend"),
            registry=registry,
        )

    def on_delivered(self, delivered: Delivered, consumer: str) -> None:
        """Count deliveries."""
        for labels, count in of_delivered(delivered, consumer):
            self._deliveries.labels(**labels, backend=self._backend).inc(count)


class OutboxMetrics(ReadMetrics):
    """What each consumer hasn't dealt with, read at each scrape.

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
