"""PgBouncer in front of PostgreSQL, where a client's next transaction may have another session."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlalchemy import Engine, create_engine, make_url, select, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from tests.sql.sweeping import HOUR, add, cart, left
from ttl_odm.sqlalchemy import touch
from ttl_odm.sqlalchemy.sweep.leases import TableLeases
from ttl_odm.sweeper import AsyncSweeper, Ending, StoreError, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.starts("postgres")]

TOOLS: Final = Path(__file__).parents[2] / "tools"
DATABASES: Final = {
    "session": "ttl_odm_session",
    "transaction": "ttl_odm",
    "statement": "ttl_odm_statement",
}
EXPIRED: Final = range(300)
LIVE: Final = range(1_000, 1_005)
REFUSAL: Final = "transaction blocks not allowed in statement pooling mode"

modes = pytest.mark.parametrize("mode", ["session", "transaction"])


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        from local_servers.lifetime import started
        from local_servers.pgbouncer import PGBOUNCER

        with started([PGBOUNCER]) as servers:
            yield servers[PGBOUNCER.variable]


@contextmanager
def connected(url: str, mode: str, driver: str = "psycopg") -> Iterator[Engine]:
    address = make_url(url).set(drivername=f"postgresql+{driver}", database=DATABASES[mode])
    engine = create_engine(address)
    yield engine
    engine.dispose()


@pytest.fixture
def model(url: str) -> Iterator[Any]:
    """Make the table, with expired rows and live ones."""
    declared = cart()
    with connected(url, "session") as engine:
        declared.metadata.create_all(engine)
        with engine.begin() as connection:
            add(connection, "carts", [(key, None, 2 * HOUR) for key in EXPIRED])
            add(connection, "carts", [(key, None, 0) for key in LIVE])
        yield declared
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE carts"))
            connection.execute(text("DROP TABLE IF EXISTS ttl_odm_lease"))


@modes
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "pg8000"])
def test_rows_are_read_and_written(url: str, model: Any, mode: str, driver: str) -> None:
    with connected(url, mode, driver) as engine, Session(engine) as session:
        assert set(session.scalars(select(model.id))) == set(LIVE)
        session.add(model(id=0))  # an expired row has this key
        session.commit()
        assert touch(session.get(model, 0))
        session.commit()
        session.delete(session.get(model, LIVE[0]))
        session.commit()
        assert set(session.scalars(select(model.id))) == {0, *LIVE[1:]}


@modes
@pytest.mark.parametrize("replicate", [True, False])
def test_expired_rows_are_swept(url: str, model: Any, mode: str, *, replicate: bool) -> None:
    with connected(url, mode) as engine, connected(url, mode) as other:
        with other.connect() as neighbour:  # which takes turns with the sweeper
            neighbour.execute(text("SELECT 1"))
            neighbour.commit()
            sweeper = Sweeper(engine, model, batch_size=100, replicate=replicate)
            report = sweeper.run_once()
            assert (report.ended, report.deleted) == (Ending.FINISHED, len(EXPIRED))
            for _ in range(2):  # in each of the server's sessions
                assert not neighbour.scalar(text("SELECT pg_replication_origin_session_is_setup()"))
                neighbour.commit()
        with engine.connect() as connection:
            assert left(connection, model) == set(LIVE)


@modes
async def test_an_asynchronous_sweeper_needs_no_settings(url: str, model: Any, mode: str) -> None:
    """PgBouncer 1.21 and newer keeps prepared statements apart."""
    address = make_url(url).set(drivername="postgresql+asyncpg", database=DATABASES[mode])
    engine = create_async_engine(address)
    report = await AsyncSweeper(engine, model, batch_size=100).run_once()
    await engine.dispose()
    assert (report.ended, report.deleted) == (Ending.FINISHED, len(EXPIRED))


@modes
def test_a_lease_excludes_others_and_its_token_grows(url: str, model: Any, mode: str) -> None:
    with connected(url, mode) as engine:
        leases = TableLeases(engine, None)
        first = leases.acquire("ttl_odm", "one", HOUR)
        assert first is not None
        assert leases.acquire("ttl_odm", "two", HOUR) is None
        assert Sweeper(engine, model).run_once().ended is Ending.LEASE_HELD
        assert leases.renew(first)
        leases.release(first)
        second = leases.acquire("ttl_odm", "two", HOUR)
        assert second is not None
        assert second.token > first.token
        leases.release(second)


def test_statement_mode_has_no_transactions(url: str, model: Any) -> None:
    """As psycopg and asyncpg say; psycopg2 and pg8000 only see that the connection was closed."""
    with connected(url, "statement") as engine:
        with pytest.raises(OperationalError, match=REFUSAL), Session(engine) as session:
            session.get(model, 0)
        report = Sweeper(engine, model).run_once()
        assert (report.ended, report.deleted) == (Ending.FAILED, 0)
        assert type(report.error) is StoreError  # at once: another attempt would fail as well
        assert str(report.error) == REFUSAL


async def test_so_it_has_for_an_asynchronous_sweeper(url: str, model: Any) -> None:
    address = make_url(url).set(drivername="postgresql+asyncpg", database=DATABASES["statement"])
    engine = create_async_engine(address)
    report = await AsyncSweeper(engine, model).run_once()
    await engine.dispose()
    assert report.ended is Ending.FAILED
    assert type(report.error) is StoreError
    assert REFUSAL in str(report.error)
