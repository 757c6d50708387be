"""Rows that follow a parent, by the asynchronous drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from tests.sql.following import EXPIRED, LIVE, TREES, Base, Cart, Item, Note, fill_on
from ttl_odm.sqlalchemy import ExpiredError
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine


@pytest.fixture(autouse=True)
async def _rows(async_engine: AsyncEngine) -> None:
    async with async_engine.begin() as connection:
        await connection.run_sync(fill_on)


async def counts(engine: AsyncEngine) -> list[int]:
    async with engine.connect() as connection:
        return [
            (await connection.exec_driver_sql(f"SELECT count(*) FROM {table}")).scalar_one()  # noqa: S608
            for table in TREES
        ]


async def test_reads_see_rows_of_live_parents(async_engine: AsyncEngine) -> None:
    async with AsyncSession(async_engine) as session:
        assert (await session.scalars(select(Item.id).order_by(Item.id))).all() == [10, 11]
        assert await session.get(Note, 200) is None
        assert await session.get(Note, 100) is not None


async def test_a_flush_puts_no_row_under_an_expired_parent(async_engine: AsyncEngine) -> None:
    async with AsyncSession(async_engine) as session:
        session.add(Item(id=9, cart_id=EXPIRED))
        with pytest.raises(ExpiredError, match="carts 2"):
            await session.flush()


async def test_core_leaves_such_rows_out(async_engine: AsyncEngine) -> None:
    items: Any = Item.__table__
    dead, alive = {"id": 8, "cart_id": EXPIRED}, {"id": 9, "cart_id": LIVE}
    async with async_engine.begin() as connection:
        await connection.execute(items.insert(), [dead, alive])
        await connection.execute(items.insert(), dead)
        await connection.execute(items.insert(), [dead, {**dead, "id": 7}])
        moved = await connection.execute(
            update(items).where(items.c.id == 9).values(cart_id=EXPIRED)
        )
        assert moved.rowcount == 0
        if connection.dialect.insert_returning:
            returning = items.insert().returning(items.c.id)
            assert (await connection.execute(returning, dead)).all() == []
            assert (await connection.execute(returning, [dead, {**dead, "id": 7}])).all() == []
            some = await connection.execute(returning, [dead, {**alive, "id": 12}])
            assert some.all() == [(12,)]
        keys = (await connection.execute(select(items.c.id).order_by(items.c.id))).scalars().all()
        assert [key for key in keys if key != 12] == [9, 10, 11]


async def test_the_keys_of_expired_rows_are_free(async_engine: AsyncEngine) -> None:
    async with AsyncSession(async_engine) as session, session.begin():
        await session.execute(insert(Item), [{"id": 20, "cart_id": LIVE, "name": "new"}])
        session.add(Cart(id=EXPIRED))
    async with AsyncSession(async_engine) as session:
        assert (await session.get_one(Item, 20)).name == "new"
    assert await counts(async_engine) == [2, 3, 2, 3, 3]


async def test_a_joined_table_that_names_an_expired_parent_moves_no_row(
    async_engine: AsyncEngine,
) -> None:
    items: Any = Item.__table__
    others = items.alias("o")
    named = update(items).where(items.c.id == others.c.id).values(cart_id=others.c.id - 9)
    async with async_engine.begin() as connection:
        await connection.execute(named)  # 10 to the live cart, 11 to the expired one
        rows = await connection.execute(select(items.c.id, items.c.cart_id).order_by(items.c.id))
        assert rows.all() == [(10, LIVE), (11, LIVE)]


async def test_a_sweep_takes_families(async_engine: AsyncEngine) -> None:
    report = await AsyncSweeper(async_engine, Base, lease=False).run_once()
    assert report.outcome == "finished", report.problems
    assert await counts(async_engine) == [1, 2, 2, 1, 3]
