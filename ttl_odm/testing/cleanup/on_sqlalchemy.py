"""Emptying SQLAlchemy's tables. See `ttl_odm.testing.cleanup`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine, Table, inspect
from sqlalchemy.orm import Mapper, Session, scoped_session
from sqlalchemy.schema import sort_tables_and_constraints

from ttl_odm.errors import TTLError
from ttl_odm.sqlalchemy.compat import async_types
from ttl_odm.sqlalchemy.policy.bindings import KEPT_KEY
from ttl_odm.sqlalchemy.purge.statements import PurgeDelete, SweepUpdate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ForeignKeyConstraint, MetaData

_ASYNCHRONOUS: Final = ("AsyncSession", "AsyncConnection", "AsyncEngine", "async_scoped_session")


def empty(models: tuple[object, ...], session: object) -> None:
    """Empty the tables of some models."""
    tables = list(dict.fromkeys(table for model in models for table in _tables(model)))
    if isinstance(session, scoped_session):
        session = session()
    if isinstance(session, Engine):
        with session.begin() as connection:
            _empty(tables, connection)
    elif isinstance(session, (Session, Connection)):
        _empty(tables, session)
    elif isinstance(session, async_types(*_ASYNCHRONOUS)):
        raise TTLError(
            f"empty(session={type(session).__name__}): await async_empty(...) for an asynchronous "
            "session, connection or engine."
        )
    else:
        raise TTLError(
            f"empty(session={session!r}): SQLAlchemy's models need a Session, Connection or "
            "Engine, as in empty(Base, session=session)."
        )


async def async_empty(models: tuple[object, ...], session: Any) -> None:
    """Empty the tables of some models."""
    if isinstance(session, async_types("async_scoped_session")):
        session = session()
    if isinstance(session, async_types("AsyncEngine")):
        async with session.begin() as connection:
            await connection.run_sync(lambda connection: empty(models, connection))
    elif isinstance(session, async_types("AsyncSession", "AsyncConnection")):
        await session.run_sync(lambda session: empty(models, session))
    else:
        raise TTLError(
            f"async_empty(session={session!r}): SQLAlchemy's models need an AsyncSession, "
            "AsyncConnection or AsyncEngine, as in await async_empty(Base, session=session)."
        )


def _empty(tables: list[Table], session: Session | Connection) -> None:
    if isinstance(session, Session):
        session.flush()
    sort: Any = sort_tables_and_constraints
    order: list[tuple[Table | None, list[ForeignKeyConstraint]]] = sort(
        sorted(tables, key=lambda table: table.fullname)
    )
    for table, keys in order:
        for key in keys if table is None else table.foreign_key_constraints:
            columns = [column for column in key.columns if column.nullable]
            # InnoDB checks foreign keys row by row, also of a table to itself. Rings have no order.
            if columns and (table is None or key.referred_table is table):
                _execute(session, SweepUpdate(key.table).values(dict.fromkeys(columns)))
    for table, _ in reversed(order):
        if table is not None:
            _execute(session, PurgeDelete(table))
    if isinstance(session, Session):
        session.expire_all()


def _execute(session: Session | Connection, statement: PurgeDelete | SweepUpdate) -> None:
    if isinstance(session, Session):
        # Sessions with several databases choose one by the table.
        session = session.connection(bind_arguments={"clause": statement.table})
    session.execute(statement)


def _tables(model: object) -> Iterator[Table]:
    mapper: Any = inspect(model, raiseerr=False) if isinstance(model, type) else None
    if isinstance(mapper, Mapper):
        for relative in mapper.base_mapper.self_and_descendants:
            yield from (table for table in relative.tables if isinstance(table, Table))
    elif isinstance(model, Table):
        yield model
    else:
        owner: Any = model
        metadata: MetaData = getattr(owner, "metadata", owner)
        yield from (table for table in metadata.tables.values() if KEPT_KEY not in table.info)
