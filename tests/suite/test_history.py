"""What git says of a tree, and what is done where it says nothing."""

from __future__ import annotations

import shutil
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from suite import history

if TYPE_CHECKING:
    from pathlib import Path

GIT = shutil.which("git") or ""
pytestmark = pytest.mark.skipif(not GIT, reason="there is no git")


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=me", "-c", "user.email=me@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run([GIT, *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with two commits."""
    folder = tmp_path / "a tree"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "a.py").touch()
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "one")
    (folder / "ä b.md").touch()
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "two")
    return folder


def test_the_turn_is_the_number_of_commits(tree: Path) -> None:
    assert history.turn(tree) == 2


def test_without_history_the_day_is_the_turn(tree: Path, tmp_path: Path) -> None:
    bare = tmp_path / "no repository"
    bare.mkdir()
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--quiet", "--depth", "1", tree.as_uri(), str(shallow))
    today = int(time.time()) // 86_400
    assert history.turn(bare) in {today, today + 1}
    assert history.turn(shallow) in {today, today + 1}


def test_files_differ_from_the_last_commit_and_by_it(tree: Path) -> None:
    assert history.changed(tree) == set()
    assert history.changed_last(tree) == {"ä b.md"}
    (tree / "a.py").write_text("x = 1")
    (tree / "new.py").touch()
    assert history.changed(tree) == {"a.py", "new.py"}
    git(tree, "add", "a.py")
    assert history.changed(tree) == {"a.py", "new.py"}


def test_of_a_tree_without_history_nobody_knows_what_has_changed(tmp_path: Path) -> None:
    assert history.changed(tmp_path) is None
    assert history.changed_last(tmp_path) is None


def test_the_first_commit_has_changed_nobody_knows_what(tree: Path) -> None:
    git(tree, "checkout", "--quiet", "HEAD~1")
    assert history.changed_last(tree) is None


@pytest.mark.parametrize(
    ("path", "on_all", "pages"),
    [
        ("docs/quality.md", False, ["docs/quality.md"]),
        ("README.md", False, ["README.md"]),
        ("benchmarks/README.md", False, ["benchmarks/README.md"]),
        ("tests/docs/scaffolding/docs/flask.md", False, ["docs/flask.md"]),
        ("docs/conf.py", True, []),
        ("examples/adoption/flask.py", True, []),
        ("ttl_odm/cli/commands.py", True, []),
        ("tests/docs/blocks.py", True, []),
        ("CHANGELOG.md", False, []),
        ("ttl_odm/core/expiry.py", False, []),
        ("tests/sql/test_keys.py", False, []),
    ],
)
def test_some_files_show_on_pages(path: str, pages: list[str], *, on_all: bool) -> None:
    assert history.shows_on_all_pages([path]) is on_all
    assert history.pages([path]) == pages
