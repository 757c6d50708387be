"""promtool, as the tests of what Prometheus reads need it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.browsers import program
from tests.guard import GUARD

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def checked() -> Callable[..., str]:
    """Runs promtool with some words, and returns what it says; it has to be content."""
    promtool = program("PROMTOOL")

    def run(*words: str) -> str:
        finished = subprocess.run(
            [promtool, *words], capture_output=True, text=True, check=False, timeout=GUARD
        )
        said = finished.stdout + finished.stderr
        assert finished.returncode == 0, said
        return said

    return run
