"""A database for each backend, made and migrated once, and empty for every test."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.backends import fresh
from tests.django_app import project

project.set_up()

from django.db import connections  # noqa: E402 (Django is set up now)
from django.test.utils import CaptureQueriesContext  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.utils import CursorWrapper

    from tests.backends import Backend

    _Get = Callable[[str], tuple[Backend, BaseDatabaseWrapper]]


@pytest.fixture(scope="session")
def _databases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Get]:
    made: dict[str, tuple[Backend, BaseDatabaseWrapper]] = {}
    with ExitStack() as stack:

        def get(name: str) -> tuple[Backend, BaseDatabaseWrapper]:
            if name in made:
                project.point_at("default", project.database_settings(made[name][0]))
                return made[name]
            backend = stack.enter_context(fresh(name, tmp_path_factory.mktemp(name)))
            project.point_at("default", project.database_settings(backend))
            project.migrate()
            keeper = connections.create_connection("default")
            stack.callback(keeper.close)
            made[name] = backend, keeper
            return made[name]

        yield get
        connections.close_all()


@pytest.fixture
def backend(request: pytest.FixtureRequest, _databases: _Get) -> Iterator[Backend]:
    """Point ``default`` at an empty database with all tables; the root conftest says which."""
    made, keeper = _databases(request.param)
    yield made
    connection = connections["default"]
    try:
        assert not connection.in_atomic_block
    finally:
        connection.close()
        _empty(keeper)


def _empty(connection: BaseDatabaseWrapper) -> None:
    """Delete all rows.

    Args:
        connection: One that no test has used. It stays open, so that a server has what it knows of
            the tables at hand; with SQLite it could keep a test from changing the file's mode.
    """
    if connection.connection is not None and not connection.is_usable():
        connection.close()
    tables = [
        table
        for table in connection.introspection.django_table_names(only_existing=True)
        if table not in ("django_content_type", "auth_permission")
    ]
    with connection.constraint_checks_disabled(), connection.cursor() as cursor:
        if filled := _filled(cursor, tables):
            connection.set_autocommit(False)
            for table in filled:
                cursor.execute(f"DELETE FROM {connection.ops.quote_name(table)}")  # noqa: S608
            connection.commit()
            connection.set_autocommit(True)
    if connection.vendor == "sqlite":
        connection.close()


def _filled(cursor: CursorWrapper, tables: list[str]) -> list[str]:
    """Ask which tables have rows, all in one statement: most tests fill few of them."""
    quote = connections["default"].ops.quote_name
    questions = (
        f"SELECT {number} FROM (SELECT 1 AS n) AS one "  # noqa: S608
        f"WHERE EXISTS (SELECT 1 FROM {quote(table)})"
        for number, table in enumerate(tables)
    )
    cursor.execute(" UNION ALL ".join(questions))
    return [tables[number] for (number,) in cursor.fetchall()]


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
