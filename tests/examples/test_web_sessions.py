"""The example of web sessions does what it says, on every database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.guard import GUARD

if TYPE_CHECKING:
    from tests.backends import Backend

EXAMPLE = Path(__file__).parents[2] / "examples" / "web_sessions.py"


@pytest.mark.slow
def test_sessions_end_when_their_user_logs_out(backend: Backend) -> None:
    assert backend.sync_url is not None
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), backend.sync_url],
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
    )
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    assert lines[:3] == [
        "two sessions: ann and ann",
        "after logging out everywhere: None and None",
        "sessions that a query finds: 0",
    ]
    assert "2 rows deleted" in lines[3]
