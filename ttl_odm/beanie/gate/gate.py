"""The gate: what each method of a collection does where documents may expire.

One set of rules for both drivers. A `Gate` has the methods of a collection under their own names,
as coroutines that call the *plain* (ungated) collection of either driver, and leaves the rest to
the pure functions of `rewriting` and `stamping` and to `writing`. On a collection without a
policy it passes everything on, but for pipelines that look into one that has.

This module must not know Beanie's documents, nor which driver it is.
"""

# ruff: noqa: A002 - `filter` is the drivers' own name for it

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from bson.codec_options import DatetimeConversion, TypeRegistry

from ttl_odm.beanie.gate import bulk, writes
from ttl_odm.beanie.gate.cursors import for_find
from ttl_odm.beanie.gate.watch import note_found
from ttl_odm.beanie.keys.displace import purge_displaced
from ttl_odm.beanie.policy.options import takes_expired, takes_keep
from ttl_odm.beanie.policy.ttl_indexes import is_ours
from ttl_odm.beanie.rewrite import filters
from ttl_odm.beanie.rewrite.stamps import stamping_of

if TYPE_CHECKING:
    from datetime import datetime

    from ttl_odm.beanie.policy.binding import Binding
    from ttl_odm.beanie.policy.registry import Registry
    from ttl_odm.beanie.rewrite.stamps import Stamping
    from ttl_odm.core.policy import Policy

Document = dict[str, Any]
Filter = Mapping[str, Any]


class Gate:
    """The gated methods of one collection.

    Args:
        plain: The same collection as the driver makes it.
        registry: The policies of its client.
        database: The name of its database.

    Attributes:
        gives_plain_documents: Whether documents are what `ttl_odm.beanie.gate.cursors` can judge.
    """

    def __init__(self, plain: Any, registry: Registry, database: str) -> None:
        """Remember them; the policy is looked up at each operation."""
        self.plain = plain
        self.registry = registry
        self.database = database
        options = plain.codec_options
        self.gives_plain_documents = (
            issubclass(options.document_class, MutableMapping)
            and options.datetime_conversion is DatetimeConversion.DATETIME
            and options.type_registry == TypeRegistry()
        )

    @property
    def binding(self) -> Binding | None:
        """The collection's policy, None where it has none."""
        return self.registry.find(self.database, self.plain.name)

    @property
    def policy(self) -> Policy | None:
        """How its documents expire at this moment, None where ttl_odm doesn't enforce that."""
        return _enforced(self.binding)

    @property
    def stamping(self) -> Stamping | None:
        """How writes are stamped at this moment, None where they are not."""
        return _stamping(self.binding)

    async def now(self) -> datetime:
        """Return an instant that the server has reached."""
        await self.registry.clock.refresh(self.plain.database)
        return self.registry.clock.reached()

    async def ready_to_stamp(self) -> None:
        """Know the server's clock, where it cannot stamp an update by itself."""
        stamping = self.stamping
        if stamping is not None and stamping.needs_now:
            await self.registry.clock.refresh(self.plain.database)

    # Reading

    async def ready(self) -> None:
        """Prepare for a read: know the server's clock, and have a view defined as it should be."""
        if self.policy is not None:
            await self.registry.clock.refresh(self.plain.database)
        else:
            await self.registry.views.ensure(self)

    def filter_for(self, given: Any, *, expired: bool) -> Filter:
        """Return the filter for a read."""
        if given is not None and not isinstance(given, Mapping):
            given = {"_id": given}
        return given or {} if expired else filters.live_filter(given, self.policy)

    def pipeline_for(self, given: Any, *, expired: bool) -> Any:
        """Return the pipeline for a read."""
        if expired or not isinstance(given, Sequence):
            return given
        return filters.live_pipeline(given, self.policy, self)

    def command_for(self, command: Any) -> Any:
        """Return a database command, in which a view's pipeline sees live documents only."""
        if not isinstance(command, Mapping) or "viewOn" not in command:
            return command
        source = self.policy_named(None, command["viewOn"])
        pipeline = filters.live_pipeline(command.get("pipeline", []), source, self)
        return {**command, "pipeline": pipeline}

    async def find_one(
        self, filter: Any = None, projection: Any = None, *args: Any, **options: Any
    ) -> Any:
        """Find one live document."""
        expired = takes_expired(options)
        lifetime, projection = for_find(self, projection, expired=expired)
        await self.ready()
        is_judged_here = lifetime.fields and self.gives_plain_documents
        if is_judged_here and _is_by_id(filter) and not args and not options.get("return_key"):
            # At most one document: none hides behind it if it has expired.
            given = filter if isinstance(filter, Mapping) else {"_id": filter}
            found = await self.plain.find_one(given, projection, **options)
            if found is None or not lifetime.is_over(found):
                return lifetime.shown(found)
            if not lifetime.is_in_doubt(found):
                return None
        wanted = self.filter_for(filter, expired=expired)
        found = await self.plain.find_one(wanted, projection, *args, **options)
        return lifetime.shown(found)

    async def count_documents(self, filter: Filter, **options: Any) -> int:
        """Count live documents."""
        wanted = self.filter_for(filter, expired=takes_expired(options))
        await self.ready()
        counted: int = await self.plain.count_documents(wanted, **options)
        return counted

    async def estimated_document_count(self, **options: Any) -> int:
        """Count live documents, one by one: what the server has at hand counts expired ones."""
        if takes_expired(options) or not filters.live_filter({}, self.policy):
            estimated: int = await self.plain.estimated_document_count(**options)
            return estimated
        return await self.count_documents({}, **options)

    async def distinct(self, key: str, filter: Filter | None = None, **options: Any) -> list[Any]:
        """Return the values of a field in live documents."""
        expired = takes_expired(options)
        wanted = self.filter_for(options.pop("query", filter), expired=expired)
        await self.ready()
        if self.policy is not None:
            wanted = filters.at(wanted, self.registry.clock.at_most())
        values: list[Any] = await self.plain.distinct(key, wanted, **options)
        return values

    async def index_information(self, **options: Any) -> Document:
        """Return the indexes but ours, which Beanie would drop for not being in its settings."""
        found = await self.plain.index_information(**options)
        return {name: index for name, index in found.items() if not is_ours(name)}

    # Writing

    async def delete_one(self, filter: Filter, **options: Any) -> Any:
        """Delete a live document."""
        wanted = filters.live_filter(filter, self.policy)
        result = await self.plain.delete_one(wanted, **options)
        if result.acknowledged:
            note_found(self.plain.full_name, filter, found=result.deleted_count > 0)
        return result

    async def delete_many(self, filter: Filter, **options: Any) -> Any:
        """Delete live documents."""
        return await self.plain.delete_many(filters.live_filter(filter, self.policy), **options)

    async def find_one_and_delete(self, filter: Filter, **options: Any) -> Any:
        """Delete a live document and return it."""
        wanted = filters.live_filter(filter, self.policy)
        lifetime, options["projection"] = for_find(self, options.get("projection"))
        return lifetime.shown(await self.plain.find_one_and_delete(wanted, **options))

    async def insert_one(self, document: Any, **options: Any) -> Any:
        """Insert a document, in the place of an expired one that holds a key of it."""
        return await writes.insert_one(self, document, options)

    async def insert_many(self, documents: Any, ordered: bool = True, **options: Any) -> Any:  # noqa: FBT001, FBT002 - the driver's signature
        """Insert documents, in the place of expired ones that hold keys of them."""
        if self.binding is None or isinstance(documents, Mapping) or not documents:
            takes_keep(options)
            return await self.plain.insert_many(documents, ordered, **options)
        return await bulk.insert_many(self, list(documents), options, ordered=ordered)

    async def update_one(self, filter: Filter, update: Any, **options: Any) -> Any:
        """Update a live document; an upsert inserts where none matches."""
        return await writes.update(self, "update_one", filter, update, options)

    async def update_many(self, filter: Filter, update: Any, **options: Any) -> Any:
        """Update live documents; an upsert inserts where none matches."""
        return await writes.update(self, "update_many", filter, update, options)

    async def replace_one(self, filter: Filter, replacement: Any, **options: Any) -> Any:
        """Replace a live document; an upsert inserts where none matches."""
        return await writes.replace(self, "replace_one", filter, replacement, options)

    async def find_one_and_update(self, filter: Filter, update: Any, **options: Any) -> Any:
        """Update a live document and return it; an upsert inserts where none matches."""
        lifetime, options["projection"] = for_find(self, options.get("projection"))
        result = await writes.update(self, "find_one_and_update", filter, update, options)
        return lifetime.shown(result)

    async def find_one_and_replace(self, filter: Filter, replacement: Any, **options: Any) -> Any:
        """Replace a live document and return it; an upsert inserts where none matches."""
        lifetime, options["projection"] = for_find(self, options.get("projection"))
        method = "find_one_and_replace"
        result = await writes.replace(self, method, filter, replacement, options)
        return lifetime.shown(result)

    async def bulk_write(self, requests: Any, ordered: bool = True, **options: Any) -> Any:  # noqa: FBT001, FBT002 - the driver's signature
        """Write many things, each as its own method does."""
        return await bulk.write(self, requests, options, ordered=ordered)

    async def delete_expired(
        self, filter: Filter, *, collation: Any = None, session: Any = None
    ) -> int:
        """Purge what a filter matches and has expired; return how many documents that were.

        Raises:
            HookError: Their class archives or tells, and that failed.
            TTLConfigurationError: It does, and the server has no transactions.
        """
        binding, policy = self.binding, self.policy
        expired = None if policy is None else filters.expired_filter(filter, policy)
        if binding is None or expired is None:
            return 0
        purged = await purge_displaced(
            self.plain, binding, expired, collation=collation, session=session
        )
        if purged is not None:
            return purged
        options = {} if collation is None else {"collation": collation}
        plain = writes.acknowledged(self)
        result = await plain.delete_many(expired, session=session, **options)
        deleted: int = result.deleted_count
        return deleted

    def policy_named(self, database: str | None, collection: str) -> Policy | None:
        """Return the policy of any collection of the client; see `rewriting.Policies`."""
        return _enforced(self.registry.find(database or self.database, collection))

    def stamping_named(self, database: str | None, collection: str) -> Stamping | None:
        """Return how writes to any collection of the client are stamped."""
        return _stamping(self.registry.find(database or self.database, collection))


def _is_by_id(given: Any) -> bool:
    if isinstance(given, Mapping):
        return "_id" in filters.equalities(given)
    return given is not None


def _enforced(binding: Binding | None) -> Policy | None:
    if binding is None or binding.backend != "mongodb":
        return None
    return binding.policy


def _stamping(binding: Binding | None) -> Stamping | None:
    if binding is None:
        return None
    return stamping_of(binding.policy, binding.backend)
