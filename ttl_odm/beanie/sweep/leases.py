"""Leases in a collection: which sweeper of a database works, by the server's clock.

A lease is a document of ``ttl_odm_lease``. It is acquired by one conditional findAndModify, which
succeeds for exactly one of any number of callers. A majority of the replica set acknowledges each
change, so that a failover undoes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pymongo.errors import OperationFailure

from ttl_odm.beanie.policy.commands import command_in
from ttl_odm.beanie.purge.errors import store_errors
from ttl_odm.sweeper import Lease, LeaseState

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Database, Document, Filter

NAME: Final = "ttl_odm_lease"

_FAILED_TO_PARSE: Final = 9
_MAJORITY: Final = {"w": "majority", "wtimeout": 5_000}
_FREE: Final = {"holder": None, "acquired_until": None}
_IS_FREE: Final = {
    "$or": [{"$eq": [{"$ifNull": ["$holder", None]}, None]}, {"$lte": ["$acquired_until", "$$NOW"]}]
}


class CollectionLeases:
    """`ttl_odm.sweeper.AsyncLeases` in a collection."""

    def __init__(self, database: Database) -> None:
        """Use a database, of either driver; the first lease creates the collection."""
        self._database = database

    async def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """Acquire the lease of this name, if it is free; see `AsyncLeases`."""
        taken = {
            "holder": {"$literal": holder},
            "acquired_until": _until(duration),
            "token": {"$add": [{"$ifNull": ["$token", 0]}, 1]},
        }
        with store_errors():
            try:
                lease = await self._take(name, taken)
            except OperationFailure as error:
                if error.code != _FAILED_TO_PARSE:
                    raise
                lease = None  # documentdb, if the collection doesn't exist yet
            if lease is None:  # perhaps the lease doesn't exist yet
                update = {"q": {"_id": name}, "u": {"$setOnInsert": {"token": 0}}, "upsert": True}
                command = {"update": NAME, "updates": [update]}
                if "upserted" in await command_in(self._database, command):
                    lease = await self._take(name, taken)
        return None if lease is None else _granted(name, lease, duration)

    async def renew(self, lease: Lease) -> bool:
        """Renew a lease; see `AsyncLeases`."""
        return await self._change(_held(lease), {"acquired_until": _until(lease.duration)})

    async def release(self, lease: Lease) -> None:
        """Release a lease; see `AsyncLeases`."""
        await self._change(_held(lease), _FREE)

    async def read(self, name: str) -> LeaseState:
        """Return the state of a lease; see `AsyncLeases`."""
        fields = {
            "holder": 1,
            "token": 1,
            "paused": 1,
            "history": 1,
            "left": {"$subtract": ["$acquired_until", "$$NOW"]},
            "ago": {"$subtract": ["$$NOW", "$recorded_at"]},
        }
        find = {"find": NAME, "filter": {"_id": name}, "projection": fields, "singleBatch": True}
        with store_errors():
            rows = (await command_in(self._database, find))["cursor"]["firstBatch"]
        row = rows[0] if rows else {}
        return _state(row, max(row.get("left") or 0, 0), row.get("ago"))

    async def set_paused(self, name: str, paused: bool) -> None:  # noqa: FBT001 (as in the Protocol)
        """Pause or resume the sweepers; see `AsyncLeases`."""
        await self._change({"_id": name}, {"paused": paused}, upsert=True)

    async def record(self, lease: Lease, history: str) -> bool:
        """Store the history of a sweep; see `AsyncLeases`."""
        return await self._change(_held(lease), _recorded(history))

    async def finish(self, lease: Lease, history: str) -> bool:
        """Store the history and release the lease; see `Finishing`."""
        return await self._change(_held(lease), {**_recorded(history), **_FREE})

    async def _take(self, name: str, taken: Filter) -> Filter | None:
        command = {
            "findAndModify": NAME,
            "query": {"_id": name, "$expr": _IS_FREE},
            "update": [{"$set": taken}],
            "new": True,
            "writeConcern": _MAJORITY,
        }
        lease: Filter | None = (await command_in(self._database, command))["value"]
        return lease

    async def _change(self, chosen: Document, changes: Document, *, upsert: bool = False) -> bool:
        """Change a lease, and return whether there was one to change."""
        update = {"q": chosen, "u": [{"$set": changes}], "upsert": upsert}
        command = {"update": NAME, "updates": [update], "writeConcern": _MAJORITY}
        with store_errors():
            return bool((await command_in(self._database, command))["n"])


def _granted(name: str, row: Filter, duration: float) -> Lease:
    """Return the lease of a document that has just been changed for so many seconds."""
    left, recorded_at = round(duration * 1000), row.get("recorded_at")
    ago = None if recorded_at is None else int(row["acquired_until"]) - left - int(recorded_at)
    state = _state(row, left, ago)
    return Lease(name, row["holder"], state.token, duration, state)


def _state(row: Filter, left: int, ago: int | None) -> LeaseState:
    """Return the state that a document describes; `left` and `ago` are milliseconds."""
    holder = row.get("holder") if left else None
    return LeaseState(
        holder,
        int(row.get("token", 0)),
        left / 1000 if holder is not None else 0.0,
        paused=bool(row.get("paused", False)),
        history=row.get("history", ""),
        recorded_ago=None if ago is None else max(ago, 0) / 1000,
    )


def _recorded(history: str) -> Document:
    return {"history": {"$literal": history}, "recorded_at": "$$NOW"}


def _held(lease: Lease) -> Document:
    return {"_id": lease.name, "holder": lease.holder, "token": lease.token}


def _until(duration: float) -> Document:
    return {"$add": ["$$NOW", round(duration * 1000)]}
