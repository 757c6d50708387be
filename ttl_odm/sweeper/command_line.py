"""What every command that sweeps has in common: its options, question, exit status and report.

``ttl-odm sweep``, ``flask ttl sweep`` and ``manage.py ttl_sweep`` read the options here, each in
the terms of its own parser. What a sweeper makes of them is in `options`; an option that stands in
`SweepOptions` too has the same name there. docs/cli.md lists the exit statuses, which speak to
cron, systemd and CI. This module must not know click, argparse, a framework.
"""

from __future__ import annotations

import getpass
import re
import shutil
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ttl_odm.core.durations import duration
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.fuse import FuseError
from ttl_odm.sweeper.report import Ending
from ttl_odm.sweeper.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Protocol

    from ttl_odm.sweeper.options import SweepOptions
    from ttl_odm.sweeper.report import SweepReport

    class SupportsIsATTY(Protocol):
        """A stream of Python's, or Django's wrapper of one."""

        def isatty(self) -> bool:
            """Whether somebody sits there."""
            ...


Program: TypeAlias = "Callable[[str], str]"
"""What is typed for another command of the same program, by its name in ``ttl-odm``.

With all that says what to work on, so that it can be pasted: for ``resume``, ``flask ttl resume``.
"""


class CommandOption(NamedTuple):
    """An option of a command.

    Its ``type`` is bool for a flag, whose opposite ``--no-...`` makes it ``is_negatable``, and list
    for names of which there may be any number; otherwise it reads what was typed. A flag has no
    ``metavar``, and may have a ``letter``.
    """

    help: str
    type: Callable[..., Any]
    metavar: str | None = None
    is_negatable: bool = False
    letter: str | None = None


COMMAND_OPTIONS: Final = {
    "model": CommandOption("Only this model or table; may be repeated.", list, "NAME"),
    "except": CommandOption("Skip this model or table; may be repeated.", list, "NAME"),
    "json": CommandOption("Print JSON.", bool),
    "max_age": CommandOption(
        "Report expired rows that have waited longer, and a last sweep that is older.",
        duration,
        "SECONDS",
    ),
    "deep": CommandOption("Read whole tables, regardless of their size.", bool),
    "strict": CommandOption("Exit with status 1 on warnings too.", bool),
    "dry_run": CommandOption("Count the expired rows; delete nothing.", bool),
    "yes": CommandOption("On a terminal, don't ask before deleting.", bool, letter="y"),
    "max_rows": CommandOption("Delete at most this many rows per sweep.", int, "ROWS"),
    "max_seconds": CommandOption("Start no further batch after this long.", duration, "SECONDS"),
    "max_rows_per_second": CommandOption("Delete no faster than this.", float, "ROWS"),
    "batch_size": CommandOption("Size of the first batch; later ones adapt.", int, "ROWS"),
    "nice": CommandOption(
        "Rest this long for each second of work (default: 0; SQLite: 1).", float, "SECONDS"
    ),
    "gentle": CommandOption("Take small batches, and use at most a fifth of a core.", bool),
    "workers": CommandOption(
        "Run this many batches of a table at once (default: 1).", int, "NUMBER"
    ),
    "statement_timeout": CommandOption(
        "The longest a statement of a batch may take.", duration, "SECONDS"
    ),
    "window": CommandOption("Sweep only during these hours of the day.", str, "HH:MM-HH:MM"),
    "timezone": CommandOption("The time zone of --window (default: UTC).", str, "NAME"),
    "max_fraction": CommandOption(
        "Fuse: delete nothing from a target if more than this share (0 to 1) of it has expired.",
        float,
        "SHARE",
    ),
    "max_jump": CommandOption(
        "Fuse: delete nothing from a target if it has more than this many times the most "
        "expired rows that any of its last ten sweeps found.",
        float,
        "TIMES",
    ),
    "force": CommandOption("Delete even if the fuse blows or a foreign key has no index.", bool),
    "replicate": CommandOption(
        "Replicate the deletions to replicas and subscribers (the default).",
        bool,
        is_negatable=True,
    ),
    "lease": CommandOption(
        "Let only one sweeper work at a time (the default).", bool, is_negatable=True
    ),
    "lease_name": CommandOption(
        "Sweepers with the same name take turns (default: ttl_odm).", str, "NAME"
    ),
    "lease_duration": CommandOption(
        "How long a dead sweeper keeps the others waiting (default: 60).", duration, "SECONDS"
    ),
}
"""By their names in Python: ``max_rows`` is ``--max-rows``."""

_COMMAND: Final = re.compile(r"\bttl-odm (?P<name>[a-z]+)")

LIMITS: Final = tuple(COMMAND_OPTIONS)[8:]
"""All but what selects, prints, asks and deletes nothing, in the order of help texts."""


def typed(text: str, program: Program) -> str:
    """Return a text in which each ``ttl-odm command`` is what is typed for it."""
    return _COMMAND.sub(lambda found: program(found["name"]), text)


def terminal_width(stream: SupportsIsATTY) -> int | None:
    """Return the columns of a terminal; None for what is none."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def is_terminal(stream: SupportsIsATTY | None) -> bool:
    """Return whether a person sits at a stream; one that was closed before is None."""
    return stream is not None and stream.isatty()


def can_ask() -> bool:
    """Return whether a person can read a question (on stderr) and answer it."""
    return is_terminal(sys.stderr) and is_terminal(sys.stdin)


def user_name() -> str:
    """Return the name of the system's user, for a history of changes.

    Raises:
        TTLConfigurationError: The user has no name, as in a container that runs under any number.
    """
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError) as error:  # by the version of Python
        raise TTLConfigurationError(
            "The system has no name for this process's user: give --by NAME."
        ) from error


def counting(options: SweepOptions) -> SweepOptions:
    """Return the options of a sweeper that only counts what one with `options` would delete.

    At any time of day, whoever has the lease, and whether sweepers are paused or not.
    """
    counts: SweepOptions = {**options, "dry_run": True, "window": None}
    if options.get("max_jump") is None:  # else the history it needs is kept beside the lease
        counts["lease"] = False
    return counts


def due_rows(count: SweepReport, most: int | None) -> Mapping[str, int]:
    """Return how many rows of each table a sweep will delete, by a report of a dry run.

    Tables that failed in it, such as by the fuse, will fail again, so they have none.

    Args:
        count: The report.
        most: The limit of rows for all tables, which are swept in the report's order.

    Raises:
        KeyboardInterrupt: A signal has stopped the count.
    """
    if count.ended is Ending.STOPPED:
        raise KeyboardInterrupt
    due = {target.table: target.due for target in count.targets if target.error is None}
    totals: dict[str, int] = {}
    for table, rows in due.items():
        if rows:
            left = rows if most is None else most - sum(totals.values())
            totals[table] = min(rows, left)
    return totals


def question(due: Iterable[Mapping[str, int]], counts: Iterable[SweepReport]) -> str | None:
    """Return what to ask before deleting the due rows of databases; None if there are none.

    Args:
        due: What `due_rows` returned for each database.
        counts: The reports of the dry runs, which know what goes along with these rows.
    """
    rows = sum(sum(tables.values()) for tables in due)
    targets = (target for count in counts for target in count.targets if target.error is None)
    others = sum(target.along for target in targets)
    along = f" and up to {counted(others, 'row')} that follow them" if others else ""
    return f"Delete {counted(rows, 'row')}{along}?" if rows else None


def report_text(report: SweepReport) -> str:
    """Return a report for people at a terminal, who are told of an option, not of an argument."""
    return str(report).replace("force=True", "--force")


NOTHING_DELETED: Final = "Nothing was deleted."
"""The reply to somebody who has answered the question with no."""


class Status(IntEnum):
    """What a command's exit status says."""

    DONE = 0
    FAILED = 1
    """Something could not be done: a target failed, a finding is an error, no connection."""

    USAGE = 2
    """The command line or the configuration is wrong; nothing was begun."""

    FUSE = 3
    """Far more has expired than is likely; nothing was deleted of these targets."""

    LEASE = 4
    """Another sweeper is at work, so this one did nothing, or went no further."""


def status_of(*reports: SweepReport) -> Status:
    """Return the exit status that reports mean together; that of no report is 0.

    A fuse that has blown comes first: somebody has to look, and it will not pass by itself.
    """
    errors = [
        error
        for report in reports
        for error in (report.error, *(target.error for target in report.targets))
    ]
    if any(isinstance(error, FuseError) for error in errors):
        return Status.FUSE
    if any(report.problems for report in reports):
        return Status.FAILED
    if any(report.ended in (Ending.LEASE_HELD, Ending.LEASE_LOST) for report in reports):
        return Status.LEASE
    return Status.DONE
