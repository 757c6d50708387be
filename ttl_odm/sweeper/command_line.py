"""What all commands share: options, the question of a sweep, its report, passwords, exit statuses.

``ttl-odm sweep`` and ``manage.py ttl_sweep`` translate `COMMAND_OPTIONS` for their own parsers;
``flask ttl sweep`` has few options of its own, since ``app.config`` has the rest. An option that is
also in `SweepOptions` has the same name there. docs/cli.md lists the exit statuses, which are for
cron, systemd and CI. This module must not know click, argparse, a framework.
"""

from __future__ import annotations

import getpass
import re
import shutil
import sys
from enum import IntEnum
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO, TypeAlias

from ttl_odm.core.values import duration
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
            """Return whether it is a terminal."""
            ...


Program: TypeAlias = "Callable[[str], str]"
"""Returns another command of the same program, as users type it, by its name in ``ttl-odm``.

For ``resume`` such as ``flask ttl resume``, with the arguments that select the database.
"""


class CommandOption(NamedTuple):
    """An option of a command.

    Attributes:
        type: bool for a flag, list for an option that may be repeated, otherwise the parser.
        metavar: The value in help texts; None for a flag.
        is_negatable: Whether a flag has an opposite, ``--no-...``.
        letter: The short form of a flag, if it has one.
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
    "replica": CommandOption(
        "Compare the clock of this replica with the database's; may be repeated.", list, "URL"
    ),
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
    "throttle": CommandOption(
        "Before each batch, wait as long as this throttle says: replication.", str, "NAME"
    ),
    "statement_timeout": CommandOption(
        "The longest a statement of a batch may take.", duration, "SECONDS"
    ),
    "standby": CommandOption(
        "At a server that takes no writes: wait (the default), or exit.", str, "wait|exit"
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

_OF_COMMANDS: Final = frozenset(
    {"model", "except", "json", "max_age", "deep", "strict", "replica", "dry_run", "yes"}
)
"""The options that are a command's own, or that a command asks for in another way."""

SWEEP_OPTIONS: Final = tuple(name for name in COMMAND_OPTIONS if name not in _OF_COMMANDS)
"""The options of a sweep that a text can express, in the order of help texts.

``ttl-odm sweep`` and ``run`` and Django's ``ttl_sweep`` offer all of them. Those of `SweepOptions`
that are objects, such as `pace`, are for Python only.
"""


def typed(text: str, program: Program) -> str:
    """Return a text with each ``ttl-odm command`` as users of a program type it."""
    return _COMMAND.sub(lambda match: program(match["name"]), text)


def escape_unencodable() -> None:
    """Let standard output escape what its encoding lacks, as standard error does, not fail."""
    if isinstance(sys.stdout, TextIOWrapper) and not is_unicode(sys.stdout):
        sys.stdout.reconfigure(errors="backslashreplace")


def is_unicode(stream: TextIO | None) -> bool:
    """Return whether the encoding of a stream has all characters."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().startswith("utf")


def terminal_width(stream: SupportsIsATTY | None) -> int | None:
    """Return the columns of a terminal; None for any other stream."""
    return shutil.get_terminal_size().columns if is_terminal(stream) else None


def is_terminal(stream: SupportsIsATTY | None) -> bool:
    """Return whether a stream is a terminal; it is None if Python found it closed."""
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


def count_options(options: SweepOptions) -> SweepOptions:
    """Return the options for counting what a sweeper with `options` would delete.

    It counts at any time of day, even if another sweeper has the lease or they are paused.
    """
    counts: SweepOptions = {**options, "dry_run": True, "window": None}
    if options.get("max_jump") is None:  # else the history it needs is recorded with the lease
        counts["lease"] = False
    return counts


def due_rows(count: SweepReport, most: int | None) -> Mapping[str, int]:
    """Return how many rows of each table a sweep will delete, by a report of a dry run.

    Without tables that failed, such as by the fuse, because they will fail again.

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
    """Return the question before the due rows of databases are deleted; None without due rows.

    Args:
        due: The result of `due_rows` for each database.
        counts: The reports of the dry runs, with the rows that will be deleted along.
    """
    rows = sum(sum(tables.values()) for tables in due)
    targets = (target for count in counts for target in count.targets if target.error is None)
    others = sum(target.along for target in targets)
    along = f" and up to {counted(others, 'row')} that follow them" if others else ""
    return f"Delete {counted(rows, 'row')}{along}?" if rows else None


_IN_URL: Final = re.compile(r"(?P<head>(?:\w[\w+.-]*://)?[^\s:/@'\"]*?)(?::(?!//)|%3[Aa])\S+@")
"""Up to the last @ of a word, with a scheme or without."""
_PORT: Final = r"\d{1,5}(?:,[^\s:/@,]+(?::\d{1,5})?)*(?:[^\w@:-]|$)"
_WITHOUT_HOST: Final = re.compile(
    rf"(?P<head>\w[\w+.-]*://[^\s:/@\[]*):(?!\*\*\*|{_PORT})(?:[^\n'\"]*(?=@)|[^\s/?'\"]+)"
)
"""A user and a password where a host and a port belong, or several; but a port is a number.

If an @ follows, the password contains a space.
"""
_NAMED: Final = re.compile(
    r"(?i)(?P<head>(?:(?:password|passwd|pwd)\s*=\s*"
    r"|(?:password|passwd|pwd|secret|token|api_?key|mechanismproperties)(?:=|%3d)))"
    r"(?:'[^']*'|\"[^\"]*\"|[^&\s'\"]+)"
)
"""A password in a URL's query or a connection string, by the end of its name."""


def without_passwords(text: str) -> str:
    """Return an error's text without the passwords that drivers and handlers put into it."""
    text = _WITHOUT_HOST.sub(r"\g<head>:***", _IN_URL.sub(r"\g<head>:***@", text))
    return _NAMED.sub(r"\g<head>***", text)


def report_text(report: SweepReport) -> str:
    """Return a report for people, without passwords; it names the option, not the argument."""
    return without_passwords(str(report).replace("force=True", "--force"))


def report_dict(report: SweepReport) -> dict[str, Any]:
    """Return a report for JSON, without passwords."""
    content = report.to_dict()
    for part in (content, *content["targets"]):
        if part["error"] is not None:
            part["error"]["message"] = without_passwords(part["error"]["message"])
    for target in content["targets"]:
        for lines in ("left", "notes"):
            target[lines] = [*map(without_passwords, target[lines])]
    return content


NOTHING_DELETED: Final = "Nothing was deleted."
"""The reply to a no."""


class Status(IntEnum):
    """The exit status of a command."""

    DONE = 0
    FAILED = 1
    """Something failed: a target, a check (a finding is an error), the connection."""

    USAGE = 2
    """The command line or the configuration is wrong; nothing was done."""

    FUSE = 3
    """A fuse has blown: nothing was deleted from its target."""

    LEASE = 4
    """Another sweeper has the lease, so this one did nothing, or no more."""

    STANDBY = 5
    """The server takes no writes, so this sweeper did nothing, or no more."""


def status_of(*reports: SweepReport) -> Status:
    """Return the exit status for all reports together, 0 for none.

    A blown fuse comes first, because a person has to look at it.
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
    if any(report.ended is Ending.STANDBY for report in reports):
        return Status.STANDBY
    return Status.DONE
