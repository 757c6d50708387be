"""`picture`: draws what a console has printed, as an SVG in light and dark colours.

The picture follows the colour scheme of the system, the browser or the page. This module must not
know what is printed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from rich.color import parse_rgb_hex
from rich.terminal_theme import TerminalTheme

if TYPE_CHECKING:
    from rich.console import Console

_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts that a reader's browser would download; a page has a monospaced font of its own."""


def _theme(background: str, foreground: str, normal: str, bright: str) -> TerminalTheme:
    """Make a theme of hexadecimal colours: `normal` and `bright` are eight each, black to white."""
    ground, ink, *ansi = [
        parse_rgb_hex(color) for color in f"{background} {foreground} {normal} {bright}".split()
    ]
    return TerminalTheme(ground, ink, [*ansi[:8]], [*ansi[8:]])


# The colours of a theme all differ: Rich numbers styles by their looks, and the numbers of both
# drawings have to match.
_LIGHT: Final = _theme(
    "ffffff",
    "0b0e12",
    "24292f cf222e 116329 7d4e00 0969da 8250df 1b7c83 6e7781",
    "57606a a40e26 1a7f37 633c01 0550ae 6639ba 0e6a72 32383f",
)
_DARK: Final = _theme(
    "161b22",
    "e6edf3",
    "484f58 ff7b72 3fb950 d29922 58a6ff bc8cff 39c5cf b1bac4",
    "848d97 ffa198 56d364 e3b341 79c0ff d2a8ff 56d4dd f0f6fc",
)


def picture(console: Console, title: str) -> str:
    """Return the SVG of what a recording console has printed.

    Args:
        console: A console with `record=True`.
        title: The title above the text.
    """
    light, dark = (
        console.export_svg(title=title, theme=theme, clear=False, unique_id="ttl-odm")
        for theme in (_LIGHT, _DARK)
    )
    rules = [
        f".rich-terminal > rect {{ fill: {_DARK.background_color.hex} }}",
        f".ttl-odm-title {{ fill: {_DARK.foreground_color.hex} }}",
        *re.findall(r"\.ttl-odm-r\d+ \{.*?\}", dark),
    ]
    more = (
        ".rich-terminal > rect { stroke: #8c959f }\n"
        f"@media (prefers-color-scheme: dark) {{\n{chr(10).join(rules)}\n}}\n"
    )
    return _FONTS.sub("", light).replace("</style>", f"{more}</style>", 1)
