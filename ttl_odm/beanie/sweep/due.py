"""Where expired documents are, how many there are, and for how long they have been expired.

They are at the beginning of the indexes that `ttl_odm.beanie.policy.ttl_indexes` describes, in the
order in which they expired. A document with its own ttl but without ``_exp``, because that ttl is
invalid or the write couldn't compute ``_exp``, is at the beginning of the second index, before all
dates. So a sweep goes through ranges of these indexes, part by part (`stages_of`). If scopes have
defaults of their own and lead the first index, a `Walk` returns the ranges. Without these indexes a
collection is walked by its keys.

Finding what is due reads the first entry of each range. Documents are counted only for a dry run or
a fuse.
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
    kind_of,
    never_expires,
    shortest_default,
    value_at,
)
from ttl_odm.beanie.policy.rules import dependents, rules_below
from ttl_odm.beanie.policy.ttl_indexes import (
    EXPIRY,
    has_key,
    has_wrong_expiry,
    inheriting_branches,
    is_ours,
    mongodb_indexes,
    own_branches,
)
from ttl_odm.beanie.rewrite.lookups import descend
from ttl_odm.beanie.sweep.walks import walk_by
from ttl_odm.beanie.time.clock import instant_of
from ttl_odm.core.expiry import effective_ttl, own_ttl
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
    """How a sweep can go through a collection.

    Attributes:
        indexes: By field, the name of the index that a sweep uses, and the first date that can be
            in it. Empty if the collection has to be walked.
        is_capped: Whether it is capped, so that transactions can't write to it.
        is_deleted_by_bucket: Whether it is a time series, from which only MongoDB deletes.
        walk: The ranges of the index that scopes lead, if there is such an index.
        several_keys: By index, whether it has several entries for one document, because of an
            array. Filled in as batches ask the server.
    """

    indexes: Mapping[str, tuple[str, DatetimeMS]]
    is_capped: bool = False
    is_deleted_by_bucket: bool = False
    walk: Walk | None = None
    several_keys: dict[str, bool] = field(default_factory=dict)


class Action(Enum):
    """What a batch does in a range."""

    PURGE = "purge"
    """Delete the expired documents of a range by date, which are nearly all of it."""

    WALK = "walk"
    """Delete the expired documents of a range by key, where they stand among live ones."""

    FIX = "fix"
    """Correct ``_exp``: the documents still in the range are live, and their ``_exp`` is wrong."""


@dataclass(frozen=True, slots=True)
class IndexRange:
    """A range of an index, and what a batch does in it.

    Attributes:
        kind: What to do.
        range: The range.
        branches: Filters that together match all documents in the index. Each of them implies the
            filter of a partial index. May be empty.
        policy: The policy of the range's documents if they have one default; the expression for a
            thousand defaults would be long.
    """

    kind: Action
    range: KeyRange | WalkedRange
    branches: tuple[Filter, ...] = ()
    policy: TTL | None = None

    def expired(self, policy: Policy) -> Filter:
        """Return the filter for the range's expired documents; `policy` is the collection's."""
        return {"$expr": expired_expr(self.policy or policy)}

    @property
    def is_undated(self) -> bool:
        """Whether it begins before all dates."""
        return isinstance(self.range, KeyRange) and isinstance(self.range.low, MinKey)


@dataclass(frozen=True, slots=True)
class Resume:
    """Where the next batch of a part begins.

    Attributes:
        stage: The number of the stage.
        low: The place in its range; None for the beginning.
        left: The keys of documents at exactly that place which earlier batches left behind.
        batch: The number of batches before.
    """

    stage: int = 0
    low: object = None
    left: tuple[object, ...] = ()
    batch: int = 0


async def layout_of(collection: Collection, binding: Binding, *, is_walked: bool) -> Layout:
    """Read the layout of a collection; without its indexes if it will be walked."""
    details = await details_of(collection)
    is_series = details.get("type") == "timeseries"
    is_capped = bool(details.get("options", {}).get("capped"))
    indexes: dict[str, tuple[str, DatetimeMS]] = {}
    scope_index = None
    if not (is_series or is_walked):
        # The policy's indexes, for either kind of purge; unused unless all of them exist.
        policy, scope = binding.outline, binding.scope
        native = mongodb_indexes(policy, "native", scope)
        for existing in await indexes_and_builds_of(collection, binding.backend):
            for index in (*native, *mongodb_indexes(policy, "sweeper", scope)):
                is_led = index.scope is not None and _matches(existing, index)
                if is_led:
                    scope_index = str(existing["name"])
                if is_led or (index.field not in indexes and _matches(existing, index.least)):
                    filtered = existing.get("partialFilterExpression", {}).get(index.field, {})
                    first = DatetimeMS(filtered["$gte"]) if "$gte" in filtered else _FIRST_DATE
                    indexes[index.field] = (str(existing["name"]), first)
        indexes = indexes if len(indexes) == len(native) else {}
        if scope_index is not None and "collation" in details.get("options", {}):
            indexes = {}  # under a collation a range of one scope has documents of others
    walk = None
    if indexes and scope_index is not None:
        walk = await walk_by(RawCollection(collection), binding.source, scope_index)
    return Layout(indexes, is_capped, is_series, walk)


def _matches(existing: Document, index: Index) -> bool:
    """Return whether an existing index, ours or the application's, can serve as a policy's."""
    if not has_key(existing, index) or existing.get("hidden") or BUILD in existing:
        return False
    if "collation" in existing and not is_ours(existing["name"]):  # perhaps not the collection's
        return False
    partial = existing.get("partialFilterExpression")
    return partial == index.filter or (partial is None and index.is_on_every_document)


def parts_of(policy: Policy, layout: Layout) -> tuple[Part, ...]:
    """Return the parts that may hold expired documents."""
    shortest = shortest_default(policy) if isinstance(policy, TTL) else 0
    if shortest is None:
        return ()
    never = shortest == NEVER
    has_own = isinstance(policy, TTL) and policy.override is not None
    has_limit = isinstance(policy, TTL) and policy.limit is not None
    has_part = {Part.INHERITING: not never, Part.OWN: has_own, Part.CAPPED: has_limit}
    parts = tuple(part for part in has_part if has_part[part])
    return parts if layout.indexes or not parts else (Part.ALL,)


def stages_of(
    policy: Policy, layout: Layout, part: Part, now: DatetimeMS
) -> tuple[IndexRange, ...]:
    """Return the ranges that a sweep goes through for a part; none if their indexes are gone."""
    if part is Part.ALL:
        return (IndexRange(Action.WALK, KeyRange(BY_KEY, "_id", MinKey())),)
    dated = policy.limit if isinstance(policy, TTL) and part is Part.CAPPED else policy
    if not layout.indexes or dated is None:
        return ()
    if not isinstance(dated, TTL):
        name, first = layout.indexes[dated.field]
        seconds = dated.seconds if isinstance(dated, ExpireAfter) else 0
        # Without branches: applications do have arrays here, and on the entries of an array MongoDB
        # uses only one of a condition's two bounds.
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
    """Yield the ranges of the documents that inherit the default."""
    shortest = shortest_default(policy)
    if layout.walk is not None:
        for own, reach in layout.walk.ranges(policy, now):
            yield IndexRange(Action.PURGE, reach, policy=own)
    elif shortest is not None and shortest != NEVER:
        name, first = layout.indexes[policy.last_modified]
        dates = KeyRange(name, policy.last_modified, first, reached(now, shortest))
        yield IndexRange(Action.PURGE, dates, tuple(inheriting_branches(policy)))


async def find_due(place: RawCollection, policy: Policy, layout: Layout) -> Due | None:
    """Find the parts with expired documents; see `ttl_odm.sweeper.AsyncStore.due`."""
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
    """Return several stages as one if they are adjacent ranges of an index, otherwise None.

    An idle sweep then needs one find for all of them.
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
    """Return how long the range's first document has been expired; nothing for an empty range."""
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
    if age == 0.0 and due is not expired:  # it is live, but documents behind it may not be
        others = await place.find(expired, limit=1, **reach.bounds())
        age = age_of(policy, others[0], now) if others else 0.0
    return [age]


async def count(
    place: RawCollection, policy: Policy, layout: Layout, source: DefaultSource
) -> Counted:
    """Count the expired documents, and all; see `ttl_odm.sweeper.AsyncCounting`.

    No command returns both numbers at once. If documents were added or deleted in between, the
    number of all documents is an estimate.
    """
    before = await _count_all(place)
    scoping, scopes = source.scoping, source.own_scopes(policy)
    due = await _count_due(place, policy, layout, None if scopes is None else scopes.number)
    rows = await _count_all(place)
    facts = {} if scoping is None else scoping.due({} if scopes is None else scopes.named(due))
    return Counted(due.total(), rows, is_estimated=rows != before, facts=facts)


async def with_dependents(place: RawCollection, policy: Policy, due: Due) -> Due:
    """Add the parts that dependents need to what is due."""
    if not rules_below(place.collection):
        return due
    parts = list(due.parts)
    if Part.INHERITING in parts and isinstance(policy, TTL) and policy.override is not None:
        # A document with too many dependents for one batch is moved to this part.
        parts = list(dict.fromkeys([Part.INHERITING, Part.OWN, *parts]))
    parts += [extension.part for extension in dependents if await extension.is_due(place)]
    return replace(due, parts=tuple(parts))


async def count_facts(place: RawCollection, policy: Policy, layout: Layout) -> dict[str, Fact]:
    """Count the dependents of expired documents, as facts of a dry run."""
    rows = await _count_dependents(place, policy, layout)
    facts: dict[str, Fact] = {}
    for extension in dependents:
        facts |= extension.facts(rows)
    return facts


async def _count_dependents(place: RawCollection, policy: Policy, layout: Layout) -> dict[str, int]:
    """Count the dependents of expired documents by collection, without zeros."""
    counts: dict[str, int] = {}
    if not rules_below(place.collection) or not parts_of(policy, layout):
        return counts
    expired: Pipeline = [{"$match": {"$expr": expired_expr(policy)}}]
    waiting = [(place.collection, expired)]
    for collection, stages in waiting:  # grows in the loop
        for rule in rules_below(collection):
            along = [*stages, *descend(rule)]
            waiting.append((place.sibling(rule.collection).collection, along))
            counted = await place.aggregate([*along, {"$count": "n"}])
            if counted and (number := int(counted[0]["n"])):
                counts[rule.collection] = number
    return counts


async def _count_all(place: RawCollection) -> int:
    return int((await place.run({"count": place.collection.name}))["n"])


async def _count_due(
    place: RawCollection, policy: Policy, layout: Layout, by: Document | None
) -> Counter[Any]:
    """Count the expired documents by the value of an expression; None counts them as one."""
    due: Counter[Any] = Counter()
    parts = parts_of(policy, layout)
    if layout.is_deleted_by_bucket or not parts:
        return due
    # A document past its limit may be in another part as well.
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
    """Yield conditions that together match each document of a stage once.

    An aggregation can't use a range of an index, as a find can. So each condition has one bound,
    and implies the filter of a partial index.
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
        others.append({str(policy.override): array})  # not a ttl: it inherits, and is counted there
    for branch in stage.branches or ({},):
        yield [branch, where, *({"$nor": [other]} for other in others)]
        others.append(branch)


async def now(database: Database) -> datetime:
    """Return the server's present instant."""
    reply = await command_in(database, {"hello": 1})
    return as_datetime(instant_of(reply))


def age_of(policy: Policy, row: Filter, now: DatetimeMS) -> float:
    """Return the seconds since a document expired; 0.0 if it is live, or has no valid date.

    Unlike `ttl_odm.core.expires_at` it doesn't end with the year 9999.
    """
    if isinstance(policy, TTL):
        if policy.limit is not None:
            is_on = policy.default_of(kind_of(row, policy)) is not None
            limited = age_of(policy.limit, row, now) if is_on else 0.0
            return max(limited, age_of(policy.unlimited, row, now))
        own = None if policy.override is None else row.get(policy.override)
        seconds = effective_ttl(policy.default_of(kind_of(row, policy)), own_ttl(policy, own))
        moment = row.get(policy.last_modified)
    else:
        seconds = policy.seconds if isinstance(policy, ExpireAfter) else 0
        moment = first_date(value_at(row, policy.field))
    if seconds is None or not isinstance(moment, DatetimeMS):
        return 0.0
    return max(int(now) - int(moment) - seconds * 1000, 0) / 1000


def first_date(value: object) -> DatetimeMS | None:
    """Return a date, or the earliest date in an array; None if there is none."""
    values = value if isinstance(value, list) else [value]
    dates = [date for date in values if isinstance(date, DatetimeMS)]
    return min(dates, key=int, default=None)


def reached(now: DatetimeMS, seconds: int) -> DatetimeMS:
    """Return the end of the range of dates at least so many seconds ago; it is exclusive."""
    return DatetimeMS(int(now) - seconds * 1000 + 1)
