"""How expired documents are archived, reported to hooks, and deleted.

A class with an archive or ``__ttl_on_purged__`` leaves its documents to the sweeper
(``__ttl_purge__ = "sweeper"``), since MongoDB's own monitor would delete them without a report.
Both are read from the class when documents are purged, because an archive may be declared later
than the class.

With an archive or hooks, everything happens in one transaction. Other batches use a transaction
too, if the server has them. Outside of a transaction, a command that deletes many documents waits
for any client that holds one of them, without a limit, and an interruption leaves half of them
deleted. Inside, it gives up at once and changes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import bson
from bson import ObjectId
from bson.codec_options import DatetimeConversion
from pymongo import ReadPreference, WriteConcern
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from ttl_odm.beanie.policy.bindings import collection_of, registry_of
from ttl_odm.beanie.policy.commands import BY_KEY, RAW, RawCollection, as_datetime
from ttl_odm.beanie.policy.predicate import expired_expr
from ttl_odm.beanie.policy.rules import remove_dependents
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY
from ttl_odm.beanie.purge.errors import in_short, is_passing
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import ArchiveSink, HookError, Hooks, Purged, TransientStoreError
from ttl_odm.sweeper.hooks import Archive, archive_async, archive_of, hooks_of, phase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bson import DatetimeMS
    from bson.raw_bson import RawBSONDocument

    from ttl_odm.beanie.drivers import Collection, Database, Document
    from ttl_odm.beanie.policy.bindings import Binding
    from ttl_odm.beanie.policy.sources import OwnScopes
    from ttl_odm.core.policy import Policy
    from ttl_odm.sweeper.hooks import Reason

Rows: TypeAlias = "list[RawBSONDocument]"

KEY: Final = "_original_id"
"""The field for the key of an archived document if the archive already has that key."""
_MAJORITY: Final = WriteConcern("majority")


@dataclass(frozen=True, slots=True)
class Mode:
    """What a class declares for its expired documents: an archive or a sink, and hooks."""

    archive: Archive | None = None
    sink: ArchiveSink | None = None
    hooks: Hooks = field(default_factory=Hooks)


def mode_of(binding: Binding, name: str) -> Mode:
    """Return the mode that the class of a collection declares."""
    model = binding.model
    archive, hooks = archive_of(model), hooks_of(model, name)
    if binding.purge == "native" and (archive is not None or hooks):
        from ttl_odm.combinations import (  # noqa: PLC0415 (only if it is wrong)
            CAPABILITIES,
            combination,
        )

        capability = "hooks" if archive is None else "archive"
        line = combination("beanie", "database_sweep", capability)
        declared = CAPABILITIES[capability].attribute
        raise TTLConfigurationError(f"{model.__name__}.{declared}: {line.reason}: {line.instead}.")
    if not isinstance(archive, Archive):
        return Mode(sink=archive, hooks=hooks)
    into = archive.into
    is_class = isinstance(into, type) and hasattr(into, "get_settings")
    if not is_class and not (isinstance(into, str) and into):
        raise TTLConfigurationError(
            f"{model.__name__}.__ttl_archive__ = {archive!r}: give the name of a collection, or a "
            "document class."
        )
    if into == name:
        raise TTLConfigurationError(
            f"{model.__name__}.__ttl_archive__: the archive {name!r} is the collection itself."
        )
    return Mode(archive=archive, hooks=hooks)


def archive_in(database: Database, archive: Archive) -> Collection:
    """Return the collection of an archive, in the database of the documents."""
    into = archive.into
    collection: Collection = database[into] if isinstance(into, str) else collection_of(into)
    return collection


@dataclass(frozen=True, slots=True)
class Removed:
    """What a transaction removes if it is committed.

    Attributes:
        deleted: The number of deleted documents.
        archived: How many of them were archived.
        loaded: The bytes of documents that were loaded completely.
        purged: The details for hooks after the commit.
        rest: The documents that didn't fit into a reply.
        by_scope: The numbers of deleted documents, by scopes with their own default.
        dependents: The numbers of removed dependents, by collection.
        has_more_dependents: Whether there were more dependents than allowed; then none of the
            documents was deleted.
    """

    deleted: int
    archived: int = 0
    loaded: int = 0
    purged: Purged | None = None
    rest: Rows = field(default_factory=list)
    by_scope: Counter[str] = field(default_factory=Counter)
    dependents: Counter[str] = field(default_factory=Counter)
    has_more_dependents: bool = False


@dataclass(frozen=True, slots=True)
class Remover:
    """How documents that expired by the server's instant `as_of` are removed from a collection.

    They are counted by `scopes`, if there are any. Their dependents are removed first, at most
    `limit` at once.
    """

    name: str
    mode: Mode
    policy: Policy
    hooks: Hooks
    as_of: DatetimeMS
    reason: Reason = "expired"
    scopes: OwnScopes | None = None
    limit: int | None = None

    @property
    def needs_transaction(self) -> bool:
        """Whether documents are also archived, or reported to hooks or a sink."""
        return self.mode.archive is not None or self._reports

    @property
    def _reports(self) -> bool:
        return self.mode.sink is not None or self.hooks.watches(self.name)

    @property
    def _shows_rows(self) -> bool:
        return self.mode.sink is not None or self.hooks.wants_rows(self.name)

    async def remove(self, place: RawCollection, rows: Rows) -> Removed:
        """Delete the documents that have expired, archive them, and report them.

        It needs a transaction if `needs_transaction`, or with `scopes`. It uses only the keys of
        the rows, because the documents may have changed since.
        """
        before = await remove_dependents(place, self.policy, rows, self.limit)
        if not before.is_done:
            return Removed(0, dependents=before.documents, has_more_dependents=True)
        return replace(await self._remove(place, rows), dependents=before.documents)

    async def _remove(self, place: RawCollection, rows: Rows) -> Removed:
        began = time.monotonic()
        expired = {"$expr": expired_expr(self.policy)}
        doomed: Document = {"_id": {"$in": [row["_id"] for row in rows]}, **expired}
        if not self.needs_transaction:
            expected, by_scope = await self._counted(place, doomed)
            deleted = await place.delete([doomed], BY_KEY)
            if self.scopes is not None:
                _check(deleted, expected)
            return Removed(deleted, by_scope=by_scope)
        clauses: Document = {"hint": BY_KEY, "limit": len(rows)}
        if not (self._shows_rows or self.mode.archive):
            clauses["projection"] = {"_id": 1}
        with phase("find"):  # as many as fit into a reply
            chosen = await place.find(doomed, **clauses)
        if not chosen:
            return Removed(0)
        doomed["_id"] = {"$in": [row["_id"] for row in chosen]}
        if self.reason == "displaced":  # a write mustn't fail in `_check`
            del doomed["$expr"]
        _, by_scope = await self._counted(place, doomed)
        deleted = await place.delete([doomed], BY_KEY)
        _check(deleted, len(chosen))
        if self.mode.archive is not None:
            await self._archive(place, chosen, self.mode.archive)
        purged = await self._report(place, chosen, began) if self._reports else None
        is_kept = self.mode.archive is not None or self.mode.sink is not None
        return Removed(
            deleted,
            deleted if is_kept else 0,
            sum(len(row.raw) for row in chosen),
            purged,
            _without(rows, chosen),
            by_scope,
        )

    async def _counted(self, place: RawCollection, doomed: Document) -> tuple[int, Counter[str]]:
        """Return the number of documents, and their numbers by scope; zero without scopes."""
        if self.scopes is None:
            return 0, Counter()
        with phase("find"):
            counted = await place.count(doomed, BY_KEY, self.scopes.number)
        return counted.total(), self.scopes.named(counted)

    async def _archive(self, place: RawCollection, rows: Rows, archive: Archive) -> None:
        collection = archive_in(place.collection.database, archive)
        client = collection.database.client
        binding = registry_of(client).find(collection.database.name, collection.name)
        policy = None if binding is None else binding.outline
        copies: list[Any] = [*rows]
        if isinstance(policy, TTL) or archive.archived_at is not None:
            omitted: set[str | None] = set()
            if isinstance(policy, TTL):
                omitted = {policy.last_modified, policy.override, EXPIRY}
            copies = [{key: row[key] for key in row if key not in omitted} for row in rows]
        if archive.archived_at is not None:
            for copy in copies:
                copy[archive.archived_at] = self.as_of
        try:
            with phase("archive"):
                inside = RawCollection(collection).within(place.session)
                for number in await _archived_before(inside, rows):
                    # The fields keep their order; the new one is the last.
                    copies[number] = {**copies[number], "_id": ObjectId(), KEY: rows[number]["_id"]}
                await collection.insert_many(copies, session=place.session)
        except PyMongoError as error:
            if is_passing(error):
                raise
            raise HookError(
                f"The archive {collection.name} did not accept documents of {self.name}: "
                f"{in_short(error)}"
            ) from error

    async def _report(self, place: RawCollection, rows: Rows, began: float) -> Purged:
        options = place.collection.codec_options
        conversion = options.datetime_conversion
        if conversion is DatetimeConversion.DATETIME:
            # Otherwise one document from the year 10000 would prevent its batch forever.
            conversion = DatetimeConversion.DATETIME_AUTO
        as_read = options.with_options(document_class=dict, datetime_conversion=conversion)
        documents = [bson.decode(row.raw, as_read) for row in rows]
        purged = Purged(
            self.name,
            keys=[(document["_id"],) for document in documents],
            count=len(documents),
            as_of=as_datetime(self.as_of),
            rows=documents if self._shows_rows else None,
            duration=time.monotonic() - began,
            reason=self.reason,
        )
        inside = replace(purged, transaction=place.session)
        try:
            if self.mode.sink is not None:
                await archive_async(self.mode.sink, inside)
            await self.hooks.call_async(inside)
        except HookError as error:
            cause = error.__cause__
            if isinstance(cause, PyMongoError) and is_passing(cause):
                raise cause from None  # the hook's write met another transaction: try all again
            raise
        return purged


async def _archived_before(archive: RawCollection, rows: Rows) -> list[int]:
    """Return the numbers of the documents whose key an archive already has.

    The archive keeps an earlier document with that key; a duplicate key would end the transaction.
    """
    keys = {"_id": {"$in": [row["_id"] for row in rows]}}
    archived = await archive.find(keys, projection={"_id": 1}, limit=len(rows))
    keys_of_archive = set(map(_bytes_of, archived))
    numbers = [number for number, row in enumerate(rows) if _bytes_of(row) in keys_of_archive]
    if len(numbers) == len(keys_of_archive):
        return numbers
    # Some keys are equal, but not the same: numbers of other types, letters under a collation.
    return [
        number
        for number, row in enumerate(rows)
        if number in numbers or await archive.find({"_id": row["_id"]}, limit=1)
    ]


def _bytes_of(row: RawBSONDocument) -> bytes:
    return bson.encode({"_id": row["_id"]}, codec_options=RAW)


def _check(deleted: int, chosen: int) -> None:
    """Check that all chosen documents were deleted."""
    if deleted != chosen:  # perhaps the clocks of two routers differ
        raise TransientStoreError(
            f"{chosen:,} documents were chosen, but {deleted:,} were deleted: the batch was "
            "rolled back."
        )


def _without(rows: Rows, chosen: Rows) -> Rows:
    """Return the documents that were not chosen, perhaps because they didn't fit into the reply."""
    if len(chosen) == len(rows):
        return []
    done = set(map(_bytes_of, chosen))
    return [row for row in rows if _bytes_of(row) not in done]


@asynccontextmanager
async def transaction(place: RawCollection) -> AsyncIterator[RawCollection]:
    """Yield a collection inside a transaction, which is committed unless the block raises."""
    session = await _awaited(place.collection.database.client.start_session())
    limit = None if place.timeout is None else max(1, round(place.timeout * 1000))
    try:
        await _awaited(
            session.start_transaction(
                read_concern=ReadConcern("local"),
                write_concern=_MAJORITY,
                read_preference=ReadPreference.PRIMARY,
                max_commit_time_ms=limit,
            )
        )
        try:
            yield place.within(session)
        except BaseException:
            with suppress(PyMongoError):  # the server ends it anyway; the first error counts
                await session.abort_transaction()
            raise
        with phase("commit"):
            await session.commit_transaction()
    finally:
        await _awaited(session.end_session())


async def _awaited(result: Any) -> Any:
    """Return the result of a method that is a coroutine function in one of the drivers only."""
    return await result if isawaitable(result) else result
