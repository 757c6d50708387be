"""The fixture `world`: the classes of `tests.mongo.models`, with empty collections.

Making the collections and their indexes takes half a second, so they are made once, and the tests
that use them share an event loop, to which the drivers' clients are bound.
"""

from __future__ import annotations

import hashlib
import inspect
from typing import TYPE_CHECKING, Final

import pytest
import pytest_asyncio

from tests.mongo.models import MODELS, World, opened

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_OF_NOTHING: Final = hashlib.md5(usedforsecurity=False).hexdigest()
"""MongoDB's hash of an empty collection."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests of the world in its loop."""
    for item in items:
        is_async = isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj)
        if is_async and "shared_world" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_world(mongodb_url: str) -> AsyncIterator[World]:
    """Initialise Beanie with a database of this run."""
    async with opened(mongodb_url) as made:
        yield made


@pytest.fixture
def world(shared_world: World) -> World:
    """Give the classes' database, empty."""
    hashes = shared_world.raw.command("dbHash")["collections"]  # which has no views
    for model in MODELS:
        if getattr(model, "_cache", None) is not None:
            model._cache.cache.clear()
        if hashes.get(model.get_collection_name(), _OF_NOTHING) != _OF_NOTHING:
            shared_world.of(model).delete_many({})
    return shared_world
