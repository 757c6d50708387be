"""Tables that MariaDB or MySQL can't change instantly are copied, if a migration may do so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from tests.migrations.projects import catalogue, is_mysql
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
