"""Fixtures of the SQL tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.exc import DBAPIError, IntegrityError, ProgrammingError

from tests.sql.models import web_session

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
def model(engine: Engine) -> Any:
    """A model whose tables are there."""
    made = web_session(3600)
    made.metadata.create_all(engine)
    return made


@pytest.fixture
def sent(engine: Engine) -> Iterator[list[str]]:
    """What reaches the database."""
    statements: list[str] = []

    def record(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", record)
    yield statements
    event.remove(engine, "before_cursor_execute", record)


@pytest.fixture
def verbs(engine: Engine) -> Iterator[list[str]]:
    """The first word of each statement that reaches the database."""
    words: list[str] = []

    def record(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        words.append(statement.split(maxsplit=1)[0])

    event.listen(engine, "before_cursor_execute", record)
    yield words
    event.remove(engine, "before_cursor_execute", record)


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


@pytest.fixture
def other(engine: Engine) -> Iterator[Engine]:
    """A second engine of the same database, of which nobody counts the statements."""
    second = create_engine(engine.url, isolation_level="AUTOCOMMIT")
    yield second
    second.dispose()
