"""A sweeper's metrics for prometheus-client.

``metrics = SweeperMetrics("postgresql")``, then ``Sweeper(engine, Base,
on_progress=metrics.on_progress, on_report=metrics.on_report, on_server=metrics.on_server)``. Rows
are counted while a sweep runs; everything else when it has ended.

``JobMetrics`` is for databases that sweep themselves: it queries them at each scrape.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.values import ValueClass

from ttl_odm.metrics.numbers import JOB_NUMBERS, NUMBERS, Recorder, of_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from ttl_odm.metrics.numbers import Change, Reading
    from ttl_odm.sweeper import JobState, Number


class SweeperMetrics(Recorder):
    """The collectors, and the callbacks that fill them.

    Create one instance per registry: prometheus-client raises an error for a second one in the
    same registry.

    Args:
        backend: The value of the label ``backend``: ``postgresql``, ``mariadb``, ``sqlite``,
            ``mongodb``.
        registry: The registry to register them in.
    """

    def __init__(self, backend: str, registry: CollectorRegistry = REGISTRY) -> None:
        super().__init__(backend)
        self._registry = registry
        self._collectors: dict[str, Counter | Gauge | Histogram] = {}
        for number in NUMBERS:
            self._prepare(number)

    def _prepare(self, number: Number) -> None:
        if number.name not in self._collectors:
            self._collectors[number.name] = _collector(number, self._registry)

    def _take(self, changes: Iterable[Change]) -> None:
        for name, labels, value in changes:
            collector = self._collectors[name]
            all_labels = {**labels, "backend": self._backend}
            if value is None:  # none is better than an old one
                _remove(collector, all_labels)
                continue
            child = collector.labels(**all_labels)
            if isinstance(child, Counter):
                child.inc(value)
            elif isinstance(child, Histogram):
                child.observe(value)
            else:
                child.set(value)


class ReadMetrics(Collector):
    """Numbers that are read at each scrape.

    Args:
        numbers: The counters and gauges.
        read: Returns their values, by their names and labels. If it raises an error, the scrape
            fails.
        backend: The value of the label ``backend``.
        registry: The registry to register in.
    """

    def __init__(
        self,
        numbers: Iterable[Number],
        read: Callable[[], Iterable[Reading]],
        backend: str,
        registry: CollectorRegistry,
    ) -> None:
        self._numbers = tuple(numbers)
        self._read = read
        self._backend = backend
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics' names, without reading."""
        return self._families().values()

    def collect(self) -> Iterable[Metric]:
        """Read the numbers."""
        families = self._families()
        for name, labels, value in self._read():
            families[name].add_metric([*labels.values(), self._backend], value)
        return families.values()

    def _families(self) -> dict[str, CounterMetricFamily | GaugeMetricFamily]:
        kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        return {
            number.name: kinds[number.kind](
                f"ttl_odm_{number.name}", number.about, labels=[*number.labels, "backend"]
            )
            for number in self._numbers
        }


class JobMetrics(ReadMetrics):
    """The jobs by which a database sweeps tables itself, read at each scrape.

    Args:
        backend: The value of the label ``backend``: ``postgresql``, ``mariadb``, ``mysql``.
        read: Returns the jobs by their tables' names, such as ``lambda: database_jobs(engine,
            Base)`` of `ttl_odm.sqlalchemy`. If it raises an error, the scrape fails.
        registry: The registry to register in.
    """

    def __init__(
        self,
        backend: str,
        read: Callable[[], Mapping[str, JobState]],
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        super().__init__(JOB_NUMBERS, lambda: of_jobs(read()), backend, registry)


def _collector(number: Number, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    name, labels = f"ttl_odm_{number.name}", (*number.labels, "backend")
    if number.kind == "histogram":
        return Histogram(name, number.about, labels, buckets=number.buckets, registry=registry)
    if number.kind == "counter":
        return Counter(name, number.about, labels, registry=registry)
    # In multi-process mode, a process that is gone has no lease any more, and leaves no rows.
    return Gauge(name, number.about, labels, registry=registry, multiprocess_mode="liveall")


def _remove(collector: Counter | Gauge | Histogram, labels: Mapping[str, str]) -> None:
    """Remove a series, if there is one."""
    values = tuple(labels[name] for name in collector._labelnames)  # noqa: SLF001 (their order)
    if values not in collector._metrics:  # noqa: SLF001
        return
    if ValueClass._multiprocess and isinstance(collector, Gauge):  # noqa: SLF001
        # The process's file keeps the last value for ever. No comparison with this one is true.
        collector.labels(*values).set(math.nan)
        return
    collector.remove(*values)
