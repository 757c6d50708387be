"""The results of the check commands: a `Finding` with the command that fixes it, and its text.

The checks of any store are here (`look_after`): for how long expired rows have waited, when they
were last swept, its clock. Checks of a schema are the adapters'. ``ttl-odm``, ``flask ttl`` and
``manage.py`` print the same; this module must not know them.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.command_line import typed
from ttl_odm.sweeper.commands import AskServer, DatabaseNow, FindDue, ReadLease
from ttl_odm.sweeper.report import in_one_line
from ttl_odm.sweeper.store import StoreError
from ttl_odm.sweeper.text import age, counted, visible, without_controls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ttl_odm.sweeper.command_line import Program
    from ttl_odm.sweeper.commands import Plan
    from ttl_odm.sweeper.leases import LeaseState
    from ttl_odm.sweeper.store import Server

MAX_AGE: Final = 86_400.0
"""The default of the most seconds that an expired row may wait, and since the last sweep."""

AHEAD: Final = 3_600
"""Seconds that a last modification may lie in the future without a finding."""

SMALL: Final = 100_000
"""The most rows of a table that may be read whole, and needs no index."""

UNSEARCHABLE: Final = ("missing-table", "missing-column")
"""The codes of findings with which a query of the target's rows would fail."""

WRONG_UNIT: Final = "wrong-unit"
"""The code of the finding that values are read in another unit than they were written in."""

_CLOCK_SECONDS: Final = 5.0

_FAST: Final = ("ahead of", "it hides rows that long before they expire")
_SLOW: Final = ("behind", "it shows rows for that long after they have expired")


class Severity(Enum):
    """How bad it is."""

    ERROR = "error"
    """Rows are visible or kept that should not be, or nothing is deleted: exit status 1."""

    WARNING = "warning"
    """It works, but not well, or not for long."""

    SKIPPED = "skipped"
    """It was not checked, because that would take too long."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem, with the command or statement that fixes it.

    The code is for machines (``missing-index``); no target means the whole database.
    """

    severity: Severity
    code: str
    target: str | None
    message: str
    fix: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**asdict(self), "severity": self.severity.value}

    def for_program(self, program: Program) -> Finding:
        """Return it with the commands of its fix as users of a program type them."""
        return replace(self, fix=self.fix and typed(self.fix, program))

    @property
    def annotation(self) -> str:
        """The line that makes GitHub Actions show it."""
        level = {Severity.ERROR: "error", Severity.WARNING: "warning"}.get(self.severity, "notice")
        where = f" in {self.target}" if self.target else ""
        title = _escaped(f"ttl-odm: {self.code}{where}").replace(":", "%3A").replace(",", "%2C")
        fix = f"\nFix it with: {self.fix}" if self.fix else ""
        return f"::{level} title={title}::{_escaped(self.message + fix)}"


def fix_of_unreadable(why: str, table: str, deeper: str) -> str:
    """Return the fix for an unreadable table: a right, patience, or no time limit."""
    if any(word in why.lower() for word in ("denied", "not authorized", "privilege")):
        return f"GRANT SELECT ON {table} TO ...  (the user who asked)"
    if "lock" in why.lower():
        return f"{deeper}  (once the table is no longer locked)"
    return f"{deeper}  (it has no time limit)"


def searchable(targets: Mapping[str, str], findings: Sequence[Finding]) -> dict[str, str]:
    """Return the targets whose rows can be queried, with their models.

    Misread targets are left out: their rows aren't overdue, and a sweep would delete them.
    """
    broken = {
        finding.target
        for finding in findings
        if finding.code in UNSEARCHABLE or is_misread([finding])
    }
    return {target: model for target, model in targets.items() if target not in broken}


def is_misread(findings: Sequence[Finding]) -> bool:
    """Return whether most rows are read in another unit than they were written in."""
    return any(
        finding.code == WRONG_UNIT and finding.severity is Severity.ERROR for finding in findings
    )


def overdue(target: str, model: str, seconds: float) -> Finding:
    """Return the finding that the oldest expired row of a target has waited for so long."""
    message = f"expired rows are waiting to be deleted, the oldest for {age(seconds)}"
    return Finding(Severity.ERROR, "overdue", target, message, f"ttl-odm sweep --model {model}")


def _escaped(text: str) -> str:
    return without_controls(text.replace("\r", "\n")).replace("%", "%25").replace("\n", "%0A")


def look_after(
    targets: Mapping[str, str],
    lease_name: str | None,
    max_age: float,
    explain: Callable[[Exception], str] = in_one_line,
    *,
    is_clocked: bool,
) -> Plan[list[Finding]]:
    """Check whether the targets are swept, by a server that can, and whether its clock is right.

    Args:
        targets: The targets, each with the name of its model.
        lease_name: The name of the lease; None if there is none.
        max_age: The most seconds that an expired row may wait, or since the last sweep.
        explain: Returns a line for people about an error.
        is_clocked: Whether the store is `Clocked`.
    """
    findings = []
    for target, model in targets.items():
        findings += yield from _of_oldest(target, model, max_age, explain)
    if lease_name is not None:
        findings += _of_lease((yield from ReadLease(lease_name)), max_age)
        findings += _of_server((yield from AskServer()))
    if is_clocked:
        findings += yield from _of_clock()
    return findings


def _of_oldest(
    target: str, model: str, max_age: float, explain: Callable[[Exception], str]
) -> Plan[list[Finding]]:
    """Check for how long the oldest expired row has waited, without counting the others."""
    try:
        due = yield from FindDue(target)
    except StoreError as error:
        why = explain(error)
        fix = fix_of_unreadable(why, target, f"ttl-odm sweep --dry-run --model {model}")
        return [Finding(Severity.ERROR, "unreadable", target, why, fix)]
    except TTLConfigurationError as error:  # its message says what to do
        return [Finding(Severity.ERROR, "unreadable", target, explain(error))]
    if due is None or due.oldest is None or due.oldest <= max_age:
        return []
    return [overdue(target, model, due.oldest)]


def _of_lease(lease: LeaseState, max_age: float) -> Iterator[Finding]:
    if lease.paused:
        message = "the sweepers are paused"
        yield Finding(Severity.WARNING, "paused", None, message, "ttl-odm resume")
    if lease.recorded_ago is None:
        message = "no sweep has been recorded in this database"
        yield Finding(Severity.WARNING, "never-swept", None, message, "ttl-odm run")
    elif lease.recorded_ago > max_age:
        message = f"the last sweep was {age(lease.recorded_ago)} ago"
        yield Finding(Severity.ERROR, "not-swept", None, message, "ttl-odm run")


def _of_server(server: Server | None) -> Iterator[Finding]:
    if server is not None and not server.takes_writes:
        name = "the server that answered" if server.address is None else server.address
        message = f"{name} takes no writes, as a standby: nothing is swept there"
        fix = "name all servers in the URL, and let the driver choose the one that takes writes"
        yield Finding(Severity.WARNING, "standby", None, message, fix)


def _of_clock() -> Plan[list[Finding]]:
    before = datetime.now(timezone.utc)
    now = yield from DatabaseNow()
    off = abs(_ahead(now, before, datetime.now(timezone.utc)))
    if off <= _CLOCK_SECONDS:
        return []
    message = (
        f"the database's clock and this host's differ by {off:,.0f} s; expiry follows the "
        "database's"
    )
    fix = "timedatectl set-ntp true, on the one that is wrong"
    return [Finding(Severity.WARNING, "clock", None, message, fix)]


def _ahead(now: datetime, before: datetime, after: datetime) -> float:
    """Return by how many seconds, at least, a clock is ahead of another; negative if behind.

    The other clock was read just `before` and just `after` it.
    """
    ahead, behind = (now - after).total_seconds(), (before - now).total_seconds()
    return ahead if ahead > 0 else -max(behind, 0.0)


def of_replica(
    name: str, now: datetime, between: tuple[datetime, datetime], server: Server | None
) -> list[Finding]:
    """Return the findings about a replica: a wrong clock, or that it takes writes.

    Args:
        name: Its name, for people.
        now: Its clock.
        between: The primary's clock, read just before and just after.
        server: Its answer to which server it is; None if it doesn't answer that.
    """
    findings = []
    if server is not None and server.takes_writes:
        message = f"{name} takes writes as a primary does"
        fix = "make it read-only, or give the address of the replica itself"
        findings.append(Finding(Severity.WARNING, "writable-replica", None, message, fix))
    ahead = _ahead(now, *between)
    if abs(ahead) > _CLOCK_SECONDS:
        where, meaning = _FAST if ahead > 0 else _SLOW
        message = f"the clock of {name} is {abs(ahead):,.0f} s {where} its primary's: {meaning}"
        fix = "timedatectl set-ntp true, on the one that is wrong"
        findings.append(Finding(Severity.ERROR, "replica-clock", None, message, fix))
    return findings


class Line(NamedTuple):
    """A line for people; with a severity if it names one."""

    text: str
    indent: int = 0
    mark: str = ""
    severity: Severity | None = None

    def __str__(self) -> str:
        return f"{' ' * self.indent}{self.mark}{self.text}"


def lines_of(findings: Sequence[Finding], checked: int) -> Iterator[Line]:
    """Yield findings for people, the worst first, and the number of targets checked."""
    for severity in Severity:
        for finding in findings:
            if finding.severity is severity:
                where = f"{visible(finding.target)}: " if finding.target else ""
                yield Line(f"{severity.value} {finding.code}", severity=severity)
                yield Line(f"{where}{finding.message}", indent=2)
                if finding.fix:
                    yield Line(finding.fix, indent=2, mark="> ")
    errors, warnings = (
        sum(finding.severity is severity for finding in findings)
        for severity in (Severity.ERROR, Severity.WARNING)
    )
    yield Line(
        f"{counted(checked, 'target')} checked: {counted(errors, 'error')}, "
        f"{counted(warnings, 'warning')}."
    )


def github_annotations(findings: Sequence[Finding]) -> str | None:
    """Return the lines that make GitHub Actions show findings; None outside of it."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return None
    return "\n".join(finding.annotation for finding in findings)


def findings_dict(findings: Sequence[Finding], checked: int) -> dict[str, Any]:
    """Return plain values, for JSON."""
    return {"checked": checked, "findings": [finding.to_dict() for finding in findings]}


def have_failed(findings: Sequence[Finding], *, strict: bool) -> bool:
    """Return whether a check has failed: by an error or, if it is strict, by a warning."""
    severities = {finding.severity for finding in findings}
    return Severity.ERROR in severities or (strict and Severity.WARNING in severities)
