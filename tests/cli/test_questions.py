"""``flask ttl sweep`` and ``manage.py ttl_sweep`` on a terminal ask before they delete rows.

What ``ttl-odm sweep`` does there is in `test_sweep_command`.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.cli.running import on_a_terminal, variables
from tests.guard import GUARD

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

BOTH = ["--database", "default", "--database", "other"]
SWEEPS = {
    "flask": ["-m", "flask", "--app", "tests.cli.flask_shop", "ttl", "sweep"],
    "django": ["-m", "tests.cli.django_shop", "ttl_sweep", *BOTH],
}
FILES = {
    "flask": [("carts", "carts"), ("visits", "visits")],
    "django": [("default", "django_session"), ("other", "django_session")],
}

each = pytest.mark.parametrize("name", SWEEPS)


def sweep(
    name: str, folder: Path, reply: str = "", *options: str, **environment: str
) -> tuple[int, str]:
    """Sweep on a terminal, and answer the question, if it comes."""
    words = [sys.executable, *SWEEPS[name], *options]
    environment["SHOP_FOLDER"] = str(folder)
    return on_a_terminal(words, f"{reply}\n" if reply else "", **environment)


def left(name: str, folder: Path) -> list[int]:
    """How many rows the databases hold."""
    counts = []
    for file, table in FILES[name]:
        with closing(sqlite3.connect(folder / f"{file}.sqlite3")) as connection:
            counts += connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()  # noqa: S608
    return counts


@each
@pytest.mark.parametrize(("reply", "stays"), [("n", [3, 2]), ("y", [0, 0])])
def test_it_counts_all_databases_and_asks_once(
    name: str, tmp_path: Path, reply: str, stays: list[int]
) -> None:
    status, screen = sweep(name, tmp_path, reply)
    assert status == 0, screen
    assert screen.count("? [y/N]: ") == 1
    assert "Delete 5 rows? [y/N]: " in screen
    before, _, after = screen.partition("[y/N]")
    assert "3 rows expired" in before
    assert "2 rows expired" in before
    assert ("Nothing was deleted." in after) is (reply == "n")
    assert ("3 rows deleted" in after) is (reply == "y")
    assert left(name, tmp_path) == stays


@each
def test_it_asks_for_no_more_rows_than_it_may_delete_and_for_none_if_there_are_none(
    name: str, tmp_path: Path
) -> None:
    status, screen = sweep(name, tmp_path, "y", "--max-rows", "2")
    assert status == 0, screen
    assert "Delete 4 rows? [y/N]: " in screen
    assert left(name, tmp_path) == [1, 0]
    for question in (True, False):
        status, screen = sweep(name, tmp_path, "y")
        assert status == 0, screen
        assert ("Delete 1 row? [y/N]: " in screen) is question


@each
@pytest.mark.parametrize("options", [["-y"], ["--dry-run"]])
def test_it_can_be_told_not_to_ask(name: str, tmp_path: Path, options: list[str]) -> None:
    status, screen = sweep(name, tmp_path, "", *options)
    assert status == 0, screen
    assert "[y/N]" not in screen
    assert left(name, tmp_path) == ([3, 2] if options == ["--dry-run"] else [0, 0])


@each
def test_it_asks_nobody_in_a_pipe(name: str, tmp_path: Path) -> None:
    swept = subprocess.run(
        [sys.executable, *SWEEPS[name]],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
        env=variables(SHOP_FOLDER=str(tmp_path)),
    )
    assert (swept.returncode, "[y/N]" in swept.stderr) == (0, False), swept.stderr
    assert left(name, tmp_path) == [0, 0]


@each
def test_an_interrupt_while_it_counts_deletes_nothing(name: str, tmp_path: Path) -> None:
    status, screen = sweep(name, tmp_path, INTERRUPTED="1")
    assert status == 1, screen
    assert "Aborted!" in screen
    assert "[y/N]" not in screen
    assert "Traceback" not in screen
    assert left(name, tmp_path) == [3, 2]


@pytest.mark.parametrize("options", [["--json"], []])
def test_django_asks_nobody_but_a_person_at_a_command_line(
    tmp_path: Path, options: list[str]
) -> None:
    called = {} if options else {"CALLED": "1"}
    status, screen = sweep("django", tmp_path, "", *options, **called)
    assert status == 0, screen
    assert "[y/N]" not in screen
    assert left("django", tmp_path) == [0, 0]
