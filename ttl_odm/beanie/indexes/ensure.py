"""`ensure_indexes`: bring a collection's ``__ttl_*`` indexes to what its policy needs.

An application calls this once, when it starts, perhaps in many processes at the same time. A
process that meets the change of another looks at the indexes again, until nothing is left to do.
Indexes that ttl_odm did not create are never touched.

From a time-series collection MongoDB deletes by one number of seconds, without an index. So its
only possible policy is `ExpireAfter` on its time field. MongoDB deletes a bucket of measurements
when its last one has expired: never early, and late by up to the bucket's span.

MongoDB must not delete from an archive either, whose documents a class means to keep. If the
archive's own class has a policy, `ensure_indexes` of that class checks its indexes.

This module must not know how documents are read and written: it runs database commands only.
"""

from __future__ import annotations

import asyncio
import math
import random
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from beanie.exceptions import CollectionWasNotInitialized
from pymongo.errors import OperationFailure

from ttl_odm.beanie.indexes.changes import Aim, check_clustered, deleted_by, deletes
from ttl_odm.beanie.indexes.live_view import details_and_views, ensure_view
from ttl_odm.beanie.indexes.strays import examples
from ttl_odm.beanie.indexes.validator import GUARD, ensure_guard, too_early
from ttl_odm.beanie.policy import ttl_indexes
from ttl_odm.beanie.policy.bindings import (
    backend_of,
    binding_of,
    check_enforced,
    collection_of,
    expires_itself,
    registry_of,
)
from ttl_odm.beanie.policy.commands import (
    alter,
    details_of,
    indexes_and_builds_of,
    indexes_of,
)
from ttl_odm.beanie.policy.rules import rule_on
from ttl_odm.beanie.policy.sources import IndexedSource
from ttl_odm.beanie.purge.removal import archive_in, mode_of
from ttl_odm.core.policy import TTL, ExpireAfter
from ttl_odm.errors import TTLConfigurationError, TTLError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ttl_odm.beanie.drivers import Backend, Collection, Document
    from ttl_odm.beanie.indexes.changes import Step
    from ttl_odm.beanie.policy.bindings import Binding
    from ttl_odm.beanie.policy.rules import Rule
    from ttl_odm.beanie.policy.sources import Ensure
    from ttl_odm.beanie.policy.ttl_indexes import Index, Purge
    from ttl_odm.core.policy import Policy

Done = tuple[str, str]  # an outcome, and the name of an index
Show: TypeAlias = "Callable[[Step | None], Awaitable[None]]"

SECONDS = "expireAfterSeconds"
"""The option that a time-series collection has in place of an index."""

_NEEDED_BY: Final[Mapping[Backend, Callable[[Policy, Purge], tuple[Index, ...]]]] = {
    "cosmos": ttl_indexes.azure_indexes,
    "documentdb": ttl_indexes.documentdb_indexes,
}
_CANNOT_CREATE_INDEX = 67
_INVALID_OPTIONS = 72
_CONFLICTS = {85, 86}  # IndexOptionsConflict, IndexKeySpecsConflict
# Another client is changing the same index: NamespaceNotFound, IndexNotFound, WriteConflict,
# ConflictingOperationInProgress, IndexBuildAborted, BackgroundOperationInProgressForNamespace.
_RACES = {26, 27, 112, 117, 276, 12587}
_ROUNDS = 30
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class IndexReport:
    """What was done to one collection.

    Attributes:
        collection: The name of the collection, with the database's.
        created: The names of indexes (or ``__ttl_guard``, the validator, or the name of a view).
        changed: The indexes whose number of seconds was changed.
        removed: The indexes that are no longer needed, or were dropped to be rebuilt.
        unchanged: The indexes that were right.
        relied_on: The application's own indexes that do just what the policy needs.
        left_to_sweeper: Which expired documents MongoDB will not delete by itself. The report's
            text mentions them if an index was created or changed.
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
        }
        texts = [f"{what} {', '.join(names)}" for what, names in parts.items() if names]
        text = f"{self.collection}: {'; '.join(texts) or 'nothing to do'}"
        if not (self.left_to_sweeper and (self.created or self.changed)):
            return text  # an unchanged collection's report shouldn't repeat this at each start
        return (
            f"{text}. MongoDB doesn't delete {', or '.join(self.left_to_sweeper)}: a sweeper does."
        )


async def _show_nothing(step: Step | None) -> None:
    del step


async def _begin_nothing() -> None: ...


async def ensure_indexes(
    model: type,
    *models: type,
    rebuild: bool = False,
    guard: bool | None = None,
    view: str | bool | None = None,
) -> tuple[IndexReport, ...]:
    """Create or change the TTL indexes of document classes as their policies need.

    A class whose documents expire with a parent gets an index on the fields that lead to it, unless
    one of the application's own begins with them.

    It does nothing if the indexes are right, may run in many processes at once, and never touches
    an index or a validator that it did not create. It removes the indexes of classes whose
    ``__ttl__`` is None or was removed. If the database stores the default and has none yet, it
    writes the initial value.

    Args:
        model: A document class that `init_beanie` has seen.
        models: More classes; those that share a collection count once.
        rebuild: Whether an index that needs another field or filter may be dropped and rebuilt,
            which reads the whole collection. So may one that doesn't begin with the field of
            ``Stored(..., by=...)``, with which sweeps read more than they need.
        guard: True to make the server reject writes of other programs that would make MongoDB
            delete a document too early; False to end that; None to leave it as it is.
        view: The name of a view of the live documents, for readers that bypass the gate; True for
            the collection's name with the suffix ``_live``. Each call updates it to the policy. It
            is dropped if TTL is off, or by False. None to create no view.

    Returns:
        What was done, for each collection.

    Raises:
        TTLConfigurationError: A collection cannot have such indexes, one of the application's own
            indexes or validators is in the way, MongoDB deletes documents (or those of an archive)
            by an index of the application's that contradicts the declaration, a rebuild is needed
            but not allowed, or documents must be repaired first. The collections before that one
            are done.
        TTLError: Other processes kept changing the same indexes.
    """
    bindings = {}
    for target in (model, *models):
        check_enforced(target)
        binding = binding_of(target)
        collection = collection_of(target)
        bindings[collection.full_name] = collection, binding
    if isinstance(view, str) and len(bindings) > 1:
        raise TTLConfigurationError(
            f"view={view!r} names a single view: call ensure_indexes() for each class, or pass "
            "view=True."
        )
    reports = []
    for collection, binding in bindings.values():
        if view and binding is not None:
            _check_view(binding, view)
        ensure = partial(ensure_collection, collection, rebuild=rebuild, guard=guard, view=view)
        if binding is None:
            rule = rule_on(collection)
            if rule is not None:
                rule.check()
                if view:
                    raise rule.rejected("view", f"view={view!r}")
            backend = backend_of(collection)
            if backend is None or backend == "migrations":  # neither names a service
                backend = "mongodb"
            reports.append(await ensure(None, rule=rule, backend=backend))
            registry_of(collection.database.client).forget(
                collection.database.name, collection.name
            )
        else:
            await check_archive(collection, binding)
            ensure = partial(
                ensure, purge=binding.purge, backend=binding.backend, scope=binding.scope
            )
            source = binding.source
            if isinstance(source, IndexedSource):
                reports.append(await source.ensure(collection, ensure))
            else:
                reports.append(await _ensure(binding, ensure))
    return tuple(reports)


async def _ensure(binding: Binding, ensure: Ensure[IndexReport]) -> IndexReport:
    """Ensure the indexes of a policy whose default is in code."""
    policy = binding.source.policy  # in force once MongoDB deletes by it
    is_ours = binding.purge == "native" and not binding.is_left_to_service

    async def show(step: Step | None) -> None:
        if step is None or not step.spares:
            binding.deleting = policy if is_ours else None

    return await ensure(policy, show=show)


async def check_archive(collection: Collection, binding: Binding) -> None:
    """Reject a TTL index on the archive of a collection.

    One on the field with the time of archiving is allowed: it is how an application limits its
    archive.

    Raises:
        TTLConfigurationError: MongoDB deletes documents of the archive by another date.
    """
    archive = mode_of(binding, collection.name).archive
    if archive is None:
        return
    with suppress(CollectionWasNotInitialized, AttributeError):  # Beanie hasn't seen its class yet
        into = archive_in(collection.database, archive)
        if registry_of(into.database.client).find(into.database.name, into.name) is not None:
            return
        details = await details_of(into)
        check_clustered(details.get("options", {}), into.name, binding.declared)
        for index in await indexes_of(into):
            if deletes(index) and next(iter(index["key"])) != archive.archived_at:
                raise TTLConfigurationError(
                    f"The TTL index {index['name']!r} of {into.name!r}, the archive of "
                    f"{binding.model.__name__}, makes MongoDB delete {deleted_by(index)}. Drop it. "
                    "To limit how long the archive keeps documents, declare it as a document class "
                    "with a __ttl__, or put the index on the field that "
                    "Archive(..., archived_at=...) names."
                )


def _check_view(binding: Binding, view: str | bool) -> None:  # noqa: FBT001 (an argument of ours)
    """Reject a view that couldn't be kept up to date."""
    policy, why = binding.declared, None
    if binding.backend != "mongodb":
        why = f"is only for MongoDB itself, and this is backend={binding.backend!r}"
    elif isinstance(policy, TTL) and not policy.is_fixed and binding.source.is_known:
        why = "would contain the default as a number, but here a function returns the default"
    if why is not None:
        raise TTLConfigurationError(f"{binding.model.__name__}: view={view!r} {why}.")


async def ensure_collection(  # noqa: PLR0913 (all but two by keyword)
    collection: Collection,
    policy: Policy | None,
    *,
    purge: Purge = "native",
    backend: Backend = "mongodb",
    scope: str | None = None,
    rule: Rule | None = None,
    rebuild: bool = False,
    guard: bool | None = None,
    view: str | bool | None = None,
    show: Show = _show_nothing,
    begin_view: Callable[[], Awaitable[None]] = _begin_nothing,
) -> IndexReport:
    """Create, change and remove the ``__ttl_*`` indexes of one collection; see `ensure_indexes`.

    Without a policy, the indexes of an earlier one are removed. Another number of seconds needs no
    rebuild.

    Args:
        collection: The collection of either driver, gated or not.
        policy: Its policy, None if it has none.
        purge: Who deletes.
        backend: What the collection is on.
        scope: `Binding.scope`.
        rule: The rule of documents without a policy.
        rebuild: As in `ensure_indexes`, like the next two.
        guard: See there.
        view: See there.
        show: Called before each step, and with None after the last one. From the first step that
            doesn't spare documents, MongoDB deletes no document that is live by this policy, but
            may delete documents that were live by an earlier one.
        begin_view: Called before a view is changed, which is before that moment.
    """
    views: list[Document] = []
    if backend == "mongodb":
        details, views = await details_and_views(collection)
    else:
        details = await details_of(collection)
    viewed: list[Done] | None = None

    async def advance(step: Step | None) -> None:
        nonlocal viewed
        if viewed is None and (step is None or not step.spares):
            viewed = await ensure_view(
                collection, views, policy, view=view, begin=begin_view, backend=backend
            )
        await show(step)

    name = repr(collection.full_name)
    options = details.get("options", {})
    if details.get("type") == "view":
        raise TTLConfigurationError(
            f"{name} is a view: declare the TTL on its source, {options['viewOn']!r}."
        )
    if details.get("type") == "timeseries":
        only_seconds = Aim(collection.name, (), policy, rebuild=False, can_change=True)
        only_seconds.relied_on(await indexes_of(collection))
        changed = await _ensure_seconds(
            collection, options, policy, purge, advance, backend=backend
        )
        done = [("changed", SECONDS)] if changed else []
        return _report(collection, (), {}, done + (viewed or []), ())
    indexes: tuple[Index, ...] = () if rule is None else (rule.index(),)
    if policy is not None:
        ttl_indexes.check_purge(policy, purge)
        needed_by = _NEEDED_BY.get(backend, partial(ttl_indexes.mongodb_indexes, scope=scope))
        indexes = needed_by(policy, purge)
    if options.get("capped") and any(index.seconds is not None for index in indexes):
        raise TTLConfigurationError(
            f"{name} is a capped collection, which can't have a TTL index: declare "
            "__ttl_purge__ = 'sweeper'."
        )
    declared = policy if rule is None else rule.declared
    if declared is not None:
        check_clustered(options, collection.name, declared)
    aim = Aim(
        collection=collection.name,
        indexes=indexes,
        declared=declared,
        rebuild=rebuild,
        can_change=not expires_itself(backend),
    )
    relied_on, done = await _reach(collection, aim, policy, advance, backend)
    guarded = policy if isinstance(policy, TTL) and _deleting_by_expiry(aim) else None
    outcome = await ensure_guard(
        collection, options.get("validator", {}), guarded, guard=guard, backend=backend
    )
    done += [(outcome, GUARD)] if outcome else []
    done += viewed or []
    left_to_sweeper: tuple[str, ...] = ()
    if policy and purge == "native" and not expires_itself(backend):
        left_to_sweeper = ttl_indexes.left_to_sweeper(policy, is_simple=backend == "documentdb")
    return _report(collection, indexes, relied_on, done, left_to_sweeper)


async def _reach(
    collection: Collection, aim: Aim, policy: Policy | None, advance: Show, backend: Backend
) -> tuple[dict[str, str], list[Done]]:
    """Apply steps until there are none; look again if another client was faster."""
    done: list[Done] = []
    lost: OperationFailure | None = None
    for _ in range(_ROUNDS):
        existing = await indexes_and_builds_of(collection, backend)
        steps = list(aim.steps(existing))
        if not steps:
            await advance(None)
            return aim.relied_on(existing), done
        for step in steps:
            await advance(step)
            # MongoDB must not delete by an `_exp` that no write has maintained.
            is_risky = step.outcome == "created" and _deleting_by_expiry(aim) & {*step.names}
            early = too_early(policy) if isinstance(policy, TTL) and is_risky else None
            if early is not None and (keys := await examples(collection, early)):
                raise TTLConfigurationError(
                    f"Documents of {collection.full_name!r} (such as "
                    f"{', '.join(map(repr, keys))}) have an outdated {ttl_indexes.EXPIRY!r}, so "
                    "MongoDB would delete them while they are live: call repair_strays() first."
                )
            lost = await _take(collection, aim, step, existing, backend)
            if lost is not None:
                await asyncio.sleep(random.uniform(0, _PAUSE_SECONDS))  # noqa: S311 (no secret)
                break
            done += [(step.outcome, name) for name in step.names]
    raise TTLError(
        f"Another client is changing the indexes of {collection.full_name!r}, or building one: "
        "try again later."
    ) from lost


async def _take(
    collection: Collection, aim: Aim, step: Step, existing: list[Document], backend: Backend
) -> OperationFailure | None:
    """Run one step; return the server's error if another client was faster."""
    try:
        await alter(collection, step.command, backend)
    except OperationFailure as error:
        # Either this can never succeed, or it was only a race.
        name = aim.in_the_way(existing) if error.code in _CONFLICTS else None
        if name is not None:
            raise TTLConfigurationError(
                f"The index {name!r} of {collection.full_name!r} has the same key and filter as "
                "an index that ttl_odm has to create under another name, and MongoDB doesn't "
                "allow both: drop it."
            ) from error
        if error.code == _CANNOT_CREATE_INDEX:
            reason = (error.details or {}).get("errmsg", error)
            raise TTLConfigurationError(
                f"MongoDB rejects an index that the policy of {collection.full_name!r} needs: "
                f"{reason}. (Documents with a ttl of their own need MongoDB 6.0, for $or in "
                "partial indexes.)"
            ) from error
        if error.code in _CONFLICTS | _RACES:
            return error
        raise
    return None


def _deleting_by_expiry(aim: Aim) -> set[str]:
    by_expiry = (ttl_indexes.EXPIRY, 0)
    return {index.name for index in aim.indexes if (index.field, index.seconds) == by_expiry}


async def _ensure_seconds(  # noqa: PLR0913 (one by keyword)
    collection: Collection,
    options: Document,
    policy: Policy | None,
    purge: Purge,
    advance: Show,
    *,
    backend: Backend,
) -> bool:
    """Set a time-series collection's expireAfterSeconds to the policy's; return if it changed.

    Without a policy the option stays, since it may be the application's own. MongoDB deletes no
    single measurement by its date, so no other policy is possible, and no sweeper.
    """
    if policy is None:
        await advance(None)
        return False
    field = options["timeseries"]["timeField"]
    if not isinstance(policy, ExpireAfter) or policy.field != field or purge != "native":
        raise TTLConfigurationError(
            f"{collection.full_name!r} is a time-series collection, whose measurements can't have "
            "a ttl of their own and can't be deleted individually: declare "
            f"ExpireAfter({field!r}, seconds) and __ttl_purge__ = 'native'."
        )
    if policy.seconds <= options.get(SECONDS, math.inf):
        await advance(None)
    if options.get(SECONDS) == policy.seconds:
        return False
    try:
        await alter(collection, {"collMod": collection.name, SECONDS: policy.seconds}, backend)
    except OperationFailure as error:
        if error.code != _INVALID_OPTIONS:
            raise
        raise TTLConfigurationError(
            f"MongoDB refuses {policy!r} for {collection.full_name!r}: {error}"
        ) from error
    await advance(None)
    return True


def _report(
    collection: Collection,
    indexes: tuple[Index, ...],
    relied_on: dict[str, str],
    done: list[Done],
    left_to_sweeper: tuple[str, ...],
) -> IndexReport:
    def names(outcome: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for what, name in done if what == outcome))

    touched = {name for _, name in done}
    return IndexReport(
        collection=collection.full_name,
        created=names("created"),
        changed=names("changed"),
        removed=names("removed"),
        unchanged=(
            *(index.name for index in indexes if index.name not in {*touched, *relied_on}),
            *names("unchanged"),
        ),
        relied_on=tuple(relied_on.values()),
        left_to_sweeper=left_to_sweeper,
    )
