"""Expired documents that are in the way of a write: purged like any others, at once.

For the gate, which frees their keys. Where their class archives, or has a hook in the transaction,
that happens here too; the hooks after the commit are not told, since the commit is the
application's.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pymongo.errors import PyMongoError

from ttl_odm.beanie.purge.modes import mode_of
from ttl_odm.beanie.purge.raw_collection import RawCollection
from ttl_odm.beanie.purge.removal import Remover, transaction
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import HookError, Hooks, TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ttl_odm.beanie.policy.binding import Binding
    from ttl_odm.beanie.purge.modes import Mode
    from ttl_odm.beanie.purge.raw_collection import Filter

_PATIENCE_SECONDS: Final = 120
"""For somebody else's transaction that holds a document; as long as the drivers' own."""
_PAUSE_SECONDS: Final = 0.05


async def purge_displaced(
    collection: Any,
    binding: Binding,
    doomed: Mapping[str, Any],
    *,
    collation: Any = None,
    session: Any = None,
) -> int | None:
    """Archive and delete documents, and tell; in the write's transaction, or in one of their own.

    Args:
        collection: Theirs, gated or not.
        binding: Their policy.
        doomed: Which documents; holds the predicate.
        collation: By which the filter compares; None for the collection's own.
        session: That of the write, if it is in a transaction.

    Returns:
        How many; None if nobody is to know of them, so that deleting them is all there is to do.

    Raises:
        HookError: A hook or the archive failed. The transaction is undone, the write's too.
        TTLConfigurationError: Somebody is to know, and the server has no transactions for that.
    """
    mode = _told_inside(mode_of(binding, collection.name))
    if not (mode.hooks or mode.sink or mode.archive):
        return None
    outside = RawCollection(collection)
    server = await outside.server()
    remover = Remover(collection.name, mode, binding.policy, mode.hooks, server.now, "displaced")
    if session is not None and session.in_transaction:
        try:
            return await _remove(outside.within(session), remover, dict(doomed), collation)
        except HookError:
            await _end(outside.within(session))
            raise
    if not server.has_transactions:
        raise TTLConfigurationError(
            f"{collection.name!r} has hooks or an archive, and an expired document of it is in "
            "the way of a write. That needs a transaction, and a server that is no replica set "
            "has none."
        )
    return await _alone(outside, remover, dict(doomed), collation)


def _told_inside(mode: Mode) -> Mode:
    entries = tuple(each for each in mode.hooks.entries if each[1].when == "transaction")
    return replace(mode, hooks=Hooks(entries))


async def _alone(outside: RawCollection, remover: Remover, doomed: Filter, collation: Any) -> int:
    """Remove them in a transaction of its own; waits for others, as a plain delete would."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            async with transaction(outside) as inside:
                return await _remove(inside, remover, doomed, collation)
        except (PyMongoError, TransientStoreError) as error:
            if not _is_for_want_of_luck(error) or time.monotonic() > until:
                raise
        await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 (no secret)


def _is_for_want_of_luck(error: Exception) -> bool:
    """Whether a transaction met another one, so that it may be tried again."""
    if isinstance(error, PyMongoError):
        return error.has_error_label("TransientTransactionError")
    return isinstance(error, TransientStoreError)


async def _remove(place: RawCollection, remover: Remover, doomed: Filter, collation: Any) -> int:
    clauses = {} if collation is None else {"collation": collation}
    rows = await place.find(doomed, projection={"_id": 1}, **clauses)
    deleted = 0
    while rows:
        removed = await remover.remove(place, rows)
        deleted += removed.deleted
        rows = removed.rest if removed.deleted else []
    return deleted


async def _end(place: RawCollection) -> None:
    """Have the server end the application's transaction, so that it cannot be committed.

    What has been deleted in it would be in no archive. The driver is not asked: it would take what
    the application does next for something outside of any transaction.
    """
    with suppress(PyMongoError):  # it may have ended already, as after any error of the server's
        await place.collection.database.client.admin.command(
            {"abortTransaction": 1}, session=place.session
        )
