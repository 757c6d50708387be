"""Fixtures of the SQL tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError

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
def violation(engine: Engine) -> type[DBAPIError]:
    """The error by which a driver says that rows refer to a row: pg8000's is another."""
    return ProgrammingError if engine.dialect.driver == "pg8000" else IntegrityError


@pytest.fixture
def enforcing(engine: Engine) -> Iterator[None]:
    """Let SQLite enforce foreign keys, as the others do."""

    def enforce(dbapi_connection: Any, _: Any) -> None:
        if engine.dialect.name == "sqlite":
            dbapi_connection.execute("PRAGMA foreign_keys = ON")

    event.listen(engine, "connect", enforce)
    yield
    event.remove(engine, "connect", enforce)
