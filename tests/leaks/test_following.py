"""The leak matrix over rows that follow others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.backends import fresh
from tests.leaks.following import FollowingWorld
from tests.leaks.test_leaks import PATHS, shown
from ttl_odm import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend
    from tests.leaks.conftest import Worlds
    from tests.leaks.registry import Path


UPSERTS = frozenset(
    {
        "INSERT of expired keys FROM SELECT of a UNION, with ON CONFLICT",
        "an upsert inside a CTE",
        "an upsert with a key of a type of its own",
        "an upsert that meets a partial unique index",
        "an upsert that returns entities",
        "an upsert of what a SELECT finds",
    }
)
"""They may update rows of which nothing says that they have expired, so they are refused."""

OF_MEMORY = frozenset(
    {
        "get() of a key that was taken anew",
        "get() of a key that was taken anew, after it had been free",
        "a query for all, with a key that was taken anew",
        "a query that loads other attributes than those in memory",
        "refresh() of an attribute of an object whose key was taken anew",
        "a deferred attribute of an object whose key was taken anew",
        "an attribute-expired object whose key was taken anew",
        "a self-referential lazy many-to-one to a key that was taken anew",
        "a lazy collection with a key that was taken anew",
        "a many-to-many with a key that was taken anew",
        "loaded collections of an object whose key was taken anew",
        "a loaded many-to-one of an object whose key was taken anew",
        "an object whose key was taken anew, once a bulk UPDATE has met the row",
    }
)
"""A session has an object of a row that has expired, and the key is another row's: an object that
follows another doesn't know its end, so it is taken for the new row's, as SQLAlchemy takes it."""

FOLLOWED = [
    path
    for path in PATHS
    # A second Table of what follows isn't known for one.
    if path.theme != "second_tables" and path.name not in UPSERTS | OF_MEMORY
]


@pytest.fixture(scope="session")
def world(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FollowingWorld]:
    with fresh(backend.name, tmp_path_factory.mktemp("following")) as made:
        world = FollowingWorld(str(made.sync_url))
        yield world
        assert world.engine.pool.checkedout() == 0, "a path did not give back its connection"
        world.engine.dispose()


@pytest.mark.parametrize("path", FOLLOWED, ids=shown)
def test_a_path_over_followers_sees_what_it_would_see_without_the_expired_rows(
    path: Path, backend: Backend, worlds: Worlds, world: FollowingWorld
) -> None:
    if not path.is_beyond(backend.database, worlds.version):
        right = worlds.right_answer(path)
        assert world.answer(path) == right
        assert world.answer(path) == right, "when its statements come from the cache"


@pytest.mark.databases("sqlite", "postgres")
@pytest.mark.parametrize("path", [path for path in PATHS if path.name in UPSERTS], ids=shown)
def test_an_upsert_that_may_update_followers_is_refused(
    path: Path, backend: Backend, worlds: Worlds, world: FollowingWorld
) -> None:
    if not path.is_beyond(backend.database, worlds.version):
        with pytest.raises(TTLConfigurationError, match="which follow others"):
            world.answer(path)
