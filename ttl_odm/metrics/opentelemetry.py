"""A sweeper's metrics and spans for OpenTelemetry.

``telemetry = SweeperTelemetry("postgresql")``, then ``Sweeper(engine, Base,
on_progress=telemetry.on_progress, on_report=telemetry.on_report, on_server=telemetry.on_server)``.
It needs opentelemetry-api only; without an SDK nothing is collected, and nothing fails.

Each batch is a span, with OpenTelemetry's stable attributes for databases; a failed one has the
status ERROR and ``error.type``. A sweeper reports a batch when it is over, so the span is made
then, in the trace that is current at that moment.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from opentelemetry.metrics import CallbackOptions, Observation, get_meter
from opentelemetry.trace import SpanKind, StatusCode, get_tracer

from ttl_odm import __version__
from ttl_odm.metrics.numbers import JOB_NUMBERS, NUMBERS, Recorder, of_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from ttl_odm.metrics.numbers import Change, Reading
    from ttl_odm.sweeper import JobState, Number, Progress

_NAME = "ttl_odm"
_Labels = tuple[tuple[str, str], ...]


class SweeperTelemetry(Recorder):
    """The instruments, and the callbacks that fill them.

    Args:
        backend: ``postgresql``, ``mariadb``, ``sqlite``, ``mongodb``: the attribute ``backend`` of
            metrics, ``db.system.name`` of spans.
        meter_provider: The provider of the meter; None for the global one.
        tracer_provider: The provider of the tracer; None for the global one.
    """

    def __init__(
        self,
        backend: str,
        *,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        super().__init__(backend)
        self._tracer = get_tracer(_NAME, __version__, tracer_provider=tracer_provider)
        self._meter = get_meter(_NAME, __version__, meter_provider=meter_provider)
        self._gauges: dict[str, dict[_Labels, float]] = {}
        self._adders: dict[str, Callable[[Any, Any], None]] = {}
        for number in NUMBERS:
            self._prepare(number)

    def on_progress(self, progress: Progress) -> None:
        """Count a batch, and record its span."""
        super().on_progress(progress)
        ended = time.time_ns()
        span = self._tracer.start_span(
            f"DELETE {progress.table}",
            kind=SpanKind.CLIENT,
            start_time=ended - round(progress.elapsed * 1e9),
            attributes={
                "db.system.name": self._backend,
                "db.operation.name": "DELETE",
                "db.collection.name": progress.table,
                "ttl_odm.batch_size": progress.batch_size,
                "ttl_odm.rows_deleted": progress.deleted + sum(progress.referring.values()),
                "ttl_odm.rows_archived": progress.archived,
                **{f"ttl_odm.phase.{name}": took for name, took in progress.phases.items()},
            },
        )
        if progress.error is not None:
            span.set_attribute("error.type", _type_of(progress.error))
            span.set_status(StatusCode.ERROR, progress.problem)
        span.end(ended)

    def _take(self, changes: Iterable[Change]) -> None:
        for name, labels, value in changes:
            attributes = {**labels, "backend": self._backend}
            if name not in self._gauges:
                self._adders[name](value, attributes)
            elif value is None:  # none is better than an old one
                self._gauges[name].pop(tuple(attributes.items()), None)
            else:
                self._gauges[name][tuple(attributes.items())] = value

    def _prepare(self, number: Number) -> None:
        """Make an instrument, once: store a gauge's values, or the method that records a value."""
        if number.name in self._adders or number.name in self._gauges:
            return
        name = _name_of(number)
        unit, about = number.unit or "1", number.about
        if number.kind == "counter":
            self._adders[number.name] = self._meter.create_counter(name, unit, about).add
            return
        if number.kind == "histogram":
            self._adders[number.name] = self._meter.create_histogram(name, unit, about).record
            return
        values = self._gauges[number.name] = {}

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, dict(labels)) for labels, value in tuple(values.items())]

        self._meter.create_observable_gauge(name, [observe], unit, about)


class ReadTelemetry:
    """Numbers that are read at each collection.

    Args:
        numbers: The counters and gauges.
        read: Returns their values, by their names and labels. It is called once for each number.
        backend: The attribute ``backend``.
        meter_provider: The provider of the meter; None for the global one.
    """

    def __init__(
        self,
        numbers: Iterable[Number],
        read: Callable[[], Iterable[Reading]],
        backend: str,
        meter_provider: MeterProvider | None,
    ) -> None:
        self._read = read
        self._backend = backend
        meter = get_meter(_NAME, __version__, meter_provider=meter_provider)
        for number in numbers:
            is_counter = number.kind == "counter"
            make = meter.create_observable_counter if is_counter else meter.create_observable_gauge
            observe = partial(self._observe, number.name)
            make(_name_of(number), [observe], number.unit or "1", number.about)

    def _observe(self, observed: str, _: CallbackOptions) -> Iterable[Observation]:
        return [
            Observation(value, {**labels, "backend": self._backend})
            for name, labels, value in self._read()
            if name == observed
        ]


class JobTelemetry(ReadTelemetry):
    """The jobs by which a database sweeps tables itself, read at each collection.

    Args:
        backend: The attribute ``backend``: ``postgresql``, ``mariadb``, ``mysql``.
        read: Returns the jobs by their tables' names, such as ``lambda: database_jobs(engine,
            Base)`` of `ttl_odm.sqlalchemy`.
        meter_provider: The provider of the meter; None for the global one.
    """

    def __init__(
        self,
        backend: str,
        read: Callable[[], Mapping[str, JobState]],
        *,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        super().__init__(JOB_NUMBERS, lambda: of_jobs(read()), backend, meter_provider)


def _name_of(number: Number) -> str:
    """Return the name in OpenTelemetry.

    Exporters to Prometheus append the unit, so the name there is that of `Number`.
    """
    return f"{_NAME}.{number.name.removesuffix('_seconds')}"


def _type_of(error: BaseException) -> str:
    """Return the class of the error that was raised first: a driver's, or a hook's own."""
    while error.__cause__ is not None:
        error = error.__cause__
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
