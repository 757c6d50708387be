"""The job by which a database sweeps a table itself: its names, and what its last run did.

This module must not know how a job is created or read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias

from ttl_odm.sweeper.facts import Fact
from ttl_odm.sweeper.text import age, visible

JOB: Final = "ttl_sweep"
JOB_LOG: Final = "ttl_sweeps"
"""The suffixes of two names: of the job and its procedure, and of the table with its last run."""

JOB_NOTE: Final = "ttl_odm: sweeps by default ttl "
"""How a job's comment begins; the default follows."""

ARCHIVE_NOTE: Final = ", and archives in "
"""How the comment continues if the job archives rows; the archive's name follows."""

FUSE: Final = "fuse: "
FAILED: Final = "failed: "
"""How the outcomes of runs begin that need an operator."""

State: TypeAlias = Literal["there", "disabled", "replicated", "gone", "off", "elsewhere"]

SIGNATURE: Final = "(integer)"
"""The parameters of PostgreSQL's procedure: the seconds for which it works."""


@dataclass(frozen=True, slots=True)
class JobState(Fact):
    """A job by which the database itself sweeps a target, and what its last run did.

    Attributes:
        name: The job's name in the database.
        default: The default ttl by which it sweeps, as text; None if it is unknown.
        state: "there"; "disabled"; "replicated" from another server, so it doesn't run on this one;
            "gone"; "off": the server runs no jobs; "elsewhere": this database has no scheduler, so
            its jobs can't be read.
        ran_ago: Seconds since its last run; None if it has never run.
        deleted: Rows that the last run deleted.
        total: Rows that all runs have deleted.
        outcome: How the last run ended.
        archive: The table to which it copies rows; None without one.
        window: The hours in which it may run, with their time zone; None for any.
        max_fraction: The share of the rows that may be expired at once; None for any number.
    """

    name: str
    default: str | None
    state: State
    ran_ago: float | None = None
    deleted: int = 0
    total: int = 0
    outcome: str = ""
    archive: str | None = None
    window: str | None = None
    max_fraction: float | None = None

    def __str__(self) -> str:
        if self.ran_ago is None:
            return "swept by the database, which has never run its job"
        return (
            f"swept by the database: {visible(self.outcome)}, {age(self.ran_ago)} ago, "
            f"{self.deleted:,} deleted, {self.total:,} in all"
        )

    @property
    def problem(self) -> tuple[str, str] | None:
        """A word and a sentence for what is wrong with the job; None if nothing is."""
        if self.state in _JOB_PROBLEMS:
            return self.state, _JOB_PROBLEMS[self.state].format(self.name)
        if self.ran_ago is None:
            return "never", f"never swept: the database's own job {self.name} has not run yet"
        if self.outcome.startswith(FAILED):
            return "failing", f"the last sweep by the database {self.outcome}"
        if self.outcome.startswith(FUSE):
            return "fuse", f"the database's own fuse has blown: {self.outcome.removeprefix(FUSE)}"
        if self.ran_ago > _SILENT:
            return "silent", f"the last sweep by the database was {age(self.ran_ago)} ago"
        return None

    def to_dict(self) -> dict[str, object]:
        """Return plain values, for JSON."""
        problem = self.problem
        return {**asdict(self), "problem": None if problem is None else problem[1]}


_SILENT: Final = 300.0
"""Seconds without a run after which something is wrong; a job records one twice a minute."""

_JOB_PROBLEMS: Final = {
    "gone": "the database's own job {}, which should sweep it, doesn't exist",
    "disabled": "the database's own job {}, which should sweep it, is disabled",
    "replicated": "the database's own job {} comes from another server, and doesn't run here",
    "off": "the database should sweep it, but its event scheduler is off",
}


def database_sweep(job: JobState | None) -> dict[str, Fact]:
    """Return the fact by its name; nothing if the database doesn't sweep the table."""
    return {} if job is None else {"database_sweep": job}
