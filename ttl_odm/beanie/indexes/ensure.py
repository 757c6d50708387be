"""`ensure_indexes`: bring a collection's ``__ttl_*`` indexes to what its policy needs.

What is needed comes from `ttl_odm.beanie.policy.ttl_indexes` (or `azure`), what has to be done for
it from `changes`; here it is done. An application calls this once, when it starts, perhaps in many
processes at the same time: whoever meets another's change looks again, until nothing is left to do.
Indexes that ttl_odm did not make are never touched.

This module must not know how documents are read and written: it runs database commands only.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pymongo.errors import OperationFailure

from ttl_odm.beanie.indexes import azure, time_series
from ttl_odm.beanie.indexes.changes import Aim
from ttl_odm.beanie.indexes.strays import examples
from ttl_odm.beanie.indexes.validator import GUARD, ensure_guard, too_early
from ttl_odm.beanie.policy import ttl_indexes
from ttl_odm.beanie.policy.commands import details_of, indexes_of, run
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError, TTLError

if TYPE_CHECKING:
    from ttl_odm.beanie.indexes.changes import Step
    from ttl_odm.beanie.policy.binding import Backend
    from ttl_odm.beanie.policy.commands import Collection, Document
    from ttl_odm.beanie.policy.ttl_indexes import Index, Purge
    from ttl_odm.core.policy import Policy

Done = tuple[str, str]  # an outcome, and the name of an index

_CANNOT_CREATE_INDEX = 67
_CONFLICTS = {85, 86}  # IndexOptionsConflict, IndexKeySpecsConflict
# Somebody else is at the same index: NamespaceNotFound, IndexNotFound, WriteConflict,
# ConflictingOperationInProgress, IndexBuildAborted, BackgroundOperationInProgressForNamespace.
_RACES = {26, 27, 112, 117, 276, 12587}
_ROUNDS = 30
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What was done to one collection.

    Attributes:
        collection: Its name, with the database's.
        created: Names of indexes (or ``__ttl_guard``, the validator).
        changed: Those whose number of seconds is another now.
        removed: Those that are no longer needed, or were dropped to be built again.
        unchanged: Those that were right.
        relied_on: TTL indexes of the user's own that do just what the policy says.
        left_to_sweeper: Which expired documents MongoDB will not delete by itself.
    """

    collection: str
    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    relied_on: tuple[str, ...] = ()
    left_to_sweeper: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = {
            "created": self.created,
            "changed": self.changed,
            "removed": self.removed,
            "unchanged": self.unchanged,
            "relied on": self.relied_on,
            "left to the sweeper": self.left_to_sweeper,
        }
        said = [f"{what} {', '.join(names)}" for what, names in parts.items() if names]
        return f"{self.collection}: {'; '.join(said) or 'nothing to do'}"


async def ensure_collection(  # noqa: PLR0913 (all but two by keyword)
    collection: Collection,
    policy: Policy | None,
    *,
    purge: Purge = "native",
    backend: Backend = "mongodb",
    rebuild: bool = False,
    guard: bool | None = None,
) -> IndexReport:
    """Create, change and remove the ``__ttl_*`` indexes of one collection.

    Args:
        collection: PyMongo's or Motor's, or the gate's.
        policy: How its documents expire; None to remove what an earlier policy has left.
        purge: Who deletes: "native" for MongoDB itself, "sweeper" for ttl_odm's sweeper.
        backend: "cosmos" for Azure Cosmos DB for MongoDB (RU).
        rebuild: Whether an index of ours with another definition than is needed may be dropped
            and built again, which reads the whole collection. (Another number of seconds is no
            rebuild.)
        guard: True to add the validator of `ttl_odm.beanie.indexes.validator` where there is
        something to
            guard, False to remove it, None to keep it if it is there.

    Raises:
        TTLConfigurationError: The collection cannot have such indexes, an index of the user's
            own is in the way, or a rebuild is needed and was not allowed.
        TTLError: Others kept changing the same indexes.
    """
    details = await details_of(collection)
    _refuse_view(collection, details)
    if details.get("type") == "timeseries":
        changed = await time_series.ensure(collection, details["options"], policy, purge)
        return IndexReport(collection.full_name, changed=(time_series.SECONDS,) if changed else ())
    wanted = _wanted(policy, purge, backend)
    _refuse_capped(collection, details, wanted)
    aim = Aim(
        collection=collection.name,
        wanted=wanted,
        fields=ttl_indexes.date_fields(policy) if policy else (),
        rebuild=rebuild,
        can_change=backend == "mongodb",
    )
    relied_on, done = await _reach(collection, aim, policy)
    done += await _guard(collection, details, policy, aim, guard=guard)
    is_native = purge == "native" and backend == "mongodb"
    left = ttl_indexes.left_to_sweeper(policy) if policy and is_native else ()
    return _report(collection, aim, relied_on, done, left)


async def _reach(
    collection: Collection, aim: Aim, policy: Policy | None
) -> tuple[dict[str, str], list[Done]]:
    """Apply steps until there are none, looking again whenever somebody else was faster."""
    done: list[Done] = []
    lost: OperationFailure | None = None
    for _ in range(_ROUNDS):
        existing = await indexes_of(collection)
        steps = list(aim.steps(existing))
        if not steps:
            return aim.relied_on(existing), done
        for step in steps:
            if step.outcome == "created" and _deleting_by_expiry(aim) & {*step.names}:
                await _refuse_early(collection, policy)
            lost = await _take(collection, aim, step, existing)
            if lost is not None:
                await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 (no secret)
                break
            done += [(step.outcome, name) for name in step.names]
    message = (
        f"Others keep changing the indexes of {collection.full_name!r}, or are building one of "
        "them just now: try again later."
    )
    raise TTLError(message) from lost


async def _take(
    collection: Collection, aim: Aim, step: Step, existing: list[Document]
) -> OperationFailure | None:
    """Run one step; return the server's error if somebody else was faster."""
    try:
        await run(collection, step.command)
    except OperationFailure as error:
        reason = _explain(collection, aim, error, existing)
        if reason is not None:
            raise TTLConfigurationError(reason) from error
        if error.code in _CONFLICTS | _RACES:
            return error
        raise
    return None


def _explain(
    collection: Collection, aim: Aim, error: OperationFailure, existing: list[Document]
) -> str | None:
    """Say why it will never work; None if it may be nothing but a race."""
    name = aim.in_the_way(existing) if error.code in _CONFLICTS else None
    if name is not None:
        return (
            f"The index {name!r} of {collection.full_name!r} has the key and the filter of one "
            "that ttl_odm needs under a name of its own, and MongoDB has no room for both: drop it."
        )
    if error.code == _CANNOT_CREATE_INDEX:
        said = (error.details or {}).get("errmsg", error)
        return (
            f"MongoDB refuses an index that the policy of {collection.full_name!r} needs: {said}. "
            "(Documents with a ttl of their own need MongoDB 6.0, for $or in partial indexes.)"
        )
    return None


async def _refuse_early(collection: Collection, policy: Policy | None) -> None:
    """Refuse to have MongoDB delete by an ``_exp`` that nobody has kept right."""
    if isinstance(policy, TTL) and (found := await examples(collection, too_early(policy))):
        message = (
            f"Documents of {collection.full_name!r} (such as {', '.join(map(repr, found))}) have "
            f"an {ttl_indexes.EXPIRY!r} from an earlier time, by which MongoDB would delete them "
            "while they live: call repair_strays() first."
        )
        raise TTLConfigurationError(message)


async def _guard(
    collection: Collection,
    details: Document,
    policy: Policy | None,
    aim: Aim,
    *,
    guard: bool | None,
) -> list[Done]:
    outcome = await ensure_guard(
        collection,
        details.get("options", {}).get("validator", {}),
        policy if isinstance(policy, TTL) and _deleting_by_expiry(aim) else None,
        guard=guard,
    )
    return [(outcome, GUARD)] if outcome else []


def _deleting_by_expiry(aim: Aim) -> set[str]:
    return {
        each.name for each in aim.wanted if (each.field, each.seconds) == (ttl_indexes.EXPIRY, 0)
    }


def _wanted(policy: Policy | None, purge: Purge, backend: Backend) -> tuple[Index, ...]:
    if policy is None:
        return ()
    ttl_indexes.check_purge(policy, purge)
    if backend == "cosmos":
        return azure.wanted_indexes(policy, purge)
    return ttl_indexes.wanted_indexes(policy, purge)


def _refuse_view(collection: Collection, details: Document) -> None:
    if details.get("type") == "view":
        source = details["options"]["viewOn"]
        message = f"{collection.full_name!r} is a view: declare the TTL on its source, {source!r}."
        raise TTLConfigurationError(message)


def _refuse_capped(collection: Collection, details: Document, wanted: tuple[Index, ...]) -> None:
    deletes = any(each.seconds is not None for each in wanted)
    if deletes and details.get("options", {}).get("capped"):
        message = (
            f"{collection.full_name!r} is a capped collection, which can have no TTL index: "
            "declare __ttl_purge__ = 'sweeper'."
        )
        raise TTLConfigurationError(message)


def _report(
    collection: Collection,
    aim: Aim,
    relied_on: dict[str, str],
    done: list[Done],
    left: tuple[str, ...],
) -> IndexReport:
    def names(outcome: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for what, name in done if what == outcome))

    touched = {name for _, name in done}
    return IndexReport(
        collection=collection.full_name,
        created=names("created"),
        changed=names("changed"),
        removed=names("removed"),
        unchanged=tuple(
            each.name for each in aim.wanted if each.name not in {*touched, *relied_on}
        ),
        relied_on=tuple(relied_on.values()),
        left_to_sweeper=left,
    )
