"""MySQL copies a table to enforce a CHECK: it does so where that is asked for, and nowhere else.

The other databases have no such question, and come to the same schema with the same options.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import DBAPIError

from tests.backends import fresh
from tests.migrations.conftest import fill, models
from tests.migrations.projects import catalogue, is_mysql, without_a_copy
from tests.migrations.test_scripts import run
from ttl_odm.alembic import MigrationRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine

    from tests.backends import Backend

# Each server has DDL of its own.
pytestmark = pytest.mark.every_server

WRONG = text("UPDATE web_sessions SET ttl = 0 WHERE id = 'a'")


@pytest.fixture
def created(backend: Backend, tmp_path: Path) -> Iterator[Any]:
    """What create_all() makes of the table with TTL, on a database of its own."""
    folder = tmp_path / "created"
    folder.mkdir()
    with fresh(backend.name, folder) as other:
        assert other.sync_url is not None
        engine = create_engine(other.sync_url)
        models(3600).metadata.create_all(engine)
        yield catalogue(engine, "web_sessions")
        engine.dispose()


@pytest.fixture
def sent(engine: Engine) -> list[str]:
    """The statements that change the table."""
    statements: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        if "ALTER TABLE web_sessions" in statement:
            statements.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    return statements


def takes_wrong_ttls(engine: Engine) -> bool:
    """Whether raw SQL can write what is not a ttl; it is not kept."""
    with engine.connect() as connection:
        try:
            connection.execute(WRONG)
        except DBAPIError:
            return False
        return True


def test_a_table_is_copied_for_its_check_where_that_is_asked_for(
    before: Any, engine: Engine, project: Any, created: Any
) -> None:
    here = project(models(3600))
    here.revision(
        "op.add_ttl('web_sessions', 3600, copy_table=True)", "op.drop_ttl('web_sessions')"
    )
    plain = catalogue(engine, "web_sessions")
    here.upgrade()
    here.check()
    assert catalogue(engine, "web_sessions") == created
    assert not takes_wrong_ttls(engine)
    here.downgrade()
    assert catalogue(engine, "web_sessions") == plain


def test_no_table_is_copied_by_surprise(
    before: Any, engine: Engine, project: Any, sent: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    here = project(models(3600))
    here.autogenerate()
    with caplog.at_level(logging.INFO, "alembic.ttl_odm"):
        here.upgrade()
    assert takes_wrong_ttls(engine) is is_mysql(engine)
    assert ("NOT ENFORCED" in caplog.text) is is_mysql(engine)
    if engine.dialect.name == "mysql":
        assert len(sent) == 5
        assert all("ALGORITHM=" in statement for statement in sent)
        assert not any("ALGORITHM=COPY" in statement for statement in sent)


@pytest.mark.slow
def test_a_check_is_enforced_later_and_the_downgrade_leaves_it(
    before: Any, engine: Engine, project: Any, created: Any
) -> None:
    here = project(models(3600))
    here.revision("op.add_ttl('web_sessions', 3600)")
    here.revision(
        "op.alter_ttl('web_sessions', 3600, copy_table=True)", "op.alter_ttl('web_sessions', 3600)"
    )
    here.upgrade("r1")
    assert catalogue(engine, "web_sessions") == without_a_copy(engine, created)
    for _ in range(2):
        here.upgrade()
        here.check()
        assert catalogue(engine, "web_sessions") == created
        here.downgrade()
        assert catalogue(engine, "web_sessions") == created


@pytest.mark.databases("mysql")
def test_rows_that_the_check_would_not_let_in_are_refused_before_the_copy(
    before: Any, engine: Engine, project: Any
) -> None:
    here = project(models(3600))
    here.revision("op.add_ttl('web_sessions', 3600)")
    here.revision("op.alter_ttl('web_sessions', 3600, copy_table=True)")
    here.upgrade("r1")
    with engine.begin() as connection:
        connection.execute(WRONG)
    made = catalogue(engine, "web_sessions")
    with pytest.raises(MigrationRefusedError, match=r"1 rows have an invalid ttl"):
        here.upgrade()
    assert catalogue(engine, "web_sessions") == made


def test_the_check_of_a_new_table_is_enforced(engine: Engine, project: Any, created: Any) -> None:
    here = project(models(3600))
    assert "in_transaction=True" in here.autogenerate()
    here.upgrade()
    here.check()
    assert catalogue(engine, "web_sessions") == created


@pytest.mark.databases("mariadb", "mysql")
def test_a_script_says_what_it_copies(
    before: Any, engine: Engine, project: Any, created: Any
) -> None:
    """It can't ask what runs it, so that one text has to do for MariaDB and MySQL."""
    here = project(models(3600))
    here.revision("op.add_ttl('web_sessions', 3600)")
    here.revision("op.drop_ttl('web_sessions')")
    here.revision("op.add_ttl('web_sessions', 3600, copy_table=True)")
    assert "ALGORITHM=COPY" not in here.script("upgrade", "r1")
    run(engine, here.script("upgrade", "r1"))
    assert catalogue(engine, "web_sessions") == without_a_copy(engine, created)
    run(engine, here.script("upgrade", "r1:r2"))
    script = here.script("upgrade", "r2:r3")
    if engine.url.drivername.startswith("mysql"):
        assert "/*!80016 , ALGORITHM=COPY, LOCK=SHARED */" in script
    run(engine, script)
    assert catalogue(engine, "web_sessions") == created


@pytest.mark.databases("mysql")
def test_a_script_can_not_enforce_a_check_that_is_there(project: Any) -> None:
    here = project(models(3600))
    here.revision("op.alter_ttl('web_sessions', 3600, copy_table=True)")
    with pytest.raises(MigrationRefusedError, match=r"copy_table reads the name"):
        here.script()


@pytest.mark.parametrize("copies", [False, True])
def test_a_column_that_is_taken_over_gets_the_check(
    engine: Engine, project: Any, created: Any, *, copies: bool
) -> None:
    models().metadata.create_all(engine)
    fill(engine, "web_sessions")
    with engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE web_sessions ADD COLUMN ttl INTEGER")
    here = project(models(3600))
    here.revision(f"op.add_ttl('web_sessions', 3600, keep_ttl=True, copy_table={copies})")
    here.upgrade()
    here.check()
    made = created if copies else without_a_copy(engine, created)
    assert catalogue(engine, "web_sessions") == made
    assert takes_wrong_ttls(engine) is (is_mysql(engine) and not copies)


@pytest.mark.databases("postgres", "mariadb")
def test_a_check_that_is_missing_is_put_back(engine: Engine, project: Any) -> None:
    model = models(3600)
    model.metadata.create_all(engine)
    fill(engine, "web_sessions")
    made = catalogue(engine, "web_sessions")
    dropped = "MODIFY ttl INT"
    if engine.dialect.name == "postgresql":
        dropped = "DROP CONSTRAINT ck_web_sessions_ttl"
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER TABLE web_sessions {dropped}")
        connection.execute(WRONG)
    here = project(model)
    assert "op.alter_ttl('web_sessions', 3600)" in here.autogenerate()
    with pytest.raises(MigrationRefusedError, match=r"1 rows have an invalid ttl"):
        here.upgrade()
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE web_sessions SET ttl = NULL")
    here.upgrade()
    here.check()
    assert catalogue(engine, "web_sessions") == made


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("end", [")", "-- the end (or so)\n)", ") WITHOUT ROWID"])
def test_sqlites_definition_gets_the_check_wherever_it_ends(
    engine: Engine, project: Any, end: str
) -> None:
    definition = "id VARCHAR(40) PRIMARY KEY NOT NULL, views INTEGER NOT NULL, ttl INTEGER"
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE TABLE web_sessions ({definition} {end}")
    fill(engine, "web_sessions")
    here = project(models(3600))
    here.autogenerate()
    here.upgrade()
    here.check()
    assert not takes_wrong_ttls(engine)
    here.revision("op.drop_ttl('web_sessions')", "op.add_ttl('web_sessions', 60)")
    here.upgrade()
    with engine.connect() as connection:
        assert "ttl" not in connection.scalar(text("SELECT sql FROM sqlite_master"))
