"""How the developers' commands talk, run other commands, and are interrupted."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NOT_FOUND = 127
_PATIENCE_SECONDS = 10.0


def say(line: str) -> None:
    """Tell the developer what happens, in one line, in order with what other commands print."""
    print(line, file=sys.stderr, flush=True)


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
    """Ignore interruptions while cleaning up: an impatient second Ctrl-C would leave a mess."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in INTERRUPTIONS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run(arguments: Sequence[str], extra_environment: Mapping[str, str] | None = None) -> int:
    """Run a command in the foreground, and end it in an orderly way when we are interrupted.

    Returns:
        Its exit status, 128 + n when signal n ended it, 127 when it is not there.
    """
    try:
        process = subprocess.Popen(arguments, env={**os.environ, **(extra_environment or {})})
    except OSError as error:
        say(f"cannot run {shlex.join(arguments)}: {error.strerror}")
        return NOT_FOUND
    try:
        status = process.wait()
    except BaseException as interruption:
        told = isinstance(interruption, KeyboardInterrupt) and _is_in_front()
        with undisturbed():
            _end(process, told=told)
        raise
    return 128 - status if status < 0 else status


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
