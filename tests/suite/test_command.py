"""`dev.py test` from its options to its exit status; stand-ins take the place of environments."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from environments import Environment
from suite import command, history, lots, slots
from suite.command import Options, slots_for
from suite.without import EXTENSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from suite.lots import Task

GIB = 1024**3
HEAD = """
import json, sys
record = open(sys.argv[sys.argv.index("--record") + 1], "a")
def tell(**told):
    print(json.dumps(told), file=record, flush=True)
"""
PASSES = "tell(tests=1, left_out={}); tell(ended='a', outcome='passed', seconds=1); tell(status=0)"
FAILS = (
    "tell(tests=1, left_out={}); tell(ended='b', outcome='failed', seconds=1); tell(status=1); "
    "print('===== FAILURES =====\\nE  it is wrong'); sys.exit(1)"
)
# A job in the background is begun with SIGINT ignored, and so are its children.
HEEDS_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
EMPTY = "tell(tests=0, left_out={'not chosen': 7}); tell(status=5); sys.exit(5)"
CRASHES = "sys.exit(3)"


def lot(code: str, name: str, **attributes: Any) -> Task:
    words = (sys.executable, "-c", textwrap.dedent(HEAD) + code)
    return lots.Task(".venv", name, words, 1.0, **{"servers": False, **attributes})


def check(status: int) -> Task:
    words = (sys.executable, "-c", f"raise SystemExit({status})")
    return lots.Task(".venv", "mypy", words, 1, tests=False, servers=False, first=True)


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is installed, and what has failed here is not what --failed runs."""
    monkeypatch.setattr(command.environments, "make_all", lambda _: None)
    monkeypatch.setattr(command.requirements, "check", lambda *_, **__: None)
    for name, folder in (("development", ".venv"), ("lowest", ".venv-lowest")):
        made = Environment(command.ROOT / folder, "python3", ())
        monkeypatch.setattr(command.environments, name, lambda made=made: made)
    monkeypatch.setattr(command, "_LOGS", tmp_path / "logs")
    monkeypatch.setattr(command, "_FAILURES", tmp_path / "logs" / "failures.json")
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run these tasks instead of those that the options mean."""

    def with_tasks(*tasks: Task, **options: Any) -> int:
        plan = command.Plan([*tasks], 1135, (lots.SQLITE,), "turn 1135")
        monkeypatch.setattr(command, "_plan", lambda *_: plan)
        return command.test(Options(jobs=1, **options))

    return with_tasks


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.splitlines()[-1]


def test_what_passes_has_status_0(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(check(0), lot(PASSES, "one"), lot(PASSES, "two")) == 0
    assert last_line(capsys) == "total: 2 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(
    ("code", "failed"), [(FAILS, 1), (EMPTY, 1), (CRASHES, 1)], ids=["a test", "none", "a crash"]
)
def test_every_kind_of_failure_has_status_1(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], code: str, failed: int
) -> None:
    assert run(lot(code, "bad"), lot(PASSES, "good")) == 1
    assert last_line(capsys) == f"total: 1 passed, {failed} failed, 0 skipped"


@pytest.mark.slow
def test_a_broken_contract_ends_the_run_with_all_that_others_depend_on(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = [lot(FAILS, "contract", first=True), check(2), lot(PASSES, "sql")]
    assert run(*tasks) == 1
    printed = capsys.readouterr().out
    assert "E  it is wrong" in printed
    assert "not run: .venv sql" in printed
    assert "--keep-going runs it" in printed
    assert printed.splitlines()[-1] == "total: 0 passed, 2 failed, 0 skipped"
    assert run(*tasks, keep_going=True) == 1
    assert last_line(capsys) == "total: 1 passed, 2 failed, 0 skipped"


@pytest.mark.slow
def test_chosen_tests_may_be_in_one_environment_only_but_not_in_none(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    empty = lot(EMPTY, "chosen", may_be_empty=True)
    assert run(empty, lot(PASSES, "chosen", may_be_empty=True)) == 0
    assert run(empty) == 1
    assert "no test was chosen" in capsys.readouterr().out


@pytest.mark.slow
def test_what_has_failed_can_be_run_again(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    whole = lot(FAILS, "without events", whole=True)
    assert run(check(1), lot(FAILS, "sql"), lot(CRASHES, "mongo"), whole, keep_going=True) == 1
    assert "to run again what failed: python3 tools/dev.py test --failed" in capsys.readouterr().out
    written = json.loads((tmp_path / "logs" / "failures.json").read_text())
    assert written["tests"] == {".venv": ["b"]}
    development, lowest = command.environments.development(), command.environments.lowest()
    plan = command._plan_of_failures(Options(failed=True), development, lowest)
    names = [task.name for task in plan.tasks]
    assert names == ["mypy", "what failed", "mongo", "without events"]
    assert plan.tasks[-1].command == whole.command
    assert plan.turn == 1135
    (file,) = (word for word in plan.tasks[1].words if word.startswith("@"))
    assert Path(file[1:]).read_text() == "b\n"


def test_there_is_nothing_to_run_again_before_something_has_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command.test(Options(failed=True)) == 1
    assert "nothing to run" in capsys.readouterr().err


def planned(**options: Any) -> command.Plan:
    return command._plan(
        Options(**options), command.environments.development(), command.environments.lowest()
    )


def test_the_options_choose_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "turn", lambda: 1135)
    monkeypatch.setattr(history, "changed", set)
    monkeypatch.setattr(history, "changed_last", lambda: {"docs/index.md"})
    usual = planned()
    assert usual.about == "turn 1135 (to repeat it: --turn 1135)"
    names = [task.name for task in usual.tasks if task.first]
    assert names[:3] == ["contract on SQLite", "unit", "pyright"]
    assert all("1135" in task.words for task in usual.tasks if task.tests)
    assert any(task.words[-2:] == ("--page", "docs/index.md") for task in usual.tasks)
    assert planned(turn=3).turn == 3
    every = planned(everything=True, checks=False)
    assert not any("--turn" in task.words for task in every.tasks)
    rest = [task.name for task in every.tasks if task.whole]
    assert rest == [f"without {extension}" for extension in EXTENSIONS]
    few = planned(words=("tests/sql", "-x"), checks=False)
    assert [task.words for task in few.tasks] == [("tests/sql", "-x")] * 2
    short = planned(quick=True)
    assert {task.environment for task in short.tasks} == {".venv"}
    assert not any(task.servers for task in short.tasks)


def test_all_pages_run_where_nobody_knows_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "changed", lambda: None)
    choice = lots.Choice(7)
    assert command._choice_of_pages(choice) == lots.Choice(7, all_pages=True)
    monkeypatch.setattr(history, "changed", set)
    monkeypatch.setattr(history, "changed_last", lambda: {"ttl_odm/core/expiry.py"})
    assert command._choice_of_pages(choice) == choice
    monkeypatch.setattr(history, "changed", lambda: {"README.md"})
    assert command._choice_of_pages(choice) == lots.Choice(7, pages=("README.md",))
    monkeypatch.setattr(history, "changed_last", lambda: {"ttl_odm/cli/sweep.py"})
    assert command._choice_of_pages(choice) == lots.Choice(7, all_pages=True)


@pytest.mark.parametrize(
    ("cores", "memory", "expected"),
    [(2, 24 * GIB, 3), (2, 7 * GIB, 2), (1, 2 * GIB, 1), (1, 16 * GIB, 2), (64, 512 * GIB, 5)],
)
def test_there_are_as_many_slots_as_cores_and_memory_allow(
    cores: int, memory: int, expected: int
) -> None:
    assert slots_for(cores, memory) == expected


@pytest.mark.slow
def test_an_interruption_says_what_has_failed_so_far(
    run: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = command.report.Screen.hear

    def hear(screen: Any, event: slots.Event | None) -> None:
        real(screen, event)
        if any(each.began.follower.record.failures for each in screen._running.values()):
            raise KeyboardInterrupt

    monkeypatch.setattr(command.report.Screen, "hear", hear)
    waits = FAILS.replace("sys.exit(1)", f"{HEEDS_INTERRUPTS}; import time; time.sleep(600)")
    with pytest.raises(KeyboardInterrupt):
        run(lot(waits, "sql"), lot(PASSES, "mongo"))
    printed = capsys.readouterr().out
    assert "interrupted: 0 of 2 done" in printed
    assert "FAILED b   [.venv]" in printed
