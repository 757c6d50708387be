"""The leak matrix on engines that are guarded: raw text sees live rows, or is refused."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event

from tests.leaks.registry import Sees, all_paths
from tests.leaks.test_leaks import shown
from tests.leaks.worlds import enforce_foreign_keys
from tests.policies import know_only
from ttl_odm.sqlalchemy import RawSQLError, guard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend
    from tests.leaks.conftest import Worlds
    from tests.leaks.registry import Path

PATHS = all_paths()
LEAKS = [path for path in PATHS if path.answer is Sees.EVERYTHING and not path.own]
"""What docs/leaks.md lists."""


@pytest.fixture(autouse=True)
def _no_policies_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    know_only(monkeypatch, "tests.leaks", but="tests.leaks.following")


@contextmanager
def guarded(worlds: Worlds, answer: Any) -> Iterator[Engine]:
    """A second engine of the living world's database."""
    made = create_engine(worlds.living.engine.url)
    if made.dialect.name == "sqlite":
        event.listen(made, "connect", enforce_foreign_keys)
    guard(made, raw=answer)
    yield made
    assert made.pool.checkedout() == 0
    made.dispose()


@pytest.fixture(scope="session")
def rewriting(worlds: Worlds) -> Iterator[Engine]:
    with guarded(worlds, "rewrite") as made:
        yield made


@pytest.mark.parametrize("path", LEAKS, ids=shown)
def test_what_leaks_without_a_guard_sees_live_rows_with_one(
    path: Path, worlds: Worlds, rewriting: Engine
) -> None:
    live = worlds.answer(path, Sees.LIVE)
    assert worlds.living.answer(path) != live, "this path proves nothing"
    assert worlds.living.answer(path, rewriting) == live
    assert worlds.living.answer(path, rewriting) == live, "when its statements come from the cache"
    everything = rewriting.execution_options(include_expired=True)
    assert worlds.living.answer(path, everything) == worlds.answer(path, Sees.EVERYTHING)


@pytest.mark.parametrize("path", LEAKS, ids=shown)
def test_or_is_not_sent(path: Path, worlds: Worlds) -> None:
    sent: list[str] = []
    with guarded(worlds, "raise") as engine:
        event.listen(engine, "before_cursor_execute", lambda *call: sent.append(call[2]))
        for _ in range(2):
            with pytest.raises(RawSQLError, match="customers"):
                worlds.living.answer(path, engine)
    assert sent == []


@pytest.mark.databases("sqlite")  # a guard is the same for all of them
@pytest.mark.parametrize("path", [path for path in PATHS if path not in LEAKS], ids=shown)
def test_every_other_path_sees_what_it_sees_without_a_guard(
    path: Path, backend: Backend, worlds: Worlds, rewriting: Engine
) -> None:
    if not path.is_beyond(backend.database, worlds.version):
        assert worlds.living.answer(path, rewriting) == worlds.right_answer(path)
