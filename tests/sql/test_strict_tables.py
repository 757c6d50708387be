"""SQLite's STRICT tables, in which a column has one of five types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateTable

from tests.sql.sweeping import HOUR, add, cart, left, sweeps
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = pytest.mark.databases("sqlite")


@sweeps
def test_a_strict_table_may_have_a_policy(engine: Engine, sweep: str) -> None:
    model = cart(sweep=sweep)
    with engine.begin() as connection:
        # SQLAlchemy has the option sqlite_strict from 2.0.37 on.
        connection.execute(text(f"{CreateTable(model.__table__).compile(engine)} STRICT"))
        for index in model.__table__.indexes:
            index.create(connection)
        add(connection, "carts", [(1, None, 2 * HOUR), (2, 60, HOUR), (3, None, 0)])
    with Session(engine) as session:
        session.add(model(id=1))
        session.commit()
        assert set(session.scalars(select(model.id))) == {1, 3}
    assert Sweeper(engine, model).run_once().deleted == 1
    with engine.connect() as connection:
        assert left(connection, model) == {1, 3}
