"""A stored default, and the index by which MongoDB deletes, changed in one order.

Reads use the default in the policy's document; MongoDB's monitor uses the seconds of the index. No
read may show a document that the monitor may already delete. So a longer default is written to the
index first, then to the document; a shorter one to the document first, and to the index only when
no process uses an earlier default any more (`Stored.max_staleness`). If a change is interrupted in
between, documents are deleted late.

One client at a time may make a change, or a shorter index of one could follow a longer document of
another. The document itself names the client that has the turn, until an instant of the server's
clock.

This module must not know how an index is changed.
"""

from __future__ import annotations

import random
import time
from asyncio import sleep
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from pymongo.errors import PyMongoError

from ttl_odm.beanie.policy.commands import RawCollection, run
from ttl_odm.beanie.policy.sources import MOST_SCOPES, completed
from ttl_odm.beanie.purge.errors import is_conflict
from ttl_odm.beanie.purge.removal import transaction
from ttl_odm.core.values import lenient_ttl
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.stored.beanie.default_cache import WHOLE_COLLECTION, with_scope
from ttl_odm.stored.beanie.lookup import all_of, key_of, scopes_in, seconds_of, sibling
from ttl_odm.stored.rows import CHANGES, INHERIT, POLICIES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from datetime import datetime

    from ttl_odm.beanie.drivers import Collection, Document
    from ttl_odm.beanie.indexes.changes import Step
    from ttl_odm.beanie.policy.sources import Ensure
    from ttl_odm.core.policy import Policy
    from ttl_odm.stored.beanie.lookup import StoredDefault

Report = TypeVar("Report")

_TURN_SECONDS: Final = 30
"""How long a turn lasts after it was taken or renewed, besides the staleness it waits for."""
_PATIENCE_SECONDS: Final = 120
"""How long to wait for another client's turn, or for a transaction that deletes by the default."""
_PAUSE_SECONDS: Final = 0.05


class _TurnNeededError(Exception):
    """The indexes, or the view, have to be changed."""


async def ensure(collection: Collection, default: StoredDefault, ensure: Ensure[Report]) -> Report:
    """Adapt the indexes to the stored default; store the initial one if there is none."""
    stored = default.declared
    await check_server(collection)
    find = {"find": POLICIES, "filter": {"_id": key_of(collection)}, "limit": 1}
    rows = (await run(collection, find))["cursor"]["firstBatch"]  # on the primary
    row: Document = next(iter(rows), {})
    if "ttl" in row and seconds_of(row.get("max_staleness")) >= (stored.max_staleness or 0):
        with suppress(_TurnNeededError):
            await default.see(collection, anew=True)
            return await ensure(default.policy, show=_reject_step, begin_view=_reject)
    async with turn_at(collection) as turn:
        await turn.read_scopes(default)
        policy = turn.policy(default)

        async def show(step: Step | None) -> None:
            if step is not None and step.spares:
                return
            if step is None and turn.has_begun:
                return
            await turn.begin(stored.start, stored.max_staleness)
            if step is not None and turn.rest:  # an earlier change was interrupted
                await sleep(turn.rest)
                await turn.renew()
            turn.check(default, policy)

        async def begin_view() -> None:
            await turn.renew()
            turn.check(default, policy)

        report = await ensure(policy, show=show, begin_view=begin_view)
    await default.see(collection, anew=True)
    return report


async def change(  # noqa: PLR0913 (two by keyword)
    collection: Collection,
    default: StoredDefault,
    ensure: Ensure[object],
    ttl: int | None,
    *,
    scope: object = WHOLE_COLLECTION,
    by: str,
    reason: str | None,
    check: Callable[[int | None], Awaitable[None]] | None = None,
) -> int | None:
    """Change a default to a value that was checked; return the old value.

    `check` is called with the old value, once no other client can change that and before anything
    is changed; it may raise an error.
    """
    await check_server(collection)
    async with turn_at(collection) as turn:
        await turn.read_scopes(default)
        is_whole = scope == WHOLE_COLLECTION
        before = turn.scopes.get(scope, INHERIT)
        if is_whole:
            before = lenient_ttl(turn.row.get("ttl"))
        is_new = not is_whole and ttl != INHERIT and scope not in turn.scopes
        if is_new and len(turn.scopes) >= MOST_SCOPES:
            raise TTLConfigurationError(
                f"{collection.full_name!r} has {MOST_SCOPES:,} stored defaults of single values. "
                "Each of them is part of every filter, and MongoDB allows no more."
            )
        if check is not None:
            await check(before)
        if before == ttl == INHERIT:
            return before
        policy = turn.policy(default, {scope: ttl})
        is_written = False

        async def show(step: Step | None) -> None:
            nonlocal is_written
            if step is not None and step.spares:
                return
            if not is_written:
                values = {"ttl": ttl, "changed_by": by, "reason": reason}
                await turn.write(scope, values, before)
                is_written = True
                await default.see(collection, anew=True)
                if step is not None:  # other processes may still use a default that they have read
                    await sleep(seconds_of(turn.row.get("max_staleness")))
            if step is not None:
                await turn.renew()
                turn.check(default, policy)

        await ensure(policy, show=show, begin_view=turn.renew)
    return before


async def check_server(collection: Collection) -> None:
    """Reject a server without transactions, which deletions by a stored default require."""
    if not (await RawCollection(collection).server()).has_transactions:
        raise TTLConfigurationError(
            f"The default ttl of {collection.full_name!r} is declared as stored in the database. "
            "That requires transactions, which only a replica set has; a single member is enough."
        )


@dataclass(slots=True)
class Turn:
    """The right to change a stored default, and the index by which MongoDB deletes.

    Attributes:
        collection: The collection that has the default.
        token: Marks the turn in the policy's document.
        row: That document as it was read last.
        scopes: The defaults of single values of `Stored.by`.
        has_begun: Whether `begin` was called.
    """

    collection: Collection
    token: str
    row: Document
    scopes: dict[object, int | None] = field(default_factory=dict)
    has_begun: bool = False

    async def read_scopes(self, default: StoredDefault) -> None:
        """Read the defaults of single values, which no other client changes meanwhile."""
        if default.declared.by is not None:
            rows = sibling(self.collection, POLICIES).find(all_of(self.collection))
            self.scopes = scopes_in(await rows.to_list(None))

    def policy(
        self, default: StoredDefault, changes: Mapping[object, int | None] | None = None
    ) -> Policy:
        """Return the policy by the stored default, or else the initial one, after some changes."""
        scopes = dict(self.scopes)
        for scope, ttl in (changes or {}).items():
            scopes = with_scope(scopes, scope, ttl)
        ttl = lenient_ttl(self.row["ttl"]) if "ttl" in self.row else default.declared.start
        ttl = scopes.pop(WHOLE_COLLECTION, ttl)
        return completed(default.binding.declared, ttl, scopes)

    @property
    def rest(self) -> float:
        """For how many seconds after its last renewal processes may still use an older default."""
        changed_by, staleness = self.row.get("changed_by"), self._staleness
        if changed_by is None:  # the initial default was never changed
            return 0.0
        until: datetime = self.row["changing"]["until"]
        now = until - timedelta(seconds=_TURN_SECONDS + staleness)
        changed_at: datetime = self.row["changed_at"]
        return max(0.0, staleness - (now - changed_at).total_seconds())

    @property
    def _staleness(self) -> int:
        return seconds_of(self.row.get("max_staleness"))

    async def begin(self, start: int | None, max_staleness: int | None) -> None:
        """Store the initial value if there is none, and the longest staleness that is allowed."""
        stages: list[Document] = []
        if max_staleness is not None:
            longest = {"$max": ["$max_staleness", {"$literal": max_staleness}]}
            stages.append({"$set": {"max_staleness": longest}})
        if "ttl" not in self.row:
            first = {"ttl": {"$literal": start}, "changed_at": "$$NOW"}
            stages.append({"$set": {**first, "changed_by": None, "reason": None}})
        await self.renew(stages)
        self.has_begun = True

    async def renew(self, stages: list[Document] | None = None) -> None:
        """Extend the turn, and read what is stored; TTLError if another client has the turn."""
        seconds = _TURN_SECONDS + self._staleness
        own = {"_id": key_of(self.collection), "changing.by": self.token}
        row = await _find_and_set(self.collection, own, [*(stages or []), _until(seconds)])
        if row is None:
            raise _lost(self.collection)
        self.row = row

    def check(self, default: StoredDefault, policy: Policy) -> None:
        """Raise TTLError if another client has changed what is stored."""
        if self.policy(default) != policy:
            raise _lost(self.collection)

    async def write(self, scope: object, values: Document, before: int | None) -> None:
        """Store a new value, and add the change to the history, in one transaction."""
        key, own = key_of(self.collection), key_of(self.collection, scope)
        changed: Document = {name: {"$literal": value} for name, value in values.items()}
        changed["changed_at"] = "$$NOW"
        guard = {"version": {"$add": [{"$ifNull": ["$version", 0]}, 1]}}
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                async with transaction(RawCollection(self.collection)) as place:
                    reply = await place.run(
                        {
                            "findAndModify": POLICIES,
                            "query": {"_id": key, "changing.by": self.token},
                            "update": [{"$set": {**guard, **(changed if own == key else {})}}],
                            "new": True,
                        }
                    )
                    if reply["value"] is None:
                        raise _lost(self.collection)
                    if own != key:
                        set_own = {"query": {"_id": own}, "update": [{"$set": changed}]}
                        of_scope = {"findAndModify": POLICIES, **set_own}
                        reply = await place.run({**of_scope, "upsert": True, "new": True})
                    row = reply["value"]
                    change = {
                        **own,
                        "changed_at": row["changed_at"],
                        "changed_by": values["changed_by"],
                        "ttl_before": before,
                        "ttl_after": values["ttl"],
                        "reason": values["reason"],
                    }
                    await place.run({"insert": CHANGES, "documents": [change]})
                    if values["ttl"] == INHERIT:
                        await place.run(
                            {"delete": POLICIES, "deletes": [{"q": {"_id": own}, "limit": 1}]}
                        )
            except PyMongoError as error:  # another client is deleting by it
                is_passing = error.has_error_label("TransientTransactionError")
                if not (is_passing or is_conflict(error)) or time.monotonic() > until:
                    raise
                await sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 (no secret)
            else:
                if own != key:
                    self.scopes = with_scope(self.scopes, scope, values["ttl"])
                return


@asynccontextmanager
async def turn_at(collection: Collection) -> AsyncIterator[Turn]:
    """Take the turn, waiting for another client's to end, and give it back."""
    key, token = key_of(collection), uuid4().hex
    is_free = {"$lte": [{"$ifNull": ["$changing.until", "$$NOW"]}, "$$NOW"]}
    take = [{"$set": {"changing": {"by": token}}}, _until(_TURN_SECONDS)]
    until, row = time.monotonic() + _PATIENCE_SECONDS, None
    create = {"q": {"_id": key}, "u": {"$setOnInsert": {"purges": 0}}, "upsert": True}
    await run(collection, {"update": POLICIES, "updates": [create]})
    try:
        while row is None:
            row = await _find_and_set(collection, {"_id": key, "$expr": is_free}, take)
            if row is None:
                if time.monotonic() > until:
                    raise _lost(collection)
                await sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 (no secret)
        yield Turn(collection, token, row)
    finally:  # also if the answer that the turn is ours was lost
        own = {"_id": key, "changing.by": token}
        update = {"q": own, "u": {"$unset": {"changing": ""}}}
        with suppress(PyMongoError):  # the turn ends by itself
            await run(collection, {"update": POLICIES, "updates": [update]})


async def _reject_step(step: Step | None) -> None:
    if step is not None:
        raise _TurnNeededError


async def _reject() -> None:
    raise _TurnNeededError


async def _find_and_set(
    collection: Collection, query: Document, stages: list[Document]
) -> Document | None:
    command = {"findAndModify": POLICIES, "query": query, "update": stages, "new": True}
    majority = {"w": "majority"}
    row: Document | None = (await run(collection, {**command, "writeConcern": majority}))["value"]
    return row


def _until(seconds: float) -> Document:
    return {"$set": {"changing.until": {"$add": ["$$NOW", round(seconds * 1000)]}}}


def _lost(collection: Collection) -> TTLError:
    return TTLError(
        f"Another client is changing the stored default ttl of {collection.full_name!r}: try "
        "again later."
    )
