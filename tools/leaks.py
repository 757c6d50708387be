"""docs/leaks.md: what each path of the leak matrices sees with ours and with other ways.

`python3 tools/leaks.py --write docs/leaks.md` measures and writes, `--check docs/leaks.md` measures
and says whether the document still tells the same. Every mark comes out of `tests.leaks.rivals`
(SQL) and `tests.leaks_mongo.rivals` (MongoDB), which run in a process of their own for each column
and each environment. The environments are made when needed, unless `--newest`, `--lowest` and
`--easy` name interpreters that have what they need; a mongod is started unless
TTL_ODM_TEST_MONGODB_URL names one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import environments
import leak_prefaces
from environments import EASY, ROOT, CannotMakeError, Environment
from leak_matrix import Column, Half, Measured, without_versions
from local_servers.children import ServerError
from local_servers.lifetime import running
from terminal import end_orderly_on_signals, say

FAILED = 1
CANNOT_START = 3

EASY_SUPPORTS = "1.4 and 2.0"

SQL = "tests.leaks.rivals"
MONGODB = "tests.leaks_mongo.rivals"
ON_SQLITE = ": SQLAlchemy {sqlalchemy}, Python {python}, SQLite"
ON_MONGOD = ": Beanie {beanie}, {driver}, Python {python}, MongoDB {server}"


class MeasureError(Exception):
    """A column could not be measured; the message says why."""


def made(environment: Environment) -> str:
    """Make an environment and return its interpreter."""
    environment.make()
    return environment.program("python")


def measure_raw(module: str, column: str, python: str, urls: dict[str, str] | None = None) -> str:
    """Run one column with an interpreter and return the JSON that it prints.

    Args:
        module: the matrix's rivals.
        column: one of them, or ours.
        python: the interpreter.
        urls: environment variables with the addresses of servers.

    Raises:
        MeasureError: it failed.
    """
    finished = subprocess.run(
        [python, "-m", module, column],
        cwd=ROOT,
        env={**os.environ, **(urls or {}), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode != 0:
        raise MeasureError(f"{module} {column} could not be measured:\n{finished.stderr}")
    return finished.stdout


def measure_sql(newest: str, lowest: str, easy_python: str) -> Half:
    """Run all columns of the matrix on SQL.

    Raises:
        MeasureError: one failed, or they don't fit together.
    """

    def run(column: str, python: str, versions: str = ON_SQLITE) -> Measured:
        return Measured.of(json.loads(measure_raw(SQL, column, python)), "sqlalchemy", versions)

    preface = leak_prefaces.SQL.replace("EASY", EASY.replace("==", " "))
    columns = (
        Column("ours", "ours", (run("ours", newest), run("ours", lowest))),
        Column(
            "the usual recipe",
            "the usual recipe",
            (run("recipe", newest), run("recipe", lowest)),
        ),
        Column(
            "sqlalchemy-easy-softdelete",
            "easy-softdelete",
            (run("easy", easy_python, " {package}" + ON_SQLITE),),
        ),
    )
    preface = preface.replace("SUPPORTED", EASY_SUPPORTS)
    kinds = leak_prefaces.SQL_KINDS
    return _fitting(Half(leak_prefaces.SQL_TITLE, preface, "SQLAlchemy", kinds, columns))


def measure_mongodb(newest: str, lowest: str, urls: dict[str, str]) -> Half:
    """Run all columns of the matrix on MongoDB.

    Raises:
        MeasureError: one failed, or they don't fit together.
    """

    def both(column: str) -> tuple[Measured, ...]:
        answers = [measure_raw(MONGODB, column, python, urls) for python in (newest, lowest)]
        return tuple(Measured.of(json.loads(answer), "beanie", ON_MONGOD) for answer in answers)

    names = {"ours": "ours", "soft": "soft delete", "queries": "query classes"}
    columns = tuple(Column(name, name, both(column)) for column, name in names.items())
    title, preface = leak_prefaces.MONGODB_TITLE, leak_prefaces.MONGODB
    return _fitting(Half(title, preface, "Beanie", leak_prefaces.MONGODB_KINDS, columns))


def _fitting(half: Half) -> Half:
    """Say so if the runs don't fit together."""
    first, *others = (run.verdicts.keys() for _, run in half.runs())
    if any(paths != first for paths in others):
        raise MeasureError(f"the columns for {half.library} don't have the same paths")
    if half.ours[0].line == half.ours[-1].line:
        raise MeasureError(f"--newest and --lowest have the same line of {half.library}")
    return half


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
    parser.add_argument("--newest", help="Python with the newest SQLAlchemy and Beanie (.venv)")
    parser.add_argument("--lowest", help="Python with the lowest ones (.venv-lowest)")
    parser.add_argument("--easy", help=f"Python with {EASY} (.venv-rivals)")
    arguments = parser.parse_args()
    end_orderly_on_signals()
    try:
        return _work(arguments)
    except (CannotMakeError, MeasureError, ServerError) as error:
        say(str(error))
        return CANNOT_START


def _work(arguments: Any) -> int:
    easy_python = arguments.easy or made(environments.rivals())
    if arguments.measure_easy:
        print(measure_raw(SQL, "easy", easy_python), end="")
        return 0
    newest = arguments.newest or made(environments.development())
    lowest = arguments.lowest or made(environments.lowest())
    with running(["mongodb"]) as urls:
        halves = measure_sql(newest, lowest, easy_python), measure_mongodb(newest, lowest, urls)
    say("right / wrong / raises:")
    for line in (line for half in halves for line in half.summary()):
        say(f"  {line}")
    text = "\n".join(half.text() for half in halves)
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")
        return 0
    file: Path = arguments.check
    # A new patch release of a library that changes no mark is not a reason to fail.
    if file.exists() and without_versions(file.read_text(encoding="utf-8")) == without_versions(
        text
    ):
        say(f"{file} is up to date")
        return 0
    say(f"{file} is not what was measured; write it: python3 tools/leaks.py --write {file}")
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
