"""The plot of a report: every section of ratios as a panel, every finding as a dot with its spread.

A black mark is the goal of its line; the thin line is 1, no difference. Where it is dark for the
reader, all colours are others.
"""

from __future__ import annotations

from io import StringIO
from textwrap import fill
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

_LINE: Final = 0.27
"""Inches for each line of a panel, and four of these around it."""

_NAME_WIDTH: Final = 62
"""Letters after which a line's name goes on below."""

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
    heights = [_height(panel) for panel in panels.items()]
    with mpl.rc_context(_STYLE):  # type: ignore[arg-type]
        figure = Figure(figsize=(_WIDTH, _LINE * sum(heights) or 1), layout="constrained")
        if panels:
            rows: Any = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)
            for axes, (title, findings_there) in zip(rows[:, 0], panels.items(), strict=True):
                _panel(axes, title, findings_there)
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


def _panel(axes: Any, title: str, findings: Sequence[Finding]) -> None:
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
    values = [finding.estimate.value for finding in findings]
    if max(values) > _LOGARITHMIC_FROM * min(values):
        axes.set_xscale("log")
        is_wide = max(values) > _SPARSE_FROM * min(values)
        axes.xaxis.set_major_locator(LogLocator(subs=(1,) if is_wide else (1, 2, 5)))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, "ratio")))
