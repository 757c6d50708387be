"""Tables that inherit another on PostgreSQL (INHERITS): their rows are rows of that table, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from tests.sql.sweeping import cart, left
from ttl_odm.sqlalchemy.sweep.counts import estimate
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = pytest.mark.databases("postgres")

ROWS = 6_000
"""Each takes a sixth of a page, so that these are more pages than a sweep reads at once."""


@pytest.fixture(params=["index", "scan"])
def model(request: pytest.FixtureRequest, engine: Engine, made: Any) -> Any:
    """An empty table, whose grandchild has all rows; every other one has expired."""
    carts = made(cart(sweep=request.param))
    with engine.begin() as connection:
        for statement in (
            "CREATE TABLE carts_child (note text) INHERITS (carts)",
            "CREATE TABLE carts_grandchild () INHERITS (carts_child)",
            (
                "INSERT INTO carts_grandchild (id, _ts, note) SELECT i, "
                "now() - mod(i, 2) * interval '2 hours', repeat('x', 1200) "
                "FROM generate_series(1, :rows) i"
            ),
            "ANALYZE carts_grandchild",
        ):
            values = {"rows": ROWS} if ":rows" in statement else {}
            connection.execute(text(statement), values)
    return carts


def test_rows_of_tables_that_inherit_are_swept(engine: Engine, model: Any) -> None:
    (target,) = Sweeper(engine, model).run_once().targets
    assert target.deleted == ROWS // 2
    with engine.connect() as connection:
        assert left(connection, model) == set(range(2, ROWS + 1, 2))


def test_rows_of_tables_that_inherit_are_estimated(engine: Engine, model: Any) -> None:
    with engine.connect() as connection:
        # A backend says what it has written when it is idle, or asked to.
        connection.execute(text("SELECT pg_stat_force_next_flush()"))
        connection.commit()
        assert estimate(connection, model.__table__) == ROWS
