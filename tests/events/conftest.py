"""Fixtures of the tests of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from ttl_odm.events.handlers import handlers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


@pytest.fixture(autouse=True)
def handlers_of_other_tests_are_gone() -> Iterator[None]:
    """Handlers are registered for the whole process."""
    before = [*handlers]
    handlers.clear()
    yield
    handlers[:] = before


@pytest.fixture
def sent(engine: Engine) -> Iterator[list[str]]:
    """What reaches the database."""
    statements: list[str] = []

    def record(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", record)
    yield statements
    event.remove(engine, "before_cursor_execute", record)
