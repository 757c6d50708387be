"""`dev.py test`: from its options to its exit status."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import environments
import requirements
from environments import ROOT
from local_servers.lifetime import find_all, left_out, open_folder
from suite import history, lots, quick, report
from suite.slots import Began, Broken, Ended, Shared, Slot, Tasks, run
from terminal import say, undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from environments import Environment
    from suite.lots import Task
    from suite.slots import Event, Result

FAILED: Final = 1
CANNOT_START: Final = 3
_MOST_SLOTS: Final = 5
_BYTES_PER_SLOT: Final = 3 * 1024**3  # its servers in memory, with their files, and its tests
_LOGS: Final = ROOT / "build" / "tests"
_FAILURES: Final = _LOGS / "failures.json"
_AGAIN: Final = "python3 tools/dev.py test --failed"


@dataclass(frozen=True)
class Options:
    """What `dev.py test` was asked for.

    Attributes:
        only: The databases that are left; empty if all are.
        words: What goes to pytest; files and folders with `quick`.
        turn: The turn that was asked for.
        jobs: How many tasks run at the same time; None if the cores decide.
        quick: Whether it is the inner loop.
        everything: Whether each test runs on all of its databases.
        failed: Whether only that runs what has failed the last time.
        checks: Whether the static checks run.
        keep_going: Whether the rest runs although a check or the contract has failed.
    """

    only: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    turn: int | None = None
    jobs: int | None = None
    quick: bool = False
    everything: bool = False
    failed: bool = False
    checks: bool = True
    keep_going: bool = False


@dataclass
class Plan:
    """What is to be run.

    Attributes:
        tasks: The tasks, in order.
        turn: The number that chooses databases and seeds Python's hashes.
        only: The databases that are left; empty if all are.
        about: What it is, for people.
    """

    tasks: list[Task]
    turn: int
    only: tuple[str, ...]
    about: str


def test(options: Options) -> int:
    """Run the tests and return the exit status."""
    began = time.monotonic()
    if not options.quick:
        everything = not options.words and not options.failed
        requirements.check(options.only, everything=everything)
    development, lowest = environments.development(), environments.lowest()
    environments.make_all([development] if options.quick else [development, lowest])
    plan = _plan(options, development, lowest)
    if not plan.tasks:
        say("nothing to run")
        return FAILED
    variables: dict[str, str] = {}
    if any(task.servers for task in plan.tasks):
        names, variables = find_all(plan.only)
        servers = tuple(names)
    else:
        servers = ()
    jobs = min(options.jobs or slots_for(_cores(), _memory()), len(plan.tasks))
    print(f"{plan.about}, {report.counted(jobs, 'slot')}", flush=True)
    with _folder() as folder:
        variables |= _variables(folder, plan.turn)
        outcome = _Run(plan, jobs, keep_going=options.keep_going)
        outcome.run(folder, variables, servers or (lots.SQLITE,))
        return outcome.finish(time.monotonic() - began, left_out(plan.only, variables))


def _plan(options: Options, development: Environment, lowest: Environment) -> Plan:
    if options.failed:
        return _plan_of_failures(options, development, lowest)
    turn = history.turn() if options.turn is None else options.turn
    again = f"turn {turn} (to repeat it: --turn {turn})"
    checks = lots.checks(development) if options.checks else []
    if options.quick:
        changed = history.changed() or history.changed_last() or set()
        tasks = quick.tasks(development, turn, options.words, _existing(changed))
        return Plan(tasks, turn, (lots.SQLITE,), f"quick, {again}")
    choice = _choice_of_pages(lots.Choice(turn, options.only))
    if options.words:
        # Whoever has chosen tests gets them all.
        choice = lots.Choice(options.turn, options.only, all_pages=True)
        tasks = [*checks, *lots.chosen(development, lowest, choice, options.words)]
        return Plan(tasks, turn, options.only, "the chosen tests in both environments")
    if options.everything:
        choice = lots.Choice(None, options.only)
        again = "everything"
    tasks = [*lots.everything(development, lowest, choice), *checks]
    return Plan(lots.in_order(tasks), turn, options.only, again)


def _plan_of_failures(options: Options, development: Environment, lowest: Environment) -> Plan:
    if not _FAILURES.exists():
        return Plan([], 0, (), "")
    failures = json.loads(_FAILURES.read_text())
    turn = int(failures["turn"]) if options.turn is None else options.turn
    tasks = lots.checks(development, failures["checks"])
    for environment in (development, lowest):
        name = environment.folder.name
        if nodes := failures["tests"].get(name):
            file = _LOGS / f"failed-{name.lstrip('.')}.txt"
            file.write_text("".join(f"{node}\n" for node in nodes))
            tasks.append(lots.pytest(environment, "what failed", [f"@{file}"], 60))
        for lot in failures["broken"].get(name, []):
            tasks.append(lots.Task(name, lot["name"], tuple(lot["command"]), 60))
    return Plan(tasks, turn, options.only, f"what failed the last time, turn {turn}")


def _choice_of_pages(choice: lots.Choice) -> lots.Choice:
    """Choose the pages that may have changed since the last commit, or by it."""
    changed, last = history.changed(), history.changed_last()
    if changed is None or last is None or history.shows_on_all_pages(changed | last):
        return replace(choice, all_pages=True)
    return replace(choice, pages=tuple(history.pages(changed | last)))


def _existing(paths: set[str]) -> set[str]:
    """Return the paths that lead somewhere: of a deleted file no test can be run."""
    return {path for path in paths if (ROOT / path).exists()}


def slots_for(cores: int, memory: int) -> int:
    """Choose how many tasks run at the same time.

    One more than there are cores: a lot waits a quarter of its time, for locks and for what has
    to happen elsewhere.

    Args:
        cores: How many cores we may use.
        memory: How many bytes of memory the machine has.
    """
    return max(1, min(cores + 1, memory // _BYTES_PER_SLOT, _MOST_SLOTS))


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Make the folder of a run, in memory if there is room."""
    folder = open_folder("tests")
    try:
        yield folder
    finally:
        with undisturbed():
            shutil.rmtree(folder, ignore_errors=True)


def _variables(folder: Path, turn: int) -> dict[str, str]:
    """Return the environment variables of all tasks."""
    return {
        # So that no test finds bytecode of another version of a file, or puts any into the tree.
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        # Another one with each turn, and the same when a turn is repeated.
        "PYTHONHASHSEED": str(turn % 2**32),
    }


class _Run:
    """One run of a plan."""

    def __init__(self, plan: Plan, jobs: int, *, keep_going: bool) -> None:
        self._plan = plan
        self._jobs = jobs
        self._keep_going = keep_going
        self._results: list[Result] = []
        self._undone: list[Task] = []
        self._broken = False
        self._screen = report.Screen(plan.tasks, jobs, terminal=report.is_terminal())
        self._tasks = Tasks(plan.tasks)
        self._slots: list[Slot] = []
        self._running: dict[int, Task] = {}

    def run(self, folder: Path, variables: dict[str, str], servers: Sequence[str]) -> None:
        """Run the tasks, and show what happens."""
        shared = Shared(self._tasks, variables, servers)
        self._slots = [
            Slot(number, shared, folder / f"slot{number}") for number in range(1, self._jobs + 1)
        ]
        try:
            with self._screen.speaking():
                run(self._slots, shared, self._hear)
        except (KeyboardInterrupt, SystemExit):
            self._screen.print(*self._screen.interrupted())
            raise
        self._undone += self._tasks.drop()
        _LOGS.mkdir(parents=True, exist_ok=True)
        self._logs = report.keep_logs(self._results, _LOGS)

    def _hear(self, event: Event | None) -> None:
        self._screen.hear(event)
        if isinstance(event, Began):
            self._running[event.slot] = event.task
        elif isinstance(event, Ended):
            self._results.append(event.result)
            del self._running[event.slot]
            if event.result.failures and event.result.task.first and not self._keep_going:
                self._give_up()
        elif isinstance(event, Broken):
            self._broken = True

    def _give_up(self) -> None:
        """Run nothing more than what the others depend on."""
        dropped = self._tasks.drop()
        self._tasks.put_back([task for task in dropped if task.first])
        self._undone += [task for task in dropped if not task.first]
        for number, task in self._running.items():
            if not task.first:
                self._slots[number - 1].cancel(task)

    def finish(self, seconds: float, left_out: Sequence[str]) -> int:
        """Print the summary and return the exit status."""
        notes = [*left_out]
        if self._undone and not self._broken:
            notes.append("the rest was not run because of these failures; --keep-going runs it")
        lines = report.summary(self._results, self._undone, notes)
        lines.append(f"everything took {report.clock(seconds)}: {self._plan.about}")
        failed = [result for result in self._results if result.failures]
        ran = sum(result.record.done for result in self._results)
        if not ran and any(result.task.tests for result in self._results):
            lines.append("no test was chosen")
        if failed:
            self._remember(failed)
            lines.append(f"logs: {', '.join(str(path.relative_to(ROOT)) for path in self._logs)}")
            lines.append(f"to run again what failed: {_AGAIN}")
        print(*lines, report.closing_line(self._results), sep="\n", flush=True)
        if self._broken:
            return CANNOT_START
        empty = not ran and not self._plan_is_checks()
        return FAILED if failed or self._undone or empty else 0

    def _plan_is_checks(self) -> bool:
        return not any(task.tests for task in self._plan.tasks)

    def _remember(self, failed: Sequence[Result]) -> None:
        """Write down what has failed, for --failed."""
        tests: dict[str, list[str]] = {}
        broken: dict[str, list[dict[str, Any]]] = {}
        for result in failed:
            task = result.task
            if task.tests and (result.crashed or task.whole):
                lot = {"name": task.name, "command": task.command}
                broken.setdefault(task.environment, []).append(lot)
            elif task.tests:
                tests.setdefault(task.environment, []).extend(result.record.failures)
        checks = [result.task.name for result in failed if not result.task.tests]
        told = {"turn": self._plan.turn, "checks": checks, "tests": tests, "broken": broken}
        _FAILURES.write_text(json.dumps(told, indent=1))
