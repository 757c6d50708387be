"""The leak matrix: every path sees what it would see if the expired rows weren't there."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from sqlalchemy.exc import (
    CompileError,
    DBAPIError,
    InvalidRequestError,
    SADeprecationWarning,
    StatementError,
)

from tests.leaks.registry import Path, Sees, all_paths

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path as FilePath

    from tests.backends import Backend
    from tests.leaks.conftest import Worlds

PATHS = all_paths()
REFUSALS = (DBAPIError, CompileError, NotImplementedError, SADeprecationWarning)
# It has no RETURNING, which SQLAlchemy by itself refuses for an INSERT of many rows.
REFUSALS_ON_MYSQL = (*REFUSALS, InvalidRequestError, StatementError)

# Values that were written into the SQL can't change with an option.
RENDERED = "Core: a statement that was rendered with its values"
READS = [
    path for path in PATHS if path.answer is Sees.LIVE and not path.writes and path.name != RENDERED
]


def shown(path: Path) -> str:
    return f"{path.theme}: {path.name}"


def test_there_are_at_least_170_paths() -> None:
    assert len([path for path in PATHS if not path.own]) >= 170


@pytest.mark.parametrize("path", PATHS, ids=shown)
def test_a_path_sees_what_it_would_see_without_the_expired_rows(
    path: Path,
    backend: Backend,
    worlds: Worlds,
    record_property: Callable[[str, object], None],
) -> None:
    if path.is_beyond(backend.database, worlds.version):
        with pytest.raises(REFUSALS_ON_MYSQL if backend.database == "mysql" else REFUSALS):
            worlds.timeless.answer(path)
        record_property("impossible", "the database, or SQLAlchemy for it, refuses the statement")
        return
    right = worlds.right_answer(path)
    assert worlds.wrong_answer(path) != right, "this path proves nothing"
    assert worlds.living.answer(path) == right
    assert worlds.living.answer(path) == right, "when its statements come from the cache"


# SQLAlchemy's cache is the same for all databases, and compiling everything anew takes its time.
@pytest.mark.databases("sqlite")
@pytest.mark.in_turns
@pytest.mark.parametrize("path", PATHS, ids=shown)
def test_a_path_sees_the_same_without_a_statement_cache(
    path: Path, backend: Backend, worlds: Worlds
) -> None:
    if backend.database not in path.without:
        uncached = worlds.living.engine.execution_options(compiled_cache=None)
        assert worlds.living.answer(path, uncached) == worlds.right_answer(path)


# The option is a bound value, which all databases have alike; paths_escapes runs on each.
@pytest.mark.databases("sqlite")
@pytest.mark.in_turns
@pytest.mark.parametrize("path", READS, ids=shown)
def test_a_path_on_an_engine_that_includes_expired_rows_sees_everything(
    path: Path, backend: Backend, worlds: Worlds
) -> None:
    if backend.database not in path.without:
        everything = worlds.living.engine.execution_options(include_expired=True)
        assert worlds.living.answer(path, everything) == worlds.answer(path, Sees.EVERYTHING)


ASK_WITHOUT_TTL_ODM = """
import json, sys
from tests.leaks.registry import Sees, all_paths
from tests.leaks.worlds import CleanWorld

world = CleanWorld(sys.argv[1])
answers = {
    path.name: repr(world.answer(path))
    for path in all_paths(without=("escapes",))
    if path.answer is Sees.LIVE and "sqlite" not in path.without
}
assert not any(name.startswith("ttl_odm") for name in sys.modules)
print(json.dumps(answers))
"""


@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_the_right_answers_are_the_same_where_ttl_odm_was_never_imported(
    backend: Backend, worlds: Worlds, tmp_path: FilePath
) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", ASK_WITHOUT_TTL_ODM, f"sqlite:///{tmp_path}/clean"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    here = {path.name: path for path in PATHS}
    for name, answer in json.loads(run.stdout).items():
        assert repr(worlds.answer(here[name], Sees.LIVE)) == answer, name
