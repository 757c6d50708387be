"""For how long a document as the server sent it has been expired, as its policy says.

This module must not know where documents are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bson import DatetimeMS

from ttl_odm.beanie.policy.predicate import kind_of, value_at
from ttl_odm.core.expiry import effective_ttl, own_ttl
from ttl_odm.core.policy import TTL, ExpireAfter

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Filter
    from ttl_odm.core.policy import Policy


def age_of(policy: Policy, row: Filter, now: DatetimeMS) -> float:
    """Return the seconds since a document has expired; 0.0 if it has not, or nobody can tell.

    Not `ttl_odm.core.expires_at`, whose dates end with the year 9999.
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
    """Return a date, or the earliest in an array; None where there is none."""
    values = value if isinstance(value, list) else [value]
    dates = [date for date in values if isinstance(date, DatetimeMS)]
    return min(dates, key=int, default=None)


def reached(now: DatetimeMS, seconds: int) -> DatetimeMS:
    """Return the first millisecond that is not yet so long ago."""
    return DatetimeMS(int(now) - seconds * 1000 + 1)
