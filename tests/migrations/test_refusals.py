"""What can't be done is refused before the first DDL, in words that say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from alembic.util.exc import CommandError
from sqlalchemy import DateTime, create_engine, event, inspect, text
from sqlalchemy.exc import OperationalError, PendingRollbackError
from sqlalchemy.orm import mapped_column

from tests.migrations.conftest import models
from tests.migrations.projects import Project, catalogue
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.alembic.runner import Settings, _reporting_losses
from ttl_odm.errors import TTLConfigurationError, TTLError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine


@pytest.fixture
def refused(engine: Engine, project: Any) -> Any:
    """Run an operation on a table; return the error, and check that nothing was changed."""
    model = models(created_at=mapped_column(DateTime))
    model.metadata.create_all(engine)

    def attempt(operation: str, on: Engine = engine, **options: Any) -> str:
        tables = inspect(engine).get_table_names()
        before = catalogue(engine, "web_sessions")
        here = project(model, **options)
        here.engine = on
        here.revision(operation)
        with pytest.raises(TTLConfigurationError) as caught:
            here.upgrade()
        assert isinstance(caught.value, CommandError)
        assert catalogue(engine, "web_sessions") == before
        assert {*inspect(engine).get_table_names()} - {*tables} <= {"alembic_version"}
        return str(caught.value)

    return attempt


@pytest.mark.databases("sqlite")  # none of these asks the database what it is
@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("op.add_ttl('web_session', 60)", "no table 'web_session' .* mean 'web_sessions'"),
        (
            "op.add_ttl('web_sessions', 0)",
            r"op.add_ttl\('web_sessions'\) default_ttl = 0 is not a ttl",
        ),
        (
            "op.add_ttl('web_sessions', 60, backfill='created')",
            "no column 'created' .* it has .*id",
        ),
        ("op.add_ttl('web_sessions', 60, backfill='views')", "INTEGER.* dates and times"),
        (
            "op.add_ttl('web_sessions', 60, sweep='never')",
            "sweep='never': give 'index', 'scan' or 'database'",
        ),
        ("op.add_ttl('web_sessions', 60, max_expired_now=10)", "number from 0 to 1"),
        ("op.add_ttl('web_sessions', 60, enforce='sudo')", "enforce='sudo': give 'view' or 'rls'"),
        ("op.alter_ttl('web_sessions', 60)", "has no TTL.*op.add_ttl"),
        ("op.drop_ttl('web_sessions')", "has no TTL"),
    ],
)
def test_a_mistake_is_named(refused: Any, operation: str, words: str) -> None:
    import re

    assert re.search(words, refused(operation)), refused


@pytest.mark.databases("sqlite")
def test_a_database_without_jobs_does_not_sweep_by_itself(refused: Any) -> None:
    message = refused("op.add_ttl('web_sessions', 60, sweep='database')")
    assert "is for MariaDB, MySQL and PostgreSQL; this is sqlite" in message


def test_ttl_that_is_there_already_is_not_added_again(engine: Engine, project: Any) -> None:
    model = models(60)
    model.metadata.create_all(engine)
    before = catalogue(engine, "web_sessions")
    here = project(model)
    here.revision("op.add_ttl('web_sessions', 60)")
    with pytest.raises(MigrationRefusedError, match=r"already has TTL.*op\.alter_ttl"):
        here.upgrade()
    assert catalogue(engine, "web_sessions") == before


def test_a_column_called_ttl_is_only_taken_over_when_asked(engine: Engine, project: Any) -> None:
    from sqlalchemy import Integer, String

    models(ttl=..., name="texts", ttl_=mapped_column("ttl", String(8))).metadata.create_all(engine)
    models(name="numbers", ttl_=mapped_column("ttl", Integer)).metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO numbers (id, views, ttl) VALUES ('a', 0, 0)"))
    here = project()
    here.revision("op.add_ttl('numbers', 60)")
    with pytest.raises(MigrationRefusedError, match="keep_ttl=True"):
        here.upgrade()
    here.edit("60", "60, keep_ttl=True")
    with pytest.raises(MigrationRefusedError, match="1 rows have an invalid ttl"):
        here.upgrade()
    here.edit("'numbers'", "'texts'")
    with pytest.raises(MigrationRefusedError, match="whole number of seconds"):
        here.upgrade()


@pytest.mark.databases("sqlite", "mariadb", "mysql")
@pytest.mark.parametrize("name", ["TTL", "_TS"])
def test_a_column_whose_name_differs_in_case_is_named(
    engine: Engine, project: Any, name: str
) -> None:
    from sqlalchemy import Integer

    models(other=mapped_column(name, Integer)).metadata.create_all(engine)
    before = catalogue(engine, "web_sessions")
    here = project()
    here.revision("op.add_ttl('web_sessions', 60)")
    with pytest.raises(MigrationRefusedError, match=f"has a column '{name}', which this database"):
        here.upgrade()
    assert catalogue(engine, "web_sessions") == before


def test_too_many_rows_that_would_expire_at_once_are_counted(refused: Any, engine: Engine) -> None:
    with engine.begin() as connection:
        for number in range(20):
            at = "2026-01-01 00:00:00" if number < 5 else "2100-01-01 00:00:00"
            connection.execute(
                text(
                    f"INSERT INTO web_sessions (id, views, created_at) VALUES ('{number}', 0, '{at}')"  # noqa: E501, S608
                )
            )
    operation = "op.add_ttl('web_sessions', 3600, backfill='created_at', max_expired_now=%s)"
    said = refused(operation % 0.1)
    assert "5 of 20 rows (25.0%) would expire at once" in said
    assert "max_expired_now=0.1 allows 10.0%" in said


def test_a_lower_default_is_refused_by_the_same_limit(engine: Engine, project: Any) -> None:
    models(3600).metadata.create_all(engine)
    past = {"postgresql": "now() - interval '10 minutes'"}.get(
        engine.dialect.name,
        "1700000000000" if engine.dialect.name == "sqlite" else "1700000000000000",
    )
    with engine.begin() as connection:
        connection.execute(
            text(f"INSERT INTO web_sessions (id, views, _ts) VALUES ('a', 0, {past})")  # noqa: S608
        )
        connection.execute(
            text(f"INSERT INTO web_sessions (id, views, ttl, _ts) VALUES ('b', 0, -1, {past})")  # noqa: S608
        )
    here = project()
    here.revision("op.alter_ttl('web_sessions', 60, max_expired_now=0.1)")
    with pytest.raises(MigrationRefusedError, match="1 of 2 rows"):
        here.upgrade()


def test_a_transaction_of_the_caller_is_refused(before: Any, engine: Engine) -> None:
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    with engine.begin() as connection:
        connection.execute(text("SELECT 1"))
        operations: Any = Operations(MigrationContext.configure(connection))
        with pytest.raises(MigrationRefusedError, match=r"engine\.connect\(\)"):
            operations.add_ttl("web_sessions", 60)


def test_a_setting_that_is_none_is_refused(refused: Any) -> None:
    said = refused("op.add_ttl('web_sessions', 60)", ttl_odm={"lock_timeuot": 1})
    assert "the settings are lock_timeout, give_up_after, batch_rows" in said


@pytest.mark.parametrize("value", [0, -1, True])
def test_a_setting_must_be_greater_than_0(value: float) -> None:
    from alembic.migration import MigrationContext

    context = MigrationContext.configure(
        dialect_name="sqlite", opts={"ttl_odm": {"batch_rows": value}}
    )
    with pytest.raises(MigrationRefusedError, match="each a number greater than 0"):
        Settings.of(context)


def test_a_lost_connection_is_reported_behind_the_errors_that_follow() -> None:
    gone = OperationalError("SELECT 1", None, Exception("gone"), connection_invalidated=True)
    after = PendingRollbackError("no transaction")
    with pytest.raises(PendingRollbackError, match="no transaction"), _reporting_losses():
        raise after
    after.__context__ = gone  # as if it was raised while that was handled
    for error in (gone, after):
        with pytest.raises(TTLError, match="was lost: gone"), _reporting_losses():
            raise error


@pytest.fixture
def reader(engine: Engine, tmp_path: Path) -> Iterator[Engine]:
    """The same database as a user who may only read it."""
    url = engine.url
    if engine.dialect.name == "sqlite":
        other = create_engine(url)
        event.listen(other, "connect", lambda raw, _: raw.execute("PRAGMA query_only = ON").close())
        yield other
        other.dispose()
        return
    name = f"reader_{url.database}"[-30:]
    host = "" if engine.dialect.name == "postgresql" else "@'%'"
    grant = "SELECT, INSERT, UPDATE, DELETE ON "
    with engine.connect() as connection:
        if host:
            connection.execute(text(f"CREATE USER {name}{host}"))
            connection.execute(text(f"GRANT {grant}{url.database}.* TO {name}{host}"))
        else:
            connection.execute(text(f"CREATE ROLE {name} LOGIN"))
            connection.execute(text(f"GRANT {grant}ALL TABLES IN SCHEMA public TO {name}"))
            connection.execute(text(f"GRANT CREATE, USAGE ON SCHEMA public TO {name}"))
        connection.commit()
    other = create_engine(url.set(username=name))
    yield other
    other.dispose()
    with engine.connect() as connection:
        if not host:
            connection.execute(text(f"DROP OWNED BY {name}"))
        connection.execute(text(f"DROP {'USER' if host else 'ROLE'} {name}{host}"))
        connection.commit()


def test_a_user_without_the_right_is_told_before_anything_happens(
    engine: Engine, before: Any, reader: Engine, tmp_path: Path
) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
        )
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:
            name = reader.url.username
            connection.execute(text(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}"))
    made = catalogue(engine, "web_sessions")
    here = Project(tmp_path / "reader", reader)
    here.revision("op.add_ttl('web_sessions', 60)")
    with pytest.raises(MigrationRefusedError, match=r"may not change table .* Nothing was changed"):
        here.upgrade("r1")
    assert catalogue(engine, "web_sessions") == made
    assert "ttl_odm_migration" not in inspect(engine).get_table_names()


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_partitions_of_partitions_get_their_indexes_only_under_a_lock_that_was_asked_for(
    engine: Engine, project: Any
) -> None:
    with engine.begin() as connection:
        connection.execute(
            text("CREATE TABLE web_sessions (id INT PRIMARY KEY, views INT) PARTITION BY HASH (id)")
        )
        connection.execute(
            text(
                "CREATE TABLE q PARTITION OF web_sessions FOR VALUES WITH (MODULUS 1, REMAINDER 0) "
                "PARTITION BY HASH (id)"
            )
        )
        connection.execute(
            text("CREATE TABLE p PARTITION OF q FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
        )
        connection.execute(text("INSERT INTO web_sessions VALUES (1, 0)"))
    here = project()
    here.revision("op.add_ttl('web_sessions', 60)")
    with pytest.raises(MigrationRefusedError, match=r"partitioned themselves.*in_transaction=True"):
        here.upgrade()
    here.edit("60", "60, in_transaction=True")
    here.upgrade()
    assert "_ts" in str(catalogue(engine, "p"))
    here.revision("op.drop_ttl('web_sessions')")
    here.upgrade()
    assert "_ts" not in str(catalogue(engine, "p"))
