"""Keys of expired documents are free: a write that needs such a key removes its holder.

A write is simply tried. If MongoDB reports a duplicate key, the holder is deleted if it has expired
(the predicate is in the deleting command), and the write is tried again. Without a conflict this
costs nothing. Another client may insert first, so one duplicate isn't final (`until_free`). In a
transaction, which an error would end, the expired holders are deleted before the write, as far as
the keys are known. If the server reveals another, its holder is deleted outside of the transaction,
which the driver may then run again.

Deleting an expired document is always right. So filters for holders may match too much: they
needn't repeat the filter of a partial index, or its treatment of arrays.

Expired documents that block a write are purged like others, but at once (`purge_displaced`), and by
a default that isn't in code only while no client can change it. This includes their archive, and
the hooks inside the transaction. Hooks after the commit are not called, because the application
commits.

This module must not know how writes are stamped, nor drivers beyond their common methods.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import WriteConcern
from pymongo.errors import DuplicateKeyError, PyMongoError

from ttl_odm.beanie.policy.commands import RawCollection, indexes_of
from ttl_odm.beanie.policy.predicate import has, value_at
from ttl_odm.beanie.policy.rules import Rule, rules_below
from ttl_odm.beanie.purge.errors import is_conflict
from ttl_odm.beanie.purge.removal import Remover, mode_of, transaction
from ttl_odm.beanie.rewrite.filters import expired_filter
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import HookError, Hooks, TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from ttl_odm.beanie.drivers import Collection, Document, Filter, Session
    from ttl_odm.beanie.policy.bindings import Binding

Result = TypeVar("Result")

_CHUNK: Final = 1000
"""Keys in one deleting command."""
_MOST_BYTES: Final = 8 * 1024 * 1024
"""Bytes of keys in one deleting command, which may have 16 MiB."""
_AS_STORED: Final[CodecOptions[Filter]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_MS
)
_PATIENCE_SECONDS: Final = 120
"""How long to wait for another client's transaction; the drivers wait as long."""
_PAUSE_SECONDS: Final = 0.05
TRANSIENT: Final = "TransientTransactionError"


class KeyHolders:
    """The expired holders of the keys that a write to a collection needs.

    `known` are the documents that will be written, or their known parts. If they are `complete`, a
    field that they lack will be missing in the stored document.
    """

    def __init__(
        self,
        collection: Collection,
        entry: Binding | Rule,
        session: Session,
        known: Sequence[Document],
        *,
        complete: bool,
    ) -> None:
        """Store the arguments; the collection is ungated and reports conflicts."""
        sooner = unwaiting(collection)  # the write itself waits for other members
        self._collection = collection if sooner is None else sooner
        self._entry = entry
        self._session = session
        self._known = [part for part in known if part]
        self._complete = complete
        self.are_worth_another_try = True

    @property
    def in_transaction(self) -> bool:
        """Whether a conflict would end a transaction."""
        return self._session is not None and bool(self._session.in_transaction)

    async def make_way_beforehand(self) -> None:
        """In a transaction, which can't continue after a conflict, delete the holders."""
        if self.in_transaction:
            await self._delete_holders(self._known)

    async def make_way(
        self,
        conflict: Filter,
        known: Sequence[Document] | None = None,
        others: Sequence[Filter] = (),
    ) -> int | None:
        """Delete the expired holders of a duplicate key; return how many, None for no retry.

        It frees the keys of all documents that are about to be written, so that many documents cost
        one conflict. `others` are more conflicts on the same fields, for what isn't known.

        Raises:
            DuplicateKeyError: In a transaction, which the conflict has ended. The key is free for
                another one, and the error has the label by which the drivers run it.
        """
        known = self._known if known is None else known
        if self.in_transaction:
            outside = copy(self)
            outside._session, outside.are_worth_another_try = None, True
            if await outside.make_way(conflict, known, others):
                raise as_transient(conflict)
            return None
        if not self.are_worth_another_try:
            return None
        if "keyPattern" not in conflict:  # documentdb doesn't report the index
            return await self._delete_holders(known)
        pattern: Filter = conflict["keyPattern"]
        fields = list(pattern)
        collation = conflict.get("collation")
        values: Filter = conflict.get("keyValue", {})
        deleted = 0
        if collation is None:  # with a collation the values are encoded
            # Without a direction a field is indexed by something else, such as its cell on a globe.
            plain = [name for name in fields if not isinstance(pattern[name], str)]
            exact = [
                {name: {"$eq": each.get("keyValue", {}).get(name)} for name in plain}
                for each in (conflict, *(() if self._complete else others))
            ]
            for chunk in _chunks(exact if plain else [], self._collection.codec_options):
                deleted += await self._delete_expired({"$or": chunk} if chunk[1:] else chunk[0])
            # The key of an empty array appears as null here.
            is_enough = len(known) <= 1 and None not in values.values()
            # A missing field is null, if the index has nulls there.
            nulls = {name for name in fields if self._complete and values.get(name) is None}
            known = [
                part for part in known if all(name in nulls or has(part, name) for name in fields)
            ]
            if is_enough and plain == fields:
                return deleted
        for matches in self._holding(fields, known, complete=self._complete and collation is None):
            deleted += await self._delete_expired(matches, collation)
        return deleted

    async def _delete_holders(self, known: Sequence[Document]) -> int:
        """Delete the expired holders of keys in any unique index; return how many."""
        deleted = 0
        if not known or self._entry.enforced_by_others:
            return deleted
        indexes = [index for index in await indexes_of(self._collection) if index.get("unique")]
        for index in [{"key": {"_id": 1}}, *indexes]:
            # A sparse or partial index has no nulls, or none that matter.
            has_nulls = index.keys().isdisjoint(("sparse", "partialFilterExpression"))
            for matches in self._holding(
                list(index["key"]), known, complete=self._complete, has_nulls=has_nulls
            ):
                deleted += await self._delete_expired(matches, index.get("collation"))
        return deleted

    def _holding(
        self,
        fields: list[str],
        known: Iterable[Filter],
        *,
        complete: bool = False,
        has_nulls: bool = True,
    ) -> Iterable[Document]:
        """Yield filters for the holders of documents' keys in an index on these fields.

        If the documents are `complete`, the key for a field that they lack is null; `has_nulls`
        tells whether the index treats null as any other key.
        """
        keys = (
            {name: value_at(part, name) for name in fields if complete or has(part, name)}
            for part in known
        )
        matches = [
            {name: {"$in": _elements(value)} for name, value in key.items()}
            for key in keys
            if any(has_nulls or value is not None for value in key.values())
        ]
        for chunk in _chunks(matches, self._collection.codec_options):
            if len(fields) == 1:
                (name,) = fields
                yield {name: {"$in": [value for match in chunk for value in match[name]["$in"]]}}
            else:
                yield {"$or": chunk}

    async def _delete_expired(self, filter: Filter, collation: Document | None = None) -> int:  # noqa: A002 (MongoDB's name for it)
        """Purge the expired documents that a filter matches; return how many."""
        binding, session = self._entry, self._session
        # Commands past the gate have no options to store a UUID, or types of the application's.
        encoded = bson.encode(filter, codec_options=self._collection.codec_options)
        filter = bson.decode(encoded, codec_options=_AS_STORED)  # noqa: A001
        if isinstance(binding, Rule):
            return await binding.remove(self._collection, filter, collation, session)
        await binding.source.see(self._collection, anew=True)
        policy = binding.enforced
        expired = None if policy is None else expired_filter(filter, policy)
        if expired is None:
            return 0
        purged = await purge_displaced(
            self._collection, binding, filter, collation=collation, session=session
        )
        if purged is not None:
            return purged
        options = {} if collation is None else {"collation": collation}
        result = await self._collection.delete_many(expired, session=session, **options)
        return result.deleted_count


def unwaiting(collection: Collection) -> Collection | None:
    """Return a collection whose writes don't wait for other members; None if that can't fail.

    A write of several commands must not stop in the middle because members are slow or down: the
    error says that a write was applied, and only not acknowledged by enough of them.
    """
    concern = collection.write_concern.document
    if "wtimeout" not in concern and concern.get("w", 1) in (0, 1, "majority"):
        return None
    return collection.with_options(write_concern=WriteConcern(w=1, j=concern.get("j")))


async def until_free(
    attempt: Callable[[], Awaitable[Result]],
    make_way: Callable[[Filter], Awaitable[int | None]],
    *,
    patience: int = 2,
) -> Result:
    """Try a write again as long as expired documents hold its keys.

    `make_way` gets the details of a conflict and returns how many documents it deleted, None if the
    write must not be tried again. After `patience` consecutive conflicts with nothing to delete, a
    live document must hold one of the keys, and the error is raised.
    """
    failures = 0
    while True:
        try:
            return await attempt()
        except DuplicateKeyError as error:
            deleted = await make_way(error.details or {})
            failures = 0 if deleted else failures + 1
            if deleted is None or failures >= patience:
                raise


def as_transient(conflict: Filter) -> DuplicateKeyError:
    """Return the error of a conflict that a transaction doesn't have if it is run again."""
    details = {**conflict, "errorLabels": [TRANSIENT]}
    return DuplicateKeyError(conflict.get("errmsg", ""), conflict.get("code"), details)


def _chunks(matches: list[Document], options: CodecOptions[Filter]) -> Iterable[list[Document]]:
    """Yield conditions in as many parts as fit into commands."""
    chunk: list[Document] = []
    size = 0
    for match in matches:
        length = len(bson.encode(match, codec_options=options))
        if chunk and (len(chunk) == _CHUNK or size + length > _MOST_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(match)
        size += length
    if chunk:
        yield chunk


def _elements(value: object) -> list[object]:
    """Return a value's keys in an index: each element of an array, and null for an empty one.

    On a path through an array of documents with arrays, the elements of all of them are keys.
    """
    if not isinstance(value, list):
        return [value]
    inner = [key for element in value if isinstance(element, list) for key in _elements(element)]
    return [*value, value, None, *inner]


async def purge_displaced(
    collection: Collection,
    binding: Binding,
    filter: Filter,  # noqa: A002 (MongoDB's name for it)
    *,
    collation: Document | None = None,
    session: Session = None,
) -> int | None:
    """Archive and delete expired documents, and call hooks; in the write's transaction or another.

    Returns how many; None if none of this is needed: then nothing was done, and the caller deletes
    the documents. If a hook or an archive fails, the transaction is undone, including the write.
    """
    mode = mode_of(binding, collection.name)
    inside = tuple(entry for entry in mode.hooks.entries if entry[1].when == "transaction")
    mode = replace(mode, hooks=Hooks(inside))
    dependents, is_known = rules_below(collection), binding.source.is_known
    if not (inside or mode.sink or mode.archive or dependents) and is_known:
        return None
    outside = RawCollection(collection)
    doomed = expired_filter(filter, binding.policy)
    if not is_known and not (
        doomed and await outside.within(session).find(doomed, limit=1, **_clauses(collation))
    ):
        return 0  # so that it needn't wait for a client that holds the default
    server = await outside.server()
    remover = Remover(collection.name, mode, binding.policy, mode.hooks, server.now, "displaced")
    if session is not None and session.in_transaction:
        try:
            return await _remove(outside.within(session), binding, remover, filter, collation)
        except HookError:
            # End the application's transaction on the server, so that it can't be committed: the
            # archive lacks the documents deleted in it. If the driver aborted it, the application's
            # next operations would run outside of any transaction.
            with suppress(PyMongoError):  # a server's error may have ended it already
                admin = collection.database.client.admin
                await admin.command({"abortTransaction": 1}, session=session)
            raise
    if not server.has_transactions:
        if not (inside or mode.sink or mode.archive) and is_known:
            # Dependents go first, so an interruption leaves an expired parent with fewer of them.
            return await _remove(outside, binding, remover, filter, collation)
        raise TTLConfigurationError(
            f"{collection.name!r} has hooks, an archive or a default that the database stores, "
            "and one of its expired documents blocks this write. Removing it requires a "
            "transaction, which only a replica set has."
        )
    return await patiently(
        outside, lambda place: _remove(place, binding, remover, filter, collation)
    )


async def patiently(
    outside: RawCollection, remove: Callable[[RawCollection], Awaitable[int]]
) -> int:
    """Remove in a transaction that waits for those of other clients, as a plain delete would."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            async with transaction(outside) as place:
                return await remove(place)
        except (PyMongoError, TransientStoreError) as error:
            is_passing = (
                not isinstance(error, PyMongoError)
                or error.has_error_label(TRANSIENT)
                or is_conflict(error)  # without the label: documentdb
            )
            if not is_passing or time.monotonic() > until:
                raise
        await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 (no secret)


async def _remove(
    place: RawCollection,
    binding: Binding,
    remover: Remover,
    filter: Filter,  # noqa: A002 (MongoDB's name for it)
    collation: Document | None,
) -> int:
    policy = await binding.source.hold(place, binding.policy)
    doomed = expired_filter(filter, policy)
    if doomed is None:
        return 0
    remover = replace(remover, policy=policy)
    rows = await place.find(doomed, projection={"_id": 1}, **_clauses(collation))
    deleted = 0
    while rows:
        removed = await remover.remove(place, rows)
        deleted += removed.deleted
        rows = removed.rest if removed.deleted else []
    return deleted


def _clauses(collation: Document | None) -> Document:
    return {} if collation is None else {"collation": collation}
