"""Raw SQL that names rows which follow others: a guarded engine, and `assert_no_leaks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, select, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.policies import know_only
from tests.sql.following import Cart, Item, Note, fill
from ttl_odm.sqlalchemy import RawSQLError, TTLMixin, guard
from ttl_odm.testing import assert_no_leaks

if TYPE_CHECKING:
    from sqlalchemy import Engine

READS = [
    "SELECT id FROM items ORDER BY id",
    "SELECT i.id FROM items i JOIN carts c ON c.id = i.cart_id ORDER BY i.id",
    "SELECT item_id FROM remarks WHERE item_id IN (SELECT id FROM items) ORDER BY item_id",
]
CONDITION = "SELECT items.id FROM items JOIN carts ON carts.id = cart_id WHERE carts._ts IS NULL"


@pytest.fixture(autouse=True)
def _rows(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    know_only(monkeypatch, "tests.sql.following", __name__)
    fill(engine)


@pytest.mark.parametrize("sql", READS)
def test_raw_sql_is_given_live_rows(engine: Engine, sql: str) -> None:
    guard(engine, raw="rewrite")
    with engine.connect() as connection:
        assert connection.scalars(text(sql)).all() == [10, 11]
        assert connection.exec_driver_sql(sql).scalars().all() == [10, 11]
        everything = connection.execution_options(include_expired=True)
        assert everything.scalars(text(sql)).all() == [10, 11, 20, 21]


def test_an_error_names_the_column_of_the_parent(engine: Engine) -> None:
    guard(engine, raw="raise")
    with engine.connect() as connection:
        with pytest.raises(RawSQLError, match=r"names items without a condition on carts\._ts"):
            connection.execute(text("DELETE FROM items"))
        with pytest.raises(RawSQLError, match="names remarks without"):
            connection.execute(text("SELECT id FROM remarks"))
        assert connection.scalars(text(CONDITION)).all() == []
        connection.execute(text("INSERT INTO items (id, cart_id, name) VALUES (12, 1, 'tea')"))


def test_a_second_table_is_as_raw_as_text(engine: Engine) -> None:
    second = Table("items", MetaData(), Column("id", Integer), Column("cart_id", Integer))
    guard(engine, raw="rewrite")
    with engine.connect() as connection:
        assert connection.scalars(select(second.c.id).order_by("id")).all() == [10, 11]
    with assert_no_leaks(engine), engine.connect() as connection:
        connection.execute(select(second.c.id))


def test_leaks_are_found(engine: Engine) -> None:
    with (
        pytest.raises(AssertionError, match="items: SELECT id FROM items"),
        assert_no_leaks(engine),
        engine.connect() as connection,
    ):
        connection.execute(text("SELECT id FROM items"))
    with assert_no_leaks(engine), engine.connect() as connection:
        connection.execute(text(CONDITION))
        connection.execute(select(Item).join(Cart))
        connection.execute(select(Note))


@pytest.mark.slow
def test_a_name_that_follows_in_one_model_only_is_not_rewritten(engine: Engine) -> None:
    class Other(DeclarativeBase):
        pass

    class Lasting(TTLMixin, Other):
        __tablename__ = "items"
        __ttl__ = 3_600

        id: Mapped[int] = mapped_column(primary_key=True)

    guard(engine, raw="rewrite")
    with (
        engine.connect() as connection,
        pytest.raises(RawSQLError, match=r"Item and .*Lasting have different policies|Lasting and"),
    ):
        connection.execute(text("SELECT id FROM items"))
    Other.registry.dispose()
    del Lasting
