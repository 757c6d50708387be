"""Try mutants of the adapters: the known ones, or a sample.

Starts the servers, and for each database one pytest process with `mutation.server`. A run that was
interrupted continues where it was: recordings and verdicts stay in build/mutation.
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
from mutation.equivalent import EQUIVALENT
from mutation.known import KNOWN
from mutation.mutants import ROOT, Mutant, edited, sample
from terminal import end_orderly_on_signals, run, say

if TYPE_CHECKING:
    from pathlib import Path

GROUPS: Final = ("sqlite", "mongodb", "postgres", "mariadb", "mysql")
"""The databases, in the order in which their tests are asked."""

_FOLDERS: Final = (
    *("unit", "contract", "sql", "django_app", "mongo", "migrations", "stores", "testkit", "cli"),
    *("metrics", "integrations", "examples", "adoption", "apps", "faults", "fuzz"),
    *("leaks", "leaks_mongo", "events"),
)
"""The folders whose tests run the library in their own process, at least partly."""

_FOLDER: Final = ROOT / "build" / "mutation"
_CANNOT_START: Final = 3


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="dev.py mutate --adapters --", description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="how many mutants, at random")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--turn", type=int, default=0, help="whose tests are asked first")
    parser.add_argument("--turn-only", action="store_true", help="ask no test of another turn")
    parser.add_argument("--only", action="append", choices=GROUPS, help="tests of this database")
    parser.add_argument("--seconds", type=float, default=60, help="for the tests of one mutant")
    parser.add_argument("--record", action="store_true", help="record again who runs which line")
    parser.add_argument("--again", action="store_true", help="try those again that weren't caught")
    parser.add_argument("--report", action="store_true", help="try none: print what is known")
    parser.add_argument("words", nargs="*", help="further words for pytest, after --")
    arguments = parser.parse_args()
    end_orderly_on_signals()
    mutants = sample(arguments.sample, arguments.seed) if arguments.sample else _known()
    groups = arguments.only or GROUPS
    try:
        for group in () if arguments.report else groups:
            _ask(group, arguments, mutants)
    except ServerError as error:
        say(str(error))
        return _CANNOT_START
    verdicts = _verdicts(arguments.turn)
    outcomes = {
        mutant.key: report.outcome(
            verdicts.get(mutant.key, {}),
            groups,
            equivalent=(mutant.path, *mutant.texts()) in EQUIVALENT,
        )
        for mutant in mutants
    }
    for line in (*report.lines(mutants, verdicts, outcomes), *report.table(mutants, outcomes)):
        print(line)
    caught = all(report.is_caught(verdicts.get(mutant.key, {})) for mutant in mutants)
    return 0 if caught or arguments.sample else 1


def _known() -> list[Mutant]:
    return [edited(*change) for change in KNOWN]


def _ask(group: str, arguments: argparse.Namespace, mutants: list[Mutant]) -> None:
    """Try the mutants that aren't decided with one group of tests."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    verdicts = _verdicts(arguments.turn)
    left = [
        (asdict(mutant), report.is_caught(answers))
        for mutant in mutants
        if report.is_left(answers := verdicts.get(mutant.key, {}), group, again=arguments.again)
    ]
    say(f"\n== {group}: {len(left)} of {len(mutants)} mutants are left")
    if not left:
        return
    asked = _FOLDER / f"{group}-mutants.json"
    asked.write_text(json.dumps(left))
    recording = _recording(group)
    if arguments.record:
        recording.unlink(missing_ok=True)
    named = any(not word.startswith("-") for word in arguments.words)
    folders = () if named else (f"tests/{name}" for name in _FOLDERS)
    plugin = (
        *("-p", "mutation.server", "--mutants", str(asked), "--recording", str(recording)),
        *("--verdicts", str(_answers(group, arguments.turn))),
        *("--in-turn", str(arguments.turn), "--seconds", str(arguments.seconds)),
        *(("--without-later",) if arguments.turn_only else ()),
    )
    pytest = [sys.executable, "-m", "pytest", "-q", "--only", group, *plugin]
    with running([group]) as urls:
        paths = os.pathsep.join((str(ROOT), str(ROOT / "tools")))
        run([*pytest, *folders, *arguments.words], {**urls, "PYTHONPATH": paths})


def _verdicts(turn: int) -> report.Verdicts:
    """Read what earlier runs, and this one, have found out."""
    verdicts: report.Verdicts = {}
    for group in GROUPS:
        report.read(_answers(group, turn), group, verdicts)
    return verdicts


def _answers(group: str, turn: int) -> Path:
    return _FOLDER / f"{group}-turn{turn}.jsonl"


def _recording(group: str) -> Path:
    """Name the file that says which test runs which line: one for each state of the library."""
    library = sorted((ROOT / "ttl_odm").rglob("*.py"))
    text = "\0".join(path.read_text() for path in library)
    return _FOLDER / f"{group}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.pickle"


if __name__ == "__main__":
    sys.exit(main())
