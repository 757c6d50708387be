"""Expired documents that are in the way of a write: purged like any others, at once.

For the gate, which frees their keys. Where their class archives, or has a hook in the transaction,
that happens here too; the hooks after the commit are not told, since the commit is the
application's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.beanie.sweeping.modes import mode_of
from ttl_odm.beanie.sweeping.place import Place
from ttl_odm.beanie.sweeping.removing import Remover, transaction

if TYPE_CHECKING:
    from ttl_odm.beanie.binding import Binding
    from ttl_odm.beanie.sweeping.place import Filter


async def purge_displaced(
    collection: Any,
    binding: Binding,
    doomed: Filter,
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
        HookError: A hook or the archive failed, so the transaction must not be committed.
    """
    mode = mode_of(binding, collection.name)
    if not (mode.hooks or mode.sink or mode.archive):
        return None
    outside = Place(collection)
    now = (await outside.server()).now
    remover = Remover(collection.name, mode, binding.policy, mode.hooks, now, "displaced")
    if session is not None and session.in_transaction:
        return await _remove(outside.within(session), remover, doomed, collation)
    async with transaction(outside) as inside:
        return await _remove(inside, remover, doomed, collation)


async def _remove(place: Place, remover: Remover, doomed: Filter, collation: Any) -> int:
    clauses = {} if collation is None else {"collation": collation}
    rows = await place.find(doomed, projection={"_id": 1}, **clauses)
    deleted = 0
    while rows:
        removed = await remover.remove(place, rows)
        deleted += removed.deleted
        rows = removed.rest if removed.deleted else []
    return deleted
