"""``--sql`` writes a script that does the same without Python."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import IntegrityError

from tests.backends import fresh
from tests.migrations.conftest import fill, models
from tests.migrations.projects import catalogue, put_earlier_check
from ttl_odm.alembic import MigrationRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine

    from tests.backends import Backend


@pytest.fixture
def other(backend: Backend, tmp_path: Path) -> Iterator[Engine]:
    """A second database of the same kind."""
    folder = tmp_path / "other"
    folder.mkdir()
    with fresh(backend.name, folder) as made:
        assert made.sync_url is not None
        engine = create_engine(made.sync_url)
        yield engine
        engine.dispose()


def run(engine: Engine, script: str) -> None:
    """Send a script as a database's own client would: statement by statement."""
    raw = engine.raw_connection()
    try:
        driver: Any = raw.driver_connection
        if isinstance(driver, sqlite3.Connection):
            driver.executescript(script)
        else:
            driver.autocommit = True if engine.dialect.name == "postgresql" else driver.autocommit
            with driver.cursor() as cursor:
                for statement in statements(script):
                    cursor.execute(statement)
            if engine.dialect.name != "postgresql":
                driver.commit()
    finally:
        raw.invalidate()


def statements(script: str) -> list[str]:
    """Split a script at semicolons that end a line outside a DO block."""
    found: list[str] = []
    part = ""
    for line in script.splitlines():
        if line.startswith("--"):
            continue
        part += f"{line}\n"
        if line.rstrip().endswith(";") and part.count("$ttl_odm$") % 2 == 0:
            found.append(part.strip())
            part = ""
    return found


@pytest.mark.slow
@pytest.mark.parametrize("backfill", ["now", None])
def test_a_script_leaves_the_same_schema_and_rows(
    before: Any, engine: Engine, other: Engine, project: Any, backfill: str | None
) -> None:
    model = models(3600)
    here = project(model)
    here.revision(
        f"op.add_ttl('web_sessions', 3600, backfill={backfill!r}, touch_trigger=True)",
        "op.drop_ttl('web_sessions')",
    )
    here.revision(
        "op.alter_ttl('web_sessions', 60, sweep='scan', touch_trigger=False)",
        "op.alter_ttl('web_sessions', 60, sweep='index', touch_trigger=True)",
    )
    models().metadata.create_all(other)
    fill(other, "web_sessions")
    for to in ("r1", "r2"):
        here.upgrade(to)
    for what, revisions in (("upgrade", "r1"), ("upgrade", "r1:r2")):
        run(other, here.script(what, revisions))
    assert catalogue(other, "web_sessions") == catalogue(engine, "web_sessions")
    with other.connect() as connection:
        rows = connection.execute(text("SELECT id, ttl, _ts FROM web_sessions")).all()
    assert {row[1] for row in rows} == {-1 if backfill is None else None}
    now = {"sqlite": 1_000, "mysql": 1_000_000}.get(engine.dialect.name)
    assert all(now is None or row[2] > 1_700_000_000 * now for row in rows)
    for revisions, to in (("r2:r1", "r1"), ("r1:base", "base")):
        run(other, here.script("downgrade", revisions))
        here.downgrade(to)
        assert catalogue(other, "web_sessions") == catalogue(engine, "web_sessions")


def test_a_script_creates_a_table_with_its_ttl(engine: Engine, other: Engine, project: Any) -> None:
    here = project(models(3600))
    here.autogenerate()
    run(other, here.script())
    here.upgrade()
    assert catalogue(other, "web_sessions") == catalogue(engine, "web_sessions")
    run(other, here.script("downgrade", "r1:base"))
    assert not inspect(other).has_table("web_sessions")


@pytest.mark.databases("sqlite")
def test_a_script_replaces_the_check_of_an_earlier_release(engine: Engine, project: Any) -> None:
    model = models(60)
    model.metadata.create_all(engine)
    made = catalogue(engine, "web_sessions")
    with engine.begin() as connection:
        put_earlier_check(connection)
    here = project(model)
    here.revision("op.alter_ttl('web_sessions', 60)")
    run(engine, here.script())
    assert catalogue(engine, "web_sessions") == made
    with engine.connect() as connection, pytest.raises(IntegrityError, match="CHECK"):
        connection.execute(text("INSERT INTO web_sessions (id, views, ttl) VALUES ('b', 1, 20.5)"))


@pytest.mark.parametrize(
    "option", ["backfill='created_at'", "max_expired_now=0.1", "keep_ttl=True"]
)
def test_what_needs_the_database_is_no_script(before: Any, project: Any, option: str) -> None:
    here = project()
    here.revision(f"op.add_ttl('web_sessions', 60, {option})")
    with pytest.raises(MigrationRefusedError, match="which --sql can't"):
        here.script()


@pytest.mark.databases("postgres")
def test_a_script_for_postgresql_tries_again_by_itself(before: Any, project: Any) -> None:
    here = project()
    here.revision("op.add_ttl('web_sessions', 60)")
    script = here.script()
    assert "SET LOCAL lock_timeout = '200ms'" in script
    assert "WHEN lock_not_available" in script
    head, _, tail = script.partition("CREATE INDEX CONCURRENTLY")
    assert head.count("BEGIN;") == head.count("COMMIT;")
    assert "VALIDATE CONSTRAINT" in head
    assert "CREATE INDEX CONCURRENTLY" in tail
