"""Which numbers there are about sweeps, and what a sweeper's events say of each.

The monitoring systems differ in how they keep a number, not in what it means: that is here, once.
This module must not know any of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper import Ending, Number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ttl_odm.sweeper import JobState, Progress, Server, SweepReport, TargetReport

Change = tuple[str, dict[str, str], "float | None"]
"""A number's name, its labels besides the backend, and by how much it grows (counters), what was
observed (histograms) or what it is (gauges; None when that isn't known any more)."""

Changes = Iterator[Change]

Reading = tuple[str, dict[str, str], float]
"""A number's name, its labels besides the backend, and what it is at this moment."""

Series = tuple[Number, dict[str, str]]
"""A number, and its labels besides the backend."""

NAMED: Final = 20
"""Labels of a table that have a series, besides the one for all others."""

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
"""What is read of the jobs by which databases sweep by themselves; of a counter all of it."""


class FactSeries:
    """The series of numbers that facts bring; see `ttl_odm.sweeper.Fact.numbers`.

    A monitoring system keeps a series for every label that it ever got, so a process may not go on
    making new ones: each table has the first `NAMED` of a label. And it keeps the value of a gauge,
    so the last report's have to go where the next one says nothing.
    """

    def __init__(self) -> None:
        self._labels: dict[tuple[str, str], list[str]] = {}
        self._gauges: dict[str, dict[tuple[str, str], Series]] = {}

    def of(self, report: SweepReport) -> Iterator[tuple[Number, dict[str, str], float | None]]:
        """Say what the facts of a sweep change: like `Changes`, with the numbers themselves."""
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
                least = 0 if number.kind == "gauge" else value  # what has expired since is gone too
                yield (number, {**labels, further: label}), max(value, least)

    def _within(self, table: str, label: str, values: Mapping[str, float]) -> dict[str, float]:
        """The values of the labels that have a series; none before one has a name."""
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
    """Say what the numbers of jobs are."""
    for table, job in jobs.items():
        labels = {"table": table}
        yield "database_sweep_rows_deleted", labels, job.total
        yield "database_sweep_failing", labels, float(job.problem is not None)
        if job.ran_ago is not None:
            yield "database_sweep_age_seconds", labels, job.ran_ago


def of_progress(progress: Progress) -> Changes:
    """Say what a batch changes."""
    labels = {"table": progress.table}
    yield "rows_deleted", labels, progress.deleted
    for table, rows in progress.referring.items():
        yield "rows_deleted", {"table": table}, rows
    yield "rows_archived", labels, progress.archived
    if progress.error is None:  # how soon one failed says nothing of how long one takes
        for phase, seconds in progress.phases.items():
            yield "batch_duration_seconds", {**labels, "phase": phase}, seconds


def of_report(report: SweepReport) -> Changes:
    """Say what a sweep changes, besides its batches and what its facts say."""
    yield "runs", {"outcome": report.outcome}, 1
    yield "leader", {}, float(report.ended not in _NOT_OURS)
    for reason, seconds in report.waited.items():
        # A throttle's own words are too many for a label.
        yield "throttle_seconds", {"reason": reason if reason in _REASONS else "throttle"}, seconds
    for target in report.targets:
        labels = {"table": target.table}
        yield "rows_deleted", labels, 0  # so that a table without batches is there
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
    """Say what it changes that a server answers; the one before gives way to another."""
    if before is not None and before != server:
        yield "server_info", _labels_of(before), None
    yield "server_info", _labels_of(server), 1


def _labels_of(server: Server) -> dict[str, str]:
    writable = "true" if server.takes_writes else "false"
    return {"server": server.address or "", "writable": writable}
