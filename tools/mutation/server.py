"""A pytest plugin that runs no test itself: it forks for each mutant, and the child runs tests.

What a child changes in databases it takes back, as any test does; a child that hangs is killed.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import sys
import time
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

from mutation.mutants import ROOT, Mutant
from mutation.recording import Recording, lines_run, load
from terminal import say
from tests.turns import left_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_T = TypeVar("_T")

_PATIENCE: Final = 30.0
"""How long a child may be silent, besides ten times what its test usually takes: seconds."""
_SAVED_EVERY: Final = 60.0
"""How much of a recording may be lost if it is interrupted: seconds."""
_LATER: Final = pytest.StashKey[frozenset[str]]()
"""The tests that the turn leaves out."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `mutation.__main__` passes."""
    parser.addoption("--mutants", type=Path)
    parser.addoption("--recording", type=Path)
    parser.addoption("--verdicts", type=Path)
    parser.addoption("--seconds", type=float)
    parser.addoption("--in-turn", type=int)
    parser.addoption("--without-later", action="store_true")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note what the turn leaves out, before `--only` hides a test's other databases.

    A test without a database runs with SQLite's only.
    """
    option: Any = config.getoption
    conftest: Any = sys.modules["tests.conftest"]
    later = left_out([*map(conftest.variant_of, items)], option("--in-turn"))
    config.stash[_LATER] = frozenset(items[place].nodeid for place in later)
    if option("--without-later"):
        items[:] = [item for item in items if item.nodeid not in config.stash[_LATER]]
    if "sqlite" not in option("--only"):
        items[:] = [item for item in items if conftest.databases_of(item)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Record tests that are new, and try all mutants."""
    gc.unfreeze()  # get_objects() shows nothing that is frozen
    option: Any = session.config.getoption
    recorded = _in_child(lambda send: _record(session, option("--recording"), send), patient=False)
    if recorded["verdict"] != "recorded":
        say("the recording was interrupted: the next run continues it")
        pytest.exit(returncode=1)
    server = Server(session, load(option("--recording")), option("--seconds"))
    asked = json.loads(option("--mutants").read_text())
    with option("--verdicts").open("a") as verdicts:
        for number, (mutant, turn_only) in enumerate(asked, 1):
            made = Mutant(**mutant)
            verdict = server.verdict(made, turn_only=turn_only)
            verdicts.write(json.dumps({"mutant": made.key, **verdict}) + "\n")
            verdicts.flush()
            say(f"{number}/{len(asked)} {made.place}: {verdict['verdict']} {verdict.get('by', '')}")
    return True


class Server:
    """Tries mutants with the tests of one collected session."""

    def __init__(self, session: pytest.Session, recording: Recording, seconds: float) -> None:
        self._session, self._recording, self._seconds = session, recording, seconds
        self._items = {item.nodeid: item for item in session.items}
        self._usual = dict(zip(recording.tests, recording.seconds, strict=True))
        self._later = session.config.stash[_LATER]
        self._right: dict[str, bool] = {}  # whether a test passes without a mutant

    def verdict(self, mutant: Mutant, *, turn_only: bool = False) -> dict[str, Any]:
        """Run tests that execute the change until one fails, or time is up: the turn's first.

        A test that fails, hangs or crashes shows nothing unless it does so again by itself, and
        passes without the mutant.

        Args:
            mutant: The change.
            turn_only: Whether the other turns' tests have nothing more to say.
        """
        running = self._recording.running(mutant.path, _traced_line(mutant))
        here = [name for name in running if name in self._items]
        names = [name for name in here if name not in self._later]
        if not turn_only:
            names += [name for name in here if name in self._later]
        if not names:
            return {"verdict": "not executed"}
        began, left, has_hung = time.monotonic(), names, False
        while True:
            answer = self._try(mutant, left, self._seconds - (time.monotonic() - began))
            if answer["verdict"] not in _FAILURES:
                break
            by = answer["by"]
            if self._passes_without(by) and self._try(mutant, [by])["verdict"] in _FAILURES:
                answer |= {"verdict": "caught", "turn": by not in self._later}
                break
            has_hung |= answer["verdict"] != "failed"
            if not (left := left[left.index(by) + 1 :]):
                answer = {"verdict": "survived"}
                break
        if answer["verdict"] == "survived" and has_hung:
            answer["verdict"] = TIMED_OUT
        done = names.index(answer["by"]) + 1 if "by" in answer else len(names)
        took = round(time.monotonic() - began, 1)
        return {**answer, "done": done, "tests": len(names), "seconds": took}

    def _try(
        self, mutant: Mutant | None, names: list[str], seconds: float = _PATIENCE
    ) -> dict[str, Any]:
        tests = [(self._items[name], self._usual.get(name, 0.0)) for name in names]
        return _in_child(lambda send: _run(self._session, tests, mutant, seconds, send))

    def _passes_without(self, name: str) -> bool:
        if name not in self._right:
            self._right[name] = self._try(None, [name])["verdict"] == "survived"
        return self._right[name]


def _traced_line(mutant: Mutant) -> int:
    """Return the line by which Python reports that it executes the one that changes.

    A string in several lines is reported by its first.
    """
    path = ROOT / mutant.path
    lines = _lines(compile(path.read_text(), str(path), "exec", dont_inherit=True))
    return max((line for line in lines if line <= mutant.line), default=mutant.line)


def _lines(code: CodeType) -> set[int]:
    """Collect the lines of a code object, and of those in it."""
    own = {line for _, _, line in code.co_lines() if line is not None}
    return own.union(*map(_lines, _inner(code)))


TIMED_OUT: Final = "timed out"
UNPATCHED: Final = "can't be patched"
_FAILURES: Final = {"failed", "hung", "crashed"}


def _in_child(
    work: Callable[[Callable[[dict[str, Any]], None]], None], *, patient: bool = True
) -> dict[str, Any]:
    """Fork, let the child work, and return what it sent last.

    Args:
        work: What the child does. It gets a function that sends an answer.
        patient: Whether a child is killed that sends nothing for `_PATIENCE`, or the `patience`
            that it asked for last. Its verdict is then that it hung.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(reading)
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - as plain as can be in a child
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        with contextlib.suppress(BaseException):
            work(lambda answer: _send(writing, answer))
        os._exit(0)
    os.close(writing)
    answer: dict[str, Any] = {"verdict": UNPATCHED}
    # Unbuffered, as select() doesn't see what a buffer holds.
    with os.fdopen(reading, "rb", buffering=0) as answers:
        while True:
            patience = answer.pop("patience", _PATIENCE) if patient else None
            if not select.select([answers], [], [], patience)[0]:
                os.killpg(child, signal.SIGKILL)
                answer["verdict"] = "hung"
                break
            if not (line := answers.readline()):
                break
            answer = dict(json.loads(line))
    os.waitpid(child, 0)
    return answer


def _send(pipe: int, answer: dict[str, Any]) -> None:
    os.write(pipe, (json.dumps(answer) + "\n").encode())


def _run(
    session: pytest.Session,
    tests: list[tuple[pytest.Item, float]],
    mutant: Mutant | None,
    seconds: float,
    send: Callable[[dict[str, Any]], None],
) -> None:
    """Patch, and run tests until one fails."""
    if mutant is not None and not _patch(mutant):
        send({"verdict": UNPATCHED})
        return
    ended = time.monotonic() + seconds
    for (item, usual), following in _with_next(tests):
        if time.monotonic() > ended:
            send({"verdict": TIMED_OUT, "by": item.nodeid})
            break
        # This is the last word if the test ends the process.
        patience = _PATIENCE + 10 * usual
        send({"verdict": "crashed", "by": item.nodeid, "patience": patience})
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following and following[0])
        if session.testsfailed:
            send({"verdict": "failed", "by": item.nodeid})
            break
    else:
        send({"verdict": "survived"})
    with contextlib.suppress(BaseException):
        session._setupstate.teardown_exact(None)  # noqa: SLF001 - no public name


def _with_next(items: list[_T]) -> Iterable[tuple[_T, _T | None]]:
    return zip_longest(items, items[1:])


def _record(session: pytest.Session, file: Path, send: Callable[[dict[str, Any]], None]) -> None:
    """Run the tests that the recording lacks, and note which lines each of them runs."""
    recording, lines = load(file), lines_run()
    known = set(recording.tests)
    next(lines)
    failed, saved = 0, time.monotonic()
    for item, following in _with_next([item for item in session.items if item.nodeid not in known]):
        began = time.monotonic()
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        ran = next(lines)
        if session.testsfailed == failed:  # the others are run again by the next recording
            recording.add(item.nodeid, time.monotonic() - began, ran)
        failed = session.testsfailed
        if time.monotonic() - saved > _SAVED_EVERY:
            recording.save(file)
            saved = time.monotonic()
    recording.save(file)
    send({"verdict": "recorded"})


def _patch(mutant: Mutant) -> bool:
    """Give the functions of this process the mutant's code."""
    path = str(ROOT / mutant.path)
    with contextlib.suppress(Exception):  # tests import some modules only when they need them
        import_module(mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    old, new = (
        _function(compile(source, path, "exec", dont_inherit=True), mutant.function)
        for source in ((ROOT / mutant.path).read_text(), mutant.source)
    )
    if old is None or new is None:
        return False
    pairs = dict(_pairs(old, new))
    patched = False
    for function in _functions(path):
        place = (function.__code__.co_name, function.__code__.co_firstlineno)
        if place in pairs:
            try:
                function.__code__ = pairs[place]
            except ValueError:  # it has other free variables
                return False
            patched = True
    return patched


def _functions(path: str) -> Iterable[FunctionType]:
    return [
        thing
        for thing in gc.get_objects()
        if type(thing) is FunctionType and thing.__code__.co_filename == path
    ]


def _function(code: CodeType, line: int) -> CodeType | None:
    """Find the outermost function that begins on a line, at any depth of classes."""
    for inner in _inner(code):
        if inner.co_firstlineno == line and inner.co_flags & _OPTIMIZED:
            return inner
        if not inner.co_flags & _OPTIMIZED and (found := _function(inner, line)) is not None:
            return found
    return None


_OPTIMIZED: Final = 1
"""The flag of a function's code, which a class's doesn't have."""


def _inner(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _pairs(old: CodeType, new: CodeType) -> Iterable[tuple[tuple[str, int], CodeType]]:
    """Pair a function, and the functions in it, with their new code."""
    yield (old.co_name, old.co_firstlineno), new
    for mine, yours in zip(_inner(old), _inner(new), strict=False):
        if mine.co_name == yours.co_name:
            yield from _pairs(mine, yours)
