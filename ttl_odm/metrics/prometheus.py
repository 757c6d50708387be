"""What a sweeper does, as metrics of prometheus-client.

``metrics = SweeperMetrics("postgresql")``, then ``Sweeper(engine, Base,
on_progress=metrics.on_progress, on_report=metrics.on_report, on_server=metrics.on_server)``. Rows
count while a sweep runs; everything else when it has ended.

``JobMetrics`` is for databases that sweep by themselves: it asks them at each scrape.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ttl_odm.metrics.numbers import (
    JOB_NUMBERS,
    NUMBERS,
    FactSeries,
    of_jobs,
    of_progress,
    of_report,
    of_server,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from ttl_odm.metrics.numbers import Change, Reading
    from ttl_odm.sweeper import JobState, Number, Progress, Server, SweepReport


class SweeperMetrics:
    """The collectors, and the callbacks that fill them.

    Create one instance per registry: prometheus-client raises an error for a second one in the
    same registry.

    Args:
        backend: The value of the label ``backend``: ``postgresql``, ``mariadb``, ``sqlite``,
            ``mongodb``.
        registry: The registry to register them in.
    """

    def __init__(self, backend: str, registry: CollectorRegistry = REGISTRY) -> None:
        self._backend = backend
        self._registry = registry
        self._series = FactSeries()
        self._server: Server | None = None
        self._collectors = {number.name: _collector(number, registry) for number in NUMBERS}
        self._of_facts = Lock()

    def on_progress(self, progress: Progress) -> None:
        """Count a batch."""
        self._take(of_progress(progress))

    def on_report(self, report: SweepReport) -> None:
        """Count a sweep."""
        self._take(of_report(report))
        with self._of_facts:  # whose collectors are made when the first has such a number
            for number, labels, value in self._series.of(report):
                if number.name not in self._collectors:
                    self._collectors[number.name] = _collector(number, self._registry)
                self._take([(number.name, labels, value)])

    def on_server(self, server: Server) -> None:
        """Note which server answers."""
        self._take(of_server(server, self._server))
        self._server = server

    def _take(self, changes: Iterable[Change]) -> None:
        for name, labels, value in changes:
            collector, every = self._collectors[name], {**labels, "backend": self._backend}
            if value is None:  # absent, rather than an old one
                with suppress(KeyError):  # it was never there
                    collector.remove(*(every[label] for label in collector._labelnames))  # noqa: SLF001
                continue
            child = collector.labels(**every)
            if isinstance(child, Counter):
                child.inc(value)
            elif isinstance(child, Histogram):
                child.observe(value)
            else:
                child.set(value)


class ReadMetrics(Collector):
    """Numbers that are read when somebody asks, at each scrape.

    Args:
        numbers: Which: counters and gauges.
        read: Returns what they are, by their names and labels. If it raises an error, the scrape
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
        """The metrics' names, without reading."""
        return self._families().values()

    def collect(self) -> Iterable[Metric]:
        """Read."""
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
    """The jobs with which a database sweeps tables itself, read at each scrape.

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
    kind = Counter if number.kind == "counter" else Gauge
    return kind(name, number.about, labels, registry=registry)
