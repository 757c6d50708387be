"""promtool, as the tests of what Prometheus reads need it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.guard import GUARD

if TYPE_CHECKING:
    from collections.abc import Callable

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="session")
def checked() -> Callable[..., str]:
    """Runs promtool with some words, and returns what it says; it has to be content."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(TOOLS)
        from programs import PROMTOOL, NoProgramError
    if PROMTOOL.is_left_out():
        pytest.skip(f"{PROMTOOL.option}=none leaves out what promtool checks")
    try:
        program = PROMTOOL.path()
    except NoProgramError as error:
        pytest.fail(str(error))

    def run(*words: str) -> str:
        finished = subprocess.run(
            [program, *words], capture_output=True, text=True, check=False, timeout=GUARD
        )
        said = finished.stdout + finished.stderr
        assert finished.returncode == 0, said
        return said

    return run
