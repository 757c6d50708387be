"""What happens to events, as metrics of prometheus-client.

``metrics = EventMetrics("postgresql")``, then ``EventWorker(engine, Base,
on_delivered=metrics.on_delivered)``. ``OutboxMetrics`` asks the database at each scrape what
consumers haven't dealt with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ttl_odm.events.metrics.numbers import DELIVERIES, OUTBOX_NUMBERS, of_delivered, of_states

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

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


class OutboxMetrics(Collector):
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
        self._backend = backend
        self._read = read
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """The metrics' names, without asking the database."""
        return self._families().values()

    def collect(self) -> Iterable[Metric]:
        """Ask the database."""
        families = self._families()
        for name, labels, value in of_states(self._read()):
            families[name].add_metric([*labels.values(), self._backend], value)
        return families.values()

    @staticmethod
    def _families() -> dict[str, GaugeMetricFamily]:
        return {
            number.name: GaugeMetricFamily(
                f"ttl_odm_{number.name}", number.about, labels=[*number.labels, "backend"]
            )
            for number in OUTBOX_NUMBERS
        }
