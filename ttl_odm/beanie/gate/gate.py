"""What each method of a collection does where documents may expire.

Both drivers share it. A `Gate` has the methods of a collection under their own names, as coroutines
that call the *plain* (ungated) collection of either driver. Methods that return a cursor, as `find`
and `aggregate`, are in `pymongo` and `motor`; `cursors` has what they send. On a collection without
a policy the gate changes nothing, except pipelines that reach a collection with one.

`GATED` and `PASSED` list every public name of PyMongo's AsyncCollection. A test compares them with
the drivers, so that a new release's method can't bypass the gate.

This module must not know Beanie's documents, nor which driver is used.
"""

# ruff: noqa: A002 - `filter` is the drivers' own name for it

from __future__ import annotations

import inspect
from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from pymongo import IndexModel
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, WriteConcernError

from ttl_odm.beanie.gate import bulk, writes
from ttl_odm.beanie.gate.collection_rules import rule_of
from ttl_odm.beanie.gate.cursors import for_find
from ttl_odm.beanie.gate.handle import Handle, is_collated, pop_expired, pop_keep
from ttl_odm.beanie.gate.writes import note_match
from ttl_odm.beanie.indexes.changes import check_ttl_index
from ttl_odm.beanie.keys import unwaiting
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY, is_ours
from ttl_odm.beanie.rewrite import filters
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Sequence

    from pymongo.results import (
        BulkWriteResult,
        DeleteResult,
        InsertManyResult,
        InsertOneResult,
        UpdateResult,
    )

    from ttl_odm.beanie.drivers import Document, Filter, Projection, Session
    from ttl_odm.beanie.gate.bulk import Request
    from ttl_odm.beanie.gate.collection_rules import Methods
    from ttl_odm.beanie.gate.cursors import Lifetime
    from ttl_odm.beanie.rewrite.stamps import Update

GATED: Final = frozenset(
    {
        "aggregate",
        "aggregate_raw_batches",
        "bulk_write",
        "count_documents",
        "create_index",
        "create_indexes",
        "delete_many",
        "delete_one",
        "distinct",
        "estimated_document_count",
        "find",
        "find_one",
        "find_one_and_delete",
        "find_one_and_replace",
        "find_one_and_update",
        "find_raw_batches",
        "index_information",
        "insert_many",
        "insert_one",
        "replace_one",
        "update_many",
        "update_one",
        "with_options",
    }
)
"""Methods that see or change documents, make MongoDB delete some, or return another handle."""
_READS: Final = {"aggregate", "aggregate_raw_batches", "find", "find_one", "find_raw_batches"}
HANDED_OVER: Final = {
    name: tuple(inspect.signature(getattr(AsyncCollection, name)).parameters)[1:]
    for name in GATED - _READS - {"with_options"}
}
"""The gated methods whose calls go to the gate unchanged, and the names of their arguments."""
PASSED: Final = frozenset(
    {
        "codec_options",
        "create_search_index",
        "create_search_indexes",
        "database",
        "drop",
        "drop_index",
        "drop_indexes",
        "drop_search_index",
        "full_name",
        "list_indexes",
        "list_search_indexes",
        "name",
        "next",
        "options",
        "read_concern",
        "read_preference",
        "rename",
        "update_search_index",
        "watch",
        "write_concern",
    }
)
"""Names that concern the whole collection, and ``watch``, which reports all changes."""
_ABOUT_INDEXES: Final = {"create_index", "create_indexes", "index_information"}
"""The methods that Beanie calls before all classes have their collections."""
_CHANGES: Final = {
    *("find_one_and_replace", "find_one_and_update", "replace_one", "update_many", "update_one")
}


class Gate(Handle):
    """The gated methods of one collection."""

    async def find_one(
        self,
        filter: object = None,
        projection: Projection | None = None,
        *args: object,
        **options: object,
    ) -> Document | None:
        """Find one live document."""
        expired = pop_expired(options)
        lifetime, projection = for_find(self, projection, expired=expired)
        await self.read_defaults()
        await self.ready()
        asked = self.filter_for(filter, expired=True)
        is_by_id = "_id" in filters.equalities(asked)
        if is_by_id and lifetime.decides(asked) and not args and not options.get("return_key"):
            # Usually the key's only document, but with a regular expression, a collation, a time
            # series or several shards there may be more: if it has expired, another may be live.
            document = await self.plain.find_one(asked, projection, **options)
            if document is None or not lifetime.is_over(document):
                return lifetime.strip(document)
        # Positional arguments may contain a collation.
        collated = bool(args) or is_collated(options)
        live = self.filter_for(filter, expired=expired, collated=collated)
        if filters.is_positional(projection) and live != asked:
            # MongoDB accepts no $expr with it: find the document first, then read it by its key.
            key = await self.plain.find_one(live, {"_id": 1}, *args, **options)
            if key is None:
                return None
            live, args = filters.with_keys(asked, [key["_id"]]), (0, *args[1:])
            options.pop("skip", None)
            # Under a collation, an expired document may have an equal key.
            async for same in self.plain.find(live, projection, *args, **options):
                if not lifetime.is_over(same):
                    return lifetime.strip(same)
            return None
        return lifetime.strip(await self.plain.find_one(live, projection, *args, **options))

    def filter_for_raw_batches(self, filter: object, options: Document) -> Filter:
        """Return the filter for a find whose documents are not judged again when they are read."""
        expired = pop_expired(options)
        if not expired:
            self.check_complete("find_raw_batches()")
            if (rule := rule_of(self)) is not None:
                raise rule.rejected("raw", self.plain.full_name)
        return self.filter_for(filter, expired=expired)

    async def count_documents(self, filter: Filter, **options: Any) -> int:
        """Count live documents."""
        expired = pop_expired(options)
        await self.ready()
        binding, stages = self.binding, None
        # documentdb has no $$NOW in a sum.
        sums = binding is not None and binding.backend != "documentdb"
        if sums and not expired and options.keys().isdisjoint(("limit", "skip")):
            scopes = self.scopes_in(filter, collated=is_collated(options))
            stages = filters.live_count(filter, self.policy_of(scopes))
        if stages is None:
            live = self.filter_for(filter, expired=expired, collated=is_collated(options))
            return await self.plain.count_documents(live, **options)
        # Both drivers send this in place of their own pipeline. An aggregate() that returns a
        # cursor would double the cost in Python.
        return await self.plain.count_documents(filter, pipeline=stages, **options)

    async def estimated_document_count(self, **options: Any) -> int:
        """Count live documents one by one, because the server's estimate includes expired ones."""
        if pop_expired(options) or not filters.live_filter({}, self.policy):
            return await self.plain.estimated_document_count(**options)
        return await self.count_documents({}, **options)

    async def distinct(self, key: str, filter: Filter | None = None, **options: Any) -> list[Any]:
        """Return the values of a field in live documents."""
        expired = pop_expired(options)
        asked = options.pop("query", filter)
        live = self.filter_for(asked, expired=expired, collated=is_collated(options))
        await self.ready()
        if self.policy is not None:
            live = filters.at(live, self.registry.clock.at_most())
        return await self.plain.distinct(key, live, **options)

    async def index_information(self, **options: Any) -> Document:
        """Return the indexes without ours, which Beanie would drop, as its settings lack them."""
        indexes = await self.plain.index_information(**options)
        return {name: index for name, index in indexes.items() if not is_ours(name)}

    async def create_index(self, keys: Any, **options: Any) -> str:
        """Create an index, unless MongoDB would delete live documents by it."""
        about = {name: options.pop(name, None) for name in ("session", "comment")}
        self._check_index(IndexModel(keys, **options))
        return await self.plain.create_index(keys, **about, **options)

    async def create_indexes(self, indexes: Sequence[IndexModel], **options: Any) -> list[str]:
        """Create indexes, unless MongoDB would delete live documents by one of them."""
        for index in indexes:
            self._check_index(index)
        return await self.plain.create_indexes(indexes, **options)

    def _check_index(self, index: IndexModel) -> None:
        definition = index.document
        if "expireAfterSeconds" in definition:
            check_ttl_index(definition, self.plain.name, self.entry)

    # Writing

    async def delete_one(self, filter: Filter, **options: Any) -> DeleteResult:
        """Delete a live document."""
        live = self.filter_to_write(filter, collated=is_collated(options))
        result = await self.plain.delete_one(live, **options)
        if result.acknowledged:
            await note_match(self.plain.full_name, filter, matched=result.deleted_count > 0)
        return result

    async def delete_many(self, filter: Filter, **options: Any) -> DeleteResult:
        """Delete live documents."""
        live = self.filter_to_write(filter, collated=is_collated(options))
        return await self.plain.delete_many(live, **options)

    async def find_one_and_delete(self, filter: Filter, **options: Any) -> Document | None:
        """Delete a live document and return it."""
        live = self.filter_to_write(filter, collated=is_collated(options))
        lifetime = self._shows(options)
        return lifetime.strip(await self.plain.find_one_and_delete(live, **options))

    async def insert_one(self, document: Document, **options: object) -> InsertOneResult:
        """Insert a document, replacing an expired one that has one of its keys."""
        return await writes.insert_one(self, document, options)

    async def insert_many(
        self, documents: Iterable[Document], *, ordered: bool = True, **options: Any
    ) -> InsertManyResult:
        """Insert documents, replacing expired ones that have one of their keys."""
        if self.binding is None or isinstance(documents, Mapping) or not documents:
            pop_keep(options)
            return await self.plain.insert_many(documents, ordered=ordered, **options)
        return await bulk.insert_many(self, list(documents), options, ordered=ordered)

    async def update_one(self, filter: Filter, update: Update, **options: object) -> UpdateResult:
        """Update a live document; an upsert inserts where none matches."""
        result: UpdateResult = await writes.update(self, "update_one", filter, update, options)
        return result

    async def update_many(self, filter: Filter, update: Update, **options: object) -> UpdateResult:
        """Update live documents; an upsert inserts where none matches."""
        result: UpdateResult = await writes.update(self, "update_many", filter, update, options)
        return result

    async def replace_one(
        self, filter: Filter, replacement: Filter, **options: object
    ) -> UpdateResult:
        """Replace a live document; an upsert inserts where none matches."""
        result: UpdateResult = await writes.update(
            self, "replace_one", filter, replacement, options
        )
        return result

    async def find_one_and_update(
        self, filter: Filter, update: Update, **options: object
    ) -> Document | None:
        """Update a live document and return it; an upsert inserts where none matches."""
        lifetime = self._shows(options)
        result: Document | None = await writes.update(
            self, "find_one_and_update", filter, update, options
        )
        return lifetime.strip(result)

    async def find_one_and_replace(
        self, filter: Filter, replacement: Filter, **options: object
    ) -> Document | None:
        """Replace a live document and return it; an upsert inserts where none matches."""
        lifetime = self._shows(options)
        method = "find_one_and_replace"
        result: Document | None = await writes.update(self, method, filter, replacement, options)
        return lifetime.strip(result)

    async def bulk_write(
        self, requests: Sequence[Request], *, ordered: bool = True, **options: object
    ) -> BulkWriteResult:
        """Send many writes, each of which does what its own method would do."""
        return await bulk.write(self, requests, options, ordered=ordered)

    async def run(self, name: str, arguments: Document) -> object:
        """Run one of the methods that are `HANDED_OVER`."""
        if name in _ABOUT_INDEXES:
            return await getattr(self, name)(**arguments)
        await self.read_defaults()
        await self.check_reach()
        rule = rule_of(self)
        in_steps = name == "bulk_write" or (name in _CHANGES and (rule or arguments.get("upsert")))
        gate = self._unwaiting(arguments.get("session")) if in_steps else None
        methods: Methods = (gate or self) if rule is None else rule.methods(gate or self)
        write = getattr(methods, name)(**arguments)
        return await (write if gate is None else self._waiting(write, arguments.get("session")))

    def _unwaiting(self, session: Session) -> Gate | None:
        """Return the gate for a write of several commands, None if it is this one.

        `_waiting` then waits for other members, once.
        """
        in_transaction = session is not None and bool(session.in_transaction)
        plain = None if in_transaction or not self.is_gated else unwaiting(self.plain)
        if plain is None:
            return None
        gate = copy(self)
        gate.plain = plain
        return gate

    async def _waiting(self, write: Awaitable[object], session: Session) -> object:
        """Await a write that didn't wait for other members, and wait for them as it should have."""
        failed: BulkWriteError | None = None
        try:
            result: object = await write
        except BulkWriteError as error:
            result = failed = error
        try:  # even an update of nothing waits for all writes before it
            await self.plain.update_many(filters.NOTHING, {"$unset": {EXPIRY: ""}}, session=session)
        except WriteConcernError as error:
            details = failed.details if failed else getattr(result, "bulk_api_result", None)
            if details is None:
                raise
            raise BulkWriteError({**details, "writeConcernErrors": [error.details]}) from error
        if failed is not None:
            raise failed
        return result

    def _shows(self, options: Document) -> Lifetime:
        """Set the projection of a find_one_and_... method; return how its result is judged."""
        projection = options.get("projection")
        if filters.is_positional(projection) and filters.live_filter({}, self.policy):
            raise TTLError(
                f"The projection {projection!r} addresses an array element by position, which "
                "MongoDB supports only in finds, and the gate reads by a pipeline here. Write "
                '$elemMatch: {"array": {"$elemMatch": ...}}.'
            )
        lifetime, options["projection"] = for_find(self, projection)
        return lifetime
