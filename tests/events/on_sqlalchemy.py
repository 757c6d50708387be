"""SQLAlchemy as an `EventSubject`: synchronous, and the same through an AsyncEngine."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    AsyncAdaptedQueuePool,
    String,
    bindparam,
    create_engine,
    delete,
    text,
)
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.events.subject import BEFORE, HOUR, EventSubject, RolledBackError
from ttl_odm.events import AsyncEventWorker, EventWorker, Expiry, events, on_expired, on_expiring
from ttl_odm.events.outbox import Subscription
from ttl_odm.events.sqlalchemy import read_from
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sqlalchemy.sweep.store import now
from ttl_odm.sqlalchemy.time.clock import LastModified
from ttl_odm.sweeper import AsyncSweeper, Hook, Purged, Sweeper, TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from sqlalchemy import Connection

    from tests.backends import Backend
    from ttl_odm.testing import TTLClock

T = TypeVar("T")

PUT = text("INSERT INTO holds (id, person, _ts, ttl) VALUES (:id, :person, :ts, :ttl)").bindparams(
    bindparam("ts", type_=LastModified())
)
STORED = text("SELECT _ts FROM holds WHERE id = :id").columns(_ts=LastModified())


WANTED = [Subscription("holds")]


def at_once(backend: Backend) -> dict[str, Any]:
    """Options of an engine that waits for no writer, on a database that has one at a time."""
    return {"connect_args": {"timeout": 0}} if backend.database == "sqlite" else {}


class OnSQLAlchemy(EventSubject):
    """Over an Engine."""

    def __init__(self, backend: Backend, clock: TTLClock) -> None:
        class Base(DeclarativeBase):
            pass

        class Hold(TTLMixin, Base):
            __tablename__ = "holds"
            __ttl__ = HOUR

            id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
            person: Mapped[str] = mapped_column(String(20))

        self.got = []
        self.model: Any = Hold
        self._clock = clock
        self._meanwhile: str | None = None
        self.has_one_writer = backend.database == "sqlite"
        self._open(backend)
        on_expired(Hold, include=["person"], name="expired")(self.handle)
        on_expiring(Hold, before=BEFORE, include=["person"], name="expiring")(self.handle)
        declared: Any = Hold
        declared.__ttl_on_purged__ = [*declared.__ttl_on_purged__, Hook(self._comes)]
        self._do(Base.metadata.create_all)
        self._worker: Any = self._make_worker()

    def _open(self, backend: Backend) -> None:
        self.engine: Any = create_engine(backend.sync_url)
        self._theirs: Any = create_engine(backend.sync_url, **at_once(backend))

    def _make_worker(self) -> EventWorker | AsyncEventWorker:
        return EventWorker(self.engine, self.model)

    def _do(self, work: Callable[[Connection], T]) -> T:
        """Call a function in a transaction of its own."""
        with self.engine.begin() as connection:
            return work(connection)

    def put(
        self, key: int, age: float = 0, *, person: str = "ann", ttl: int | None = None
    ) -> datetime:
        def put(connection: Connection) -> Any:
            instant = now(connection) - timedelta(seconds=age)
            connection.execute(PUT, {"id": key, "person": person, "ts": instant, "ttl": ttl})
            return connection.scalars(STORED, {"id": key}).one()

        stored: datetime = self._do(put)
        return stored

    def renew(self, key: int) -> None:
        def renew(connection: Connection) -> None:
            with Session(connection) as session:
                session.get_one(self.model, key).touch()
                session.commit()

        self._do(renew)

    def set_ttl(self, key: int, ttl: int) -> None:
        change = text("UPDATE holds SET ttl = :ttl WHERE id = :id")
        self._do(lambda connection: connection.execute(change, {"id": key, "ttl": ttl}))

    def delete(self, key: int) -> None:
        removal = delete(self.model).where(self.model.id == key)
        self._do(lambda connection: connection.execute(removal))

    def insert(self, key: int, person: str, *, fails: bool = False) -> None:
        def insert(connection: Connection) -> None:
            with Session(connection) as session:
                session.add(self.model(id=key, person=person))
                session.commit()
            if fails:
                raise RolledBackError

        with suppress(RolledBackError):
            self._do(insert)

    def keys(self) -> set[int]:
        return self._do(lambda connection: set(connection.scalars(text("SELECT id FROM holds"))))

    def sweep(self) -> int:
        return Sweeper(self.engine, self.model).run_once().deleted

    def sweep_while_comes(self, consumer: str) -> bool:
        self._meanwhile = consumer
        self.sweep()
        return self._meanwhile is None

    def _comes(self, _: Purged) -> Any:
        if self._meanwhile is not None:
            with suppress(TransientStoreError):
                read_from(self._theirs, self.model).outbox().subscribe(self._meanwhile, WANTED)
                self._meanwhile = None

    def work(self) -> None:
        self._worker.run_once()

    def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def read(self, consumer: str) -> Sequence[Expiry]:
        kinds = ("expired", "expiring")
        return list(events(self.engine, self.model, consumer=consumer, kinds=kinds))

    def close(self) -> None:
        self.engine.dispose()
        self._theirs.dispose()


class OnAsyncSQLAlchemy(OnSQLAlchemy):
    """Over an AsyncEngine."""

    def _open(self, backend: Backend) -> None:
        assert backend.async_url is not None
        self._loop = asyncio.new_event_loop()
        self.engine, self._theirs = (
            create_async_engine(backend.async_url, poolclass=AsyncAdaptedQueuePool, **options)
            for options in ({}, at_once(backend))
        )

    def _make_worker(self) -> AsyncEventWorker:
        return AsyncEventWorker(self.engine, self.model)

    def _do(self, work: Callable[[Connection], T]) -> T:
        async def do() -> T:
            async with self.engine.begin() as connection:
                done: T = await connection.run_sync(work)
                return done

        return self._loop.run_until_complete(do())

    def sweep(self) -> int:
        sweeper = AsyncSweeper(self.engine, self.model)
        return self._loop.run_until_complete(sweeper.run_once()).deleted

    async def _comes(self, _: Purged) -> None:
        if self._meanwhile is not None:
            with suppress(TransientStoreError):
                outbox = read_from(self._theirs, self.model).outbox()
                await outbox.subscribe(self._meanwhile, WANTED)
                self._meanwhile = None

    def work(self) -> None:
        self._loop.run_until_complete(self._worker.run_once())

    def read(self, consumer: str) -> Sequence[Expiry]:
        async def read() -> list[Expiry]:
            kinds = ("expired", "expiring")
            found = events(self.engine, self.model, consumer=consumer, kinds=kinds)
            return [event async for event in found]

        return self._loop.run_until_complete(read())

    def close(self) -> None:
        self._loop.run_until_complete(self.engine.dispose())
        self._loop.run_until_complete(self._theirs.dispose())
        self._loop.close()
