"""The demo runs as a user runs it, and shows what it promises."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ttl_odm.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.skipif(
    sqlalchemy.__version__.startswith("2.0."), reason="the newest rich has drawn it: in .venv only"
)
def test_the_picture_in_the_readme_is_the_demos(tmp_path: Path) -> None:
    assert run("demo", "--svg", str(tmp_path / "demo.svg")).returncode == 0
    now, then = (drawn(folder / "demo.svg") for folder in (tmp_path, ROOT / "docs" / "_static"))
    assert now == then, "run: ttl-odm demo --svg docs/_static/demo.svg"


def test_the_picture_has_the_same_styles_in_light_and_in_dark() -> None:
    source = (ROOT / "docs" / "_static" / "demo.svg").read_text(encoding="utf-8")
    light, dark = source.split("@media (prefers-color-scheme: dark)")
    styles, others = (
        re.findall(r"\.(ttl-odm-r\d+) \{ fill: #\w+(.*?) \}", part) for part in (light, dark)
    )
    assert styles == others
    assert {name for name, _ in styles} >= set(re.findall(r'class="(ttl-odm-r\d+)"', source))


def drawn(file: Path) -> list[str]:
    """The words of a drawing, without the numbers of one run."""
    source = file.read_text(encoding="utf-8")
    assert "http://" not in source.replace("http://www.w3.org/2000/svg", "")
    assert "@font-face" not in source
    words = html.unescape(" ".join(re.findall(r"<text [^>]*>([^<]*)</text>", source))).split()
    return [re.sub(r"\d[\d,.]*", "N", word) for word in words]


@pytest.mark.slow
def test_help_lists_the_commands() -> None:
    finished = run("--help")
    assert finished.returncode == 0
    assert "demo" in finished.stdout


@pytest.mark.slow
def test_an_unknown_command_is_a_usage_error() -> None:
    finished = run("frobnicate")
    assert finished.returncode == 2
    assert "No such command" in finished.stderr
