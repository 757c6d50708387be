"""docs/leaks.md says what is measured: every mark in it, for the libraries of this run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import leak_prefaces

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "leaks.md"
MARKS = {"✓": "right", "✗": "wrong", "raises": "raises", "n/a": "impossible"}
COUNTED = ("right", "wrong", "raises")

SQL = "# Where expired rows leak"
MONGODB = "# Where expired documents leak"
LIBRARIES = {SQL: "sqlalchemy", MONGODB: "beanie"}

# Nothing can filter these: what they read is not a table that SQLAlchemy knows.
UNFILTERABLE = {
    "a lightweight table(), which names no Table",
    "from_statement() with raw text, which no compiler filters",
    "raw text, which no compiler filters",
    "text in FROM, which no compiler filters",
}
# These don't pass through a collection of the gate, or ask for what is stored.
UNGATED = {
    "$collStats counts what is stored",
    "database.command(), which no gate reads",
    "database.cursor_command(), which no gate reads",
    "the client's own database, which is not gated",
}

Verdicts = dict[tuple[str, str], str]


def half(heading: str) -> list[str]:
    """The lines of the document from this heading to the next of its rank."""
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    first = lines.index(heading)
    others = [number for number, line in enumerate(lines) if line.startswith("# ")]
    return lines[first : min((number for number in others if number > first), default=None)]


def documented(heading: str, column: int, line: str) -> Verdicts:
    """The verdicts of a column (1 to 3) of a half for a line of its library."""
    found: Verdicts = {}
    theme = ""
    for text in half(heading):
        if text.startswith("## "):
            theme = text.removeprefix("## ").lower().replace(" ", "_")
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", text)[1:-1]]
        if theme in {"", "summary", "counts"} or len(cells) != 4 or cells[0] in {"path", "---"}:
            continue
        path = re.sub(r"\\(.)", r"\1", cells[0])
        newest, older, lowest = re.fullmatch(
            r"(\S+)(?: \((\d+\.\d+): (\S+)\))?", cells[column]
        ).groups()  # type: ignore[union-attr]
        assert (theme, path) not in found
        found[theme, path] = MARKS[lowest if older == line else newest]
    return found


def measured(heading: str, *command: str) -> tuple[Verdicts, str]:
    """Run a measurement; return its verdicts and the line of the library it was made with."""
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
    line = ".".join(answer[LIBRARIES[heading]].split(".")[:2])
    return {(theme, name): verdict for theme, name, verdict in answer["verdicts"]}, line


def check(heading: str, column: int, *command: str) -> None:
    """Hold a column of the document against what a command measures."""
    verdicts, line = measured(heading, *command)
    written = documented(heading, column, line)
    assert written.keys() == verdicts.keys()
    differing = {
        path: f"{written[path]} in the document, {verdict} here"
        for path, verdict in verdicts.items()
        if written[path] != verdict
    }
    assert not differing, "run: python3 tools/leaks.py --write docs/leaks.md"


@pytest.mark.in_turns
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
    check(SQL, column, *command)


@pytest.mark.in_turns
@pytest.mark.parametrize(("column", "name"), [(1, "ours"), (2, "soft"), (3, "queries")])
def test_the_document_has_exactly_what_is_measured_on_mongodb(
    column: int, name: str, mongodb_url: str
) -> None:
    check(MONGODB, column, "-m", "tests.leaks_mongo.rivals", name)


@pytest.mark.parametrize(("heading", "line"), [(SQL, "2.1"), (MONGODB, "2.2")])
def test_at_least_170_paths_are_documented(heading: str, line: str) -> None:
    assert len(documented(heading, 1, line)) >= 170


@pytest.mark.parametrize(
    ("heading", "line", "expected"),
    [
        (SQL, "2.1", UNFILTERABLE),
        (SQL, "2.0", UNFILTERABLE),
        (MONGODB, "2.2", UNGATED),
        (MONGODB, "1.30", UNGATED),
    ],
)
def test_ours_leaks_only_where_nothing_can_filter(
    heading: str, line: str, expected: set[str]
) -> None:
    verdicts = documented(heading, 1, line)
    leaks = {name for (_, name), verdict in verdicts.items() if verdict in {"wrong", "raises"}}
    assert leaks == expected


@pytest.mark.parametrize(
    ("heading", "columns"),
    [
        (SQL, [(1, "2.1"), (1, "2.0"), (2, "2.1"), (2, "2.0"), (3, "2.0")]),
        (MONGODB, [(each, line) for each in (1, 2, 3) for line in ("2.2", "1.30")]),
    ],
)
def test_the_counts_are_those_of_the_tables(heading: str, columns: list[tuple[int, str]]) -> None:
    (total,) = [line for line in half(heading) if line.startswith("| **all (")]
    found = [list(documented(heading, *each).values()) for each in columns]
    counts = [" / ".join(str(each.count(verdict)) for verdict in COUNTED) for each in found]
    assert total == " | ".join([f"| **all ({len(found[0])})**", *counts]) + " |"


@pytest.mark.parametrize(
    ("heading", "kinds", "lines"),
    [
        (SQL, leak_prefaces.SQL_KINDS, ("2.1", "2.1", "2.0")),
        (MONGODB, leak_prefaces.MONGODB_KINDS, ("2.2", "2.2", "2.2")),
    ],
)
def test_the_summary_has_every_path_once(
    heading: str, kinds: dict[str, tuple[str, ...]], lines: tuple[str, ...]
) -> None:
    columns = [documented(heading, number, line) for number, line in enumerate(lines, 1)]
    rows = []
    for kind, themes in [*kinds.items(), ("**all kinds**", {theme for theme, _ in columns[0]})]:
        paths = [path for path in columns[0] if path[0] in themes]
        right = [sum(column[path] == "right" for path in paths) for column in columns]
        rows.append(f"| {kind} | {len(paths)} | {' | '.join(map(str, right))} |")
    text = half(heading)
    first = text.index(rows[0])
    assert text[first : first + len(rows)] == rows
    totals = [[int(cell) for cell in row.split(" | ")[1:4]] for row in rows]
    assert [sum(numbers) for numbers in zip(*totals[:-1], strict=True)] == totals[-1]
