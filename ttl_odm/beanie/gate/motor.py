"""The gated database, collections and cursors of Motor, which Beanie 1.30 uses.

This module is imported only for Motor's objects. Motor's classes call methods of PyMongo's
synchronous classes in threads, bypassing their own methods, so each gated method is replaced by
name. As in Motor, methods start their work when they are called, not when they are awaited.
"""

# ruff: noqa: A002 - `filter` is the drivers' own name for it

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any

from motor.motor_asyncio import (
    AsyncIOMotorCollection,
    AsyncIOMotorCursor,
    AsyncIOMotorDatabase,
    AsyncIOMotorLatentCommandCursor,
)
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure

from ttl_odm.beanie.gate.collection_rules import rule_of
from ttl_odm.beanie.gate.cursors import (
    JudgingCursor,
    Sent,
    ask_alike,
    asked_by,
    coarsely,
    for_find,
    for_pipeline,
)
from ttl_odm.beanie.gate.gate import HANDED_OVER, Gate
from ttl_odm.beanie.gate.handle import Handle, is_collated, pop_expired
from ttl_odm.beanie.policy.bindings import registry_of
from ttl_odm.beanie.rewrite import filters
from ttl_odm.beanie.rewrite.pipelines import as_duplicate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from bson import DBRef
    from motor.motor_asyncio import AsyncIOMotorRawBatchCursor

    from ttl_odm.beanie.drivers import (
        Backend,
        Document,
        Filter,
        Method,
        Projection,
        Result,
        Session,
    )
    from ttl_odm.beanie.gate.cursors import Judging

# Motor's stubs leave out the constructors and attributes that subclasses need.
_MotorDatabase: Any = AsyncIOMotorDatabase
_MotorCollection: Any = AsyncIOMotorCollection
_MotorCursor: Any = AsyncIOMotorCursor
_MotorCommandCursor: Any = AsyncIOMotorLatentCommandCursor


class TTLMotorDatabase(_MotorDatabase):  # type: ignore[misc]
    """A database whose collections show live documents only."""

    def __init__(
        self, database: AsyncIOMotorDatabase[Document], backend: Backend, *, guard: bool = False
    ) -> None:
        """Gate a database, with all its options."""
        super().__init__(database.client, database.name, _delegate=database.delegate)
        self.ttl_backend: Backend = backend
        self.ttl_guard = guard
        plain = _MotorCollection(database, "$cmd")
        self._handle = Handle(plain, registry_of(database.client), database.name, backend=backend)

    def __getitem__(self, name: str) -> TTLMotorCollection:
        return TTLMotorCollection(self, name)

    def wrap(self, obj: Any) -> object:
        """Gate the result of a method of PyMongo's."""
        if obj.__class__ is Collection:
            return TTLMotorCollection(self, obj.name, _delegate=obj)
        if obj.__class__ is Database:
            plain = _MotorDatabase(self.client, obj.name, _delegate=obj)
            return TTLMotorDatabase(plain, self.ttl_backend, guard=self.ttl_guard)
        return super().wrap(obj)

    def aggregate(
        self, pipeline: Sequence[Filter], *args: object, **kwargs: object
    ) -> AsyncIOMotorLatentCommandCursor[Document]:
        """Run a pipeline that doesn't start from a collection."""
        expired = pop_expired(kwargs)
        if not expired:
            self._handle.check_complete("aggregate() of a database, with Motor,", pipeline)
        gated = self._handle.pipeline_for(pipeline, expired=expired)
        cursor: AsyncIOMotorLatentCommandCursor[Document] = super().aggregate(
            gated, *args, **kwargs
        )
        return cursor

    def create_collection(self, *args: object, **kwargs: object) -> Awaitable[TTLMotorCollection]:
        """Create a collection, or a view whose pipeline sees live documents only."""
        create: Method[TTLMotorCollection] = super().create_collection

        async def later() -> TTLMotorCollection:
            await self._handle.read_view_defaults(kwargs)
            return await create(*args, **self._handle.command_for(kwargs))

        if self._handle.unread_view_defaults(kwargs):
            return asyncio.ensure_future(later(), loop=self.get_io_loop())
        return create(*args, **self._handle.command_for(kwargs))

    def command(self, command: object, *args: object, **kwargs: object) -> Awaitable[Document]:
        """Run a command; the pipeline of a view that it creates sees live documents only."""
        run: Method[Document] = super().command

        async def later() -> Document:
            await self._handle.read_view_defaults(command)
            return await run(self._handle.command_for(command), *args, **kwargs)

        if self._handle.unread_view_defaults(command):
            return asyncio.ensure_future(later(), loop=self.get_io_loop())
        return run(self._handle.command_for(command), *args, **kwargs)

    def dereference(
        self, dbref: DBRef, session: Session = None, **kwargs: object
    ) -> asyncio.Future[Document | None]:
        """Fetch a live document by a reference."""
        if dbref.database not in (None, self.name):
            raise ValueError(f"{dbref!r} points to another database than {self.name!r}")
        return self[dbref.collection].find_one({"_id": dbref.id}, session=session, **kwargs)


class TTLMotorCollection(_MotorCollection):  # type: ignore[misc]
    """A collection that shows and changes live documents only, if its documents expire."""

    def __init__(self, database: TTLMotorDatabase, name: str, *, _delegate: Any = None) -> None:
        """Gate a collection of Motor's."""
        super().__init__(database, name, _delegate=_delegate)
        plain = _MotorCollection(database, name, _delegate=self.delegate)
        registry = registry_of(database.client)
        backend, guard = database.ttl_backend, database.ttl_guard
        self._gate = Gate(plain, registry, database.name, backend=backend, guard=guard)

    def __getitem__(self, name: str) -> TTLMotorCollection:
        full_name = f"{self.name}.{name}"
        return TTLMotorCollection(self.database, full_name, _delegate=self.delegate[name])

    def wrap(self, obj: Any) -> object:
        """Gate the result of a method of PyMongo's."""
        if obj.__class__ is Collection:
            return TTLMotorCollection(self.database, obj.name, _delegate=obj)
        return super().wrap(obj)

    def find(
        self,
        filter: Filter | None = None,
        projection: Projection | None = None,
        *args: object,
        **kwargs: object,
    ) -> TTLMotorCursor:
        """Find live documents."""
        expired = pop_expired(kwargs)
        rule = None if expired else rule_of(self._gate)
        if rule is not None:
            asked = self._gate.filter_for(filter, expired=True)
            plain = super().find(asked, projection, *args, **kwargs)
            cursor = TTLMotorCursor(plain.delegate, self)
            cursor._lifetime = rule.finds(self._gate, plain.delegate)
            return cursor
        # Documents from an index alone lack the fields to judge by.
        unjudged = expired or bool(kwargs.get("return_key"))
        lifetime, projection = for_find(self._gate, projection, expired=unjudged)
        sent = Sent.of(self._gate, filter, expired=expired)
        plain = super().find(sent.exact, projection, *args, **kwargs)
        cursor = TTLMotorCursor(plain.delegate, self)
        cursor._lifetime, cursor._sent = lifetime, sent
        return cursor

    def find_raw_batches(
        self, filter: object = None, *args: object, **kwargs: object
    ) -> AsyncIOMotorRawBatchCursor[Document]:
        """Find live documents; they are not judged again when they are read."""
        live = self._gate.filter_for_raw_batches(filter, kwargs)
        cursor: AsyncIOMotorRawBatchCursor[Document] = super().find_raw_batches(
            live, *args, **kwargs
        )
        return cursor

    def aggregate(
        self, pipeline: Sequence[Filter], *args: object, **kwargs: object
    ) -> TTLMotorCommandCursor:
        """Run a pipeline on live documents, of other collections too."""
        expired = pop_expired(kwargs)
        lifetime = for_pipeline(self._gate, pipeline, expired=expired)
        is_open = not expired and bool(self._gate.unread_defaults(pipeline))
        # If it is open, the pipeline is replaced when it is sent; until then it returns nothing.
        gated = (
            [{"$match": filters.NOTHING}]
            if is_open
            else self._gate.pipeline_for(pipeline, expired=expired)
        )
        latent = super().aggregate(gated, *args, **kwargs)
        cursor = TTLMotorCommandCursor(self, latent.start, *latent.args, **latent.kwargs)
        cursor._lifetime, cursor._open = lifetime, pipeline if is_open else None
        return cursor

    def aggregate_raw_batches(
        self, pipeline: Sequence[Filter], **kwargs: object
    ) -> AsyncIOMotorRawBatchCursor[Document]:
        """Run a pipeline on live documents; they are not judged again when they are read."""
        expired = pop_expired(kwargs)
        if not expired:
            self._gate.check_complete("aggregate_raw_batches(), with Motor,", pipeline)
        gated = self._gate.pipeline_for(pipeline, expired=expired)
        cursor: AsyncIOMotorRawBatchCursor[Document] = super().aggregate_raw_batches(
            gated, **kwargs
        )
        return cursor

    def find_one(self, *args: Any, **kwargs: Any) -> asyncio.Future[Document | None]:
        """Find one live document."""
        if rule_of(self._gate) is None or kwargs.get("include_expired"):
            return self._start(self._gate.find_one(*args, **kwargs))
        return self._start(self._first_of(self.find(*args, **kwargs)))

    @staticmethod
    async def _first_of(cursor: TTLMotorCursor) -> Document | None:
        documents = await cursor.limit(-1).to_list(1)
        return documents[0] if documents else None

    def _start(self, work: Awaitable[Result]) -> asyncio.Future[Result]:
        return asyncio.ensure_future(work, loop=self.get_io_loop())


def _handed_over(name: str, parameters: tuple[str, ...]) -> Method[object]:
    """Return the method that calls the gate."""

    @wraps(getattr(AsyncIOMotorCollection, name))
    def method(self: TTLMotorCollection, *args: object, **kwargs: object) -> asyncio.Future[object]:
        arguments = {**dict(zip(parameters, args, strict=False)), **kwargs}
        return self._start(self._gate.run(name, arguments))

    return method


for _name, _parameters in HANDED_OVER.items():
    setattr(TTLMotorCollection, _name, _handed_over(_name, _parameters))


class _Cursor(JudgingCursor):
    """The common part of our cursors, which reads the clock before each batch."""

    def _get_more(self) -> Awaitable[object]:
        self._batches += 1
        more: Method[object] = super()._get_more
        if self._batches > 1 or self._lifetime is None or not self._is_unfinished():
            return more()
        # each() and fetch_next ask for batches by themselves.
        completed = self._completed(self._lifetime, more)
        return asyncio.ensure_future(completed, loop=self.get_io_loop())

    def to_list(self, length: int | None = None) -> asyncio.Future[list[Document]]:
        """Return live documents."""
        return asyncio.ensure_future(self._listed(length), loop=self.get_io_loop())

    async def _read(self, method: Method[Result], *args: object) -> Result:
        if self._lifetime is None:
            return await method(*args)
        if self._batches == 0 or (self.alive and not self._buffer_size()):  # there is another batch
            await self._lifetime.handle.read_defaults()
        await self._lifetime.handle.ready()
        if self._batches > 0:
            return await method(*args)
        return await self._begin(self._lifetime, method, *args)

    async def _begin(self, lifetime: Judging, method: Method[Result], *args: object) -> Result:
        del lifetime
        return await method(*args)

    def _is_unfinished(self) -> bool:
        """Return whether the command is incomplete without a default or keys to be read first."""
        return False

    async def _completed(self, lifetime: Judging, method: Method[Result]) -> Result:
        """Complete the command, and send it with the predicate, as each() doesn't judge."""
        return await self._begin(lifetime, method)


class TTLMotorCursor(_Cursor, _MotorCursor):  # type: ignore[misc]
    """The results of a find."""

    async def _begin(self, lifetime: Judging, method: Method[Result], *args: object) -> Result:
        async with coarsely(self.delegate, lifetime, self._sent, self._keys) as self._is_coarse:
            return await method(*args)

    def _is_unfinished(self) -> bool:
        sent = self._sent
        if sent is None or self.delegate._spec is not sent.exact:
            return False
        is_positional = filters.is_positional(self.delegate._projection)
        return sent.is_open or (is_positional and not sent.includes_expired)

    async def _completed(self, lifetime: Judging, method: Method[Result]) -> Result:
        await lifetime.handle.read_defaults()
        async with coarsely(self.delegate, lifetime, self._sent, self._keys, judges=False):
            return await method()

    async def _keys(self) -> list[object]:
        """Return the keys of the documents that the find matches."""
        clone = self.clone()
        clone._lifetime, clone.delegate._projection = None, {"_id": 1}
        return [document["_id"] async for document in clone]

    def where(self, code: object) -> TTLMotorCursor:
        """Add a condition in JavaScript."""
        sent = self._sent
        is_ours = sent is not None and self.delegate._spec is sent.exact
        super().where(code)
        if sent is not None and is_ours:
            self._sent = sent.where(self.delegate._spec)
        return self

    def rewind(self) -> TTLMotorCursor:
        """Restart the find."""
        self._batches = 0
        super().rewind()
        return self

    def clone(self) -> TTLMotorCursor:
        """Return a copy of the cursor that hasn't started."""
        return self._like(super().clone())

    def __copy__(self) -> TTLMotorCursor:
        return self._like(super().__copy__())

    def __deepcopy__(self, memo: object) -> TTLMotorCursor:
        return self._like(super().__deepcopy__(memo))

    def distinct(self, key: str) -> asyncio.Future[list[Any]]:
        """Return the values of a field in the documents that the find matches."""
        asked = asked_by(self.delegate, self._sent)
        values: asyncio.Future[list[Any]] = self.collection.distinct(key, **asked)
        return values

    def explain(self) -> asyncio.Future[Document]:
        """Return the server's plan for the find."""
        clone = self.clone()
        explained: Method[Document] = super(TTLMotorCursor, clone).explain
        return asyncio.ensure_future(clone._read(explained), loop=self.get_io_loop())

    def _like(self, clone: TTLMotorCursor) -> TTLMotorCursor:
        clone._lifetime = self._lifetime
        ask_alike(clone.delegate, self.delegate)
        if self._sent is not None and self.delegate._spec is self._sent.exact:
            clone._sent = self._sent.on(clone.delegate)
        return clone


class TTLMotorCommandCursor(_Cursor, _MotorCommandCursor):  # type: ignore[misc]
    """The results of an aggregation."""

    args: tuple[object, ...]  # of Motor's
    kwargs: Document
    _open: Sequence[Filter] | None = None

    async def _begin(self, lifetime: Judging, method: Method[Result], *args: object) -> Result:
        if self._open is not None and self.args:
            await lifetime.handle.read_defaults(self._open)
            pipeline = lifetime.handle.pipeline_for(
                self._open, expired=False, collated=is_collated(self.kwargs)
            )
            self.args, self._open = (pipeline, *self.args[1:]), None
        try:
            return await super()._begin(lifetime, method, *args)
        except OperationFailure as error:
            raise as_duplicate(error) from error

    def _is_unfinished(self) -> bool:
        return self._open is not None
