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
import time
from pathlib import Path
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

import pytest

from mutation.mutants import ROOT, Mutant
from mutation.recording import Recording, load, recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PATIENCE: Final = 30.0
"""How long a child may run on after its time is up, besides ten times its slowest test: seconds."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `mutation.__main__` passes."""
    parser.addoption("--mutants", type=Path)
    parser.addoption("--recording", type=Path)
    parser.addoption("--verdicts", type=Path)
    parser.addoption("--seconds", type=float)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Record if need be, and try all mutants."""
    gc.unfreeze()  # get_objects() shows nothing that is frozen
    option: Any = session.config.getoption
    file: Path = option("--recording")
    if not file.exists():
        _in_child(lambda send: _record(session, file, send), timeout=None)
    server = _Server(session, load(file), option("--seconds"))
    mutants = json.loads(option("--mutants").read_text())
    with option("--verdicts").open("a") as verdicts:
        for number, mutant in mutants.items():
            verdict = server.verdict(Mutant(**mutant))
            verdicts.write(json.dumps({"number": number, **verdict}) + "\n")
            verdicts.flush()
    return True


class _Server:
    """Tries mutants with the tests of one collected session."""

    def __init__(self, session: pytest.Session, recording: Recording, seconds: float) -> None:
        self._session, self._recording, self._seconds = session, recording, seconds
        self._items = {item.nodeid: item for item in session.items}
        known = set(recording.tests)
        self._new = [name for name in self._items if name not in known]
        self._usual = dict(zip(recording.tests, recording.seconds, strict=True))
        self._right: dict[str, bool] = {}  # whether a test passes without a mutant

    def verdict(self, mutant: Mutant) -> dict[str, Any]:
        """Run tests that execute the change until one fails, or time is up."""
        running = self._recording.running(mutant.path, mutant.line)
        names = [*self._new, *(name for name in running if name in self._items)]
        if not running:
            return {"verdict": "not executed"}
        began = time.monotonic()
        left = names
        while True:
            answer = self._try(mutant, left, self._seconds - (time.monotonic() - began))
            # A test that fails without the mutant too shows nothing.
            by = answer.get("by")  # empty where the child hung or crashed
            if not by or self._is_right(by):
                break
            left = left[left.index(by) + 1 :]
        took = round(time.monotonic() - began, 1)
        return {**answer, "tests": len(names), "seconds": took}

    def _try(self, mutant: Mutant | None, names: list[str], seconds: float) -> dict[str, Any]:
        items = [self._items[name] for name in names]
        # The child ends by itself after the test during which its time is up.
        slowest = max((self._usual.get(name, 0.0) for name in names), default=0.0)
        return _in_child(
            lambda send: _run(self._session, items, mutant, seconds, send),
            timeout=max(seconds, 0) + _PATIENCE + 10 * slowest,
        )

    def _is_right(self, name: str) -> bool:
        if name not in self._right:
            self._right[name] = self._try(None, [name], _PATIENCE)["verdict"] == "survived"
        return self._right[name]


def _in_child(
    work: Callable[[Callable[[dict[str, Any]], None]], None], timeout: float | None
) -> dict[str, Any]:
    """Fork, let the child work, and return what it sent last."""
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
    with os.fdopen(reading) as answers:
        lines: list[str] = []
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([answers], [], [], left)[0]:
                os.killpg(child, signal.SIGKILL)
                lines = [json.dumps({"verdict": "caught", "by": "", "how": "timeout"})]
                break
            if not (line := answers.readline()):
                break
            lines.append(line)
    os.waitpid(child, 0)
    crashed = {"verdict": "caught", "by": "", "how": "crash"}
    return dict(json.loads(lines[-1])) if lines else crashed


def _send(pipe: int, answer: dict[str, Any]) -> None:
    os.write(pipe, (json.dumps(answer) + "\n").encode())


def _run(
    session: pytest.Session,
    items: list[pytest.Item],
    mutant: Mutant | None,
    seconds: float,
    send: Callable[[dict[str, Any]], None],
) -> None:
    """Patch, and run tests until one fails."""
    if mutant is not None and not _patch(mutant):
        send({"verdict": "can't be patched"})
        return
    ended, done = time.monotonic() + seconds, 0
    for done, (item, following) in enumerate(_with_next(items), 1):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            send({"verdict": "caught", "by": item.nodeid, "done": done})
            break
        if time.monotonic() > ended:
            send({"verdict": "survived", "done": done})
            break
    else:
        send({"verdict": "survived", "done": done})
    with contextlib.suppress(BaseException):
        session._setupstate.teardown_exact(None)  # noqa: SLF001 - no public name


def _with_next(items: list[pytest.Item]) -> Iterable[tuple[pytest.Item, pytest.Item | None]]:
    return zip(items, [*items[1:], None], strict=True)


def _record(session: pytest.Session, file: Path, send: Callable[[dict[str, Any]], None]) -> None:
    """Run all tests, and note which lines each of them runs."""
    recording, lines = Recording(), recorded()
    next(lines)
    failed = 0
    for item, following in _with_next(session.items):
        began = time.monotonic()
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        ran = next(lines)
        if session.testsfailed == failed:
            recording.add(item.nodeid, time.monotonic() - began, ran)
        failed = session.testsfailed
    recording.save(file)
    send({"verdict": "recorded"})


def _patch(mutant: Mutant) -> bool:
    """Give the functions of this process the mutant's code."""
    path = str(ROOT / mutant.path)
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
