"""What a family that somebody brings has to pass, our own families pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine

from ttl_odm.testing import FamilyContract

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend


class TestOurFamilies(FamilyContract):
    @pytest.fixture
    def engine(self, backend: Backend) -> Iterator[Engine]:
        assert backend.sync_url is not None
        made = create_engine(backend.sync_url)
        yield made
        made.dispose()
