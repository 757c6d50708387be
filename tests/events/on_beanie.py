"""Beanie as an `EventSubject`, through whichever driver it speaks to here."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from beanie import Document, init_beanie
from pymongo import MongoClient

from tests.events.subject import BEFORE, HOUR, EventSubject, RolledBackError
from tests.mongo.scratch import connect
from ttl_odm.beanie import TTLMixin, ensure_indexes, ttl_database
from ttl_odm.beanie.sweep import store
from ttl_odm.events import AsyncEventWorker, Expiry, events, on_expired, on_expiring
from ttl_odm.events.beanie.outbox import CollectionOutbox
from ttl_odm.events.outbox import Subscription
from ttl_odm.sweeper import AsyncSweeper, Hook, Purged

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
    from datetime import datetime

    from ttl_odm.testing import TTLClock

T = TypeVar("T")


class OnBeanie(EventSubject):
    """In a database of its own."""

    def __init__(self, url: str, clock: TTLClock) -> None:
        class Hold(TTLMixin, Document):
            __ttl__ = HOUR
            __ttl_purge__ = "sweeper"

            id: int  # type: ignore[assignment]
            person: str

            class Settings:
                name = "holds"

        self.got = []
        self.model: Any = Hold
        self._clock = clock
        self._loop = asyncio.new_event_loop()
        self._theirs: MongoClient[Any] = MongoClient(url, tz_aware=True)
        self._name = f"ttl_odm_{uuid4().hex}"
        self._raw = self._theirs[self._name]["holds"]
        self._meanwhile: str | None = None
        on_expired(Hold, include=["person"], name="expired")(self.handle)
        on_expiring(Hold, before=BEFORE, include=["person"], name="expiring")(self.handle)
        self.model.__ttl_on_purged__ = [*self.model.__ttl_on_purged__, Hook(self._comes)]
        self._run(self._open(url))
        self._worker = AsyncEventWorker(self._database, Hold)

    async def _open(self, url: str) -> None:
        self._client = connect(url)
        self._database = ttl_database(self._client[self._name])
        await init_beanie(database=self._database, document_models=[self.model])
        await ensure_indexes(self.model)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def put(
        self, key: int, age: float = 0, *, person: str = "ann", ttl: int | None = None
    ) -> datetime:
        instant = self._run(store.now(self._database)) - timedelta(seconds=age)
        own = {} if ttl is None else {"ttl": ttl}
        self._raw.insert_one({"_id": key, "person": person, "_ts": instant, **own})
        return instant

    def renew(self, key: int) -> None:
        async def renew() -> None:
            assert await (await self.model.get(key)).touch()

        self._run(renew())

    def set_ttl(self, key: int, ttl: int) -> None:
        self._raw.update_one({"_id": key}, {"$set": {"ttl": ttl}})

    def delete(self, key: int) -> None:
        async def delete() -> None:
            await self.model.find_one(self.model.id == key).delete()

        self._run(delete())

    def insert(self, key: int, person: str, *, fails: bool = False) -> None:
        async def insert() -> None:
            started = self._client.start_session()
            async with await started if isawaitable(started) else started as session:
                opened = session.start_transaction()
                async with await opened if isawaitable(opened) else opened:
                    await self.model(id=key, person=person).insert(session=session)
                    if fails:
                        raise RolledBackError

        with suppress(RolledBackError):
            self._run(insert())

    def keys(self) -> set[int]:
        return set(self._raw.distinct("_id"))

    def sweep(self) -> int:
        return self._run(AsyncSweeper(self._database, self.model).run_once()).deleted

    def sweep_while_comes(self, consumer: str) -> bool:
        self._meanwhile = consumer
        self.sweep()
        return self._meanwhile is None

    async def _comes(self, _: Purged) -> None:
        if self._meanwhile is not None:
            outbox = CollectionOutbox(self._database)  # not in the sweep's session
            await outbox.subscribe(self._meanwhile, [Subscription("holds")])
            self._meanwhile = None

    def work(self) -> None:
        self._run(self._worker.run_once())

    def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def read(self, consumer: str) -> Sequence[Expiry]:
        async def read() -> list[Expiry]:
            kinds = ("expired", "expiring")
            found = events(self._database, self.model, consumer=consumer, kinds=kinds)
            return [event async for event in found]

        return self._run(read())

    def close(self) -> None:
        async def close() -> None:
            closing = self._client.close()
            if isawaitable(closing):
                await closing

        self._run(close())
        self._loop.close()
        self._theirs.drop_database(self._name)
        self._theirs.close()
