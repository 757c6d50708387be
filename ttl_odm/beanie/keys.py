"""Keys of expired documents are free: who holds one gives way to a write that needs it.

A write is simply tried. When MongoDB reports a duplicate key, the holder is deleted, provided it
has expired (the predicate is in the deleting command), and the write is tried again: no cost
without a conflict. Another client may be faster in between (`until_free` has the patience for
that), so a duplicate is not believed at once. An error would end a transaction: there the expired
holders go first.

It is always right to delete an expired document. So filters for holders may match too much: they
need not repeat what an index is partial on, or how it treats arrays.

Expired documents that are in the way are purged like any others, at once (`purge_displaced`), by a
default that isn't in code only while nobody can change it. Where their class archives, or has a
hook in the transaction, that happens here too; the hooks after the commit are not told, since the
commit is the application's.

This module must not know how writes are stamped, nor drivers beyond their common methods.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

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
_PATIENCE_SECONDS: Final = 120
"""For somebody else's transaction that holds a document; as long as the drivers' own."""
_PAUSE_SECONDS: Final = 0.05


class KeyHolders:
    """The expired holders of the keys that a write to a collection needs.

    `known` are the documents that will be written, or the parts of them that are known; `complete`
    where that is all of their fields, so that one which is not known will be missing.
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
        """Take an ungated collection that reports conflicts; do nothing yet."""
        self._collection = collection
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
        """Delete them in a transaction, which cannot go on after a conflict."""
        if self.in_transaction:
            await self._delete_holders(self._known)

    async def make_way(
        self, conflict: Filter, known: Sequence[Document] | None = None
    ) -> int | None:
        """Delete the holders of the key that a duplicate key error names; return how many.

        None if it is too late for another try. All that is about to be written is made way for, so
        that many documents cost one conflict.
        """
        if self.in_transaction or not self.are_worth_another_try:
            return None
        known = self._known if known is None else known
        if "keyPattern" not in conflict:  # documentdb doesn't say which index it is
            return await self._delete_holders(known)
        fields: list[str] = list(conflict["keyPattern"])
        collation = conflict.get("collation")
        values: Filter = conflict.get("keyValue", {})
        deleted = 0
        if collation is None:  # with a collation the values are encoded
            exact = {name: {"$eq": values.get(name)} for name in fields}
            deleted += await self._delete_expired(exact)
            # An empty array is a key that reads as null here.
            is_enough = len(known) <= 1 and None not in values.values()
            known = [part for part in known if all(has(part, name) for name in fields)]
            if is_enough:
                return deleted
        for matches in _holding(fields, known):
            deleted += await self._delete_expired(matches, collation)
        return deleted

    async def _delete_holders(self, known: Sequence[Document]) -> int:
        """Delete the expired holders of keys by any unique index; return how many."""
        deleted = 0
        if not known or self._entry.enforced_by_others:
            return deleted
        indexes = [index for index in await indexes_of(self._collection) if index.get("unique")]
        for index in [{"key": {"_id": 1}}, *indexes]:
            # Elsewhere a null is not in the index, or in the part of it that matters.
            has_nulls = index.keys().isdisjoint(("sparse", "partialFilterExpression"))
            for matches in _holding(
                list(index["key"]), known, complete=self._complete, has_nulls=has_nulls
            ):
                deleted += await self._delete_expired(matches, index.get("collation"))
        return deleted

    async def _delete_expired(self, filter: Filter, collation: Document | None = None) -> int:  # noqa: A002 (MongoDB's name for it)
        """Purge what a filter matches and has expired; return how many documents that were."""
        binding, session = self._entry, self._session
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


async def until_free(
    attempt: Callable[[], Awaitable[Result]],
    make_way: Callable[[Filter], Awaitable[int | None]],
    *,
    patience: int = 2,
) -> Result:
    """Try a write again as long as expired documents hold its keys.

    `make_way` gets the details of a conflict and returns how many documents it deleted, None if the
    write must not be tried again. After `patience` conflicts in a row with nothing to delete it is
    a duplicate: a live document holds one of the keys.
    """
    in_vain = 0
    while True:
        try:
            return await attempt()
        except DuplicateKeyError as error:
            deleted = await make_way(error.details or {})
            in_vain = 0 if deleted else in_vain + 1
            if deleted is None or in_vain >= patience:
                raise


def _holding(
    fields: list[str], known: Iterable[Filter], *, complete: bool = False, has_nulls: bool = True
) -> Iterable[Document]:
    """Give filters that match whoever holds a key, by an index on some fields, of a document.

    Where they are `complete`, a field that is not known will be missing, for which null is the key;
    `has_nulls` says whether null is a key like any other.
    """
    keys = [
        {name: value_at(part, name) for name in fields if complete or has(part, name)}
        for part in known
    ]
    keys = [key for key in keys if any(has_nulls or value is not None for value in key.values())]
    for start in range(0, len(keys), _CHUNK):
        chunk = keys[start : start + _CHUNK]
        if len(fields) == 1:
            (name,) = fields
            yield {name: {"$in": [value for key in chunk for value in _elements(key[name])]}}
        else:
            matches = [
                {name: {"$in": _elements(value)} for name, value in key.items()} for key in chunk
            ]
            yield {"$or": matches}


def _elements(value: object) -> list[object]:
    """Return what an index has for a value: for an array each element, and null for none."""
    return [*value, value, None] if isinstance(value, list) else [value]


async def purge_displaced(
    collection: Collection,
    binding: Binding,
    filter: Filter,  # noqa: A002 (MongoDB's name for it)
    *,
    collation: Document | None = None,
    session: Session = None,
) -> int | None:
    """Archive and delete what has expired, and tell; in the write's transaction, or in its own.

    Returns how many; None where nobody has to know of them: then nothing was done, and the caller
    deletes them. A hook or an archive that fails undoes the transaction, the write's too.
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
        return 0  # nobody has to wait for whoever holds the default
    server = await outside.server()
    remover = Remover(collection.name, mode, binding.policy, mode.hooks, server.now, "displaced")
    if session is not None and session.in_transaction:
        try:
            return await _remove(outside.within(session), binding, remover, filter, collation)
        except HookError:
            # The server ends the application's transaction, so that it cannot be committed: what
            # has been deleted in it would be in no archive. The driver is not asked: it would take
            # what the application does next for something outside of any transaction.
            with suppress(PyMongoError):  # it may have ended already, as after any server's error
                admin = collection.database.client.admin
                await admin.command({"abortTransaction": 1}, session=session)
            raise
    if not server.has_transactions:
        if not (inside or mode.sink or mode.archive) and is_known:
            # Dependents first: what is interrupted leaves an expired parent with fewer of them.
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
    """Remove in a transaction, which waits for those of others, as a plain delete would."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            async with transaction(outside) as place:
                return await remove(place)
        except (PyMongoError, TransientStoreError) as error:
            is_passing = (
                not isinstance(error, PyMongoError)
                or error.has_error_label("TransientTransactionError")
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
