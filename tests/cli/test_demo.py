"""The demo runs as a user runs it, and shows what it promises."""

from __future__ import annotations

import re
import subprocess
import sys


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ttl_odm.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


def test_the_demo_shows_every_step() -> None:
    finished = run("demo")
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    output = finished.stdout
    assert "class Cart(TTLMixin, Base):" in output
    # The last look at the table: only dee and eve are left, all are still in the file.
    assert "select(Cart) finds 2 rows (10,005 are in the file)" in output
    assert re.search(r"ExpiredError: Cart 'ann' can't be updated", output)
    assert "is stored: items = 7" in output
    assert "10,002 rows deleted" in output
    assert "In the file: 10,005 rows before, 3 after." in output


def test_help_lists_the_commands() -> None:
    finished = run("--help")
    assert finished.returncode == 0
    assert "demo" in finished.stdout


def test_an_unknown_command_is_a_usage_error() -> None:
    finished = run("frobnicate")
    assert finished.returncode == 2
    assert "No such command" in finished.stderr
