"""docs/leaks.md says what is measured: every mark in it, for the SQLAlchemy of this run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "leaks.md"
MARKS = {"✓": "right", "✗": "wrong", "raises": "raises"}

# Nothing can filter these: what they read is no table that SQLAlchemy knows.
UNFILTERABLE = {
    "a lightweight table(), which names no Table",
    "from_statement() with raw text, which no compiler filters",
    "raw text, which no compiler filters",
    "text in FROM, which no compiler filters",
}

Verdicts = dict[tuple[str, str], str]


def documented(column: int, line: str) -> Verdicts:
    """The verdicts of a column (1 to 3) for a line of SQLAlchemy, by theme and path."""
    found: Verdicts = {}
    theme = ""
    for text in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if text.startswith("## "):
            theme = text.removeprefix("## ")
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", text)[1:-1]]
        if theme in {"", "Counts"} or len(cells) != 4 or cells[0] in {"path", "---"}:
            continue
        path = re.sub(r"\\(.)", r"\1", cells[0])
        newest, older, lowest = re.fullmatch(
            r"(\S+)(?: \((\d\.\d): (\S+)\))?", cells[column]
        ).groups()  # type: ignore[union-attr]
        assert (theme, path) not in found
        found[theme, path] = MARKS[lowest if older == line else newest]
    return found


def measured(*command: str) -> tuple[Verdicts, str]:
    """Run a measurement; return its verdicts and the line of SQLAlchemy that it was made with."""
    run = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    answer: dict[str, Any] = json.loads(run.stdout)
    line = ".".join(answer["sqlalchemy"].split(".")[:2])
    return {(theme, name): verdict for theme, name, verdict in answer["verdicts"]}, line


@pytest.mark.parametrize(
    ("column", "command"),
    [
        pytest.param(1, ("-m", "tests.leaks.rivals", "ours"), id="ours"),
        pytest.param(2, ("-m", "tests.leaks.rivals", "recipe"), id="recipe"),
        # It supports no SQLAlchemy 2.1, so it has an environment of its own.
        pytest.param(3, ("tools/leaks.py", "--measure-easy"), id="easy"),
    ],
)
def test_the_document_has_exactly_what_is_measured(column: int, command: tuple[str, ...]) -> None:
    verdicts, line = measured(*command)
    written = documented(column, line)
    assert written.keys() == verdicts.keys()
    differing = {
        path: f"{written[path]} in the document, {verdict} here"
        for path, verdict in verdicts.items()
        if written[path] != verdict
    }
    assert not differing, "run: python3 tools/leaks.py --write docs/leaks.md"


def test_at_least_170_paths_are_documented() -> None:
    assert len(documented(1, "2.1")) >= 170


@pytest.mark.parametrize("line", ["2.1", "2.0"])
def test_ours_leaks_only_where_nothing_can_filter(line: str) -> None:
    leaks = {name for (_, name), verdict in documented(1, line).items() if verdict != "right"}
    assert leaks == UNFILTERABLE


def test_the_counts_are_those_of_the_tables() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    (total,) = [line for line in text.splitlines() if line.startswith("| **all (")]
    columns = [(1, "2.1"), (1, "2.0"), (2, "2.1"), (2, "2.0"), (3, "2.0")]
    found = [list(documented(column, line).values()) for column, line in columns]
    assert (
        total
        == " | ".join(
            [
                f"| **all ({len(found[0])})**",
                *(
                    " / ".join(str(each.count(verdict)) for verdict in MARKS.values())
                    for each in found
                ),
            ]
        )
        + " |"
    )
