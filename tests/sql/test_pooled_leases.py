"""Advisory locks through a pooler, where a connection may not be a session."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.sql import pooler
from tests.sql.sweeping import HOUR, add, cart
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy import AdvisoryLeases, AsyncAdvisoryLeases
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend

pytestmark = pytest.mark.databases("postgres")
by_transaction = pytest.mark.parametrize("choice", [pooler.latest, pooler.in_turn])
REMEDY = (
    "Leave `lease` out to use a lease in a table, or give AdvisoryLeases an engine that connects"
)
ARGUMENTS: dict[str, dict[str, Any]] = {
    "psycopg": {"prepare_threshold": None},
    "asyncpg": {"statement_cache_size": 0, "prepared_statement_name_func": str},
}
"""As SQLAlchemy's documentation has it for PgBouncer."""


@contextmanager
def pooled(engine: Any, choice: pooler.Choice) -> Iterator[tuple[pooler.Pooler, Any]]:
    """Let a pooler with two sessions run; with an engine of the same kind that goes through it."""
    url = engine.url
    running = pooler.Pooler((url.host, url.port), pooler.own)
    warm = create_engine(url.set(drivername="postgresql+psycopg", port=running.port))
    with warm.connect() as one, warm.connect() as other:
        assert one.scalar(text("SELECT 1")) == other.scalar(text("SELECT 1"))
    running.choice = choice
    create: Any = create_async_engine if engine.dialect.is_async else create_engine
    arguments = ARGUMENTS.get(engine.dialect.driver, {})
    through = create(url.set(port=running.port), connect_args=arguments)
    try:
        yield running, through
    finally:
        if not engine.dialect.is_async:
            through.dispose()
        warm.dispose()
        running.close()


def locks(engine: Engine) -> int:
    """Count the locks that anybody has in the database."""
    with engine.connect() as connection:
        return connection.execute(
            text(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = "
                "(SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        ).scalar_one()


@by_transaction
def test_a_pooler_of_transactions_is_refused(engine: Engine, choice: pooler.Choice) -> None:
    model = cart()
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR)])
    with pooled(engine, choice) as (_, through):
        with pytest.raises(TTLConfigurationError, match=REMEDY):
            Sweeper(through, model, lease=AdvisoryLeases(through)).run_once()
        assert not locks(engine)
        assert Sweeper(through, model).run_once().deleted == 1


@by_transaction
async def test_an_asynchronous_engine_through_one_is_refused(
    async_backend: Backend, choice: pooler.Choice
) -> None:
    assert async_backend.async_url is not None
    engine = create_async_engine(async_backend.async_url)
    with pooled(engine, choice) as (_, through):
        leases = AsyncAdvisoryLeases(through)
        with pytest.raises(TTLConfigurationError, match=REMEDY):
            await leases.acquire("ttl_odm", "us", HOUR)
        await through.dispose()


def test_a_pooler_of_sessions_is_as_good_as_none(engine: Engine) -> None:
    with pooled(engine, pooler.own) as (_, through):
        leases = AdvisoryLeases(through)
        lease = leases.acquire("ttl_odm", "us", HOUR)
        assert lease is not None
        assert leases.renew(lease)
        assert locks(engine) == 1
        leases.release(lease)
        assert not locks(engine)


def test_a_session_that_becomes_another_is_noticed_at_the_renewal(engine: Engine) -> None:
    with pooled(engine, pooler.own) as (running, through):
        leases = AdvisoryLeases(through)
        lease = leases.acquire("ttl_odm", "us", HOUR)
        assert lease is not None
        running.choice = pooler.anothers
        with pytest.raises(TTLConfigurationError, match=REMEDY):
            leases.renew(lease)
        assert not leases._sessions


def test_a_renewal_looks_once_and_no_batch_looks(engine: Engine) -> None:
    leases = AdvisoryLeases(engine)
    lease = leases.acquire("ttl_odm", "us", HOUR)
    assert lease is not None
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    assert leases.renew(lease)
    assert len([sql for sql in statements if "pg_backend_pid" in sql]) == 1
    statements.clear()
    assert leases.read("ttl_odm").holder == "us"
    assert not [sql for sql in statements if "pg_backend_pid" in sql]
    leases.release(lease)
