"""`dev.py mutate --adapters`: which mutants count as caught, and what an interrupted run keeps."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import select
import signal
from itertools import repeat
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import ttl_odm
from mutation import mutants, recording, report, server
from mutation.equivalent import EQUIVALENT
from mutation.known import KNOWN
from mutation.mutants import Mutant
from mutation.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

DOOR = """\
def is_open(hour):
    return 8 < hour < 20
"""
SIGN = """\
def sign(hour):
    return (
        "open from eight "
        "to eight"
        if is_open(hour)
        else
        "closed"
    )
"""
NEVER, ALWAYS = "return False", "return True"


class Session:
    """What the server needs of pytest's session; a test is a function here."""

    def __init__(self, tests: Mapping[str, Callable[[], None]], later: set[str]) -> None:
        self.items = [SimpleNamespace(nodeid=name, run=run) for name, run in tests.items()]
        self.config = SimpleNamespace(hook=self, stash={server._LATER: later})
        self._setupstate = SimpleNamespace(teardown_exact=lambda _: None)
        self.testsfailed = 0

    def pytest_runtest_protocol(self, item: Any, **_: Any) -> None:
        try:
            item.run()
        except AssertionError:
            self.testsfailed += 1


class World:
    """A library of one function, and tests of it."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "ttl_odm" / "door.py"
        self.file.parent.mkdir()
        self.file.write_text(DOOR)
        spec: Any = importlib.util.spec_from_file_location("door", self.file)
        self.door: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.door)
        self.tests: dict[str, Callable[[], None]] = {}
        self.later: set[str] = set()
        self._hangs = folder / "hangs"
        self.door.hang = self.hang

    def add(self, name: str, test: Callable[[], None], *, in_turn: bool = True) -> None:
        self.tests[name] = test
        if not in_turn:
            self.later.add(name)

    def verdict(self, change: str, *, seconds: float = 60, turn_only: bool = False) -> Any:
        recorded = Recording()
        for number, name in enumerate(self.tests):
            recorded.add(name, number / 1e6, {(str(self.file), 2)})
        source = DOOR.replace("return 8 < hour < 20", change)
        mutant = Mutant("ttl_odm/door.py", 2, 1, change, source)
        session: Any = Session(self.tests, self.later)
        return server.Server(session, recorded, seconds).verdict(mutant, turn_only=turn_only)

    def hang(self) -> None:
        """Do nothing until the process is killed."""
        self._hangs.mkdir()
        while True:
            signal.pause()

    def heard(self, reading: list[Any], *_: Any) -> Any:
        """What `select()` returns: nothing only once a process has said that it hangs."""
        while not (ready := select.select(reading, [], [], 0.05))[0]:
            if self._hangs.exists():
                self._hangs.rmdir()
                break
        return ready

    def opens_at(self, hour: int) -> Callable[[], None]:
        def test() -> None:
            assert self.door.is_open(hour)

        return test


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    for module in (server, recording):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    made = World(tmp_path)
    monkeypatch.setattr(server, "select", SimpleNamespace(select=made.heard))
    return made


@pytest.mark.slow
def test_a_mutant_is_caught_by_a_test_that_fails_with_it_only(world: World) -> None:
    world.add("always fails", world.opens_at(3))
    world.add("at noon", world.opens_at(12))
    verdict = world.verdict(NEVER)
    assert (verdict["verdict"], verdict["by"]) == ("caught", "at noon")


def test_a_test_that_fails_anyway_catches_nothing(world: World) -> None:
    world.add("always fails", world.opens_at(3))
    assert world.verdict(NEVER)["verdict"] == "survived"


def test_a_test_that_does_not_fail_again_catches_nothing(world: World, tmp_path: Path) -> None:
    def fails_at_first() -> None:
        (tmp_path / "was here").mkdir()  # the children are processes

    def fails_once() -> None:
        try:
            fails_at_first()
        except FileExistsError:
            return
        assert not (world.door.is_open(3))

    world.add("fails once", fails_once)
    assert world.verdict(ALWAYS)["verdict"] == "survived"


def test_a_mutant_that_no_test_notices_survives(world: World) -> None:
    world.add("at noon", world.opens_at(12))
    verdict = world.verdict(ALWAYS)
    assert (verdict["verdict"], verdict["done"], verdict["tests"]) == ("survived", 1, 1)


def test_a_module_that_nobody_has_imported_yet_is_changed_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def imports_at_last() -> None:
        assert importlib.import_module("ttl_odm.door").is_open(12)

    monkeypatch.setattr(ttl_odm, "__path__", [*ttl_odm.__path__, str(world.file.parent)])
    world.door = None
    world.add("imports at last", imports_at_last)
    assert world.verdict(NEVER)["verdict"] == "caught"


@pytest.mark.slow
def test_a_mutant_that_hangs_is_caught_if_it_hangs_again(world: World) -> None:
    world.add("at noon", world.opens_at(12))
    verdict = world.verdict("hang()")
    assert (verdict["verdict"], verdict["by"]) == ("caught", "at noon")


def test_a_mutant_that_ends_the_process_is_caught_if_it_does_so_again(world: World) -> None:
    world.add("at noon", world.opens_at(12))
    world.door.os = os
    verdict = world.verdict("os._exit(1)")
    assert (verdict["verdict"], verdict["by"]) == ("caught", "at noon")


@pytest.mark.slow
def test_a_hang_that_does_not_return_is_no_catch_but_a_timeout(
    world: World, tmp_path: Path
) -> None:
    def hangs_once() -> None:
        try:
            (tmp_path / "was here").mkdir()
        except FileExistsError:
            return
        world.hang()

    world.add("hangs once", hangs_once)
    world.add("at noon", world.opens_at(12))
    assert world.verdict(ALWAYS)["verdict"] == "timed out"


def test_a_mutant_whose_time_is_up_before_all_tests_ran_has_not_survived(world: World) -> None:
    world.add("at noon", world.opens_at(12))
    assert world.verdict(ALWAYS, seconds=-1)["verdict"] == "timed out"


def test_the_tests_of_the_turn_come_first(world: World) -> None:
    world.add("at noon", world.opens_at(12), in_turn=False)
    world.add("at nine", world.opens_at(9))
    verdict = world.verdict(NEVER)
    assert (verdict["by"], verdict["turn"]) == ("at nine", True)


def test_a_test_of_another_turn_is_told_apart(world: World) -> None:
    world.add("at noon", world.opens_at(12), in_turn=False)
    verdict = world.verdict(NEVER)
    assert (verdict["verdict"], verdict["turn"]) == ("caught", False)
    assert world.verdict(NEVER, turn_only=True) == {"verdict": "not executed"}


@pytest.mark.parametrize(("line", "traced"), [(2, 2), (3, 3), (4, 3), (7, 7)])
def test_a_string_in_several_lines_is_traced_by_its_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: int, traced: int
) -> None:
    monkeypatch.setattr(server, "ROOT", tmp_path)
    (tmp_path / "door.py").write_text(SIGN)
    assert server._traced_line(Mutant("door.py", line, 1, "a change", "")) == traced


def test_a_recording_continues_where_it_was_interrupted(tmp_path: Path) -> None:
    file = tmp_path / "sqlite.pickle"
    for name, line in (("a", 1), ("b", 2)):
        recorded = recording.load(file)
        recorded.add(name, 0.1, {(str(mutants.ROOT / "ttl_odm/door.py"), line)})
        recorded.save(file)
    recorded = recording.load(file)
    assert recorded.tests == ["a", "b"]
    assert recorded.running("ttl_odm/door.py", 2) == ["b"]


def test_a_recording_that_lacks_no_test_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "lines_run", lambda: repeat(set()))
    session: Any = Session({}, set())
    said: list[dict[str, Any]] = []
    server._record(session, tmp_path / "sqlite.pickle", said.append)
    assert said == [{"verdict": "recorded"}]


def test_only_mutants_that_a_group_can_say_more_of_are_left_to_it() -> None:
    def is_left(*, again: bool = False, **answers: dict[str, object]) -> bool:
        return report.is_left(answers, "sqlite", again=again)

    in_turn, elsewhere = ({"verdict": "caught", "turn": turn} for turn in (True, False))
    assert is_left()
    assert not is_left(sqlite={"verdict": "survived"})
    assert is_left(sqlite={"verdict": "survived"}, again=True)
    assert not is_left(mongodb=in_turn)
    assert is_left(mongodb=elsewhere)
    assert not is_left(sqlite=elsewhere, again=True)


def test_verdicts_are_read_from_the_file_of_a_run_that_was_interrupted(tmp_path: Path) -> None:
    file = tmp_path / "sqlite-turn0.jsonl"
    answers: list[dict[str, object]] = [
        {"verdict": "timed out", "tests": 9},
        {"verdict": "survived", "tests": 9},
        {"verdict": "not executed"},  # with the tests of some folders only
    ]
    file.write_text("".join(json.dumps({"mutant": "m", **each}) + "\n" for each in answers))
    verdicts: report.Verdicts = {}
    report.read(file, "sqlite", verdicts)
    report.read(tmp_path / "mysql-turn0.jsonl", "mysql", verdicts)
    assert verdicts == {"m": {"sqlite": {"verdict": "survived", "tests": 9}}}


def test_the_table_counts_by_package_and_leaves_equivalent_mutants_out_of_the_shares() -> None:
    answers: dict[str, report.Answers] = {
        "a": {"sqlite": {"verdict": "caught", "turn": True, "by": "test_a"}},
        "b": {
            "sqlite": {"verdict": "survived"},
            "mysql": {"verdict": "caught", "turn": False, "by": "test_b"},
        },
        "c": {"sqlite": {"verdict": "survived"}, "mysql": {"verdict": "not executed"}},
        "d": {"sqlite": {"verdict": "timed out"}, "mysql": {"verdict": "survived"}},
        "e": {"sqlite": {"verdict": "survived"}, "mysql": {"verdict": "survived"}},
        "f": {"sqlite": {"verdict": "survived"}},
    }
    made = {
        name: Mutant(f"ttl_odm/{'beanie' if name == 'a' else 'django'}/x.py", 1, 1, name, name)
        for name in answers
    }
    verdicts = {made[name].key: answer for name, answer in answers.items()}
    outcomes = {
        made[name].key: report.outcome(answer, ("sqlite", "mysql"), equivalent=name in "ac")
        for name, answer in answers.items()
    }
    assert report.table(made.values(), outcomes)[2:] == [
        "| beanie | 1 | 0 | 0 | 1 (100.0%) | 1 (100.0%) | 0 | 0 |",
        "| django | 4 | 1 | 0 | 0 (0.0%) | 1 (33.3%) | 1 | 1 |",
        "| all | 5 | 1 | 0 | 1 (25.0%) | 2 (50.0%) | 1 | 1 |",
    ]
    listed = report.lines(made.values(), verdicts, outcomes)
    assert listed[:2] == [
        "ttl_odm/beanie/x.py:1: a  [caught by one turn: test_a]",
        "ttl_odm/django/x.py:1: b  [caught by other turns only: test_b]",
    ]
    assert listed[-1] == "ttl_odm/django/x.py:1: f  [not judged yet]"


def test_a_mutant_says_which_lines_change_and_what_they_become() -> None:
    path = "ttl_odm/errors.py"
    lines = (mutants.ROOT / path).read_text().splitlines(keepends=True)
    source = "".join([*lines[:2], "new = (\n    1\n)\n", *lines[3:]])
    assert Mutant(path, 3, 1, "", source).texts() == (lines[2].strip(), "new = ( 1 )")


@pytest.mark.parametrize("change", KNOWN, ids=[f"{path}-{text}" for path, text, _ in KNOWN])
def test_mutants_made_by_hand_fit_the_library(change: tuple[str, str, str]) -> None:
    mutant = mutants.edited(*change)
    assert mutant.texts()[0] != mutant.texts()[1]


def test_equivalent_mutants_fit_the_library() -> None:
    for path, before, after in EQUIVALENT:
        text = " ".join((mutants.ROOT / path).read_text().split())
        assert before in text, path
        assert after != before
