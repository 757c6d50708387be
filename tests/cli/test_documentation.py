"""The pages about the command line have every command; tests/docs runs their blocks."""

from __future__ import annotations

import re
from pathlib import Path

from ttl_odm.cli.commands import cli

ROOT = Path(__file__).parents[2]
NAMES = ("cli.md", "cli-plan.md", "cli-check.md", "cli-events.md")
PAGES = [ROOT / "docs" / name for name in NAMES]
TEXT = "\n".join(page.read_text() for page in PAGES)


def test_every_command_is_documented() -> None:
    headings = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    documented = {name for heading in headings for name in heading.split(", ")}
    assert set(cli.commands) - {"demo"} <= documented


def test_no_block_is_empty_or_has_failed() -> None:
    assert "Traceback" not in TEXT
    assert not re.search(r"-->\n```\w*\n```", TEXT)
