"""Worlds with the same documents: two that know the right answers, and any number that should.

| world | documents | models |
|---|---|---|
| `CleanWorld` | those that `tests.leaks_mongo.data` says are live | plain Beanie |
| `TimelessWorld` | all | plain Beanie |
| `tests.leaks_mongo.living.LivingWorld` | all | with ttl_odm |

As in the SQL half, the right answer of a path is what plain Beanie gives in the clean world. Each
world has a database of its own, which a second, synchronous client fills, looks at, and makes good
after each path: as another program would, past everything that is under test. (It holds up the
event loop, but nothing else runs there.) This module must not import ttl_odm.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from beanie import Document, UnionDoc, init_beanie
from beanie.odm.documents import DocumentWithSoftDelete
from beanie.odm.fields import ExpressionField
from bson import DBRef
from pymongo import MongoClient

from tests.leaks_mongo.data import ROWS, Ago, Row, To
from tests.leaks_mongo.models import make_models
from tests.leaks_mongo.models_kinds import make_kinds
from tests.mongo.scratch import connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from tests.leaks.registry import Path

Raw = dict[str, Any]

BOOKKEEPING = {"_ts", "_exp", "ttl", "changed", "deleted_at", "expires_at", "revision_id"}
"""What says when a document ends, or changes by itself."""

RELIC = {"$set": {"relic": True}}
"""What every document has that expired, so that any revival shows."""

A_MOMENT = timedelta(seconds=0.7)


@dataclass(frozen=True)
class Bases:
    """What the models of a world are made of.

    Attributes:
        timed: the bases of documents that expire.
        soft: those of documents that expire and may be deleted softly.
        union: the bases of a union of such documents.
        ttl, expire_after, expire_at: make policies.
    """

    timed: tuple[type, ...] = (Document,)
    soft: tuple[type, ...] = (DocumentWithSoftDelete,)
    union: tuple[type, ...] = (UnionDoc,)
    ttl: Callable[..., Any] = lambda *_, **__: None
    expire_after: Callable[..., Any] = lambda *_, **__: None
    expire_at: Callable[..., Any] = lambda *_, **__: None


class TimelessWorld:
    """A database of all documents, read by plain Beanie; the models are its attributes.

    Other worlds are made from it by overriding what they do otherwise. Use `opened`.

    Args:
        url: the server's address.

    Attributes:
        client, database: the driver's, as `init_beanie` gets them.
        other: another program's connection to the database.
        started: when the path at hand began, by the server's clock.
    """

    bases = Bases()
    everything: dict[str, Any] = {}

    def __init__(self, url: str) -> None:
        name, self._url = f"ttl_odm_{uuid4().hex}", url
        _clean((*self.bases.timed, *self.bases.soft))
        made = {**vars(make_models(self.bases)), **vars(make_kinds(self.bases))}
        self._models = SimpleNamespace(**made)
        self._others: MongoClient[Raw] = MongoClient(url, tz_aware=True)
        self.other = self._others[name]
        self.client = connect(url)
        self.database = self._database(self.client[name])
        self.started = self._moment = self.now()
        self._foreseen = False
        self._expired: dict[str, list[Raw]] = {}  # by collection, from the beginning
        self._ended: list[Raw] = []  # in the path at hand

    def __getattr__(self, name: str) -> Any:
        return getattr(self._models, name)

    @classmethod
    @asynccontextmanager
    async def opened(cls, url: str) -> AsyncIterator[Any]:
        """Make a world, with all its documents, and drop its database in the end."""
        world = cls(url)
        try:
            await world._begin()
            yield world
        finally:
            world._others.drop_database(world.other.name)
            world._others.close()
            closing = world.client.close()
            if inspect.isawaitable(closing):
                await closing

    async def answer(self, path: Path) -> Any:
        """Run a path, and take back what it changes."""
        self.started = self.now()
        others = asyncio.all_tasks()
        try:
            return await path.run(self)
        finally:
            await _over(asyncio.all_tasks() - others)
            self._restore()
            self._ended.clear()

    def now(self) -> datetime:
        """This moment, by the server's clock."""
        (found,) = self._others.admin.aggregate(
            [{"$documents": [{}]}, {"$project": {"now": "$$NOW"}}]
        )
        moment: datetime = found["now"]
        return moment

    def after(self, model: Any) -> list[Raw]:
        """What a collection holds now, but for expired documents that nobody has touched.

        A document that had expired and was written to, without becoming a new one, is more than
        what the clean world has.
        """
        collection = model.get_collection_name()
        return [
            {name: value for name, value in each.items() if name not in BOOKKEEPING}
            for each in self._content(collection)
            if each not in self._expired.get(collection, []) + self._ended
        ]

    def changed(self, model: Any) -> list[Any]:
        """The keys of the documents that are new, or in any way other than they were."""
        collection = model.get_collection_name()
        before = self._originals.get(collection, []) + self._ended
        return [each["_id"] for each in self._content(collection) if each not in before]

    def stored(self, model: Any, key: Any) -> Raw | None:
        """One document as it is."""
        return self.other[model.get_collection_name()].find_one({"_id": key})

    def handle(self, model: Any) -> Any:
        """The driver's collection, as Beanie hands it out."""
        of_motor = getattr(model, "get_motor_collection", None)
        return of_motor() if of_motor else model.get_pymongo_collection()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        """A session (Motor's is awaited for, PyMongo's is not)."""
        started = self.client.start_session()
        async with (await started) if inspect.isawaitable(started) else started as session:
            yield session

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """A session with a transaction, which is committed."""
        async with self.session() as session:
            begun = session.start_transaction()
            async with (await begun) if inspect.isawaitable(begun) else begun:
                yield session

    @asynccontextmanager
    async def migrated(self, *models: Any) -> AsyncIterator[Any]:
        """The database by which a migration of Beanie's writes the collections of these classes."""
        client = connect(self._url)
        try:
            yield self._to_migrate(client[self.other.name], models)
        finally:
            closing = client.close()
            if inspect.isawaitable(closing):
                await closing

    def _to_migrate(self, database: Any, models: Sequence[Any]) -> Any:
        del models
        return database

    def holds(self, row: Row) -> bool:
        """Whether a document is put into the collections."""
        del row  # other worlds ask it
        return True

    def give_lifetime(self, document: Raw, row: Row, now: datetime) -> None:
        """Write into a document what its end depends on."""

    def pass_time(self, *documents: Any) -> None:
        """Let so much time pass for these that their default ttl is over."""
        for each in documents:
            collection = self.other[type(each).get_collection_name()]
            collection.update_one({"_id": each.id}, RELIC)
            before = self.stored(type(each), each.id)
            self.end(type(each), each.id)
            ended = self.stored(type(each), each.id)
            if ended and ended != before:
                self._ended.append(ended)

    def end(self, model: Any, key: Any) -> None:
        """Let a document be expired for some time already."""

    def set_end(self, model: Any, key: Any, moment: datetime) -> bool:
        """Say when a document is to expire; False where the world can't know that before."""
        del model, key, moment
        return False

    def let_end_soon(self, model: Any, key: Any, after: timedelta = A_MOMENT) -> None:
        """Let a document expire in a moment."""
        self._moment = self.now() + after
        self._foreseen = self.set_end(model, key, self._moment)

    def let_moment_pass(self, model: Any, key: Any) -> None:
        """Wait, by the server's clock, until the document has expired: nobody can move it."""
        while self._foreseen and not self.is_over():
            time.sleep(0.02)
        if not self._foreseen:
            self.end(model, key)

    def is_over(self) -> bool:
        """Whether the moment has passed."""
        return self._foreseen and self.now() > self._moment

    def forget(self) -> None:
        """Empty the caches of the classes that have one."""
        for model in vars(self._models).values():
            if getattr(model, "_cache", None) is not None:
                model._cache.cache.clear()

    def _database(self, database: Any) -> Any:
        return database

    async def _begin(self) -> None:
        models = [each for each in vars(self._models).values() if isinstance(each, type)]
        await init_beanie(database=self.database, document_models=models)
        now = self.now()
        for row in filter(self.holds, ROWS):
            model = getattr(self, row.model)
            document = {name: _stored(value, now) for name, value in row.values.items()}
            kind = model._class_id or model.get_settings().union_doc_alias
            if kind:
                document["_class_id"] = kind
            if not row.life.live:
                document.update(RELIC["$set"])
            self.give_lifetime(document, row, now)
            collection = self.other[model.get_collection_name()]
            collection.insert_one(document)
            if not row.life.live:
                self._expired.setdefault(collection.name, []).append(
                    collection.find_one({"_id": document["_id"]}) or {}
                )
        self._originals = {name: self._content(name) for name in self._hashes()}
        self._restored = self._hashes()

    def _content(self, collection: str) -> list[Raw]:
        return list(self.other[collection].find(sort=[("_id", 1)]))

    def _hashes(self) -> dict[str, str]:
        found: dict[str, str] = self.other.command("dbHash")["collections"]
        return found

    def _restore(self) -> None:
        for name, found in self._hashes().items():
            if found != self._restored.get(name):
                self.other[name].delete_many({})
                if self._originals.get(name):
                    self.other[name].insert_many(self._originals[name])
        self.forget()


World = TimelessWorld


class CleanWorld(TimelessWorld):
    """The database without the documents that have expired."""

    def holds(self, row: Row) -> bool:
        """Whether it is live."""
        return row.life.live

    def end(self, model: Any, key: Any) -> None:
        """Delete the document behind Beanie's back."""
        self.other[model.get_collection_name()].delete_one({"_id": key})


def _clean(bases: tuple[type, ...]) -> None:
    """Remove the fields that Beanie put on these classes when it initialised their subclasses.

    Classes made from now on would inherit them, and pydantic warns of a field that shadows one.
    """
    for ancestor in {ancestor for base in bases for ancestor in base.__mro__}:
        if ancestor is not Document and issubclass(ancestor, Document):
            for name, value in [*vars(ancestor).items()]:
                if isinstance(value, ExpressionField):
                    delattr(ancestor, name)


async def _over(tasks: set[asyncio.Task[Any]]) -> None:
    """Wait for what a path has begun, but for the driver's own tasks, which run on.

    Where Beanie follows links it gathers: the first error is raised, and the others go on writing.
    """
    coroutines: dict[asyncio.Task[Any], Any] = {each: each.get_coro() for each in tasks}
    left = [each for each, of in coroutines.items() if "pymongo" not in of.cr_code.co_filename]
    await asyncio.gather(*left, return_exceptions=True)


def _stored(value: Any, now: datetime) -> Any:
    if isinstance(value, list):
        return [_stored(each, now) for each in value]
    if isinstance(value, Ago):
        return now - timedelta(seconds=value.seconds)
    if isinstance(value, To):
        # A class that inherits is stored with its base.
        return DBRef(value.model, value.key)
    return value
