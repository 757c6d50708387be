"""Alembic and tables that are cut by time: their partitions are in no model, and stay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from alembic.autogenerate import produce_migrations
from alembic.migration import MigrationContext
from sqlalchemy import text

import ttl_odm.alembic  # noqa: F401 (as in env.py)
from tests.sql.cutting import log, visits

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = [pytest.mark.databases("postgres"), pytest.mark.usefixtures("noon")]


@pytest.mark.parametrize("declare", [log, visits])
def test_autogenerate_drops_no_partition(engine: Engine, declare: Any) -> None:
    model = declare()
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE of_nobody (id int)"))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        upgrade = produce_migrations(context, model.metadata).upgrade_ops
    assert upgrade is not None
    assert [type(op).__name__ for op in upgrade.ops] == ["DropTableOp"]
    assert upgrade.ops[0].table_name == "of_nobody"  # type: ignore[attr-defined]
