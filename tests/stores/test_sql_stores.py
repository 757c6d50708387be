"""The shipped suite on the SQL stores: every database and driver, with indexes and without."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    AsyncAdaptedQueuePool,
    QueuePool,
    create_engine,
    event,
    text,
)
from sqlalchemy.ext.asyncio import create_async_engine

from tests.backends import refusing, synchronous
from ttl_odm.sqlalchemy import AdvisoryLeases, AsyncAdvisoryLeases
from ttl_odm.sweeper import (
    AsyncClocked,
    AsyncCounting,
    AsyncDividing,
    Clocked,
    Counting,
    Dividing,
    Hooking,
    Leasing,
)
from ttl_odm.testing import SQLAlchemyRig, StoreContract
from ttl_odm.testing.contract import (
    HoldContract,
    LeaseContract,
    PurgeContract,
    RefusalContract,
    WorkerContract,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend


def _in_haste(connection: Any, _: Any) -> None:
    """Let SQLite not wait for the disk, as our servers don't."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = OFF")
    cursor.close()


class SQLRig(SQLAlchemyRig):
    """The shipped rig, and triggers."""

    def __init__(self, engine: Any, sweep: str) -> None:
        sync_engine: Engine = getattr(engine, "sync_engine", engine)
        address = sync_engine.url.render_as_string(hide_password=False)
        behind = create_engine(synchronous(address), poolclass=QueuePool)
        if sync_engine.url.get_backend_name() == "sqlite":
            for each in (sync_engine, behind):
                event.listen(each, "connect", _in_haste)
        super().__init__(engine, behind, sweep=sweep)

    @contextmanager
    def refuse(self, target: str, keys: Collection[int]) -> Iterator[None]:
        make, drop = refusing(self.behind.dialect.name, target, keys)
        for statements in (make, drop):
            with self.behind.begin() as connection:
                for statement in statements:
                    connection.exec_driver_sql(statement)
            if statements is make:
                yield


class ServerRig(SQLRig):
    """A database that locks rows, not files."""

    @contextmanager
    def hold(self, target: str, key: int) -> Iterator[None]:
        with self.behind.connect() as connection:
            connection.execute(
                text(f"SELECT id FROM {target} WHERE id = :id FOR UPDATE"),  # noqa: S608
                {"id": key},
            )
            yield


class AdvisoryRig(ServerRig):
    """A store that keeps its leases by PostgreSQL's advisory locks."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine, "index")
        leases = (AsyncAdvisoryLeases if self.is_async else AdvisoryLeases)(engine)
        kind = type(self.store)
        self.store.__class__ = type(kind.__name__, (kind,), {"leases": leases})

    def end_lease(self, name: str) -> None:
        assert name
        with self.behind.begin() as connection:
            ended = connection.scalars(
                text(
                    "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks "
                    "WHERE locktype = 'advisory' AND database = "
                    "(SELECT oid FROM pg_database WHERE datname = current_database())"
                )
            ).all()
        assert ended == [True]

    def close(self) -> None:
        leases: Any = self.store.leases
        for lease in list(getattr(leases, "_leases", leases)._sessions):
            self.run(leases.release(lease))
        super().close()


def rig_of(engine: Any, backend: Backend, sweep: str) -> SQLRig:
    return (SQLRig if backend.database == "sqlite" else ServerRig)(engine, sweep)


class TestSQLAlchemyStore(StoreContract):
    """Over an `Engine`."""

    @pytest.fixture
    def rig(self, backend: Backend) -> Iterator[SQLRig]:
        assert backend.sync_url is not None
        made = rig_of(create_engine(backend.sync_url, poolclass=QueuePool), backend, "index")
        yield made
        made.close()

    def test_it_offers_everything(self, rig: SQLRig) -> None:
        for each in (Hooking, Leasing, Counting, Clocked, Dividing):
            assert isinstance(rig.store, each)


class TestWalkedTables(PurgeContract, HoldContract, RefusalContract, WorkerContract):
    """What is different where a table is walked instead of its indexes."""

    @pytest.fixture
    def rig(self, backend: Backend) -> Iterator[SQLRig]:
        assert backend.sync_url is not None
        made = rig_of(create_engine(backend.sync_url, poolclass=QueuePool), backend, "scan")
        yield made
        made.close()


class TestAsyncSQLAlchemyStore(StoreContract):
    """Over an `AsyncEngine`."""

    @pytest.fixture
    def rig(self, async_backend: Backend) -> Iterator[SQLRig]:
        assert async_backend.async_url is not None
        engine = create_async_engine(async_backend.async_url, poolclass=AsyncAdaptedQueuePool)
        made = rig_of(engine, async_backend, "index")
        yield made
        made.close()

    def test_it_offers_everything(self, rig: SQLRig) -> None:
        for each in (Hooking, Leasing, AsyncCounting, AsyncClocked, AsyncDividing):
            assert isinstance(rig.store, each)


@pytest.mark.databases("postgres")
class TestAdvisoryLeases(LeaseContract):
    """What is different where a lease ends with its holder."""

    @pytest.fixture
    def rig(self, backend: Backend) -> Iterator[SQLRig]:
        assert backend.sync_url is not None
        made = AdvisoryRig(create_engine(backend.sync_url, poolclass=QueuePool))
        yield made
        made.close()


@pytest.mark.databases("postgres")
class TestAsyncAdvisoryLeases(LeaseContract):
    """The same over an `AsyncEngine`."""

    @pytest.fixture
    def rig(self, async_backend: Backend) -> Iterator[SQLRig]:
        assert async_backend.async_url is not None
        url = async_backend.async_url
        made = AdvisoryRig(create_async_engine(url, poolclass=AsyncAdaptedQueuePool))
        yield made
        made.close()
