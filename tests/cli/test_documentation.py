"""docs/cli.md is about every command. That it shows what they print: tests/docs/test_blocks.py."""

from __future__ import annotations

import re
from pathlib import Path

from ttl_odm.cli.commands import cli

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "cli.md"


def test_every_command_is_documented() -> None:
    headings = re.findall(r"^## (.+)$", DOCUMENT.read_text(), re.MULTILINE)
    documented = {name for heading in headings for name in heading.split(", ")}
    assert set(cli.commands) - {"demo"} <= documented


def test_no_block_is_empty_or_has_failed() -> None:
    assert "Traceback" not in DOCUMENT.read_text()
    assert not re.search(r"-->\n```\w*\n```", DOCUMENT.read_text())
