"""promtool, as the tests of what Prometheus reads need it."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.guard import GUARD
from tools.promtool import NoPromtoolError, promtool

if TYPE_CHECKING:
    from collections.abc import Callable

OPTION = "TTL_ODM_TEST_PROMTOOL"


@pytest.fixture(scope="session")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs promtool with some words, and returns what it says; it has to be content."""
    if os.environ.get(OPTION) == "none":
        pytest.skip(f"{OPTION}=none leaves out what promtool checks")
    try:
        program = promtool(tmp_path_factory.mktemp("promtool"))
    except NoPromtoolError as error:
        pytest.fail(f"{error} Or leave these tests out: {OPTION}=none")

    def run(*words: str) -> str:
        finished = subprocess.run(
            [program, *words], capture_output=True, text=True, check=False, timeout=GUARD
        )
        said = finished.stdout + finished.stderr
        assert finished.returncode == 0, said
        return said

    return run
