"""Numbers, ages and tables, as people read them.

This module must not know what the numbers are of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_SEPARATORS: Final = "\u2028\u2029"


class _Escapes(dict[int, str]):
    """For ``str.translate()``: characters that a terminal shows, and escapes for all others."""

    def __missing__(self, code: int) -> str:
        """Remember the text for a character."""
        self[code] = chr(code) if is_shown(chr(code)) else _escaped(code)
        return self[code]


def is_shown(character: str) -> bool:
    """Return whether a terminal shows a character, and doesn't obey it.

    It obeys control characters and those that reorder or hide others, such as U+202E, and can't
    encode half of a surrogate pair.
    """
    is_space = character.isspace() and character > "\x9f" and character not in _SEPARATORS
    return is_space or character.isprintable()


def _escaped(code: int) -> str:
    """Return a character as Python writes it."""
    if code > 0xFFFF:  # noqa: PLR2004 (with four digits)
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"  # noqa: PLR2004 (with two)


_ESCAPES: Final = _Escapes()
_IN_LAYOUT: Final = _Escapes({ord("\n"): "\n"})

_UNITS: Final = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))
"""Two neighbouring units each, by their seconds and names."""


def visible(name: str) -> str:
    """Return a name that others chose, such that a terminal shows all of it, in one line."""
    return name.translate(_ESCAPES)


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
    """Return how long ago something was, by its two largest units."""
    if seconds is None:
        return "?"
    whole = int(seconds)
    for large, name, small, small_name in _UNITS:
        if whole >= large:
            return f"{whole // large:,} {name} {whole % large // small:02} {small_name}"
    return f"{whole} s" if whole else "< 1 s"


def aligned(rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Return rows, of which the first is the head, as a table; row by row if it would be wider."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    if width is not None and sum(widths) + 2 * len(widths) > width:
        head, *others = rows
        widest = max(map(len, head))
        blocks = [
            "\n".join(f"{name.ljust(widest)}  {cell}" for name, cell in zip(head, row, strict=True))
            for row in others
        ]
        return "\n\n".join(blocks)
    are_numbers = [all(cell[:1] in "0123456789+-<~?" for cell in column[1:]) for column in columns]
    return "\n".join(
        "  ".join(
            cell.rjust(size) if is_number else cell.ljust(size)
            for cell, size, is_number in zip(row, widths, are_numbers, strict=True)
        ).rstrip()
        for row in rows
    )
