"""What a sweeper does, as metrics of prometheus-client.

``metrics = SweeperMetrics("postgresql")``, then ``Sweeper(engine, Base,
on_progress=metrics.on_progress, on_report=metrics.on_report)``. Rows count while a sweep runs;
everything else when it has ended.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Counter, Gauge, Histogram

from ttl_odm.metrics.numbers import NUMBERS, ScopeLabels, of_progress, of_report

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ttl_odm.metrics.numbers import Changes, Number
    from ttl_odm.sweeper import Progress, SweepReport


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
        self._scopes = ScopeLabels()
        self._collectors = {number.name: _collector(number, registry) for number in NUMBERS}

    def on_progress(self, progress: Progress) -> None:
        """Count a batch."""
        self._take(of_progress(progress))

    def on_report(self, report: SweepReport) -> None:
        """Count a sweep."""
        self._take(of_report(report, self._scopes))

    def _take(self, changes: Changes) -> None:
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


def _collector(number: Number, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    name, labels = f"ttl_odm_{number.name}", (*number.labels, "backend")
    if number.kind == "histogram":
        return Histogram(name, number.about, labels, buckets=number.buckets, registry=registry)
    kind = Counter if number.kind == "counter" else Gauge
    return kind(name, number.about, labels, registry=registry)
