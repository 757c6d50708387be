"""What a sweep reports: `Progress` while it runs, `SweepReport` when it is done.

Both are plain values, for people who read logs at night and for machines. Times are durations: a
report has no instant, because the host's clock may be wrong and every decision used the database's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.errors import TTLError
from ttl_odm.sweeper import text
from ttl_odm.sweeper.facts import lines, of_rows, of_target, plain
from ttl_odm.sweeper.known_facts import IN_REPORTS, BatchFacts, TargetFacts
from ttl_odm.sweeper.store import Skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ttl_odm.sweeper.facts import Fact
    from ttl_odm.sweeper.hooks import Phase


class Ending(Enum):
    """Why a sweep ended."""

    FINISHED = "finished"
    """All targets were swept."""

    MAX_ROWS = "max_rows"
    MAX_SECONDS = "max_seconds"
    """Expired rows are left for the next sweep."""

    WINDOW = "window"
    """It is outside its window."""

    PAUSED = "paused"
    """The sweepers of this lease are paused."""

    STOPPED = "stopped"
    """`stop` was called, or a signal arrived."""

    LEASE_HELD = "lease_held"
    """Another sweeper has the lease, so this one did nothing."""

    LEASE_LOST = "lease_lost"
    """Another sweeper has taken over, or may have."""

    STANDBY = "standby"
    """The server takes no writes: it is a standby, or was demoted."""

    FAILED = "failed"
    """Something outside of any target failed; see `SweepReport.error`."""


LIMITS: Final = (Ending.MAX_ROWS, Ending.MAX_SECONDS)
"""Endings after which a sweep still reports how old the remaining rows are."""


class SweepError(TTLError):
    """A sweep could not purge all of its targets.

    Attributes:
        report: What was done, and what failed.
    """

    def __init__(self, report: SweepReport) -> None:
        """Make the message from the report's problems."""
        super().__init__("; ".join(report.problems))
        self.report = report

    def __reduce__(self) -> tuple[type[SweepError], tuple[SweepReport]]:
        """Pickle it with its report, for task queues whose workers are other processes."""
        return type(self), (self.report,)


@dataclass(frozen=True, slots=True)
class Progress(BatchFacts):
    """A batch that has just ended: committed or failed.

    Attributes:
        table: The target.
        deleted: Rows deleted by this batch; 0 if it failed.
        deleted_so_far: Rows deleted from this target in this sweep, including this batch.
        batch_size: The most rows that the batch was allowed to delete.
        elapsed: Seconds that the batch took.
        archived: Rows of this batch that were archived.
        phases: How long each phase took, in seconds; `elapsed` is their sum without
            "after_commit".
        error: Why it failed; then none of its rows was deleted, and it may be retried. None if it
            was committed.
        referring: Expired rows of other tables that referred to these and were deleted first, by
            table.
        facts: What extensions report about the batch, by name.
    """

    table: str
    deleted: int
    deleted_so_far: int
    batch_size: int
    elapsed: float
    archived: int = 0
    phases: Mapping[Phase, float] = field(default_factory=dict)
    error: Exception | None = None
    referring: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def problem(self) -> str | None:
        """The error in one line; None if there is none."""
        return None if self.error is None else in_one_line(self.error)


@dataclass(frozen=True, slots=True)
class TargetReport(TargetFacts):
    """What a sweep did to one table or collection.

    Attributes:
        table: The target.
        deleted: Deleted rows, including those that were archived first.
        archived: How many of them were archived.
        skips: Expired rows that were left in place, by reason.
        batches: Batches that completed.
        duration: Seconds, pauses included.
        oldest_before: How long, in seconds, the oldest expired row had been expired when the sweep
            reached this target; 0.0 if there was none. For a table that is scanned, the oldest
            that the scan found. None if unknown: nothing was read, or the target failed.
        oldest_after: The same when the sweep left the target. For a table that is scanned: if the
            sweep ended early, the oldest that it found; if rows were skipped, the oldest of the
            others.
        due: Expired rows counted beforehand, for a dry run or the fuse; None if not counted.
        rows: All rows at that time, perhaps as an estimate.
        error: The error that ended the work on this target (possibly a `FuseError`), or the first
            error that a hook raised; None if there was none.
        missing: Whether the database has no such table, which is not an error.
        referring: Expired rows of other tables that referred to these and were deleted first, by
            table.
        left: Some of the rows that made their batches fail and had to stay: the key of each, and
            why. The next sweep tries them again.
        notes: Further remarks, one sentence each, such as why something was kept.
        workers: The most batches that ran at once.
        facts: What extensions report about the rows and the target, by name. Those of this
            package's own extensions are attributes, too.
    """

    table: str
    deleted: int = 0
    archived: int = 0
    skips: Mapping[Skip, int] = field(default_factory=dict)
    batches: int = 0
    duration: float = 0.0
    oldest_before: float | None = None
    oldest_after: float | None = None
    due: int | None = None
    rows: int | None = None
    error: Exception | None = None
    missing: bool = False
    referring: Mapping[str, int] = field(default_factory=dict)
    left: Sequence[str] = ()
    notes: Sequence[str] = ()
    workers: int = 1
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def along(self) -> int:
        """Rows of other tables that were counted and will be deleted with the `due` rows."""
        return sum(fact.along for fact in of_rows(self.facts).values())

    @property
    def skipped(self) -> int:
        """Expired rows that were left in place, for any reason."""
        return sum(self.skips.values())

    @property
    def problem(self) -> str | None:
        """The error in one line; None if there is none."""
        return None if self.error is None else in_one_line(self.error)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; facts only where there are any."""
        return {
            "table": self.table,
            "deleted": self.deleted,
            "archived": self.archived,
            "skipped": {reason.value: number for reason, number in self.skips.items()},
            "batches": self.batches,
            "duration": self.duration,
            "oldest_before": self.oldest_before,
            "oldest_after": self.oldest_after,
            "due": self.due,
            "rows": self.rows,
            "error": _error_dict(self.error),
            "missing": self.missing,
            "referring": dict(self.referring),
            "left": list(self.left),
            "notes": list(self.notes),
            "workers": self.workers,
            **IN_REPORTS,
            **plain(self.facts),
        }

    @property
    def remarks(self) -> Iterator[str]:
        """Lines about what the table doesn't show."""
        table = text.visible(self.table)
        if self.missing:
            yield f"{table} is MISSING: the database has no such table."
        for line in lines(of_rows(self.facts).values()):
            yield f"{table}: {line}"
        for other, referring in self.referring.items():
            number = f"{text.counted(referring, 'row')} of {text.visible(other)}"
            yield f"{table}: deleted {number} as well, which referred to it"
        if skips := {reason: rows for reason, rows in self.skips.items() if rows}:
            left = (f"{text.counted(skips[skip], 'row')} {_SKIPS[skip]}" for skip in skips)
            yield f"{table}: skipped {', '.join(left)}"
        if self.workers > 1:
            yield f"{table}: {self.workers} batches at once"
        for row in self.left:
            yield f"{table}: left {text.visible(row)}"
        for line in lines(of_target(self.facts).values()):
            yield f"{table}: {line}"
        for note in self.notes:
            yield f"{table}: {text.visible(note)}"
        if self.error is not None:
            yield f"{table} FAILED: {self.problem}"


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What one sweep did; ``str()`` gives a readable table.

    Attributes:
        targets: What was done to each target, in order. Targets whose TTL is off and those that
            the sweep didn't reach are left out.
        duration: Seconds.
        ended: Why it ended.
        error: A failure outside of any target: the lease, the throttle, the database's clock.
        holder: Who holds the lease, if this sweep didn't get it.
        waited: Seconds spent waiting, by reason: ``rest``, ``rate``, ``retry``, ``throttle``, or
            the reason that the throttle gave.
        dry_run: Whether the sweep only counted rows.
    """

    targets: Sequence[TargetReport] = ()
    duration: float = 0.0
    ended: Ending = Ending.FINISHED
    error: Exception | None = None
    holder: str | None = None
    waited: Mapping[str, float] = field(default_factory=dict)
    dry_run: bool = False

    @property
    def deleted(self) -> int:
        """Deleted rows of all targets, and the rows that referred to them."""
        return sum(target.deleted + sum(target.referring.values()) for target in self.targets)

    @property
    def archived(self) -> int:
        """Archived rows of all targets."""
        return sum(target.archived for target in self.targets)

    @property
    def skipped(self) -> int:
        """Expired rows of all targets that were left in place, for any reason."""
        return sum(target.skipped for target in self.targets)

    @property
    def due(self) -> int | None:
        """Expired rows of all targets that were counted, and rows that go along with them.

        None if none was counted.
        """
        counted = [target.due + target.along for target in self.targets if target.due is not None]
        return sum(counted) if counted else None

    @property
    def outcome(self) -> str:
        """How it ended, in one word for metrics and logs: ``failed``, or the value of `ended`."""
        return Ending.FAILED.value if self.problems else self.ended.value

    @property
    def limited(self) -> bool:
        """Whether `max_rows` or `max_seconds` ended it before everything was purged."""
        return self.ended in LIMITS

    @property
    def failed(self) -> tuple[TargetReport, ...]:
        """The targets with an error; empty after a clean sweep."""
        return tuple(target for target in self.targets if target.error is not None)

    @property
    def problems(self) -> tuple[str, ...]:
        """What failed, one line each; empty after a clean sweep. Useful for an exit status."""
        whole = () if self.error is None else (in_one_line(self.error),)
        return (
            *whole,
            *(f"{text.visible(target.table)}: {target.problem}" for target in self.failed),
        )

    def raise_for_failures(self) -> None:
        """Raise an error if anything failed.

        Raises:
            SweepError: Names everything that failed; the first error is the cause.
        """
        errors = [self.error, *(target.error for target in self.targets)]
        first = next((error for error in errors if error is not None), None)
        if first is not None:
            raise SweepError(self) from first

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "ended": self.ended.value,
            "dry_run": self.dry_run,
            "deleted": self.deleted,
            "archived": self.archived,
            "skipped": self.skipped,
            "due": self.due,
            "duration": self.duration,
            "waited": dict(self.waited),
            "holder": self.holder,
            "error": _error_dict(self.error),
            "targets": [target.to_dict() for target in self.targets],
        }

    def __str__(self) -> str:
        """A headline, a table, and remarks."""
        lines = [self._headline()]
        if self.targets:
            cells = _OF_A_DRY_RUN if self.dry_run else _OF_A_SWEEP
            rows = ([cell(target) for cell in cells.values()] for target in self.targets)
            lines.append(indent(text.aligned([tuple(cells), *rows]), "  "))
        lines += [remark for target in self.targets for remark in target.remarks]
        if ending := _ENDINGS[self.ended]:
            holder = f": {text.visible(self.holder)}" if self.holder else ""
            lines.append(ending.format(holder=holder))
        if self.error is not None:
            lines.append(self.problems[0])
        return "\n".join(lines)

    def _headline(self) -> str:
        if not self.targets:
            finished = self.ended is Ending.FINISHED
            return "Swept nothing" + (": no table has TTL switched on." if finished else ".")
        failed = f", {len(self.failed)} FAILED" if self.failed else ""
        tables, duration = text.counted(len(self.targets), "table"), text.duration(self.duration)
        if self.dry_run:
            due = text.counted(self.due or 0, "row")
            return f"Looked at {tables} in {duration}: {due} expired{failed}."
        archived = f" ({self.archived:,} archived)" if self.archived else ""
        deleted = text.counted(self.deleted, "row")
        return f"Swept {tables} in {duration}: {deleted} deleted{archived}{failed}."


_ENDINGS: Final = {
    Ending.FINISHED: "",
    Ending.MAX_ROWS: "Stopped at max_rows: expired rows are left for the next sweep.",
    Ending.MAX_SECONDS: "Stopped at max_seconds: expired rows are left for the next sweep.",
    Ending.WINDOW: "Outside the window: expired rows are left until it opens.",
    Ending.PAUSED: "Paused: expired rows are left until the sweepers are resumed.",
    Ending.STOPPED: "Stopped on request: expired rows are left for the next sweep.",
    Ending.LEASE_HELD: "Another sweeper is at work{holder}.",
    Ending.LEASE_LOST: "The lease was lost: another sweeper continues from here.",
    Ending.STANDBY: "The server is a standby, which takes no writes: sweep its primary.",
    Ending.FAILED: "The sweep FAILED.",
}

_SKIPS: Final = {
    Skip.LOCKED: "locked by another session",
    Skip.RESTRICTED: "kept by a foreign key",
    Skip.REFUSED: "that the database rejected deleting",
    Skip.HOOK: "whose hook or archive failed",
}


def _oldest(seconds: float | None) -> str:
    """Return a cell: how long the oldest expired row had been expired; 0 means there was none."""
    return "-" if seconds == 0 else text.age(seconds)


_OF_A_SWEEP: Final[Mapping[str, Callable[[TargetReport], str]]] = {
    "table": lambda target: text.visible(target.table),
    "deleted": lambda target: f"{target.deleted:,}",
    "skipped": lambda target: f"{target.skipped:,}",
    "batches": lambda target: f"{target.batches:,}",
    "time": lambda target: text.duration(target.duration),
    "oldest before": lambda target: _oldest(target.oldest_before),
    "oldest after": lambda target: _oldest(target.oldest_after),
}

_OF_A_DRY_RUN: Final[Mapping[str, Callable[[TargetReport], str]]] = {
    "table": lambda target: text.visible(target.table),
    "expired": lambda target: "-" if target.due is None else f"{target.due:,}",
    "rows": lambda target: "-" if target.rows is None else f"{target.rows:,}",
    "oldest": lambda target: _oldest(target.oldest_before),
}


def in_one_line(error: Exception) -> str:
    """Return an error's message without line breaks, or its class if it has no message."""
    return text.visible(" ".join(str(error).split())) or type(error).__name__


def _error_dict(error: Exception | None) -> dict[str, str] | None:
    if error is None:
        return None
    return {"type": type(error).__name__, "message": in_one_line(error)}
