"""Tables in files that SQLite attaches: the session's name of a file is their schema."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event

from tests.migrations.conftest import fill, models
from tests.migrations.test_scripts import run
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine

pytestmark = pytest.mark.databases("sqlite")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine whose sessions attach a file with a table of three rows as ``other``."""
    engine = create_engine(f"sqlite:///{tmp_path / 'main.db'}")

    @event.listens_for(engine, "connect")
    def attach(connection: Any, _: object) -> None:
        connection.execute(f"ATTACH '{tmp_path / 'attached.db'}' AS other")

    models(__table_args__={"schema": "other"}).metadata.create_all(engine)
    fill(engine, "other.web_sessions")
    yield engine
    engine.dispose()


def test_its_view_has_its_live_rows_whatever_the_file_is_called(
    engine: Engine, project: Any, tmp_path: Path
) -> None:
    here = project(models(3600, __table_args__={"schema": "other"}), include_schemas=True)
    here.revision(
        "op.add_ttl('web_sessions', 3600, schema='other', enforce='view')",
        "op.drop_ttl('web_sessions', schema='other')",
    )
    here.upgrade()
    here.check()
    clock = clock_of(engine.dialect)
    with engine.begin() as connection:
        expire = f"UPDATE other.web_sessions SET _ts = {clock.now} - 7200000 WHERE id = 'a'"  # noqa: S608
        connection.exec_driver_sql(expire)
        connection.exec_driver_sql("UPDATE other.web_sessions_live SET views = views + 1")
    read = "SELECT id, views FROM web_sessions_live ORDER BY id"
    with closing(sqlite3.connect(tmp_path / "attached.db")) as alone:
        assert alone.execute(read).fetchall() == [("b", 1), ("c", 1)]
    here.downgrade()
    with closing(sqlite3.connect(tmp_path / "attached.db")) as alone:
        assert not alone.execute("SELECT name FROM sqlite_master WHERE type = 'view'").fetchall()


def test_its_view_can_not_look_up_a_default_in_the_main_file(engine: Engine, project: Any) -> None:
    here = project()
    here.revision(
        "import ttl_odm\n    op.add_ttl('web_sessions', ttl_odm.Stored(3600), schema='other', "
        "enforce='view')"
    )
    with pytest.raises(MigrationRefusedError, match="a view in an attached file"):
        here.upgrade()
    with engine.connect() as connection:
        query = "SELECT name FROM pragma_table_info('web_sessions', 'other')"
        assert connection.exec_driver_sql(query).scalars().all() == ["id", "views"]


def test_a_script_gives_it_the_clock_as_a_default(engine: Engine, project: Any) -> None:
    here = project()
    here.revision("op.add_ttl('web_sessions', 3600, schema='other')")
    run(engine, here.script())
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO other.web_sessions (id, views) VALUES ('d', 0)")
        old = "SELECT id FROM other.web_sessions WHERE _ts < (strftime('%s') - 86400) * 1000"
        assert connection.exec_driver_sql(old).scalars().all() == []
