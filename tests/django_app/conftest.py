"""A database for each backend, made and migrated once, and empty for every test."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.backends import fresh
from tests.django_app import project

project.set_up()

from django.db import connections, transaction  # noqa: E402 (Django is set up now)
from django.test.utils import CaptureQueriesContext  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.backends import Backend


@pytest.fixture(scope="session")
def _databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Backend]]:
    made: dict[str, Backend] = {}
    with ExitStack() as stack:

        def get(name: str) -> Backend:
            new = name not in made
            if new:
                folder = tmp_path_factory.mktemp(name)
                made[name] = stack.enter_context(fresh(name, folder))
            project.point_at("default", project.database_settings(made[name]))
            if new:
                project.migrate()
            return made[name]

        yield get
        connections.close_all()


@pytest.fixture
def backend(
    request: pytest.FixtureRequest, _databases: Callable[[str], Backend]
) -> Iterator[Backend]:
    """Point ``default`` at an empty database with all tables; the root conftest says which."""
    yield _databases(request.param)
    connection = connections["default"]
    try:
        assert not connection.in_atomic_block
    finally:
        connection.close()
        _empty()


def _empty() -> None:
    connection = connections["default"]
    tables = [
        table
        for table in connection.introspection.django_table_names(only_existing=True)
        if table not in ("django_content_type", "auth_permission")
    ]
    with (
        connection.constraint_checks_disabled(),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        for table in tables:
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(table)}")  # noqa: S608
    connection.close()


@pytest.fixture
def _at_level(backend: Backend, level: str) -> Iterator[None]:
    """Let ``default`` have the isolation level `level`; Django's own if that is empty."""
    settings = project.database_settings(backend)
    at_level = {"isolation_level": level} if level else {}
    project.point_at("default", {**settings, "OPTIONS": {**settings["OPTIONS"], **at_level}})
    yield
    project.point_at("default", settings)


@pytest.fixture
def django_queries() -> Callable[[], CaptureQueriesContext]:
    """Return what records the statements of ``default``."""
    return lambda: CaptureQueriesContext(connections["default"])


@pytest.fixture
def other(tmp_path: Path) -> Iterator[str]:
    """Make a second database of SQLite, and return its alias."""
    settings = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "other.sqlite3")}
    project.point_at("other", settings)
    project.migrate("other")
    yield "other"
    connections["other"].close()
