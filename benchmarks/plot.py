"""The plot of a report: every section of ratios as a panel, every finding as a dot with its spread.

A black mark is the goal of its line; the thin line is 1, no difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from benchmarks.findings import shown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.findings import Finding

    Panel = tuple[str, list[Finding]]

NOISE: Final = "Noise"
"""How the titles of sections begin that are not drawn."""

_COLORS: Final = {
    "SQLite": "#0072b2",
    "PostgreSQL": "#d55e00",
    "MariaDB": "#009e73",
    "MySQL": "#56b4e9",
    "MongoDB": "#cc79a7",
}
_STYLE: Final = {
    # Letters stay letters, and the same figures make the same file.
    "svg.fonttype": "none",
    "svg.hashsalt": "ttl_odm",
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_WIDTH: Final = 13.0
_LINE: Final = 0.24
"""Inches for each line of a panel, and four of these around it."""

_LOGARITHMIC_FROM: Final = 5.0
"""Where the largest ratio of a panel is so many times its smallest, its axis is logarithmic."""

_SPARSE_FROM: Final = 1_000.0
"""From here on it has room for the powers of ten only."""


def draw(findings: Sequence[Finding], file: Path) -> None:
    """Draw them.

    Args:
        findings: any; those that are not ratios, and noise, are left out.
        file: an SVG file to write.
    """
    panels: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.unit == "ratio" and not finding.section.startswith(NOISE):
            panels.setdefault(finding.section, []).append(finding)
    columns = _columns(list(panels.items()))
    height = max(sum(map(_height, column)) for column in columns)
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(_WIDTH, _LINE * height or 1), layout="constrained")
        sides: Any = figure.subfigures(1, len(columns))
        for side, column in zip(sides, columns, strict=True):
            _column(side, column, height)
        figure.legend(
            handles=[
                Line2D([], [], marker="o", linestyle="", color=color, label=name)
                for name, color in _COLORS.items()
            ],
            loc="outside upper center",
            ncols=len(_COLORS),
            frameon=False,
        )
        figure.savefig(file, metadata={"Date": None})


def _height(panel: Panel) -> int:
    """Of a panel, in lines."""
    _, findings = panel
    return 4 + len({finding.what for finding in findings})


def _columns(panels: list[Panel]) -> tuple[list[Panel], list[Panel]]:
    """The panels in two columns that are about equally high."""
    heights = list(map(_height, panels))
    split = min(
        range(len(panels) + 1), key=lambda count: abs(sum(heights[:count]) - sum(heights[count:]))
    )
    return panels[:split], panels[split:]


def _column(side: Any, panels: list[Panel], height: int) -> None:
    """Draw panels below each other, and room below them up to a height in lines."""
    heights = [*map(_height, panels)]
    room = [height - sum(heights)] if height > sum(heights) else []
    if not panels:
        return
    rows = side.subplots(len(heights + room), 1, squeeze=False, height_ratios=heights + room)
    for axes in rows[len(panels) :, 0]:
        axes.set_axis_off()
    for axes, (title, findings) in zip(rows[: len(panels), 0], panels, strict=True):
        _panel(axes, title, findings)


def _panel(axes: Any, title: str, findings: Sequence[Finding]) -> None:
    lines = list(dict.fromkeys(finding.what for finding in findings))
    axes.set_title(title, loc="right")  # a long one goes out over the names of the lines
    axes.set_yticks(range(len(lines)), lines)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.grid(axis="y", linewidth=0.3)
    axes.axvline(1, color="gray", linewidth=0.6)
    for finding in findings:
        if finding.goal is not None:  # across its own line only: others have other goals
            line, limit = lines.index(finding.what), finding.goal.limit
            axes.plot([limit, limit], [line - 0.45, line + 0.45], color="black", linewidth=1.0)
    databases = list(dict.fromkeys(finding.database for finding in findings))
    for number, name in enumerate(databases):
        # Side by side on a line, so that none hides another.
        shift = (number - (len(databases) - 1) / 2) * 0.22
        for finding in (one for one in findings if one.database == name):
            found, height = finding.estimate, lines.index(finding.what) + shift
            axes.plot([found.low, found.high], [height, height], color=_COLORS[name], linewidth=1.2)
            axes.plot([found.value], [height], "o", color=_COLORS[name], markersize=3.5)
    values = [finding.estimate.value for finding in findings]
    if max(values) > _LOGARITHMIC_FROM * min(values):
        axes.set_xscale("log")
        is_wide = max(values) > _SPARSE_FROM * min(values)
        axes.xaxis.set_major_locator(LogLocator(subs=(1,) if is_wide else (1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, "ratio")))
