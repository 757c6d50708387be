"""The gated database, collections and cursors of PyMongo's asynchronous driver.

They are subclasses of the driver's, so that Beanie and other code accept them. The methods that
`ttl_odm.beanie.gate.gate` lists as `HANDED_OVER` call the gate. Databases and collections derived
from gated ones are gated too.
"""

# ruff: noqa: A002 - `filter` is the drivers' own name for it

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, cast

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.command_cursor import AsyncCommandCursor
from pymongo.asynchronous.cursor import AsyncCursor
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure

from ttl_odm.beanie.drivers import Document
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
from ttl_odm.beanie.rewrite.pipelines import as_duplicate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bson import Code
    from pymongo.asynchronous.cursor import AsyncRawBatchCursor

    from ttl_odm.beanie.drivers import Backend, Filter, Method, Projection
    from ttl_odm.beanie.gate.cursors import Judging


class TTLDatabase(AsyncDatabase[Any]):
    """A database whose collections show live documents only."""

    def __init__(
        self, database: AsyncDatabase[Document], backend: Backend, *, guard: bool = False
    ) -> None:
        """Gate a database, with all its options."""
        super().__init__(
            database.client,
            database.name,
            database.codec_options,
            database.read_preference,
            database.write_concern,
            database.read_concern,
        )
        self.ttl_backend: Backend = backend
        self.ttl_guard = guard
        plain = AsyncCollection(database, "$cmd")
        self._handle = Handle(plain, registry_of(database.client), database.name, backend=backend)

    def __getitem__(self, name: str) -> TTLCollection:
        return TTLCollection(self, AsyncCollection(self, name))

    def get_collection(self, *args: Any, **kwargs: Any) -> TTLCollection:
        """Return a collection."""
        return TTLCollection(self, super().get_collection(*args, **kwargs))

    async def create_collection(self, *args: Any, **kwargs: Any) -> TTLCollection:
        """Create a collection, or a view whose pipeline sees live documents only."""
        await self._handle.read_view_defaults(kwargs)
        kwargs = self._handle.command_for(kwargs)
        return TTLCollection(self, await super().create_collection(*args, **kwargs))

    def with_options(self, *args: Any, **kwargs: Any) -> TTLDatabase:
        """Return the same database with other options."""
        other = super().with_options(*args, **kwargs)
        return TTLDatabase(other, self.ttl_backend, guard=self.ttl_guard)

    async def aggregate(
        self, pipeline: Sequence[Filter], *args: Any, **kwargs: Any
    ) -> AsyncCommandCursor[Document]:
        """Run a pipeline that doesn't start from a collection."""
        await self._handle.read_defaults(pipeline)
        gated = self._handle.pipeline_for(pipeline, expired=pop_expired(kwargs))
        return await super().aggregate(gated, *args, **kwargs)

    async def command(self, command: object, *args: Any, **kwargs: Any) -> Any:
        """Run a command; the pipeline of a view that it creates sees live documents only."""
        await self._handle.read_view_defaults(command)
        return await super().command(self._handle.command_for(command), *args, **kwargs)


class TTLCollection(AsyncCollection[Any]):
    """A collection that shows and changes live documents only, if its documents expire."""

    def __init__(self, database: TTLDatabase, plain: AsyncCollection[Document]) -> None:
        """Gate a collection of the driver's."""
        super().__init__(
            database,
            plain.name,
            False,  # noqa: FBT003 - the driver's signature
            plain.codec_options,
            plain.read_preference,
            plain.write_concern,
            plain.read_concern,
        )
        registry = registry_of(database.client)
        backend, guard = database.ttl_backend, database.ttl_guard
        self._gate = Gate(plain, registry, database.name, backend=backend, guard=guard)
        self._ttl_database = database

    def __getitem__(self, name: str) -> TTLCollection:
        return TTLCollection(self._ttl_database, super().__getitem__(name))

    def with_options(self, *args: Any, **kwargs: Any) -> TTLCollection:
        """Return the same collection with other options."""
        return TTLCollection(self._ttl_database, super().with_options(*args, **kwargs))

    def find(
        self,
        filter: Filter | None = None,
        projection: Projection | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> TTLCursor:
        """Find live documents."""
        expired = pop_expired(kwargs)
        rule = None if expired else rule_of(self._gate)
        if rule is not None:
            asked = self._gate.filter_for(filter, expired=True)
            cursor = TTLCursor(self, asked, projection, *args, **kwargs)
            cursor._lifetime = rule.finds(self._gate, cursor)
            return cursor
        # Documents from an index alone lack the fields to judge by.
        unjudged = expired or bool(kwargs.get("return_key"))
        lifetime, projection = for_find(self._gate, projection, expired=unjudged)
        sent = Sent.of(self._gate, filter, expired=expired)
        # When it is sent, `coarsely` chooses between this filter and a faster, coarse one.
        cursor = TTLCursor(self, sent.exact, projection, *args, **kwargs)
        cursor._lifetime, cursor._sent = lifetime, sent
        return cursor

    def find_raw_batches(
        self, filter: object = None, *args: object, **kwargs: object
    ) -> AsyncRawBatchCursor[Document]:
        """Find live documents; they are not judged again when they are read."""
        live = self._gate.filter_for_raw_batches(filter, kwargs)
        return super().find_raw_batches(live, *args, **kwargs)

    async def aggregate(
        self, pipeline: Sequence[Filter], *args: Any, **kwargs: Any
    ) -> AsyncCommandCursor[Document]:
        """Run a pipeline on live documents, of other collections too."""
        expired = pop_expired(kwargs)
        await self._gate.read_defaults(pipeline)
        lifetime = for_pipeline(self._gate, pipeline, expired=expired)
        gated = self._gate.pipeline_for(pipeline, expired=expired, collated=is_collated(kwargs))
        await self._gate.ready()
        try:
            plain = await super().aggregate(gated, *args, **kwargs)
        except OperationFailure as error:
            raise as_duplicate(error) from error
        cursor = cast("TTLCommandCursor", plain)  # `_aggregate` names this class
        cursor._lifetime = lifetime
        return cursor

    async def _aggregate(self, *args: object, **kwargs: object) -> AsyncCommandCursor[Document]:
        # One of the arguments is the class of the cursor.
        ours = [TTLCommandCursor if value is AsyncCommandCursor else value for value in args]
        aggregate: Method[AsyncCommandCursor[Document]] = super()._aggregate
        return await aggregate(*ours, **kwargs)

    async def aggregate_raw_batches(
        self, pipeline: Sequence[Filter], *args: Any, **kwargs: Any
    ) -> AsyncRawBatchCursor[Document]:
        """Run a pipeline on live documents; they are not judged again when they are read."""
        await self._gate.read_defaults(pipeline)
        gated = self._gate.pipeline_for(pipeline, expired=pop_expired(kwargs))
        return await super().aggregate_raw_batches(gated, *args, **kwargs)

    async def find_one(self, filter: object = None, *args: Any, **kwargs: Any) -> Document | None:
        """Find one live document."""
        gate = self._gate
        rule = rule_of(gate)
        if rule is None or kwargs.get("include_expired"):
            return await gate.find_one(filter, *args, **kwargs)
        pop_expired(kwargs)
        await gate.ready()
        # The driver's own cursor suffices: the server has just judged the document.
        cursor: Any = AsyncCursor(self, gate.filter_for(filter, expired=True), *args, **kwargs)
        lifetime = rule.finds(gate, cursor)
        document: Document | None = await anext(cursor.limit(-1), None)
        return lifetime.strip(document)


def _handed_over(name: str, parameters: tuple[str, ...]) -> Method[object]:
    """Return the method that calls the gate."""

    @wraps(getattr(AsyncCollection, name))
    async def method(self: TTLCollection, *args: object, **kwargs: object) -> object:
        arguments = {**dict(zip(parameters, args, strict=False)), **kwargs}
        return await self._gate.run(name, arguments)

    return method


for _name, _parameters in HANDED_OVER.items():
    setattr(TTLCollection, _name, _handed_over(_name, _parameters))


class _Cursor(JudgingCursor):
    """The common part of our cursors, which reads the clock before each batch."""

    async def _refresh(self) -> int:
        if self._lifetime is not None:
            if not self._killed:  # there is another batch
                await self._lifetime.handle.read_defaults()
            await self._lifetime.handle.ready()
            self._batches += 1
            if self._batches == 1:
                return await self._begin(self._lifetime)
        count: int = await super()._refresh()
        return count

    async def _begin(self, lifetime: Judging) -> int:
        del lifetime
        count: int = await super()._refresh()
        return count

    async def to_list(self, length: int | None = None) -> list[Document]:
        """Return live documents."""
        return await self._listed(length)


class TTLCursor(_Cursor, AsyncCursor[Document]):
    """The results of a find."""

    async def _begin(self, lifetime: Judging) -> int:
        if self._sent is None:
            return await super()._begin(lifetime)
        async with coarsely(self, lifetime, self._sent, self._keys) as self._is_coarse:
            return await super()._begin(lifetime)

    async def _keys(self) -> list[object]:
        """Return the keys of the documents that the find matches."""
        clone = self.clone()
        clone._lifetime, clone._projection = None, {"_id": 1}
        return [document["_id"] async for document in clone]

    async def distinct(self, key: str) -> list[Any]:
        """Return the values of a field in the documents that the find matches."""
        values: list[Any] = await self.collection.distinct(key, **asked_by(self, self._sent))
        return values

    def where(self, code: str | Code) -> TTLCursor:
        """Add a condition in JavaScript."""
        sent = self._sent
        is_ours = sent is not None and self._spec is sent.exact
        super().where(code)
        if sent is not None and is_ours:
            self._sent = sent.where(self._spec)
        return self

    async def rewind(self) -> TTLCursor:
        """Restart the find."""
        self._batches = 0
        await super().rewind()
        return self

    def _clone(self, *args: Any, **kwargs: Any) -> TTLCursor:
        clone: TTLCursor = super()._clone(*args, **kwargs)
        clone._lifetime = self._lifetime
        ask_alike(clone, self)
        if self._sent is not None and self._spec is self._sent.exact:
            clone._sent = self._sent.on(clone)
        return clone


class TTLCommandCursor(_Cursor, AsyncCommandCursor[Document]):
    """The results of an aggregation."""

    async def try_next(self) -> Document | None:
        """Return the next live document, None if there is none yet."""
        while True:
            document = await super().try_next()
            if document is None or self._lifetime is None:
                return document
            if not self._lifetime.is_over(document):
                return document
