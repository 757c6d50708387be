"""Findings and how they are shown: a table for people, Markdown for the README, JSON for tools.

A finding knows its goal and says how it stands to it; nothing here measures.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.harness import Estimate

BEGIN = "<!-- results: written by --update-readme, not by hand -->"
END = "<!-- end of results -->"

_COLUMNS = (
    "what", "database", "result", "95 %", "quartiles", "times (µs)", "goal", "verdict",
)  # fmt: skip
_NONE = "-"


@dataclass(frozen=True)
class Finding:
    """One figure on one database.

    Attributes:
        section: the heading that it stands under.
        what: what was measured or counted.
        database: on which database.
        unit: what the figure is.
        estimate: the figure with its spread; a count has none.
        times: microseconds of the two operations that a ratio compares.
        goal: what the figure should not exceed, if there is a goal.
    """

    section: str
    what: str
    database: str
    unit: Literal["ratio", "statements", "pages", "MiB", "µs"]
    estimate: Estimate
    times: tuple[float, float] | None = None
    goal: float | None = None

    @property
    def verdict(self) -> str:
        """How the figure, as it is shown, stands to its goal.

        ``unclear``: it is over the goal, but the sittings don't exclude that it isn't.
        """
        if self.goal is None:
            return _NONE
        if round(self.estimate.value, self._digits) <= self.goal:
            return "met"
        return "unclear" if round(self.estimate.low, self._digits) <= self.goal else "missed"

    @property
    def cells(self) -> tuple[str, ...]:
        """The finding as a line of the table."""
        found = self.estimate
        is_counted = self.unit not in {"ratio", "µs"}
        return (
            self.what,
            self.database,
            self._shown(found.value) + self._suffix,
            _NONE if is_counted else self._range(found.low, found.high),
            _NONE if is_counted else self._range(found.lower_quartile, found.upper_quartile),
            _NONE if self.times is None else "{:.0f} / {:.0f}".format(*self.times),
            _NONE if self.goal is None else f"<= {self._shown(self.goal)}",
            self.verdict,
        )

    @property
    def _suffix(self) -> str:
        return f" {self.unit}" if self.unit in {"µs", "pages", "MiB"} else ""

    @property
    def _digits(self) -> int:
        return {"ratio": 2, "µs": 1}.get(self.unit, 0)

    def _shown(self, figure: float) -> str:
        return f"{figure:.{self._digits}f}"

    def _range(self, low: float, high: float) -> str:
        return f"{self._shown(low)}..{self._shown(high)}"


@dataclass(frozen=True)
class Report:
    """All that one run has found.

    Attributes:
        circumstances: versions, machine, number of rounds: what the figures depend on.
        findings: the figures.
        missing: one line for each database that was not measured, with the reason.
    """

    circumstances: Sequence[str]
    findings: Sequence[Finding]
    missing: Sequence[str]

    def as_text(self) -> str:
        """A plain table, aligned."""
        lines = [_COLUMNS, *(finding.cells for finding in self.findings)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        parts = [*self.circumstances]
        for section, findings in self._sections():
            parts += ["", section, _aligned(_COLUMNS, widths)]
            parts += [_aligned(finding.cells, widths) for finding in findings]
        return "\n".join([*parts, "", *self.missing, *self._summary()])

    def as_markdown(self) -> str:
        """The same for GitHub."""
        parts = [f"- {line}" for line in (*self.circumstances, *self.missing)]
        for section, findings in self._sections():
            parts += ["", f"### {section}", "", _piped(_COLUMNS)]
            parts.append(_piped("---" if name == "what" else "--:" for name in _COLUMNS))
            parts += [_piped(finding.cells) for finding in findings]
        return "\n".join([*parts, "", *self._summary()])

    def as_json(self) -> str:
        """Everything, unrounded; estimates are in the finding's unit."""
        findings = [{**asdict(f), "verdict": f.verdict} for f in self.findings]
        return json.dumps(
            {
                "circumstances": list(self.circumstances),
                "missing": list(self.missing),
                "findings": findings,
            },
            ensure_ascii=False,
            indent=2,
        )

    def _sections(self) -> Iterable[tuple[str, list[Finding]]]:
        """Sections by title, and what they hold: the databases side by side."""
        sections: dict[str, dict[str, list[Finding]]] = {}
        for finding in self.findings:
            sections.setdefault(finding.section, {}).setdefault(finding.what, []).append(finding)
        for section, subjects in sorted(sections.items()):
            yield section, [finding for alike in subjects.values() for finding in alike]

    def _summary(self) -> list[str]:
        verdicts = [finding.verdict for finding in self.findings if finding.goal is not None]
        counts = [f"{verdicts.count(word)} {word}" for word in ("met", "unclear", "missed")]
        return [f"Goals: {', '.join(counts)}."]


def _aligned(cells: Iterable[str], widths: Iterable[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
    return "  ".join(padded).rstrip()


def _piped(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def update_readme(path: Path, report: Report) -> None:
    """Put a report between the two markers of a README.

    Args:
        path: the README.
        report: what goes in.

    Raises:
        ValueError: a marker is missing.
    """
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path} has no {BEGIN!r} followed by {END!r}")
    path.write_text(f"{before}{BEGIN}\n\n{report.as_markdown()}\n\n{END}{after}", encoding="utf-8")
