"""SQLAlchemy as an `EventSubject`: synchronous, and the same through an AsyncEngine."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

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
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sqlalchemy.sweep.store import now
from ttl_odm.sqlalchemy.time.clock import LastModified
from ttl_odm.sweeper import AsyncSweeper, Sweeper

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tests.backends import Backend
    from ttl_odm.testing import TTLClock

PUT = text("INSERT INTO holds (id, person, _ts, ttl) VALUES (:id, :person, :ts, :ttl)").bindparams(
    bindparam("ts", type_=LastModified())
)
STORED = text("SELECT _ts FROM holds WHERE id = :id").columns(_ts=LastModified())


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
        self.engine = create_engine(backend.sync_url)
        self._clock = clock
        on_expired(Hold, include=["person"], name="expired")(self.handle)
        on_expiring(Hold, before=BEFORE, include=["person"], name="expiring")(self.handle)
        Base.metadata.create_all(self.engine)
        self._worker = EventWorker(self.engine, Hold)

    def put(
        self, key: int, age: float = 0, *, person: str = "ann", ttl: int | None = None
    ) -> datetime:
        with self.engine.begin() as connection:
            instant = now(connection) - timedelta(seconds=age)
            connection.execute(PUT, {"id": key, "person": person, "ts": instant, "ttl": ttl})
            stored: datetime = connection.scalars(STORED, {"id": key}).one()
        return stored

    def renew(self, key: int) -> None:
        with Session(self.engine) as session, session.begin():
            session.get_one(self.model, key).touch()

    def set_ttl(self, key: int, ttl: int) -> None:
        with self.engine.begin() as connection:
            values = {"id": key, "ttl": ttl}
            connection.execute(text("UPDATE holds SET ttl = :ttl WHERE id = :id"), values)

    def delete(self, key: int) -> None:
        with self.engine.begin() as connection:
            connection.execute(delete(self.model).where(self.model.id == key))

    def insert(self, key: int, person: str, *, fails: bool = False) -> None:
        with suppress(RolledBackError), Session(self.engine) as session, session.begin():
            session.add(self.model(id=key, person=person))
            session.flush()
            if fails:
                raise RolledBackError

    def keys(self) -> set[int]:
        with self.engine.connect() as connection:
            return set(connection.scalars(text("SELECT id FROM holds")))

    def sweep(self) -> int:
        return Sweeper(self.engine, self.model).run_once().deleted

    def work(self) -> None:
        self._worker.run_once()

    def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def read(self, consumer: str) -> Sequence[Expiry]:
        kinds = ("expired", "expiring")
        return list(events(self.engine, self.model, consumer=consumer, kinds=kinds))

    def close(self) -> None:
        self.engine.dispose()


class OnAsyncSQLAlchemy(OnSQLAlchemy):
    """What events are made of goes over an AsyncEngine."""

    def __init__(self, backend: Backend, clock: TTLClock) -> None:
        super().__init__(backend, clock)
        assert backend.async_url is not None
        self._loop = asyncio.new_event_loop()
        self._async_engine = create_async_engine(backend.async_url, poolclass=AsyncAdaptedQueuePool)
        self._async_worker = AsyncEventWorker(self._async_engine, self.model)

    def sweep(self) -> int:
        sweeper = AsyncSweeper(self._async_engine, self.model)
        return self._loop.run_until_complete(sweeper.run_once()).deleted

    def work(self) -> None:
        self._loop.run_until_complete(self._async_worker.run_once())

    def read(self, consumer: str) -> Sequence[Expiry]:
        async def read() -> list[Expiry]:
            kinds = ("expired", "expiring")
            found = events(self._async_engine, self.model, consumer=consumer, kinds=kinds)
            return [event async for event in found]

        return self._loop.run_until_complete(read())

    def close(self) -> None:
        super().close()
        self._loop.run_until_complete(self._async_engine.dispose())
        self._loop.close()
