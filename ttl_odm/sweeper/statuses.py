"""Exit statuses: what every command that sweeps says to cron, systemd and CI.

Here, since ``ttl-odm`` and ``manage.py ttl_sweep`` mean the same by them. docs/cli.md lists them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from ttl_odm.sweeper.fuse import FuseError
from ttl_odm.sweeper.report import Ending

if TYPE_CHECKING:
    from ttl_odm.sweeper.report import SweepReport


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
