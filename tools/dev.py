"""The developers' commands: `python3 tools/dev.py COMMAND`. README and CI call nothing else.

Any Python from 3.10 on runs this file: it imports only the standard library and its neighbours,
and makes the virtual environments that the work itself needs.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import secrets
import shutil
import sys
from typing import TYPE_CHECKING

if sys.version_info < (3, 10):  # noqa: UP036 - a clear line for whoever has an older one
    sys.exit("ttl_odm needs Python 3.10 or newer")

import clusters
import engines
import environments
import pythons
from environments import ROOT, CannotMakeError
from local_servers.children import ServerError
from local_servers.kind import DURABLE
from local_servers.lifetime import BACKENDS, running
from suite.command import CANNOT_START, FAILED, Options, test
from suite.lots import checks, only_on
from suite.surroundings import forget_python, take_control
from terminal import end_orderly_on_signals, run, say, split_at_dashes

if TYPE_CHECKING:
    from collections.abc import Callable

_REMOVABLE = (
    *("build", "dist", "mutants", ".hypothesis", ".benchmarks", ".pytest_cache"),
    *(".mypy_cache", ".ruff_cache", ".import_linter_cache"),
)


def command_lint(_arguments: argparse.Namespace, _passed_on: list[str]) -> int:
    """Run ruff, mypy, pyright and import-linter, all of them, also after one failed."""
    development = environments.development()
    development.make()
    failed = []
    for check in checks(development):
        say(f"\n== {check.name}")
        if run(check.command) != 0:
            failed.append(check.name)
    say(f"\n{', '.join(failed)} failed" if failed else "\nall checks passed")
    return FAILED if failed else 0


def command_test(arguments: argparse.Namespace, passed_on: list[str]) -> int:
    """Run what CI runs: static checks, and the tests with the newest and the lowest versions.

    Each test runs on SQLite and on a part of its other databases, which changes with each commit.
    `--all` runs it on all of them, `--quick` what runs within a minute. Further words choose tests:
    files, folders, `-k`. See docs/quality.md, "Which tests run where".
    """
    return test(
        Options(
            only=tuple(arguments.only),
            words=tuple(passed_on),
            turn=arguments.turn,
            jobs=arguments.jobs,
            quick=arguments.quick,
            everything=arguments.all,
            failed=arguments.failed,
            checks=not arguments.skip_lint,
            keep_going=arguments.keep_going,
        )
    )


def command_demo(_arguments: argparse.Namespace, passed_on: list[str]) -> int:
    """Show what the library does: `ttl-odm demo` with only what it needs."""
    environment = environments.demo()
    environment.make()
    return run([environment.program("ttl-odm"), "demo", *passed_on])


def command_bench(arguments: argparse.Namespace, passed_on: list[str]) -> int:
    """Measure everything, and write build/bench/report.md: an hour or two; `--quick`: ten minutes.

    `bench --run sweeping` measures that one anew. Servers write to disk as they do in production,
    for what a commit costs is what sweeping in batches costs.
    """
    development, rivals = environments.development(), environments.rivals()
    for environment in (development, rivals):
        environment.make()
    os.environ[DURABLE] = "1"
    only = only_on(arguments.only)
    module = [development.program("python"), "-m", "benchmarks"]
    with running(arguments.only) as urls:
        return run([*module, "--rivals", rivals.program("python"), *only, *passed_on], urls)


def command_engines(arguments: argparse.Namespace, _passed_on: list[str]) -> int:
    """Run the suites on every engine that is available, and write docs/engines.md.

    Half an hour. `engines --only postgres-17` runs one anew, and keeps what is known of the others.
    """
    development = environments.development()
    development.make()
    return engines.write(arguments.only, development.program("python"))


def command_clusters(arguments: argparse.Namespace, _passed_on: list[str]) -> int:
    """Let clients and a hundred failovers go on in each cluster, and write docs/clusters.md.

    What becomes of a primary is random: it is killed, stopped in good order, or cut off from the
    others. `clusters --only postgres-standby --failovers 10` runs one anew, for less long, and
    keeps what is known of the others. `--seed 7` repeats its random choices, and `--resume` goes on
    with a run that was interrupted. Different clusters may be run at the same time.
    """
    development = environments.development()
    development.make()
    seed = secrets.randbelow(10_000) if arguments.seed is None else arguments.seed
    return clusters.write(
        arguments.only,
        arguments.failovers,
        seed,
        development.program("python"),
        resume=arguments.resume,
    )


def command_pythons(arguments: argparse.Namespace, passed_on: list[str]) -> int:
    """Run unit tests, the contract and the SQL tests on SQLite with the newest Pythons.

    Interpreters that this machine doesn't have are downloaded from Debian's unstable suite (20 MB
    each) and unpacked, not installed. Further words go to pytest.
    """
    development = environments.development()
    development.make()
    failed = []
    for version in arguments.only or pythons.VERSIONS:
        made = pythons.environment(version, development.program("uv"))
        made.make()
        for title, words in pythons.steps(version, made, passed_on).items():
            say(f"\n== {title}")
            if run(words) != 0:
                failed.append(title)
    say(f"\nFAILED: {', '.join(failed)}" if failed else "\nAll passed")
    return FAILED if failed else 0


def command_docs(_arguments: argparse.Namespace, _passed_on: list[str]) -> int:
    """Build the documentation site into build/docs; any warning is an error."""
    development = environments.development()
    development.make()
    site = ROOT / "build" / "docs"
    words = ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "auto"]
    places = ["--conf-dir", str(ROOT / "docs"), str(ROOT), str(site)]
    caches = ["--doctree-dir", str(ROOT / "build" / "doctrees")]
    status = run([development.program("sphinx-build"), *words, *caches, *places])
    if status == 0:
        say(f"The site is built: open {site / 'index.html'}")
    return status


def command_mutate(arguments: argparse.Namespace, passed_on: list[str]) -> int:
    """Change the contract and the plan in a thousand ways and see which ones no test notices.

    Some minutes. Further words go to mutmut's `run`, such as `--max-children 1` for one core.
    `--adapters` tries mutants made by hand in the rest of the library; with `--sample 300` random
    ones. `mutate --adapters -- --help` has the other options.
    """
    if arguments.adapters:
        return _mutate_adapters(passed_on)
    development = environments.development()
    development.make()
    mutmut = development.program("mutmut")
    # Of another run's results it would keep those of tests that have changed since.
    shutil.rmtree(ROOT / "mutants", ignore_errors=True)
    status = run([mutmut, "run", *passed_on])
    if status == 0:
        say("\n== not noticed (one of them: .venv/bin/mutmut show NAME)")
        status = max(run([mutmut, "results"]), run([mutmut, "export-cicd-stats"]))
    if status == 0:
        found = json.loads((ROOT / "mutants" / "mutmut-cicd-stats.json").read_text())
        noticed = found["killed"] + found["timeout"]
        say(f"{noticed} of {found['total']} were noticed: {noticed / found['total']:.1%}")
    return status


def _mutate_adapters(passed_on: list[str]) -> int:
    development = environments.development()
    development.make()
    paths = os.pathsep.join((str(ROOT), str(ROOT / "tools")))
    words = [development.program("python"), "-m", "mutation", *passed_on]
    return run(words, {"PYTHONPATH": paths})


def command_env(_arguments: argparse.Namespace, _passed_on: list[str]) -> int:
    """Make .venv, or bring it up to date."""
    environments.development().make()
    return 0


def command_env_lowest(_arguments: argparse.Namespace, _passed_on: list[str]) -> int:
    """Make .venv-lowest, or bring it up to date."""
    environments.lowest().make()
    return 0


def command_clean(_arguments: argparse.Namespace, _passed_on: list[str]) -> int:
    """Remove the environments, the caches and what was built."""
    for path in (*(ROOT / name for name in _REMOVABLE), *ROOT.glob(".venv*")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace, list[str]], int]] = {
    "test": command_test,
    "lint": command_lint,
    "demo": command_demo,
    "bench": command_bench,
    "engines": command_engines,
    "clusters": command_clusters,
    "pythons": command_pythons,
    "docs": command_docs,
    "mutate": command_mutate,
    "env": command_env,
    "env-lowest": command_env_lowest,
    "clean": command_clean,
}


def _add_options_of_test(command: argparse.ArgumentParser) -> None:
    scope = command.add_mutually_exclusive_group()
    scope.add_argument(
        "--quick",
        action="store_true",
        help="a minute on SQLite: unit tests, the contract, leaks, and what belongs to the files "
        "that have changed, or to those that are named",
    )
    scope.add_argument(
        "--all", action="store_true", help="each test on all of its databases: more than an hour"
    )
    scope.add_argument("--failed", action="store_true", help="what has failed the last time")
    command.add_argument(
        "--turn", type=int, metavar="N", help="repeat a turn; by itself, the number of commits"
    )
    command.add_argument(
        "--jobs",
        type=_positive,
        metavar="N",
        help="how many lots run at once; by itself, the cores",
    )
    command.add_argument("--skip-lint", action="store_true", help="only the tests")
    command.add_argument(
        "--keep-going",
        action="store_true",
        help="run the rest even if a static check, a unit test or the contract has failed",
    )


def _add_options_of_clusters(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--failovers", type=_positive, metavar="N", default=100, help="how many; 100 by itself"
    )
    command.add_argument(
        "--seed", type=int, metavar="S", help="repeat a run's random choices; random by itself"
    )
    command.add_argument(
        "--resume", action="store_true", help="count the failovers of a run that was interrupted"
    )


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("it has to be 1 or more")
    return number


_ONLY: dict[str, tuple[str, ...]] = {
    "test": BACKENDS,
    "bench": BACKENDS,
    "engines": engines.NAMES,
    "clusters": clusters.NAMES,
    "pythons": pythons.VERSIONS,
}


def main() -> int:
    """Parse the command line and run one command."""
    parser = argparse.ArgumentParser(
        prog="dev.py",
        description="What a developer of ttl_odm runs. Further words go to pytest, to the demo "
        "or to the benchmarks; put them after -- where they could be meant for this program.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, function in COMMANDS.items():
        summary = (function.__doc__ or "").partition("\n")[0]
        about = inspect.getdoc(function)
        command = commands.add_parser(name, help=summary, description=about, allow_abbrev=False)
        if name in _ONLY:
            command.add_argument("--only", action="append", default=[], choices=_ONLY[name])
        if name == "mutate":
            command.add_argument("--adapters", action="store_true", help="mutate the adapters")
        if name == "clusters":
            _add_options_of_clusters(command)
        if name == "test":
            _add_options_of_test(command)
    own_words, passed_on = split_at_dashes(sys.argv[1:])
    arguments, unknown = parser.parse_known_args(own_words)
    if unknown and arguments.command not in {"test", "demo", "bench", "mutate", "pythons"}:
        parser.error(f"{arguments.command} takes no {unknown[0]}")
    end_orderly_on_signals()
    if arguments.command == "demo":  # it is for people, as they like their terminal
        forget_python()
    else:
        take_control()
    os.chdir(ROOT)
    try:
        return COMMANDS[arguments.command](arguments, [*unknown, *passed_on])
    except (CannotMakeError, ServerError) as error:
        say(str(error))
        return CANNOT_START
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
