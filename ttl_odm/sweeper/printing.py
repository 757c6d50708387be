"""How a `SweepReport` reads, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ttl_odm.sweeper.report import Ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.sweeper.report import SweepReport, TargetReport

_UNITS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
"""Two neighbouring units each, by their seconds and names."""

_ENDINGS: Final = {
    Ending.FINISHED: "",
    Ending.MAX_ROWS: "Stopped at max_rows: expired rows are left for the next sweep.",
    Ending.MAX_SECONDS: "Stopped at max_seconds: expired rows are left for the next sweep.",
    Ending.WINDOW: "Outside the window: expired rows are left until it opens.",
    Ending.PAUSED: "Paused: expired rows are left until somebody lets the sweeper go on.",
    Ending.STOPPED: "Stopped on request: expired rows are left for the next sweep.",
    Ending.LEASE_HELD: "Another sweeper is at work{holder}.",
    Ending.LEASE_LOST: "The lease was lost: another sweeper goes on from here.",
    Ending.FAILED: "The sweep FAILED.",
}


def shown(report: SweepReport) -> str:
    """Return lines: what was done in one, a table, then what was not as it should be."""
    lines = [_headline(report), *_table(report)]
    lines += [f"{each.table} FAILED: {each.problem}" for each in report.failed]
    ending = _ENDINGS[report.ended]
    if ending:
        lines.append(ending.format(holder=f": {report.holder}" if report.holder else ""))
    if report.error is not None:
        lines.append(report.problems[0])
    return "\n".join(lines)


def _headline(report: SweepReport) -> str:
    if not report.targets:
        finished = report.ended is Ending.FINISHED
        return "Swept nothing" + (": no table has TTL switched on." if finished else ".")
    failed = f", {len(report.failed)} FAILED" if report.failed else ""
    tables = counted(len(report.targets), "table")
    if report.dry_run:
        due = counted(report.due or 0, "row")
        return f"Looked at {tables} in {_seconds(report.duration)}: {due} expired{failed}."
    archived = f" ({report.archived:,} archived)" if report.archived else ""
    deleted = counted(report.deleted, "row")
    return f"Swept {tables} in {_seconds(report.duration)}: {deleted} deleted{archived}{failed}."


def _table(report: SweepReport) -> list[str]:
    if not report.targets:
        return []
    rows = _dry(report.targets) if report.dry_run else _swept(report.targets)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            ["", name.ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        )
        for name, *cells in rows
    ]


def _swept(targets: Sequence[TargetReport]) -> list[tuple[str, ...]]:
    return [
        ("table", "deleted", "skipped", "batches", "time", "oldest before", "oldest after"),
        *(
            (
                each.table,
                f"{each.deleted:,}",
                f"{each.skipped:,}",
                f"{each.batches:,}",
                _seconds(each.duration),
                age(each.oldest_before),
                age(each.oldest_after),
            )
            for each in targets
        ),
    ]


def _dry(targets: Sequence[TargetReport]) -> list[tuple[str, ...]]:
    return [
        ("table", "expired", "rows", "oldest"),
        *(
            (each.table, _number(each.due), _number(each.rows), age(each.oldest_before))
            for each in targets
        ),
    ]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular for one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _seconds(duration: float) -> str:
    if duration < 10:  # noqa: PLR2004 (below, hundredths tell something; above, they distract)
        return f"{duration:.2f} s"
    return f"{duration:,.1f} s"


def age(seconds: float | None) -> str:
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
