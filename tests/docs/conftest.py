"""The documentation site, built once for all who look at it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.guard import GUARD

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build it; any warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    finished = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet"),
            *("--conf-dir", "docs", "--doctree-dir", str(folder / "doctrees")),
            *(".", str(folder / "html")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
    )
    assert finished.returncode == 0, finished.stderr
    return folder / "html"
