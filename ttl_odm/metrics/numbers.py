"""Which numbers there are about sweeps, and what a sweeper's events say of each.

The monitoring systems differ in how they keep a number, not in what it means: that is here, once.
This module must not know any of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from ttl_odm.core.stored_rows import WHOLE_TABLE
from ttl_odm.sweeper import Ending
from ttl_odm.sweeper.scopes import NAMED_SCOPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ttl_odm.sweeper import JobState, Progress, SweepReport, TargetReport

Changes = Iterator[tuple[str, dict[str, str], "float | None"]]
"""A number's name, its labels besides the backend, and by how much it grows (counters), what was
observed (histograms) or what it is (gauges; None when that isn't known any more)."""

_REASONS: Final = ("rest", "rate", "retry", "throttle")
_NOT_OURS: Final = (Ending.LEASE_HELD, Ending.LEASE_LOST)
_STANDING_BY: Final = (*_NOT_OURS, Ending.PAUSED, Ending.WINDOW)


@dataclass(frozen=True, slots=True)
class Number:
    """One number, with its labels besides the backend; its unit is ``s`` for seconds, or empty.

    The name is without the prefix ``ttl_odm_``, and without what a system appends.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    about: str
    labels: Sequence[str] = ()
    unit: str = ""
    buckets: Sequence[float] = ()


_PARTITIONS: Final = {
    "partitions": "there",
    "partitions_over": "over",
    "partitions_dead": "dead",
    "partitions_missing": "missing",
}
"""Gauges by what `PartitionsCounted` has for each."""

_BATCHES: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_RUNS: Final = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)

NUMBERS: Final = (
    Number("rows_deleted", "counter", "Rows deleted, archived ones included.", ("table",)),
    Number("rows_archived", "counter", "Rows archived, then deleted.", ("table",)),
    Number("rows_skipped", "counter", "Expired rows that a sweep has left.", ("table", "reason")),
    Number("runs", "counter", "Sweeps by how they ended.", ("outcome",)),
    Number("throttle_seconds", "counter", "Seconds that sweeps waited.", ("reason",), "s"),
    Number(
        "run_duration_seconds", "histogram", "What sweeps took, waits included.", (), "s", _RUNS
    ),
    Number(
        "batch_duration_seconds",
        "histogram",
        "What a committed batch took its time for; all phases together are the batch.",
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
    Number("partitions", "gauge", "Partitions that a table that is cut by time has.", ("table",)),
    Number(
        "partitions_over",
        "gauge",
        "Partitions of these whose default life is over; some rows may live longer.",
        ("table",),
    ),
    Number(
        "partitions_dead",
        "gauge",
        "Partitions of these in which nothing can live: they wait to be dropped.",
        ("table",),
    ),
    Number("partitions_missing", "gauge", "Partitions that are still to be made.", ("table",)),
    Number(
        "scope_rows_deleted",
        "counter",
        "Rows deleted of scopes with a default of their own; the empty scope has all others.",
        ("table", "scope"),
    ),
    Number(
        "scope_expired_rows",
        "gauge",
        "Expired rows of these scopes that were left, where they were counted.",
        ("table", "scope"),
    ),
    Number("target_failing", "gauge", "1 if the last sweep failed there.", ("table",)),
    Number(
        "last_success_timestamp_seconds",
        "gauge",
        "When the last sweep without a failure ended, on this host's clock.",
        (),
        "s",
    ),
    Number("leader", "gauge", "1 while this process has the lease."),
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


class ScopeLabels:
    """Which scopes have a label: of each table the first `NAMED_SCOPES` that a report names.

    A monitoring system keeps a series for every label that it ever got, so a process may not go on
    making new ones.
    """

    def __init__(self) -> None:
        self._of: dict[str, list[str]] = {}

    def of(self, table: str, *reports: Mapping[str, int]) -> list[str]:
        """The labels of a table, with those that reports bring; `WHOLE_TABLE` for all others."""
        labels = self._of.setdefault(table, [])
        named = dict.fromkeys(scope for report in reports for scope in report if scope)
        new = [scope for scope in named if scope not in labels]
        labels += new[: NAMED_SCOPES - len(labels)]
        return [*labels, WHOLE_TABLE] if labels else []


def of_jobs(jobs: Mapping[str, JobState]) -> Iterator[tuple[str, dict[str, str], float]]:
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


def of_report(report: SweepReport, scopes: ScopeLabels) -> Changes:
    """Say what a sweep changes, besides its batches."""
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
        partitions = target.partitions
        for name, field in _PARTITIONS.items():
            yield name, labels, None if partitions is None else getattr(partitions, field)
        yield from _by_scope(target, scopes)
    if report.ended in _STANDING_BY:
        return
    yield "run_duration_seconds", {}, report.duration
    if not report.problems:
        yield "last_success_timestamp_seconds", {}, time.time()


def _by_scope(target: TargetReport, scopes: ScopeLabels) -> Changes:
    """Say what a sweep changes of scopes with defaults of their own."""
    deleted, due = target.deleted_by_scope, target.due_by_scope
    named = scopes.of(target.table, due, deleted)
    others = set(named[:-1])
    for scope in named:
        labels = {"table": target.table, "scope": scope}
        gone, left = deleted.get(scope, 0), due.get(scope, 0)
        if not scope:
            gone = target.deleted - sum(deleted.get(each, 0) for each in others)
            left = (target.due or 0) - sum(due.get(each, 0) for each in others)
        yield "scope_rows_deleted", labels, gone
        is_known = target.due is not None
        yield "scope_expired_rows", labels, max(left - gone, 0) if is_known else None
