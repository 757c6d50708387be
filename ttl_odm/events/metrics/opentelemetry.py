"""Metrics of events for OpenTelemetry.

``telemetry = EventTelemetry("postgresql")``, then ``EventWorker(engine, Base,
on_delivered=telemetry.on_delivered, on_report=telemetry.on_report)``. ``OutboxTelemetry`` reads the
states of consumers from the database at each collection. It needs opentelemetry-api only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.metrics import get_meter

from ttl_odm import __version__
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
from ttl_odm.metrics.opentelemetry import ReadTelemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.metrics import MeterProvider

    from ttl_odm.events.outbox import ConsumerState
    from ttl_odm.events.worker import Delivered
    from ttl_odm.metrics.numbers import Reading
    from ttl_odm.sweeper import SweepReport

_NAME = "ttl_odm"


class EventTelemetry:
    """The instruments of a worker's deliveries and sweeps, and the callbacks that fill them.

    Args:
        backend: The attribute ``backend``: ``postgresql``, ``mariadb``, ``sqlite``, ``mongodb``.
        meter_provider: The provider of the meter; None for the global one.
    """

    def __init__(self, backend: str, *, meter_provider: MeterProvider | None = None) -> None:
        self._backend = backend
        meter = get_meter(_NAME, __version__, meter_provider=meter_provider)
        self._deliveries, self._failures = (
            meter.create_counter(f"{_NAME}.{number.name}", "1", number.about)
            for number in (DELIVERIES, FAILURES)
        )
        self._swept: list[Reading] = []
        ReadTelemetry((SWEPT,), lambda: self._swept, backend, meter_provider)

    def on_delivered(self, delivered: Delivered, consumer: str) -> None:
        """Count deliveries."""
        for labels, count in of_delivered(delivered, consumer):
            self._deliveries.add(count, {**labels, "backend": self._backend})

    def on_report(self, report: SweepReport) -> None:
        """Count a sweep's failures, and note when it was."""
        for labels, count in of_failures(report):
            self._failures.add(count, {**labels, "backend": self._backend})
        self._swept = of_sweep(report) or self._swept


class OutboxTelemetry(ReadTelemetry):
    """The numbers of events that consumers haven't dealt with, read at each collection.

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
