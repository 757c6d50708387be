"""What people read of a run, and the last line, which machines read."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from suite import report
from suite.lots import Task
from suite.records import Follower, Record
from suite.slots import CANCELLED, Began, Ended, Result
from terminal import say

if TYPE_CHECKING:
    from pathlib import Path

PRINTED = """\
..F.                                                                     [100%]
=================================== FAILURES ===================================
_________________________________ test_a _______________________________________
E   assert 1 == 2
=========================== short test summary info ============================
FAILED tests/sql/test_a.py::test_a - assert 1 == 2
1 failed, 3 passed in 1.20s
"""
LOT = Task(".venv", "sql", (), 100)
CHECK = Task(".venv", "mypy", (), 50, tests=False)


def record(passed: int, *failures: str, **attributes: Any) -> Record:
    outcomes = Counter(passed=passed, failed=len(failures), skipped=2)
    made = Record(passed + len(failures) + 2, outcomes, [*failures])
    made.skips = Counter({"Skipped: there is no MySQL": 2})
    made.status = int(bool(failures))
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "1.log"
    path.write_text(PRINTED)
    return path


@pytest.fixture
def passed(log: Path) -> Result:
    return Result(LOT, 0, 245, log, record(3_000))


@pytest.fixture
def failed(log: Path) -> Result:
    return Result(LOT, 1, 61, log, record(3, "tests/sql/test_a.py::test_a"))


@pytest.fixture
def crashed(log: Path) -> Result:
    told = record(3, "tests/sql/test_a.py::test_a", status=None, running="tests/b.py::test_b")
    return Result(LOT, 139, 61, log, told)


def test_a_line_says_how_a_task_has_ended(passed: Result, failed: Result, crashed: Result) -> None:
    assert report.line(passed) == "ok       .venv sql: 3,002 tests in 4:05"
    assert report.line(failed) == "FAILED   .venv sql: 1 of 6 tests failed in 1:01"
    both = "FAILED   .venv sql: 1 of 6 tests failed and it broke off in 1:01"
    assert report.line(crashed) == both
    assert report.line(Result(CHECK, 1, 5, passed.log)) == "FAILED   .venv mypy: failed in 0:05"
    assert report.line(Result(CHECK, 0, 5, passed.log)) == "ok       .venv mypy in 0:05"
    ended = Result(LOT, 130, 5, passed.log, troubles=(CANCELLED,))
    assert report.line(ended) == "ended    .venv sql before its time"


def test_of_failed_tests_the_tracebacks_are_shown(failed: Result) -> None:
    shown = report.details(failed)
    assert shown[0] == "== .venv sql"
    assert "E   assert 1 == 2" in shown
    assert shown[-1] == "FAILED tests/sql/test_a.py::test_a"
    assert not [text for text in shown if "[100%]" in text or "passed" in text]


def test_of_a_crash_everything_is_shown_that_was_printed_last(crashed: Result) -> None:
    shown = report.details(crashed)
    assert {*PRINTED.splitlines()} <= {*shown}
    assert shown[-1] == "it was running tests/b.py::test_b"


def test_very_long_output_is_cut_in_its_middle(failed: Result) -> None:
    failed.log.write_text(PRINTED.replace("E   assert 1 == 2", "E   1\n" * 10_000))
    shown = report.details(failed)
    assert len(shown) < 500
    assert any("lines: see the log" in text for text in shown)


def test_the_summary_counts_by_environment_and_says_what_was_left_out(
    passed: Result, failed: Result
) -> None:
    passed.record.left_out["on another database or driver"] = 20_000
    other = Task(".venv-lowest", "sql", (), 50)
    lowest = Result(other, 0, 30, passed.log, record(7))
    check = Result(CHECK, 1, 600, passed.log)
    lines = report.summary([passed, failed, lowest, check], [LOT], ["MySQL was NOT TESTED"])
    text = "\n".join(lines)
    assert ".venv: 3,008 tests, 1 failure, 4 skipped, 20,000 left out" in lines
    assert ".venv-lowest: 9 tests, 0 failures, 2 skipped, 0 left out" in lines
    assert "    left out, on another database or driver: 20,000" in lines
    assert "    skipped, there is no MySQL: 4" in lines
    assert "mypy failed" in lines
    assert "not run: .venv sql" in lines
    assert "MySQL was NOT TESTED" in lines
    assert "slowest: .venv mypy 10:00; .venv sql 4:05; .venv sql 1:01" in text


def test_the_last_line_is_for_machines_and_no_other_is_like_it(
    passed: Result, failed: Result, crashed: Result
) -> None:
    check = Result(CHECK, 1, 5, passed.log)
    results = [passed, failed, crashed, check]
    assert report.closing_line(results) == "total: 3006 passed, 4 failed, 6 skipped"
    others = [*report.summary(results, [], []), *map(report.line, results)]
    others += [text for result in (passed, failed) for text in report.details(result)]
    assert not [text for text in others if re.match(r"(\w+: )?\d+ (passed|failed)", text)]


def test_a_cancelled_task_counts_for_nothing(passed: Result) -> None:
    ended = Result(LOT, 130, 5, passed.log, troubles=(CANCELLED,))
    assert report.closing_line([ended]) == "total: 0 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(
    ("waiting", "running", "seconds"),
    [
        ((), (), 0),
        ((), (0.5,), 50),
        ((100.0,), (0.5,), 100),
        ((100.0, 100.0), (0.5, 0.25), 175),
        ((10.0, 100.0, 10.0), (0.9, 0.9), 110),
    ],
)
def test_the_time_left_is_that_of_the_slot_with_most_to_do(
    waiting: tuple[float, ...], running: tuple[float, ...], seconds: float
) -> None:
    tasks = [Task(".venv", "a", (), each) for each in waiting]
    assert report.remaining(tasks, [(LOT, part) for part in running], 2) == pytest.approx(seconds)


def test_a_log_of_a_ci_gets_plain_lines(
    failed: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = report.Screen([LOT, CHECK], 2, terminal=False)
    screen.hear(Began(1, LOT, Follower(tmp_path / "record")))
    with screen.speaking():
        say("servers: downloading")
    screen.hear(None)
    screen.hear(Ended(1, failed))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["begins   .venv sql", "servers: downloading"]
    assert lines[2] == "FAILED   .venv sql: 1 of 6 tests failed in 1:01   [1/2]"
    assert lines[3] == "== .venv sql"
    assert not any("\x1b" in text for text in lines)


def test_on_a_terminal_the_lines_of_what_runs_change(
    passed: Result, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "record"
    follower = Follower(file)
    screen = report.Screen([LOT, CHECK], 2, terminal=True)
    screen.hear(Began(1, LOT, follower))
    file.write_text('{"tests": 4, "left_out": {}}\n{"ended": "a", "outcome": "failed"}\n{"en')
    assert follower.read()
    screen.hear(Began(2, CHECK, Follower(tmp_path / "none")))
    shown = capsys.readouterr().out
    assert "  .venv sql collects\n" in shown
    last = shown.rpartition("\x1b[2K")[2].splitlines()
    assert last[:2] == ["  .venv sql 25%, 1 failure", "  .venv mypy 0:00"]
    assert last[2].startswith("  0 of 2 done, ")
    with file.open("a") as more:
        more.write('ded": "b", "outcome": "passed"}\n')
    assert follower.read()
    follower.close()
    assert follower.record.part == 0.5
    screen.hear(Ended(1, passed))
    shown = capsys.readouterr().out
    assert "ok       .venv sql: 3,002 tests in 4:05   [1/2]\n" in shown
    assert shown.startswith("\x1b[1A\x1b[2K" * 3)


def test_logs_of_failures_are_kept(failed: Result, passed: Result, tmp_path: Path) -> None:
    (kept,) = report.keep_logs([passed, failed], tmp_path / "logs")
    assert kept.name == "venv-sql.log"
    assert kept.read_text() == PRINTED


def test_the_log_of_a_part_of_a_lot_is_kept_in_the_same_folder(
    failed: Result, tmp_path: Path
) -> None:
    part = replace(failed, task=replace(failed.task, name=f"{failed.task.name} 1/3"))
    (kept,) = report.keep_logs([part], tmp_path)
    assert kept == tmp_path / "venv-sql-1-3.log"
