"""How the developers' commands talk, run other commands, and are interrupted."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOT_FOUND = 127
_PATIENCE_SECONDS = 10.0
_POLL_SECONDS = 0.2


_listeners: list[Callable[[str], None]] = []


def say(line: str) -> None:
    """Tell the developer what happens, in one line, in order with what other commands print."""
    if _listeners:
        _listeners[-1](line)
    else:
        print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Give what is said to a function, for a program that draws on the terminal."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def end_orderly_on_signals() -> None:
    """Turn SIGTERM and SIGHUP into SystemExit, so that every `finally` runs as on Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # As nohup wants it.
            signal.signal(number, _exit)


def split_at_dashes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line at its first `--` into our words and those that we pass on."""
    here = words.index("--") if "--" in words else len(words)
    return list(words[:here]), list(words[here + 1 :])


def _exit(number: int, _frame: object) -> NoReturn:
    sys.exit(128 + number)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore interruptions while cleaning up: an impatient second Ctrl-C would leave a mess.

    Python interrupts its main thread only, so the others need nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in INTERRUPTIONS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class Command:
    """What to run.

    Attributes:
        arguments: the program and its words.
        environment: what the program finds in its environment besides ours.
    """

    arguments: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        status: its exit status, 128 + n when signal n ended it, 127 when it is not there.
        seconds: how long it ran.
    """

    status: int
    seconds: float


def run(arguments: Sequence[str], extra_environment: Mapping[str, str] | None = None) -> int:
    """Run a command in the foreground, and end it cleanly when we are interrupted.

    Returns:
        Its exit status, see `Ended`.
    """
    return run_together([Command(arguments, extra_environment or {})])[0].status


def run_together(commands: Sequence[Command]) -> list[Ended]:
    """Run commands at the same time, and end all cleanly when we are interrupted.

    The first prints to the terminal as it goes on. What the others print follows once all have
    ended, each in one piece.
    """
    with contextlib.ExitStack() as kept:
        outputs = [None] + [kept.enter_context(tempfile.TemporaryFile()) for _ in commands[1:]]
        began = time.monotonic()
        processes: list[subprocess.Popen[bytes] | None] = []
        ended: dict[int, Ended] = {}
        try:
            for command, output in zip(commands, outputs, strict=True):
                processes.append(_started(command, output))
            while len(ended) < len(processes):
                for number, process in enumerate(processes):
                    status = NOT_FOUND if process is None else process.poll()
                    if status is not None and number not in ended:
                        status = 128 - status if status < 0 else status
                        ended[number] = Ended(status, time.monotonic() - began)
                _pause(processes)
        except BaseException as interruption:
            told = isinstance(interruption, KeyboardInterrupt) and _is_in_front()
            with undisturbed():
                for process in filter(None, processes):
                    _end(process, told=told)
            raise
        for output in filter(None, outputs):
            output.seek(0)
            sys.stdout.flush()
            shutil.copyfileobj(output, sys.stdout.buffer)
            sys.stdout.flush()
        return [ended[number] for number in range(len(commands))]


def _started(command: Command, output: IO[bytes] | None) -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(
            command.arguments,
            env={**os.environ, **command.environment},
            stdout=output,
            stderr=output and subprocess.STDOUT,
        )
    except OSError as error:
        say(f"cannot run {shlex.join(command.arguments)}: {error.strerror}")
        return None


def _pause(processes: Sequence[subprocess.Popen[bytes] | None]) -> None:
    """Wait a moment, or until the first of those that run has ended."""
    running = [process for process in processes if process is not None and process.poll() is None]
    if running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            running[0].wait(_POLL_SECONDS)


def _is_in_front() -> bool:
    """Tell whether a terminal's Ctrl-C goes to us, and so to the command as well."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    finally:
        os.close(terminal)


def _end(process: subprocess.Popen[bytes], *, told: bool) -> None:
    """Interrupt first: pytest then closes its fixtures, which it does not on SIGTERM."""
    for seconds, number in (
        (_PATIENCE_SECONDS if told else 0, signal.SIGINT),
        (_PATIENCE_SECONDS, signal.SIGTERM),
        (_PATIENCE_SECONDS, signal.SIGKILL),
    ):
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
    process.wait()
