"""The shipped suite on the SQL stores: every database and driver, with indexes and without."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    AsyncAdaptedQueuePool,
    Column,
    MetaData,
    QueuePool,
    String,
    Table,
    create_engine,
    event,
    insert,
    select,
    text,
)
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.backends import refusing, synchronous
from ttl_odm.sqlalchemy import AdvisoryLeases, AsyncAdvisoryLeases, TTLMixin, include_expired
from ttl_odm.sqlalchemy.sweep.store import open_store
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import AsyncClocked, AsyncCounting, Clocked, Counting, Hooking, Leasing
from ttl_odm.testing import StoreContract, StoreRig
from ttl_odm.testing.contract import HoldContract, LeaseContract, PurgeContract, RefusalContract

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from sqlalchemy import Engine

    from tests.backends import Backend
    from ttl_odm.sweeper import ArchiveSink

outbox = Table("outbox", MetaData(), Column("text", String(200)))


def _in_haste(connection: Any, _: Any) -> None:
    """Let SQLite not wait for the disk, as our servers don't."""
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = OFF")
    cursor.close()


class SQLRig(StoreRig):
    """A store over an engine; a second engine writes and looks past it."""

    def __init__(self, engine: Any, sweep: str) -> None:
        super().__init__()

        class Base(DeclarativeBase):
            pass

        self.engine = engine
        self.sync_engine: Engine = getattr(engine, "sync_engine", engine)
        self.store = open_store(engine, Base)
        self._base: Any = Base
        self._sweep = sweep
        self._models: dict[str, Any] = {}
        url = self.sync_engine.url
        address = url.render_as_string(hide_password=False)
        self._behind = create_engine(synchronous(address), poolclass=QueuePool)
        if url.get_backend_name() == "sqlite":
            for each in (self.sync_engine, self._behind):
                event.listen(each, "connect", _in_haste)
        outbox.create(self._behind)

    def create(self, target: str, default: int | None, hooks: Any = None) -> None:
        self._create(target, {"__ttl__": default, "__ttl_on_purged__": hooks})

    def create_archived(self, target: str, default: int | None, sink: ArchiveSink) -> None:
        self._create(target, {"__ttl__": default, "__ttl_archive__": sink})

    def _create(self, target: str, declared: dict[str, Any]) -> None:
        members = {
            "__tablename__": target,
            "__ttl_sweep__": self._sweep,
            "__annotations__": {"id": Mapped[int]},
            "id": mapped_column(primary_key=True, autoincrement=False),
            **declared,
        }
        self._models[target] = type(target.title(), (TTLMixin, self._base), members)
        self._base.metadata.create_all(self._behind)
        self.store.targets()

    def set_default(self, target: str, default: int | None) -> None:
        self._models[target].__ttl__ = default

    def add(self, target: str, keys: Sequence[int], *, age: float, ttl: int | None = None) -> None:
        if not keys:
            return
        clock = clock_of(self._behind.dialect)
        with self._behind.begin() as connection:
            now = connection.scalar(
                text(f"SELECT {clock.now} - :age * {clock.second}"), {"age": int(age)}
            )
            connection.execute(
                text(f"INSERT INTO {target} (id, ttl, _ts) VALUES (:id, :ttl, :now)"),  # noqa: S608
                [{"id": key, "ttl": ttl, "now": now} for key in keys],
            )

    def renew(self, target: str, key: int) -> None:
        stamp = clock_of(self._behind.dialect).stamp
        with self._behind.begin() as connection:
            connection.execute(
                text(f"UPDATE {target} SET _ts = {stamp} WHERE id = :id"),  # noqa: S608
                {"id": key},
            )

    def keys(self, target: str) -> set[int]:
        with self._behind.connect() as connection:
            found = select(self._models[target].id).options(include_expired())
            return set(connection.scalars(found))

    @contextmanager
    def before_delete(self, action: Callable[[], object]) -> Iterator[None]:
        actions = [action]

        def act(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if statement.startswith("DELETE") and actions:
                actions.pop()()

        event.listen(self.sync_engine, "before_cursor_execute", act)
        yield
        event.remove(self.sync_engine, "before_cursor_execute", act)
        assert not actions

    @contextmanager
    def refuse(self, target: str, keys: Collection[int]) -> Iterator[None]:
        make, drop = refusing(self._behind.dialect.name, target, keys)
        for statements in (make, drop):
            with self._behind.begin() as connection:
                for statement in statements:
                    connection.exec_driver_sql(statement)
            if statements is make:
                yield

    def end_lease(self, name: str) -> None:
        clock = clock_of(self._behind.dialect)
        ended = f"{clock.now} - 3600 * {clock.second}"
        with self._behind.begin() as connection:
            connection.execute(
                text(f"UPDATE ttl_odm_lease SET acquired_until = {ended} WHERE name = :name"),  # noqa: S608
                {"name": name},
            )

    def write(self, transaction: Any, text: str) -> object:
        return transaction.execute(insert(outbox).values(text=text))

    def written(self) -> list[str]:
        with self._behind.connect() as connection:
            return list(connection.scalars(select(outbox.c.text)))

    def close(self) -> None:
        assert self.sync_engine.pool.checkedout() == 0  # type: ignore[attr-defined]
        self.run(self.engine.dispose())
        with self._behind.begin() as connection:
            self._base.metadata.drop_all(connection, checkfirst=False)
            for each in ("outbox", "ttl_odm_lease"):
                connection.execute(text(f"DROP TABLE IF EXISTS {each}"))
        self._behind.dispose()
        super().close()


class ServerRig(SQLRig):
    """A database that locks rows, not files."""

    @contextmanager
    def hold(self, target: str, key: int) -> Iterator[None]:
        with self._behind.connect() as connection:
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
        with self._behind.begin() as connection:
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
        for each in (Hooking, Leasing, Counting, Clocked):
            assert isinstance(rig.store, each)


class TestWalkedTables(PurgeContract, HoldContract, RefusalContract):
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
        for each in (Hooking, Leasing, AsyncCounting, AsyncClocked):
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
