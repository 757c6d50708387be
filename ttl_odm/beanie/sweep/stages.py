"""Where expired documents are: the ranges of indexes that a sweep goes through, part by part.

They are at the beginning of the indexes that `ttl_odm.beanie.policy.ttl_indexes` describes, in the
order in which they expired. Documents with a ttl of their own that have no ``_exp``, because it is
not valid or because nobody could tell when they were written, are at the beginning of the second
one, before all dates. Without these indexes a collection is walked by its keys.

Pure, but for `layout_of`, which looks at the collection.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from bson import DatetimeMS, MinKey

from ttl_odm.beanie.policy.commands import details_of, indexes_of
from ttl_odm.beanie.policy.ttl_indexes import (
    EXPIRY,
    inheriting_branches,
    is_ours,
    own_branches,
    shortest_default,
    wanted_indexes,
)
from ttl_odm.beanie.purge.raw_collection import BY_KEY, Filter, Range
from ttl_odm.core.policy import TTL, ExpireAfter
from ttl_odm.core.values import NEVER
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ttl_odm.beanie.policy.commands import Document
    from ttl_odm.beanie.policy.ttl_indexes import Index
    from ttl_odm.beanie.sweep.targets import Target
    from ttl_odm.core.policy import Policy

_FIRST_DATE: Final = DatetimeMS(-(2**63))


@dataclass(frozen=True, slots=True)
class Layout:
    """What a collection is like.

    Attributes:
        indexes: The first date that can be in each index by which a sweep can go, by its field and
            name. Empty if the collection has to be walked.
        is_capped: Whether it takes no transaction.
        is_deleted_by_bucket: Whether it is a time series, of which nobody deletes single documents.
        several_keys: What has been found out about indexes: whether a document is in one more than
            once, because of an array.
    """

    indexes: Mapping[str, tuple[str, DatetimeMS]]
    is_capped: bool = False
    is_deleted_by_bucket: bool = False
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

    Attributes:
        kind: That.
        range: Where.
        branches: Filters that together match what is in the index, and of which each proves to the
            server that the index has it all; empty where there are none.
    """

    kind: Action
    range: Range
    branches: tuple[Filter, ...] = ()

    @property
    def is_undated(self) -> bool:
        """Whether it is about what comes before all dates."""
        return isinstance(self.range.low, MinKey)

    @property
    def has_windows(self) -> bool:
        """Whether a deleting command can be bound to a piece of it."""
        return bool(self.branches) and not self.is_undated

    def starting_at(self, low: Any) -> IndexRange:
        """Return the rest of it."""
        return replace(self, range=replace(self.range, low=low))


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a batch of a part goes on.

    Attributes:
        stage: Which of the part's stages.
        low: From where in its range; None for its beginning.
        left: Keys of documents at exactly that place that the batches before have left.
        batch: How many these were.
    """

    stage: int = 0
    low: Any = None
    left: tuple[Any, ...] = ()
    batch: int = 0


async def layout_of(target: Target) -> Layout:
    """Look at a collection."""
    details = await details_of(target.collection)
    is_series = details.get("type") == "timeseries"
    is_capped = bool(details.get("options", {}).get("capped"))
    indexes: dict[str, tuple[str, DatetimeMS]] = {}
    if not (is_series or target.is_walked):
        existing = await indexes_of(target.collection)
        indexes = _usable(target.policy, existing)
    return Layout(indexes, is_capped, is_series)


def _usable(policy: Policy, existing: list[Document]) -> dict[str, tuple[str, DatetimeMS]]:
    """Find the indexes of a policy, whoever is to delete by them; none if one is missing."""
    native = wanted_indexes(policy, "native")
    wanted = (*native, *wanted_indexes(policy, "sweeper"))
    found = {}
    for each in existing:
        for index in wanted:
            if _is(each, index):
                low = each.get("partialFilterExpression", {}).get(index.field, {}).get("$gte")
                first = _FIRST_DATE if low is None else DatetimeMS(low)
                found[index.field] = (str(each["name"]), first)
    return found if len(found) == len(native) else {}


def _is(found: Document, index: Index) -> bool:
    """Say whether an index is the one that is wanted, or one of the application's own like it."""
    if dict(found["key"]) != {index.field: 1} or found.get("hidden"):
        return False
    if "collation" in found and not is_ours(found["name"]):  # it may not be the collection's
        return False
    matches = found.get("partialFilterExpression")
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
        return (IndexRange(Action.WALK, Range(BY_KEY, "_id", MinKey())),)
    if not layout.indexes:
        return ()
    if not isinstance(policy, TTL):
        return tuple(_by_date(policy, layout, now))
    if part is Part.CAPPED:
        return () if policy.limit is None else tuple(_by_date(policy.limit, layout, now))
    if part is Part.INHERITING:
        return tuple(_inheriting(policy, layout, now))
    return tuple(_own(policy, layout, now))


def _inheriting(policy: TTL, layout: Layout, now: DatetimeMS) -> Iterator[IndexRange]:
    shortest = shortest_default(policy)
    if shortest is None or shortest == NEVER:
        return
    name, first = layout.indexes[policy.last_modified]
    reach = Range(name, policy.last_modified, first, _before(now, shortest))
    yield IndexRange(Action.PURGE, reach, tuple(inheriting_branches(policy)))


def _own(policy: TTL, layout: Layout, now: DatetimeMS) -> Iterator[IndexRange]:
    name, _ = layout.indexes[EXPIRY]
    end = _before(now, 0)
    branches = tuple(own_branches(policy))
    yield IndexRange(Action.PURGE, Range(name, EXPIRY, MinKey(), _FIRST_DATE), branches)
    yield IndexRange(Action.PURGE, Range(name, EXPIRY, _FIRST_DATE, end), branches)
    yield IndexRange(Action.FIX, Range(name, EXPIRY, MinKey(), end))


def _by_date(policy: Any, layout: Layout, now: DatetimeMS) -> Iterator[IndexRange]:
    name, first = layout.indexes[policy.field]
    if not isinstance(policy, ExpireAfter) and policy.null == "expired":
        yield IndexRange(Action.PURGE, Range(name, policy.field, MinKey(), first))
    seconds = policy.seconds if isinstance(policy, ExpireAfter) else 0
    # Without branches: applications do have arrays here, on whose entries a condition with two
    # bounds uses one of them only.
    yield IndexRange(Action.PURGE, Range(name, policy.field, first, _before(now, seconds)))


def _before(now: DatetimeMS, seconds: int) -> DatetimeMS:
    """The first millisecond that is not yet so long ago."""
    return DatetimeMS(int(now) - seconds * 1000 + 1)
