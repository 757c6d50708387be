"""Removing expired documents: archived if their class says so, and told to its hooks.

Where anybody is to know of it all happens in one transaction, and so do batches of which nobody is
told, wherever the server has transactions. Outside of one, a command that deletes many waits for
whoever holds a document, for as long as that takes, and leaves half of its work done when it is
interrupted; inside, it gives up at once and nothing has happened.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import bson
from bson.codec_options import DatetimeConversion
from pymongo import ReadPreference, WriteConcern
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from ttl_odm.beanie.policy.binding import registry_of
from ttl_odm.beanie.policy.predicate import expired_expr
from ttl_odm.beanie.purge.errors import in_short, is_passing
from ttl_odm.beanie.purge.raw_collection import BY_KEY, RAW, as_datetime
from ttl_odm.sweeper import HookError, Purged, TransientStoreError, archive_async
from ttl_odm.sweeper.phases import phase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bson import DatetimeMS
    from bson.codec_options import CodecOptions
    from bson.raw_bson import RawBSONDocument

    from ttl_odm.beanie.purge.modes import Mode
    from ttl_odm.beanie.purge.raw_collection import RawCollection
    from ttl_odm.core.policy import Policy
    from ttl_odm.sweeper import Hooks
    from ttl_odm.sweeper.hooks import Reason

Rows: TypeAlias = "list[RawBSONDocument]"

_MAJORITY: Final = WriteConcern("majority")


class RefusedError(HookError):
    """The archive doesn't take a document; it may take the others."""


@dataclass(frozen=True, slots=True)
class Removed:
    """What a transaction has removed, if it is committed.

    Attributes:
        deleted: Documents.
        archived: Documents of these that were archived.
        purged: What the hooks after the commit are to be told; None if there is nothing.
        rest: Documents for which there was no room.
    """

    deleted: int
    archived: int = 0
    purged: Purged | None = None
    rest: Rows = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Remover:
    """How documents of a collection are removed.

    Attributes:
        name: The collection's name.
        mode: What their class declares.
        policy: How they expire.
        hooks: Whom to tell, besides the sink.
        as_of: The server's instant at which they had expired.
        reason: Why they go.
    """

    name: str
    mode: Mode
    policy: Policy
    hooks: Hooks
    as_of: DatetimeMS
    reason: Reason = "expired"

    @property
    def needs_transaction(self) -> bool:
        """Whether deleting is not all there is to do."""
        return self.mode.archive is not None or self._tells

    @property
    def _tells(self) -> bool:
        return self.mode.sink is not None or self.hooks.watches(self.name)

    @property
    def _shows_rows(self) -> bool:
        return self.mode.sink is not None or self.hooks.wants_rows(self.name)

    async def remove(self, place: RawCollection, rows: Rows) -> Removed:
        """Delete documents that have expired, archive them, and tell.

        Args:
            place: Their collection; in a transaction, if `needs_transaction`.
            rows: The documents, of which only the keys are looked at: they may be others by now.

        Raises:
            HookError: A hook or the archive failed.
        """
        began = time.monotonic()
        expired = {"$expr": expired_expr(self.policy)}
        keys = [row["_id"] for row in rows]
        if not self.needs_transaction:
            return Removed(await place.delete([{"_id": {"$in": keys}, **expired}], BY_KEY))
        found = await self._read(place, keys)
        if not found:
            return Removed(0)
        chosen = {"_id": {"$in": [row["_id"] for row in found]}, **expired}
        deleted = await place.delete([chosen], BY_KEY)
        if deleted != len(found):  # the clocks of two routers, perhaps
            raise TransientStoreError(
                f"{len(found)} documents were chosen, and {deleted} were there: it is undone."
            )
        await self._archive(place, found)
        purged = await self._tell(place, found, began) if self._tells else None
        is_kept = self.mode.archive is not None or self.mode.sink is not None
        return Removed(deleted, deleted if is_kept else 0, purged, _without(rows, found))

    async def _read(self, place: RawCollection, keys: list[Any]) -> Rows:
        """Read what has expired of some documents, or as many of these as a reply has room for."""
        wanted: dict[str, Any] = {"_id": {"$in": keys}, "$expr": expired_expr(self.policy)}
        clauses: dict[str, Any] = {"hint": BY_KEY, "limit": len(keys)}
        if not (self._shows_rows or self.mode.archive):
            clauses["projection"] = {"_id": 1}
        with phase("find"):
            return await place.find(wanted, **clauses)

    async def _archive(self, place: RawCollection, rows: Rows) -> None:
        archive = self.mode.archive
        if archive is None:
            return
        into = archive.collection(place.collection.database)
        binding = registry_of(into.database.client).find(into.database.name, into.name)
        policy = None if binding is None else binding.policy
        copies = archive.copies(rows, policy, self.as_of)
        try:
            with phase("archive"):
                await into.insert_many(copies, session=place.session)
        except PyMongoError as error:
            if is_passing(error):
                raise
            raise RefusedError(
                f"The archive {into.name} didn't take documents of {self.name}: {in_short(error)}"
            ) from error

    async def _tell(self, place: RawCollection, rows: Rows, began: float) -> Purged:
        purged = self._purged(place, rows, began)
        inside = replace(purged, transaction=place.session)
        try:
            if self.mode.sink is not None:
                await archive_async(self.mode.sink, inside)
            await self.hooks.call_async(inside)
        except HookError as error:
            cause = error.__cause__
            if isinstance(cause, PyMongoError) and is_passing(cause):
                raise cause from None  # what it wrote met another transaction: all is tried again
            raise
        return purged

    def _purged(self, place: RawCollection, rows: Rows, began: float) -> Purged:
        options = _as_application(place.collection.codec_options)
        shown = [bson.decode(row.raw, options) for row in rows]
        return Purged(
            self.name,
            keys=[(row["_id"],) for row in shown],
            count=len(shown),
            as_of=as_datetime(self.as_of),
            rows=shown if self._shows_rows else None,
            duration=time.monotonic() - began,
            reason=self.reason,
        )


def _without(rows: Rows, found: Rows) -> Rows:
    """Return the documents that were not found, though perhaps only for want of room."""
    if len(found) == len(rows):
        return []
    done = {_bytes_of(row) for row in found}
    return [row for row in rows if _bytes_of(row) not in done]


def _bytes_of(row: RawBSONDocument) -> bytes:
    return bson.encode({"_id": row["_id"]}, codec_options=RAW)


def _as_application(options: CodecOptions[Any]) -> CodecOptions[Any]:
    """Return how the application reads documents; but dates that Python has none for are no error.

    One document from the year 10000 would otherwise keep its batch from ever being purged.
    """
    conversion = options.datetime_conversion
    if conversion is DatetimeConversion.DATETIME:
        conversion = DatetimeConversion.DATETIME_AUTO
    return options.with_options(document_class=dict, datetime_conversion=conversion)


@asynccontextmanager
async def transaction(place: RawCollection) -> AsyncIterator[RawCollection]:
    """Give a place inside a transaction, which is committed unless the block raises."""
    session = await _settled(place.collection.database.client.start_session())
    limit = None if place.timeout is None else max(1, round(place.timeout * 1000))
    try:
        await _settled(
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
            with suppress(PyMongoError):  # the server ends it by itself, and what is raised counts
                await session.abort_transaction()
            raise
        with phase("commit"):
            await session.commit_transaction()
    finally:
        await _settled(session.end_session())


async def _settled(given: Any) -> Any:
    """Await what one driver has as a coroutine function, and the other as a function."""
    return await given if isawaitable(given) else given
