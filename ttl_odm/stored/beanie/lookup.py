"""A stored default: where it is, and how it is read.

It is a document of ``ttl_odm_policies``, in the collection's own database. In MongoDB a filter
can't read another collection, so an operation reads that document before it builds its filter
(`see`). The default that it uses was read after the operation began, unless the class allows older
ones (`Stored.max_staleness`).

A deletion must not use a default that may have changed meanwhile, so it holds the document
(`hold`): its transaction writes the document, and so does a change of the default; of the two, the
server lets one through. So no document is ever deleted by an outdated default.

This module must not know how a default is changed.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from bson import MaxKey, MinKey, ObjectId
from bson.codec_options import CodecOptions
from pymongo import ReadPreference
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern

from ttl_odm.beanie.policy.sources import MOST_SCOPES, completed
from ttl_odm.core.values import lenient_ttl
from ttl_odm.stored.beanie.default_cache import WHOLE_COLLECTION, CachedDefault, DefaultCache
from ttl_odm.stored.rows import POLICIES
from ttl_odm.stored.scope_columns import is_encodable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Collection as Collection_

    from ttl_odm.beanie.drivers import Collection, Document, Filter
    from ttl_odm.beanie.policy.bindings import Binding
    from ttl_odm.beanie.policy.commands import RawCollection
    from ttl_odm.core.policy import Policy
    from ttl_odm.stored import Stored

KNOWN_FOR: Final = 10.0
"""Seconds for which a default that was read decides about results in memory."""

AWARE: Final[CodecOptions[Document]] = CodecOptions(tz_aware=True)
# On Linux a clock that goes on while the machine sleeps, so that no cached default outlives that.
# Not `time.monotonic` itself: freezegun replaces that wherever it finds it.
monotonic: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if sys.platform == "linux"
    else partial(time.monotonic)
)


def key_of(collection: Collection, scope: object = WHOLE_COLLECTION) -> Document:
    """Return the ``_id`` of the stored default of a collection, or of a value of `Stored.by`."""
    return {"name": collection.name, "scope": scope}


def all_of(collection: Collection) -> Document:
    """Return the filter for all stored defaults of a collection: a range of the ``_id`` index."""
    return {"_id": {"$gte": key_of(collection, MinKey()), "$lte": key_of(collection, MaxKey())}}


def sibling(collection: Collection, name: str) -> Collection:
    """Return another collection of the same database, ungated."""
    database = collection.database.client[collection.database.name]
    return database.get_collection(
        name,
        codec_options=AWARE,
        # A secondary's documents are as old as its stored defaults.
        read_preference=ReadPreference.PRIMARY_PREFERRED,
        read_concern=ReadConcern("local"),
    )


class StoredDefault:
    """The default of a collection, and those of its scopes, as the database stores them.

    Attributes:
        binding: The policy of the collection.
        cache: The cache of the default.
    """

    def __init__(self, binding: Binding) -> None:
        self.binding = binding
        self.cache = DefaultCache()

    @property
    def declared(self) -> Stored:
        """The declaration of the class at this moment."""
        stored = self.binding.declared.stored
        assert stored is not None  # noqa: S101 (the binding has looked)
        return stored

    @property
    def policy(self) -> Policy:
        """The policy with the default that was read last; TTLError if none was."""
        return self.cache.policy(self.binding.declared, self.binding.model)

    def policy_of(self, scopes: Collection_[object]) -> Policy:
        """Return the policy of documents of a few scopes, without the defaults of all others."""
        return self.cache.policy_of(self.binding.declared, self.binding.model, scopes)

    @property
    def is_recent(self) -> bool:
        """Whether the default was read recently enough to decide about results in memory."""
        return self.cache.was_read_since(monotonic() - KNOWN_FOR)

    async def see(self, collection: Collection, *, anew: bool = False) -> None:
        """Read the default into the cache, unless the cached one may be used again.

        Not in a session: a transaction would read the default as of its begin.
        """
        stored = self.declared
        if not anew and self.cache.may_be_used(monotonic()):
            return
        read_at, policies = monotonic(), sibling(collection, POLICIES)
        fields = {"ttl": 1, "max_staleness": 1, "version": 1}
        row = await policies.find_one({"_id": key_of(collection)}, fields) or {}
        # A change waits for the stored staleness, so a longer one of the class doesn't count.
        allowed = min(stored.max_staleness or 0, seconds_of(row.get("max_staleness")))
        version = row.get("version")
        scopes = {} if stored.by is None else self.cache.scopes_of(version)
        if scopes is None:  # those read after the version are no older than it
            every = await policies.find(all_of(collection), {"ttl": 1}).to_list(None)
            scopes = scopes_in(every)
            self.cache.has_no_collation = None
        if scopes and self.cache.has_no_collation is None:
            self.cache.has_no_collation = await _has_no_collation(collection)
        default = lenient_ttl(row.get("ttl"))
        self.cache.take(CachedDefault(default, read_at, read_at + allowed, scopes, version))

    async def hold(self, place: RawCollection) -> Policy:
        """Return the policy by which documents may be deleted now, and keep it from changing.

        No other client can change it before the commit of the transaction that `place` is in.

        Raises:
            OperationFailure: A write conflict: another client is changing it, or deletes by it.
        """
        reply = await place.run(
            {
                "findAndModify": POLICIES,
                "query": {"_id": key_of(place.collection)},
                # An update that changes nothing isn't a write to the server.
                "update": {"$inc": {"purges": 1}},
                "fields": {"ttl": 1, "version": 1},
            }
        )
        row, every = reply["value"] or {}, all_of(place.collection)
        scopes = {} if self.declared.by is None else self.cache.scopes_of(row.get("version"))
        if scopes is None:
            find = {"find": POLICIES, "filter": every, "batchSize": MOST_SCOPES * 2}
            scopes = scopes_in((await place.run(find))["cursor"]["firstBatch"])
        return completed(self.binding.declared, lenient_ttl(row.get("ttl")), scopes)


async def _has_no_collation(collection: Collection) -> bool | None:
    """Return whether a collection compares strings byte by byte; None if that isn't known yet."""
    listing = {"listCollections": 1, "filter": {"name": collection.name}}
    preferred = ReadPreference.PRIMARY_PREFERRED
    try:
        reply = await collection.database.command(
            listing, codec_options=AWARE, read_preference=preferred
        )
    except OperationFailure:  # the user may not list collections
        return False
    except PyMongoError:  # the driver doesn't retry it, unlike a find
        return None
    details = reply["cursor"]["firstBatch"]
    return "collation" not in details[0]["options"] if details else None


def scopes_in(rows: Iterable[Filter]) -> dict[object, int | None]:
    """Return the defaults of single values of `Stored.by`."""
    scopes = ((row["_id"]["scope"], lenient_ttl(row.get("ttl"))) for row in rows)
    return {scope: ttl for scope, ttl in scopes if is_scope(scope)}


def is_scope(value: object) -> bool:
    """Return whether a value may have a default of its own."""
    if isinstance(value, str):
        return value != WHOLE_COLLECTION and is_encodable(value)
    if isinstance(value, int):
        return not isinstance(value, bool) and -(2**63) <= value < 2**63
    return isinstance(value, ObjectId)


async def is_begun(collection: Collection) -> bool:
    """Return whether the default of a collection is stored."""
    own = {"_id": key_of(collection), "ttl": {"$exists": True}}
    return await sibling(collection, POLICIES).find_one(own, {"_id": 1}) is not None


def seconds_of(value: object) -> int:
    """Return a stored number of seconds; 0 for anything else."""
    seconds = lenient_ttl(value)
    return 0 if seconds is None else max(seconds, 0)
