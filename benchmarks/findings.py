"""What a benchmark finds: one figure on one database, and how it stands to a goal.

Nothing here measures, and nothing here writes: `benchmarks.harness` does the one, and
`benchmarks.report` and `benchmarks.plot` the other.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.harness import Estimate, estimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from benchmarks.harness import Round

    Unit = Literal[
        "ratio",
        "exponent",
        "statements",
        "pages",
        "modules",
        "sweepers",
        "MiB",
        "bytes",
        "s",
        "ms",
        "µs",
    ]
    Verdict = Literal["met", "unclear", "missed"]

_DIGITS = {"ratio": 2, "exponent": 2, "s": 2, "ms": 1, "µs": 1}
"""Digits after the point that a figure is shown with, and judged by; others are whole."""

_MEASURED = ("s", "ms", "µs", "MiB", "bytes")

_MANY = 10
"""From here on a ratio has no use for hundredths."""


@dataclass(frozen=True)
class Goal:
    """A line of the project's table of numbers to reach.

    Attributes:
        what: what it is about.
        limit: what a figure may be.
        unit: what the limit is counted in.
        at_least: the limit is the lowest, not the highest, that a figure may be.
    """

    what: str
    limit: float
    unit: Unit = "ratio"
    at_least: bool = False

    @property
    def text(self) -> str:
        """The limit."""
        return f"{'≥' if self.at_least else '≤'} {shown(self.limit, self.unit)}"

    def allows(self, figure: float) -> bool:
        """Whether a figure, as it is shown, keeps to the limit."""
        figure = _rounded(figure, self.unit)
        return figure >= self.limit if self.at_least else figure <= self.limit


@dataclass(frozen=True)
class Rival:
    """What the same work costs without ttl_odm, by the measure of a goal.

    It is read from another finding, so that it has been measured as often and beside ours.

    Attributes:
        name: what the report calls it.
        section: the heading of that finding.
        line: its `what`, with ``{what}`` for ours, ``{work}`` for the beginning of ours, up to the
            semicolon or slash before what it is compared with, and ``{rest}`` for what follows.
        is_below_ours: that finding is ours / the rival, and not the rival / what ours is compared
            with. The rival's figure is then the quotient of both.
    """

    name: str
    section: str
    line: str
    is_below_ours: bool = False

    def figure(self, ours: Finding, findings: Iterable[Finding]) -> float | None:
        """The rival's figure, in the unit of ours; None if it wasn't measured.

        Args:
            ours: what has the goal.
            findings: all that there are.
        """
        work, *rest = re.split("; | / ", ours.what, maxsplit=1)
        line = self.line.format(what=ours.what, work=work, rest="".join(rest))
        for finding in findings:
            if (finding.section, finding.what) != (self.section, line):
                continue
            if finding.database == ours.database and finding != ours:
                value = finding.estimate.value
                return ours.estimate.value / value if self.is_below_ours else value
        return None


@dataclass(frozen=True)
class Finding:
    """One figure on one database.

    Attributes:
        section: the heading that it stands under.
        what: what was measured or counted.
        database: on which database; "Python" where none takes part.
        unit: what the figure is.
        estimate: the figure with its spread; a count has none.
        times: microseconds of the two operations that a ratio compares.
        goal: what the figure should keep to, if there is a goal.
        size: of how many rows, tables and so on, where it is one of several sizes; of a ratio of
            two sizes, how many times the smaller one the larger one is.
    """

    section: str
    what: str
    database: str
    unit: Unit
    estimate: Estimate
    times: tuple[float, float] | None = None
    goal: Goal | None = None
    size: int | None = None

    @property
    def verdict(self) -> Verdict | None:
        """How the figure stands to its goal; None where there is none.

        ``unclear``: it is beyond the limit, but the sittings don't exclude that it isn't.
        """
        if self.goal is None:
            return None
        if self.goal.allows(self.estimate.value):
            return "met"
        nearest = self.estimate.high if self.goal.at_least else self.estimate.low
        return "unclear" if self.goal.allows(nearest) else "missed"

    @property
    def text(self) -> str:
        """The figure, its spread and its verdict."""
        found = self.estimate
        parts = [shown(found.value, self.unit)]
        if found.low < found.high:
            low, high = (number(bound, self.unit) for bound in (found.low, found.high))
            parts.append(f"({low}..{high})")
        verdict = self.verdict
        if verdict is not None:
            parts.append(verdict if verdict == "met" else f"**{verdict}**")
        return " ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Everything, unrounded; the estimate is in the finding's unit."""
        goal = None if self.goal is None else self.goal.what
        content = {**asdict(self), "goal": goal, "verdict": self.verdict}
        if self.size is None:
            del content["size"]
        return content

    @classmethod
    def from_json(cls, found: Mapping[str, Any], goals: Iterable[Goal]) -> Finding:
        """Undo `as_json`.

        Args:
            found: what it made.
            goals: all that there are.
        """
        times = found["times"]
        return cls(
            section=found["section"],
            what=found["what"],
            database=found["database"],
            unit=found["unit"],
            estimate=Estimate(**found["estimate"]),
            times=None if times is None else (times[0], times[1]),
            goal=next((goal for goal in goals if goal.what == found["goal"]), None),
            size=found.get("size"),
        )


def ratio(  # noqa: PLR0913, PLR0917 - what a line of a table has
    section: str,
    what: str,
    database: str,
    sittings: Sequence[Sequence[Round]],
    over: str,
    under: str,
    goal: Goal | None = None,
) -> Finding:
    """What sittings say of the times of two operations.

    Args:
        section: of the finding, as are the next two.
        what: the same.
        database: the same.
        sittings: the rounds of each sitting, in seconds.
        over: the operation above the line.
        under: the one below it.
        goal: what the ratio should keep to.
    """
    found = estimate(sittings, lambda each: each[over] / each[under])
    one, other = (
        estimate(sittings, lambda each, name=name: each[name] * 1e6).value  # type: ignore[misc]
        for name in (over, under)
    )
    return Finding(section, what, database, "ratio", found, (one, other), goal)


def shown(figure: float, unit: Unit) -> str:
    """A figure as people read it; what is counted is told by the line that it stands in."""
    digits = number(figure, unit)
    return f"{digits} {unit}" if unit in _MEASURED else digits


def number(figure: float, unit: Unit) -> str:
    """The same without its unit."""
    figure = _rounded(figure, unit)
    if unit == "ratio" and figure >= _MANY:
        return f"{figure:,.0f}"
    return f"{figure:,.{_DIGITS.get(unit, 0)}f}"


def _rounded(figure: float, unit: Unit) -> float:
    return round(figure, _DIGITS.get(unit, 0))
