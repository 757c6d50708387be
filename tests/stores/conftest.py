"""One database for all tests of a driver, made empty by each rig's `close`.

Making and dropping a database takes longer than most of these tests.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from tests.backends import fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.backends import Backend

    Opens = Callable[[str], Backend]

_SLOW: Final = frozenset(
    {
        "test_rows_that_are_refused_are_left_counted_and_named_and_all_others_go",
        "test_rows_that_are_refused_keep_no_other_worker_from_its_own",
        "test_stretches_have_no_row_in_common_and_all_together",
    }
)
"""Tests of the shipped suite, which has no marks, that take more than half a second on a server."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that classes inherit from the suite, so that no line of ours could."""
    on_a_server = {"backend", "async_backend"}.intersection(getattr(item, "fixturenames", ()))
    if on_a_server and getattr(item, "originalname", "") in _SLOW:
        item.add_marker("slow")


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
