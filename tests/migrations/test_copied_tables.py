"""Tables that MariaDB or MySQL can't change instantly are copied, if a migration may do so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DateTime, text
from sqlalchemy.orm import mapped_column

from tests.migrations.conftest import models
from tests.migrations.projects import catalogue, is_mysql
from ttl_odm import ExpireAt
from ttl_odm.alembic import MigrationRefusedError

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = [pytest.mark.databases("mariadb", "mysql"), pytest.mark.every_server]

BODY = "ADD body TEXT, ADD FULLTEXT INDEX words (body)"
COMPRESSED = "ROW_FORMAT=COMPRESSED"
FUNCTIONAL = "ADD INDEX next_views ((views + 1))"
VIRTUAL = "ADD next_views INT AS (views + 1) VIRTUAL, ADD INDEX (next_views)"


@pytest.mark.parametrize("shape", [BODY, COMPRESSED, FUNCTIONAL, VIRTUAL])
def test_a_table_is_copied_where_it_can_not_be_changed_instantly(
    before: Any, engine: Engine, project: Any, shape: str
) -> None:
    del before
    if shape == FUNCTIONAL and not is_mysql(engine):
        pytest.skip("MariaDB has no indexes over expressions")
    with engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE web_sessions {shape}"))
    old = catalogue(engine, "web_sessions")
    here = project()
    here.revision("op.add_ttl('web_sessions', 3600, backfill=None)", "op.drop_ttl('web_sessions')")
    if not (is_mysql(engine) and shape == VIRTUAL):
        with pytest.raises(MigrationRefusedError, match=r"without copying it.*copy_table=True"):
            here.upgrade()
    here.edit("backfill=None", "backfill=None, copy_table=True")
    here.edit("drop_ttl('web_sessions')", "drop_ttl('web_sessions', copy_table=True)")
    here.upgrade()
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO web_sessions (id, views) VALUES ('d', 0)"))
        written = text("SELECT ttl FROM web_sessions WHERE _ts > 1700000000000000 ORDER BY id")
        assert connection.scalars(written).all() == [-1, -1, -1, None]
    here.downgrade()
    assert catalogue(engine, "web_sessions") == old


def test_a_table_of_another_engine_is_rejected_before_any_change(
    before: Any, engine: Engine, project: Any
) -> None:
    del before
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE web_sessions ENGINE=MyISAM"))
    old = catalogue(engine, "web_sessions")
    here = project()
    added = "op.add_ttl('web_sessions', 3600, copy_table=True)"
    here.revision(added, "op.drop_ttl('web_sessions', copy_table=True)")
    with pytest.raises(MigrationRefusedError, match=r"engine MyISAM.*sweep='scan'.*ENGINE=InnoDB"):
        here.upgrade()
    assert catalogue(engine, "web_sessions") == old
    here.edit("3600, ", "3600, sweep='scan', ")
    here.upgrade()
    here.downgrade()
    assert catalogue(engine, "web_sessions") == old


def test_an_index_that_another_engine_can_not_build_is_left_to_alembic(
    engine: Engine, project: Any
) -> None:
    def events(**declared: Any) -> Any:
        options = {f"{name}_engine": "MyISAM" for name in ("mysql", "mariadb")}
        ends = mapped_column(DateTime)
        return models(name="events", ends=ends, __table_args__=options, **declared)

    events().metadata.create_all(engine)
    here = project(events(__ttl__=ExpireAt("ends")))
    here.autogenerate()
    with pytest.raises(MigrationRefusedError, match=r"'ix_events_ends_ttl'.*op\.create_index"):
        here.upgrade()
    added = "op.add_ttl('events', ttl_odm.ExpireAt('ends'))"
    here.edit(added, "op.create_index('ix_events_ends_ttl', 'events', ['ends'])")
    here.upgrade()
    here.check()
