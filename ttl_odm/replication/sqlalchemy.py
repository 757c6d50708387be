"""The throttle for an `Engine` or an `AsyncEngine`, which asks its replicas."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine, NullPool, create_engine

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.replication.families import Questions, Rows, answer
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.sweep.store import AsyncSQLAlchemyStore, SQLAlchemyStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.replication.families import Question
    from ttl_odm.sweeper.options import Throttle


def throttle_of(engine: Any, at_most: float, replicas: Sequence[Any]) -> Throttle:
    """Make the throttle; see `ttl_odm.replication.ReplicationLag`."""
    if isinstance(engine, (SQLAlchemyStore, AsyncSQLAlchemyStore)):
        engine = engine.engine
    is_async = isinstance(engine, compat.async_types("AsyncEngine"))
    kind = type(engine)
    if any(not isinstance(replica, kind) for replica in replicas):
        raise TTLConfigurationError(f"replicas = {replicas!r}: give an {kind.__name__} for each.")
    known = {replica.url.render_as_string(): replica for replica in replicas}
    questions = Questions(engine.dialect.name, at_most, known)
    return _asynchronous(engine, questions) if is_async else _synchronous(engine, questions)


def _server_of(question: Question, engine: Any, reach: Callable[[tuple[str, int]], Any]) -> Any:
    """Return the engine of the server that a question is for."""
    if question.place is not None:
        return reach(question.place)
    return engine if question.known is None else question.known


def _synchronous(engine: Engine, questions: Questions) -> Throttle:
    @cache
    def reach(place: tuple[str, int]) -> Engine:
        # One connection, which stays open: with TLS, PyMySQL takes 40 ms of a core for a new one,
        # as long as a batch. It may have been lost since the last sweep.
        host, port = place
        url = engine.url.set(host=host, port=port)
        return create_engine(url, pool_size=1, max_overflow=0, pool_pre_ping=True)

    def ask(question: Question) -> Rows:
        with _server_of(question, engine, reach).connect() as connection:
            rows: Rows = connection.exec_driver_sql(question.sql).mappings().all()
            return rows

    return lambda: answer(questions(), ask)


def _asynchronous(engine: AsyncEngine, questions: Questions) -> Throttle:
    # SQLAlchemy 2.1 installs no greenlet, and a synchronous sweep doesn't need it.
    from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

    @cache
    def reach(place: tuple[str, int]) -> AsyncEngine:
        host, port = place
        # The next sweep may be in another event loop, so no connection stays open.
        return create_async_engine(engine.url.set(host=host, port=port), poolclass=NullPool)

    async def ask(question: Question) -> Rows:
        async with _server_of(question, engine, reach).connect() as connection:
            rows: Rows = (await connection.exec_driver_sql(question.sql)).mappings().all()
            return rows

    async def replication() -> float | str | None:
        asking = questions()
        try:
            question = next(asking)
            while True:
                question = asking.send(await ask(question))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    return replication
