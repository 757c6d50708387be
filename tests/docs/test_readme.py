"""What README shows works: its first example is run, as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)


def test_the_first_example_runs_as_it_stands(tmp_path: Path) -> None:
    example = python_blocks()[0]
    assert len([line for line in example.splitlines() if line.strip()]) <= 16
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    assert "['a', 'b', 'c']" in finished.stdout
    assert "Swept 1 table" in finished.stdout


def test_every_python_block_is_python() -> None:
    for block in python_blocks():
        compile(block, str(README), "exec")
