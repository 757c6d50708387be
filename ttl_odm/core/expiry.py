"""When a row expires, and whether it has.

The truth table of the contract, as functions of a policy and of a row's values. Every database's
predicate is tested against these functions, and ``row.expires_at`` returns what they compute.

This module must not know a clock: ``now`` is the database's, and is passed in. The instants that
it returns are aware and in UTC.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from ttl_odm.core.policy import TTL, ExpireAfter
from ttl_odm.core.values import NEVER, integral, lenient_ttl

if TYPE_CHECKING:
    from ttl_odm.core.policy import Policy

EARLIEST = datetime(1, 1, 2, tzinfo=timezone.utc)
"""Stands for "has always been expired", and for instants before the range of datetime.

It is not the first of January, so that it can be converted to every time zone.
"""

_DAY = timedelta(days=1)
_ISO = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?", re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def effective_ttl(default: int | None, own: int | None) -> int | None:
    """Combine the default (None when TTL is off) with a row's own ttl (None when it inherits).

    These are seconds from the last modification, or None when the row never expires.
    """
    if default is None:  # off: a row's own ttl is kept, but not interpreted
        return None
    ttl = default if own is None else own
    return None if ttl == NEVER else ttl


def own_ttl(policy: TTL, stored: object) -> int | None:
    """Read the own ttl that a row holds.

    The reading is lenient in strict mode too: an invalid value that raw SQL or another program
    stored is not an override (None), and never deletes a row by accident.
    """
    if policy.override is None:
        return None
    if integral(stored) in policy.never:
        return NEVER
    return lenient_ttl(stored)


def expires_at(
    policy: Policy,
    *,
    instant: object,
    own: object = None,
    kind: object = None,
    created: object = None,
) -> datetime | None:
    """Return the instant from which a row does not exist.

    Args:
        policy: How the row expires. A default that is a function is called.
        instant: What the policy's date field holds, see `instant_of`. For `ExpireAfter` and
            `ExpireAt` also a list, of which the earliest date counts, as in MongoDB.
        own: What the row's own ttl field holds, for `TTL`.
        kind: What the field ``policy.by`` holds, for `TTL`.
        created: What the field ``policy.created`` holds, for `TTL`; read as ``instant`` is, and of
            a list the earliest date counts.

    Returns:
        An aware datetime in UTC; None when the row never expires, or so late that a datetime
        (year 9999) cannot hold it; `EARLIEST` for a NULL that ``ExpireAt(null="expired")`` takes
        to be expired.
    """
    if isinstance(policy, TTL):
        default = policy.default_of(kind)
        end = _later(instant_of(policy, instant), effective_ttl(default, own_ttl(policy, own)))
        return end if default is None else earlier(end, latest_end(policy, created))
    if isinstance(policy, ExpireAfter):
        return _later(_earliest(instant, policy), policy.seconds)
    if instant is None and policy.null == "expired":
        return EARLIEST
    return _earliest(instant, policy)


def latest_end(policy: TTL, created: object) -> datetime | None:
    """Return the limit to a row's life while TTL is on (aware, UTC); None if there is none.

    It is counted from `created`, the value of the field ``policy.created``.
    """
    if policy.max_lifetime is None:
        return None
    return _later(_earliest(created, policy), policy.max_lifetime)


def earlier(end: datetime | None, other: datetime | None) -> datetime | None:
    """Return the earlier of two ends of a row's life, where None means never."""
    if end is None or other is None:
        return other if end is None else end
    return min(end, other)


def is_expired(expires_at: datetime | None, now: datetime) -> bool:
    """Return whether a row is expired; at the very instant of expiry it is.

    Args:
        expires_at: As the function of that name returns it.
        now: The time by the database's clock, aware (a naive one can't be compared: TypeError).
    """
    return expires_at is not None and expires_at <= now


def remaining(expires_at: datetime | None, now: datetime) -> timedelta | None:
    """Return the time that a row has left: zero once it is expired, None if it never expires."""
    return None if expires_at is None else max(expires_at - now, timedelta(0))


def _later(instant: datetime | None, seconds: int | None) -> datetime | None:
    if instant is None or seconds is None:
        return None
    try:
        return instant + timedelta(seconds=seconds)
    except OverflowError:
        return None


def instant_of(policy: Policy, value: object) -> datetime | None:
    """Read the value of a policy's date field. If it is ambiguous, the latest instant counts.

    So no row expires too early, whatever its writer meant.

    Args:
        policy: Determines the time zone and the unit.
        value: An aware datetime; a naive one, taken to be in ``policy.timezone`` (a wall time that
            occurs twice in autumn is the second of the two, and one that spring leaves out is read
            with the offset before the change); a date, which lasts until the midnight in that zone
            that ends it; an epoch number, where the policy has such a unit; a string such as
            ``2026-01-31T12:00:00.5Z`` (also with a blank for the T, and with ``+00:00`` or
            nothing for the Z), where the unit is "iso".

    Returns:
        An aware datetime in UTC; None for any other value, and for instants past the year 9999;
        `EARLIEST` for instants before the year 1.
    """
    if isinstance(value, datetime):
        return _instant_in(policy.timezone, value)
    if isinstance(value, date):
        start = datetime(value.year, value.month, value.day)  # noqa: DTZ001 (the zone comes next)
        return _instant_in(policy.timezone, start, later=_DAY)
    if policy.unit == "iso":
        return _from_iso(value) if isinstance(value, str) else None
    if policy.unit is None or isinstance(value, bool) or not hasattr(value, "as_integer_ratio"):
        return None
    return _from_epoch(value, _MICROSECONDS[policy.unit])


def _from_epoch(value: Any, microseconds: int) -> datetime | None:
    """Read an epoch number (int, float, Decimal) whose unit has so many microseconds.

    A float holds no decimal fraction exactly, so it is rounded to the nearest microsecond; the
    fraction of any other number is rounded up to a whole microsecond.
    """
    if isinstance(value, float) and not value >= -(2.0**63):  # NaN, -infinity, numbers of no date
        return None
    try:
        numerator, denominator = value.as_integer_ratio()
        whole, rest = divmod(numerator * microseconds, denominator)
        if rest and (not isinstance(value, float) or 2 * rest >= denominator):
            whole += 1
    except (ValueError, OverflowError):  # NaN, infinity
        return None
    try:
        return _EPOCH + timedelta(microseconds=whole)
    except OverflowError:
        return None if value > 0 else EARLIEST


def _earliest(value: object, policy: Policy) -> datetime | None:
    values = value if isinstance(value, (list, tuple)) else (value,)
    instants = (instant_of(policy, element) for element in values)
    return min((instant for instant in instants if instant is not None), default=None)


def _instant_in(zone: str, value: datetime, *, later: timedelta = timedelta(0)) -> datetime | None:
    """Return a datetime in UTC; a naive one is in a zone ("UTC", "local" or an IANA name).

    Outside the range of datetime the result is None (too late) or `EARLIEST` (too early).
    """
    try:
        instant = value + later
        if instant.utcoffset() is not None:
            return instant.astimezone(timezone.utc)
        if zone == "UTC":
            return instant.replace(tzinfo=timezone.utc)
        info = None  # of a naive datetime, astimezone() takes the system's local time
        if zone != "local":
            from zoneinfo import ZoneInfo  # noqa: PLC0415 (slow to import, and rarely needed)

            info = ZoneInfo(zone)
        # When the offset changes, a wall time can mean two instants.
        readings = (instant.replace(tzinfo=info, fold=fold) for fold in (0, 1))
        return max(reading.astimezone(timezone.utc) for reading in readings)
    except (OverflowError, ValueError, OSError):  # the last two: the C library, for "local"
        return None if value >= datetime(1970, 1, 1, tzinfo=value.tzinfo) else EARLIEST


def _from_iso(text: str) -> datetime | None:
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    *parts, fraction = match.groups()
    # Nanoseconds are rounded up to a whole microsecond.
    microseconds = -(-int((fraction or "").ljust(9, "0")) // 1000)
    try:
        whole = datetime(*map(int, parts), tzinfo=timezone.utc)  # type: ignore[misc,arg-type]
        return whole + timedelta(microseconds=microseconds)
    except (ValueError, OverflowError):
        return None
