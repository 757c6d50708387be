"""The gated database, collections and cursors of Motor, which Beanie 1.30 speaks to.

The counterpart of `ttl_odm.beanie.gate.pymongo`; imported only when Motor's objects are
given. Motor's classes call methods of PyMongo's synchronous ones in threads, without going through
their own methods; so each gated method is replaced by name. As Motor's do, these start working
when they are called, not when they are awaited.
"""

# ruff: noqa: A002 - `filter` is the drivers' own name for it

from __future__ import annotations

import asyncio
from functools import partial, wraps
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

from ttl_odm.beanie.gate.cursors import coarsely, for_find, for_pipeline
from ttl_odm.beanie.gate.gate import Gate, named
from ttl_odm.beanie.gate.handle import takes_expired
from ttl_odm.beanie.policy.binding import registry_of
from ttl_odm.beanie.rewrite.merge import as_duplicate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from ttl_odm.beanie.gate.cursors import Lifetime
    from ttl_odm.beanie.policy.binding import Backend


# Motor's stubs leave out the constructors and attributes that subclasses need.
_MotorDatabase: Any = AsyncIOMotorDatabase
_MotorCollection: Any = AsyncIOMotorCollection
_MotorCursor: Any = AsyncIOMotorCursor
_MotorCommandCursor: Any = AsyncIOMotorLatentCommandCursor


def _gated(name: str) -> Any:
    """Make the method that hands a call to the gate."""

    @wraps(getattr(AsyncIOMotorCollection, name))
    def method(self: TTLMotorCollection, *args: Any, **kwargs: Any) -> asyncio.Future[Any]:
        return self._start(getattr(self._gate, name)(**named(name, args, kwargs)))

    return method


class TTLMotorDatabase(_MotorDatabase):  # type: ignore[misc]
    """A database whose collections show live documents only."""

    def __init__(self, database: Any, backend: Backend) -> None:
        """Take over a database with all its options."""
        super().__init__(database.client, database.name, _delegate=database.delegate)
        self.ttl_backend: Backend = backend

    def __getitem__(self, name: str) -> TTLMotorCollection:
        return TTLMotorCollection(self, name)

    def wrap(self, obj: Any) -> Any:
        """Gate what a method of PyMongo's returns."""
        if obj.__class__ is Collection:
            return TTLMotorCollection(self, obj.name, _delegate=obj)
        if obj.__class__ is Database:
            plain = _MotorDatabase(self.client, obj.name, _delegate=obj)
            return TTLMotorDatabase(plain, self.ttl_backend)
        return super().wrap(obj)

    def aggregate(self, pipeline: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a pipeline that starts from no collection."""
        expired = takes_expired(kwargs)
        gated = self["$cmd.aggregate"]._gate.pipeline_for(pipeline, expired=expired)
        return super().aggregate(gated, *args, **kwargs)

    def create_collection(self, *args: Any, **kwargs: Any) -> Any:
        """Create a collection, or a view whose pipeline sees live documents only."""
        kwargs = self["$cmd"]._gate.command_for(kwargs)
        return super().create_collection(*args, **kwargs)

    def command(self, command: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a command; the pipeline of a view that it creates sees live documents only."""
        return super().command(self["$cmd"]._gate.command_for(command), *args, **kwargs)

    def dereference(self, dbref: Any, session: Any = None, **kwargs: Any) -> Any:
        """Fetch a live document by a reference."""
        if dbref.database not in (None, self.name):
            message = f"{dbref!r} points to another database than {self.name!r}"
            raise ValueError(message)
        return self[dbref.collection].find_one({"_id": dbref.id}, session=session, **kwargs)


class TTLMotorCollection(_MotorCollection):  # type: ignore[misc]
    """A collection that shows and changes live documents only, if its documents expire."""

    def __init__(self, database: TTLMotorDatabase, name: str, *, _delegate: Any = None) -> None:
        """Gate a collection of Motor's."""
        super().__init__(database, name, _delegate=_delegate)
        plain = _MotorCollection(database, name, _delegate=self.delegate)
        self._gate = Gate(plain, registry_of(database.client), database.name)

    def __getitem__(self, name: str) -> TTLMotorCollection:
        full_name = f"{self.name}.{name}"
        return TTLMotorCollection(self.database, full_name, _delegate=self.delegate[name])

    def wrap(self, obj: Any) -> Any:
        """Gate what a method of PyMongo's returns."""
        if obj.__class__ is Collection:
            return TTLMotorCollection(self.database, obj.name, _delegate=obj)
        return super().wrap(obj)

    def find(self, filter: Any = None, projection: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Find live documents."""
        expired = takes_expired(kwargs)
        lifetime, projection = for_find(self._gate, projection, expired=expired)
        wanted = self._gate.filter_for(filter, expired=expired)
        cursor = TTLMotorCursor(super().find(wanted, projection, *args, **kwargs).delegate, self)
        cursor._lifetime, cursor._given, cursor._exact = lifetime, filter, wanted
        return cursor

    def find_raw_batches(self, filter: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Find live documents; they are not judged again when they are read."""
        wanted = self._gate.filter_for(filter, expired=takes_expired(kwargs))
        return super().find_raw_batches(wanted, *args, **kwargs)

    def aggregate(self, pipeline: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a pipeline on live documents, of other collections too."""
        expired = takes_expired(kwargs)
        lifetime = for_pipeline(self._gate, pipeline, expired=expired)
        gated = self._gate.pipeline_for(pipeline, expired=expired)
        latent = super().aggregate(gated, *args, **kwargs)
        cursor = TTLMotorCommandCursor(self, latent.start, *latent.args, **latent.kwargs)
        cursor._lifetime = lifetime
        return cursor

    def aggregate_raw_batches(self, pipeline: Any, **kwargs: Any) -> Any:
        """Run a pipeline on live documents; they are not judged again when they are read."""
        gated = self._gate.pipeline_for(pipeline, expired=takes_expired(kwargs))
        return super().aggregate_raw_batches(gated, **kwargs)

    def find_one(self, *args: Any, **kwargs: Any) -> Any:
        """Find one live document."""
        return self._start(self._gate.find_one(*args, **kwargs))

    bulk_write = _gated("bulk_write")
    count_documents = _gated("count_documents")
    delete_many = _gated("delete_many")
    delete_one = _gated("delete_one")
    distinct = _gated("distinct")
    estimated_document_count = _gated("estimated_document_count")
    find_one_and_delete = _gated("find_one_and_delete")
    find_one_and_replace = _gated("find_one_and_replace")
    find_one_and_update = _gated("find_one_and_update")
    index_information = _gated("index_information")
    insert_many = _gated("insert_many")
    insert_one = _gated("insert_one")
    replace_one = _gated("replace_one")
    update_many = _gated("update_many")
    update_one = _gated("update_one")

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Future[Any]:
        return asyncio.ensure_future(work, loop=self.get_io_loop())


_AnyCursor: Any = object


class _Judging(_AnyCursor):  # type: ignore[misc]
    """What cursors have in common: documents that have expired are left out."""

    _lifetime: Lifetime | None = None
    _batches = 0
    _is_coarse = False

    def _get_more(self) -> Any:
        self._batches += 1
        return super()._get_more()

    async def next(self) -> Any:
        """Return the next live document."""
        while True:
            document = await self._reading(super().next)
            if self._lifetime is None:
                return document
            if not self._lifetime.is_over(document):
                return self._lifetime.shown(document)

    async def __anext__(self) -> Any:
        return await self.next()

    def to_list(self, length: int | None = None) -> asyncio.Future[list[Any]]:
        """Return live documents."""
        return asyncio.ensure_future(self._listed(length), loop=self.get_io_loop())

    async def _listed(self, length: int | None) -> list[Any]:
        lifetime = self._lifetime
        if lifetime is None:
            listed: list[Any] = await super().to_list(length)
            return listed
        living: list[Any] = []
        while True:
            left = None if length is None else length - len(living)
            batches = self._batches
            documents = await self._reading(partial(super().to_list, left))
            is_judged = batches == 0 and self._batches == 1 and not self._is_coarse
            living += lifetime.listed(documents, is_judged=is_judged)
            if length is None or len(living) >= length or not documents:
                return living

    async def _reading(self, read: Callable[[], Awaitable[Any]]) -> Any:
        if self._lifetime is None:
            return await read()
        await self._lifetime.handle.ready()
        if self._batches > 0:
            return await read()
        return await self._begin(self._lifetime, read)

    async def _begin(self, lifetime: Lifetime, read: Callable[[], Awaitable[Any]]) -> Any:
        del lifetime
        return await read()


class TTLMotorCursor(_Judging, _MotorCursor):  # type: ignore[misc]
    """The results of a find."""

    _given: Any = None
    _exact: Any = None

    async def _begin(self, lifetime: Lifetime, read: Callable[[], Awaitable[Any]]) -> Any:
        with coarsely(self.delegate, lifetime, self._given, self._exact) as self._is_coarse:
            return await read()

    def rewind(self) -> Any:
        """Begin again."""
        self._batches = 0
        return super().rewind()

    def clone(self) -> Any:
        """Return the same cursor, not yet begun."""
        return self._like(super().clone())

    def __copy__(self) -> Any:
        return self._like(super().__copy__())

    def __deepcopy__(self, memo: Any) -> Any:
        return self._like(super().__deepcopy__(memo))

    def distinct(self, key: str) -> Any:
        """Return the values of a field in live documents."""
        # The delegate would ask the server itself, and $$NOW is not known to `distinct`.
        return self.collection.distinct(key, self.delegate._spec)

    def _like(self, clone: Any) -> Any:
        clone._lifetime, clone._given = self._lifetime, self._given
        clone._exact = clone.delegate._spec if self.delegate._spec is self._exact else None
        return clone


class TTLMotorCommandCursor(_Judging, _MotorCommandCursor):  # type: ignore[misc]
    """The results of an aggregation."""

    async def _begin(self, lifetime: Lifetime, read: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await super()._begin(lifetime, read)
        except OperationFailure as error:
            raise as_duplicate(error) from error
