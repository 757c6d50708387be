"""The leak matrix over rows that follow others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.backends import fresh
from tests.leaks.following import FollowingWorld
from tests.leaks.test_leaks import PATHS, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend
    from tests.leaks.conftest import Worlds
    from tests.leaks.registry import Path


@pytest.fixture(scope="session")
def world(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FollowingWorld]:
    with fresh(backend.name, tmp_path_factory.mktemp("following")) as made:
        world = FollowingWorld(str(made.sync_url))
        yield world
        assert world.engine.pool.checkedout() == 0, "a path did not give back its connection"
        world.engine.dispose()


@pytest.mark.parametrize("path", PATHS, ids=shown)
def test_a_path_over_followers_sees_what_it_would_see_without_the_expired_rows(
    path: Path, backend: Backend, worlds: Worlds, world: FollowingWorld
) -> None:
    if not path.is_beyond(backend.database, worlds.version):
        right = worlds.right_answer(path)
        assert world.answer(path) == right
        assert world.answer(path) == right, "when its statements come from the cache"
