"""The worlds of the leak matrix on MongoDB: made once, and left as they were by all paths."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest_asyncio

from tests.leaks.registry import Path, Sees
from tests.leaks_mongo.living import LivingWorld
from tests.leaks_mongo.worlds import CleanWorld, TimelessWorld

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(frozen=True)
class Worlds:
    """The three worlds, and the answers that are known already."""

    living: LivingWorld
    clean: CleanWorld
    timeless: TimelessWorld
    _known: dict[tuple[str, Sees], Any] = field(default_factory=dict)

    async def answer(self, path: Path, sees: Sees) -> Any:
        """What plain Beanie gives for a path, without expired documents or with them."""
        key = (path.name, sees)
        if key not in self._known:
            world = self.clean if sees is Sees.LIVE else self.timeless
            try:
                self._known[key] = await world.answer(path)
            except Exception as error:  # noqa: BLE001 - plain Beanie may stumble over a dead one
                self._known[key] = repr(error)
        return self._known[key]

    async def right_answer(self, path: Path) -> Any:
        """What a path has to give with ttl_odm."""
        known = isinstance(path.answer, Sees)
        return await self.answer(path, path.answer) if known else path.answer

    async def wrong_answer(self, path: Path) -> Any:
        """What it gives where expired documents are seen or, if they should be, are not."""
        return await self.answer(
            path, Sees.LIVE if path.answer is Sees.EVERYTHING else Sees.EVERYTHING
        )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def worlds(mongodb_url: str) -> AsyncIterator[Worlds]:
    """Make the three worlds."""
    async with (
        LivingWorld.opened(mongodb_url) as living,
        CleanWorld.opened(mongodb_url) as clean,
        TimelessWorld.opened(mongodb_url) as timeless,
    ):
        yield Worlds(living, clean, timeless)
