"""Asynchronous sessions and connections; each path opens an engine of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sqlalchemy import NullPool, func, select
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import selectinload

from tests.leaks.paths_writes import renewal
from tests.leaks.registry import path, rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy.orm import Session

    from tests.leaks.worlds import World


def async_engine(s: Session, m: World) -> AsyncEngine:
    """An engine on the database of a session, with the same options."""
    engine: Any = s.get_bind()
    options = dict(engine.get_execution_options())
    return create_async_engine(m.async_url, poolclass=NullPool, execution_options=options)


def in_session(s: Session, m: World, work: Callable[[AsyncSession], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with AsyncSession(async_engine(s, m)) as session:
            return await work(session)

    return asyncio.run(run())


def on_connection(s: Session, m: World, work: Callable[[AsyncConnection], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with async_engine(s, m).connect() as connection:
            return await work(connection)

    return asyncio.run(run())


@path("AsyncSession: entities, count and a join")
def _(s: Session, m: World) -> Any:
    async def work(session: AsyncSession) -> Any:
        names = sorted(customer.name for customer in await session.scalars(select(m.Customer)))
        count = await session.scalar(select(func.count()).select_from(m.Order))
        joined = select(m.Customer.name, m.Order.number).outerjoin(m.Customer.orders)
        return names, count, rows(await session.execute(joined))

    return in_session(s, m, work)


@path("AsyncSession: get() and get_one()")
def _(s: Session, m: World) -> Any:
    async def work(session: AsyncSession) -> Any:
        found = [await session.get(m.Customer, key) for key in range(1, 7)]
        return [customer and customer.name for customer in found]

    return in_session(s, m, work)


@path("AsyncSession: selectinload, and relationships that are awaited")
def _(s: Session, m: World) -> Any:
    async def work(session: AsyncSession) -> Any:
        statement = select(m.Region).options(selectinload(m.Region.customers))
        regions = (await session.scalars(statement)).all()
        loaded = sorted((r.name, sorted(c.name for c in r.customers)) for r in regions)
        order = await session.get_one(m.Order, 4)
        await session.refresh(order, ["customer"])
        return loaded, order.customer is None

    return in_session(s, m, work)


@path("AsyncSession: stream_scalars()")
def _(s: Session, m: World) -> Any:
    async def work(session: AsyncSession) -> Any:
        found = await session.stream_scalars(select(m.Order))
        return sorted([order.number async for order in found])

    return in_session(s, m, work)


@path("AsyncSession: run_sync() with lazy loading")
def _(s: Session, m: World) -> Any:
    def orders(session: Session) -> Any:
        customers = session.scalars(select(m.Customer))
        return sorted((c.name, [order.number for order in c.orders]) for c in customers)

    return in_session(s, m, lambda session: session.run_sync(orders))


@path("AsyncSession: an object that has expired since it was loaded")
def _(s: Session, m: World) -> Any:
    def answers(session: Session) -> Any:
        ann = session.get_one(m.Customer, 1)
        m.pass_time(session, ann)
        gone = session.get(m.Customer, 1) is None
        if not gone:
            return "there"
        try:
            session.refresh(ann)
        except InvalidRequestError:
            return "gone"
        return "refreshed"

    return in_session(s, m, lambda session: session.run_sync(answers))


@path("AsyncSession: touch()", own=True, writes=True)
def _(s: Session, m: World) -> Any:
    async def work(session: AsyncSession) -> Any:
        return (await session.execute(renewal(m.Order, m.Order.number))).rowcount  # type: ignore[attr-defined]

    return in_session(s, m, work)


@path("AsyncConnection: a table, streamed and not")
def _(s: Session, m: World) -> Any:
    async def work(connection: AsyncConnection) -> Any:
        names = select(m.Customer.__table__.c.name)
        streamed = await connection.stream(names)
        at_once = rows([tuple(row) async for row in streamed])
        return at_once, rows(await connection.execute(names))

    return on_connection(s, m, work)
