"""Migrations of tables whose names mean something to SQL, to a driver or to Python."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import column, func, insert, select, table, text

from tests.migrations.conftest import models
from tests.sql.test_odd_names import let_pass, odd, skip_where_sqlalchemy_fails
from ttl_odm.database_sweep.alembic.installation import job_statements
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.dialects import index_name
from ttl_odm.sqlalchemy.policy.bindings import binding_of

if TYPE_CHECKING:
    from sqlalchemy import Engine


_ALONE = (
    "SELECT GET_LOCK(CONCAT('ttl_odm.', LEFT(SHA2(CONCAT(DATABASE(), '.', :name), 256), 48)), 120)"
)


def filled(engine: Engine, name: str) -> Any:
    """A model whose table has rows, and no policy yet."""
    skip_where_sqlalchemy_fails(engine, name)
    model = models(name=name)
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(model), [{"id": key, "views": 0} for key in "abc"])
    return model


@pytest.mark.databases("mariadb", "mysql", "postgres")
@pytest.mark.usefixtures("scheduler")
@odd
def test_a_table_of_any_name_is_swept_by_the_database(
    engine: Engine, project: Any, name: str
) -> None:
    model = filled(engine, name)
    here = project(models(3600, name))
    rls = ", enforce='rls'" * (engine.dialect.name == "postgresql")
    options = "max_fraction=0.9, enforce='view', touch_trigger=True"
    here.revision(
        f"op.add_ttl({name!r}, 60, sweep='database', {options})\n"
        f"    op.alter_ttl({name!r}, 3600{rls})",
        f"op.drop_ttl({name!r})",
    )
    here.upgrade()
    live = table(index_name(name, "live").removeprefix("ix_"), column("id"))
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if engine.dialect.name != "postgresql":  # whose job nothing calls but the test
            assert connection.scalar(text(_ALONE), {"name": name}) == 1
        let_pass(connection, model.__table__, 7_200, "c")
        assert connection.scalar(select(func.count()).select_from(live)) == 1
        job = index_name(name, "ttl_sweep").removeprefix("ix_")
        quoted = connection.dialect.identifier_preparer.quote(job)
        connection.exec_driver_sql(f"CALL {quoted}()")
        state = read_job(connection, None, name)
        assert state is not None
        assert (state.deleted, state.outcome) == (2, "swept")
    here.downgrade()


@pytest.mark.databases("mariadb", "mysql", "postgres")
@pytest.mark.usefixtures("scheduler")
@odd
def test_a_printed_job_is_what_a_client_of_the_database_runs(engine: Engine, name: str) -> None:
    model = models(3600, name)
    model.metadata.create_all(engine)
    binding = binding_of(model.__table__)
    assert binding is not None
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        statements = job_statements(connection, binding)
        with closing(connection.connection.cursor()) as raw:  # which formats nothing
            for statement in statements:
                if not statement.startswith("SELECT cron."):  # for the database that has it
                    raw.execute(statement)
        state = read_job(connection, None, name)
        assert state is not None
        assert state.default == "3600"


@pytest.mark.databases("sqlite")
@odd
def test_a_view_of_a_table_of_any_name_has_its_live_rows(
    engine: Engine, project: Any, name: str
) -> None:
    model = filled(engine, name)
    here = project(models(3600, name))
    here.revision(
        f"op.add_ttl({name!r}, 3600, enforce='view', touch_trigger=True)", f"op.drop_ttl({name!r})"
    )
    here.upgrade()
    live = table(index_name(name, "live").removeprefix("ix_"), column("id"))
    with engine.begin() as connection:
        let_pass(connection, model.__table__, 7_200, "c")
        assert connection.scalar(select(func.count()).select_from(live)) == 1
    here.downgrade()


@pytest.mark.databases("sqlite")
@odd
def test_autogenerate_finds_the_check_of_a_table_of_any_name(
    engine: Engine, project: Any, name: str
) -> None:
    filled(engine, name)
    here = project(models(3600, name))
    here.autogenerate()
    here.upgrade()
    here.check()
    here.downgrade()
