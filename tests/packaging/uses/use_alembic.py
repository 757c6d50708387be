"""A table that gets its ttl from a migration, and loses it again."""

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, inspect

import ttl_odm.alembic

engine = create_engine("sqlite:///migrated.sqlite3")
with engine.connect() as connection:
    connection.exec_driver_sql("CREATE TABLE carts (id INTEGER PRIMARY KEY)")
    connection.commit()
    op = Operations(MigrationContext.configure(connection))
    op.add_ttl("carts", 3600, backfill="now")
    assert {each["name"] for each in inspect(connection).get_columns("carts")} == {
        *("id", "_ts", "ttl")
    }
    op.drop_ttl("carts")
    assert [each["name"] for each in inspect(connection).get_columns("carts")] == ["id"]
engine.dispose()
assert ttl_odm.alembic.__all__
