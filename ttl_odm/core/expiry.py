"""When a row expires, and whether it has.

The truth table of the contract, as functions of a policy and of what a row holds. They are what
every database's predicate is tested against, and what ``row.expires_at`` shows.

This module must not know a clock: ``now`` is the database's, and is passed in. Instants that it
returns are aware and in UTC.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from ttl_odm.core.policy import TTL, ExpireAfter
from ttl_odm.core.values import NEVER, integral, lenient_ttl

if TYPE_CHECKING:
    from ttl_odm.core.policy import Policy

EARLIEST = datetime.min.replace(tzinfo=timezone.utc)
"""Stands for "has always been expired", and for instants that a datetime is too small for."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS = {
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
    "us": timedelta(microseconds=1),
}


def effective_ttl(default: int | None, own: int | None) -> int | None:
    """Combine the container's default with a row's own ttl.

    Args:
        default: Seconds, `NEVER`, or None when TTL is off.
        own: Seconds, `NEVER`, or None when the row inherits, as `own_ttl` reads it.

    Returns:
        Seconds from the last modification, or None when the row never expires.
    """
    if default is None:  # off: a row's own ttl is kept, but not interpreted
        return None
    ttl = default if own is None else own
    return None if ttl == NEVER else ttl


def own_ttl(policy: TTL, stored: object) -> int | None:
    """Read the own ttl that a row holds.

    The reading is lenient in strict mode too: values which raw SQL or another program put there
    are no override, and never delete a row by accident.

    Args:
        policy: Says whether rows have a ttl at all, and which values mean "never".
        stored: Whatever the database holds.

    Returns:
        Seconds, `NEVER`, or None when the row inherits the default.
    """
    if policy.override is None:
        return None
    if integral(stored) in policy.never:
        return NEVER
    return lenient_ttl(stored)


def expires_at(policy: Policy, *, instant: object, own: object = None) -> datetime | None:
    """Return the instant from which a row does not exist.

    Args:
        policy: How the row expires.
        instant: What the policy's date field holds: an aware datetime, a naive one (taken to be
            in ``policy.timezone``), or an epoch integer where the policy has a unit. For
            `ExpireAfter` and `ExpireAt` also a list, of which the earliest date counts, as in
            MongoDB. Anything else is no date: the row never expires.
        own: What the row's own ttl field holds, for `TTL`.

    Returns:
        An aware datetime in UTC; None when the row never expires, or so late that a datetime
        (year 9999) cannot hold it; `EARLIEST` for a NULL that ``ExpireAt(null="expired")`` takes
        to be expired.
    """
    if isinstance(policy, TTL):
        seconds = effective_ttl(policy.default, own_ttl(policy, own))
        return _later(_instant(instant, policy), seconds)
    if isinstance(policy, ExpireAfter):
        return _later(_earliest(instant, policy), policy.seconds)
    if instant is None and policy.null == "expired":
        return EARLIEST
    return _earliest(instant, policy)


def is_expired(expires_at: datetime | None, now: datetime) -> bool:
    """Say whether a row is expired; at the very instant of expiry it is.

    Args:
        expires_at: As the function of that name returns it.
        now: The database's clock, aware (a naive one raises TypeError, as comparing does).
    """
    return expires_at is not None and expires_at <= now


def remaining(expires_at: datetime | None, now: datetime) -> timedelta | None:
    """Return the time that a row has left.

    Args:
        expires_at: As the function of that name returns it.
        now: The database's clock, aware.

    Returns:
        A timedelta, zero once the row is expired, or None when it never expires.
    """
    if expires_at is None:
        return None
    return max(expires_at - now, timedelta(0))


def _later(instant: datetime | None, seconds: int | None) -> datetime | None:
    if instant is None or seconds is None:
        return None
    try:
        return instant + timedelta(seconds=seconds)
    except OverflowError:
        return None


def _earliest(value: object, policy: Policy) -> datetime | None:
    values = value if isinstance(value, (list, tuple)) else (value,)
    instants = (_instant(each, policy) for each in values)
    return min((each for each in instants if each is not None), default=None)


def _instant(value: object, policy: Policy) -> datetime | None:
    """Read one date; what lies past a datetime's range is None (late) or `EARLIEST` (early)."""
    if isinstance(value, datetime):
        try:
            return _in_utc(value, policy.timezone)
        except (OverflowError, ValueError, OSError):  # the last two: the C library, for "local"
            return None if value >= datetime(1970, 1, 1, tzinfo=value.tzinfo) else EARLIEST
    if policy.unit is None or isinstance(value, bool) or not isinstance(value, int):
        return None
    try:
        return _EPOCH + value * _UNITS[policy.unit]
    except OverflowError:
        return None if value > 0 else EARLIEST


def _in_utc(instant: datetime, zone: str) -> datetime:
    """Return the instant in UTC, a naive one read in a zone ("UTC", "local" or an IANA name).

    A wall time that occurs twice in autumn is the first of the two, and one that spring leaves
    out is read with the offset before the change: naive values from a database have ``fold=0``.
    """
    if instant.utcoffset() is None:
        if zone == "UTC":
            return instant.replace(tzinfo=timezone.utc)
        if zone != "local":
            from zoneinfo import ZoneInfo  # noqa: PLC0415 (costs time: only where it is needed)

            instant = instant.replace(tzinfo=ZoneInfo(zone))
    # Of a naive datetime, astimezone() takes the system's local time.
    return instant.astimezone(timezone.utc)
