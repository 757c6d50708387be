"""The subjects, which are there for the whole module, and so are their databases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.backends import Subjects

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subjects]:
    opened = Subjects(tmp_path_factory.mktemp("contract"))
    yield opened
    opened.close()


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> str:
    """The name only: its database is there for the whole module."""
    name: str = request.param
    return name


@pytest.fixture
def async_backend(request: pytest.FixtureRequest) -> str:
    """The same for asynchronous drivers."""
    name: str = request.param
    return name
