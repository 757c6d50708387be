"""docs/cli.md shows what the commands print."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from ttl_odm.cli.commands import cli

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "cli.md"


def test_the_help_texts_are_those_of_the_commands() -> None:
    blocks = re.findall(
        r"<!-- \$ ttl-odm (\w+) --help -->\n```text\n(.*?)```\n<!-- end -->",
        DOCUMENT.read_text(),
        re.DOTALL,
    )
    parent = click.Context(cli, info_name="ttl-odm", terminal_width=78, **cli.context_settings)
    assert len(blocks) > 1
    for name, shown in blocks:
        context = click.Context(cli.commands[name], parent=parent, info_name=name)
        said = cli.commands[name].get_help(context)
        assert f"{said}\n" == shown, f"run: {Path(sys.executable).name} tools/cli_docs.py"


def test_every_command_is_documented() -> None:
    headings = re.findall(r"^## (.+)$", DOCUMENT.read_text(), re.MULTILINE)
    documented = {name for heading in headings for name in heading.split(", ")}
    assert set(cli.commands) - {"demo"} <= documented


def test_no_block_is_empty_or_has_failed() -> None:
    assert "Traceback" not in DOCUMENT.read_text()
    assert not re.search(r"-->\n```\w*\n```", DOCUMENT.read_text())
