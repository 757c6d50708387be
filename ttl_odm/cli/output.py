"""The output of commands: results on stdout, everything else on stderr; JSON for machines.

Lines wrap with their indentation on a terminal, and not at all in a pipe, for ``grep`` and for
pasting. The first `Output` imports rich; Flask's commands do without it.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from ttl_odm.cli.errors import FailedError, printable
from ttl_odm.sweeper.command_line import Status, is_unicode, report_text, terminal_width
from ttl_odm.sweeper.text import aligned, is_shown, without_controls

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console
    from rich.terminal_theme import TerminalTheme

    from ttl_odm.forecast.text import Paragraph
    from ttl_odm.sweeper import SweepReport

_LEAST_WIDTH: Final = 30

_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Fonts that a reader's browser would download; a page has a monospaced font of its own."""

_LIGHT: Final = (
    "ffffff",
    "0b0e12",
    "24292f cf222e 116329 7d4e00 0969da 8250df 1b7c83 6e7781",
    "57606a a40e26 1a7f37 633c01 0550ae 6639ba 0e6a72 32383f",
)
"""The hexadecimal colors of a picture: its background and text; eight each, black to white.

All differ: Rich numbers styles by their looks, and the numbers of both drawings have to match.
"""
_DARK: Final = (
    "161b22",
    "e6edf3",
    "484f58 ff7b72 3fb950 d29922 58a6ff bc8cff 39c5cf b1bac4",
    "848d97 ffa198 56d364 e3b341 79c0ff d2a8ff 56d4dd f0f6fc",
)


class _JSONEscapes(dict[int, str]):
    """For ``str.translate()``: escapes that JSON allows, of characters a terminal doesn't show."""

    def __missing__(self, code: int) -> str:
        """Store and return the text for a character; JSON escapes those below 32 itself."""
        character = chr(code)
        is_plain = code < 32 or is_shown(character)  # noqa: PLR2004 (the first that is printed)
        self[code] = character if is_plain else json.dumps(character)[1:-1]
        return self[code]


_JSON_ESCAPES: Final = _JSONEscapes()


def printable_report(report: SweepReport) -> str:
    """Return a report for a terminal."""
    return without_controls(report_text(report))


def json_text(value: object, *, indent: int | None = None) -> str:
    """Return a value as JSON, with control characters of terminals escaped."""
    is_ascii = not is_unicode(sys.stdout)
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii, default=str)
    return text.translate(_JSON_ESCAPES)


def echo(text: str) -> None:
    """Print to standard output."""
    with writing():
        click.echo(text)


@contextmanager
def writing() -> Iterator[None]:
    """Turn an error of standard output into one that says so; a closed pipe gets no message."""
    try:
        yield
    except OSError as error:
        # The rest of the buffer would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise click.exceptions.Exit(Status.FAILED) from error
        raise FailedError(f"Standard output can't be written: {error.strerror}.") from error


class PlainOutput:
    """Prints a command's results on stdout: lines, wrapped on a terminal, or only JSON."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    @property
    def width(self) -> int | None:
        """The columns of the terminal; None without one."""
        return terminal_width(sys.stdout)

    def line(self, text: str = "", *, style: str = "", indent: int = 0, mark: str = "") -> None:
        """Print a paragraph."""
        head = " " * indent + mark
        body = printable(text)
        if self.width is None:
            body = head + body
        else:
            body = textwrap.fill(
                body,
                max(self.width, _LEAST_WIDTH),
                initial_indent=head,
                subsequent_indent=" " * len(head),
                break_long_words=False,
                break_on_hyphens=False,
            )
        with writing():
            self._print(body, style)

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Print rows, with the head first; see `aligned`."""
        self.code(aligned(rows, self.width))

    def paragraphs(self, paragraphs: Iterable[Paragraph]) -> None:
        """Print the paragraphs of a forecast; only its sentences are wrapped."""
        for paragraph in paragraphs:
            if paragraph.is_table:
                self.code(paragraph.text)
            else:
                self.line(paragraph.text, style=paragraph.style, mark=paragraph.mark)

    def code(self, text: str) -> None:
        """Print lines unwrapped, so that they can be copied."""
        echo(without_controls(text))

    def json(self, value: object) -> None:
        """Print a value as JSON, indented."""
        echo(json_text(value, indent=2))

    def _print(self, text: str, style: str) -> None:  # noqa: ARG002 (a plain line has no style)
        click.echo(text)


class Output(PlainOutput):
    """Prints with rich, in color."""

    def __init__(self, *, as_json: bool = False) -> None:
        from rich.console import Console  # noqa: PLC0415 (needs the extra)

        super().__init__(as_json=as_json)
        self.console = Console(highlight=False)

    def _print(self, text: str, style: str) -> None:
        from rich.text import Text  # noqa: PLC0415 (needs the extra)

        self.console.print(Text(text, style=style), soft_wrap=True)


def picture(console: Console, title: str) -> str:
    """Return the SVG of what a recording console has printed, in light and dark colors.

    The picture follows the color scheme of the system, the browser or the page.

    Args:
        console: A console with `record=True`.
        title: The title above the text.
    """
    themes = _theme(*_LIGHT), _theme(*_DARK)
    light, dark = (
        console.export_svg(title=title, theme=theme, clear=False, unique_id="ttl-odm")
        for theme in themes
    )
    rules = [
        f".rich-terminal > rect {{ fill: {themes[1].background_color.hex} }}",
        f".ttl-odm-title {{ fill: {themes[1].foreground_color.hex} }}",
        *re.findall(r"\.ttl-odm-r\d+ \{.*?\}", dark),
    ]
    more = (
        ".rich-terminal > rect { stroke: #8c959f }\n"
        f"@media (prefers-color-scheme: dark) {{\n{chr(10).join(rules)}\n}}\n"
    )
    return _FONTS.sub("", light).replace("</style>", f"{more}</style>", 1)


def _theme(background: str, text: str, normal: str, bright: str) -> TerminalTheme:
    from rich.color import parse_rgb_hex  # noqa: PLC0415 (needs the extra)
    from rich.terminal_theme import TerminalTheme  # noqa: PLC0415 (as above)

    ground, ink, *ansi = map(parse_rgb_hex, f"{background} {text} {normal} {bright}".split())
    return TerminalTheme(ground, ink, [*ansi[:8]], [*ansi[8:]])
