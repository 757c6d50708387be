"""Try mutants of the adapters: the known ones, or a sample.

Starts the servers, and for each group of tests one pytest process with `mutation.server`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from local_servers.children import ServerError
from local_servers.lifetime import running
from mutation import report
from mutation.known import KNOWN
from mutation.mutants import ROOT, Mutant, edited, sample
from terminal import end_orderly_on_signals, run, say

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SQL: Final = tuple(
    f"tests/{name}"
    for name in ("contract", "sql", "stores", "django_app", "migrations", "leaks", "faults")
)
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "sqlite": ("tests/unit", *_SQL, "tests/cli", "tests/testkit"),
    "mongodb": (
        *("tests/contract", "tests/mongo", "tests/stores", "tests/leaks_mongo", "tests/faults"),
    ),
    "postgres": _SQL,
    "mariadb": _SQL,
    "mysql": _SQL,
}
"""The folders that run with each database, in the order in which they are asked."""

_FOLDER: Final = ROOT / "build" / "mutation"
_CANNOT_START: Final = 3


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="dev.py mutate --adapters --", description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="how many mutants, at random")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--only", action="append", choices=GROUPS, help="a group of tests")
    parser.add_argument("--seconds", type=float, default=60, help="for the tests of one mutant")
    parser.add_argument("--record", action="store_true", help="record again who runs which line")
    parser.add_argument("words", nargs="*", help="further words for pytest, after --")
    arguments = parser.parse_args()
    end_orderly_on_signals()
    chosen = sample(arguments.sample, arguments.seed) if arguments.sample else _known()
    mutants = {str(number): mutant for number, mutant in enumerate(chosen)}
    verdicts: report.Verdicts = {}
    try:
        for group in arguments.only or GROUPS:
            _ask(group, arguments, mutants, verdicts)
    except ServerError as error:
        say(str(error))
        return _CANNOT_START
    for line in report.lines(mutants, verdicts):
        print(line)
    caught = all(report.is_caught(verdicts.get(number, {})) for number in mutants)
    return 0 if caught or arguments.sample else 1


def _known() -> list[Mutant]:
    return [edited(*change) for change in KNOWN]


def _ask(
    group: str,
    arguments: argparse.Namespace,
    mutants: Mapping[str, Mutant],
    verdicts: report.Verdicts,
) -> None:
    """Try the mutants that are not caught yet with one group of tests."""
    left = {
        number: asdict(mutant)
        for number, mutant in mutants.items()
        if not report.is_caught(verdicts.get(number, {}))
    }
    _FOLDER.mkdir(parents=True, exist_ok=True)
    answers, asked = _FOLDER / f"{group}.jsonl", _FOLDER / f"{group}-mutants.json"
    answers.unlink(missing_ok=True)
    asked.write_text(json.dumps(left))
    recording = _recording(group, arguments.words)
    if arguments.record:
        recording.unlink(missing_ok=True)
    folders = () if any(not word.startswith("-") for word in arguments.words) else GROUPS[group]
    plugin = (
        *("-p", "mutation.server", "--mutants", str(asked), "--recording", str(recording)),
        *("--verdicts", str(answers), "--seconds", str(arguments.seconds)),
    )
    say(f"\n== {group}: {len(left)} mutants")
    pytest = [sys.executable, "-m", "pytest", "-q", "--only", group, *plugin]
    with running([group]) as urls:
        paths = os.pathsep.join((str(ROOT), str(ROOT / "tools")))
        run([*pytest, *folders, *arguments.words], {**urls, "PYTHONPATH": paths})
    report.read(answers, group, verdicts)


def _recording(group: str, words: list[str]) -> Path:
    """Name the file that says which test runs which line: one for each state of the library."""
    library = sorted((ROOT / "ttl_odm").rglob("*.py"))
    text = "\0".join((*words, *(path.read_text() for path in library)))
    return _FOLDER / f"{group}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.pickle"


if __name__ == "__main__":
    sys.exit(main())
