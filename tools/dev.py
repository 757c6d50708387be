"""The developers' commands: `python3 tools/dev.py COMMAND`. README and CI call nothing else.

Any Python from 3.10 on runs this file: it imports only the standard library and its neighbours,
and makes the virtual environments that the work itself needs.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if sys.version_info < (3, 10):  # noqa: UP036 - a clear line for whoever has an older one
    sys.exit("ttl_odm needs Python 3.10 or newer")

import engines
import environments
import requirements
from environments import ROOT, CannotMakeError, Environment
from local_servers.children import ServerError
from local_servers.kind import DURABLE
from local_servers.lifetime import BACKENDS, KINDS, left_out, running
from terminal import Command, end_orderly_on_signals, run, run_together, say, split_at_dashes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_SQL_SERVERS = ("postgres", "mariadb", "mysql")

FAILED = 1
CANNOT_START = 3
_REMOVABLE = (
    *(".venv", ".venv-lowest", ".venv-demo", ".venv.lock", "build", "dist", ".hypothesis"),
    *(
        "mutants",
        ".benchmarks",
        ".mypy_cache",
        ".ruff_cache",
        ".import_linter_cache",
        ".pytest_cache",
    ),
)


@dataclass
class Steps:
    """The steps of one command and how each ended, for the summary."""

    lines: list[str] = field(default_factory=list)
    failed: bool = False

    def take(
        self, title: str, arguments: list[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Run one step and remember how it ended."""
        self.take_together({title: Command(arguments, environment or {})})

    def take_together(self, commands: Mapping[str, Command]) -> None:
        """The same for steps that run side by side."""
        say(f"\n== {' | '.join(commands)}")
        for title, ended in zip(commands, run_together([*commands.values()]), strict=True):
            ending = f"FAILED with status {ended.status}" if ended.status else "ok"
            self.lines.append(f"{title}: {ending}, {ended.seconds:.1f} s")
            self.failed = self.failed or ended.status != 0

    def finish(self) -> int:
        """Print the summary and return the exit status."""
        say("\n== summary")
        for line in self.lines:
            say(line)
        return FAILED if self.failed else 0


def lint(steps: Steps, development: Environment) -> None:
    """Run every static check, also after one failed."""
    program = development.program
    steps.take("ruff check", [program("ruff"), "check", "."])
    steps.take("ruff format", [program("ruff"), "format", "--check", "."])
    steps.take("mypy", [program("mypy")])
    steps.take("pyright", [program("pyright")])
    steps.take("import-linter", [program("lint-imports"), "--no-logo"])


def command_lint(_arguments: argparse.Namespace, _passed_on: list[str]) -> int:
    """Run ruff, mypy, pyright and import-linter."""
    development = environments.development()
    development.make()
    steps = Steps()
    lint(steps, development)
    return steps.finish()


def command_test(arguments: argparse.Namespace, passed_on: list[str]) -> int:
    """Run everything that CI runs: static checks, then all tests on two sets of versions.

    All runs go on side by side, each with servers of its own. Nobody waits for tests of code that
    does not type-check: a static check that fails ends it. With the lowest versions MariaDB and
    MySQL have to pass the contract only: what differs between versions is the libraries' code, and
    nearly all of that serves PostgreSQL too, which passes everything there. With the newest ones
    what the three SQL servers have to pass besides is a run of its own, about as long as either of
    the others: of one run for all, the last third would have the machine for itself.
    """
    development, lowest = environments.development(), environments.lowest()
    for environment in (development, lowest):
        environment.make()
    steps = Steps()
    if not arguments.skip_lint:
        lint(steps, development)
    if steps.failed:
        return steps.finish()
    only = _each("--only", arguments.only)
    with contextlib.ExitStack() as servers:

        def pytest(environment: Environment, *fewer: str) -> Command:
            words = [environment.program("python"), "-m", "pytest", *only, *fewer, *passed_on]
            return Command(words, servers.enter_context(running(arguments.only)))

        old, new = (f"pytest in {each.folder.name}" for each in (lowest, development))
        # Whoever has chosen tests gets them all, in both: of a few none might be left.
        fewer = () if passed_on else _each("--briefly", _SQL_SERVERS[1:])
        commands = {old: (first := pytest(lowest, *fewer))}
        ours = [kind.name for kind in KINDS if kind.variable in first.environment]
        split = [] if passed_on else [name for name in _SQL_SERVERS if name in ours]
        commands[new] = pytest(development, *_each("--briefly", split))
        if split:
            commands[f"{new}, SQL servers"] = pytest(development, *_each("--rest-of", split))
        steps.take_together(commands)
    steps.lines += left_out(arguments.only, first.environment)
    return steps.finish()


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def command_demo(_arguments: argparse.Namespace, passed_on: list[str]) -> int:
    """Show what the library does: `ttl-odm demo` with only what it needs."""
    environment = environments.demo()
    environment.make()
    return run([environment.program("ttl-odm"), "demo", *passed_on])


def command_bench(arguments: argparse.Namespace, passed_on: list[str]) -> int:
    """Measure everything, and write build/bench/report.md: 45 minutes; `--quick`: five.

    `bench --run sweeping` measures that one anew. Servers write to disk as they do in production,
    for what a commit costs is what sweeping in batches costs.
    """
    development, rivals = environments.development(), environments.rivals()
    for environment in (development, rivals):
        environment.make()
    os.environ[DURABLE] = "1"
    only = _each("--only", arguments.only)
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


def command_mutate(_arguments: argparse.Namespace, passed_on: list[str]) -> int:
    """Change the contract and the plan in a thousand ways and see which ones no test notices.

    Some minutes. Further words go to mutmut's `run`, such as `--max-children 1` for one core.
    """
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
    for path in (*(ROOT / name for name in _REMOVABLE), *ROOT.glob(".venv-rivals*")):
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
    "docs": command_docs,
    "mutate": command_mutate,
    "env": command_env,
    "env-lowest": command_env_lowest,
    "clean": command_clean,
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
        if name in {"test", "bench"}:
            command.add_argument("--only", action="append", default=[], choices=BACKENDS)
        if name == "engines":
            command.add_argument("--only", action="append", default=[], choices=engines.NAMES)
        if name == "test":
            command.add_argument("--skip-lint", action="store_true", help="only the tests")
    own_words, passed_on = split_at_dashes(sys.argv[1:])
    arguments, unknown = parser.parse_known_args(own_words)
    if unknown and arguments.command not in {"test", "demo", "bench", "mutate"}:
        parser.error(f"{arguments.command} takes no {unknown[0]}")
    end_orderly_on_signals()
    os.chdir(ROOT)
    further = [*unknown, *passed_on]
    try:
        if arguments.command == "test":
            requirements.check(arguments.only, everything=not further)
        return COMMANDS[arguments.command](arguments, further)
    except (CannotMakeError, ServerError) as error:
        say(str(error))
        return CANNOT_START
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
