"""Servers that are lost while a connection's isolation level is set, or set back.

The sweeper sets it by SQLAlchemy's means, but on MariaDB and MySQL with a session's other settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pymysql
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from tests.sql.sweeping import HOUR, add, cart
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy import compat
from ttl_odm.sweeper import AsyncSweeper, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from tests.backends import Backend

# Each driver sets the level in its own way, and fails in its own.
pytestmark = [pytest.mark.databases("postgres", "mariadb", "mysql"), pytest.mark.every_server]

POOL: dict[str, Any] = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 5}
EXPIRED = [(key, None, 2 * HOUR) for key in range(3)]


class LostError(Exception):
    """What a driver raises."""


def kill(connection: Connection) -> object:
    """Have MariaDB or MySQL end a session, past SQLAlchemy; return the driver's connection."""
    cursor = connection.connection.cursor()
    cursor.execute("SELECT CONNECTION_ID()")
    (number,) = cursor.fetchone() or ()
    cursor.close()
    address = urlsplit(str(connection.engine.url))
    with pymysql.connect(
        host=address.hostname, port=address.port or 0, user=address.username
    ) as other:
        other.cursor().execute(f"KILL {number}")
    return connection.connection.dbapi_connection


def lose(engine: Engine | AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Have all connections lost when the level is set back; return those that were."""
    lost: list[object] = []
    if engine.dialect.name in MYSQL_FAMILY:
        run_aside = compat.run_aside

        def lose_then(connection: Connection, statement: str) -> None:
            if statement.startswith("SET @@SESSION"):
                lost.append(kill(connection))
            run_aside(connection, statement)

        monkeypatch.setattr(compat, "run_aside", lose_then)
        return lost

    def reset(dbapi_connection: object) -> None:
        lost.append(dbapi_connection)
        raise LostError

    monkeypatch.setattr(engine.dialect, "reset_isolation_level", reset)
    return lost


@pytest.mark.slow
def test_a_sweep_is_done_and_the_pool_has_room_for_the_next(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert backend.sync_url is not None
    engine, model = create_engine(backend.sync_url, **POOL), cart()
    model.metadata.create_all(engine)
    lost = lose(engine, monkeypatch)
    for _ in range(2):
        with engine.begin() as connection:
            add(connection, "carts", EXPIRED)
        report = Sweeper(engine, model).run_once()
        assert (report.problems, report.deleted) == ((), 3)
    assert len(set(map(id, lost))) > 1
    engine.dispose()


@pytest.mark.slow
async def test_so_it_is_with_an_asynchronous_engine(
    async_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert async_backend.async_url is not None
    engine, model = create_async_engine(async_backend.async_url, **POOL), cart()
    async with engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
    lost = lose(engine, monkeypatch)
    for _ in range(2):
        async with engine.begin() as connection:
            await connection.run_sync(add, "carts", EXPIRED)
        report = await AsyncSweeper(engine, model).run_once()
        assert (report.problems, report.deleted) == ((), 3)
    assert len(set(map(id, lost))) > 1
    await engine.dispose()


def test_a_sweep_goes_on_if_the_server_is_lost_when_the_level_is_set(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert backend.sync_url is not None
    engine, model = create_engine(backend.sync_url, **POOL), cart()
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        add(connection, "carts", EXPIRED)
    set_level, run_aside = engine.dialect.set_isolation_level, compat.run_aside
    lost: list[object] = []

    def lose_first(dbapi_connection: Any, level: Any) -> None:
        if not lost:
            lost.append(dbapi_connection)
            raise engine.dialect.loaded_dbapi.OperationalError(2013, "lost")
        set_level(dbapi_connection, level)

    def kill_first(connection: Connection, statement: str) -> None:
        if not lost:
            lost.append(kill(connection))
        run_aside(connection, statement)

    if engine.dialect.name in MYSQL_FAMILY:
        monkeypatch.setattr(compat, "run_aside", kill_first)
    else:
        monkeypatch.setattr(engine.dialect, "set_isolation_level", lose_first)
    report = Sweeper(engine, model).run_once()
    assert (report.problems, report.deleted, len(lost)) == ((), 3, 1)
    engine.dispose()
