"""Tasks run in slots, and however one ends, it is known how. Stand-ins take pytest's place."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
import time
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from local_servers.children import ServerError
from suite import slots
from suite.lots import Task
from suite.slots import Began, Broken, Ended, Result, Shared, Slot, Tasks, run
from tests.guard import GUARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HEAD = """
import json, os, signal, sys, time
record = open(sys.argv[sys.argv.index("--record") + 1], "a")
def tell(**told):
    print(json.dumps(told), file=record, flush=True)
def ended(name, outcome="passed"):
    tell(begun=name)
    tell(ended=name, outcome=outcome, seconds=0.1)
"""
PASSES = "tell(tests=2, left_out={'later': 3}); ended('a'); ended('b'); tell(status=0)"
FAILS = "tell(tests=2, left_out={}); ended('a'); ended('b', 'failed'); tell(status=1); sys.exit(1)"
EMPTY = "tell(tests=0, left_out={}); tell(status=5); sys.exit(5)"
CRASHES = "tell(tests=2, left_out={}); ended('a'); tell(begun='b'); os.kill(os.getpid(), 9)"
WAITS = (
    "signal.signal(signal.SIGINT, signal.default_int_handler); "  # Background jobs ignore it.
    "tell(tests=1, left_out={}); tell(begun='a'); print('up', flush=True); time.sleep(600)"
)
BROKEN = "tell(broken='test_a.py'); tell(status=2); sys.exit(2)"
LIES = "tell(tests=1, left_out={}); ended('a'); tell(status=0); sys.exit(3)"


def lot(code: str, name: str = "lot", **attributes: Any) -> Task:
    command = (sys.executable, "-c", textwrap.dedent(HEAD) + code)
    return Task(".venv", name, command, 1.0, **{"servers": False, **attributes})


def check(code: str, name: str = "check") -> Task:
    command = (sys.executable, "-c", code)
    return Task(".venv", name, command, 1.0, tests=False, servers=False, first=True)


class Runs:
    """Runs tasks and keeps what is told of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.events: list[slots.Event] = []
        self.slots: list[Slot] = []
        self.heard: Callable[[slots.Event | None], None] = lambda _: None

    def __call__(self, *tasks: Task, jobs: int = 1) -> list[Result]:
        shared = Shared(Tasks(tasks), {"TOLD": "by us"}, ())
        self.slots = [
            Slot(number, shared, self._folder / f"slot{number}") for number in range(1, jobs + 1)
        ]
        run(self.slots, shared, self._hear)
        return [event.result for event in self.events if isinstance(event, Ended)]

    def _hear(self, event: slots.Event | None) -> None:
        if event is not None:
            self.events.append(event)
        self.heard(event)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_a_lot_that_passes_tells_its_tests(runs: Runs) -> None:
    (result,) = runs(lot(PASSES))
    assert (result.status, result.failures, result.crashed) == (0, 0, False)
    assert result.record.outcomes == {"passed": 2}
    assert result.record.left_out == {"later": 3}


@pytest.mark.parametrize(
    ("code", "failures", "crashed", "named"),
    [
        (FAILS, 1, False, ["b"]),
        (CRASHES, 1, True, []),
        (EMPTY, 1, True, []),
        (BROKEN, 1, False, ["test_a.py"]),
        (LIES, 1, True, []),
        ("sys.exit(4)", 1, True, []),
        ("sys.exit(0)", 1, True, []),
    ],
    ids=["a test", "a kill", "no test", "a file", "another status", "no test told", "no end told"],
)
def test_a_lot_fails_in_every_way(
    runs: Runs, code: str, failures: int, named: list[str], *, crashed: bool
) -> None:
    (result,) = runs(lot(code))
    assert (result.failures, result.crashed) == (failures, crashed)
    assert result.record.failures == named


def test_a_lot_that_may_be_empty_is_no_failure(runs: Runs) -> None:
    (result,) = runs(lot(EMPTY, may_be_empty=True))
    assert (result.failures, result.is_empty) == (0, True)
    (result,) = Runs(runs.slots[0]._folder / "again")(lot(CRASHES, may_be_empty=True))
    assert (result.failures, result.is_empty) == (1, False)


def test_a_crash_names_the_test_that_was_running(runs: Runs) -> None:
    (result,) = runs(lot(CRASHES))
    assert result.status == 128 + signal.SIGKILL
    assert result.record.running == "b"


def test_a_check_fails_by_its_status(runs: Runs) -> None:
    results = runs(check("print('here'); raise SystemExit(2)"), check("pass"))
    assert [result.failures for result in results] == [1, 0]
    assert results[0].log.read_text() == "here\n"


def test_a_program_that_is_not_there_is_a_failure(runs: Runs) -> None:
    (result,) = runs(Task(".venv", "x", ("/nowhere/ruff",), 1, tests=False, servers=False))
    assert result.failures == 1
    assert result.troubles == ("cannot run /nowhere/ruff: No such file or directory",)


def test_tasks_begin_in_order_and_each_runs_once(runs: Runs) -> None:
    runs(*(lot(PASSES, str(number)) for number in range(5)), jobs=2)
    began = [event.task.name for event in runs.events if isinstance(event, Began)]
    assert sorted(began) == [*"01234"]
    assert set(began[:2]) == {"0", "1"}


def test_slots_work_at_the_same_time(runs: Runs, tmp_path: Path) -> None:
    meet = f"""
import pathlib
here = pathlib.Path({str(tmp_path)!r})
(here / str(os.getpid())).touch()
until = time.monotonic() + {GUARD}
while len([path for path in here.iterdir() if path.name.isdigit()]) < 2:
    assert time.monotonic() < until
    time.sleep(0.01)
tell(tests=0, left_out={{}})
tell(status=0)
"""
    assert [result.failures for result in runs(lot(meet), lot(meet), jobs=2)] == [0, 0]


def test_a_slot_has_a_temporary_folder_of_its_own(runs: Runs) -> None:
    code = "print(os.environ['TMPDIR'], os.environ['TOLD'], sep='\\n', flush=True); tell(status=0)"
    (result,) = runs(lot(code))
    folder, told = result.log.read_text().splitlines()
    assert (Path(folder).name, told) == ("tmp", "by us")
    assert Path(folder).is_dir()


def test_what_a_lot_leaves_behind_ends_with_it(runs: Runs) -> None:
    code = f"""
import subprocess
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep({GUARD})"])
print(child.pid, flush=True)
"""
    (result,) = runs(lot(code + PASSES))
    assert not result.failures
    until = time.monotonic() + GUARD
    while is_there(int(result.log.read_text())):
        assert time.monotonic() < until


def is_there(process: int) -> bool:
    """Whether a process runs; one that nobody has waited for doesn't."""
    status = Path(f"/proc/{process}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_lot_that_hangs_is_ended_and_says_where(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slots, "STALLED_SECONDS", 0.5)
    (result,) = runs(lot(WAITS))
    assert result.failures == 1
    (trouble,) = result.troubles
    assert trouble.startswith("nothing has happened for ")
    assert trouble.endswith(" in a")


def is_up(runs: Runs) -> bool:
    """Whether a task of `WAITS` has begun its test."""
    began = [event for event in runs.events if isinstance(event, Began)]
    return bool(began) and began[-1].follower.record.running == "a"


@pytest.mark.slow
def test_a_cancelled_lot_is_no_failure(runs: Runs) -> None:
    waiting = lot(WAITS)
    runs.heard = lambda _: runs.slots[0].cancel(waiting) if is_up(runs) else None
    first, second = runs(waiting, lot(PASSES))
    assert (first.cancelled, first.failures) == (True, 0)
    assert (second.cancelled, second.record.done) == (False, 2)


@pytest.mark.slow
def test_an_interruption_ends_what_runs_and_begins_nothing_more(runs: Runs) -> None:
    def interrupt(_event: slots.Event | None) -> None:
        if is_up(runs):
            raise KeyboardInterrupt

    runs.heard = interrupt
    with pytest.raises(KeyboardInterrupt):
        runs(lot(WAITS), lot(PASSES))
    assert len([event for event in runs.events if isinstance(event, Began)]) == 1
    assert not any(slot.is_alive() for slot in runs.slots)


class Set(dict[str, str]):
    """A set of servers that was never started."""

    def __init__(self, lost: list[str]) -> None:
        super().__init__(SERVER="there", TMPDIR="/nowhere")
        self._lost = lost

    def lost(self) -> list[str]:
        return self._lost


def test_a_slot_keeps_its_servers_until_one_is_lost(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import contextmanager

    told: list[str] = []

    @contextmanager
    def running(only: object, tell: object) -> Iterator[Set]:
        told.append("started")
        yield Set(["PostgreSQL has ended"] if len(told) == 1 else [])
        told.append("stopped")

    monkeypatch.setattr(slots, "running", running)
    code = "assert os.environ['SERVER'] == 'there'; assert os.environ['TMPDIR'] != '/nowhere';"
    results = runs(*(lot(code + PASSES, servers=True) for _ in range(3)))
    assert [result.failures for result in results] == [1, 0, 0]
    assert results[0].troubles == ("PostgreSQL has ended",)
    assert told == ["started", "stopped", "started", "stopped"]


def test_a_server_that_does_not_start_ends_the_run(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def running(only: object, tell: object) -> Any:
        raise ServerError("PostgreSQL did not start")

    monkeypatch.setattr(slots, "running", running)
    assert runs(lot(PASSES, servers=True), lot(PASSES)) == []
    (broken,) = [event for event in runs.events if isinstance(event, Broken)]
    assert broken.message == "PostgreSQL did not start"


@pytest.mark.slow
def test_what_pytest_does_is_recorded(tmp_path: Path) -> None:
    """With a real pytest, and the options of tests/conftest.py."""
    import subprocess

    root = Path(__file__).parents[2]
    record = tmp_path / "record.jsonl"
    words = ["tests/servers/test_servers_answer.py", "--only", "sqlite", "--record", str(record)]
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "--quiet", *words, "--turn", "1"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout
    told = [json.loads(line) for line in record.read_text().splitlines()]
    ran = [line for line in told if "ended" in line]
    assert told[0]["tests"] == len(ran) == 4
    assert {line["outcome"] for line in ran} == {"passed"}
    assert sum(told[0]["left_out"].values()) == 14
    assert told[-1] == {"status": 0}


def test_threads_of_slots_are_named(runs: Runs) -> None:
    runs(lot(PASSES))
    assert [slot.name for slot in runs.slots] == ["slot 1"]
    assert all(isinstance(slot, Thread) for slot in runs.slots)
