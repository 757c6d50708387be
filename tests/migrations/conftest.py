"""Fixtures of the migration tests: a database with a table that has rows and no TTL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.migrations.projects import Project
from tests.migrations.swept import ADD, DROP, alone, run
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Engine

    from tests.migrations.swept import Log


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let pass what `ttl_odm.alembic` silences: pytest puts its own filters over those."""
    for item in items:
        if "migration" in item.nodeid:
            for said in ("Skipped unsupported reflection", "autogenerate skipping"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{said} .*_ttl_(own|inherited)"))


def models(ttl: Any = ..., name: str = "web_sessions", **namespace: Any) -> Any:
    """A model on a base of its own, with TTL or, where none is given, without."""

    class Base(DeclarativeBase):
        pass

    columns: dict[str, Any] = {
        "__tablename__": name,
        "__annotations__": {"id": Mapped[str], "views": Mapped[int]},
        "id": mapped_column(String(40), primary_key=True),
        "views": mapped_column(default=0),
        **namespace,
    }
    if ttl is ...:
        return type("WebSession", (Base,), columns)
    return type("WebSession", (TTLMixin, Base), {"__ttl__": ttl, **columns})


@pytest.fixture
def before(engine: Engine) -> Any:
    """The model without TTL; its table is there, with three rows."""
    model = models()
    model.metadata.create_all(engine)
    fill(engine, "web_sessions")
    return model


def fill(engine: Engine, table: str) -> None:
    """Put three rows into a table."""
    with engine.begin() as connection:
        for key in "abc":
            connection.exec_driver_sql(f"INSERT INTO {table} (id, views) VALUES ('{key}', 0)")  # noqa: S608


@pytest.fixture
def project(tmp_path: Path, engine: Engine) -> Callable[..., Project]:
    """Make an Alembic project on the test's database."""

    def make(model: Any = None, **options: Any) -> Project:
        metadata = getattr(model, "metadata", model)
        return Project(tmp_path / "project", engine, metadata, **options)

    return make


@pytest.fixture
def scheduler(engine: Engine) -> Iterator[None]:
    """MariaDB's scheduler of events is off until somebody says otherwise."""
    if engine.dialect.name == "postgresql":
        yield
        return
    (before,) = run(engine, "SELECT @@event_scheduler")[0]
    run(engine, "SET GLOBAL event_scheduler = ON")
    yield
    run(engine, f"SET GLOBAL event_scheduler = {before}")


@pytest.fixture
def there(before: Any, project: Any) -> Any:
    """A project whose table is swept."""
    del before
    here = project(models(3600))
    here.revision(ADD, DROP)
    here.upgrade()
    return here


@pytest.fixture
def call(there: Any, engine: Engine) -> Iterator[Callable[[], Log]]:
    """Let it run once, and say what it notes; the EVENT does nothing meanwhile."""
    del there
    with alone(engine) as let_run:
        yield let_run
