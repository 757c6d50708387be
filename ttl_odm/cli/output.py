"""What commands print: results on stdout, everything else on stderr; JSON for machines.

Lines wrap with their indentation on a terminal, and not at all in a pipe, so that ``grep`` and a
paste see what was meant.
"""

from __future__ import annotations

import json
import textwrap
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from ttl_odm.cli.problems import without_passwords

_LEAST_WIDTH: Final = 30


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

    def code(self, text: str) -> None:
        """Print lines that are to be copied: as they are."""
        click.echo(text)

    def json(self, value: Any) -> None:
        """Print a value as JSON, indented."""
        click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))
