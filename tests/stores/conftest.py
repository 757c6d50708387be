"""One database for all tests of a driver, made empty by each rig's `close`.

Making and dropping a database takes longer than most of these tests.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.backends import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.backends import Backend

    Opens = Callable[[str], Backend]


@pytest.fixture(scope="session")
def _open(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opens]:
    known: dict[str, Backend] = {}
    with ExitStack() as stack:

        def opens(name: str) -> Backend:
            if name not in known:
                known[name] = stack.enter_context(fresh(name, tmp_path_factory.mktemp(name)))
            return known[name]

        yield opens


@pytest.fixture
def backend(request: pytest.FixtureRequest, _open: Opens) -> Backend:
    """The database of a synchronous driver, without tables."""
    return _open(request.param)


@pytest.fixture
def async_backend(request: pytest.FixtureRequest, _open: Opens) -> Backend:
    """The database of an asynchronous driver, without tables."""
    return _open(request.param)
