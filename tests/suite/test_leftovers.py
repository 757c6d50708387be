"""What drivers leave to the garbage collector fails no run, also after its last test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.guard import GUARD

ROOT = Path(__file__).parents[2]
PLUGIN = """
import warnings

import pytest


def pytest_unconfigure(config):
    about = "Exception ignored in: <_io.BufferedRWPair object at 0x7f>"
    warnings.warn(pytest.PytestUnraisableExceptionWarning(about))
"""


def test_a_buffer_of_pg8000_may_be_collected_at_the_end_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "leaves_a_buffer.py").write_text(PLUGIN)
    run = [sys.executable, "-m", "pytest", "-p", "leaves_a_buffer", "-q", "tests/unit/test_pace.py"]
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    finished = subprocess.run(
        run,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=GUARD,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
