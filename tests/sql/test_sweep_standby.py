"""A sweeper whose server takes no writes, as a standby or a primary that was demoted."""

from __future__ import annotations

import re
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import create_async_engine

from tests.backends import READ_ONLY
from tests.sql.sweeping import HOUR, add, cart, left
from ttl_odm.sqlalchemy.sweep.store import AsyncSQLAlchemyStore, SQLAlchemyStore
from ttl_odm.sweeper import AsyncSweeper, Ending, Server, StandbyStoreError, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from tests.backends import Backend

# Each server has its own words for it; SQLite has no standbys.
pytestmark = [pytest.mark.databases("postgres", "mariadb", "mysql"), pytest.mark.every_server]

EXPIRED = {1, 2, 3}
LEFT = EXPIRED - {1}
leases = pytest.mark.parametrize("lease", [True, False])


class Standby:
    """Makes each new connection of an engine read-only, until it is promoted."""

    def __init__(self, engine: Engine) -> None:
        self._is_promoted = False
        event.listen(engine, "connect", self._connected)
        self._statement = READ_ONLY[engine.dialect.name]

    def promote(self) -> None:
        self._is_promoted = True

    def _connected(self, connection: Any, _record: object) -> None:
        if not self._is_promoted:
            cursor = connection.cursor()
            cursor.execute(self._statement)
            cursor.close()
            connection.commit()


def fill(connection: Connection, model: Any) -> None:
    model.metadata.create_all(connection)
    add(connection, "carts", [(key, None, 2 * HOUR) for key in EXPIRED])


@pytest.fixture
def model(engine: Engine) -> Any:
    """A model with expired rows; the table for leases is there."""
    made = cart()
    with engine.begin() as connection:
        fill(connection, made)
    assert Sweeper(engine, made, max_rows=1).run_once().deleted == 1
    return made


@pytest.fixture
def standby(backend: Backend) -> Iterator[tuple[Engine, Standby]]:
    """The engine of a server that takes no writes."""
    assert backend.sync_url is not None
    other = create_engine(backend.sync_url)
    yield other, Standby(other)
    other.dispose()


def rows(engine: Engine, model: Any) -> set[Any]:
    with engine.connect() as connection:
        return left(connection, model)


@leases
def test_a_sweep_ends_at_once_without_an_error(
    engine: Engine, model: Any, standby: tuple[Engine, Standby], *, lease: bool
) -> None:
    report = Sweeper(standby[0], model, standby="exit", lease=lease).run_once()
    assert (report.outcome, report.problems, report.deleted) == ("standby", (), 0)
    assert str(report).splitlines()[-1] == (
        "The server is a standby, which takes no writes: sweep its primary."
    )
    assert rows(engine, model) == LEFT


@leases
def test_a_sweep_goes_on_after_a_promotion(
    engine: Engine,
    model: Any,
    standby: tuple[Engine, Standby],
    caplog: pytest.LogCaptureFixture,
    *,
    lease: bool,
) -> None:
    other, server = standby

    event.listen(other, "handle_error", lambda _: server.promote())
    report = Sweeper(other, model, lease=lease).run_once()
    assert (report.ended, report.deleted) == (Ending.FINISHED, len(LEFT))
    assert rows(engine, model) == set()
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.partition(" (")[0] for line in said] == [
        "The server is a standby, which takes no writes"
    ] * lease


def test_a_dry_run_counts_at_a_standby(model: Any, standby: tuple[Engine, Standby]) -> None:
    report = Sweeper(standby[0], model, standby="exit", dry_run=True).run_once()
    assert (report.ended, report.due) == (Ending.FINISHED, len(LEFT))


def test_a_store_tells_which_server_answers(
    engine: Engine, model: Any, standby: tuple[Engine, Standby]
) -> None:
    address, takes_writes = astuple(SQLAlchemyStore(engine, model).server())
    assert re.fullmatch(rf"[^:]+:{engine.url.port}", address)
    assert takes_writes
    if engine.dialect.name == "postgresql":  # others have a session's and a server's setting
        assert SQLAlchemyStore(standby[0], model).server() == Server(address, takes_writes=False)


def test_a_sweep_tells_which_server_answers_and_after_a_promotion_again(
    engine: Engine, model: Any, standby: tuple[Engine, Standby]
) -> None:
    (other, server), told = standby, list[Server]()
    event.listen(other, "handle_error", lambda _: server.promote())
    report = Sweeper(other, model, on_server=told.append).run_once()
    assert report.deleted == len(LEFT)
    address = SQLAlchemyStore(engine, model).server().address
    assert told == [
        Server(address, takes_writes=engine.dialect.name != "postgresql"),
        Server(address, takes_writes=True),
    ]


def test_a_store_names_a_standby(model: Any, standby: tuple[Engine, Standby]) -> None:
    sweeper = Sweeper(standby[0], model)
    with pytest.raises(StandbyStoreError, match=r"(?i)read.only"):
        sweeper.pause()


async def test_so_it_is_with_an_asynchronous_engine(async_engine: AsyncEngine) -> None:
    model = cart()
    async with async_engine.begin() as connection:
        await connection.run_sync(fill, model)
    other = create_async_engine(async_engine.url)
    Standby(other.sync_engine)
    told: list[Server] = []
    report = await AsyncSweeper(other, model, standby="exit", on_server=told.append).run_once()
    server = await AsyncSQLAlchemyStore(other, model).server()
    await other.dispose()
    assert (report.outcome, report.deleted) == ("standby", 0)
    assert told == [server]
    assert server is not None
    assert server.takes_writes is (other.dialect.name != "postgresql")
    async with async_engine.connect() as connection:
        assert await connection.run_sync(left, model) == EXPIRED
