"""Pages that are true: their blocks are run in order, and their outputs compared."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```(python|console|text)\n(.*?)```", re.DOTALL)


def said_by(kind: str, block: str, names: dict[str, Any], page: Path) -> str:
    """Run a block; return what it prints."""
    if kind == "python":
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            # dont_inherit: the __future__ of this module is not the page's.
            exec(compile(block, str(page), "exec", dont_inherit=True), names)  # noqa: S102
        return out.getvalue()
    (command,) = block.splitlines()
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "ttl-odm"
    finished = subprocess.run(
        [sys.executable, "-m", "ttl_odm.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.parametrize("name", ["adopting", "tutorial"])
def test_every_output_on_the_page_is_what_comes_out(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = DOCS / f"{name}.md"
    names: dict[str, Any] = {}
    blocks = BLOCK.findall(page.read_text())
    followers = [*blocks[1:], ("", "")]
    with warnings.catch_warnings():
        # SQLAlchemy opens SQLite's file; the page closes nothing, as a script would not.
        warnings.simplefilter("ignore", ResourceWarning)
        for (kind, block), (next_kind, shown) in zip(blocks, followers, strict=True):
            if kind == "text":
                continue
            said = said_by(kind, block, names, page)
            assert said.strip() == (shown.strip() if next_kind == "text" else "")
        names["engine"].dispose()
