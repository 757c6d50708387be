"""What a sweeper does, as metrics of prometheus-client.

``metrics = SweeperMetrics("postgresql")``, then ``Sweeper(engine, Base,
on_progress=metrics.on_progress, on_report=metrics.on_report)``. Rows count while a sweep runs;
everything else when it has ended. Labels have few values by design: tables, and fixed words.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import REGISTRY, Counter, Gauge, Histogram

from ttl_odm.sweeper import Ending

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ttl_odm.sweeper import Progress, SweepReport, TargetReport

_REASONS: Final = ("rest", "rate", "retry", "throttle")
_BATCHES: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_RUNS: Final = (0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)
_NOT_OURS: Final = (Ending.LEASE_HELD, Ending.LEASE_LOST)
_STANDING_BY: Final = (*_NOT_OURS, Ending.PAUSED, Ending.WINDOW)


class SweeperMetrics:
    """The collectors, and what fills them.

    One instance for each registry: a second one in the same registry is an error of
    prometheus-client's.

    Args:
        backend: The label of that name: ``postgresql``, ``mariadb``, ``sqlite``, ``mongodb``.
        registry: Where they are registered.
    """

    def __init__(self, backend: str, registry: CollectorRegistry = REGISTRY) -> None:
        self._backend = backend
        table = ("table", "backend")
        self._deleted = Counter(
            "ttl_odm_rows_deleted",
            "Rows deleted, archived ones included.",
            table,
            registry=registry,
        )
        self._archived = Counter(
            "ttl_odm_rows_archived", "Rows archived, then deleted.", table, registry=registry
        )
        self._skipped = Counter(
            "ttl_odm_rows_skipped",
            "Expired rows that a sweep has left.",
            (*table, "reason"),
            registry=registry,
        )
        self._runs = Counter(
            "ttl_odm_runs",
            "Sweeps by how they ended; failed when anything in them did.",
            ("backend", "outcome"),
            registry=registry,
        )
        self._waited = Counter(
            "ttl_odm_throttle_seconds",
            "Seconds that sweeps have waited.",
            ("backend", "reason"),
            registry=registry,
        )
        self._run_seconds = Histogram(
            "ttl_odm_run_duration_seconds",
            "What a sweep took, waits included.",
            ("backend",),
            buckets=_RUNS,
            registry=registry,
        )
        self._batch_seconds = Histogram(
            "ttl_odm_batch_duration_seconds",
            "What the database took for a batch.",
            table,
            buckets=_BATCHES,
            registry=registry,
        )
        self._oldest = Gauge(
            "ttl_odm_oldest_expired_age_seconds",
            "How long the first expired row has waited, when the sweep left the table.",
            table,
            registry=registry,
        )
        self._expired = Gauge(
            "ttl_odm_expired_rows",
            "Expired rows that are left, where a fuse or a dry run had them counted.",
            table,
            registry=registry,
        )
        self._failing = Gauge(
            "ttl_odm_target_failing", "1 if the last sweep failed there.", table, registry=registry
        )
        self._success = Gauge(
            "ttl_odm_last_success_timestamp_seconds",
            "When the last sweep without a failure ended, on this host's clock.",
            ("backend",),
            registry=registry,
        )
        self._leader = Gauge(
            "ttl_odm_leader", "1 while this process has the lease.", ("backend",), registry=registry
        )

    def on_progress(self, progress: Progress) -> None:
        """Count a batch."""
        labels = (progress.table, self._backend)
        self._deleted.labels(*labels).inc(progress.deleted)
        self._archived.labels(*labels).inc(progress.archived)
        self._batch_seconds.labels(*labels).observe(progress.elapsed)

    def on_report(self, report: SweepReport) -> None:
        """Count a sweep."""
        outcome = "failed" if report.problems else report.ended.value
        self._runs.labels(self._backend, outcome).inc()
        self._leader.labels(self._backend).set(report.ended not in _NOT_OURS)
        for told, seconds in report.waited.items():
            reason = told if told in _REASONS else "throttle"  # a throttle's own words are many
            self._waited.labels(self._backend, reason).inc(seconds)
        for target in report.targets:
            self._of_target(target)
        if report.ended in _STANDING_BY:
            return
        self._run_seconds.labels(self._backend).observe(report.duration)
        if not report.problems:
            self._success.labels(self._backend).set(time.time())

    def _of_target(self, target: TargetReport) -> None:
        labels = (target.table, self._backend)
        self._deleted.labels(*labels)  # so that a table without batches is there, as 0
        for reason, rows in target.skips.items():
            self._skipped.labels(*labels, reason.value).inc(rows)
        self._failing.labels(*labels).set(target.error is not None)
        _set(self._oldest, labels, target.oldest_after)
        left = None if target.due is None else max(target.due - target.deleted, 0)
        _set(self._expired, labels, left)


def _set(gauge: Gauge, labels: tuple[Any, ...], value: float | None) -> None:
    """Set a gauge; an unknown value is absent, not an old one."""
    if value is not None:
        gauge.labels(*labels).set(value)
    elif labels in gauge._metrics:  # noqa: SLF001 (remove() fails where nothing is)
        gauge.remove(*labels)
