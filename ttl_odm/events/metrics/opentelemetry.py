"""What happens to events, as metrics of OpenTelemetry.

``telemetry = EventTelemetry("postgresql")``, then ``EventWorker(engine, Base,
on_delivered=telemetry.on_delivered)``. ``OutboxTelemetry`` asks the database at each collection
what consumers haven't dealt with. It needs opentelemetry-api only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.metrics import get_meter

from ttl_odm import __version__
from ttl_odm.events.metrics.numbers import DELIVERIES, OUTBOX_NUMBERS, of_delivered, of_states
from ttl_odm.metrics.opentelemetry import ReadTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import MeterProvider

    from ttl_odm.events.outbox import ConsumerState
    from ttl_odm.events.worker import Delivered

_NAME = "ttl_odm"


class EventTelemetry:
    """The counter of a worker's deliveries, and the callback that fills it.

    Args:
        backend: The attribute ``backend``: ``postgresql``, ``mariadb``, ``sqlite``, ``mongodb``.
        meter_provider: The provider of the meter; None for the global one.
    """

    def __init__(self, backend: str, *, meter_provider: MeterProvider | None = None) -> None:
        self._backend = backend
        meter = get_meter(_NAME, __version__, meter_provider=meter_provider)
        name = f"{_NAME}.{DELIVERIES.name}"
        self._deliveries = meter.create_counter(name, "1", DELIVERIES.about)

    def on_delivered(self, delivered: Delivered, consumer: str) -> None:
        """Count deliveries."""
        for labels, count in of_delivered(delivered, consumer):
            self._deliveries.add(count, {**labels, "backend": self._backend})


class OutboxTelemetry(ReadTelemetry):
    """What each consumer hasn't dealt with, read at each collection.

    Args:
        backend: The attribute ``backend``: ``postgresql``, ``mariadb``, ``sqlite``, ``mongodb``.
        read: Returns the states of the consumers, such as ``lambda: consumer_states(engine)`` of
            `ttl_odm.events`. It is called once for each of the four metrics.
        meter_provider: The provider of the meter; None for the global one.
    """

    def __init__(
        self,
        backend: str,
        read: Callable[[], Iterable[ConsumerState]],
        *,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        super().__init__(OUTBOX_NUMBERS, lambda: of_states(read()), backend, meter_provider)
