"""What a sweeper logs, by the standard library's ``logging``, as ``ttl_odm.sweeper``.

A record's message is for people; the same is in its attributes (``extra``), which formatters for
machines print as fields. docs/metrics.md lists them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.sweeper.store import backend_of

if TYPE_CHECKING:
    from ttl_odm.sweeper.report import Progress, SweepReport

logger: Final = logging.getLogger("ttl_odm.sweeper")


def log_report(report: SweepReport, store: object) -> None:
    """Log a sweep: INFO, or WARNING when something failed."""
    level = logging.WARNING if report.problems else logging.INFO
    fields: dict[str, Any] = {
        "event": "sweep",
        "backend": backend_of(store),
        "outcome": report.outcome,
        "deleted": report.deleted,
        "archived": report.archived,
        "skipped": report.skipped,
        "duration": report.duration,
        "problems": list(report.problems),
        "targets": [target.to_dict() for target in report.targets],
    }
    logger.log(level, "%s", report, extra=fields)


def log_batch(progress: Progress, store: object) -> None:
    """Log a batch: DEBUG, or INFO when it failed (it may be tried again; the sweep will tell)."""
    level = logging.DEBUG if progress.error is None else logging.INFO
    if not logger.isEnabledFor(level):
        return
    fields: dict[str, Any] = {
        "event": "batch",
        "backend": backend_of(store),
        "table": progress.table,
        "outcome": "committed" if progress.error is None else "failed",
        "deleted": progress.deleted,
        "archived": progress.archived,
        "batch_size": progress.batch_size,
        "duration": progress.elapsed,
        "phases": dict(progress.phases),
    }
    table, seconds = progress.table, progress.elapsed
    if progress.error is None:
        rows = f"{progress.deleted:,}"
        logger.log(level, "%s: %s rows deleted in %.3f s", table, rows, seconds, extra=fields)
        return
    problem = progress.problem
    fields |= {"error": problem, "error_type": type(progress.error).__name__}
    message = "%s: a batch failed after %.3f s: %s"
    logger.log(level, message, table, seconds, problem, extra=fields)


def log_trouble(command: str, error: Exception, store: object) -> None:
    """Log what may pass, as INFO: it is tried again for a minute, and nobody would know why."""
    fields = {
        "event": "trouble",
        "backend": backend_of(store),
        "command": command,
        "error": str(error),
        "error_type": type(error).__name__,
    }
    logger.info("The database doesn't answer now (%s): %s", command, error, extra=fields)
