"""What git knows of the tree: the number of the turn, and which files have changed.

Without git, or in a copy without history, the calendar chooses the turn, and all files count as
changed.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
_SECONDS_A_DAY = 86_400

_ON_ALL_PAGES = ("docs/", "examples/", "tests/docs/", "ttl_odm/cli/", "tools/cli_docs.py")
"""A change of these, unless it is a page's own, is a reason to run all pages: what pages show."""
_SCAFFOLDING = "tests/docs/scaffolding/"
"""Where the scaffolding of a page is, under the page's own path."""


def turn(folder: Path = ROOT) -> int:
    """Return the number of commits; where git can't say, the number of days since 1970."""
    if _git(folder, "rev-parse", "--is-shallow-repository") == "false\n":
        commits = _git(folder, "rev-list", "--count", "HEAD")
        if commits is not None:
            return int(commits)
    return int(time.time()) // _SECONDS_A_DAY


def changed(folder: Path = ROOT) -> set[str] | None:
    """Return the paths of the files that differ from the last commit; None if git can't say."""
    tracked = _git(folder, "diff", "--name-only", "-z", "--relative", "HEAD")
    new = _git(folder, "ls-files", "--others", "--exclude-standard", "-z")
    if tracked is None or new is None:
        return None
    return {path for path in f"{tracked}{new}".split("\0") if path}


def changed_last(folder: Path = ROOT) -> set[str] | None:
    """Return the paths of the files that the last commit changed; None if git can't say."""
    paths = _git(folder, "diff", "--name-only", "-z", "--relative", "HEAD~1", "HEAD")
    return None if paths is None else {path for path in paths.split("\0") if path}


def shows_on_all_pages(paths: Iterable[str]) -> bool:
    """Tell whether a change of these files could change what any page shows."""
    return any(path.startswith(_ON_ALL_PAGES) and not path.endswith(".md") for path in paths)


def pages(paths: Iterable[str]) -> list[str]:
    """Return the pages that a change of these files changes, each of which is one of them."""
    named = {path.removeprefix(_SCAFFOLDING) for path in paths if path.endswith(".md")}
    return sorted(named - {"CHANGELOG.md"})


def _git(folder: Path, *words: str) -> str | None:
    """Run git; None if it isn't there, or this is no repository."""
    try:
        finished = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return finished.stdout if finished.returncode == 0 else None
