"""What commands print: results on stdout, everything else on stderr; JSON for machines.

Lines wrap with their indentation on a terminal, and not at all in a pipe, so that ``grep`` and a
paste see what was meant.
"""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.text import Text

from ttl_odm.cli.problems import without_passwords

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEAST_WIDTH: Final = 30


def aligned(rows: Sequence[Sequence[str]], width: int | None) -> str:
    """Return rows as a table, names to the left and numbers to the right.

    Args:
        rows: The first is the head.
        width: Where a table wider than that is told row by row instead; None for any.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if width is not None and sum(widths) + 2 * len(widths) > width:
        head, *others = rows
        widest = max(map(len, head))
        blocks = [
            "\n".join(f"{name.ljust(widest)}  {cell}" for name, cell in zip(head, row, strict=True))
            for row in others
        ]
        return "\n\n".join(blocks)
    return "\n".join(
        "  ".join(
            cell.rjust(size) if _is_number(column) else cell.ljust(size)
            for cell, size, column in zip(row, widths, zip(*rows[1:], strict=True), strict=True)
        ).rstrip()
        for row in rows
    )


def _is_number(column: Sequence[str]) -> bool:
    return all(each[:1] in "0123456789+-<~?" for each in column)


class Output:
    """Where a command's results go.

    Attributes:
        console: Rich's, on stdout.
        as_json: Whether only JSON is wanted there.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.console = Console(highlight=False)

    def line(self, text: str = "", *, style: str = "", indent: int = 0, mark: str = "") -> None:
        """Print a paragraph."""
        head = " " * indent + mark
        body = without_passwords(text)
        if self.console.is_terminal:
            width = max(self.console.width, _LEAST_WIDTH)
            body = textwrap.fill(
                body,
                width,
                initial_indent=head,
                subsequent_indent=" " * len(head),
                break_long_words=False,
                break_on_hyphens=False,
            )
        else:
            body = head + body
        self.console.print(Text(body, style=style), soft_wrap=True)

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Print rows, of which the first is the head; see `aligned`."""
        width = self.console.width if self.console.is_terminal else None
        self.code(aligned(rows, width))

    def code(self, text: str) -> None:
        """Print lines that are to be copied: as they are."""
        click.echo(text)

    def json(self, value: Any) -> None:
        """Print a value as JSON, indented."""
        click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))
