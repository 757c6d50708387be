"""A default that the database stores, and the index by which MongoDB deletes: changed in one order.

Whoever reads goes by the document, MongoDB's monitor by the index's seconds. So that nothing is
shown which the monitor may delete, a longer default is first one of the index, then one of the
document; a shorter one is first one of the document, and of the index only when no process goes by
an earlier one any more (`Stored.max_staleness`). What is interrupted in between is deleted late.

Only one at a time may do so, or one's shorter index would follow on another's longer document: who
has the turn stands in the document itself, until an instant of the server's clock.

This module must not know how an index is changed.
"""

from __future__ import annotations

import random
import time
from asyncio import sleep
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

from pymongo.errors import PyMongoError

from ttl_odm.beanie.policy.commands import RawCollection, run
from ttl_odm.beanie.policy.sources import MOST_SCOPES, completed
from ttl_odm.beanie.purge.errors import is_conflict
from ttl_odm.beanie.purge.removal import transaction
from ttl_odm.core.values import lenient_ttl
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.stored.beanie.default_cache import WHOLE_COLLECTION, with_scope
from ttl_odm.stored.beanie.lookup import (
    all_of,
    beside,
    key_of,
    scopes_in,
    seconds_of,
)
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
"""For which a turn is had after it was last asked for, over the seconds that it waits itself."""
_PATIENCE_SECONDS: Final = 120
"""For somebody else's turn, and for a transaction that deletes by the default."""
_PAUSE_SECONDS: Final = 0.05


class _TurnNeededError(Exception):
    """There is something to do."""


async def ensure(collection: Collection, default: StoredDefault, ensure: Ensure[Report]) -> Report:
    """Bring the indexes to what is stored; where nothing is yet, to what a default begins with."""
    stored = default.declared
    await check_server(collection)
    row = await _row(collection)
    if "ttl" in row and seconds_of(row.get("max_staleness")) >= (stored.max_staleness or 0):
        with suppress(_TurnNeededError):
            await default.see(collection, anew=True)
            return await ensure(default.policy, show=_refuse_step, begin_view=_refuse)
    async with turn_at(collection) as turn:
        await turn.read_scopes(default)
        policy = turn.policy(default)

        async def show(step: Step | None) -> None:
            if step is not None and step.spares:
                return
            if step is None and turn.has_begun:
                return
            await turn.begin(stored.start, stored.max_staleness)
            if step is not None and turn.rest:  # a change was interrupted
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
    ensure: Ensure[Any],
    ttl: int | None,
    *,
    scope: Any = WHOLE_COLLECTION,
    by: str,
    reason: str | None,
    check: Callable[[int | None], Awaitable[None]] | None = None,
) -> int | None:
    """Change a default to a value that was checked; return what it was.

    `check` gets what it was while nobody else can change it, and may raise before anything is.
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
                if step is not None:  # others may go by what they have noted
                    await sleep(seconds_of(turn.row.get("max_staleness")))
            if step is not None:
                await turn.renew()
                turn.check(default, policy)

        await ensure(policy, show=show, begin_view=turn.renew)
    return before


async def check_server(collection: Collection) -> None:
    """Refuse a server without transactions, in which alone one can delete by a stored default."""
    if not (await RawCollection(collection).server()).has_transactions:
        raise TTLConfigurationError(
            f"The default ttl of {collection.full_name!r} is declared as stored in the database. "
            "That requires transactions, which only a replica set has; a single member is enough."
        )


@dataclass(slots=True)
class Turn:
    """The right to change a stored default, and what MongoDB deletes by.

    `row` is the document as it was seen last.
    """

    collection: Collection
    token: str
    row: Document
    scopes: dict[Any, int | None] = field(default_factory=dict)
    has_begun: bool = False

    async def read_scopes(self, default: StoredDefault) -> None:
        """See the defaults of single values, which nobody else changes meanwhile."""
        if default.declared.by is not None:
            rows = beside(self.collection, POLICIES).find(all_of(self.collection))
            self.scopes = scopes_in(await rows.to_list(None))

    def policy(
        self, default: StoredDefault, changes: Mapping[Any, int | None] | None = None
    ) -> Policy:
        """Return a policy by what is stored, or else begins, or is to become."""
        scopes = dict(self.scopes)
        for scope, ttl in (changes or {}).items():
            scopes = with_scope(scopes, scope, ttl)
        ttl = lenient_ttl(self.row["ttl"]) if "ttl" in self.row else default.declared.start
        ttl = scopes.pop(WHOLE_COLLECTION, ttl)
        return completed(default.binding.declared, ttl, scopes)

    @property
    def rest(self) -> float:
        """For how many seconds from its last renewal on others may go by an earlier default."""
        changed_by, staleness = self.row.get("changed_by"), self._staleness
        if changed_by is None:  # it is as it began
            return 0.0
        until: datetime = self.row["changing"]["until"]
        now = until - timedelta(seconds=_TURN_SECONDS + staleness)
        changed_at: datetime = self.row["changed_at"]
        return max(0.0, staleness - (now - changed_at).total_seconds())

    @property
    def _staleness(self) -> int:
        return seconds_of(self.row.get("max_staleness"))

    async def begin(self, start: int | None, max_staleness: int | None) -> None:
        """Store the value to begin with, if there is none, and for how long notes may count."""
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
        """Have it for longer, and see what is stored; an error if somebody else has it."""
        seconds = _TURN_SECONDS + self._staleness
        own = {"_id": key_of(self.collection), "changing.by": self.token}
        row = await _found_and_set(self.collection, own, [*(stages or []), _until(seconds)])
        if row is None:
            raise _lost(self.collection)
        self.row = row

    def check(self, default: StoredDefault, policy: Policy) -> None:
        """Raise an error if another program has changed what is stored."""
        if self.policy(default) != policy:
            raise _lost(self.collection)

    async def write(self, scope: Any, values: Document, before: int | None) -> None:
        """Change what is stored, and write down that it was, in one transaction."""
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
            except PyMongoError as error:  # somebody deletes by it just now
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
    """Wait for one's turn, and give it back."""
    key, token = key_of(collection), uuid4().hex
    is_free = {"$lte": [{"$ifNull": ["$changing.until", "$$NOW"]}, "$$NOW"]}
    taken = [{"$set": {"changing": {"by": token}}}, _until(_TURN_SECONDS)]
    until, row = time.monotonic() + _PATIENCE_SECONDS, None
    there = {"q": {"_id": key}, "u": {"$setOnInsert": {"purges": 0}}, "upsert": True}
    await run(collection, {"update": POLICIES, "updates": [there]})
    try:
        while row is None:
            row = await _found_and_set(collection, {"_id": key, "$expr": is_free}, taken)
            if row is None:
                if time.monotonic() > until:
                    raise _lost(collection)
                await sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 (no secret)
        yield Turn(collection, token, row)
    finally:  # also where the answer that it is ours was lost
        own = {"_id": key, "changing.by": token}
        update = {"q": own, "u": {"$unset": {"changing": ""}}}
        with suppress(PyMongoError):  # it ends by itself
            await run(collection, {"update": POLICIES, "updates": [update]})


async def _refuse_step(step: Step | None) -> None:
    if step is not None:
        raise _TurnNeededError


async def _refuse() -> None:
    raise _TurnNeededError


async def _row(collection: Collection) -> Document:
    """Return the document of a collection's policy as it is on the primary."""
    command = {"find": POLICIES, "filter": {"_id": key_of(collection)}, "limit": 1}
    rows = (await run(collection, command))["cursor"]["firstBatch"]
    return next(iter(rows), {})


async def _found_and_set(
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
