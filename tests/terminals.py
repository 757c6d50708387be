"""Programs at a terminal: in a pseudo-terminal of their own, with somebody who answers."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from typing import TYPE_CHECKING

from tests.guard import GUARD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

END_OF_INPUT = "\x04"
"""What Ctrl-D types."""


def at_a_terminal(
    command: Sequence[str],
    environment: dict[str, str],
    prompt: str,
    answer: Callable[[str], str],
) -> tuple[int, str]:
    """Run a command at a terminal, and answer its question, if it comes.

    Args:
        command: The command line.
        environment: The whole environment.
        prompt: How the screen ends when the question is there, as a pattern.
        answer: Returns what is typed then, given what the screen shows. The terminal keeps it
            until the program reads a line, so nothing depends on when it does.

    Returns:
        The exit status, and what the screen showed.
    """
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    screen, is_answered = b"", False
    try:
        for chunk in iter(lambda: _read(ours), b""):
            screen += chunk
            shown = screen.decode(errors="replace")
            if not is_answered and re.search(f"{prompt}$", shown):
                os.write(ours, answer(shown).encode())
                is_answered = True
        status = process.wait(GUARD)
    finally:
        process.kill()
        process.wait(GUARD)
        os.close(ours)
    return status, screen.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux says so when the other end is closed
        return b""
