"""The leak matrix on MongoDB: every path sees what it would see without the expired documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.leaks_mongo.registry import LINE, all_paths
from tests.leaks_mongo.rivals import BEANIE_WARNS

if TYPE_CHECKING:
    from tests.leaks.registry import Path
    from tests.leaks_mongo.conftest import Worlds

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    *(pytest.mark.filterwarnings(f"ignore:{message}") for message in BEANIE_WARNS),
]

PATHS = all_paths()


def shown(path: Path) -> str:
    return f"{path.theme}: {path.name}"


async def test_there_are_at_least_150_paths() -> None:
    assert len([path for path in PATHS if not path.own]) >= 150


@pytest.mark.parametrize("path", PATHS, ids=shown)
async def test_a_path_sees_what_it_would_see_without_the_expired_documents(
    path: Path, worlds: Worlds
) -> None:
    right, wrong = await worlds.right_answer(path), await worlds.wrong_answer(path)
    if LINE in path.without:
        impossible = isinstance(right, str) or right == wrong
        assert impossible, f"Beanie {LINE} can do it; the reason given is: {path.without[LINE]}"
        return
    assert path.own or wrong != right, "this path proves nothing"
    assert await worlds.living.answer(path) == right
