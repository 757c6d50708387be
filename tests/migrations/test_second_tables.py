"""Migrations read and write all rows of a table, through whichever Table object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, Table, select, text, update

from tests.clocks import age
from tests.migrations.conftest import fill, models

if TYPE_CHECKING:
    from sqlalchemy import Engine

STAMPS = text("SELECT id, _ts FROM moved_sessions ORDER BY id")


@pytest.fixture
def model(engine: Engine) -> Any:
    """A model with TTL whose table has two live rows and an expired one."""
    made = models(3600, "moved_sessions")
    made.metadata.create_all(engine)
    fill(engine, "moved_sessions")
    with engine.begin() as connection:
        age(connection, "moved_sessions", "b", 7200)
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
        "    t = sa.Table('moved_sessions', sa.MetaData(), autoload_with=bind)\n"
        "    assert len(bind.execute(sa.select(t)).all()) == 3\n"
        "    assert bind.execute(t.update().values(views=7)).rowcount == 3\n"
        "    op.execute(t.delete().where(t.c.id == 'c'))"
    )
    here.upgrade()
    with engine.connect() as connection:
        assert connection.execute(STAMPS).all() == before[:2]
        table = Table("moved_sessions", MetaData(), *(c._copy() for c in model.__table__.c))
        assert connection.execute(select(table.c.id)).all() == [("a",)]
        assert connection.execute(update(table).values(views=1)).rowcount == 1


# An application that brings its database up to date when it starts, on its own engine.
def test_what_a_migration_compiles_has_the_policy_once_it_is_over(
    engine: Engine, model: Any
) -> None:
    table = Table("moved_sessions", MetaData(), *(c._copy() for c in model.__table__.c))
    read, written = select(table.c.id), update(table).values(views=1)

    def migrate(connection: Any) -> Any:
        for _ in range(2):
            assert len(connection.execute(read).all()) == 3
            assert connection.execute(written).rowcount == 3
        return []

    def upgrade() -> None:
        script = ScriptDirectory(".")
        context = EnvironmentContext(Config(), script, fn=lambda *_: migrate(connection))
        with context, engine.begin() as connection:
            context.configure(connection=connection)
            context.run_migrations()

    upgrade()
    for _ in range(2):
        with engine.begin() as connection:
            assert len(connection.execute(read).all()) == 2
            assert connection.execute(written).rowcount == 2


# On MariaDB, Alembic would copy the values of virtual columns too.
@pytest.mark.databases("sqlite", "postgres")
@pytest.mark.parametrize("how", ["reflected", "the model's"])
@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")
def test_batch_mode_copies_all_rows(engine: Engine, model: Any, how: str) -> None:
    options = {} if how == "reflected" else {"copy_from": model.__table__}
    with engine.begin() as connection:
        before = connection.execute(STAMPS).all()
        op = Operations(MigrationContext.configure(connection))
        with op.batch_alter_table("moved_sessions", recreate="always", **options) as batch:
            batch.alter_column("views", nullable=True)
        assert connection.execute(STAMPS).all() == before
