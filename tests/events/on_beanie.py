"""Beanie as an `EventSubject`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, ClassVar

from beanie import Document
from bson.codec_options import CodecOptions

from tests.events.subject import BEFORE, HOUR, EventSubject, RolledBackError
from tests.mongo.sweeping import swept
from ttl_odm.beanie import TTLMixin
from ttl_odm.events import AsyncEventWorker, Expiry, events, on_expired, on_expiring

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from datetime import datetime

    from tests.mongo.sweeping import Swept
    from ttl_odm.testing import TTLClock


_AWARE: CodecOptions[Any] = CodecOptions(tz_aware=True)


class OnBeanie(EventSubject):
    """Over PyMongo's asynchronous client."""

    def __init__(self, url: str, clock: TTLClock) -> None:
        class Hold(TTLMixin, Document):
            __ttl__: ClassVar[Any] = HOUR
            __ttl_purge__ = "sweeper"
            id: int  # type: ignore[assignment]
            person: str

            class Settings:
                name = "holds"

        self.got = []
        self._clock = clock
        self._loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        on_expired(Hold, include=["person"], name="expired")(self.handle)
        on_expiring(Hold, before=BEFORE, include=["person"], name="expiring")(self.handle)
        self._place: Swept = self._wait(self._stack.enter_async_context(swept(url, Hold)))
        self._worker = AsyncEventWorker(self._place.database, Hold)
        self.work()  # makes the collections, which a transaction can't read that began before

    def _wait(self, awaitable: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(awaitable)

    def put(
        self, key: int, age: float = 0, *, person: str = "ann", ttl: int | None = None
    ) -> datetime:
        own = {} if ttl is None else {"ttl": ttl}
        self._place.add([key], age=age - self._clock.offset.total_seconds(), person=person, **own)
        aware = self._place.raw.with_options(_AWARE)
        stored: datetime = aware.find({"_id": key})[0]["_ts"]
        return stored

    def renew(self, key: int) -> None:
        async def renew() -> None:
            await (await self._place.model.get(key)).touch()

        self._wait(renew())

    def set_ttl(self, key: int, ttl: int) -> None:
        self._place.raw.update_one({"_id": key}, {"$set": {"ttl": ttl}})

    def delete(self, key: int) -> None:
        self._wait(self._place.model.find({"_id": key}).delete())

    def insert(self, key: int, person: str, *, fails: bool = False) -> None:
        async def write() -> None:
            started = self._place.database.client.start_session()
            async with await started if isawaitable(started) else started as session:
                opened = session.start_transaction()
                async with await opened if isawaitable(opened) else opened:
                    await self._place.model(id=key, person=person).insert(session=session)
                    if fails:
                        raise RolledBackError

        with suppress(RolledBackError):
            self._wait(write())

    def keys(self) -> set[int]:
        return self._place.keys("holds")

    def sweep(self) -> int:
        return int(self._wait(self._place.sweep()).deleted)

    def work(self) -> None:
        self._wait(self._worker.run_once())

    def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def read(self, consumer: str) -> Sequence[Expiry]:
        async def read() -> list[Expiry]:
            kinds = ("expired", "expiring")
            found = events(self._place.database, consumer=consumer, kinds=kinds)
            return [event async for event in found]

        read_all: list[Expiry] = self._wait(read())
        return read_all

    def close(self) -> None:
        self._wait(self._stack.aclose())
        self._loop.close()
