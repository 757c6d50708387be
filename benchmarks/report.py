"""The report of a run: Markdown for people, JSON for tools, two plots for the eye.

A report is made of parts, one for each benchmark. What was measured earlier stays in it until it is
measured anew, and every part says when that was and with what. Nothing here measures.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.costs import sentences
from benchmarks.findings import Finding, number, shown
from benchmarks.goal_rivals import RIVALS
from benchmarks.goals import GOALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from benchmarks.findings import Unit

NAME = "report"
PYTHON = "Python"
DATABASES = ("SQLite", "PostgreSQL", "MariaDB", "MySQL", "MongoDB", PYTHON)
"""The columns, where a table has them."""

COST = "cost"
"""What the picture is called that shows what each kind of use costs."""

_PREFACE = """\
<!-- written by `python3 tools/dev.py bench`, not by hand -->

# What TTL costs

Each figure is how many times as long something takes as what one would use instead: 1 is no
difference. Two figures are the lowest and the highest of the databases."""

_HOW = """\
The rest of this page is everything that was measured. What the sections compare, how to read a
cell, and why some goals are missed, is in [README.md](README.md). `python3 tools/dev.py bench`
writes all of this, the plots, and the unrounded figures with their times as JSON."""

_BESIDE = """\
After a semicolon: what the same work without ttl_odm reaches, on the lines where ours doesn't meet
the goal."""


@dataclass(frozen=True)
class Part:
    """What one benchmark has found.

    Attributes:
        name: the benchmark's.
        begun: when, in UTC, to the minute.
        seconds: how long it took.
        load: the machine's load over the minute before it began.
        sizes: how much was measured: a word, and after a colon what it means.
        versions: a line about each thing that the figures depend on.
        findings: the figures.
    """

    name: str
    begun: str
    seconds: float
    load: float
    sizes: str
    versions: Sequence[str]
    findings: Sequence[Finding]


@dataclass(frozen=True)
class Report:
    """All parts.

    Attributes:
        parts: in the order in which they are shown.
        missing: one line for each thing that was not measured in the last run, with the reason.
    """

    parts: Sequence[Part]
    missing: Sequence[str] = ()

    @classmethod
    def read(cls, folder: Path) -> Report:
        """The report that lies in a folder; an empty one if none does."""
        file = folder / f"{NAME}.json"
        if not file.exists():
            return cls([])
        content = json.loads(file.read_text(encoding="utf-8"))
        return cls([_part(part) for part in content["parts"]], content["missing"])

    def with_part(
        self, part: Part, order: Sequence[str], *, of_some_databases: bool = False
    ) -> Report:
        """The same report with a part instead of the one of its name, and of its older figures.

        Args:
            part: what is new.
            order: the names of all parts.
            of_some_databases: what was found earlier on others stays, as a part by itself.
        """
        others = self._without(part, order)
        if of_some_databases:
            anew = {finding.database for finding in part.findings}
            for earlier in self.parts:
                kept = [finding for finding in earlier.findings if finding.database not in anew]
                if earlier.name == part.name and kept:
                    others.append(replace(earlier, findings=kept))
        parts = sorted([*others, part], key=lambda part: order.index(part.name))
        return replace(self, parts=parts)

    def _without(self, part: Part, order: Sequence[str]) -> list[Part]:
        """The other parts, without figures that the part has: it may have been split off one."""
        anew = {(found.section, found.what, found.database) for found in part.findings}
        others = []
        for other in self.parts:
            kept = [
                found
                for found in other.findings
                if (found.section, found.what, found.database) not in anew
            ]
            if kept and other.name != part.name and other.name in order:
                others.append(replace(other, findings=kept))
        return others

    def write(self, folder: Path) -> None:
        """Write all files: report.md, report.json, report.svg and cost.svg.

        Args:
            folder: where; it is made if need be.
        """
        from benchmarks.plot import draw, draw_costs  # noqa: PLC0415 - they take a second to import

        folder.mkdir(parents=True, exist_ok=True)
        draw(self.findings, folder / f"{NAME}.svg")
        draw_costs(self.findings, folder / f"{COST}.svg")
        (folder / f"{NAME}.md").write_text(self.as_markdown(), encoding="utf-8")
        (folder / f"{NAME}.json").write_text(self.as_json(), encoding="utf-8")

    @property
    def findings(self) -> list[Finding]:
        """Of all parts."""
        return [finding for part in self.parts for finding in part.findings]

    def as_json(self) -> str:
        """Everything, unrounded."""
        parts = [
            {**asdict(part), "findings": [finding.as_json() for finding in part.findings]}
            for part in self.parts
        ]
        whole = {"missing": list(self.missing), "parts": parts}
        return json.dumps(whole, ensure_ascii=False, indent=1) + "\n"

    def as_markdown(self) -> str:
        """What each use costs, the goals, a table for each section, and what it all depends on."""
        return "\n".join(
            [
                *(_PREFACE, "", f"![What each kind of use costs, by database]({COST}.svg)", ""),
                *(f"- {sentence}" for sentence in sentences(self.findings)),
                *("", _HOW, "", "## The goals", "", _BESIDE, "", *self.goals(), ""),
                *(f"![The ratios, with their spread and their goals]({NAME}.svg)", ""),
                *self._sections(),
                *("## How it was measured", "", *self._circumstances(), ""),
            ]
        )

    def goals(self) -> list[str]:
        """The table of the goals, as lines of Markdown."""
        judged = [finding for finding in self.findings if finding.goal is not None]
        databases = _columns(judged)
        lines = [_row("goal", "limit", *databases), _row("---", *["--:"] * (len(databases) + 1))]
        for goal in GOALS:
            its = [finding for finding in judged if finding.goal == goal]
            cells = [self._cell([f for f in its if f.database == name]) for name in databases]
            limit = goal.text if its else f"{goal.text}, not measured"
            lines.append(_row(goal.what, limit, *cells))
        verdicts = [finding.verdict for finding in judged]
        counts = [f"{verdicts.count(word)} {word}" for word in ("met", "unclear", "missed")]
        beside = sum(self._is_missed_by_the_rival(finding) for finding in judged)
        rivals = f"Of those not met, the rival misses {beside}, too."
        return [*lines, "", f"Single figures with a goal: {', '.join(counts)}. {rivals}"]

    def _cell(self, findings: Sequence[Finding]) -> str:
        """All findings for one goal on one database, and the rival beside those that miss it."""
        goal = findings[0].goal if findings else None
        rival = None if goal is None else RIVALS.get(goal)
        figures = [] if rival is None else [self._rivals_figure(finding) for finding in findings]
        known = [figure for figure in figures if figure is not None]
        if goal is None or rival is None or not known:
            return _summed(findings)
        misses = ", misses it too" if not any(map(goal.allows, known)) else ""
        return f"{_summed(findings)}; {rival.name}: {_span(known, goal.unit)}{misses}"

    def _rivals_figure(self, finding: Finding) -> float | None:
        """The rival's figure beside one of ours that doesn't meet its goal."""
        if finding.goal is None or finding.verdict == "met":
            return None
        rival = RIVALS.get(finding.goal)
        return None if rival is None else rival.figure(finding, self.findings)

    def _is_missed_by_the_rival(self, finding: Finding) -> bool:
        figure = self._rivals_figure(finding)
        return finding.goal is not None and figure is not None and not finding.goal.allows(figure)

    def _sections(self) -> Iterable[str]:
        sections: dict[str, list[Finding]] = {}
        for finding in self.findings:
            sections.setdefault(finding.section, []).append(finding)
        for section, findings in sections.items():
            databases = _columns(findings)
            yield from (f"## {section}", "", _row("what", *databases))
            yield _row("---", *["--:"] * len(databases))
            for what in dict.fromkeys(finding.what for finding in findings):
                cells = {f.database: f.text for f in findings if f.what == what}
                yield _row(what, *[cells.get(name, "") for name in databases])
            yield ""

    def _circumstances(self) -> Iterable[str]:
        versions = dict.fromkeys(line for part in self.parts for line in part.versions)
        sizes = dict.fromkeys(part.sizes for part in self.parts)
        yield from (f"- {line}" for line in (*versions, *sizes, *self.missing))
        yield from ("", _row("benchmark", "UTC", "seconds", "load before", "size"))
        yield _row("---", "---", "--:", "--:", "---")
        for part in self.parts:
            took = f"{part.seconds:.0f}"
            size = part.sizes.partition(":")[0]
            yield _row(part.name, part.begun, took, f"{part.load:.1f}", size)


def _part(content: dict[str, Any]) -> Part:
    findings = [Finding.from_json(item, GOALS) for item in content["findings"]]
    return Part(**{**content, "findings": findings})


def _columns(findings: Iterable[Finding]) -> list[str]:
    there = {finding.database for finding in findings}
    return [name for name in DATABASES if name in there]


def _summed(findings: Sequence[Finding]) -> str:
    """All findings for one goal on one database, in a cell."""
    if not findings:
        return "-"
    if len(findings) == 1:
        return findings[0].text
    unit, values = findings[0].unit, [finding.estimate.value for finding in findings]
    met = sum(finding.verdict == "met" for finding in findings)
    verdict = "all met" if met == len(findings) else f"**{met} of {len(findings)} met**"
    return f"{_span(values, unit)}, {verdict}"


def _span(values: Sequence[float], unit: Unit) -> str:
    """From the lowest to the highest."""
    lowest, highest = number(min(values), unit), number(max(values), unit)
    return ("" if lowest == highest else f"{lowest}..") + shown(max(values), unit)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
