"""The shipped suite on the MongoDB store, through the driver that Beanie uses here."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import pytest
from beanie import Document, init_beanie
from bson import DatetimeMS
from bson.codec_options import CodecOptions
from pymongo import MongoClient
from pymongo.monitoring import CommandListener

from tests.mongo.scratch import backend_of, connect
from ttl_odm.beanie import TTLMixin, ensure_indexes, ttl_database
from ttl_odm.beanie.sweep.store import open_store
from ttl_odm.sweeper import AsyncClocked, AsyncCounting, Hooking, Leasing
from ttl_odm.testing import StoreContract, StoreRig
from ttl_odm.testing.contract import HoldContract, PurgeContract

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ttl_odm.sweeper import ArchiveSink

_AWARE: CodecOptions[Any] = CodecOptions(tz_aware=True)


class _Deletes(CommandListener):
    """Does something once, before documents are deleted."""

    def __init__(self) -> None:
        self.actions: list[Callable[[], object]] = []

    def started(self, event: Any) -> None:
        if event.command_name == "delete" and self.actions:
            self.actions.pop()()

    def succeeded(self, event: Any) -> None: ...

    def failed(self, event: Any) -> None: ...


class MongoRig(StoreRig):
    """A store over an asynchronous client; a synchronous one writes and looks past it."""

    def __init__(self, url: str, purge: str, sweep: str, *, indexed: bool = True) -> None:
        super().__init__()
        name = f"ttl_odm_{uuid4().hex}"
        self._deletes = _Deletes()
        self._purge = purge
        self._sweep = sweep
        self._indexed = indexed
        self._models: dict[str, Any] = {}
        self._behind: MongoClient[Any] = MongoClient(url, tz_aware=True)
        self._there = self._behind[name]
        self._client = self.run(self._connect(url))
        self._ours = ttl_database(self._client[name], backend=backend_of(url))
        self._given: list[Any] = []
        self.store = open_store(self._ours, self._given)

    async def _connect(self, url: str) -> Any:
        return connect(url, event_listeners=[self._deletes])

    def create(self, target: str, default: int | None, hooks: Any = None) -> None:
        self._create(target, default, hooks=hooks)

    def create_archived(self, target: str, default: int | None, sink: ArchiveSink) -> None:
        self._create(target, default, archive=sink)

    def _create(
        self, target: str, default: int | None, *, hooks: Any = None, archive: Any = None
    ) -> None:
        class Model(TTLMixin, Document):
            __ttl__: ClassVar[Any] = default
            __ttl_purge__ = self._purge
            __ttl_sweep__ = self._sweep
            __ttl_on_purged__ = hooks
            __ttl_archive__ = archive

            id: int  # type: ignore[assignment]

            class Settings:
                name = target

        model: Any = Model
        self._models[target] = model
        self._given.append(model)

        async def start() -> None:
            await init_beanie(database=self._ours, document_models=[model])
            if self._indexed:
                await ensure_indexes(model)

        self.run(start())
        self.store.targets()

    def set_default(self, target: str, default: int | None) -> None:
        self._models[target].__ttl__ = default

        if self._indexed:
            self.run(ensure_indexes(self._models[target]))

    def add(self, target: str, keys: Sequence[int], *, age: float, ttl: int | None = None) -> None:
        born = self._now() - timedelta(seconds=age)
        own = {} if ttl is None else {"ttl": ttl}
        if keys:
            self._there[target].insert_many([{"_id": key, "_ts": born, **own} for key in keys])

    def renew(self, target: str, key: int) -> None:
        self._there[target].update_one({"_id": key}, {"$currentDate": {"_ts": True}})

    def keys(self, target: str) -> set[int]:
        return {each["_id"] for each in self._there[target].find({}, {"_id": 1})}

    @contextmanager
    def before_delete(self, action: Callable[[], object]) -> Iterator[None]:
        self._deletes.actions.append(action)
        yield
        assert not self._deletes.actions

    def end_lease(self, name: str) -> None:
        ended = {"$set": {"acquired_until": self._now() - timedelta(hours=1)}}
        self._there["ttl_odm_lease"].update_one({"_id": name}, ended)

    @contextmanager
    def hold(self, target: str, key: int) -> Iterator[None]:
        with self._behind.start_session() as session:
            session.start_transaction()
            held = {"$currentDate": {"_ts": True}}
            self._there[target].update_one({"_id": key}, held, session=session)
            yield
            session.abort_transaction()

    def write(self, transaction: Any, text: str) -> object:
        return self._ours["outbox"].insert_one({"text": text}, session=transaction)

    def written(self) -> list[str]:
        return [each["text"] for each in self._there["outbox"].find()]

    def _now(self) -> datetime:
        hello = self._behind.admin.command("hello")
        # A date; a gateway to documentdb gives a number.
        return DatetimeMS(hello["localTime"]).as_datetime(_AWARE)

    def close(self) -> None:
        for name in self._there.list_collection_names():
            self._there.drop_collection(name)
        self._behind.close()
        self.run(self._client.close())
        super().close()


class TestMongoStore(StoreContract):
    """Where the sweeper deletes."""

    @pytest.fixture
    def rig(self, mongodb_url: str) -> Iterator[MongoRig]:
        made = MongoRig(mongodb_url, "sweeper", "index")
        yield made
        made.close()

    def test_it_offers_everything(self, rig: MongoRig) -> None:
        for each in (Hooking, Leasing, AsyncCounting, AsyncClocked):
            assert isinstance(rig.store, each)


class TestBesideMongoDB(PurgeContract, HoldContract):
    """Where MongoDB deletes, and the sweeper what is left to it, or what it meets first."""

    @pytest.fixture
    def rig(self, mongodb_url: str) -> Iterator[MongoRig]:
        made = MongoRig(mongodb_url, "native", "index")
        yield made
        made.close()


class TestWalkedCollections(PurgeContract, HoldContract):
    """What is different where a collection is read instead of its indexes."""

    @pytest.fixture
    def rig(self, mongodb_url: str) -> Iterator[MongoRig]:
        made = MongoRig(mongodb_url, "sweeper", "scan", indexed=False)
        yield made
        made.close()
