"""What a job has done by which a database sweeps a table by itself.

This module must not know how a job is made or read.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final, Literal

from ttl_odm.sweeper.facts import Fact
from ttl_odm.sweeper.text import age, visible


@dataclass(frozen=True, slots=True)
class JobState(Fact):
    """A job by which the database itself sweeps a target, and what its last run did.

    Attributes:
        name: What the database calls it.
        default: The default ttl by which it sweeps, as text; None if that is not known.
        state: "there", "disabled", "replicated" from another server, so that it doesn't run on this
            one, "gone", "off" where the server runs no jobs at all, or "elsewhere" where this
            database has no scheduler that could be asked.
        ran_ago: Seconds since its last run; None if it has never run.
        deleted: Rows that the last run deleted.
        total: Rows that all runs have deleted.
        outcome: How the last run ended.
        archive: The table that it copies rows to; None if it keeps none.
        window: The hours in which it may run, with their time zone; None for any.
        max_fraction: The share of the rows that may be expired at once; None for any number.
    """

    name: str
    default: str | None
    state: Literal["there", "disabled", "replicated", "gone", "off", "elsewhere"]
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
        """A word for what is wrong with it, and a sentence; None if nothing is."""
        if self.state in _JOB_PROBLEMS:
            return self.state, _JOB_PROBLEMS[self.state].format(self.name)
        if self.ran_ago is None:
            return "never", f"never swept: the database's own job {self.name} has not run yet"
        if self.outcome.startswith("failed: "):
            return "failing", f"the last sweep by the database {self.outcome}"
        if self.outcome.startswith("fuse: "):
            said = self.outcome.removeprefix("fuse: ")
            return "fuse", f"the database's own fuse has blown: {said}"
        if self.ran_ago > _SILENT:
            return "silent", f"the last sweep by the database was {age(self.ran_ago)} ago"
        return None

    def to_dict(self) -> dict[str, object]:
        """Return plain values, for JSON."""
        problem = self.problem
        return {**asdict(self), "problem": None if problem is None else problem[1]}


_SILENT: Final = 300.0
"""Seconds without a run from which on something is wrong; a job records one twice a minute."""

_JOB_PROBLEMS: Final = {
    "gone": "the database's own job {}, which should sweep it, doesn't exist",
    "disabled": "the database's own job {}, which should sweep it, is disabled",
    "replicated": "the database's own job {} comes from another server, and doesn't run here",
    "off": "the database should sweep it, but its event scheduler is off",
}


def database_sweep(job: JobState | None) -> dict[str, Fact]:
    """Return the fact by its name; nothing for a table that the database doesn't sweep."""
    return {} if job is None else {"database_sweep": job}
