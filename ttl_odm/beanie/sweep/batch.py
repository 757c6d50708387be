"""How one batch of a collection is purged.

A batch takes the next documents of a stage (`due.stages_of`), in one of two ways:

- A *window* is the piece of the index that holds that many documents. One command deletes it.
- A *list* is the documents themselves, found and then deleted by their keys. It is used for hooks,
  archives and dependents, to count by scopes, on an index without windows (an index that scopes
  lead), and if another client holds a document of the window. It is deleted as a whole, or in as
  large pieces as possible.

In both cases the deleting command decides again which documents have expired.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pymongo.errors import OperationFailure

from ttl_odm.beanie.policy.commands import BY_KEY, KeyRange, is_multikey
from ttl_odm.beanie.policy.predicate import deciding_fields, value_at
from ttl_odm.beanie.policy.rules import dependents, rules_below
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY, has_wrong_expiry, own_expiry
from ttl_odm.beanie.purge.errors import in_short, is_conflict, is_passing
from ttl_odm.beanie.purge.removal import Removed, Remover, Rows, transaction
from ttl_odm.beanie.sweep.due import Action, Resume, age_of, first_date, stages_of
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import (
    BatchResult,
    HookError,
    Purged,
    RefusedError,
    Skip,
    TransientStoreError,
)
from ttl_odm.sweeper.hooks import phase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bson.raw_bson import RawBSONDocument

    from ttl_odm.beanie.drivers import Filter
    from ttl_odm.beanie.policy.bindings import Binding
    from ttl_odm.beanie.policy.commands import RawCollection
    from ttl_odm.beanie.policy.sources import Scoping
    from ttl_odm.beanie.purge.removal import Mode
    from ttl_odm.beanie.sweep.due import IndexRange, Layout
    from ttl_odm.core.policy import Policy
    from ttl_odm.sweeper import BatchRequest

    _Work: TypeAlias = Callable[[RawCollection, Rows], Awaitable[Removed]]

_INVALID: Final = 121
"""The code of the error by which a validator rejects a document."""
_WALKED: Final = 10
"""Documents read per document that a batch may delete, if the collection is walked."""


async def purge(
    place: RawCollection, binding: Binding, mode: Mode, layout: Layout, request: BatchRequest
) -> BatchResult:
    """Purge one batch; see `ttl_odm.sweeper.AsyncStore.purge`."""
    for extension in dependents:
        if extension.part is request.part:
            return await extension.purge(place, request)
    server = await place.server()
    source = binding.source
    await source.see(place.collection, anew=True)
    policy, name = binding.policy, request.target
    scopes = source.own_scopes(policy)
    limit = request.size if rules_below(place.collection) else None
    remover = Remover(name, mode, policy, request.hooks, server.now, scopes=scopes, limit=limit)
    is_atomic = server.has_transactions and not layout.is_capped
    where = "a capped collection" if layout.is_capped else "a server that is not a replica set"
    # Otherwise hooks and archives would miss documents, or couldn't be undone.
    if remover.needs_transaction and binding.purge == "native":
        raise TTLConfigurationError(
            f"MongoDB deletes most documents of {name!r} itself, without calling hooks: declare "
            "__ttl_purge__ = 'sweeper' on its class, or remove the hooks."
        )
    if remover.needs_transaction and not is_atomic:
        raise TTLConfigurationError(
            f"{name!r} has hooks or an archive, which require a transaction, and {where} has none."
        )
    if not is_atomic:
        source.check_unheld(name, where)
    resume: Any = request.resume or Resume()
    stages = stages_of(policy, layout, request.part, server.now)
    for number in range(resume.stage, len(stages)):
        at = resume if number == resume.stage else Resume(number)
        batch = _Batch(
            place, binding, policy, remover, stages[number], layout, request.size, at, is_atomic
        )
        result = await batch.run()
        if result.resume is not None or number + 1 == len(stages):
            return result
        if result.deleted or result.skipped or result.referring:
            return replace(result, resume=Resume(number + 1))
    return BatchResult(0)


@dataclass(slots=True)
class _Batch:
    """The next documents of a stage."""

    place: RawCollection
    binding: Binding
    policy: Policy
    remover: Remover
    stage: IndexRange
    layout: Layout
    size: int
    resume: Resume
    is_atomic: bool

    def __post_init__(self) -> None:
        if self.resume.low is not None:
            reach, low = self.stage.range, self.resume.low
            rest = replace(reach, low=low) if isinstance(reach, KeyRange) else reach.after(low)
            self.stage = replace(self.stage, range=rest)

    async def run(self) -> BatchResult:
        """Purge the documents, or correct their ``_exp``."""
        if self.stage.kind is Action.FIX:
            return await self._fix()
        if self.stage.kind is Action.WALK:
            return await self._walk()
        return await self._by_window() or await self._by_list(self._expired(), self.remover.remove)

    @asynccontextmanager
    async def _working(self) -> AsyncIterator[RawCollection]:
        """Yield the collection in a transaction, or as it is if the server has none."""
        if self.is_atomic:
            async with transaction(self.place) as inside:
                await self._hold(inside)
                yield inside
        else:
            yield self.place

    async def _hold(self, place: RawCollection) -> None:
        """Keep a default that isn't in code unchanged until the commit."""
        try:
            held = await self.binding.source.hold(place, self.policy)
        except OperationFailure as error:
            if not is_conflict(error):
                raise
            raise TransientStoreError("Another client is changing the default ttl.") from error
        if held != self.policy:
            raise TransientStoreError(f"The default ttl has just changed: {held!r}.")

    def _expired(self) -> Filter:
        return self.stage.expired(self.policy)

    # Windows

    async def _by_window(self) -> BatchResult | None:
        """Delete the next window.

        None if that needs a list: the index has no windows, one instant has more documents than a
        batch, documents are counted by scope or removed with others, or another client holds one.
        """
        reach, known = self.stage.range, self.layout.several_keys
        if not isinstance(reach, KeyRange) or not self.stage.branches or self.stage.is_undated:
            return None
        goes_by_key = self.remover.needs_transaction or self.remover.scopes is not None
        if goes_by_key or self.remover.limit is not None:  # dependents are removed first
            return None
        # An array of dates has several entries. Once an index has had one, the server uses only one
        # of two bounds, so it may read the entries of all live documents.
        if (index := str(reach.index)) not in known:
            known[index] = await is_multikey(self.place, index)
        if known[index]:
            return None
        fields = {reach.field: 1, "_id": 0}
        with phase("find"):
            last = await self.place.find(
                {}, skip=self.size, limit=1, projection=fields, **reach.bounds()
            )
        high = last[0][reach.field] if last else reach.high
        if last and int(high) <= int(reach.low):
            return None
        window = {reach.field: {"$gte": reach.low, "$lt": high}}
        filters = [{**branch, **window, **self._expired()} for branch in self.stage.branches]
        try:
            async with self._working() as place:
                deleted = await place.delete(filters, reach.index)
        except OperationFailure as error:
            if not is_conflict(error):
                raise
            return None
        return BatchResult(deleted, Resume(self.resume.stage, high) if last else None)

    # Lists

    async def _by_list(self, condition: Filter, work: _Work) -> BatchResult:
        """Do work on the next documents of the range, chosen by their keys."""

        async def commit(rows: Rows) -> Removed:
            async with self._working() as place:
                return await work(place, rows)

        reach, left = self.stage.range, self.resume.left
        others = {"_id": {"$nin": list(left)}} if left else {}
        is_walk = self.stage.kind is Action.WALK
        deciding = deciding_fields(self.policy) if is_walk else ()
        order = reach.field if isinstance(reach, KeyRange) else reach.order
        clauses = {"limit": self.size, "projection": dict.fromkeys(("_id", order, *deciding), 1)}
        with phase("find"):
            if isinstance(reach, KeyRange):
                rows = await self.place.find_in(reach, {**others, **condition}, **clauses)
            else:
                rows = await reach.find(self.place, {**others, **condition}, **clauses)
        outcome = _Outcome()
        await outcome.reach(rows, commit)
        if outcome.has_more_dependents:  # the same documents again
            resume: Resume | None = replace(self.resume, batch=self.resume.batch + 1)
        else:
            resume = self._after(rows, outcome.left)
        result = outcome.result(resume, self.binding.source.scoping)
        if not is_walk:
            return result
        # A walk has no index from which `due` could read the age of the oldest document.
        ages = (age_of(self.policy, row, self.remover.as_of) for row in rows)
        return replace(result, oldest=max(ages, default=None))

    def _after(self, rows: Rows, left: Rows) -> Resume | None:
        """Return the next batch's beginning: at the last document, whose place others may share."""
        if len(rows) < self.size:
            return None
        low = self._place_of(rows[-1])
        stays = low is None or low == self.resume.low
        keys = [row["_id"] for row in left if low is None or self._place_of(row) == low]
        return Resume(
            self.resume.stage,
            self.resume.low if stays else low,
            (*(self.resume.left if stays else ()), *keys),
            self.resume.batch + 1,
        )

    def _place_of(self, row: RawBSONDocument) -> object:
        """Return the value of a document's first entry in the index; None if it isn't a date."""
        reach = self.stage.range
        if not isinstance(reach, KeyRange):
            return reach.place_of(row)
        field = reach.field
        return row["_id"] if field == "_id" else first_date(value_at(row, field))

    # Walks and fixes

    async def _walk(self) -> BatchResult:
        """Delete the expired documents in the next slice of the collection."""
        reach = self.stage.range
        assert isinstance(reach, KeyRange)  # noqa: S101 (no other is walked)
        with phase("find"):
            skipped, fields = self.size * _WALKED, {"_id": 1}
            if self.place.has_ranges:
                ahead = await self.place.find(
                    {}, skip=skipped, limit=1, projection=fields, **reach.bounds()
                )
            else:  # reads keys of one type; after the last of them, the rest is one slice
                ahead = await self.place.find(
                    {"_id": {"$gte": reach.low}},
                    skip=skipped,
                    limit=1,
                    projection=fields,
                    sort=BY_KEY,
                )
        high = ahead[0]["_id"] if ahead else None
        self.stage = replace(self.stage, range=replace(reach, high=high))
        result = await self._by_list(self._expired(), self.remover.remove)
        if result.resume is None and ahead:
            return replace(result, resume=Resume(self.resume.stage, high))
        return result

    async def _fix(self) -> BatchResult:
        """Compute ``_exp`` again, so that the documents are found when they expire."""
        assert isinstance(self.policy, TTL)  # noqa: S101 (no other policy has that stage)
        wrong = {"$expr": has_wrong_expiry(self.policy)}
        stages = [{"$set": {EXPIRY: own_expiry(self.policy)}}]

        async def fix(place: RawCollection, rows: Rows) -> Removed:
            chosen = {"_id": {"$in": [row["_id"] for row in rows]}, **wrong}
            await place.update(chosen, stages, BY_KEY)
            return Removed(0)

        return BatchResult(0, (await self._by_list(wrong, fix)).resume)


@dataclass(slots=True)
class _Outcome:
    """The result of committed transactions, and of those that failed.

    `left` are the documents that were not deleted; `purged` is for the hooks after the commit.
    """

    deleted: int = 0
    archived: int = 0
    purged: list[Purged] = field(default_factory=list)
    left: Rows = field(default_factory=list)
    skipped: Counter[Skip] = field(default_factory=Counter)
    failure: HookError | RefusedError | None = None
    loaded: int = 0
    by_scope: Counter[str] = field(default_factory=Counter)
    dependents: Counter[str] = field(default_factory=Counter)
    has_more_dependents: bool = False

    async def reach(self, rows: Rows, work: Callable[[Rows], Awaitable[Removed]]) -> None:
        """Do work on documents; if another client holds one of them, on ever fewer.

        `work` commits, or raises and changes nothing.
        """
        waiting = [rows] if rows else []
        while waiting:
            chosen = waiting.pop()
            try:
                removed = await work(chosen)
            except Exception as error:
                reason = Skip.LOCKED
                if is_conflict(error) and len(chosen) > 1:
                    # The other client may hold a single document only.
                    middle = len(chosen) // 2
                    waiting += [chosen[middle:], chosen[:middle]]
                    continue
                is_transient = isinstance(error, TransientStoreError) or is_passing(error)
                if isinstance(error, HookError):
                    self.failure, reason = self.failure or error, Skip.HOOK
                elif isinstance(error, OperationFailure) and error.code == _INVALID:
                    self.failure, reason = (
                        self.failure or RefusedError.by(error, in_short(error)),
                        Skip.REFUSED,
                    )
                # A transient error after a commit: the result so far has to be reported.
                elif not (is_conflict(error) or (self.deleted and is_transient)):
                    raise
                self.left += chosen
                self.skipped[reason] += len(chosen)
                continue
            self.deleted += removed.deleted
            self.archived += removed.archived
            self.loaded += removed.loaded
            self.by_scope += removed.by_scope
            self.dependents += removed.dependents
            if removed.has_more_dependents:
                self.has_more_dependents = True
                return
            if removed.purged is not None:
                self.purged.append(removed.purged)
            if removed.rest and removed.deleted:
                waiting.append(removed.rest)

    def result(self, resume: Resume | None, scoping: Scoping | None) -> BatchResult:
        """Return it as a `BatchResult`."""
        return BatchResult(
            self.deleted,
            resume,
            archived=self.archived,
            skipped=dict(self.skipped),
            purged=tuple(self.purged),
            failure=self.failure,
            left=[(row["_id"],) for row in self.left] if self.failure else (),
            loaded=self.loaded,
            facts={} if scoping is None else scoping.deleted(self.by_scope),
            referring=dict(self.dependents),
        )
