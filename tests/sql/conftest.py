"""Fixtures of the SQL tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    event,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


@pytest.fixture
def made(engine: Engine) -> Any:
    """Create a model's tables."""

    def create(model: Any) -> Any:
        model.metadata.create_all(engine)
        return model

    return create


@pytest.fixture
def enforcing(engine: Engine) -> Iterator[None]:
    """Let SQLite enforce foreign keys, as the others do."""

    def enforce(dbapi_connection: Any, _: Any) -> None:
        if engine.dialect.name == "sqlite":
            dbapi_connection.execute("PRAGMA foreign_keys = ON")

    event.listen(engine, "connect", enforce)
    yield
    event.remove(engine, "connect", enforce)
