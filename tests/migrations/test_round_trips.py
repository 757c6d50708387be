"""TTL is put on a table, taken off, and put on again: the schema is that of create_all()."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DateTime, create_engine, inspect, text
from sqlalchemy.orm import mapped_column

from tests.backends import fresh
from tests.migrations.conftest import models
from tests.migrations.projects import catalogue, without_a_copy
from ttl_odm import ExpireAt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine

    from tests.backends import Backend

# Each server has DDL of its own.
pytestmark = pytest.mark.every_server

Projects = "Callable[..., Project]"


@pytest.fixture
def pristine(backend: Backend, tmp_path: Path) -> Iterator[Engine]:
    """A second database, on which create_all() shows what there should be."""
    folder = tmp_path / "pristine"
    folder.mkdir()
    with fresh(backend.name, folder) as other:
        assert other.sync_url is not None
        engine = create_engine(other.sync_url)
        yield engine
        engine.dispose()


@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["index", "scan"])
def test_the_schema_is_the_one_that_create_all_makes(
    before: Any, engine: Engine, pristine: Engine, project: Any, sweep: str
) -> None:
    model = models(3600, __ttl_sweep__=sweep)
    model.metadata.create_all(pristine)
    here = project(model)
    here.autogenerate()
    plain = catalogue(engine, "web_sessions")
    made = without_a_copy(engine, catalogue(pristine, "web_sessions"))
    for _ in range(2):
        here.upgrade()
        here.check()
        assert catalogue(engine, "web_sessions") == made
        here.downgrade()
        assert catalogue(engine, "web_sessions") == plain
    here.upgrade()
    assert catalogue(engine, "web_sessions") == made
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM web_sessions")) == 3
    assert "ttl_odm_migration" not in inspect(engine).get_table_names()


@pytest.mark.databases("sqlite")
def test_a_strict_table_gets_its_columns(engine: Engine, project: Any) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE web_sessions (id TEXT NOT NULL PRIMARY KEY, views INTEGER) STRICT"
        )
    here = project(models(3600))
    here.revision("op.add_ttl('web_sessions', 3600)", "op.drop_ttl('web_sessions')")
    here.upgrade()
    columns = {each["name"] for each in inspect(engine).get_columns("web_sessions")}
    assert columns == {"id", "views", "_ts", "ttl"}
    here.downgrade()


def test_own_ttls_that_are_to_be_kept_are_kept(before: Any, engine: Engine, project: Any) -> None:
    here = project(models(3600))
    here.revision("op.add_ttl('web_sessions', 3600)", "op.drop_ttl('web_sessions', keep_ttl=True)")
    here.revision("op.drop_ttl('web_sessions', keep_ttl=True)")
    here.revision("op.add_ttl('web_sessions', 3600, keep_ttl=True)")
    here.upgrade("r1")
    with engine.begin() as connection:
        connection.execute(text("UPDATE web_sessions SET ttl = 60 WHERE id = 'a'"))
    here.upgrade("r2")
    assert "_ts" not in {each["name"] for each in inspect(engine).get_columns("web_sessions")}
    here.upgrade("r3")
    here.check()
    with engine.connect() as connection:
        found = connection.execute(text("SELECT id, ttl FROM web_sessions ORDER BY id")).all()
    assert found == [("a", 60), ("b", None), ("c", None)]


def test_old_rows_live_from_the_migration_on_and_new_ones_from_their_insert(
    before: Any, engine: Engine, project: Any
) -> None:
    from datetime import datetime, timedelta, timezone

    from sqlalchemy import insert, select

    model = models(3600)
    here = project(model)
    here.revision("op.add_ttl('web_sessions', 3600)")
    here.upgrade()
    with engine.begin() as connection:
        # By raw SQL, so that the column's default is what stamps it.
        connection.execute(text("INSERT INTO web_sessions (id, views) VALUES ('d', 0)"))
        connection.execute(insert(model.__table__).values(id="e", views=0))
        rows = connection.execute(select(model.id, model.last_modified).order_by(model.id)).all()
    stamps = dict(rows)
    assert stamps["a"] == stamps["b"] == stamps["c"] < stamps["d"] <= stamps["e"]
    assert datetime.now(timezone.utc) - stamps["a"] < timedelta(minutes=5)


@pytest.mark.slow
@pytest.mark.databases("postgres", "sqlite")
def test_names_that_need_quotes_and_schemas_are_taken(
    engine: Engine, pristine: Engine, project: Any
) -> None:
    schema = "Other One" if engine.dialect.name == "postgresql" else None
    options = {"__table_args__": {"schema": schema}, "name": "Web sessions %"}
    plain, model = models(**options), models(60, **options)
    for each in (engine, pristine):
        if schema:
            with each.begin() as connection:
                connection.exec_driver_sql(f'CREATE SCHEMA "{schema}"')
    plain.metadata.create_all(engine)
    model.metadata.create_all(pristine)
    here = project(model, include_schemas=True)
    here.autogenerate()
    name = f'"{schema}"."Web sessions %"' if schema else "Web sessions %"
    for _ in range(2):
        here.upgrade()
        here.check()
        assert catalogue(engine, name) == catalogue(pristine, name)
        here.downgrade()


@pytest.mark.parametrize("name", ["учётные_записи_пользователей", "表" * 20])
def test_names_that_have_more_bytes_than_letters_are_taken(
    engine: Engine, pristine: Engine, project: Any, name: str
) -> None:
    models(name=name).metadata.create_all(engine)
    model = models(60, name=name)
    model.metadata.create_all(pristine)
    here = project(model)
    here.autogenerate()
    for _ in range(2):
        here.upgrade()
        here.check()
        made = without_a_copy(engine, catalogue(pristine, name))
        assert catalogue(engine, name) == made
        here.downgrade()


@pytest.mark.parametrize("column", ["when_this_reservation_of_a_table_for_guests_ends", "終" * 20])
def test_a_column_of_a_long_name_gets_an_index(engine: Engine, project: Any, column: str) -> None:
    def named(**declared: Any) -> Any:
        return models(ends=mapped_column(column, DateTime), **declared)

    named().metadata.create_all(engine)
    here = project(named(__ttl__=ExpireAt(column)))
    here.autogenerate()
    for _ in range(2):
        here.upgrade()
        here.check()
        assert len(inspect(engine).get_indexes("web_sessions")) == 1
        here.downgrade()


def test_naming_conventions_leave_our_names_alone(
    engine: Engine, pristine: Engine, project: Any
) -> None:
    from sqlalchemy import MetaData

    names = {"ck": "ck_%(table_name)s_%(constraint_name)s", "ix": "ix_%(column_0_label)s"}
    plain, model = (
        models(metadata=MetaData(naming_convention=names)),
        models(60, metadata=MetaData(naming_convention=names)),
    )
    plain.metadata.create_all(engine)
    model.metadata.create_all(pristine)
    here = project(model)
    here.autogenerate()
    here.upgrade()
    here.check()
    made = without_a_copy(engine, catalogue(pristine, "web_sessions"))
    assert catalogue(engine, "web_sessions") == made
