"""Purging one batch of a collection.

A batch takes the next documents of a stage (`ttl_odm.beanie.sweep.stages`), in one of two ways.
A *window* is the piece of the index that holds so many of them, deleted by one command; a *list* is
the documents themselves, found and then deleted by their keys, where somebody is to know of them,
where the index has no windows, or where somebody else holds a document of the window. Whichever it
is, the command that deletes decides again what has expired.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pymongo.errors import OperationFailure

from ttl_odm.beanie.keys import value_at
from ttl_odm.beanie.policy.predicate import expired_expr
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY, own_expiry
from ttl_odm.beanie.purge.errors import is_conflict
from ttl_odm.beanie.purge.raw_collection import BY_KEY
from ttl_odm.beanie.purge.removal import Removed, Remover, transaction
from ttl_odm.beanie.sweep.due import first_date, has_wrong_expiry
from ttl_odm.beanie.sweep.outcome import Outcome
from ttl_odm.beanie.sweep.stages import Action, Resume, stages_of
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import BatchResult
from ttl_odm.sweeper.phases import phase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bson.raw_bson import RawBSONDocument

    from ttl_odm.beanie.purge.raw_collection import Filter, RawCollection
    from ttl_odm.beanie.purge.removal import Rows
    from ttl_odm.beanie.sweep.stages import IndexRange, Layout
    from ttl_odm.beanie.sweep.targets import Target
    from ttl_odm.core.policy import Policy
    from ttl_odm.sweeper import BatchRequest

_WALKED: Final = 10
"""Documents that are looked at, for each that a batch may delete, where a collection is walked."""


async def purge(
    place: RawCollection, target: Target, layout: Layout, request: BatchRequest
) -> BatchResult:
    """Purge one batch; see `ttl_odm.sweeper.AsyncStore.purge`.

    Args:
        place: The collection.
        target: The same, with what its class declares.
        layout: What it is like.
        request: What is wanted.

    Raises:
        TTLConfigurationError: Somebody is to know of it, and that can't be.
    """
    server = await place.server()
    policy = target.policy
    remover = Remover(target.name, target.mode, policy, request.hooks, server.now)
    is_atomic = server.has_transactions and not layout.is_capped
    if remover.needs_transaction:
        _check(target, layout, is_atomic=is_atomic)
    resume: Any = request.resume or Resume()
    stages = stages_of(policy, layout, request.part, server.now)
    for number in range(resume.stage, len(stages)):
        at = resume if number == resume.stage else Resume(number)
        batch = _Batch(place, policy, remover, stages[number], layout, request.size, at, is_atomic)
        result = await batch.run()
        if result.resume is not None or number + 1 == len(stages):
            return result
        if result.deleted or result.skipped:
            return replace(result, resume=Resume(number + 1))
    return BatchResult(0)


def _check(target: Target, layout: Layout, *, is_atomic: bool) -> None:
    """Refuse hooks and archives that would miss documents, or could not be undone."""
    if target.binding.purge == "native":
        raise TTLConfigurationError(
            f"MongoDB deletes most documents of {target.name!r} by itself, and nobody is told: "
            "declare __ttl_purge__ = 'sweeper' on its class, or have no hooks for it."
        )
    if not is_atomic:
        where = "a capped collection" if layout.is_capped else "a server that is no replica set"
        raise TTLConfigurationError(
            f"{target.name!r} has hooks or an archive, which need a transaction, and {where} "
            "has none."
        )


@dataclass(slots=True)
class _Batch:
    """The next documents of a stage."""

    place: RawCollection
    policy: Policy
    remover: Remover
    stage: IndexRange
    layout: Layout
    size: int
    resume: Resume
    is_atomic: bool

    def __post_init__(self) -> None:
        if self.resume.low is not None:
            self.stage = self.stage.starting_at(self.resume.low)

    async def run(self) -> BatchResult:
        """Purge them, or see to their ``_exp``."""
        if self.stage.kind is Action.FIX:
            return await self._mend()
        if self.stage.kind is Action.WALK:
            return await self._walk()
        if await self._has_windows():
            result = await self._by_window()
            if result is not None:
                return result
        return await self._by_list()

    @asynccontextmanager
    async def _working(self) -> AsyncIterator[RawCollection]:
        """Give the place in a transaction, where there are transactions."""
        if self.is_atomic:
            async with transaction(self.place) as inside:
                yield inside
        else:
            yield self.place

    def _expired(self) -> Filter:
        return {"$expr": expired_expr(self.policy)}

    # Windows

    async def _has_windows(self) -> bool:
        """Whether a command can be bound to a piece of the index, and need not know what it does.

        An array of dates has several entries. Once an index has seen one, the server searches it by
        one of two bounds only, which may lead it over all that lives.
        """
        if not self.stage.has_windows or self.remover.needs_transaction:
            return False
        known, index = self.layout.several_keys, str(self.stage.range.index)
        if index not in known:
            find = {"find": self.remover.name, "limit": 1, **self.stage.range.bounds()}
            plan = await self.place.run({"explain": find, "verbosity": "queryPlanner"})
            known[index] = _says(plan, "isMultiKey")
        return not known[index]

    async def _by_window(self) -> BatchResult | None:
        """Delete what is in the next window; None where one moment has more than a batch."""
        reach, most = self.stage.range, self.size
        shown = {reach.field: 1, "_id": 0}
        with phase("find"):
            last = await self.place.find({}, skip=most, limit=1, projection=shown, **reach.bounds())
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
            return await self._by_list()
        return BatchResult(deleted, Resume(self.resume.stage, high) if last else None)

    # Lists

    async def _by_list(self) -> BatchResult:
        """Delete the next documents by their keys."""
        rows = await self._look(self._expired())
        outcome = Outcome()
        await outcome.reach(rows, self._remove)
        return outcome.result(self._after(rows, outcome.left))

    async def _remove(self, rows: Rows) -> Removed:
        async with self._working() as place:
            return await self.remover.remove(place, rows)

    async def _look(self, wanted: Filter) -> Rows:
        """Find the keys of the next documents, and their raw_collection in the index."""
        reach, left = self.stage.range, self.resume.left
        others = {"_id": {"$nin": list(left)}} if left else {}
        shown = {"_id": 1, reach.field: 1}
        with phase("find"):
            return await self.place.find(
                {**others, **wanted}, limit=self.size, projection=shown, **reach.bounds()
            )

    def _after(self, rows: Rows, left: Rows) -> Resume | None:
        """Return where to go on: at the last document, since others may have the same place."""
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

    def _place_of(self, row: RawBSONDocument) -> Any:
        """Return the key of a document's first entry in the index; None if it isn't a date."""
        field = self.stage.range.field
        return row["_id"] if field == "_id" else first_date(value_at(row, field))

    # The others

    async def _walk(self) -> BatchResult:
        """Delete what has expired in the next slice of the collection."""
        reach = self.stage.range
        with phase("find"):
            ahead = await self.place.find(
                {}, skip=self.size * _WALKED, limit=1, projection={"_id": 1}, **reach.bounds()
            )
        high = ahead[0]["_id"] if ahead else None
        self.stage = replace(self.stage, range=replace(reach, high=high))
        result = await self._by_list()
        if result.resume is None and ahead:
            return replace(result, resume=Resume(self.resume.stage, high))
        return result

    async def _mend(self) -> BatchResult:
        """Let ``_exp`` follow from the rest of documents again, so that they are found in time."""
        assert isinstance(self.policy, TTL)  # noqa: S101 (no other policy has that stage)
        wrong = {"$expr": has_wrong_expiry(self.policy)}
        stages = [{"$set": {EXPIRY: own_expiry(self.policy)}}]

        async def fix(rows: Rows) -> Removed:
            chosen = {"_id": {"$in": [row["_id"] for row in rows]}, **wrong}
            async with self._working() as place:
                await place.update(chosen, stages, BY_KEY)
            return Removed(0)

        rows = await self._look(wrong)
        outcome = Outcome()
        await outcome.reach(rows, fix)
        return BatchResult(0, self._after(rows, outcome.left))


def _says(plan: Any, what: str) -> bool:
    """Whether a plan says so of any index in it, however deep in a release's idea of plans."""
    if isinstance(plan, Mapping):
        return plan.get(what) is True or any(_says(each, what) for each in plan.values())
    return isinstance(plan, list) and any(_says(each, what) for each in plan)
