"""The plots of a report: every finding as a dot with its spread.

One has every section of ratios as a panel, and behind these the curves of what grows; the other
what each kind of use costs. A black mark is the goal of its line; the thin line is 1, no
difference. Where it is dark for the reader, all colours are others.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from benchmarks.costs import USES
from benchmarks.findings import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
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
_PAPER, _INK, _GREY, _PALE = "#ffffff", "#000000", "#808080", "#b0b0b0"  # as matplotlib has them
_IN_THE_DARK: Final = {
    _PAPER: "#161b22",
    _INK: "#e6edf3",
    _GREY: "#8b949e",
    _PALE: "#484f58",
    "#0072b2": "#4fa3e0",
    "#d55e00": "#ff8a3d",
    "#009e73": "#2fcf9d",
    "#56b4e9": "#a5dcff",
    "#cc79a7": "#e79cc4",
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
_WIDTH: Final = 9.0
"""Inches: what a page of the site has room for, so that its letters are as large as the text's."""

_MARGIN: Final = 0.2
"""Inches at the left and the right: a reader's letters may be wider than those that are measured
here."""

_LINE: Final = 0.27
"""Inches for each line of a panel, and four of these around it."""

_COST_HEIGHT: Final = 1.5
"""How many times as high a line is in the picture of the costs: more than one read share it."""

_CURVES_BESIDE: Final = 2
_CURVE_HEIGHT: Final = 8
"""Lines that a curve is high, and how many are side by side."""

_DECADE: Final = 10
"""The least share between the ends of a curve's axis."""

_NAME_WIDTH: Final = 62
"""Letters after which a line's name goes on below."""

_LOGARITHMIC_FROM: Final = 5.0
"""Where the largest ratio of a panel is so many times its smallest, its axis is logarithmic."""

_SPARSE_FROM: Final = 1_000.0
"""From here on it has room for the powers of ten only."""


def draw(findings: Sequence[Finding], file: Path) -> None:
    """Draw the ratios, and how what was measured at several sizes grows.

    Args:
        findings: any; those that are neither, and noise, are left out.
        file: an SVG file to write.
    """
    panels: dict[str, list[Finding]] = {}
    curves: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.unit == "ratio" and not finding.section.startswith(NOISE):
            panels.setdefault(finding.section, []).append(finding)
        elif finding.size is not None:
            work, _, at = finding.what.rpartition("; ")
            over = at.partition(" ")[2].removesuffix("s")
            curves.setdefault(f"{work}, over {over}s", []).append(finding)
    heights = [_height(panel) for panel in panels.items()]
    heights += [_CURVE_HEIGHT] * -(-len(curves) // _CURVES_BESIDE)
    with _figure(file, _LINE * sum(heights) or 1) as figure:
        if not heights:
            return
        grid = figure.add_gridspec(len(heights), _CURVES_BESIDE, height_ratios=heights)
        for row, (title, findings_there) in enumerate(panels.items()):
            _panel(figure.add_subplot(grid[row, :]), title, findings_there)
        for number, (title, findings_there) in enumerate(curves.items()):
            row, column = divmod(number, _CURVES_BESIDE)
            axes = figure.add_subplot(grid[len(panels) + row, column])
            _curve(axes, title, findings_there)


def draw_costs(findings: Sequence[Finding], file: Path) -> None:
    """Draw what each kind of use costs.

    Args:
        findings: any.
        file: an SVG file to write.
    """
    lines, there = [], []
    for use in USES:
        for cost in use.costs:
            its = cost.figures(findings)
            lines.append(cost.label)
            there += [replace(finding, what=cost.label, goal=None) for finding in its]
    with _figure(file, _LINE * (4 + _COST_HEIGHT * len(lines))) as figure:
        axes = figure.subplots()
        _panel(axes, "", there, lines)
        measured = {finding.what for finding in there}
        for line in (line for line in lines if line not in measured):
            place = 1, lines.index(line)
            axes.annotate("not measured", place, (6, 0), textcoords="offset points", va="center")


@contextmanager
def _figure(file: Path, height: float) -> Iterator[Figure]:
    """A figure to draw on, which is then written."""
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        layout = ConstrainedLayoutEngine(w_pad=_MARGIN)
        figure = Figure(figsize=(_WIDTH, height), layout=layout)
        yield figure
        figure.legend(
            handles=[
                Line2D([], [], marker="o", linestyle="", color=color, label=name)
                for name, color in _COLORS.items()
            ],
            loc="outside upper center",
            ncols=len(_COLORS),
            frameon=False,
        )
        drawn = StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    file.write_text(_with_a_dark_side(drawn.getvalue()), encoding="utf-8")


def _with_a_dark_side(svg: str) -> str:
    """Add the other colours: letters have none of their own, all else has its in an attribute."""
    rules = [
        f'[style*="{what}: {light}"] {{ {what}: {dark} !important }}'
        for light, dark in _IN_THE_DARK.items()
        for what in ("fill", "stroke")
    ]
    rules.append(f"text {{ fill: {_IN_THE_DARK[_INK]} }}")
    dark_side = f"@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"
    return svg.replace("</style>", f"\n{dark_side}</style>", 1)


def _height(panel: Panel) -> int:
    """Of a panel, in lines."""
    _, findings = panel
    return 4 + len({finding.what for finding in findings})


def _panel(
    axes: Any, title: str, findings: Sequence[Finding], lines: Sequence[str] | None = None
) -> None:
    if lines is None:
        lines = list(dict.fromkeys(finding.what for finding in findings))
    axes.set_title(title, loc="right")  # a long one goes out over the names of the lines
    axes.set_yticks(range(len(lines)), [fill(line, _NAME_WIDTH) for line in lines])
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
    values = [finding.estimate.value for finding in findings] or [1.0]
    if max(values) > _LOGARITHMIC_FROM * min(values):
        axes.set_xscale("log")
        is_wide = max(values) > _SPARSE_FROM * min(values)
        axes.xaxis.set_major_locator(LogLocator(subs=(1,) if is_wide else (1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, "ratio")))


def _curve(axes: Any, title: str, findings: Sequence[Finding]) -> None:
    """Draw a curve of each database, both axes logarithmic: its slope is the exponent."""
    axes.set_title(title, loc="left")
    for name in dict.fromkeys(finding.database for finding in findings):
        its = [finding for finding in findings if finding.database == name]
        sizes = [finding.size for finding in its]
        values = [finding.estimate.value for finding in its]
        axes.plot(sizes, values, "o-", color=_COLORS[name], markersize=3.5, linewidth=1.2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    lowest, highest = axes.get_ylim()
    if highest < _DECADE * lowest:  # or one that doesn't grow would look as if it did
        middle = (lowest * highest) ** 0.5
        axes.set_ylim(middle / _DECADE**0.5, middle * _DECADE**0.5)
    unit, is_wide = findings[0].unit, highest > _DECADE**2 * lowest
    axes.set_xticks(sorted({finding.size for finding in findings if finding.size is not None}))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(LogLocator(subs=(1,) if is_wide else (1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g} {unit}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
