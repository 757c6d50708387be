"""The numbers about sweeps, and how a sweeper's events change each.

Monitoring systems differ in how they keep a number, not in what it means, which is defined here.
This module must not know any of these systems.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from threading import Lock
from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper import Ending, Number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ttl_odm.sweeper import JobState, Progress, Server, SweepReport, TargetReport

Change = tuple[str, dict[str, str], "float | None"]
"""A number's name, its labels besides the backend, and a value: the increase of a counter, an
observation of a histogram, the value of a gauge (None when it isn't known any more)."""

Changes = Iterator[Change]

Reading = tuple[str, dict[str, str], float]
"""A number's name, its labels besides the backend, and its present value."""

Series = tuple[Number, dict[str, str]]
"""A number, and its labels besides the backend."""

NAMED: Final = 20
"""The most labels of a table that have a series of their own; one more is for all others."""

_REASONS: Final = ("rest", "rate", "retry", "throttle")
_NOT_OURS: Final = (Ending.LEASE_HELD, Ending.LEASE_LOST, Ending.STANDBY)
_STANDING_BY: Final = (*_NOT_OURS, Ending.PAUSED, Ending.WINDOW)


_BATCHES: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_RUNS: Final = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)

NUMBERS: Final = (
    Number("rows_deleted", "counter", "Rows deleted, archived ones included.", ("table",)),
    Number("rows_archived", "counter", "Rows archived, then deleted.", ("table",)),
    Number("rows_skipped", "counter", "Expired rows that a sweep has left.", ("table", "reason")),
    Number("runs", "counter", "Sweeps by outcome.", ("outcome",)),
    Number("throttle_seconds", "counter", "Seconds that sweeps waited.", ("reason",), "s"),
    Number(
        "run_duration_seconds", "histogram", "Duration of sweeps, including waits.", (), "s", _RUNS
    ),
    Number(
        "batch_duration_seconds",
        "histogram",
        "Time per phase of a committed batch; together the phases make up the batch.",
        ("table", "phase"),
        "s",
        _BATCHES,
    ),
    Number(
        "oldest_expired_age_seconds",
        "gauge",
        "How long the first expired row had waited when the sweep left the table.",
        ("table",),
        "s",
    ),
    Number(
        "expired_rows", "gauge", "Expired rows that were left, where they were counted.", ("table",)
    ),
    Number("target_failing", "gauge", "1 if the last sweep of the target failed.", ("table",)),
    Number(
        "last_success_timestamp_seconds",
        "gauge",
        "When the last sweep without failures ended, by this host's clock.",
        (),
        "s",
    ),
    Number("leader", "gauge", "1 while this process has the lease."),
    Number(
        "server_info",
        "gauge",
        "1 for the server that answered last, and whether it takes writes.",
        ("server", "writable"),
    ),
)


JOB_NUMBERS: Final = (
    Number(
        "database_sweep_rows_deleted",
        "counter",
        "Rows that the database's own job has deleted since it was created.",
        ("table",),
    ),
    Number(
        "database_sweep_age_seconds",
        "gauge",
        "Seconds since the last run of that job that it recorded.",
        ("table",),
        "s",
    ),
    Number(
        "database_sweep_failing",
        "gauge",
        "1 if that job is gone, disabled, silent, stopped by its fuse, or its last run failed.",
        ("table",),
    ),
)
"""The numbers of the jobs by which databases sweep themselves; a counter is read as its total."""


class FactSeries:
    """The series of the numbers of facts; see `ttl_odm.sweeper.Fact.numbers`.

    A monitoring system keeps a series for every label that it ever received, so each table has
    series for the first `NAMED` values of a label only. It also keeps the value of a gauge, so a
    gauge that the next report doesn't mention has to be removed.
    """

    def __init__(self) -> None:
        self._labels: dict[tuple[str, str], list[str]] = {}
        self._gauges: dict[str, dict[tuple[str, str], Series]] = {}

    def of(self, report: SweepReport) -> Iterator[tuple[Number, dict[str, str], float | None]]:
        """Yield the changes by the facts of a sweep: like `Changes`, but with the numbers."""
        for target in report.targets:
            before, gauges = self._gauges.get(target.table, {}), {}
            for (number, labels), value in self._values(target):
                yield number, labels, value
                if number.kind == "gauge":
                    gauges[number.name, str(labels)] = (number, labels)
            for key, (number, labels) in before.items():
                if key not in gauges:
                    yield number, labels, None
            self._gauges[target.table] = gauges

    def _values(self, target: TargetReport) -> Iterator[tuple[Series, float]]:
        read: dict[Number, dict[str, float]] = {}
        for fact in target.facts.values():
            for number, value, label in fact.numbers(target):
                values = read.setdefault(number, {})
                values[label] = values.get(label, 0) + value
        for number, values in read.items():
            labels = {"table": target.table}
            if len(number.labels) == 1:
                yield (number, labels), sum(values.values())
                continue
            further = number.labels[1]
            for label, value in self._within(target.table, further, values).items():
                # Deleted rows that have expired since the count may make a gauge negative.
                least = 0 if number.kind == "gauge" else value
                yield (number, {**labels, further: label}), max(value, least)

    def _within(self, table: str, label: str, values: Mapping[str, float]) -> dict[str, float]:
        """Return the values of the labels that have a series; none before the first label."""
        known = self._labels.setdefault((table, label), [])
        new = [name for name in values if name and name not in known]
        known += new[: NAMED - len(known)]
        if not known:
            return {}
        within: dict[str, float] = dict.fromkeys([*known, ""], 0)
        for name, value in values.items():
            within[name if name in within else ""] += value
        return within


def of_jobs(jobs: Mapping[str, JobState]) -> Iterator[Reading]:
    """Yield the numbers of jobs."""
    for table, job in jobs.items():
        labels = {"table": table}
        yield "database_sweep_rows_deleted", labels, job.total
        yield "database_sweep_failing", labels, float(job.problem is not None)
        if job.ran_ago is not None:
            yield "database_sweep_age_seconds", labels, job.ran_ago


def of_progress(progress: Progress) -> Changes:
    """Yield the changes by a batch."""
    labels = {"table": progress.table}
    yield "rows_deleted", labels, progress.deleted
    for table, rows in progress.referring.items():
        yield "rows_deleted", {"table": table}, rows
    yield "rows_archived", labels, progress.archived
    if progress.error is None:  # the time until a failure says nothing about that of a batch
        for phase, seconds in progress.phases.items():
            yield "batch_duration_seconds", {**labels, "phase": phase}, seconds


def of_report(report: SweepReport) -> Changes:
    """Yield the changes by a sweep, besides those by its batches and its facts."""
    yield "runs", {"outcome": report.outcome}, 1
    yield "leader", {}, float(report.ended not in _NOT_OURS)
    for reason, seconds in report.waited.items():
        # A throttle may give any number of reasons, too many for a label.
        yield "throttle_seconds", {"reason": reason if reason in _REASONS else "throttle"}, seconds
    for target in report.targets:
        labels = {"table": target.table}
        yield "rows_deleted", labels, 0  # so that a table without batches has a series
        for skip, rows in target.skips.items():
            yield "rows_skipped", {**labels, "reason": skip.value}, rows
        yield "target_failing", labels, float(target.error is not None)
        yield "oldest_expired_age_seconds", labels, target.oldest_after
        left = None if target.due is None else max(target.due - target.deleted, 0)
        yield "expired_rows", labels, left
    if report.ended in _STANDING_BY:
        return
    yield "run_duration_seconds", {}, report.duration
    if not report.problems:
        yield "last_success_timestamp_seconds", {}, time.time()


def of_server(server: Server, before: Server | None) -> Changes:
    """Yield the changes by the server that answers; it replaces another one."""
    if before is not None and before != server:
        yield "server_info", _labels_of(before), None
    yield "server_info", _labels_of(server), 1


def _labels_of(server: Server) -> dict[str, str]:
    writable = "true" if server.takes_writes else "false"
    return {"server": server.address or "", "writable": writable}


class Recorder(ABC):
    """The callbacks of a sweeper, which record the changes by its events."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._series = FactSeries()
        self._series_lock = Lock()
        self._server: Server | None = None

    @abstractmethod
    def _prepare(self, number: Number) -> None:
        """Make what keeps a number, unless it exists; facts bring numbers of their own."""

    @abstractmethod
    def _take(self, changes: Iterable[Change]) -> None:
        """Record changes."""

    def on_progress(self, progress: Progress) -> None:
        """Count a batch."""
        self._take(of_progress(progress))

    def on_report(self, report: SweepReport) -> None:
        """Count a sweep."""
        self._take(of_report(report))
        with self._series_lock:
            for number, labels, value in self._series.of(report):
                self._prepare(number)
                self._take([(number.name, labels, value)])

    def on_server(self, server: Server) -> None:
        """Note which server answers."""
        self._take(of_server(server, self._server))
        self._server = server
