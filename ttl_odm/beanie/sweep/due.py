"""Where expired documents are, and which of them are due: for how long, and how many.

They are at the beginning of the indexes that `ttl_odm.beanie.policy.ttl_indexes` describes, in the
order in which they expired. Documents with a ttl of their own that have no ``_exp``, because it is
not valid or because nobody could tell when they were written, are at the beginning of the second
one, before all dates. So a sweep goes through ranges of these indexes, part by part (`stages_of`).
Where scopes have defaults of their own, and lead the first index, a `Walk` has the ranges. Without
these indexes a collection is walked by its keys. What is due costs one look at the first entry of
each range; only a dry run or a fuse wants documents counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from bson import DatetimeMS, MinKey

from ttl_odm.beanie.policy.commands import (
    BUILD,
    BY_KEY,
    KeyRange,
    RawCollection,
    as_datetime,
    command_in,
    details_of,
    indexes_and_builds_of,
)
from ttl_odm.beanie.policy.predicate import (
    expired_expr,
    never_expires,
    shortest_default,
)
from ttl_odm.beanie.policy.rules import dependents, rules_below
from ttl_odm.beanie.policy.ttl_indexes import (
    EXPIRY,
    has_key,
    has_wrong_expiry,
    inheriting_branches,
    is_ours,
    own_branches,
    wanted_indexes,
)
from ttl_odm.beanie.rewrite.lookups import descend
from ttl_odm.beanie.sweep.ages import age_of, reached
from ttl_odm.beanie.sweep.walks import walk_by
from ttl_odm.beanie.time.clock import instant_of
from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt
from ttl_odm.core.values import NEVER
from ttl_odm.sweeper import Counted, Due, Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from ttl_odm.beanie.drivers import Collection, Database, Document, Filter, Pipeline
    from ttl_odm.beanie.policy.bindings import Binding
    from ttl_odm.beanie.policy.sources import DefaultSource
    from ttl_odm.beanie.policy.ttl_indexes import Index
    from ttl_odm.beanie.sweep.walks import Walk, WalkedRange
    from ttl_odm.core.policy import Policy
    from ttl_odm.sweeper import Fact

_FIRST_DATE: Final = DatetimeMS(-(2**63))


@dataclass(frozen=True, slots=True)
class Layout:
    """What a collection is like; a capped one takes no transaction.

    `indexes` has the name of each index by which a sweep can go, and the first date that can be in
    it, by its field; it is empty if the collection has to be walked. Of a time series nobody
    deletes single documents. `walk` leads through the one that scopes lead. `several_keys` is what
    has been found out about indexes: whether a document is in one more than once, because of an
    array.
    """

    indexes: Mapping[str, tuple[str, DatetimeMS]]
    is_capped: bool = False
    is_deleted_by_bucket: bool = False
    walk: Walk | None = None
    several_keys: dict[str, bool] = field(default_factory=dict)


class Action(Enum):
    """What is to be done in a range."""

    PURGE = "purge"
    WALK = "walk"
    """As well; but what has expired stands among what has not."""

    FIX = "fix"
    """Whatever is still there lives, and is here because of a wrong ``_exp``."""


@dataclass(frozen=True, slots=True)
class IndexRange:
    """A range of an index, and what is to be done in it.

    The branches are filters that together match what is in the index, and of which each proves to
    the server that the index has it all; there may be none. Where its documents have one default,
    `policy` is that of theirs alone: of a thousand defaults the expression for all is long.
    """

    kind: Action
    range: KeyRange | WalkedRange
    branches: tuple[Filter, ...] = ()
    policy: TTL | None = None

    def expired(self, policy: Policy) -> Filter:
        """Return the filter for what has expired here by the policy of all documents."""
        return {"$expr": expired_expr(self.policy or policy)}

    @property
    def is_undated(self) -> bool:
        """Whether it is about what comes before all dates."""
        return isinstance(self.range, KeyRange) and isinstance(self.range.low, MinKey)


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a batch of a part goes on: in which of its stages, and from where in its range.

    None for the range's beginning. `left` are keys of documents at exactly that place that the
    batches before have left; so many batches there were.
    """

    stage: int = 0
    low: Any = None
    left: tuple[Any, ...] = ()
    batch: int = 0


async def layout_of(collection: Collection, binding: Binding, *, is_walked: bool) -> Layout:
    """Look at a collection; where it is walked, its indexes don't matter."""
    details = await details_of(collection)
    is_series = details.get("type") == "timeseries"
    is_capped = bool(details.get("options", {}).get("capped"))
    indexes: dict[str, tuple[str, DatetimeMS]] = {}
    scope_index = None
    if not (is_series or is_walked):
        # Those of the policy, whoever is to delete by them; none if one is missing.
        policy, scope = binding.outline, binding.scope
        native = wanted_indexes(policy, "native", scope)
        for existing in await indexes_and_builds_of(collection, binding.backend):
            for index in (*native, *wanted_indexes(policy, "sweeper", scope)):
                is_led = index.scope is not None and _is(existing, index)
                if is_led:
                    scope_index = str(existing["name"])
                if is_led or (index.field not in indexes and _is(existing, index.least)):
                    filtered = existing.get("partialFilterExpression", {}).get(index.field, {})
                    first = DatetimeMS(filtered["$gte"]) if "$gte" in filtered else _FIRST_DATE
                    indexes[index.field] = (str(existing["name"]), first)
        indexes = indexes if len(indexes) == len(native) else {}
    walk = None
    if indexes and scope_index is not None:
        walk = await walk_by(RawCollection(collection), binding.source, scope_index)
    return Layout(indexes, is_capped, is_series, walk)


def _is(existing: Document, index: Index) -> bool:
    """Say whether an index is one of a policy's, or one of the application's own like it."""
    if not has_key(existing, index) or existing.get("hidden") or BUILD in existing:
        return False
    if "collation" in existing and not is_ours(existing["name"]):  # perhaps not the collection's
        return False
    matches = existing.get("partialFilterExpression")
    return matches == index.filter or (matches is None and index.is_on_every_document)


def parts_of(policy: Policy, layout: Layout) -> tuple[Part, ...]:
    """Return the parts that may hold expired documents."""
    shortest = shortest_default(policy) if isinstance(policy, TTL) else 0
    if shortest is None:
        return ()
    never = shortest == NEVER
    has_own = isinstance(policy, TTL) and policy.override is not None
    has_limit = isinstance(policy, TTL) and policy.limit is not None
    there = {Part.INHERITING: not never, Part.OWN: has_own, Part.CAPPED: has_limit}
    parts = tuple(part for part, is_there in there.items() if is_there)
    return parts if layout.indexes or not parts else (Part.ALL,)


def stages_of(
    policy: Policy, layout: Layout, part: Part, now: DatetimeMS
) -> tuple[IndexRange, ...]:
    """Return what a sweep goes through for a part; nothing if the indexes for it are gone."""
    if part is Part.ALL:
        return (IndexRange(Action.WALK, KeyRange(BY_KEY, "_id", MinKey())),)
    dated = policy.limit if isinstance(policy, TTL) and part is Part.CAPPED else policy
    if not layout.indexes or dated is None:
        return ()
    if not isinstance(dated, TTL):
        name, first = layout.indexes[dated.field]
        seconds = dated.seconds if isinstance(dated, ExpireAfter) else 0
        # Without branches: applications do have arrays here, on whose entries a condition with two
        # bounds uses one of them only.
        reach = KeyRange(name, dated.field, first, reached(now, seconds))
        undated = IndexRange(Action.PURGE, KeyRange(name, dated.field, MinKey(), first))
        has_undated = isinstance(dated, ExpireAt) and dated.null == "expired"
        return (*([undated] if has_undated else []), IndexRange(Action.PURGE, reach))
    if part is Part.INHERITING:
        return tuple(_inheriting(dated, layout, now))
    name, _ = layout.indexes[EXPIRY]
    end, branches = reached(now, 0), tuple(own_branches(dated))
    return (
        IndexRange(Action.PURGE, KeyRange(name, EXPIRY, MinKey(), _FIRST_DATE), branches),
        IndexRange(Action.PURGE, KeyRange(name, EXPIRY, _FIRST_DATE, end), branches),
        IndexRange(Action.FIX, KeyRange(name, EXPIRY, MinKey(), end)),
    )


def _inheriting(policy: TTL, layout: Layout, now: DatetimeMS) -> Iterator[IndexRange]:
    """Give the ranges of those that inherit."""
    shortest = shortest_default(policy)
    if layout.walk is not None:
        for own, reach in layout.walk.ranges(policy, now):
            yield IndexRange(Action.PURGE, reach, policy=own)
    elif shortest is not None and shortest != NEVER:
        name, first = layout.indexes[policy.last_modified]
        dates = KeyRange(name, policy.last_modified, first, reached(now, shortest))
        yield IndexRange(Action.PURGE, dates, tuple(inheriting_branches(policy)))


async def find_due(place: RawCollection, policy: Policy, layout: Layout) -> Due | None:
    """Find out what there is to purge; see `ttl_odm.sweeper.AsyncStore.due`."""
    if layout.is_deleted_by_bucket or never_expires(policy):
        return None
    parts = parts_of(policy, layout)
    if Part.ALL in parts:
        return Due(parts, None)
    now = (await place.server()).now
    oldest = {}
    for part in parts:
        stages = [
            stage for stage in stages_of(policy, layout, part, now) if stage.kind is Action.PURGE
        ]
        whole = _joined(stages)
        if whole is not None and not await _ages(place, policy, whole, now):
            continue
        ages = [age for stage in stages for age in await _ages(place, policy, stage, now)]
        if ages:
            oldest[part] = max(ages)
    return Due(tuple(oldest), max(oldest.values(), default=0.0))


def _joined(stages: Sequence[IndexRange]) -> IndexRange | None:
    """Return several stages that are one range of an index as one; None if they aren't.

    So an idle sweep asks once for all of them.
    """
    if len(stages) < 2:  # noqa: PLR2004 (several)
        return None
    whole = stages[0]
    for stage in stages[1:]:
        before, after = whole.range, stage.range
        if not (isinstance(before, KeyRange) and isinstance(after, KeyRange)):
            return None
        if (before.index, before.high) != (after.index, after.low):
            return None
        if (whole.branches, whole.policy) != (stage.branches, stage.policy):
            return None
        whole = replace(whole, range=replace(before, high=after.high))
    return whole


async def _ages(
    place: RawCollection, policy: Policy, stage: IndexRange, now: DatetimeMS
) -> list[float]:
    """Return for how long the first document has expired; nothing where there is nothing to do."""
    reach, expired = stage.range, stage.expired(policy)
    if not isinstance(reach, KeyRange):
        return await reach.ages(place, policy, expired, now)
    due = expired
    if isinstance(policy, TTL) and reach.field == EXPIRY:
        due = {"$or": [expired, {"$expr": has_wrong_expiry(policy)}]}
    first = await place.find(due, limit=1, **reach.bounds())
    if not first:
        return []
    age = age_of(policy, first[0], now)
    if age == 0.0 and due is not expired:  # it lives, but others behind it may not
        others = await place.find(expired, limit=1, **reach.bounds())
        age = age_of(policy, others[0], now) if others else 0.0
    return [age]


async def count(
    place: RawCollection, policy: Policy, layout: Layout, source: DefaultSource
) -> Counted:
    """Count what there is to purge; see `ttl_odm.sweeper.AsyncCounting`.

    No command says both numbers at once. Where documents came or went between them, that of all is
    an estimate.
    """
    before = await _all(place)
    scoping, scopes = source.scoping, source.own_scopes(policy)
    due = await _due(place, policy, layout, None if scopes is None else scopes.number)
    rows = await _all(place)
    facts = {} if scoping is None else scoping.due({} if scopes is None else scopes.named(due))
    return Counted(due.total(), rows, is_estimated=rows != before, facts=facts)


async def with_dependents(place: RawCollection, policy: Policy, due: Due) -> Due:
    """Return what there is to do, with what there is for the sake of dependents."""
    if not rules_below(place.collection):
        return due
    parts = list(due.parts)
    if Part.INHERITING in parts and isinstance(policy, TTL) and policy.override is not None:
        # Where documents go that have too many dependents for one batch.
        parts = list(dict.fromkeys([Part.INHERITING, Part.OWN, *parts]))
    parts += [one.part for one in dependents if await one.is_due(place)]
    return replace(due, parts=tuple(parts))


async def count_facts(place: RawCollection, policy: Policy, layout: Layout) -> dict[str, Fact]:
    """Count what goes along with expired documents, as facts of a dry run."""
    rows = await _count_dependents(place, policy, layout)
    return {name: fact for one in dependents for name, fact in one.facts(rows).items()}


async def _count_dependents(place: RawCollection, policy: Policy, layout: Layout) -> dict[str, int]:
    """Count the dependents of expired documents, by collection, as far as there are any."""
    found: dict[str, int] = {}
    if not rules_below(place.collection) or not parts_of(policy, layout):
        return found
    expired: Pipeline = [{"$match": {"$expr": expired_expr(policy)}}]
    waiting = [(place.collection, expired)]
    for collection, stages in waiting:  # which grows
        for rule in rules_below(collection):
            along = [*stages, *descend(rule)]
            waiting.append((place.beside(rule.collection).collection, along))
            counted = await place.aggregate([*along, {"$count": "n"}])
            number = int(counted[0]["n"]) if counted else 0
            if number:
                found[rule.collection] = number
    return found


async def _all(place: RawCollection) -> int:
    return int((await place.run({"count": place.collection.name}))["n"])


async def _due(
    place: RawCollection, policy: Policy, layout: Layout, by: Document | None
) -> Counter[Any]:
    """Count them by an expression; None for all as one."""
    due: Counter[Any] = Counter()
    parts = parts_of(policy, layout)
    if layout.is_deleted_by_bucket or not parts:
        return due
    # What is past its limit may be in another part as well.
    if Part.ALL in parts or Part.CAPPED in parts:
        return await place.count({"$expr": expired_expr(policy)}, by=by)
    now = (await place.server()).now
    for part in parts:
        for stage in stages_of(policy, layout, part, now):
            for conditions in _countable(policy, stage):
                both = {"$and": [*conditions, stage.expired(policy)]}
                due += await place.count(both, stage.range.index, by)
    return due


def _countable(policy: Policy, stage: IndexRange) -> Iterator[list[Filter]]:
    """Give conditions that together match each document of a stage once.

    They have one bound each, and say what the index holds: an aggregation takes no range of an
    index, as a find does.
    """
    if stage.kind is not Action.PURGE:
        return
    if not isinstance(stage.range, KeyRange):
        yield [stage.range.condition()]
        return
    field, array = stage.range.field, {"$type": "array"}
    where: Filter = {field: None if stage.is_undated else {"$lt": stage.range.high}}
    others: list[Filter] = [{field: array}] if stage.is_undated else []
    if field == EXPIRY and isinstance(policy, TTL):
        others.append({str(policy.override): array})  # no ttl: it inherits, and is counted there
    for branch in stage.branches or ({},):
        yield [branch, where, *({"$nor": [other]} for other in others)]
        others.append(branch)


async def now(database: Database) -> datetime:
    """Return the database's present instant."""
    reply = await command_in(database, {"hello": 1})
    return as_datetime(instant_of(reply))
