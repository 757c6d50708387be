"""What a sweep tells about itself: `Progress` while it runs, `SweepReport` when it is done.

Both are plain values, made for people who read logs at night and for machines alike. Times are
durations: a report holds no instant, since the host's clock may be wrong and the database's was
used for every decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ttl_odm.errors import TTLError

_UNITS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
"""Two neighbouring units each, by their seconds and names."""


class SweepError(TTLError):
    """A sweep could not purge all of its targets.

    Attributes:
        report: What was done, and what failed.
    """

    def __init__(self, report: SweepReport) -> None:
        """Say which targets failed, and why."""
        super().__init__("; ".join(f"{each.table}: {each.problem}" for each in report.failed))
        self.report = report


@dataclass(frozen=True, slots=True)
class Progress:
    """One batch that was just committed.

    Attributes:
        table: The target.
        deleted: Rows of this batch.
        deleted_so_far: Rows of this target in this sweep, this batch included.
        batch_size: Rows that the batch was allowed.
        elapsed: Seconds that the batch took.
    """

    table: str
    deleted: int
    deleted_so_far: int
    batch_size: int
    elapsed: float


@dataclass(frozen=True, slots=True)
class TargetReport:
    """What a sweep did to one table or collection.

    Attributes:
        table: The target.
        deleted: Rows.
        skipped: Expired rows that were left because somebody held them; the next sweep gets them.
        batches: Batches that were committed.
        duration: Seconds, pauses included.
        oldest_before: Seconds since the first of the expired rows had expired when the sweep came
            to this target; 0.0 when none had. None where it isn't known: finding out would mean
            reading a whole table, or the target failed.
        oldest_after: The same when the sweep left the target.
        error: What ended the work on this target; None when nothing did.
    """

    table: str
    deleted: int = 0
    skipped: int = 0
    batches: int = 0
    duration: float = 0.0
    oldest_before: float | None = None
    oldest_after: float | None = None
    error: Exception | None = None

    @property
    def problem(self) -> str | None:
        """The error in one line; None when there is none."""
        if self.error is None:
            return None
        return " ".join(str(self.error).split()) or type(self.error).__name__


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What one sweep did; ``str()`` of it is a table for people.

    Attributes:
        targets: What was done to each, in order. Those whose TTL is off don't occur.
        duration: Seconds.
        limited: Whether `max_rows` ended the sweep before all that had expired was purged.
    """

    targets: tuple[TargetReport, ...] = ()
    duration: float = 0.0
    limited: bool = False

    @property
    def deleted(self) -> int:
        """Rows, of all targets."""
        return sum(each.deleted for each in self.targets)

    @property
    def skipped(self) -> int:
        """Expired rows that were left because somebody held them, of all targets."""
        return sum(each.skipped for each in self.targets)

    @property
    def failed(self) -> tuple[TargetReport, ...]:
        """The targets that ended with an error; empty, hence false, after a clean sweep."""
        return tuple(each for each in self.targets if each.error is not None)

    def raise_for_failures(self) -> None:
        """Raise when a target failed; do nothing otherwise.

        Raises:
            SweepError: Names every target that failed; the first one's error is the cause.
        """
        if self.failed:
            raise SweepError(self) from self.failed[0].error

    def __str__(self) -> str:
        lines = [self._headline(), *_table(self.targets)]
        lines += [f"{each.table} FAILED: {each.problem}" for each in self.failed]
        if self.limited:
            lines.append("Stopped at max_rows: expired rows are left for the next sweep.")
        return "\n".join(lines)

    def _headline(self) -> str:
        if not self.targets:
            return "Swept nothing: no table has TTL switched on."
        failed = f", {len(self.failed)} FAILED" if self.failed else ""
        return (
            f"Swept {_counted(len(self.targets), 'table')} in {_seconds(self.duration)}: "
            f"{_counted(self.deleted, 'row')} deleted{failed}."
        )


def _table(targets: tuple[TargetReport, ...]) -> list[str]:
    if not targets:
        return []
    rows = [("table", "deleted", "skipped", "batches", "time", "oldest before", "oldest after")]
    rows += [
        (
            each.table,
            f"{each.deleted:,}",
            f"{each.skipped:,}",
            f"{each.batches:,}",
            _seconds(each.duration),
            _age(each.oldest_before),
            _age(each.oldest_after),
        )
        for each in targets
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            ["", name.ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        )
        for name, *cells in rows
    ]


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _seconds(duration: float) -> str:
    if duration < 10:  # noqa: PLR2004 (below, hundredths tell something; above, they distract)
        return f"{duration:.2f} s"
    return f"{duration:,.1f} s"


def _age(seconds: float | None) -> str:
    """Show how long something is overdue, by its two largest units."""
    if seconds is None:
        return "?"
    if seconds == 0:
        return "-"
    whole = int(seconds)
    for large, name, small, small_name in _UNITS:
        if whole >= large:
            return f"{whole // large:,} {name} {whole % large // small:02} {small_name}"
    return f"{whole} s" if whole else "< 1 s"
