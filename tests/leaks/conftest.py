"""The worlds of the leak matrix: made once for each database, and left as they were by all."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.backends import Backend, fresh
from tests.leaks.living import LivingWorld
from tests.leaks.registry import Path, Sees
from tests.leaks.worlds import CleanWorld, TimelessWorld

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Worlds:
    """The worlds on one database server, and the answers that are known already."""

    living: LivingWorld
    clean: CleanWorld
    timeless: TimelessWorld
    _known: dict[tuple[str, Sees], Any] = field(default_factory=dict)

    @property
    def version(self) -> tuple[int, ...]:
        """The server's."""
        return self.clean.engine.dialect.server_version_info or ()

    def answer(self, path: Path, sees: Sees) -> Any:
        """What plain SQLAlchemy gives for a path, without expired rows or with them."""
        key = (path.name, sees)
        if key not in self._known:
            world = self.clean if sees is Sees.LIVE else self.timeless
            self._known[key] = world.answer(path)
        return self._known[key]

    def right_answer(self, path: Path) -> Any:
        """What a path has to give with ttl_odm."""
        return self.answer(path, path.answer) if isinstance(path.answer, Sees) else path.answer

    def wrong_answer(self, path: Path) -> Any:
        """What it gives where expired rows are seen or, if they should be seen, are not."""
        try:
            return self.answer(
                path, Sees.LIVE if path.answer is Sees.EVERYTHING else Sees.EVERYTHING
            )
        except Exception as error:  # noqa: BLE001 - whatever an expired row leads to
            return repr(error)


@pytest.fixture(scope="session")
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    """Make a fresh database that lives as long as the run."""
    with fresh(request.param, tmp_path_factory.mktemp("living")) as made:
        yield made


@pytest.fixture(scope="session")
def worlds(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """Make the three worlds on a database server."""
    with ExitStack() as stack:

        def url(name: str) -> str:
            folder = tmp_path_factory.mktemp(name)
            return str(stack.enter_context(fresh(backend.name, folder)).sync_url)

        made = Worlds(
            LivingWorld(str(backend.sync_url)),
            CleanWorld(url("clean")),
            TimelessWorld(url("timeless")),
        )
        yield made
        for world in (made.living, made.clean, made.timeless):
            assert world.engine.pool.checkedout() == 0, "a path did not give back its connection"
            world.engine.dispose()
