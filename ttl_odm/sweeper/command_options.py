"""The options of every command that sweeps: their names, types and help texts.

``ttl-odm sweep``, ``flask ttl sweep`` and ``manage.py ttl_sweep`` read them here, each in the terms
of its own parser. What a sweeper makes of them is in `options`; an option that stands in
`SweepOptions` too has the same name there. This module must not know click, argparse, a framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from ttl_odm.sweeper.report import SweepReport


class CommandOption(NamedTuple):
    """An option of a command.

    Its ``type`` is bool for a flag, whose opposite ``--no-...`` makes it ``is_negatable``, and list
    for names of which there may be any number; a flag has no ``metavar``.
    """

    help: str
    type: type
    metavar: str | None = None
    is_negatable: bool = False


COMMAND_OPTIONS: Final = {
    "model": CommandOption("This model or table only; may be repeated.", list, "NAME"),
    "except": CommandOption("Leave this model or table out; may be repeated.", list, "NAME"),
    "json": CommandOption("Print JSON.", bool),
    "dry_run": CommandOption("Count what has expired; delete nothing.", bool),
    "max_rows": CommandOption("Delete so many rows at most, then end.", int, "ROWS"),
    "max_seconds": CommandOption("Begin no further batch after that.", float, "SECONDS"),
    "max_rows_per_second": CommandOption("Don't exceed this rate.", float, "ROWS"),
    "batch_size": CommandOption("The first batch; the next ones adapt to its time.", int, "ROWS"),
    "nice": CommandOption("Rest so long for each second of work (SQLite: 1).", float, "SECONDS"),
    "statement_timeout": CommandOption("For each statement of a batch.", float, "SECONDS"),
    "window": CommandOption("Sweep in these hours of the day.", str, "HH:MM-HH:MM"),
    "timezone": CommandOption("The time zone of --window (UTC).", str, "NAME"),
    "max_fraction": CommandOption(
        "The fuse: delete nothing of a target of which more than this share, 0 to 1, has expired.",
        float,
        "SHARE",
    ),
    "max_jump": CommandOption(
        "The fuse: the same for so many times what one of the last ten sweeps found.",
        float,
        "TIMES",
    ),
    "force": CommandOption("Delete although the fuse blows, or a foreign key has no index.", bool),
    "lease": CommandOption("One sweeper at a time (the default).", bool, is_negatable=True),
    "lease_name": CommandOption("Sweepers of one name take turns (ttl_odm).", str, "NAME"),
    "lease_duration": CommandOption(
        "Another takes over after that from a dead one.", float, "SECONDS"
    ),
}
"""By their names in Python: ``max_rows`` is ``--max-rows``."""

LIMITS: Final = tuple(COMMAND_OPTIONS)[4:]
"""All but what selects, prints and only counts, in the order of help texts."""


def report_text(report: SweepReport) -> str:
    """Return a report for people at a terminal, who are told of an option, not of an argument."""
    return str(report).replace("force=True", "--force")
