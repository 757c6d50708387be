"""Running `ttl-odm` as a user does, in a process of its own."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from click import testing

from tests.guard import GUARD
from tests.terminals import at_a_terminal

if TYPE_CHECKING:
    from collections.abc import Iterable


class CliRunner(testing.CliRunner):
    """Click's own runner, with standard error by itself: before 8.2 that had to be asked for."""

    def __init__(self) -> None:
        before_8_2 = "mix_stderr" in inspect.signature(testing.CliRunner).parameters
        super().__init__(**({"mix_stderr": False} if before_8_2 else {}))


def complaints(finished: subprocess.CompletedProcess[str]) -> str:
    """Return what a command says on stderr, but for the lines of a sweep that takes long."""
    return re.sub(r"(?m)^.*: [\d,]+ rows, [\d,]+/s\n", "", finished.stderr)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a pipe."""
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
        env=variables(**environment),
    )


MAIN: Final = "from ttl_odm.cli import main; main()"
"""The command line, as a program."""


def run_without(
    modules: Iterable[str], program: str, *words: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a process in which importing some modules fails."""
    program = f"import sys; sys.modules.update(dict.fromkeys({[*modules]!r})); {program}"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
        env=variables(**environment),
    )


def on_a_terminal(words: list[str], reply: str = "", **environment: str) -> tuple[int, str]:
    """Run a command in a terminal; its status, and what the screen shows.

    Args:
        words: The command.
        reply: A line to answer its question with, if it asks one.
        environment: Further variables.
    """
    environment = variables(TERM="xterm", COLUMNS="100", **environment)
    return at_a_terminal(words, environment, r"\? \[y/N\]: ", lambda _: reply)


def command(*arguments: str) -> list[str]:
    """The command line itself."""
    return [sys.executable, "-m", "ttl_odm.cli", *arguments]


def variables(**environment: str) -> dict[str, str]:
    """The environment: nothing of the developer's own settings of ttl-odm."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("TTL_ODM_")}
    return {**own, **environment}


def as_json(finished: subprocess.CompletedProcess[str]) -> Any:
    """What a command with ``--json`` has printed."""
    assert finished.stdout, finished.stderr
    return json.loads(finished.stdout)
