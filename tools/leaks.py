"""docs/leaks.md: what each path of the leak matrix sees with ours and with two other ways.

`python3 tools/leaks.py --write docs/leaks.md` measures and writes, `--check docs/leaks.md` measures
and says whether the document still tells the same. Every mark comes out of `tests.leaks.rivals`,
which runs in a process of its own for each column and each SQLAlchemy. The environments are made
when needed, unless `--newest`, `--lowest` and `--easy` name interpreters that have what they need.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import environments
from environments import ROOT, CannotMakeError, Environment
from terminal import end_orderly_on_signals, say

FAILED = 1
CANNOT_START = 3

# Its newest release, and the newest SQLAlchemy that its metadata allow: "sqlalchemy<2.1,>=1.4".
EASY = "sqlalchemy-easy-softdelete==0.9.1"
EASY_SUPPORTS = "1.4 and 2.0"
EASY_SQLALCHEMY = "sqlalchemy[asyncio]==2.0.58"

MARKS = {"right": "✓", "wrong": "✗", "raises": "raises"}
VERSIONS = "\n## Versions\n"


class MeasureError(Exception):
    """A column could not be measured; the message says why."""


@dataclass(frozen=True)
class Measured:
    """What one run of `tests.leaks.rivals` found.

    Attributes:
        verdicts: right, wrong or raises, by theme and path.
        themes: what each theme is about.
        sqlalchemy: SQLAlchemy's version.
        python: Python's version.
        package: the version of the package under test, if it is one.
    """

    verdicts: dict[tuple[str, str], str]
    themes: dict[str, str]
    sqlalchemy: str
    python: str
    package: str | None

    @property
    def line(self) -> str:
        """SQLAlchemy's version by its first two numbers."""
        return ".".join(self.sqlalchemy.split(".")[:2])

    def counts(self, theme: str | None = None) -> str:
        """How many are right, wrong, and raise."""
        found = Counter(
            verdict for (where, _), verdict in self.verdicts.items() if theme in {None, where}
        )
        return " / ".join(str(found[verdict]) for verdict in MARKS)


@dataclass(frozen=True)
class Matrix:
    """All runs.

    Attributes:
        ours, recipe: with the newest SQLAlchemy and with the lowest.
        easy: with the newest that it supports.
    """

    ours: tuple[Measured, Measured]
    recipe: tuple[Measured, Measured]
    easy: Measured

    def runs(self) -> list[tuple[str, Measured]]:
        """Each run with the name of its column."""
        return [
            *(("ours", run) for run in self.ours),
            *(("the usual recipe", run) for run in self.recipe),
            ("sqlalchemy-easy-softdelete", self.easy),
        ]


def easy() -> Environment:
    """Describe the environment with the package that ours is compared with."""
    python = environments.development().python
    # By Python's version, because the tests run on two.
    folder = ROOT / f".venv-rivals-{sys.version_info[0]}.{sys.version_info[1]}"
    return Environment(folder, python, (EASY, EASY_SQLALCHEMY, "aiosqlite>=0.20"))


def made(environment: Environment) -> str:
    """Make an environment and return its interpreter."""
    environment.make()
    return environment.program("python")


def measure(column: str, python: str) -> Measured:
    """Run one column with an interpreter.

    Raises:
        MeasureError: it failed.
    """
    answer = json.loads(measure_raw(column, python))
    return Measured(
        {(theme, name): verdict for theme, name, verdict in answer["verdicts"]},
        answer["themes"],
        answer["sqlalchemy"],
        answer["python"],
        answer["package"],
    )


def measure_raw(column: str, python: str) -> str:
    """Run one column with an interpreter and return the JSON that it prints."""
    finished = subprocess.run(
        [python, "-m", "tests.leaks.rivals", column],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode != 0:
        raise MeasureError(f"{column} could not be measured:\n{finished.stderr}")
    return finished.stdout


def measure_all(newest: str, lowest: str, easy_python: str) -> Matrix:
    """Run all columns.

    Raises:
        MeasureError: one failed, or they don't have the same paths.
    """
    matrix = Matrix(
        ours=(measure("ours", newest), measure("ours", lowest)),
        recipe=(measure("recipe", newest), measure("recipe", lowest)),
        easy=measure("easy", easy_python),
    )
    first, *others = (run.verdicts.keys() for _, run in matrix.runs())
    if any(paths != first for paths in others):
        raise MeasureError("the columns don't have the same paths")
    if matrix.ours[0].line == matrix.ours[1].line:
        raise MeasureError("--newest and --lowest have the same line of SQLAlchemy")
    return matrix


def document(matrix: Matrix) -> str:
    """Write the document."""
    newest, lowest = matrix.ours
    counts = [
        [f"{theme} ({sum(where == theme for where, _ in newest.verdicts)})"]
        + [run.counts(theme) for _, run in matrix.runs()]
        for theme in newest.themes
    ]
    total = [f"**all ({len(newest.verdicts)})**", *(run.counts() for _, run in matrix.runs())]
    names = {"sqlalchemy-easy-softdelete": "easy-softdelete"}
    heads = [f"{names.get(name, name)}, {run.line}" for name, run in matrix.runs()]
    parts = [
        PREFACE.format(
            easy=EASY.replace("==", " "),
            supports=EASY_SUPPORTS,
            newest=newest.line,
            lowest=lowest.line,
            leaks=_leaks(matrix),
        ),
        "## Counts\n\nRight / wrong / raises, by theme and by line of SQLAlchemy:\n\n",
        _table(["theme (paths)", *heads], [*counts, total]),
    ]
    for theme, about in newest.themes.items():
        rows = [
            [
                _escaped(name),
                _cell(matrix.ours, (theme, name)),
                _cell(matrix.recipe, (theme, name)),
                MARKS[matrix.easy.verdicts[theme, name]],
            ]
            for where, name in newest.verdicts
            if where == theme
        ]
        parts.append(f"\n## {theme}\n\n{_escaped(about)}\n\n")
        parts.append(
            _table(["path", "ours", "the usual recipe", "sqlalchemy-easy-softdelete"], rows)
        )
    return "".join([*parts, VERSIONS, "\n", _versions(matrix)])


def _leaks(matrix: Matrix) -> str:
    ours = matrix.ours
    paths = [
        path for path in ours[0].verdicts if any(run.verdicts[path] != "right" for run in ours)
    ]
    return "".join(f"- {_escaped(name)}\n" for _, name in paths) or "- none\n"


def _cell(runs: tuple[Measured, Measured], path: tuple[str, str]) -> str:
    newest, lowest = (MARKS[run.verdicts[path]] for run in runs)
    return newest if newest == lowest else f"{newest} ({runs[1].line}: {lowest})"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _escaped(words: str) -> str:
    return "".join(f"\\{each}" if each in "\\|*_<`[" else each for each in words)


def _versions(matrix: Matrix) -> str:
    lines = [
        f"- {name}{f' {run.package}' if run.package else ''}: "
        f"SQLAlchemy {run.sqlalchemy}, Python {run.python}, SQLite\n"
        for name, run in matrix.runs()
    ]
    return "".join(lines)


PREFACE = """\
# Where expired rows leak

<!-- Written by: python3 tools/leaks.py --write docs/leaks.md. Don't edit: change the tool. -->

A *path* is one way in which a program can meet a row through SQLAlchemy: a kind of select, join,
eager load, lazy load, subquery, bulk statement, flush, `session.get()`. Each is a short function in
`tests/leaks/paths_*.py`. All run on the same rows, some of which have expired.

| column | what hides the expired rows |
| --- | --- |
| ours | ttl_odm |
| the usual recipe | a column `expires_at`, and a listener to `do_orm_execute` that adds `with_loader_criteria(Mixin, lambda cls: cls.expires_at > now, include_aliases=True)`, as SQLAlchemy's example `extending_query` does: to SELECT, INSERT, UPDATE and DELETE |
| sqlalchemy-easy-softdelete | {easy}, its newest release, which supports SQLAlchemy {supports}; rows that have expired are marked in its column `deleted_at` |

| mark | what it says |
| --- | --- |
| ✓ | the answer is the right one: what plain SQLAlchemy gives where the expired rows are not in the tables at all; for objects that expire in memory before a write, what the contract says |
| ✗ | the answer is another, or a path under *writes* has changed a row that had expired |
| raises | an exception comes out that the path doesn't expect |

Every mark is measured, on SQLite, by asking twice: the second time the statements come out of
SQLAlchemy's cache. Ours and the recipe run with SQLAlchemy {newest} and {lowest}; where the two
lines differ, the mark for {lowest} stands in brackets. Each run of the tests measures all three
columns again (`tests/leaks/test_leaks_document.py`), ours and the recipe on the SQLAlchemy of the
run; `python3 tools/leaks.py --check docs/leaks.md` measures everything at once.

Left out are paths that SQLite can't do and paths about ttl_odm's own options; the tests run ours on
PostgreSQL and MariaDB too. The other two were made to filter queries. Some paths, such as an insert
with the key of an expired row, ask for what neither promises.

Ours leaks in these. Nothing tells SQLAlchemy's compiler which table they read, so nothing can be
filtered there; see [limits.md](limits.md).

{leaks}
"""  # noqa: E501 - a row of a table is one line


def main() -> int:
    """Parse the command line, measure, and write or compare."""
    parser = argparse.ArgumentParser(
        prog="leaks.py", description=(__doc__ or "").partition("\n")[0]
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path, metavar="FILE", help="write the document")
    what.add_argument("--check", type=Path, metavar="FILE", help="is the document up to date?")
    what.add_argument(
        "--measure-easy", action="store_true", help="print that package's column as JSON"
    )
    parser.add_argument("--newest", help="Python with ttl_odm's newest SQLAlchemy (.venv)")
    parser.add_argument("--lowest", help="Python with its lowest SQLAlchemy (.venv-lowest)")
    parser.add_argument("--easy", help=f"Python with {EASY} (.venv-rivals-*)")
    arguments = parser.parse_args()
    end_orderly_on_signals()
    try:
        return _work(arguments)
    except (CannotMakeError, MeasureError) as error:
        say(str(error))
        return CANNOT_START


def _work(arguments: Any) -> int:
    easy_python = arguments.easy or made(easy())
    if arguments.measure_easy:
        print(measure_raw("easy", easy_python), end="")
        return 0
    matrix = measure_all(
        arguments.newest or made(environments.development()),
        arguments.lowest or made(environments.lowest()),
        easy_python,
    )
    say("right / wrong / raises:")
    for name, run in matrix.runs():
        say(f"  {name}, SQLAlchemy {run.sqlalchemy}: {run.counts()}")
    text = document(matrix)
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")
        return 0
    file: Path = arguments.check
    # A new patch release of SQLAlchemy that changes no mark is no reason to fail.
    if file.exists() and _marks(file.read_text(encoding="utf-8")) == _marks(text):
        say(f"{file} is up to date")
        return 0
    say(f"{file} is not what was measured; write it: python3 tools/leaks.py --write {file}")
    return FAILED


def _marks(text: str) -> str:
    return text.partition(VERSIONS)[0]


if __name__ == "__main__":
    sys.exit(main())
