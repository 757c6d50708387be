"""What `ttl-odm check` finds: a value with the command that fixes it, and how it reads."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.sweeper.text import age, counted, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.cli.output import Output

AHEAD: Final = 3_600
"""Seconds that a last modification may lie in the future before that is worth a word."""


class Severity(Enum):
    """How bad it is."""

    ERROR = "error"
    """Rows are seen or kept that should not be, or nothing is deleted: exit status 1."""

    WARNING = "warning"
    """It works, but not well, or not for long."""

    SKIPPED = "skipped"
    """It was not looked at: that would have taken too long."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, with the command or statement that fixes it.

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

    def repeating(self, words: Sequence[str], file: str | None = None) -> Finding:
        """Return it with what a command of ours, if it is fixed by one, needs as well.

        Args:
            words: Options of the command.
            file: What ``--config`` names; None where nobody has typed it.
        """
        if not self.fix or not self.fix.startswith("ttl-odm "):
            return self
        program, command, *rest = self.fix.split(" ", 2)
        config = [] if file is None else ["--config", shlex.quote(file)]
        return replace(
            self, fix=" ".join([program, *config, command, *map(shlex.quote, words), *rest])
        )

    @property
    def annotation(self) -> str:
        """The line by which GitHub Actions shows it."""
        level = {Severity.ERROR: "error", Severity.WARNING: "warning"}.get(self.severity, "notice")
        where = f" in {self.target}" if self.target else ""
        title = _escaped(f"ttl-odm: {self.code}{where}").replace(":", "%3A").replace(",", "%2C")
        fix = f"\nFix it with: {self.fix}" if self.fix else ""
        return f"::{level} title={title}::{_escaped(self.message + fix)}"


def fix_of_unreadable(why: str, table: str, deeper: str) -> str:
    """What may let a table be read that could not be: a right, patience, or no time limit."""
    if any(word in why.lower() for word in ("denied", "not authorized", "privilege")):
        return f"GRANT SELECT ON {table} TO ...  (the user of --url)"
    if "lock" in why.lower():
        return f"{deeper}  (when nobody locks the table any more)"
    return f"{deeper}  (it has no time limit)"


def overdue(target: str, model: str, seconds: float) -> Finding:
    """What says that a target isn't swept: its first expired row has waited for so long."""
    message = f"expired rows wait to be deleted, the oldest for {age(seconds)}"
    return Finding(Severity.ERROR, "overdue", target, message, f"ttl-odm sweep --model {model}")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.SKIPPED: "dim"}


def print_findings(findings: list[Finding], checked: int, output: Output) -> None:
    """Print findings for people, the worst first, and how many targets were looked at."""
    for severity in Severity:
        for finding in findings:
            if finding.severity is severity:
                where = f"{visible(finding.target)}: " if finding.target else ""
                output.line(f"{severity.value} {finding.code}", style=_STYLES[severity])
                output.line(f"{where}{finding.message}", indent=2)
                if finding.fix:
                    output.line(finding.fix, indent=2, mark="> ", style="cyan")
    errors, warnings = (
        sum(finding.severity is severity for finding in findings)
        for severity in (Severity.ERROR, Severity.WARNING)
    )
    output.line(
        f"{counted(checked, 'target')} checked: {counted(errors, 'error')}, "
        f"{counted(warnings, 'warning')}."
    )
