"""docs/conformance.md: the contract's cases, and what each backend answers.

`python3 tools/conformance.py --write docs/conformance.md` runs all cases and writes, `--check` runs
them and says whether the document still tells the same. They run (`tests.contract.run`) in the
development environment and in the one with the oldest libraries, which are made when needed unless
`--newest` and `--lowest` name interpreters; PostgreSQL, MariaDB, MySQL and MongoDB are started
unless the variables TTL_ODM_TEST_*_URL name servers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import environments
from conformance_table import Run, document, summary, without_versions
from environments import ROOT, CannotMakeError, Environment
from local_servers.children import ServerError
from local_servers.lifetime import BACKENDS, running
from terminal import end_orderly_on_signals, say

if TYPE_CHECKING:
    from collections.abc import Mapping

FAILED = 1
CANNOT_START = 3


class RunError(Exception):
    """The cases could not be run; the message says why."""


def made(environment: Environment) -> str:
    """Make an environment and return its interpreter."""
    environment.make()
    return environment.program("python")


def run(python: str, urls: Mapping[str, str]) -> Run:
    """Run all cases with an interpreter; those that are wrong are told on standard error.

    Args:
        python: the interpreter.
        urls: environment variables with the addresses of servers.

    Raises:
        RunError: it failed.
    """
    finished = subprocess.run(
        [python, "-m", "tests.contract.run"],
        cwd=ROOT,
        env={**os.environ, **urls, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if finished.returncode != 0:
        raise RunError(f"the cases could not be run with {python}; see above")
    found: Run = json.loads(finished.stdout)
    return found


def main() -> int:
    """Parse the command line, run, and write or compare."""
    parser = argparse.ArgumentParser(
        prog="conformance.py", description=(__doc__ or "").partition("\n")[0]
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=Path, metavar="FILE", help="write the document")
    what.add_argument("--check", type=Path, metavar="FILE", help="is the document up to date?")
    parser.add_argument("--newest", help="Python with the newest libraries (.venv)")
    parser.add_argument("--lowest", help="Python with the lowest ones (.venv-lowest)")
    arguments = parser.parse_args()
    end_orderly_on_signals()
    try:
        newest = arguments.newest or made(environments.development())
        lowest = arguments.lowest or made(environments.lowest())
        with running(BACKENDS) as urls:
            runs = [run(python, urls) for python in (newest, lowest)]
    except (CannotMakeError, RunError, ServerError) as error:
        say(str(error))
        return CANNOT_START
    say(summary(runs))
    return _conclude(arguments, document(runs))


def _conclude(arguments: argparse.Namespace, text: str) -> int:
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")
        return 0
    file: Path = arguments.check
    if file.exists() and without_versions(file.read_text(encoding="utf-8")) == without_versions(
        text
    ):
        say(f"{file} is up to date")
        return 0
    say(f"{file} is not what was run; write it: python3 tools/conformance.py --write {file}")
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
