"""What has expired and was not purged yet: which part of a collection, for how long, how many.

One look at the first entry of each range; a sweep that finds nothing to do has then done all that
it does. Only a dry run or a fuse wants documents counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bson import DatetimeMS

from ttl_odm.beanie.keys import value_at
from ttl_odm.beanie.policy.predicate import expired_expr
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY, own_expiry
from ttl_odm.beanie.purge.raw_collection import Filter, RawCollection, as_datetime, command_in
from ttl_odm.beanie.rewrite.filters import never_expires
from ttl_odm.beanie.sweep.stages import Action, parts_of, stages_of
from ttl_odm.core.expiry import effective_ttl, own_ttl
from ttl_odm.core.policy import TTL, ExpireAfter
from ttl_odm.sweeper import Counted, Due, Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from ttl_odm.beanie.sweep.stages import IndexRange, Layout
    from ttl_odm.core.policy import Policy


async def find_due(place: RawCollection, policy: Policy, layout: Layout) -> Due | None:
    """Find out what there is to purge; see `ttl_odm.sweeper.AsyncStore.due`."""
    if layout.is_deleted_by_bucket or never_expires(policy):
        return None
    parts = parts_of(policy, layout)
    if Part.ALL in parts:
        return Due(parts, None)
    now = (await place.server()).now
    found = {}
    for part in parts:
        ages = [
            age
            for stage in stages_of(policy, layout, part, now)
            if stage.kind is Action.PURGE
            for age in await _ages(place, policy, stage, now)
        ]
        if ages:
            found[part] = max(ages)
    return Due(tuple(found), max(found.values(), default=0.0))


async def _ages(
    place: RawCollection, policy: Policy, stage: IndexRange, now: DatetimeMS
) -> list[float]:
    """Return for how long the first document has expired; nothing where there is nothing to do."""
    expired = expired_expr(policy)
    due = expired
    if isinstance(policy, TTL) and stage.range.field == EXPIRY:
        due = {"$or": [expired, has_wrong_expiry(policy)]}
    first = await place.find({"$expr": due}, limit=1, **stage.range.bounds())
    if not first:
        return []
    age = age_of(policy, first[0], now)
    if age == 0.0 and due is not expired:  # it lives, but others behind it may not
        others = await place.find({"$expr": expired}, limit=1, **stage.range.bounds())
        age = max((age_of(policy, each, now) for each in others), default=0.0)
    return [age]


def age_of(policy: Policy, row: Mapping[str, Any], now: DatetimeMS) -> float:
    """Return the seconds since a document has expired; 0.0 if it has not, or nobody can tell.

    Not `ttl_odm.core.expires_at`, whose dates end with the year 9999.
    """
    if isinstance(policy, TTL):
        if policy.limit is not None:
            kind = None if policy.by is None else value_at(row, policy.by)
            is_on = policy.default_of(kind) is not None
            limited = age_of(policy.limit, row, now) if is_on else 0.0
            return max(limited, age_of(policy.unlimited, row, now))
        own = None if policy.override is None else row.get(policy.override)
        kind = None if policy.by is None else value_at(row, policy.by)
        seconds = effective_ttl(policy.default_of(kind), own_ttl(policy, own))
        moment = row.get(policy.last_modified)
    else:
        seconds = policy.seconds if isinstance(policy, ExpireAfter) else 0
        moment = first_date(value_at(row, policy.field))
    if seconds is None or not isinstance(moment, DatetimeMS):
        return 0.0
    return max(int(now) - int(moment) - seconds * 1000, 0) / 1000


def first_date(value: Any) -> DatetimeMS | None:
    """Return a date, or the earliest in an array; None where there is none."""
    values = value if isinstance(value, list) else [value]
    dates = [each for each in values if isinstance(each, DatetimeMS)]
    return min(dates, key=int, default=None)


def has_wrong_expiry(policy: TTL) -> Filter:
    """Return the expression for documents whose ``_exp`` doesn't follow from the rest of them."""
    return {"$ne": [f"${EXPIRY}", own_expiry(policy)]}


async def count(place: RawCollection, policy: Policy, layout: Layout) -> Counted:
    """Count what there is to purge; see `ttl_odm.sweeper.AsyncCounting`."""
    rows = (await place.run({"count": place.collection.name}))["n"]
    parts = parts_of(policy, layout)
    if layout.is_deleted_by_bucket or not parts:
        return Counted(0, rows)
    expired = {"$expr": expired_expr(policy)}
    # What is past its limit may be in another part as well.
    if Part.ALL in parts or Part.CAPPED in parts:
        return Counted(await place.count(expired), rows)
    now = (await place.server()).now
    due = 0
    for part in parts:
        for stage in stages_of(policy, layout, part, now):
            for wanted in _countable(policy, stage):
                due += await place.count({"$and": [*wanted, expired]}, stage.range.index)
    return Counted(due, rows)


def _countable(policy: Policy, stage: IndexRange) -> Iterator[list[Filter]]:
    """Give conditions that together match each document of a stage once.

    They have one bound each, and say what the index holds: an aggregation takes no range of an
    index, as a find does.
    """
    if stage.kind is not Action.PURGE:
        return
    field, array = stage.range.field, {"$type": "array"}
    where: Filter = {field: None if stage.is_undated else {"$lt": stage.range.high}}
    others: list[Filter] = [{field: array}] if stage.is_undated else []
    if field == EXPIRY and isinstance(policy, TTL):
        others.append({str(policy.override): array})  # no ttl: it inherits, and is counted there
    for branch in stage.branches or ({},):
        yield [branch, where, *({"$nor": [each]} for each in others)]
        others.append(branch)


async def now(database: Any) -> datetime:
    """Return the database's present instant."""
    reply = await command_in(database, {"hello": 1})
    return as_datetime(reply["localTime"])
