"""Others at work while a sweep runs: writers, other sweepers, lost connections."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    create_engine,
    event,
    text,
)

from tests.sql.models import web_session
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import (
    AsyncSweeper,
    Progress,
    Sweeper,
    SweepReport,
    TransientStoreError,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from tests.backends import Backend

from tests.sql.sweeping import HOUR, add, add_at_once, cart, left, servers, sweeps

# Locks are each server's own.
pytestmark = pytest.mark.every_server

# Others at work


@pytest.mark.every_driver
@servers
@pytest.mark.parametrize("renewal", ["_ts = {now}", "ttl = -1", "ttl = 100000"])
@sweeps
def test_a_row_renewed_between_the_read_and_the_delete_survives(
    engine: Engine, made: Any, sweep: str, renewal: str
) -> None:
    model = made(cart(HOUR, sweep))
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 2 * HOUR + number) for number in range(20)])
    renewed: list[str] = []

    def renew(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE") and not renewed:
            renewed.append(statement)
            values = renewal.format(now=clock_of(engine.dialect).stamp)
            with engine.begin() as other:
                other.execute(text(f"UPDATE carts SET {values} WHERE id IN (3, 7)"))  # noqa: S608

    event.listen(engine, "before_cursor_execute", renew)
    report = Sweeper(engine, model).run_once()
    assert renewed
    assert report.deleted == 18
    with engine.connect() as connection:
        assert left(connection, model) == {3, 7}


@pytest.mark.every_driver
@servers
@sweeps
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("batch_size", [7, 1_000])
def test_a_row_that_somebody_holds_is_skipped_and_told(
    engine: Engine,
    made: Any,
    sweep: str,
    at_once: Any,
    batch_size: int,
) -> None:
    model = made(cart(HOUR, sweep))
    with engine.begin() as connection:
        if at_once:
            add_at_once(connection, "carts", 20)
        else:
            add(connection, "carts", [(number, None, 2 * HOUR + number) for number in range(20)])
    sweeper = Sweeper(engine, model, batch_size=batch_size)
    with engine.connect() as holder:
        # It never lets go while the sweep is under way: a sweep that waited would never end.
        holder.execute(text("SELECT id FROM carts WHERE id IN (3, 7) FOR UPDATE"))
        report = sweeper.run_once()
        report.raise_for_failures()
        assert (report.deleted, report.skipped) == (18, 2)
        if sweep == "index":
            assert report.targets[0].oldest_after == pytest.approx(HOUR, abs=60)
    assert sweeper.run_once().deleted == 2


@servers
@sweeps
async def test_a_row_that_somebody_holds_is_skipped_asynchronously(
    async_engine: AsyncEngine, sweep: str
) -> None:
    model = cart(HOUR, sweep)
    rows = [(number, None, 2 * HOUR + number) for number in range(20)]
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.run_sync(add, "carts", rows)
    async with async_engine.connect() as holder:
        await holder.execute(text("SELECT id FROM carts WHERE id IN (3, 7) FOR UPDATE"))
        report = await AsyncSweeper(async_engine, model).run_once()
    report.raise_for_failures()
    assert (report.deleted, report.skipped) == (18, 2)


@pytest.mark.slow
@pytest.mark.every_driver
@pytest.mark.databases("postgres")
def test_a_locked_table_fails_and_no_other(
    engine: Engine, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    carts, sessions = made(cart()), made(web_session(HOUR))
    with engine.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR)])
    with engine.connect() as holder:
        holder.execute(text("LOCK TABLE carts IN ACCESS EXCLUSIVE MODE"))
        report = Sweeper(engine, [carts, sessions]).run_once()
    (failed,) = report.failed
    assert failed.table == "carts"
    assert isinstance(failed.error, TransientStoreError)
    assert "lock timeout" in str(report)


@pytest.mark.slow
@pytest.mark.every_driver
@sweeps
def test_two_sweepers_share_the_work(engine: Engine, made: Any, sweep: str) -> None:
    model = made(cart(HOUR, sweep))
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 2 * HOUR + number) for number in range(2_000)])
    reports: list[SweepReport] = []

    def work() -> None:
        reports.append(Sweeper(engine, model, batch_size=100, lease=False).run_once())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # What one of them held when the other came to it may have been left by both.
    work()
    for report in reports:
        report.raise_for_failures()
    assert sum(report.deleted for report in reports) == 2_000
    with engine.connect() as connection:
        assert left(connection, model) == set()


def test_an_interrupted_batch_is_rolled_back(engine: Engine, made: Any) -> None:
    model = made(cart())
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 2 * HOUR + number) for number in range(30)])
    batches: list[str] = []

    def interrupt(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE") and "_ts" in statement:
            batches.append(statement)
            if len(batches) == 2:
                raise KeyboardInterrupt

    event.listen(engine, "after_cursor_execute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Sweeper(engine, model, batch_size=10).run_once()
    with engine.connect() as connection:
        assert len(left(connection, model)) == 20


async def test_a_cancelled_sweep_gives_its_connection_back(async_engine: AsyncEngine) -> None:
    model = cart()
    rows = [(number, None, 2 * HOUR + number) for number in range(30)]
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.run_sync(add, "carts", rows)
    sweeper = AsyncSweeper(async_engine, model, batch_size=10, on_progress=lambda _: task.cancel())
    task = asyncio.create_task(sweeper.run_once())
    with pytest.raises(asyncio.CancelledError):
        await task
    async with async_engine.connect() as connection:
        rest = len(await connection.run_sync(left, model))
    report = await AsyncSweeper(async_engine, model).run_once()
    assert report.deleted == rest


# aiosqlite's thread goes on when its task is cancelled, and would hold its lock.
@pytest.mark.parametrize("word", ["SELECT", "DELETE"])
async def test_a_sweep_cancelled_in_the_middle_of_a_batch_finishes_it(
    async_engine: AsyncEngine, word: str
) -> None:
    model = cart()
    rows = [(number, None, 2 * HOUR + number) for number in range(30)]
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.run_sync(add, "carts", rows)
    tasks: list[asyncio.Task[SweepReport]] = []

    def cancel(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if tasks and "carts" in statement and statement.startswith(word):
            tasks.pop().cancel()

    event.listen(async_engine.sync_engine, "before_cursor_execute", cancel)
    task = asyncio.create_task(AsyncSweeper(async_engine, model, batch_size=10).run_once())
    tasks.append(task)
    with pytest.raises(asyncio.CancelledError):
        await task
    report = await AsyncSweeper(async_engine, model).run_once()
    # The first SELECT looks for what is due, before any batch.
    assert report.deleted == (30 if word == "SELECT" else 20)


@pytest.mark.every_driver
@servers
def test_a_lost_connection_is_replaced(engine: Engine, made: Any) -> None:
    model = made(cart())
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 2 * HOUR + number) for number in range(300)])
    broken: list[Progress] = []

    def break_connections(progress: Progress) -> None:
        if broken:
            return
        broken.append(progress)
        other = create_engine(engine.url, isolation_level="AUTOCOMMIT")
        with other.connect() as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(
                    text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    )
                )
            else:
                found = connection.execute(
                    text(
                        "SELECT id FROM information_schema.processlist "
                        "WHERE db = DATABASE() AND id <> CONNECTION_ID()"
                    )
                )
                for (thread,) in found.all():
                    connection.execute(text(f"KILL CONNECTION {thread}"))
        other.dispose()

    report = Sweeper(engine, model, batch_size=100, on_progress=break_connections).run_once()
    report.raise_for_failures()
    assert report.deleted == 300


@pytest.mark.every_driver
@servers
def test_a_server_out_of_reach_fails_without_telling_the_password(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttl_odm.sweeper.batch_gate.AWAY", 0.1)  # not a minute, as for a restart
    assert backend.sync_url is not None
    url = create_engine(backend.sync_url).url.set(port=1, password="open sesame")
    report = Sweeper(create_engine(url), cart()).run_once()
    assert isinstance(report.error, TransientStoreError)
    assert "sesame" not in str(report)
