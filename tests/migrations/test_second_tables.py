"""Migrations read and write all rows of a table, through whichever Table object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import MetaData, Table, select, text, update

from tests.clocks import age
from tests.migrations.conftest import fill, models

if TYPE_CHECKING:
    from sqlalchemy import Engine

STAMPS = text("SELECT id, _ts FROM web_sessions ORDER BY id")


@pytest.fixture
def model(engine: Engine) -> Any:
    """A model with TTL whose table has two live rows and an expired one."""
    made = models(3600)
    made.metadata.create_all(engine)
    fill(engine, "web_sessions")
    with engine.begin() as connection:
        age(connection, "web_sessions", "b", 7200)
    return made


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")
def test_a_migration_changes_all_rows_of_a_reflected_table_and_stamps_none(
    engine: Engine, model: Any, project: Any
) -> None:
    with engine.connect() as connection:
        before = connection.execute(STAMPS).all()
    here = project(model)
    here.revision(
        "bind = op.get_bind()\n"
        "    t = sa.Table('web_sessions', sa.MetaData(), autoload_with=bind)\n"
        "    assert len(bind.execute(sa.select(t)).all()) == 3\n"
        "    assert bind.execute(t.update().values(views=7)).rowcount == 3\n"
        "    op.execute(t.delete().where(t.c.id == 'c'))"
    )
    here.upgrade()
    with engine.connect() as connection:
        assert connection.execute(STAMPS).all() == before[:2]
        table = Table("web_sessions", MetaData(), *(c._copy() for c in model.__table__.c))
        assert connection.execute(select(table.c.id)).all() == [("a",)]
        assert connection.execute(update(table).values(views=1)).rowcount == 1


# On MariaDB, Alembic would copy the values of virtual columns too.
@pytest.mark.databases("sqlite", "postgres")
@pytest.mark.parametrize("how", ["reflected", "the model's"])
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")
def test_batch_mode_copies_all_rows(engine: Engine, model: Any, how: str) -> None:
    options = {} if how == "reflected" else {"copy_from": model.__table__}
    with engine.begin() as connection:
        before = connection.execute(STAMPS).all()
        op = Operations(MigrationContext.configure(connection))
        with op.batch_alter_table("web_sessions", recreate="always", **options) as batch:
            batch.alter_column("views", nullable=True)
        assert connection.execute(STAMPS).all() == before
