"""Numbers, ages and tables, as people read them.

This module must not know what the numbers are of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
"""What a terminal obeys instead of showing it, as Python writes it."""

_IN_LAYOUT: Final = {**_CONTROLS, ord("\n"): "\n"}

_UNITS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
"""Two neighbouring units each, by their seconds and names."""


def visible(name: str) -> str:
    """Return a name that others chose, such that a terminal shows all of it, in one line."""
    return name.translate(_CONTROLS)


def without_controls(text: str) -> str:
    """Return a text whose lines are ours, with nothing else in it that a terminal would obey."""
    return text.translate(_IN_LAYOUT)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular for one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Return how long something took."""
    if seconds < 10:  # noqa: PLR2004 (below, hundredths tell something; above, they distract)
        return f"{seconds:.2f} s"
    return f"{seconds:,.1f} s"


def age(seconds: float | None) -> str:
    """Return how long something is overdue, by its two largest units."""
    if seconds is None:
        return "?"
    if seconds == 0:
        return "-"
    whole = int(seconds)
    for large, name, small, small_name in _UNITS:
        if whole >= large:
            return f"{whole // large:,} {name} {whole % large // small:02} {small_name}"
    return f"{whole} s" if whole else "< 1 s"


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table's rows as lines: a name each, then its cells, under each other."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            ["", name.ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        )
        for name, *cells in rows
    ]
